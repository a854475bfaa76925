"""The Postgres transaction behind a remote transaction: registry, delta and temporary tables are read in it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import psycopg
from psycopg import sql

from frostline.catalog.database import session_sql
from frostline.errors import DatabaseError, QueryError
from frostline.gateway.cancel import Canceller

# Besides what every session of ours sets. A date is printed as postgres_fdw asks for it. A lock held by the very
# transaction that waits for us would never be found to be a deadlock.
_SETTINGS = """
SET datestyle = 'ISO, MDY'; SET client_encoding = 'UTF8'; SET cursor_tuple_fraction = 1; SET lock_timeout = '10s'
"""


class Backing:
    """One session's connection to Postgres; its transactions write nothing but temporary tables."""

    def __init__(self, dsn: str, canceller: Canceller) -> None:
        self._dsn = dsn
        self._connection: psycopg.Connection[Any] | None = None
        self._canceller = canceller
        self.open = False
        self.snapshot: str | None = None

    @property
    def connection(self) -> psycopg.Connection[Any]:
        """The connection inside the transaction that `begin` opened."""
        if self._connection is None or not self.open:
            raise QueryError("the backing transaction is not open")
        return self._connection

    def begin(self, snapshot: str | None = None) -> None:
        """Open the transaction; its snapshot is taken by the first query, or is an exported one."""
        connection = self._begun()
        with self.running():
            if snapshot is not None:
                connection.execute(sql.SQL("SET TRANSACTION SNAPSHOT {}").format(sql.Literal(snapshot)))
        self.snapshot = snapshot

    def _begun(self) -> psycopg.Connection[Any]:
        """In a transaction; on a new connection when the old one was ended while we were idle."""
        for last in (False, True):
            connection = self._connect()
            try:
                with self.running():
                    connection.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ WRITE")
            except psycopg.OperationalError:
                if last or not connection.closed:
                    raise
                continue
            self.open = True
            return connection
        raise AssertionError

    def end(self) -> None:
        """Forget the transaction and everything in it."""
        if self._connection is not None and self.open:
            try:
                self._connection.execute("ROLLBACK")
            except psycopg.Error:
                self.close()
        self.open, self.snapshot = False, None

    def close(self) -> None:
        if self._connection is not None:
            with contextlib.suppress(psycopg.Error):
                self._connection.close()
        self._connection, self.open = None, False

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        """While Postgres works for us and may be asked to stop."""
        with self._canceller.interruptible(self._cancel):
            yield

    @contextlib.contextmanager
    def savepoint(self) -> Iterator[psycopg.Connection[Any]]:
        """What fails inside does not end the transaction."""
        connection = self.connection
        connection.execute("SAVEPOINT frostline")
        try:
            with self.running():
                yield connection
        except BaseException:
            if not connection.closed:
                connection.execute("ROLLBACK TO SAVEPOINT frostline; RELEASE SAVEPOINT frostline")
            raise
        connection.execute("RELEASE SAVEPOINT frostline")

    def _cancel(self) -> None:
        if self._connection is not None:
            with contextlib.suppress(psycopg.Error):
                self._connection.cancel_safe(timeout=5)

    def _connect(self) -> psycopg.Connection[Any]:
        if self._connection is not None and self._connection.closed:
            self._connection = None
        if self._connection is None:
            try:
                self._connection = psycopg.connect(self._dsn, autocommit=True, application_name="frostline gateway")
                self._connection.execute(session_sql(local=False))
                self._connection.execute(_SETTINGS)
            except psycopg.Error as error:
                self.close()
                raise DatabaseError(f"the gateway cannot reach Postgres: {str(error).strip()}") from None
        return self._connection
