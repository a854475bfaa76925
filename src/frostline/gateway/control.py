"""The gateway's own connection to Postgres: which installation it serves, the shared secret, its published address."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import Any

import psycopg
from psycopg import sql

from frostline.catalog.database import connect
from frostline.catalog.names import GATEWAY_USER, SERVER_NAME
from frostline.errors import DatabaseError
from frostline.gateway.wire.scram import Verifier

_INSTALLED = """
SELECT i.id::text, s.srvoptions, m.umoptions, pg_catalog.current_setting('server_version'),
       pg_catalog.current_setting('server_encoding')
FROM frostline.installation i
LEFT JOIN pg_catalog.pg_foreign_server s ON s.srvname = %(server)s
LEFT JOIN pg_catalog.pg_user_mappings m ON m.srvid = s.oid AND m.umuser = 0
"""


@dataclass(frozen=True)
class Installed:
    """What the database says about its gateway."""

    id: str
    address: dict[str, str]
    user: str
    password: str
    version: str


class Control:
    """Shared by all sessions; every answer is read afresh, so changes need no restart."""

    def __init__(self, dsn: str) -> None:
        self._dsn = dsn
        self._lock = threading.Lock()
        self._connection: psycopg.Connection[Any] | None = None
        self._verifier: tuple[str, Verifier] | None = None

    def installed(self) -> Installed:
        with self._lock:
            row = self._row()
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
        return Installed(row[0], _options(row[1]), mapping.get("user", GATEWAY_USER), mapping["password"], row[3])

    def verifier(self, password: str) -> Verifier:
        """Deriving keys is slow on purpose, so it is done once per secret."""
        with self._lock:
            if self._verifier is None or self._verifier[0] != password:
                self._verifier = (password, Verifier.of(password))
            return self._verifier[1]

    def publish(self, host: str, port: int) -> None:
        """Tell postgres_fdw where the gateway is; it reconnects by itself when the options change."""
        known = self.installed().address
        changes = [
            sql.SQL("{} {} {}").format(
                sql.SQL("SET" if name in known else "ADD"), sql.Identifier(name), sql.Literal(value)
            )
            for name, value in (("host", host), ("port", str(port)))
            if known.get(name) != value
        ]
        if changes:
            alter = sql.SQL("ALTER SERVER {} OPTIONS ({})").format(
                sql.Identifier(SERVER_NAME), sql.SQL(", ").join(changes)
            )
            with self._lock:
                try:
                    self._connected().execute(alter)
                except psycopg.Error as error:
                    raise DatabaseError(f"the gateway's address cannot be published: {_said(error)}") from None

    def close(self) -> None:
        with self._lock:
            if self._connection is not None:
                self._connection.close()
            self._connection = None

    def _row(self) -> tuple[Any, ...] | None:
        for last in (False, True):
            try:
                return self._connected().execute(_INSTALLED, {"server": SERVER_NAME}).fetchone()
            except psycopg.errors.UndefinedTable:
                return None
            except psycopg.OperationalError as error:
                # Postgres may have restarted since the last session.
                self._connection = None
                if last:
                    raise DatabaseError(f"Postgres cannot be reached: {_said(error)}") from None
            except psycopg.Error as error:
                raise DatabaseError(f"the registry cannot be read: {_said(error)}") from None
        return None

    def _connected(self) -> psycopg.Connection[Any]:
        if self._connection is None or self._connection.closed:
            self._connection = connect(self._dsn, application="frostline gateway control")
        return self._connection


def _options(found: list[str] | None) -> dict[str, str]:
    return dict(option.split("=", 1) for option in found or ())


def _said(error: psycopg.Error) -> str:
    return str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
