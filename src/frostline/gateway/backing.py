"""The Postgres transaction behind a remote transaction: registry, delta and temporary tables are read in it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import psycopg
from psycopg import sql

from frostline.errors import DatabaseError, QueryError
from frostline.gateway.cancel import Canceller

# What postgres_fdw sets on a remote session, so that text means the same; our transaction outlives pauses; and a lock
# held by the very transaction that waits for us would never be found to be a deadlock.
_SETTINGS = """
SET search_path = pg_catalog; SET timezone = 'UTC'; SET datestyle = 'ISO'; SET intervalstyle = 'postgres';
SET extra_float_digits = 3; SET bytea_output = 'hex'; SET standard_conforming_strings = on;
SET client_encoding = 'UTF8'; SET statement_timeout = 0; SET idle_in_transaction_session_timeout = 0;
SET cursor_tuple_fraction = 1; SET lock_timeout = '10s'
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
        connection = self._connect()
        statement = sql.SQL("BEGIN ISOLATION LEVEL REPEATABLE READ READ WRITE")
        with self.running():
            connection.execute(statement)
            self.open = True
            if snapshot is not None:
                connection.execute(sql.SQL("SET TRANSACTION SNAPSHOT {}").format(sql.Literal(snapshot)))
        self.snapshot = snapshot

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
                self._connection.execute(_SETTINGS)
            except psycopg.Error as error:
                self.close()
                raise DatabaseError(f"the gateway cannot reach Postgres: {str(error).strip()}") from None
        return self._connection
