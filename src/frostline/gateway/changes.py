"""Cold writes worked out: each statement runs on temporary tables in the backing transaction, and notes what it did."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import psycopg
from psycopg.sql import SQL, Composable, Composed, Identifier, Literal

from frostline.catalog.cold import ColdTable
from frostline.errors import QueryError
from frostline.gateway import encode, fallback, given, lexer, one_by_one, points, quick, versions
from frostline.gateway.bench import FEW_ROWS, LOAD, PREV, WRITE, Bench, Write, numbers, values
from frostline.gateway.candidates import candidates, sought
from frostline.gateway.names import Source
from frostline.gateway.narrowed import Narrowed, key_conditions, of_clauses
from frostline.gateway.operations import Way
from frostline.gateway.points import Sought
from frostline.gateway.rows import Rows, TakenRows
from frostline.gateway.translate import Filter, Parameters, known_part
from frostline.gateway.view import View
from frostline.gateway.wire.texts import Texts
from frostline.gateway.writes import Insert, Modify, as_written, fields


@dataclass(frozen=True)
class Done:
    """How many rows, and what the statement returns."""

    count: int
    rows: Rows | None = None
    way: Way | None = None  # None: there was nothing to do


def insert(view: View, statement: Insert, table: ColdTable, parameters: Parameters) -> Done:
    """New rows, one or many."""
    if statement.width == 0 or len(parameters) % statement.width:
        raise QueryError("the gateway does not know this form of INSERT", sqlstate="0A000")
    bench, count = view.bench(table), len(parameters) // statement.width
    alone = statement.skips_duplicates and count > 1
    view.meet([statement.target.source], "INSERT")
    write = view.note(table, "INSERT", statement.target.source, new_keys=True, alone=alone)
    view.backing.check([write.number])
    bench.counts[write.number] += count
    if statement.skips_duplicates and count == 1:
        return _add_if_free(view, bench, statement, parameters, write)
    if statement.skips_duplicates:
        return _add_what_is_free(view, bench, statement, parameters, write)
    if statement.returning is None:
        _add(view, bench, statement, parameters, write)
        return Done(count, way=Way.BATCH)
    # They come one by one, and perhaps by the million: what they return is not to be looked for.
    items = ", ".join(statement.returning)
    (result,) = view.at_bench(bench, [f"{_inserted(bench, statement, parameters, write)} RETURNING {items}"])
    return Done(count, TakenRows(fields(statement.returning), result), Way.BATCH)


def _add_what_is_free(view: View, bench: Bench, statement: Insert, parameters: Parameters, write: Write) -> Done:
    """ON CONFLICT DO NOTHING: all of them, and then those are taken back whose keys are there."""
    _add(view, bench, statement, parameters, write)
    bench.counts[write.number] -= versions.skip_duplicates(view, bench, write)
    count = bench.counts[write.number]
    if statement.returning is None:
        return Done(count, way=Way.BATCH)
    own = SQL("{} = {}").format(WRITE, Literal(write.number))
    (result,) = view.at_bench(bench, [_listed(bench, statement.returning, own)])
    return Done(count, TakenRows(fields(statement.returning), result), Way.BATCH)


def _add_if_free(view: View, bench: Bench, statement: Insert, parameters: Parameters, write: Write) -> Done:
    """One row, of perhaps a million."""
    bench.searched = True
    items = statement.returning
    (result,) = view.at_bench(bench, [f"{_inserted(bench, statement, parameters, write)} RETURNING ctid"])
    ctid = (result.get_value(0, 0) or b"").decode()
    skipped = versions.skip_duplicates(view, bench, write, ctid)
    bench.counts[write.number] -= skipped
    if items is None:
        return Done(1 - skipped, way=Way.BATCH)
    (result,) = view.at_bench(bench, [_listed(bench, items, SQL("ctid = {}::tid").format(Literal(ctid)))])
    return Done(1 - skipped, TakenRows(fields(items), result), Way.BATCH)


def _listed(bench: Bench, items: Sequence[str], condition: Composed) -> str:
    """What new rows return."""
    outputs = SQL(", ").join(map(SQL, items))
    return SQL("SELECT {} FROM {} WHERE {}").format(outputs, bench.added, condition).as_string(None)


def _add(view: View, bench: Bench, statement: Insert, parameters: Parameters, write: Write) -> None:
    if len(parameters) // statement.width <= FEW_ROWS:
        view.at_bench(bench, [_inserted(bench, statement, parameters, write)])
        return
    if not bench.made or bench.deferred:
        view.at_bench(bench, [])
    raw = parameters.raw if isinstance(parameters, Texts) else [v if v is None else v.encode() for v in parameters]
    lines = encode.lines(raw, statement.width, write.number)
    view.backing.copy(f"COPY {_target(bench, statement)} FROM STDIN", lines, write.number)


def _inserted(bench: Bench, statement: Insert, parameters: Parameters, write: Write) -> str:
    width = statement.width
    rows = (parameters[start : start + width] for start in range(0, len(parameters), width))
    listed = values([*row, str(write.number)] for row in rows)
    return f"INSERT INTO {_target(bench, statement)} VALUES {listed}"


def _target(bench: Bench, statement: Insert) -> str:
    columns = SQL(", ").join([*map(Identifier, _given(statement)), WRITE]).as_string(None)
    return f"{bench.added.as_string(None)} ({columns})"


def _given(statement: Insert) -> list[str]:
    return [name for name, place in zip(statement.columns, statement.parameters, strict=True) if place is not None]


@dataclass(frozen=True)
class Concerned:
    """What is known of the rows that a statement concerns, of the table as it was described then."""

    table: ColdTable
    narrowed: Narrowed
    sought: Sought | None


def concerned(statement: Modify, table: ColdTable, parameters: Parameters) -> Concerned:
    known = narrowed(statement, table, parameters)
    wanted = None if statement.others or statement.by_ctid else sought(statement.target.source, table, known)
    return Concerned(table, known, wanted)


def begin(view: View, statement: Modify, found: Concerned, parameters: Parameters) -> None:
    """What is the first of its transaction asks all it has to ask at once, and reads the lake meanwhile."""
    plan, wanted = given.plan(statement, found.table), found.sought
    if plan is None or wanted is None or wanted.key is None or not plan.known(parameters):
        return
    if view.begin_to_write(wanted.source, wanted.table, wanted.key, wanted.columns, [quick.NUMBER]):
        points.read_ahead(view, wanted)


def modify(
    view: View,
    statement: Modify,
    tables: dict[Source, ColdTable],
    parameters: Parameters,
    early: Concerned | None = None,
) -> Done:
    """An UPDATE or DELETE of all rows that satisfy a condition, or of one that was read before.

    `early` holds if the table is still the one it was made for.
    """
    source = statement.target.source
    table = tables[source]
    if statement.by_ctid:
        return _modify_one(view, statement, table, parameters)
    view.meet([source, *(other.source for other in statement.others)], statement.verb)
    with view.as_outside(source):
        found = early if early is not None and early.table is table else concerned(statement, table, parameters)
        known, wanted = found.narrowed, found.sought
        asked = quick.questions(view, statement, table, wanted, parameters)
        if wanted is not None:
            points.expect(view, wanted, [] if asked is None else asked.all)
        load = candidates(view, source, table, known, wanted)
    if load is None:
        return Done(0, None if statement.returning is None else TakenRows(fields(statement.returning), None))
    quickly = quick.modify(view, statement, table, load, parameters, asked) if asked is not None and load.rows else None
    if quickly is not None:
        count, way = quickly
        return Done(count, way=way)
    own = _own(statement, LOAD) + SQL(" = {}").format(Literal(load.number))
    others = [(other.start, other.end, fallback.whole(view, other.source, tables)) for other in statement.others]
    return _worked(view, statement, table, own, parameters, load.before(), others)


def _modify_one(view: View, statement: Modify, table: ColdTable, parameters: Parameters) -> Done:
    bench, ctid = view.bench(table), parameters[0] or ""
    sets_keys = _sets_keys(statement, table)
    if sets_keys:
        _refuse_late_keys(view, bench, statement, parameters)
    undisturbed = bench.undisturbed(view.written_of(table.id).writes)
    again = bench.named(ctid)
    if statement.returning is not None or statement.given is None or not undisturbed:
        done = _worked(view, statement, table, _not_changed_since(view, bench), parameters)
        if not done.count and not again:
            _refuse_overtaken(view, bench, ctid)
        return done
    if again:
        return Done(0)
    if any(name == table.key.name and parameters[at] is None for name, at in statement.given):
        raise _no_partition(table)
    one_by_one.take(view, bench, statement, statement.given, parameters, new_keys=sets_keys)
    return Done(1, way=Way.ROW)


def _sets_keys(statement: Modify, table: ColdTable) -> bool:
    keys = {column.name for column in table.primary_key}
    return any(name in keys for name, _, _ in statement.assignments)


def _refuse_late_keys(view: View, bench: Bench, statement: Modify, parameters: Parameters) -> None:
    """What a statement wrote so far was stored by another one inside it: whose rows would the rest of it move?

    Where there is a BEFORE trigger keys are set to what they are.
    """
    if not bench.last_batch:
        return
    given, set_ = dict(statement.given or ()), {name for name, _, _ in statement.assignments}
    kept = SQL(" AND ").join(
        SQL("{} = {}::{}").format(old, Literal(parameters[given[column.name]]), SQL(column.type))
        if column.name in given
        else SQL("false")  # computed
        for column, old in zip(bench.key, bench.old_key, strict=True)
        if column.name in set_
    )
    query = SQL("SELECT FROM {} WHERE ctid = {}::tid AND {} < {} AND ({}) IS NOT TRUE").format(
        bench.work, Literal(parameters[0]), LOAD, Literal(bench.last_batch), kept
    )
    (found,) = view.at_bench(bench, [query.as_string(None)])
    if found.ntuples:
        raise QueryError(
            f"a statement cannot change primary keys of cold rows of {bench.table} while functions or triggers"
            " called by it change cold rows too",
            hint="nothing was changed; change the keys in a statement of its own",
            sqlstate="0A000",
        )


def _refuse_overtaken(view: View, bench: Bench, ctid: str) -> None:
    """A row that another statement, called by this one, has changed since it was read: neither change may be lost."""
    written = view.written_of(bench.table.id)
    stored = [write for write in written.writes if write not in written.held]
    query = SQL("SELECT FROM {} w JOIN {} x ON {} WHERE w.ctid = {}::tid AND x.{} > w.{} AND x.{} = {}").format(
        bench.work, bench.removed, bench.old_key_is("x"), Literal(ctid), WRITE, LOAD, WRITE, numbers(stored)
    )
    (found,) = view.at_bench(bench, [query.as_string(None)])
    if found.ntuples:
        raise QueryError(
            f"a cold row of {bench.table} was already changed by an operation that the current command triggered",
            hint="nothing was changed; Postgres says the same of any row",
            sqlstate="27000",
        )


def _not_changed_since(view: View, bench: Bench) -> Composable:
    """A row that this transaction has changed since it was read is not changed again, as in Postgres."""
    live = view.written_of(bench.table.id).writes
    return SQL("NOT EXISTS (SELECT FROM {} x WHERE {} AND x.{} > {} AND x.{} = {})").format(
        bench.removed,
        bench.old_key_is("x"),
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
    statement: Modify,
    table: ColdTable,
    condition: Composable,
    parameters: Parameters,
    before: Sequence[str] = (),
    others: Sequence[tuple[int, int, str]] = (),
) -> Done:
    """Run the statement on the candidates; what it changes is noted in the same breath."""
    bench, items = view.bench(table), statement.returning or ()
    write = view.note(table, statement.verb, statement.target.source, new_keys=_sets_keys(statement, table))
    outputs = [SQL('{} AS "!o{}"').format(SQL(item), SQL(str(at))) for at, item in enumerate(items)]
    kept = [*bench.old_key, PREV]
    new = [Identifier(column.name) for column in bench.settable] if statement.verb == "UPDATE" else []
    returning = SQL(", ").join([*outputs, *(_own(statement, column) for column in (*kept, *new))])
    parts = [
        SQL("removed AS (INSERT INTO {} ({}, {}, {}) SELECT {}, {} FROM done)").format(
            bench.removed, bench.key_names(), PREV, WRITE, SQL(", ").join(kept), Literal(write.number)
        )
    ]
    if new:
        columns = SQL(", ").join(new)
        parts.append(
            SQL("added AS (INSERT INTO {} ({}, {}) SELECT {}, {} FROM done)").format(
                bench.added, columns, WRITE, columns, Literal(write.number)
            )
        )
    answer = ", ".join(f'"!o{at}"' for at in range(len(items)))
    text = "WITH done AS ({} RETURNING {}), {} SELECT {} FROM done".format(
        _on_the_bench(bench, statement, condition, [*others, *lexer.values(statement.tokens, parameters)]),
        returning.as_string(None),
        SQL(", ").join(parts).as_string(None),
        "count(*)" if statement.returning is None else answer,
    )
    try:
        result = view.at_bench(bench, [*before, text])[-1]
    except psycopg.errors.NotNullViolation as error:
        if error.diag.column_name != table.key.name:
            raise
        raise _no_partition(table) from None
    count = result.ntuples if statement.returning is not None else int(result.get_value(0, 0) or b"0")
    bench.counts[write.number] += count
    way = Way.ROW if statement.by_ctid else Way.WHOLE
    return Done(count, None if statement.returning is None else TakenRows(fields(items), result), way)


def _no_partition(table: ColdTable) -> QueryError:
    """A new row without a partition key, in Postgres's words: to a table that has one NULL is one more value."""
    return QueryError(
        f'no partition of relation "{table.name}" found for row',
        detail=f"Partition key of the failing row contains ({table.key.name}) = (null).",
        sqlstate="23514",
    )


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


def narrowed(statement: Modify, table: ColdTable, parameters: Parameters) -> Narrowed:
    """What its condition says of the rows that a statement concerns."""
    if statement.others or statement.by_ctid:
        return Narrowed()
    plan = given.plan(statement, table)
    conditions = None if plan is None else plan.conditions(parameters)
    if conditions is not None:
        keys = partial(key_conditions, statement.clauses, table, parameters)
        return Narrowed(conditions, keys, partial(_filter, statement, table, parameters))
    return of_clauses(statement.clauses, table, parameters, partial(_filter, statement, table, parameters))


def _filter(statement: Modify, table: ColdTable, parameters: Parameters) -> Filter:
    select, parameters = as_written(statement, parameters)
    return known_part(select, table, parameters)
