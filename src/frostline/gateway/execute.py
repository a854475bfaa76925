"""One statement after another: what each kind does to the transaction, and where its rows come from."""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache

from frostline import faults
from frostline.catalog.cold import ColdTable
from frostline.catalog.names import HELD_SCHEMA
from frostline.errors import QueryError
from frostline.gateway import calls, changes, fallback, lexer, points, statements, statistics, versions, writes
from frostline.gateway.columns import size
from frostline.gateway.constants import Unknown
from frostline.gateway.lexer import Token
from frostline.gateway.names import Reference, Source, held_table, references
from frostline.gateway.parsed import planned
from frostline.gateway.rows import Batches, FixedRows, LakeRows, Rows, ToldRows
from frostline.gateway.scan import Scan, cold_rows
from frostline.gateway.statements import Statement
from frostline.gateway.transaction import ACTIVE, FAILED, IDLE, Transaction
from frostline.gateway.translate import Parameters, Translated, column_name
from frostline.gateway.view import View
from frostline.gateway.wire.messages import Field
from frostline.gateway.writes import Modify

Tokens = Sequence[Token]
_DECLARE = "DECLARE "
_INSERT = "INSERT INTO "  # of a thousand rows: taken apart once
_CHANGES = ('UPDATE "table ', 'DELETE FROM "table ')
_TAKES = f'DELETE FROM "{HELD_SCHEMA}"."'
_ONE_ROW = " WHERE ctid = $1"  # an UPDATE or DELETE, again and again
_NUMBERED = re.compile(r"c[0-9]+")  # cursors of postgres_fdw
ENDS = ("rollback", "abort", "commit", "end")


@dataclass(slots=True)
class Result:
    """A command tag and perhaps rows; `{}` in the tag stands for their number."""

    tag: str
    rows: Rows | None = None
    wanted: int | None = None
    keep: bool = False  # the rows belong to a cursor that stays open
    opened: Rows | None = None  # of a cursor that was declared: the first rows will be asked for at once


class Executor:
    """Runs statements for one session."""

    def __init__(self, view: View) -> None:
        self.view = view
        self.transaction = Transaction()
        view.opened = self.transaction.cursors
        self.prepared: dict[str, str] = {}
        self._over = False  # the transaction is; Postgres is told once the client has its answer
        self._begun = False  # and so it is of one that has begun
        self._agreed = False  # the client may commit what it has stored
        self._rescan = False  # the statement being worked on goes on with a cursor it had
        self._kinds: dict[str, Callable[[str, Tokens, Parameters], Result]] = {
            "set": lambda *_: Result("SET"),
            "reset": lambda *_: Result("RESET"),
            "start": self._begin,
            "begin": self._begin,
            "commit": self._commit,
            "end": self._commit,
            "abort": self._rollback,
            "rollback": self._rollback,
            "savepoint": self._savepoint,
            "release": self._release,
            "declare": self._declare,
            "fetch": self._fetch,
            "move": self._move,
            "close": self._close,
            "deallocate": self._deallocate,
            "select": self._select,
            "update": self._modify,
            "delete": self._modify,
            "insert": self._insert,
            "truncate": self._truncate,
        }

    def run(self, text: str, parameters: Parameters = ()) -> Result:
        """Execute one statement."""
        self.view.asked_at = time.perf_counter()
        self.tidy()
        active = self.transaction.status == ACTIVE
        if active and text.startswith(_DECLARE) and (again := statements.declared_again(text)) is not None:
            with contextlib.suppress(Unknown):  # the table is not what it was
                return self._declare_again(*again, parameters)
        if active and text.startswith(_INSERT):
            return self._insert(text, (), parameters)
        if active and text.endswith(_ONE_ROW):
            return self._modified(writes.modify_row(text), parameters)
        if active and text.startswith(_CHANGES) and (changed := writes.modify_again(text)) is not None:
            return self._modified(*changed)
        if active and text.startswith(_TAKES) and (taking := versions.taking(text)) is not None:
            return Result("DELETE {}", versions.taken(self.view, taking, parameters))
        text = lexer.keep_signs(text)
        tokens = lexer.tokens(text)
        first = tokens[0].text if tokens else ""
        if self.transaction.status == FAILED and first not in ENDS:
            raise QueryError(
                "current transaction is aborted, commands ignored until end of transaction block", sqlstate="25P02"
            )
        kind = self._kinds.get(first)
        if kind is None:
            raise QueryError(
                f"the gateway does not run {first.upper() or 'this'} statements",
                hint="it answers postgres_fdw; connect to Postgres itself",
                sqlstate="0A000",
            )
        return kind(text, tokens, parameters)

    def describe(self, text: str, parameters: Parameters) -> tuple[Sequence[Field] | None, Result | None]:
        """The columns a statement returns; a SELECT's are known by opening it, so its result comes along."""
        if text.startswith(_DECLARE) or (text.startswith(_CHANGES) and "returning" not in text.lower()):
            return None, None
        if text.startswith(_INSERT):
            return writes.described(writes.insert(text).returning), None
        tokens = lexer.tokens(text)
        if tokens and tokens[0].word("select"):
            result = self.run(text, parameters)
            return (result.rows.fields if result.rows is not None else None), result
        if tokens and tokens[0].word("fetch"):
            return self.transaction.cursor(tokens[-1].text).fields, None
        if "returning" not in text.lower():
            return None, None
        return writes.description(text), None

    def settle(self) -> None:
        """After a statement outside a transaction block nothing is kept."""
        if self.transaction.status == IDLE:
            self._end()

    def meanwhile(self) -> None:
        """The client has its answer: what it will want next can be begun."""
        if self._agreed:
            self._agreed = False
            faults.reached("write.answered")
        self.tidy()
        if self._begun:
            self._begun = False
            if self.transaction.status == ACTIVE:
                self.view.anticipate()

    def tidy(self) -> None:
        """End the backing transaction of one that is over."""
        if self._over:
            self._over = False
            self.view.end()

    def _end(self) -> None:
        self.transaction.end()
        self.view.forget()
        self._over = True

    def end(self) -> None:
        """The session is over."""
        self.transaction.end()
        self.view.end()
        self.view.backing.close()

    def _begin(self, text: str, tokens: Tokens, _parameters: Parameters) -> Result:
        self.transaction.begin(serializable="serializable" in text.lower())
        self._begun = True
        return Result("START TRANSACTION" if tokens[0].word("start") else "BEGIN")

    def _commit(self, *_: object) -> Result:
        tag = "ROLLBACK" if self.transaction.status == FAILED else "COMMIT"
        if tag == "COMMIT":
            versions.refuse_uncollected(self.view)
            self.view.leave_words()
            if self.view.written:
                faults.reached("write.commit")
                self._agreed = True
            self.view.keep_files()
        # Temporary tables have given our transaction a number: while it goes on, others who have read before cannot
        # know that they read later than the client's commit.
        numbered = any(bench.made for bench in self.view.benches.values())
        self._end()
        if numbered:
            self.tidy()
        return Result(tag)

    def _rollback(self, _text: str, tokens: Tokens, _parameters: Parameters) -> Result:
        if len(tokens) > 1 and any(token.word("to") for token in tokens[1:3]):
            with contextlib.suppress(Exception):  # rows that nobody wants any more
                self.view.backing.end_copy()
            self.view.restore(self.transaction.rollback_to(tokens[-1].text))
        else:
            self._end()
        return Result("ROLLBACK")

    def _savepoint(self, _text: str, tokens: Tokens, _parameters: Parameters) -> Result:
        # What goes wrong from here on must not be the fault of rows from before. Were it told here, postgres_fdw would
        # give up the connection; whoever stores those rows is told.
        with contextlib.suppress(Exception):
            self.view.backing.end_copy()
        self.view.mark()
        self.transaction.savepoint(tokens[-1].text, self.view.written)
        return Result("SAVEPOINT")

    def _release(self, _text: str, tokens: Tokens, _parameters: Parameters) -> Result:
        self.transaction.release(tokens[-1].text)
        return Result("RELEASE")

    def _declare(self, text: str, tokens: Tokens, parameters: Parameters) -> Result:
        if self.transaction.status != ACTIVE:
            raise QueryError("DECLARE CURSOR can only be used in transaction blocks", sqlstate="25P01")
        at = lexer.clause(tokens, "for")
        if at is None or at + 1 == len(tokens):
            raise _syntax(tokens)
        found = statements.statement(text, tokens[at + 1 :])
        result = self._open(tokens[1].text, lambda: self.rows(found, parameters))
        if result.opened is not None and result.opened.path != "postgres":
            statements.remember(found)
        return result

    def _declare_again(self, name: str, source: Source, found: Statement, parameters: Parameters) -> Result:
        """A statement DuckDB has answered for another period, or earlier."""

        self._plan_early(found, source, parameters)

        def rows() -> Rows:
            table = self._pin([source])[source]
            self.view.meet([source])
            with self.view.when_begun([source]):
                return self._counted(found, self._from_lake(found, source, table, parameters))

        return self._open(name, rows)

    def _open(self, name: str, rows: Callable[[], Rows]) -> Result:
        self._rescan = name in self.transaction.declared
        self.view.scan = int(name[1:]) if _NUMBERED.fullmatch(name) else None
        try:
            opened = rows()
        finally:
            self._rescan, self.view.scan = False, None
        self.transaction.declare(name, opened)
        return Result("DECLARE CURSOR", opened=opened)

    def _fetch(self, _text: str, tokens: Tokens, _parameters: Parameters) -> Result:
        """FETCH [FORWARD] [n | ALL | NEXT] FROM c."""
        rows = self.transaction.cursor(tokens[-1].text)
        return Result("FETCH {}", rows, _wanted(tuple(token.text for token in tokens[1:-1])), keep=True)

    def _move(self, _text: str, tokens: Tokens, _parameters: Parameters) -> Result:
        """Only MOVE BACKWARD ALL: postgres_fdw's way to scan again."""
        if not (len(tokens) == 5 and tokens[1].word("backward") and tokens[2].word("all")):
            raise _syntax(tokens)
        self.transaction.cursor(tokens[-1].text).restart()
        return Result("MOVE 0")

    def _close(self, _text: str, tokens: Tokens, _parameters: Parameters) -> Result:
        self.transaction.close(None if tokens[-1].word("all") else tokens[-1].text)
        return Result("CLOSE CURSOR")

    def _deallocate(self, _text: str, tokens: Tokens, _parameters: Parameters) -> Result:
        if tokens[-1].word("all"):
            self.prepared.clear()
            return Result("DEALLOCATE ALL")
        if self.prepared.pop(tokens[-1].text, None) is None:
            raise QueryError(f'prepared statement "{tokens[-1].text}" does not exist', sqlstate="26000")
        return Result("DEALLOCATE")

    def _select(self, text: str, tokens: Tokens, parameters: Parameters) -> Result:
        return Result("SELECT {}", self.rows(statements.statement(text, tokens), parameters))

    def rows(self, found: Statement, parameters: Parameters) -> Rows:
        """What a SELECT returns: by DuckDB where all of it is known to be exact, else by Postgres."""
        return self._counted(found, self._answer(found, parameters))

    def _counted(self, found: Statement, rows: Rows) -> Rows:
        self.view.metrics.add("queries_total", path=rows.path)
        if not writes.locks(found.tokens):
            return rows
        changing = found.references if writes.reads_to_write(found.tokens) else ()
        return ToldRows(rows, self.view.lock, frozenset(reference.source.table for reference in changing))

    def _answer(self, found: Statement, parameters: Parameters) -> Rows:
        call = calls.asked(found.tokens, parameters)
        if call is not None:
            return calls.answer(self.view, call)
        if not found.references:
            held = held_table(found.tokens)
            if held is not None:
                return versions.held(self.view, held[0], found.text, found.tokens, held[1])
            return self._size(found.tokens)
        if len(found.references) == 1:
            self._plan_early(found, found.references[0].source, parameters)
        tables = self._pin([reference.source for reference in found.references], changes=fallback.changes(found))
        self.view.meet(tables)
        with self.view.when_begun(tables):
            if len(found.references) == 1:
                source = found.references[0].source
                with contextlib.suppress(Unknown):
                    return self._from_lake(found, source, tables[source], parameters)
            return fallback.evaluate(self.view, found, tables, parameters)

    def _size(self, tokens: Tokens) -> Rows:
        """What ANALYZE asks before it samples."""
        asked = statistics.asked_about(tokens)
        if asked is None:
            raise QueryError("the gateway only answers about cold tables", sqlstate="0A000")
        self._pin([asked])
        return statistics.answer(self.view, tokens, asked)

    def _plan_early(self, found: Statement, source: Source, parameters: Parameters) -> None:
        """Plan for the table as it was while Postgres looks up how it is; the plan is kept, and found again if so."""
        if self.view.backing.open:
            return
        table = self.view.last_known(source)
        if table is not None:
            with contextlib.suppress(Unknown):
                plan = planned(found, table, parameters)
                if plan.point is None:
                    plan.translated  # noqa: B018  kept with it

    def _from_lake(self, found: Statement, source: Source, table: ColdTable, parameters: Parameters) -> Rows:
        plan = planned(found, table, parameters)
        if plan.point is not None:
            looked_up = points.answer(self.view, source, table, plan.point, plan.conditions, plan.keys)
            if looked_up is not None:
                return looked_up
        scan = cold_rows(self.view, source, table, plan.columns, plan.conditions, keys=plan.keys)
        translated = plan.translated
        if scan.empty and not translated.grouped:
            return FixedRows(translated.fields)
        if scan.rows is not None and translated.counts:
            return FixedRows(translated.fields, [[str(scan.rows)] * len(translated.fields)])
        rows = self._aggregated(source, scan, translated) or scan.sql
        if not scan.empty:
            self._refuse_errors(translated.check(rows))
        query = translated.sql(rows, recent=scan.recent)
        batches = Batches(self.view.cursors, self.view.canceller, query)
        return LakeRows(translated.fields, batches, translated.averages)

    def _aggregated(self, source: Source, scan: Scan, found: Translated) -> str | None:
        """The same rows in memory, with the columns that an aggregate reads. Whoever verifies files reads the files."""
        if not (found.grouped and found.columns) or source.snapshot is not None or scan.delta:
            return None
        weight = size(found.columns, sum(file.rows for file in scan.files))
        if weight is None:
            return None
        names = ", ".join(sorted(column_name(column.number) for column in found.columns))
        kept = self.view.in_memory(f"SELECT {names} FROM {scan.sql}", weight)
        return None if kept is None else f"{kept} AS t"

    def _refuse_errors(self, check: str | None) -> None:
        """A statement that fails for a row is Postgres's: it knows the error, and whether the row is evaluated."""
        if check is None:
            return
        batches = Batches(self.view.cursors, self.view.canceller, check)
        try:
            batch = batches.next()
        finally:
            batches.close()
        if batch is not None and batch.num_rows:
            raise Unknown("a row that makes Postgres raise an error")

    def _pin(self, sources: Sequence[Source], *, changes: bool = False) -> dict[Source, ColdTable]:
        self.view.reading = bool(self.transaction.cursors)
        if changes:
            return self.view.pin_to_write(sources, may_restart=not self.view.reading)
        return self.view.pin(sources, may_restart=not self.view.reading, rescan=self._rescan)

    def _modify(self, text: str, tokens: Tokens, parameters: Parameters) -> Result:
        if tokens[0].word("delete"):
            call = calls.asked(tokens, parameters)
            if call is not None:
                return Result("DELETE 1", calls.answer(self.view, call))
            taking = versions.taking(text)
            if taking is not None:
                return Result("DELETE {}", versions.taken(self.view, taking, parameters))
        return self._modified(writes.modify(text, tokens), parameters)

    def _modified(self, statement: Modify, parameters: Parameters) -> Result:
        early = None
        self.view.backing.went_on()
        if not self.view.backing.open and (table := self.view.last_known(statement.target.source)) is not None:
            early = changes.concerned(statement, table, parameters)  # while Postgres looks up how it is now
            changes.begin(self.view, statement, early, parameters)
        tables = self._to_write([statement.target, *statement.others])
        done = changes.modify(self.view, statement, tables, parameters, early)
        return self._done(f"{statement.verb} {done.count}", done)

    def _insert(self, text: str, _tokens: Tokens, parameters: Parameters) -> Result:
        statement = writes.insert(text)
        table = self._to_write([statement.target])[statement.target.source]
        done = changes.insert(self.view, statement, table, parameters)
        return self._done(f"INSERT 0 {done.count}", done)

    def _done(self, tag: str, done: changes.Done) -> Result:
        faults.reached("write.held")
        self.view.metrics.add("rows_written_total", done.count)
        if done.way is not None:
            self.view.metrics.add("writes_total", way=str(done.way))
        return Result(tag, done.rows)

    def _to_write(self, found: Sequence[Reference]) -> dict[Source, ColdTable]:
        """The tables of a write's sources, the first being the one it writes."""
        if self.transaction.status != ACTIVE:
            raise QueryError("cold rows are changed inside a transaction of postgres_fdw only", sqlstate="25P01")
        self.view.reading = bool(self.transaction.cursors)
        sources = [reference.source for reference in found]
        tables = self.view.pin_to_write(sources, may_restart=not self.view.reading)
        if self.transaction.serializable:
            raise QueryError(
                f"cold rows of {tables[found[0].source]} cannot be changed in a SERIALIZABLE transaction",
                hint="nothing was changed; REPEATABLE READ finds every conflict between writers",
                sqlstate="0A000",
            )
        self.view.backing.mark()
        self.view.touched.add(tables[found[0].source].id)
        return tables

    def _truncate(self, _text: str, tokens: Tokens, _parameters: Parameters) -> Result:
        found = references(tokens)
        tables = self._pin([reference.source for reference in found])
        raise QueryError(
            f"cold rows of {next(iter(tables.values()), 'this table')} cannot be truncated",
            hint="nothing was changed; DELETE removes them",
            sqlstate="0A000",
        )


@lru_cache(maxsize=100)
def _wanted(words: tuple[str, ...]) -> int | None:
    """How many rows a FETCH asks for; None: all."""
    count = [word for word in words if word not in ("from", "in", "forward")]
    if count in (["all"], ["next"], []):
        return None if count == ["all"] else 1
    if len(count) == 1 and count[0].isdecimal():
        return int(count[0])
    raise QueryError(f'syntax error at or near "{count[-1]}"', sqlstate="42601")


def _syntax(tokens: Sequence[Token]) -> QueryError:
    return QueryError(f'syntax error at or near "{tokens[-1].text}"', sqlstate="42601")
