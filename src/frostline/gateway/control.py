"""What the database says about its gateway: which installation it serves, and the shared secret."""

from __future__ import annotations

import threading
from dataclasses import dataclass

from frostline.catalog import numbering
from frostline.catalog.database import Connection
from frostline.catalog.names import GATEWAY_USER, SERVER_NAME
from frostline.errors import DatabaseError
from frostline.gateway.link import Link
from frostline.gateway.origin import NOBODY, Origin
from frostline.gateway.wire.scram import Verifier

_INSTALLED = """
SELECT i.id::text, s.srvoptions, m.umoptions, pg_catalog.current_setting('server_version'),
       pg_catalog.current_setting('server_encoding'),
       CASE WHEN %(pid)s::int IS NULL THEN 'theirs' ELSE (
           SELECT CASE pg_catalog.floor(pg_catalog.date_part('epoch', a.backend_start)) = %(started)s
                      WHEN true THEN 'theirs' WHEN false THEN 'another' ELSE 'hidden' END
           FROM pg_catalog.pg_stat_get_activity(%(pid)s) a
           JOIN pg_catalog.pg_database d ON d.oid = a.datid AND d.datname = pg_catalog.current_database()) END
FROM frostline.installation i
LEFT JOIN pg_catalog.pg_foreign_server s ON s.srvname = %(server)s
LEFT JOIN pg_catalog.pg_user_mappings m ON m.srvid = s.oid AND m.umuser = 0
"""
# Who may not read all statistics is not told since when others are there. But everybody is told that whoever asks a
# gateway is about to read, and on another server a process of the same number hardly is. (Not in the query above: it
# would be expensive enough to be compiled.)
_READING = """
SELECT EXISTS (
    SELECT FROM pg_catalog.pg_locks l
    LEFT JOIN pg_catalog.pg_foreign_table f ON f.ftrelid = l.relation
    LEFT JOIN pg_catalog.pg_foreign_server s ON s.oid = f.ftserver
    LEFT JOIN pg_catalog.pg_class c ON c.oid = l.relation
    JOIN pg_catalog.pg_database d ON d.oid = l.database AND d.datname = pg_catalog.current_database()
    WHERE l.pid = %(pid)s AND l.locktype = 'relation'
      -- or a table that was made in the same transaction, as verifying does
      AND (s.srvname = %(server)s OR c.oid IS NULL))
"""


@dataclass(frozen=True)
class Installed:
    """What the database says about its gateway."""

    id: str
    address: dict[str, str]
    user: str
    password: str
    version: str
    theirs: bool = True  # whether the session that asks is one of this database


class Control:
    """Shared by all sessions; every answer is read afresh, so changes need no restart."""

    def __init__(self, link: Link) -> None:
        self._link = link
        self._lock = threading.Lock()
        self._verifier: tuple[str, Verifier] | None = None
        self._begun = False
        self._numbered: Connection | None = None

    def installed(self, origin: Origin = NOBODY) -> Installed:
        asked = {"server": SERVER_NAME, "pid": origin.pid, "started": origin.started}
        row = self._link.run(lambda c: self._checked(c).execute(_INSTALLED, asked).fetchone())
        if row is None or row[1] is None:
            raise DatabaseError("this database has no Frostline registry", hint="run frostline init")
        if row[4] != "UTF8":
            raise DatabaseError(f"the database's encoding is {row[4]}; the gateway serves UTF8 databases")
        mapping = _options(row[2])
        if "password" not in mapping:
            raise DatabaseError(
                "the gateway's secret cannot be read",
                hint="the role of the DSN must own the foreign server; run frostline init as that role",
            )
        theirs = row[5] == "theirs"
        if row[5] == "hidden":
            theirs = self._link.run(lambda c: c.execute(_READING, asked).fetchone()) == (True,)
        user = mapping.get("user", GATEWAY_USER)
        return Installed(row[0], _options(row[1]), user, mapping["password"], row[3], theirs)

    def begin(self) -> None:
        """The registry is one we know; from now on it is looked at more closely before a session is let in."""
        self._begun = True
        self._link.run(self._checked)

    def _checked(self, connection: Connection) -> Connection:
        """By each new connection: the database may have been dropped, and loaded from a dump, under its name."""
        if self._begun and connection is not self._numbered:
            numbering.check_unless_adopted(connection)
            self._numbered = connection
        return connection

    def verifier(self, password: str) -> Verifier:
        """Deriving keys is slow on purpose, so it is done once per secret."""
        with self._lock:
            if self._verifier is None or self._verifier[0] != password:
                self._verifier = (password, Verifier.of(password))
            return self._verifier[1]


def _options(found: list[str] | None) -> dict[str, str]:
    return dict(option.split("=", 1) for option in found or ())
