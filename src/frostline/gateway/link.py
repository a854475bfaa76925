"""A connection of the gateway's own to Postgres, shared by its sessions, opened again when it breaks."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TypeVar

import psycopg

from frostline.catalog.database import Connection, connect, unreachable
from frostline.errors import DatabaseError

Result = TypeVar("Result")


class Link:
    """One autocommit connection, one user at a time."""

    def __init__(self, dsn: str, application: str) -> None:
        self._dsn = dsn
        self._application = application
        self._lock = threading.Lock()
        self._connection: Connection | None = None

    def run(self, work: Callable[[Connection], Result]) -> Result:
        """Let `work` use the connection; once more on a new one when the old one turns out to be gone."""
        with self._lock:
            for last in (False, True):
                connection = self._connected()
                try:
                    return work(connection)
                except psycopg.errors.UndefinedTable as error:
                    raise DatabaseError(
                        "this database has no Frostline registry that this gateway knows",
                        hint="run frostline init",
                        detail=said(error),
                    ) from None
                except psycopg.OperationalError as error:
                    if not connection.closed:
                        raise
                    # Postgres may have restarted since the last time.
                    if last:
                        raise unreachable(error) from None
            raise AssertionError

    def close(self) -> None:
        with self._lock:
            if self._connection is not None:
                self._connection.close()
            self._connection = None

    def _connected(self) -> Connection:
        if self._connection is None or self._connection.closed:
            self._connection = connect(self._dsn, application=self._application)
        return self._connection


def said(error: psycopg.Error) -> str:
    """The first line of what Postgres or libpq said."""
    return str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
