"""This gateway among others: its row in the registry, its heartbeat, and the addresses postgres_fdw is given."""

from __future__ import annotations

import logging
import threading
import uuid
from collections.abc import Callable, Mapping, Sequence

import psycopg
from psycopg import sql

from frostline.catalog import gateways
from frostline.catalog.database import Connection, connect, in_recovery
from frostline.catalog.names import SERVER_NAME
from frostline.errors import DatabaseError, FrostlineError
from frostline.gateway.link import Link, said
from frostline.gateway.pins import Pins

log = logging.getLogger(__name__)

# ALTER SERVER of two gateways at once would fail with "tuple concurrently updated".
_PUBLISH_LOCK = 7_346_215_003
# Postgres notices in minutes, not hours, that a gateway's machine is gone; what a person has set stays.
_DEFAULTS = {"connect_timeout": "10", "keepalives_idle": "60", "keepalives_interval": "10", "keepalives_count": "6"}
_STANDBY_SECONDS = 1.0  # how soon a promotion is noticed
_OPTIONS = "SELECT srvoptions FROM pg_foreign_server WHERE srvname = %s"


def _changes(known: Mapping[str, str], wanted: Mapping[str, str]) -> sql.Composed | None:
    changes = [
        sql.SQL("{} {} {}").format(sql.SQL("SET" if name in known else "ADD"), sql.Identifier(name), sql.Literal(value))
        for name, value in wanted.items()
        if known.get(name) != value
    ]
    if not changes:
        return None
    return sql.SQL("ALTER SERVER {} OPTIONS ({})").format(sql.Identifier(SERVER_NAME), sql.SQL(", ").join(changes))


class Presence:
    """Announced when the gateway listens, renewed by a thread, taken back when it stops."""

    def __init__(
        self, dsn: str, link: Link, tls: bool, others: Sequence[tuple[str, int]] = (), tidy: Callable[[], object] = int
    ) -> None:
        self.id = str(uuid.uuid4())
        self._dsn = dsn
        self.pins = Pins(link, self.id, self._announce)
        self._link = link
        self._tls = tls
        self._tidy = tidy  # with every beat
        self._others = others  # gateways of standbys, which cannot write down where they are
        self._standby = False  # and so it is with us
        self._address = ("", 0)
        self._published: list[tuple[str, int]] = []
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._beat, name="gateway heartbeat", daemon=True)

    def begin(self, host: str, port: int) -> None:
        """Tell the database where this gateway is, and from now on that it lives."""
        self._address = host, port
        self._standby = self._link.run(in_recovery)
        if self._standby:
            log.info("Postgres is a standby: cold rows can be read until it is promoted, and then written")
        else:
            self._announce()
            self.publish()
        self._thread.start()

    def end(self) -> None:
        """Other gateways take over; the last one leaves its address, so that a client is told it is down."""
        self._stop.set()
        self._tls = False  # what the others can is not ours to say
        if self._thread.ident is not None:
            self._thread.join(5)
        if self._standby:
            return
        try:
            self._link.run(lambda c: gateways.leave(c, self.id))
            if self._link.run(gateways.addresses):
                self.publish()
        except (FrostlineError, psycopg.Error) as error:
            log.warning("the gateway could not take back its address: %s", error)

    def _announce(self) -> None:
        self._link.run(lambda c: gateways.announce(c, self.id, *self._address))

    def publish(self) -> None:
        """Point postgres_fdw at every gateway that is alive, the newest first; it reconnects when that changes."""
        try:
            # On a connection of its own: somebody's open ALTER SERVER must not keep sessions from their pins.
            with connect(self._dsn, application="frostline gateway publish") as connection:
                self._published = self._publish(connection)
        except psycopg.Error as error:
            raise DatabaseError(f"the gateway's address cannot be published: {said(error)}") from None

    def _publish(self, connection: Connection) -> list[tuple[str, int]]:
        with connection.transaction():
            connection.execute("SET LOCAL lock_timeout = '10s'")
            connection.execute("SELECT pg_advisory_xact_lock(%s)", (_PUBLISH_LOCK,))
            found = gateways.addresses(connection)
            row = connection.execute(_OPTIONS, (SERVER_NAME,)).fetchone()
            known = dict(option.split("=", 1) for option in (row[0] if row else None) or ())
            wanted = {name: value for name, value in _DEFAULTS.items() if name not in known}
            named = [*found, *(address for address in self._others if address not in found)]
            wanted |= {"host": ",".join(host for host, _ in named), "port": ",".join(str(port) for _, port in named)}
            # An entry that insists on something else, a verified certificate say, was made so by a person.
            if self._tls and "sslmode" not in known:
                # The gateway asks for no client certificate. libpq would look for one in the home directory of the
                # server's account, and give up where it may not look; a file that is not there means none.
                wanted |= {"sslmode": "require"} | ({} if "sslcert" in known else {"sslcert": "none"})
            if changes := _changes(known, wanted):
                connection.execute(changes)
        return found

    def _beat(self) -> None:
        while not self._stop.wait(_STANDBY_SECONDS if self._standby else gateways.BEAT_SECONDS):
            try:
                self.renew()
            except FrostlineError as error:
                if not self._stop.is_set():  # else Postgres may well have ended before us
                    log.warning("the heartbeat failed: %s", error)
            except Exception:
                log.exception("the heartbeat failed")

    def renew(self) -> None:
        """One beat: we are alive, pins nobody needs go, and so do gateways that died.

        When a standby was promoted this gateway has no row yet, as if it had been taken for dead.
        """
        self._tidy()
        self._standby = self._link.run(in_recovery)
        if self._standby:
            self.pins.drop_unused()
            return
        if not self._link.run(lambda c: gateways.beat(c, self.id)):
            self.pins.restore()
        self.pins.drop_unused()
        self._link.run(gateways.bury_dead)
        if self._link.run(gateways.addresses) != self._published:
            self.publish()
