"""Cold writes worked out: each statement runs on temporary tables in the backing transaction, and notes what it did."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import psycopg
from psycopg.sql import SQL, Composable, Composed, Identifier, Literal

from frostline.catalog.cold import ColdTable
from frostline.errors import QueryError
from frostline.gateway import encode, fallback, lexer, versions
from frostline.gateway.bench import LOAD, PREV, WRITE, Bench, Write, numbers
from frostline.gateway.candidates import candidates
from frostline.gateway.names import Source
from frostline.gateway.rows import Rows, TakenRows
from frostline.gateway.translate import Filter, Parameters
from frostline.gateway.view import View
from frostline.gateway.writes import Insert, Modify, fields
from frostline.lake.pruning import Condition


@dataclass(frozen=True)
class Done:
    """How many rows, and what the statement returns."""

    count: int
    rows: Rows | None = None


def insert(view: View, statement: Insert, table: ColdTable, parameters: Parameters) -> Done:
    """New rows, one or many."""
    source = statement.target.source
    bench = view.bench(table)
    alone = statement.returning is not None or statement.skips_duplicates
    write = view.note(table, "INSERT", source, alone=alone)
    lines, count = _lines(statement, parameters, write)
    with view.backing.savepoint() as connection:
        columns = [Identifier(name) for name in _given(statement)]
        target = SQL("COPY {} ({}) FROM STDIN").format(bench.added, SQL(", ").join([*columns, WRITE]))
        with connection.cursor().copy(target) as copy:
            copy.write(lines)
    if statement.skips_duplicates:
        count -= versions.skip_duplicates(view, bench, write)
    if statement.returning is None:
        return Done(count)
    query = SQL("SELECT {} FROM {} WHERE {} = {}").format(
        SQL(", ").join(map(SQL, statement.returning)), bench.added, WRITE, Literal(write.number)
    )
    return Done(count, TakenRows(fields(statement.returning), _run(view, query.as_string(None), ())))


def _given(statement: Insert) -> list[str]:
    return [name for name, place in zip(statement.columns, statement.parameters, strict=True) if place is not None]


def _lines(statement: Insert, parameters: Parameters, write: Write) -> tuple[bytes, int]:
    """The rows in COPY's text format."""
    width = statement.width
    if width == 0 or len(parameters) % width:
        raise QueryError("the gateway does not know this form of INSERT", sqlstate="0A000")
    ending = f"{write.number}\n"
    rows = [
        "\t".join([*map(encode.copy_value, parameters[start : start + width]), ending])
        for start in range(0, len(parameters), width)
    ]
    return "".join(rows).encode(), len(rows)


def modify(view: View, statement: Modify, tables: dict[Source, ColdTable], parameters: Parameters) -> Done:
    """An UPDATE or DELETE of all rows that satisfy a condition, or of one that was read before."""
    table = tables[statement.target.source]
    if statement.by_ctid:
        return _modify_one(view, statement, table, parameters)
    load = candidates(view, statement.target.source, table, *_narrowed(statement, table, parameters))
    if load is None:
        return Done(0, None if statement.returning is None else TakenRows(fields(statement.returning), None))
    bench = view.bench(table)
    write = view.note(table, statement.verb, statement.target.source)
    own = _own(statement, LOAD) + SQL(" = {}").format(Literal(load))
    others = [(other.start, other.end, fallback.whole(view, other.source, tables)) for other in statement.others]
    return _worked(view, bench, statement, write, own, parameters, others)


def _modify_one(view: View, statement: Modify, table: ColdTable, parameters: Parameters) -> Done:
    bench = view.bench(table)
    if statement.verb == "UPDATE" and statement.sets & {column.name for column in bench.key}:
        _refuse_late_keys(view, bench, parameters[0])
    write = view.note(table, statement.verb, statement.target.source)
    return _worked(view, bench, statement, write, _not_changed_since(view, bench), parameters)


def _refuse_late_keys(view: View, bench: Bench, ctid: str | None) -> None:
    """What a statement wrote so far was stored by another one inside it: whose rows would the rest of it move?"""
    if not bench.last_batch:
        return
    query = SQL("SELECT FROM {} WHERE ctid = {}::tid AND {} < {}").format(
        bench.work, Literal(ctid), LOAD, Literal(bench.last_batch)
    )
    with view.backing.savepoint() as connection:
        if connection.execute(query).fetchone() is not None:
            raise QueryError(
                f"a statement cannot change primary keys of cold rows of {bench.table} while functions or triggers"
                " called by it change cold rows too",
                hint="nothing was changed; change the keys in a statement of its own",
                sqlstate="0A000",
            )


def _not_changed_since(view: View, bench: Bench) -> Composable:
    """A row that this transaction has changed since it was read is not changed again, as in Postgres."""
    live = view.written_of(bench.table.id).writes
    return SQL("NOT EXISTS (SELECT FROM {} x WHERE {} AND x.{} > {} AND x.{} = {})").format(
        bench.removed,
        SQL(" AND ").join(
            SQL("x.{} = {}").format(Identifier(column.name), old)
            for column, old in zip(bench.key, bench.old_key, strict=True)
        ),
        WRITE,
        LOAD,
        WRITE,
        numbers(live),
    )


def _own(statement: Modify, column: Identifier) -> Composed:
    """A column of the target, whatever else the statement reads."""
    return SQL("{}.").format(SQL(statement.alias)) + column if statement.alias is not None else Composed([column])


def _worked(
    view: View,
    bench: Bench,
    statement: Modify,
    write: Write,
    condition: Composable,
    parameters: Parameters,
    others: Sequence[tuple[int, int, str]] = (),
) -> Done:
    """Run the statement on the candidates; what it changes is noted in the same breath."""
    items = statement.returning or ()
    outputs = [SQL('{} AS "!o{}"').format(SQL(item), SQL(str(at))) for at, item in enumerate(items)]
    kept = [*bench.old_key, PREV]
    new = [Identifier(column.name) for column in bench.settable] if statement.verb == "UPDATE" else []
    returning = SQL(", ").join([*outputs, *(_own(statement, column) for column in (*kept, *new))])
    removed = SQL("removed AS (INSERT INTO {} ({}, {}, {}) SELECT {}, {} FROM done)").format(
        bench.removed, bench.key_names(), PREV, WRITE, SQL(", ").join(kept), Literal(write.number)
    )
    parts = [removed]
    if new:
        columns = SQL(", ").join(new)
        parts.append(
            SQL("added AS (INSERT INTO {} ({}, {}) SELECT {}, {} FROM done)").format(
                bench.added, columns, WRITE, columns, Literal(write.number)
            )
        )
    answer = SQL(", ").join(SQL('"!o{}"').format(SQL(str(at))) for at in range(len(items)))
    text = "WITH done AS ({} RETURNING {}), {} SELECT {} FROM done".format(
        _on_the_bench(bench, statement, condition, others),
        returning.as_string(None),
        SQL(", ").join(parts).as_string(None),
        "count(*)" if statement.returning is None else answer.as_string(None),
    )
    result = _run(view, text, parameters)
    if statement.returning is None:
        return Done(int(result.get_value(0, 0) or b"0"))
    return Done(result.ntuples, TakenRows(fields(items), result))


def _on_the_bench(
    bench: Bench, statement: Modify, condition: Composable, others: Sequence[tuple[int, int, str]]
) -> str:
    """The statement's own text, but for the names of what it reads and one more condition."""
    more = condition.as_string(None)
    changes = [(statement.target.start, statement.target.end, bench.work.as_string(None)), *others]
    if statement.where is None:
        changes.append((statement.end, statement.end, f" WHERE {more}"))
    else:
        start, end = statement.where
        changes += [(start, start, " ("), (min(end, statement.end), min(end, statement.end), f") AND {more} ")]
    return lexer.splice(statement.text[: statement.end], changes)


def _narrowed(statement: Modify, table: ColdTable, parameters: Parameters) -> tuple[Filter, tuple[Condition, ...]]:
    if statement.others:
        return Filter(), ()
    text = statement.select
    return fallback.narrowed(text, lexer.tokens(text), table, parameters)


def _run(view: View, text: str, parameters: Parameters) -> psycopg.pq.abc.PGresult:
    """One statement with its parameters, whole."""
    with view.backing.savepoint() as connection:
        cursor = psycopg.RawCursor(connection)
        cursor.execute(text.encode(), fallback.typed(lexer.tokens(text), parameters) or None)
        if cursor.pgresult is None:
            raise QueryError("the backing connection returned nothing")
        return cursor.pgresult
