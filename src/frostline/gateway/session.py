"""One client's session: the protocol on one side, the executor on the other."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import psycopg

from frostline.errors import FrostlineError, QueryError
from frostline.gateway import lexer
from frostline.gateway.cancel import Canceller
from frostline.gateway.execute import Executor, Result
from frostline.gateway.metrics import Metrics
from frostline.gateway.rows import BATCH_ROWS, Rows
from frostline.gateway.transaction import IDLE
from frostline.gateway.wire import messages
from frostline.gateway.wire.stream import Disconnected, ProtocolError, Stream
from frostline.gateway.wire.texts import Texts

log = logging.getLogger(__name__)

_MANY_VALUES = 100  # of new rows: they go on as they are
_KINDS = frozenset({"select", "declare", "fetch", "update", "delete", "insert"})


@dataclass
class Portal:
    """A statement with its parameters; its result once it has been described or executed."""

    sql: str
    parameters: Sequence[str | None]
    result: Result | None = None


class Session:
    """Serves messages until the client leaves or breaks the protocol."""

    def __init__(self, stream: Stream, executor: Executor, canceller: Canceller, metrics: Metrics) -> None:
        self.stream = stream
        self.executor = executor
        self.canceller = canceller
        self.metrics = metrics
        self._portals: dict[str, Portal] = {}
        self._skipping = False  # after an error, until Sync
        self._next: tuple[Rows, int] | None = None  # a cursor that will likely be asked for as many rows
        self._fetched = BATCH_ROWS  # how many were asked for last
        self._handlers: dict[bytes, Callable[[bytes], None]] = {
            b"P": self._parse,
            b"B": self._bind,
            b"D": self._describe,
            b"E": self._execute,
            b"C": self._close,
            b"H": lambda _: self.stream.flush(),
        }

    @property
    def idle(self) -> bool:
        """Nothing is open: ending the session now loses no work."""
        return self.executor.transaction.status == IDLE

    def serve(self) -> None:
        self._ready()
        while True:
            kind, body = self.stream.read()
            if kind == b"X":
                return
            self.canceller.begin()
            try:
                answered = self._handle(kind, body)
            finally:
                self.canceller.finish()
            if answered:
                self._meanwhile()

    def _meanwhile(self) -> None:
        """The client has its answer and works on it; the next thing it will ask for can be begun."""
        self.executor.meanwhile()
        if self._next is not None:
            (rows, wanted), self._next = self._next, None
            # It may be waiting for this already, and change its mind.
            self.canceller.begin()
            try:
                rows.prepare(wanted)
            finally:
                self.canceller.finish()

    def _handle(self, kind: bytes, body: bytes) -> bool:
        """Whether the client has its whole answer now."""
        if kind == b"Q":
            self._guard(self._query, body)
        elif kind == b"P" and self.stream.follows(messages.RUN_ONCE):
            if not self._skipping:
                self._guard(self._once, body)
        elif kind == b"P" and (bound := self.stream.before(b"B", messages.RUN_BOUND)) is not None:
            if not self._skipping:
                self._guard(partial(self._bound_once, bound), body)
        elif kind in self._handlers:
            if not self._skipping:
                self._skipping = not self._guard(self._handlers[kind], body)
            return False
        elif kind != b"S":
            raise ProtocolError(f"invalid message {kind!r}")
        self._skipping = False
        self._settle()
        return True

    def _guard(self, handler: Callable[[bytes], None], body: bytes) -> bool:
        """Run a handler; a failed statement is answered, a broken protocol ends the session."""
        try:
            handler(body)
        except (ProtocolError, Disconnected):
            raise
        except (FrostlineError, psycopg.Error) as error:
            self._failed(error)
            return False
        except Exception as error:
            log.exception("a statement failed unexpectedly")
            self._failed(error)
            return False
        return True

    def _failed(self, error: Exception) -> None:
        self.executor.transaction.fail()
        error = self.executor.view.judged(error)
        self.metrics.add("errors_total", sqlstate=sqlstate(error))
        self.stream.write(error_response(error))

    def _settle(self) -> None:
        """The end of a simple query or of a pipeline: an implicit transaction ends here."""
        if self.idle:
            for name in list(self._portals):
                self._drop(name)
        self.executor.settle()
        self._ready()

    def _drop(self, portal: str) -> None:
        found = self._portals.pop(portal, None)
        if found is not None and found.result is not None and found.result.rows is not None and not found.result.keep:
            found.result.rows.close()

    def _ready(self) -> None:
        self.stream.write(messages.ready(self.executor.transaction.status))
        self.stream.flush()

    def _query(self, body: bytes) -> None:
        text = messages.Body(body).string()
        statements = lexer.split(text) if ";" in text else [text.strip()] * bool(text.strip())
        if not statements:
            self.stream.write(messages.EMPTY_QUERY)
        for statement in statements:
            with self.metrics.timed(_kind(statement)):
                result = self.executor.run(statement)
                if result.rows is not None:
                    self.stream.write(messages.row_description(result.rows.fields))
                self._send(result, None)

    def _parse(self, body: bytes) -> None:
        found = messages.parse(body)
        if ";" in found.sql and len(lexer.split(found.sql)) > 1:
            raise QueryError("cannot insert multiple commands into a prepared statement", sqlstate="42601")
        if found.name and found.name in self.executor.prepared:
            raise QueryError(f'prepared statement "{found.name}" already exists', sqlstate="42P05")
        self.executor.prepared[found.name] = found.sql
        self.stream.write(messages.PARSE_COMPLETE)

    def _once(self, body: bytes) -> None:
        """A statement without parameters, from Parse to Execute."""
        self._parse(body)
        portal = self._bound("", "", ())
        self._describe_portal(portal)
        self._run(portal, None)

    def _bound_once(self, bound: bytes, body: bytes) -> None:
        """One with parameters, from Parse to Execute."""
        self._parse(body)
        self._bind(bound)
        portal = self._portal("")
        self._describe_portal(portal)
        self._run(portal, None)

    def _bind(self, body: bytes) -> None:
        found = messages.bind(body)
        if 1 in found.result_formats or 1 in found.parameter_formats:
            raise QueryError("the gateway speaks the text format only", sqlstate="0A000")
        values = Texts(found.values)
        many = len(values) > _MANY_VALUES and self._statement(found.statement).startswith("INSERT ")
        self._bound(found.portal, found.statement, values if many else tuple(values[:]))

    def _bound(self, name: str, statement: str, values: Sequence[str | None]) -> Portal:
        self._drop(name)
        portal = self._portals[name] = Portal(self._statement(statement), values)
        self.stream.write(messages.BIND_COMPLETE)
        return portal

    def _describe(self, body: bytes) -> None:
        found = messages.Body(body)
        what, name = found.take(1), found.string()
        if what == b"S":
            text = self._statement(name)
            numbers = [int(token.text[1:]) for token in lexer.tokens(text) if token.kind == "parameter"]
            count = max(numbers, default=0)
            self.stream.write(messages.parameter_description([messages.TEXT_OID] * count))
            fields, result = self.executor.describe(text, (None,) * count)
            if result is not None and result.rows is not None:
                result.rows.close()
            self._describe_fields(fields)
        elif name not in self._portals and name in self.executor.transaction.cursors:
            # A declared cursor is a portal too.
            self._describe_fields(self.executor.transaction.cursors[name].fields)
        else:
            self._describe_portal(self._portal(name))

    def _describe_portal(self, portal: Portal) -> None:
        fields, portal.result = self.executor.describe(portal.sql, portal.parameters)
        self._describe_fields(fields)

    def _describe_fields(self, fields: Sequence[messages.Field] | None) -> None:
        self.stream.write(messages.NO_DATA if fields is None else messages.row_description(fields))

    def _execute(self, body: bytes) -> None:
        found = messages.Body(body)
        portal, limit = self._portal(found.string()), found.int32()
        self._run(portal, limit or None)

    def _run(self, portal: Portal, limit: int | None) -> None:
        if not portal.sql.strip():
            self.stream.write(messages.EMPTY_QUERY)
            return
        with self.metrics.timed(_kind(portal.sql)):
            if portal.result is None:
                portal.result = self.executor.run(portal.sql, portal.parameters)
            self._send(portal.result, limit)

    def _send(self, result: Result, limit: int | None) -> None:
        """The rows as they come, then the tag; a limited Execute may be continued."""
        sent = size = 0
        if result.opened is not None:
            self._next = result.opened, self._fetched
        if result.rows is not None:
            if result.keep and result.wanted is not None:
                self._fetched = result.wanted
            wanted = min((n for n in (result.wanted, limit) if n is not None), default=None)
            for piece, count in result.rows.take(wanted):
                self.stream.write(piece)
                self.canceller.check()
                sent += count
                size += len(piece)
            if sent:
                self.metrics.add("rows_total", sent)
                self.metrics.add("bytes_sent_total", size)
            if limit is not None and sent == limit and result.wanted != limit:
                self.stream.write(messages.PORTAL_SUSPENDED)
                return
            if not result.keep:
                result.rows.close()
            elif wanted is not None and sent == wanted:
                self._next = result.rows, wanted
        self.stream.write(messages.complete(result.tag.format(sent)))

    def _close(self, body: bytes) -> None:
        found = messages.Body(body)
        what, name = found.take(1), found.string()
        if what == b"S":
            self.executor.prepared.pop(name, None)
        else:
            self._drop(name)
        self.stream.write(messages.CLOSE_COMPLETE)

    def _statement(self, name: str) -> str:
        try:
            return self.executor.prepared[name]
        except KeyError:
            raise QueryError(f'prepared statement "{name}" does not exist', sqlstate="26000") from None

    def _portal(self, name: str) -> Portal:
        try:
            return self._portals[name]
        except KeyError:
            raise QueryError(f'portal "{name}" does not exist', sqlstate="34000") from None


def _kind(statement: str) -> str:
    """The first word, for statistics: the few kinds there are, and nothing a client could invent."""
    word = statement.lstrip()[:12].split(None, 1)[0].lower() if statement.strip() else ""
    return word if word in _KINDS else "other"


# The client's Postgres knows the column, and we do not: only one that has altered the table itself can ask for it.
_UNDEFINED_COLUMN = "42703"
_ALTERED = "nothing was changed; a transaction that alters the table sees its cold rows as they were: commit first"


def sqlstate(error: Exception) -> str:
    """The code a client is told."""
    if isinstance(error, FrostlineError):
        return error.sqlstate
    if isinstance(error, psycopg.Error) and error.diag.sqlstate:
        return error.diag.sqlstate
    return "08006" if isinstance(error, psycopg.OperationalError) else "XX000"


def error_response(error: Exception, severity: str = "ERROR") -> bytes:
    """What a client is told: our own errors and Postgres's in full, anything else in one line."""
    code = sqlstate(error)
    if isinstance(error, FrostlineError):
        return messages.error(severity, code, error.message, error.detail, error.hint)
    if isinstance(error, psycopg.Error) and error.diag.sqlstate:
        diag = error.diag
        primary = diag.message_primary or str(error)
        hint = _ALTERED if code == _UNDEFINED_COLUMN else diag.message_hint
        return messages.error(severity, code, primary, diag.message_detail, hint)
    if isinstance(error, psycopg.OperationalError):
        return messages.error(severity, code, f"the gateway lost its connection to Postgres: {_line(error)}")
    return messages.error(severity, code, f"the gateway failed: {_line(error)}")


def _line(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__
