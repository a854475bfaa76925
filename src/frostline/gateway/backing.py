"""The Postgres transaction behind a remote transaction: registry, delta and temporary tables are read in it."""

from __future__ import annotations

import contextlib
import math
import select
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import psycopg
from psycopg.errors import error_from_result
from psycopg.pq import ExecStatus, TransactionStatus
from psycopg.pq.abc import PGconn, PGresult

from frostline.catalog import cold
from frostline.catalog.database import session_sql, unreachable
from frostline.catalog.names import IN_USE
from frostline.errors import QueryError
from frostline.gateway.cancel import Canceller, Interruptible
from frostline.gateway.lexer import quoted

# Besides what every session of ours sets. A date is printed as postgres_fdw asks for it. A lock held by the very
# transaction that waits for us would never be found to be a deadlock.
_SETTINGS = """
SET datestyle = 'ISO, MDY'; SET client_encoding = 'UTF8'; SET cursor_tuple_fraction = 1; SET lock_timeout = '10s'
"""
# A transaction's first statement may end without reading cold rows. Then the next one must see what others committed
# meanwhile; that takes them, and the way there and back, longer than postgres_fdw from START to DECLARE.
_EARLY_SECONDS = 0.0004
_MOST_NAMED = 50  # statements: every list of columns is another
_WORTH_SENDING = 32_768  # bytes of a COPY
_IN_USE = "frostline_in_use"
_WAITS = 0.001, 0.01, 0.1  # seconds
_MARK = "pg_catalog.pg_{}advisory_xact_lock_shared({}, {})"
_BEGIN = "BEGIN ISOLATION LEVEL REPEATABLE READ"  # on a standby it is READ ONLY, else not: see SESSION


@dataclass
class _Copy:
    """A COPY that has not ended, and whose rows it takes."""

    statement: str
    of: set[int] = field(default_factory=set)
    lines: list[bytes] = field(default_factory=list)  # that wait for more
    size: int = 0


class Backing:
    """One session's connection to Postgres; its transactions write nothing but temporary tables."""

    def __init__(self, dsn: str, canceller: Canceller, pid: int | None = None) -> None:
        self._dsn = dsn
        self._connection: psycopg.Connection[Any] | None = None
        self._canceller = canceller
        self._statements: dict[str, str] = {}  # prepared on every connection we open
        self._names: dict[str, str] = {}  # by statement: those that are known by their texts
        self._in_use: list[str] = []
        if pid is not None:
            # By this lock the triggers of the backend we work for know that there may be something to store. They try
            # it themselves, for a moment. Anybody else can keep it, for whom no reader is to wait.
            tried = _MARK.format("try_", IN_USE, pid)
            waits = " ".join(f"WHEN pg_catalog.pg_sleep({s})::text IS NOT NULL AND {tried} THEN true" for s in _WAITS)
            self._statements[_IN_USE] = f"AS SELECT CASE WHEN {tried} THEN true {waits} ELSE false END"
            self._in_use.append(f"EXECUTE {_IN_USE}")
        self._pid = pid
        self._marked = False  # we have that lock
        self._sent: tuple[str, ...] | None = None  # statements whose results nobody has taken yet
        self._sent_at = 0.0
        self._answers: dict[str, PGresult] = {}  # to questions that are yet to be asked
        self._begun: dict[str, PGresult] = {}  # to those that were sent with the beginning
        self._later: list[str] = []  # goes along with what is asked next
        self._copy: _Copy | None = None
        self._failed: dict[int, Exception] = {}  # whose rows were not all taken, and why
        self.open = False
        self.snapshot: str | None = None
        self.standby = False  # the transaction is one of a standby: no temporary tables
        self.server = ""  # since when the server runs that we are connected to

    @property
    def connection(self) -> psycopg.Connection[Any]:
        """The connection inside the transaction that `begin` opened."""
        if self._connection is None or not self.open:
            raise QueryError("the backing transaction is not open")
        self._settle()
        return self._connection

    @property
    def failed(self) -> bool:
        """Whether the transaction can only be ended: a question was interrupted."""
        return self._connection is not None and self._connection.pgconn.transaction_status == TransactionStatus.INERROR

    def prepare(self, name: str, statement: str) -> None:
        """Let `EXECUTE name` be asked from now on, by this connection and those that follow it."""
        if self.open:
            self.connection.execute(f"PREPARE {name} {statement}")
        self._statements[name] = statement

    def prepared(self, name: str) -> bool:
        return name in self._statements

    def known_as(self, statement: str) -> str | None:
        """The name that a statement has by now."""
        name = self._names.get(statement)
        return name if name in self._statements else None

    def named(self, statement: str) -> str | None:
        """By which name `EXECUTE` asks for it, from its first time on; None: too many have one already."""
        if statement not in self._names and len(self._names) < _MOST_NAMED:
            name = f"frostline_{len(self._names)}"
            self.prepare(name, statement)
            self._names[statement] = name
        return self.known_as(statement)

    def forget(self, name: str) -> None:
        """The next connection does not prepare it."""
        self._statements.pop(name, None)

    def begin_early(self, questions: Sequence[str]) -> bool:
        """Open a transaction and ask what will likely be asked first, without waiting for the answers."""
        if self.open or self._sent is not None or self._connection is None or self._connection.closed:
            return False
        try:
            self._send(self._connection, [_BEGIN, *self._in_use, *questions])
        except psycopg.Error:
            self.close()
        return self._sent is not None

    def begin(
        self, snapshot: str | None = None, questions: Sequence[str] = (), *, asked_at: float = math.inf
    ) -> list[PGresult]:
        """Open the transaction and ask; the answers are of the first question's snapshot, or of an exported one.

        All of it is one round trip: a point look-up has few others.
        """
        at = [] if snapshot is None else [f"SET TRANSACTION SNAPSHOT {quoted(snapshot)}"]
        wanted = (_BEGIN, *at, *self._in_use, *questions)
        early, sent = asked_at - self._sent_at <= _EARLY_SECONDS, self._sent or ()
        for last in (False, True):
            connection = self._connect()
            try:
                with self.running():
                    found = [] if self._sent is None else self._take()
                    if not early or sent[: len(wanted)] != wanted or not found or _failed(found):
                        # A transaction that was begun in vain, or whose questions failed, ends on the way to the next.
                        sent = ("ROLLBACK",) * bool(found) + wanted
                        self._send(connection, sent)
                        found = self._take()
                    self._opened(connection, snapshot, found)
                    end = sent.index(_BEGIN) + len(wanted)
                    first = end - len(questions)
                    self._marked = bool(self._in_use) and found[first - 1].get_value(0, 0) == b"t"
                    self._begun = dict(zip(sent[end:], found[end:], strict=True))
                    return found[first:end]
            except psycopg.OperationalError:
                # On a new connection when the old one was ended while we were idle.
                if last or not connection.closed:
                    raise
        raise AssertionError

    def _opened(self, connection: psycopg.Connection[Any], snapshot: str | None, found: Sequence[PGresult]) -> None:
        """It is, if nothing that was sent failed; else it is ended."""
        self.open, self.snapshot = True, snapshot
        # Postgres tells with every answer; a connection lives on when its server is promoted.
        self.standby = connection.pgconn.parameter_status(b"in_hot_standby") == b"on"
        try:
            _check(found)
        except psycopg.Error:
            self.end()
            raise

    def mark(self) -> None:
        """There will be something to store."""
        if self._pid is not None and not self._marked:
            with self.running():
                self.connection.execute(f"SELECT {_MARK.format('', IN_USE, self._pid)}")
            self._marked = True

    def ahead(self, questions: Sequence[str]) -> None:
        """Let Postgres work on what will be asked next; who asks something else waits for it and goes on."""
        connection = self.connection
        self._answers = {question: self._begun[question] for question in questions if question in self._begun}
        self._begun.clear()
        lacking = [question for question in questions if question not in self._answers]
        if lacking:
            self._send(connection, lacking)

    def went_on(self) -> None:
        """Another statement comes: what was asked with the beginning was asked for the first."""
        self._begun.clear()

    def answer(self, question: str) -> PGresult:
        """The answer to one question."""
        if question not in self._answers:
            if self._sent is None or question not in self._sent:
                self.ahead([question])
            self._settle()
        return self._answers.pop(question)

    def _send(self, connection: psycopg.Connection[Any], statements: Sequence[str]) -> None:
        self._sent_at = time.perf_counter()  # Postgres may answer before we are back
        _ask(connection, statements)
        self._sent = tuple(statements)

    def _take(self) -> list[PGresult]:
        """The results of what was sent, if anything was."""
        sent, self._sent = self._sent, None
        return [] if sent is None or self._connection is None else _results(self._connection.pgconn)

    def _settle(self) -> None:
        """Wait for what was asked ahead, or for a COPY; when a question failed, so has the transaction."""
        if self._sent is not None:
            sent = self._sent
            with self.running():
                found = self._take()
                _check(found)
            self._answers |= zip(sent, found, strict=True)
        self.end_copy()

    def end(self) -> None:
        """Forget the transaction and everything in it."""
        with contextlib.suppress(psycopg.Error):
            self.end_copy()
        if self._connection is not None and (self.open or self._sent is not None):
            try:
                self._take()  # nobody wants to know any more
                self._send(self._connection, ["ROLLBACK"])
                _check(self._take())
            except psycopg.Error:
                self.close()
        self._forget()

    def _forget(self) -> None:
        self.open, self.snapshot, self._marked = False, None, False
        self._sent, self._copy = None, None
        for kept in (self._answers, self._begun, self._later, self._failed):
            kept.clear()

    def close(self) -> None:
        if self._connection is not None:
            with contextlib.suppress(psycopg.Error):
                self._connection.close()
        self._connection = None
        self._forget()

    def copy(self, statement: str, lines: bytes, of: int) -> None:
        """Rows for a COPY, which goes on until something else is asked: nobody waits for each of its pieces.

        That they could not be taken may be found out by whoever asks next, who may do without; `of` says whose they
        are, for `check`.
        """
        if self._copy is None or self._copy.statement != statement:
            connection = self.connection
            connection.execute("SAVEPOINT frostline")
            with self.running():
                result = connection.pgconn.exec_(statement.encode())
                if result.status != ExecStatus.COPY_IN:
                    connection.execute("ROLLBACK TO SAVEPOINT frostline; RELEASE SAVEPOINT frostline")
                    raise error_from_result(result)
            self._copy = _Copy(statement)
        copy = self._copy
        copy.of.add(of)
        copy.lines.append(lines)
        copy.size += len(lines)
        if copy.size < _WORTH_SENDING:
            return
        assert self._connection is not None
        with self.running():
            self._put(copy)
        if select.select([self._connection.pgconn.socket], [], [], 0)[0]:
            self.end_copy()  # it has something to say: mostly that it is over

    def _put(self, copy: _Copy) -> None:
        assert self._connection is not None
        self._connection.pgconn.put_copy_data(b"".join(copy.lines))
        _flush(self._connection.pgconn)
        copy.lines, copy.size = [], 0

    def end_copy(self) -> None:
        """End a COPY that goes on."""
        copy, self._copy = self._copy, None
        if copy is None or self._connection is None or self._connection.closed:
            return
        connection = self._connection
        try:
            with self.running():
                if copy.lines:
                    self._put(copy)
                connection.pgconn.put_copy_end()
                _flush(connection.pgconn)
                _check(_results(connection.pgconn))
        except Exception as error:
            self._failed.update(dict.fromkeys(copy.of, error))
            if not connection.closed:
                connection.execute("ROLLBACK TO SAVEPOINT frostline; RELEASE SAVEPOINT frostline")
            raise
        connection.execute("RELEASE SAVEPOINT frostline")

    def check(self, of: Iterable[int]) -> None:
        """Whether all rows of these were taken, as far as that is known; who was told before may have gone on."""
        for one in of:
            if one in self._failed:
                raise self._failed[one]

    def later(self, statement: str) -> None:
        """Something that nobody waits for."""
        self._later.append(statement)

    def batch(self, statements: Sequence[str]) -> list[PGresult]:
        """The results of several statements in one round trip; when one fails, nothing of them stays."""
        connection, along = self.connection, len(self._later)
        with self.running():
            _ask(connection, ["SAVEPOINT frostline", *self._later, *statements, "RELEASE SAVEPOINT frostline"])
            found = _results(connection.pgconn)
            del self._later[: len(found) - 1]  # a cursor that was closed stays so, whatever failed behind it
            try:
                _check(found)
            except psycopg.Error:
                # Of a text that Postgres cannot read nothing was done; then there is no savepoint to go back to.
                if not connection.closed and found[0].status != ExecStatus.FATAL_ERROR:
                    connection.execute("ROLLBACK TO SAVEPOINT frostline; RELEASE SAVEPOINT frostline")
                raise
        return found[along + 1 : -1]

    def running(self) -> Interruptible:
        """While Postgres works for us and may be asked to stop."""
        return self._canceller.interruptible(self._cancel)

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
            self.close()
        if self._connection is None:
            try:
                self._connection = psycopg.connect(
                    self._dsn,
                    autocommit=True,
                    application_name="frostline gateway",
                    # Otherwise psycopg prepares too, and after an error it forgets all that is prepared, ours included.
                    prepare_threshold=None,
                )
                self._connection.execute(session_sql(local=False))
                started = self._connection.execute("SELECT pg_catalog.pg_postmaster_start_time()::text").fetchone()
                self.server = started[0] if started is not None else ""
                self._connection.execute(_SETTINGS)
                self._connection.execute(cold.PREPARE)
                self._prepare_again(self._connection)
            except psycopg.Error as error:
                self.close()
                raise unreachable(error, "the gateway cannot reach Postgres") from None
        return self._connection

    def _prepare_again(self, connection: psycopg.Connection[Any]) -> None:
        for name, statement in list(self._statements.items()):
            try:
                connection.execute(f"PREPARE {name} {statement}")
            except psycopg.ProgrammingError:  # what it asks is not there any more
                self.forget(name)


def _ask(connection: psycopg.Connection[Any], statements: Sequence[str]) -> None:
    connection.pgconn.send_query("; ".join(statements).encode())
    _flush(connection.pgconn)


def _flush(connection: PGconn) -> None:
    while connection.flush():
        select.select([], [connection.socket], [])


def _results(connection: PGconn) -> list[PGresult]:
    """Every result of what was sent; other sessions go on while this one waits."""
    found: list[PGresult] = []
    poll = select.poll()
    poll.register(connection.socket, select.POLLIN)
    while True:
        while connection.is_busy():
            poll.poll()
            connection.consume_input()
        result = connection.get_result()
        if result is None:
            return found
        found.append(result)


def _failed(found: Iterable[PGresult]) -> bool:
    return any(result.status == ExecStatus.FATAL_ERROR for result in found)


def _check(found: Iterable[PGresult]) -> None:
    """Raise what Postgres says went wrong."""
    for result in found:
        if result.status == ExecStatus.FATAL_ERROR:
            raise error_from_result(result)
