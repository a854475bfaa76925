"""The Postgres transaction behind a remote transaction: registry, delta and temporary tables are read in it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import psycopg

from frostline.catalog import cold
from frostline.catalog.database import session_sql
from frostline.errors import DatabaseError, QueryError
from frostline.gateway.cancel import Canceller

# Besides what every session of ours sets. A date is printed as postgres_fdw asks for it. A lock held by the very
# transaction that waits for us would never be found to be a deadlock.
_SETTINGS = """
SET datestyle = 'ISO, MDY'; SET client_encoding = 'UTF8'; SET cursor_tuple_fraction = 1; SET lock_timeout = '10s'
"""


_BEGIN = "BEGIN ISOLATION LEVEL REPEATABLE READ READ WRITE"


class Backing:
    """One session's connection to Postgres; its transactions write nothing but temporary tables."""

    def __init__(self, dsn: str, canceller: Canceller) -> None:
        self._dsn = dsn
        self._connection: psycopg.Connection[Any] | None = None
        self._canceller = canceller
        self.open = False
        self.snapshot: str | None = None
        self.prepared: set[str] = set()  # statements that this connection knows by name

    @property
    def connection(self) -> psycopg.Connection[Any]:
        """The connection inside the transaction that `begin` opened."""
        if self._connection is None or not self.open:
            raise QueryError("the backing transaction is not open")
        return self._connection

    def begin(
        self, snapshot: str | None = None, questions: Callable[[], Sequence[str]] = tuple
    ) -> list[Mapping[str, Any] | None]:
        """Open the transaction at its first question's snapshot or an exported one; the first row of each answer.

        All of it is one round trip: a point look-up has few others.
        """
        at = [] if snapshot is None else [f"SET TRANSACTION SNAPSHOT {_quoted(snapshot)}"]
        for last in (False, True):
            connection = self._connect()
            try:
                with self.running():
                    cursor = connection.execute("; ".join([_BEGIN, *at, *questions()]))
            except psycopg.OperationalError:
                # On a new connection when the old one was ended while we were idle.
                if last or not connection.closed:
                    self._reset(connection)
                    raise
                continue
            except BaseException:
                self._reset(connection)
                raise
            self.open, self.snapshot = True, snapshot
            return _first_rows(cursor, skipping=1 + len(at))
        raise AssertionError

    def _reset(self, connection: psycopg.Connection[Any]) -> None:
        """Out of a transaction that failed while it was being opened."""
        self.open = not connection.closed
        self.end()

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
                # Otherwise psycopg prepares too, and forgets all that is prepared, ours included, after an error.
                self._connection.prepare_threshold = None
                self._connection.execute(cold.PREPARE)
                self.prepared.clear()
            except psycopg.Error as error:
                self.close()
                raise DatabaseError(f"the gateway cannot reach Postgres: {str(error).strip()}") from None
        return self._connection


def _first_rows(cursor: psycopg.Cursor[Any], skipping: int) -> list[Mapping[str, Any] | None]:
    """The first row of each result after those of the opening statements."""
    for _ in range(skipping - 1):
        cursor.nextset()
    found: list[Mapping[str, Any] | None] = []
    while cursor.nextset():
        row = cursor.fetchone()
        names = [column.name for column in cursor.description or ()]
        found.append(None if row is None else dict(zip(names, row, strict=True)))
    return found


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
