"""A few cold rows changed without the bench: new values and constraints are one question to Postgres.

What most programs do to an old row is to set some of its columns, or delete it, by its key. Making the bench's tables
would take longer than all the rest. So the values are asked for in a SELECT, if they are not known without (`given`),
and the tables get what they would have noted only if somebody looks. Whatever is not plain, and whatever fails, takes
the long way and gets its error there.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

import psycopg
from psycopg.sql import SQL, Identifier

from frostline.catalog.cold import ColdColumn, ColdTable
from frostline.delta.tables import SCHEMA, shape_name
from frostline.gateway import given, lexer
from frostline.gateway.bench import PREV, WRITE, Bench, Made, Write, values
from frostline.gateway.candidates import Load
from frostline.gateway.given import Row
from frostline.gateway.operations import Way
from frostline.gateway.points import Sought
from frostline.gateway.translate import Parameters
from frostline.gateway.view import View
from frostline.gateway.writes import Modify
from frostline.model.types import delta_type

_PREPARED = "frostline_constraints"
# Where there is no such table the long way tells.
_CONSTRAINTS = """
(text) AS SELECT pg_catalog.pg_get_expr(c.conbin, c.conrelid) FROM pg_catalog.pg_constraint c
WHERE c.conrelid = pg_catalog.to_regclass($1) AND c.contype = 'c'
  AND coalesce((pg_catalog.to_jsonb(c) ->> 'conenforced')::bool, true)
UNION ALL
SELECT pg_catalog.format('%I IS NOT NULL', a.attname) FROM pg_catalog.pg_attribute a
WHERE a.attrelid = pg_catalog.to_regclass($1) AND a.attnum > 0 AND NOT a.attisdropped AND a.attnotnull
UNION ALL
SELECT 'false' WHERE pg_catalog.to_regclass($1) IS NULL
"""
NUMBER = "SELECT pg_catalog.nextval('frostline.version')"


@dataclass(frozen=True)
class Questions:
    """What Postgres is asked while the rows are looked up."""

    constraints: str | None  # that new rows are under; None: there are no new rows, or none that have to be asked about
    number: str | None = None  # of the new version; None: that is for a later question

    @property
    def all(self) -> list[str]:
        return [question for question in (self.constraints, self.number) if question is not None]


def questions(
    view: View, statement: Modify, table: ColdTable, wanted: Sought | None, parameters: Parameters
) -> Questions | None:
    """To be asked ahead; None: only the long way is possible."""
    if view.written_of(table.id).held:
        return None
    plan = given.plan(statement, table)
    if plan is not None and wanted is not None and wanted.key is not None and plan.known(parameters):
        return Questions(None, NUMBER)
    if plan is None and not given.plain(statement, table):
        return None
    return Questions(_constraints_of(view, table) if statement.verb == "UPDATE" else None)


def _constraints_of(view: View, table: ColdTable) -> str:
    if not view.backing.prepared(_PREPARED):
        view.backing.prepare(_PREPARED, _CONSTRAINTS)
    return _asked(table.id)


@lru_cache(maxsize=1000)
def _asked(table_id: int) -> str:
    like = Identifier(SCHEMA, shape_name(table_id)).as_string(None)
    return f"EXECUTE {_PREPARED} ({lexer.quoted(like)})"


def modify(
    view: View, statement: Modify, table: ColdTable, found: Load, parameters: Parameters, asked: Questions
) -> tuple[int, Way] | None:
    """How many rows were changed, and by which way; None: take the long one."""
    bench = view.bench(table)
    way, rows = Way.GIVEN, _given(view, statement, table, found, parameters, asked)
    if rows is None:
        way, rows = Way.ASKED, _answered(view, bench, statement, found, parameters, asked)
    if rows is None:
        return None
    if rows:
        write = view.note(table, statement.verb, statement.target.source)
        bench.note(_made(bench, statement.verb, found.columns, rows, write))
        bench.counts[write.number] += len(rows)
    return len(rows), way


def _given(
    view: View, statement: Modify, table: ColdTable, found: Load, parameters: Parameters, asked: Questions
) -> list[Row] | None:
    """The new row, with the version it replaces and its own; None: Postgres has to say what it is."""
    plan = given.plan(statement, table)
    if asked.number is None or plan is None or len(found.rows) != 1:
        return None
    before = found.rows[0]
    row = plan.row(found.columns, before[: len(found.columns)], parameters)
    if row is None:
        return None
    number = view.backing.answer(asked.number).get_value(0, 0) or b""
    return [[*row, before[-2], number.decode()]]


def _answered(
    view: View, bench: Bench, statement: Modify, found: Load, parameters: Parameters, asked: Questions
) -> list[Row] | None:
    """The same by Postgres; None, too, where one of them must not be."""
    constraints = []
    if statement.verb == "UPDATE":
        listed = view.backing.answer(asked.constraints or _constraints_of(view, bench.table))
        constraints = [(listed.get_value(at, 0) or b"").decode() for at in range(listed.ntuples)]
    try:
        (result,) = view.backing.batch([_question(bench, statement, found, parameters, constraints)])
    except psycopg.OperationalError:  # cancelled, or Postgres is gone
        raise
    except psycopg.Error:
        return None
    last = result.nfields - 1
    if any(result.get_value(at, last) != b"t" for at in range(result.ntuples)):
        return None
    return [
        [None if (value := result.get_value(at, place)) is None else value.decode() for place in range(last)]
        for at in range(result.ntuples)
    ]


def _question(bench: Bench, statement: Modify, found: Load, parameters: Parameters, constraints: Sequence[str]) -> str:
    """For the new rows, with the version each replaces, its own, and whether it may be."""
    columns, prev = found.columns, PREV.as_string(None)
    inserted = lexer.values(statement.tokens, parameters)
    version = len(columns) + len(bench.key)  # its place
    if len(found.rows) == 1:  # planned in two thirds of the time
        row = [lexer.quoted(value) for value in found.rows[0]]
        old = ", ".join(_typed(column, value) for column, value in zip(columns, row, strict=False))
        rows = f"SELECT {old}, {row[version]}::bigint AS {prev}"
    else:
        listed = values([*row[: len(columns)], row[version]] for row in found.rows)
        places = [f"c{at}" for at in range(len(columns))]
        old = ", ".join(_typed(column, f"v.{place}") for place, column in zip(places, columns, strict=True))
        rows = f"SELECT {old}, v.p::bigint AS {prev} FROM (VALUES {listed}) v ({', '.join(places)}, p)"
    set_ = {name: _spliced(statement.text, span, inserted) for name, *span in statement.assignments}
    new = ", ".join(_typed(c, set_[c.name]) if c.name in set_ else lexer.identifier(c.name) for c in columns)
    kept, allowed = _judged(statement.verb, tuple(columns), tuple(constraints))
    start, end = statement.where or (0, 0)
    where = _spliced(statement.text, (start, min(end, statement.end)), inserted)
    return (
        f"SELECT {kept}, {prev}, pg_catalog.nextval('frostline.version'), {allowed}"
        f" FROM (SELECT {new}, {prev}"
        f" FROM ({rows}) o"
        f" WHERE {where}) n"
    )


@lru_cache(maxsize=1000)
def _judged(verb: str, columns: tuple[ColdColumn, ...], constraints: tuple[str, ...]) -> tuple[str, str]:
    """What the delta keeps of a new row, and whether that may be."""
    return ", ".join(map(_kept, columns)), " AND ".join(_allowed(verb, columns, constraints))


def _allowed(verb: str, columns: Sequence[ColdColumn], constraints: Sequence[str]) -> Iterator[str]:
    yield "true"
    if verb == "UPDATE":
        yield from (f"(({constraint}) IS NOT FALSE)" for constraint in constraints)
        for column in columns:
            if column.storage.cannot_hold is not None:
                yield f"(({column.storage.cannot_hold.replace('{c}', lexer.identifier(column.name))}) IS NOT TRUE)"


def _spliced(text: str, span: Sequence[int], changes: Sequence[tuple[int, int, str]]) -> str:
    start, end = span
    inside = [(a - start, b - start, new) for a, b, new in changes if start <= a and b <= end]
    return lexer.splice(text[start:end], inside)


def _typed(column: ColdColumn, value: str) -> str:
    collated = "" if column.collation is None else f" COLLATE {'.'.join(map(lexer.identifier, column.collation))}"
    return f"CAST({value} AS {column.type}){collated} AS {lexer.identifier(column.name)}"


def _kept(column: ColdColumn) -> str:
    """A value as the delta has it: a char(n) without its blanks, a real with all its digits."""
    return f"CAST({lexer.identifier(column.name)} AS {delta_type(column.base_type)})"


def _made(bench: Bench, verb: str, columns: Sequence[ColdColumn], rows: Sequence[Row], write: Write) -> Made:
    """The versions, and what the bench would have noted."""
    width = len(columns)
    key = [columns.index(column) for column in bench.key]
    names = [column.name for column in columns]
    kept = range(width) if verb == "UPDATE" else key
    versions = tuple(
        {
            **{names[at]: row[at] for at in kept},
            "_op": "U" if verb == "UPDATE" else "T",
            "_prev": row[width],
            "_seq": row[width + 1],
        }
        for row in rows
    )

    def noted() -> list[str]:
        removed = SQL("{} ({}, {}, {})").format(bench.removed, bench.key_names(), PREV, WRITE).as_string(None)
        lost = values([*(row[at] for at in key), row[width], str(write.number)] for row in rows)
        found = [f"INSERT INTO {removed} VALUES {lost}"]
        if verb == "UPDATE":
            listed = SQL(", ").join(map(Identifier, names))
            added = SQL("{} ({}, {})").format(bench.added, listed, WRITE).as_string(None)
            found.append(f"INSERT INTO {added} VALUES {values([*row[:width], str(write.number)] for row in rows)}")
        return found

    return Made(write, versions, noted)
