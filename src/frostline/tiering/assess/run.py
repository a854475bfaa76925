"""Looking at every table of a database: sizes, ages, what could go to the lake, what stands in the way.

Nothing is changed and nobody is kept waiting: every statement is a read-only transaction of its own, holds no lock but
ACCESS SHARE, waits for none longer than others wait behind ours, and ends after some seconds. Huge tables are sampled.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import psycopg
from psycopg.sql import SQL, Identifier, Literal

from frostline.catalog import describe, queries
from frostline.catalog.database import LOCK_TIMEOUT_MS, Connection
from frostline.errors import ConfigError
from frostline.model import ages as model
from frostline.model.ages import Bin, Span
from frostline.model.bounds import KEY_TYPES, parse_partition
from frostline.model.spacing import calendar_unit, local, to_order
from frostline.model.tables import Table
from frostline.report import Report
from frostline.tiering import cautions, ddl, refusals
from frostline.tiering.assess import ages, lockplan, sample, sizes
from frostline.tiering.assess.sample import Measured
from frostline.tiering.assess.sizes import Part, Sizes
from frostline.tiering.checks import shell_list, shell_name
from frostline.tiering.refusals import Objection

LEAST = 1_000_000  # bytes: a smaller table is looked at closely when it is named
_STATEMENT_TIMEOUT = "10s"
_SAMPLED_PARTITIONS = 2
# What this role lacks to read a table, and the statement that grants it.
_GRANTS = """
SELECT g.statement
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
CROSS JOIN LATERAL (VALUES
    (has_schema_privilege(n.oid, 'USAGE'), format('GRANT USAGE ON SCHEMA %%I TO %%I', n.nspname, current_user)),
    (has_table_privilege(c.oid, 'SELECT'), format('GRANT SELECT ON %%I.%%I TO %%I', n.nspname, c.relname, current_user))
) g (granted, statement)
WHERE c.oid = %s AND NOT g.granted
"""
_Result = TypeVar("_Result")


@dataclass(frozen=True)
class Hot:
    """The hot period as a person gave it: an interval for time, or a width for integers."""

    text: str

    @property
    def width(self) -> int | None:
        return int(self.text) if self.text.isdecimal() else None


@dataclass(frozen=True)
class Cold:
    """What would go to the lake under the hot period."""

    partitions: int
    rows: int
    bytes: int  # that Postgres is rid of: heap, indexes, out of line
    lake_bytes: int | None = None


@dataclass
class Assessed:
    """One table; what could not be found out is None, and `notes` say why."""

    oid: int
    schema: str
    name: str
    kind: str  # plain, partitioned, registered
    readable: bool
    sizes: Sizes | None = None
    partitions: int = 0
    key: str | None = None
    key_type: str | None = None
    period: str = "month"  # to cut a plain table by
    profile: list[Bin] = field(default_factory=list)
    cold: Cold | None = None
    sampled: Measured | None = None
    obstacles: list[Objection] = field(default_factory=list)
    cautions: list[str] = field(default_factory=list)
    locks: list[lockplan.Lock] = field(default_factory=list)
    next: str | None = None
    notes: list[str] = field(default_factory=list)
    close: bool = False  # looked at closely

    def __str__(self) -> str:
        return f"{self.schema}.{self.name}"


def assess(connection: Connection, hot: str, names: Sequence[str], top: int, report: Report) -> list[Assessed]:
    """Every table, or those named, the largest first; the `top` largest closely."""
    connection.execute(
        f"SELECT set_config('default_transaction_read_only', 'on', false),"
        f" set_config('statement_timeout', '{_STATEMENT_TIMEOUT}', false),"
        f" set_config('lock_timeout', '{LOCK_TIMEOUT_MS}ms', false)"
    )
    period = _hot(connection, hot)
    wanted = {describe.resolve(connection, name)[0] for name in names}
    listed = [row for row in queries.rows(connection, "user_tables") if not wanted or row[0] in wanted]
    found = []
    with report.step("sizes", total=len(listed)) as task:
        for row in listed:
            found.append(_listed(connection, row))
            task.advance()
    found.sort(key=lambda one: one[0].sizes.total if one[0].sizes else 0, reverse=True)
    closely = [one for one in found if one[0].readable and one[1] is not None and (names or _large(one[0]))]
    closely = closely if names else closely[:top]
    with report.step("ages, samples, obstacles", total=len(closely)) as task:
        for one, parts in closely:
            one.close = True
            _closely(connection, one, parts or [], period)
            task.advance()
    return [one for one, _ in found]


def _large(one: Assessed) -> bool:
    return one.sizes is not None and one.sizes.total >= LEAST


def _hot(connection: Connection, text: str) -> Hot:
    try:
        row = connection.execute("SELECT %s::interval > '0'::interval", (text,)).fetchone()
    except psycopg.DataError:
        row = None
    if row != (True,):
        raise ConfigError(f"--hot {text!r} is no positive interval", hint="for example: --hot 90d, or --hot '3 months'")
    return Hot(text)


def _listed(connection: Connection, row: tuple[Any, ...]) -> tuple[Assessed, list[Part] | None]:
    oid, schema, name, relkind, readable, registered, guess = row
    kind = "registered" if registered else "partitioned" if relkind == "p" else "plain"
    one = Assessed(oid, schema, name, kind, readable)
    if not readable:
        lacking = "; ".join(statement for (statement,) in connection.execute(_GRANTS, (oid,)))
        one.notes.append(f"not readable by this role: {lacking}")
    found = _tried(one, "its size", lambda: sizes.parts(connection, oid, (schema, name), readable=readable))
    # Somebody has locked it: what VACUUM has counted is known nevertheless.
    one.sizes = sizes.together(part.sizes for part in found) if found is not None else Sizes(0, guess, 0, 0)
    one.partitions = len(found or []) if relkind == "p" else 0
    return one, found


def _tried(one: Assessed, what: str, look: Callable[[], _Result]) -> _Result | None:
    """What is not to be had is said, and the rest goes on."""
    try:
        return look()
    except psycopg.errors.LockNotAvailable:
        one.notes.append(f"{what} is not known: somebody has locked the table")
    except psycopg.errors.QueryCanceled:
        one.notes.append(f"{what} is not known: that took longer than {_STATEMENT_TIMEOUT}")
    except psycopg.errors.InsufficientPrivilege as error:
        one.notes.append(f"{what} is not known: {error.diag.message_primary}")
    except psycopg.errors.UndefinedTable:
        one.notes.append("it was dropped meanwhile")
    except psycopg.Error as error:
        one.notes.append(f"{what} is not known: {error.diag.message_primary or error}")
    return None


def _closely(connection: Connection, one: Assessed, parts: list[Part], hot: Hot) -> None:
    if one.kind == "registered":
        one.notes.append("it is registered: `frostline status` shows its tiers")
        return
    one.obstacles = _tried(one, "what stands in the way", lambda: _obstacles(connection, one)) or []
    table = _tried(one, "its key", lambda: _table(connection, one))
    if table is not None:
        one.key, one.key_type = table.key, table.key_type
        spans = _tried(one, "its age profile", lambda: _spans(connection, one, table, parts)) or []
        one.period = model.suggested_period(spans)
        limit = _tried(one, "the hot period's end", lambda: _limit(connection, one, table, hot))
        _archivable(connection, one, table, _Look(parts, spans, limit, ddl.now(connection, table.key_type)))
    _advise(connection, one, table, hot)


@dataclass(frozen=True)
class _Look:
    parts: list[Part]
    spans: list[Span]
    limit: int | None  # keys below are no longer hot
    now: int


def _obstacles(connection: Connection, one: Assessed) -> list[Objection]:
    return refusals.foreseen(connection, one.oid, "p" if one.kind == "partitioned" else "r")


def _table(connection: Connection, one: Assessed) -> Table | None:
    """As it is partitioned, or as it could be."""
    if one.kind == "partitioned":
        key = queries.row(connection, "partition_key", oid=one.oid)
        if key is None or key[0] != "r" or key[1] != 1 or key[3] not in KEY_TYPES:
            return None
        return describe.table(connection, one.oid, one.schema, one.name)
    columns = queries.rows(connection, "time_columns", oid=one.oid)
    if not columns:
        one.notes.append("it has no column of a time or date by which it could be cut")
        return None
    owner = queries.row(connection, "owner", oid=one.oid)
    return Table(
        oid=one.oid,
        schema=one.schema,
        name=one.name,
        owner=owner[0] if owner else "",
        columns=describe.columns(connection, one.oid),
        key=columns[0][0],
        key_type=columns[0][1],
        primary_key=tuple(column for (column,) in queries.rows(connection, "primary_key", oid=one.oid)),
        leaves=(),
    )


def _spans(connection: Connection, one: Assessed, table: Table, parts: list[Part]) -> list[Span]:
    if one.kind == "plain":
        return ages.of_column(connection, one.oid, (one.schema, one.name), table.key, parts[0].sizes)
    found = []
    for part in parts:
        range_ = parse_partition(part.bound or "")
        lower, upper = (range_.lower, range_.upper) if range_ is not None else (None, None)
        ends = (lower.order if lower else None, upper.order if upper else None)
        found.append(Span(*ends, part.sizes.rows, part.sizes.total))
    return found


def _limit(connection: Connection, one: Assessed, table: Table, hot: Hot) -> int | None:
    """As archiving reckons: by the clock, or from the largest integer."""
    if table.key_type.startswith("int") != (hot.width is not None):
        kind, says = ("an integer", "WIDTH") if hot.width is None else ("a time", "INTERVAL")
        one.notes.append(f"what would be archived is not known: its key is {kind}, so give --hot as {says}")
        return None
    if hot.width is None:
        query = SQL("SELECT (extract(epoch FROM {} - {}::interval) * 1000000)::bigint").format(
            ddl.clock(table.key_type), Literal(hot.text)
        )
        row = connection.execute(query).fetchone()
        return row[0] if row else None
    newest = ddl.newest(connection, table, (table.schema, table.name))
    return newest - hot.width if newest is not None else None


def _archivable(connection: Connection, one: Assessed, table: Table, look: _Look) -> None:
    integer = table.key_type.startswith("int")
    cut = look.limit
    if one.kind == "plain" and cut is not None:
        # Only whole periods go.
        cut = _begin(cut, one.period)
    going = [part for part in look.parts if one.kind == "partitioned" and _upper(part, cut) is not None]
    ends = [end for part in going if (end := _upper(part, cut)) is not None]
    seam = cut if one.kind == "plain" else max(ends, default=None)
    one.profile = model.profile(look.spans, seam, None if integer else look.now)
    if one.kind == "partitioned" and cut is not None:
        what = sizes.together(part.sizes for part in going)
        one.cold = Cold(len(going), round(what.rows), what.total)
    elif cut is not None and look.spans:
        older = model.below(look.spans, cut)
        one.cold = Cold(len([bin_ for bin_ in one.profile if bin_.cold]), round(older.rows), round(older.bytes))
    sources = _sources(one, table, going or [part for part in look.parts if not part.foreign])
    one.sampled = _tried(one, "its size in the lake", lambda: _measured(connection, one, table, sources))
    if one.sampled is not None and one.cold is not None:
        one.cold = replace(one.cold, lake_bytes=round(one.cold.rows * one.sampled.row_bytes))


def _begin(order: int, period: str) -> int:
    """The first moment of the day, month or year a moment lies in."""
    if period == "day":
        return order - order % 86_400_000_000
    return to_order(calendar_unit(local(order, "UTC"), period)[0], "UTC")


def _upper(part: Part, cut: int | None) -> int | None:
    """Where a partition ends that can be archived; None: it cannot."""
    range_ = parse_partition(part.bound or "")
    upper = range_.upper if range_ is not None and not part.foreign else None
    return upper.order if upper is not None and cut is not None and upper.order <= cut else None


def _sources(one: Assessed, table: Table, parts: list[Part]) -> list[sample.Source]:
    """The largest and the middle one of the partitions; by way of the table, which may be all that is granted."""
    ordered = sorted((part for part in parts if part.sizes.rows >= 1), key=lambda part: part.sizes.heap, reverse=True)
    chosen = {part.oid: part for part in ordered[:1] + ordered[len(ordered) // 2 :][:1]}
    found = []
    for part in list(chosen.values())[:_SAMPLED_PARTITIONS]:
        range_ = parse_partition(part.bound or "") if one.kind == "partitioned" else None
        name = Identifier(one.schema, one.name)
        if one.kind == "plain":
            found.append(sample.Source(SQL("ONLY {}").format(name), SQL("true"), part.sizes.heap, part.sizes.row_bytes))
        elif range_ is not None:
            found.append(sample.Source(name, ddl.within(table, range_), part.sizes.heap, part.sizes.row_bytes))
    return found


def _measured(connection: Connection, one: Assessed, table: Table, sources: list[sample.Source]) -> Measured | None:
    try:
        return sample.measure(connection, table, sources)
    except (ValueError, OSError) as error:  # Arrow's errors are ValueErrors too
        one.notes.append(f"its size in the lake is not known: {error}")
        return None


def _advise(connection: Connection, one: Assessed, table: Table | None, hot: Hot) -> None:
    if one.kind == "partitioned" and table is not None:
        one.cautions = _tried(one, "what to know", lambda: cautions.cautions(connection, table, cold_fk="check")) or []
        one.locks = _tried(one, "the lock plan", lambda: _locks(connection, one, table)) or []
        if not one.obstacles:
            one.next = f"frostline register {shell_name(one.schema, one.name)} --hot {shlex.quote(hot.text)}"
    elif one.kind == "plain" and table is not None:
        heap = one.sizes.heap if one.sizes is not None else 0
        plan = _tried(one, "the lock plan", lambda: lockplan.partitioning(connection, one.oid, heap))
        one.locks = plan or []
        by = f"--by {shlex.quote(table.key)} --period {one.period}"
        lacks = table.primary_key and table.key not in table.primary_key
        renewed = f" --key {shell_list((*table.primary_key, table.key))}" if lacks else ""
        one.next = f"frostline partition {shell_name(one.schema, one.name)} {by}{renewed}"
    if one.next is not None and table is not None and queries.row(connection, "foreign_owner", oid=one.oid) is not None:
        one.next += f"   # as {table.owner}"


def _locks(connection: Connection, one: Assessed, table: Table) -> list[lockplan.Lock]:
    assert one.sizes is not None
    rows = one.cold.rows / max(one.cold.partitions, 1) if one.cold else one.sizes.rows / max(one.partitions, 1)
    identity = any(column.identity for column in table.columns)
    return lockplan.locks(connection, one.oid, lockplan.Extent(one.partitions, one.sizes.heap, rows, identity))
