"""Which gateways are alive: a row each, kept fresh by its heartbeat, by the database's clock."""

from __future__ import annotations

from frostline.catalog.database import Connection

BEAT_SECONDS = 10.0
DEAD_SECONDS = 60  # several beats: one lost to a busy database kills nobody
ALIVE = f"g.heartbeat > clock_timestamp() - interval '{DEAD_SECONDS} seconds'"

_ANNOUNCE = """
INSERT INTO frostline.gateways (id, host, port) VALUES (%s, %s, %s)
ON CONFLICT (id) DO UPDATE SET heartbeat = clock_timestamp()
"""
_BEAT = "UPDATE frostline.gateways SET heartbeat = clock_timestamp() WHERE id = %s"
_LEAVE = "DELETE FROM frostline.gateways WHERE id = %s"
_BURY = f"DELETE FROM frostline.gateways g WHERE NOT {ALIVE}"
# Several gateways may stand behind one address (a load balancer's).
_ADDRESSES = f"""
SELECT host, port FROM frostline.gateways g WHERE {ALIVE} GROUP BY host, port ORDER BY max(started_at) DESC, host, port
"""


def announce(connection: Connection, gateway: str, host: str, port: int) -> None:
    """This gateway is alive and reached at an address."""
    connection.execute(_ANNOUNCE, (gateway, host, port))


def beat(connection: Connection, gateway: str) -> bool:
    """Still alive; False when others took us for dead and removed our row with its pins."""
    return connection.execute(_BEAT, (gateway,)).rowcount == 1


def leave(connection: Connection, gateway: str) -> None:
    connection.execute(_LEAVE, (gateway,))


def bury_dead(connection: Connection) -> None:
    connection.execute(_BURY)


def addresses(connection: Connection) -> list[tuple[str, int]]:
    """Where gateways that are alive listen, the newest first."""
    return list(connection.execute(_ADDRESSES).fetchall())
