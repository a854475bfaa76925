"""Which Iceberg snapshots are in use: committed rows, so that maintenance never removes one that is read.

A gateway pins in three steps: it reads S from the registry, commits a row in `frostline.pins`, and then looks for S in
`frostline.expiring`. Maintenance removes in three steps: it commits its candidates to `frostline.expiring`, then reads
what is live, and removes the candidates that are not. Each side commits before it looks, so of two that meet at least
one sees the other: either maintenance finds the pin and spares S, or the gateway finds S expiring and does not use it
(both may happen; that costs a retry, never a row). A snapshot that was removed stays in `frostline.expiring`, so a pin
that comes late, at a registry row read before S moved on, is told too.

On a standby nothing can be committed. What it reads is kept by the backup window, as for a Postgres that is restored to
the moment it has come to.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from frostline.catalog.database import Connection, in_recovery
from frostline.catalog.gateways import ALIVE

_ADD = """
INSERT INTO frostline.pins (gateway, table_id, snapshot_id, metadata_location) VALUES (%s, %s, %s, %s)
ON CONFLICT DO NOTHING
"""
_REMOVE = "DELETE FROM frostline.pins WHERE gateway = %s AND table_id = %s AND snapshot_id = %s"
_EXPIRING = "SELECT FROM frostline.expiring WHERE table_id = %s AND snapshot_id = %s"
_EXPIRE = """
INSERT INTO frostline.expiring (table_id, snapshot_id) SELECT %s, unnest(%s::bigint[]) ON CONFLICT DO NOTHING
"""
_SPARE = "DELETE FROM frostline.expiring WHERE table_id = %s AND snapshot_id = ANY (%s::bigint[])"
# One statement, so one snapshot: an operation's S is in its row before the swap puts it into frostline.tables, and
# stays there until after; between two statements it could be in neither.
_LIVE = f"""
SELECT snapshot_id FROM frostline.tables WHERE id = %(table)s AND snapshot_id IS NOT NULL
UNION
SELECT snapshot_id FROM frostline.operations
WHERE table_id = %(table)s AND snapshot_id IS NOT NULL
  AND (state = 'running' OR state = 'failed' AND captured IS NOT NULL)
UNION
SELECT p.snapshot_id FROM frostline.pins p JOIN frostline.gateways g ON g.id = p.gateway
WHERE p.table_id = %(table)s AND {ALIVE}
"""


@dataclass(frozen=True)
class Snapshot:
    """One Iceberg snapshot of one managed table."""

    table: int
    id: int
    metadata_location: str


def add(connection: Connection, gateway: str, snapshot: Snapshot) -> bool:
    """Commit a pin; False when the snapshot is being removed and must not be read."""
    _must_commit(connection)
    if not in_recovery(connection):
        connection.execute(_ADD, (gateway, snapshot.table, snapshot.id, snapshot.metadata_location))
    if not expiring(connection, snapshot):
        return True
    remove(connection, gateway, snapshot)
    return False


def expiring(connection: Connection, snapshot: Snapshot) -> bool:
    """Whether a snapshot is being removed, or was."""
    return connection.execute(_EXPIRING, (snapshot.table, snapshot.id)).fetchone() is not None


def remove(connection: Connection, gateway: str, snapshot: Snapshot) -> None:
    if not in_recovery(connection):
        connection.execute(_REMOVE, (gateway, snapshot.table, snapshot.id))


def live_snapshots(connection: Connection, table: int) -> set[int]:
    """The registry's snapshot, those of operations that run or can go on, and those that living gateways read."""
    return {snapshot for (snapshot,) in connection.execute(_LIVE, {"table": table})}


def claim_expired(connection: Connection, table: int, candidates: Iterable[int]) -> set[int]:
    """The candidates that may be removed now: nobody reads them, and nobody will begin to."""
    _must_commit(connection)
    wanted = set(candidates)
    connection.execute(_EXPIRE, (table, sorted(wanted)))
    spared = wanted & live_snapshots(connection, table)
    connection.execute(_SPARE, (table, sorted(spared)))
    return wanted - spared


def _must_commit(connection: Connection) -> None:
    # Inside a transaction nobody would see the row before the other side has looked.
    assert connection.autocommit
    assert connection.info.transaction_status == 0
