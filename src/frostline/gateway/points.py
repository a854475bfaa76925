"""Rows looked up by whole numbers, days or moments, as by a primary key or an hour of them.

They are read from their file without DuckDB.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace

from frostline.catalog.cold import ColdColumn, ColdTable
from frostline.gateway.bench import FEW_ROWS
from frostline.gateway.clauses import Select
from frostline.gateway.encode import FEW_VALUES
from frostline.gateway.expressions.tree import Unknown
from frostline.gateway.names import Source
from frostline.gateway.rows import BatchRows, FixedRows, Rows
from frostline.gateway.scan import Scan, count_files, lake_rows, removed
from frostline.gateway.view import Version, View
from frostline.gateway.wire.messages import Field
from frostline.lake import point
from frostline.lake.pruning import Among, Column, Compare, Condition
from frostline.lake.texts import moment

_OF_LAKE = "0"
_MOST = 10_000  # rows that are made without an engine: of more, DuckDB makes them sooner
_WHOLE = frozenset({"int", "long", "date", "timestamp", "timestamptz"})


@dataclass(frozen=True)
class Point:
    """A list of columns, of rows that the conditions say all about."""

    fields: tuple[Field, ...]
    columns: tuple[ColdColumn, ...]
    read: frozenset[ColdColumn]  # these, and those of the conditions


class PointRows(FixedRows):
    """Rows that were looked up in their file."""

    path = "file"


class PointBatch(BatchRows):
    """The same, of many rows."""

    path = "file"


class VersionRows(FixedRows):
    """A row that has been changed since, looked up in the delta."""

    path = "delta"


def asked(select: Select, table: ColdTable, conditions: Sequence[Condition]) -> Point | None:
    """What a SELECT asks for, if it is as plain as that."""
    spans = [_span(condition) for condition in conditions]
    try:
        named, rest = select.source()
        whole = len(select.where()) == len(conditions) > 0 and None not in spans
    except Unknown:
        return None
    columns = _listed(select, table)
    if not whole or named is not None or rest or columns is None or set(select.clauses) != {"select", "from", "where"}:
        return None
    between = _spans(conditions)
    if all(point.endless(span) for span in between.values()):
        return None  # hardly few rows
    compared = [column for column in table.columns.values() if column.field_id in between]
    fields = tuple(Field(column.name, column.oid, column.typmod) for column in columns)
    return Point(fields, columns, frozenset((*columns, *compared)))


@dataclass(frozen=True)
class Ahead:
    """What the lake has of rows, and what was found in its one file."""

    scan: Scan
    found: point.Found | None


@dataclass(frozen=True)
class Sought:
    """Columns of a few rows of a source."""

    source: Source
    table: ColdTable
    columns: Sequence[ColdColumn]
    conditions: Sequence[Condition]
    key: tuple[str, ...] | None  # values of a whole primary key, of one row, if any, and of its versions
    _keys: Callable[[], tuple[str, ...]]
    most: int = FEW_ROWS  # rows; DuckDB reads more
    ahead: list[Ahead] = field(default_factory=list, compare=False)  # what has been read of it

    @property
    def keys(self) -> tuple[str, ...]:
        """As for `cold_rows`."""
        return self._keys()


def sought(
    source: Source,
    table: ColdTable,
    columns: Sequence[ColdColumn],
    conditions: Sequence[Condition],
    keys: Callable[[], tuple[str, ...]],
) -> Sought:
    """What the conditions say of equality tells which rows."""
    return Sought(source, table, columns, conditions, _key(table, columns, _equal(conditions)), keys)


def answer(
    view: View, source: Source, table: ColdTable, found: Point, conditions: Sequence[Condition], keys: tuple[str, ...]
) -> Rows | None:
    """The rows; None: DuckDB has to be asked. `keys` are as for `cold_rows`."""
    wanted = sought(source, table, found.columns, conditions, lambda: keys)
    # A version may satisfy what is said of the key, and not the rest.
    wanted = replace(wanted, most=_MOST, key=wanted.key if len(conditions) <= len(table.primary_key) else None)
    expect(view, wanted)  # Postgres looks for versions while we read
    scan = lake_rows(view, source, table, found.read, conditions)
    held = _held(view, scan, wanted)
    if held is None:
        return None
    if isinstance(held, Version):
        return VersionRows(found.fields, [held.values])
    if held.count * len(found.columns) > FEW_VALUES:
        batch = held.batch()
        return None if batch is None else PointBatch(found.fields, batch)
    rows = held.rows()
    return None if rows is None else (PointRows if scan.files else FixedRows)(found.fields, rows)


def expect(view: View, wanted: Sought, more: Sequence[str] = ()) -> None:
    """Versions of these rows will be asked for, and other questions: Postgres can look meanwhile."""
    if wanted.key is None:
        view.expect(wanted.source, wanted.table, wanted.keys, more)
    else:
        view.expect_newest(wanted.source, wanted.table, wanted.key, wanted.columns, more)


def read_ahead(view: View, wanted: Sought) -> None:
    """Look into the file in which they were when this session last looked.

    It holds for a table of the same description, of which this transaction has written nothing: files stay as they are.
    """
    with suppress(Exception):  # whoever reads it when all is known to be still so says what is wrong, if anything is
        scan = lake_rows(view, wanted.source, wanted.table, wanted.columns, wanted.conditions)
        wanted.ahead.append(Ahead(scan, _of_file(scan, wanted) if scan.files else point.NOTHING))


def few(view: View, scan: Scan, wanted: Sought) -> list[Version] | None:
    """The rows, or more than those; `scan` is what the lake has. None: ask DuckDB."""
    held = _held(view, scan, wanted)
    if isinstance(held, Version):
        return [held]
    rows = None if held is None else held.rows()
    return None if rows is None else [Version(_OF_LAKE, values) for values in rows]


def _held(view: View, scan: Scan, wanted: Sought) -> Version | point.Found | None:
    """The newest version, or what is in the file; None: ask DuckDB."""
    if removed(wanted.source, wanted.table):
        return point.NOTHING
    ahead = next((ahead for ahead in wanted.ahead if ahead.scan is scan), None)
    found = ahead.found if ahead is not None else _of_file(scan, wanted) if scan.files else point.NOTHING
    if wanted.key is not None:
        newest = view.newest(wanted.source, wanted.table, wanted.key, wanted.columns)
        if newest is not None:
            return point.NOTHING if newest.removed else newest
    elif found is not None and view.delta(wanted.source, wanted.table, wanted.keys) is not None:
        return None
    if found is not None:
        count_files(view, scan)
    return found


def _of_file(scan: Scan, wanted: Sought) -> point.Found | None:
    if len(scan.files) != 1 or scan.rows is None or not all(map(_plain, wanted.columns)):
        return None
    numbers = [column.field_id or 0 for column in wanted.columns]
    return point.find(scan.files[0].path, _spans(wanted.conditions), numbers, wanted.most)


def _key(table: ColdTable, columns: Sequence[ColdColumn], equal: Mapping[int, int]) -> tuple[str, ...] | None:
    if not all(map(_plain, columns)) or not table.primary_key:
        return None
    try:
        return tuple([_literal(column, equal[column.field_id or 0]) for column in table.primary_key])
    except (KeyError, OverflowError):
        return None


def _literal(column: ColdColumn, value: int) -> str:
    """A value as Postgres reads it."""
    match column.storage.iceberg:
        case "date":
            return f"date '1970-01-01' + {value}"
        case "timestamp":
            return f"timestamp '{moment(value)}'"
        case "timestamptz":
            return f"timestamptz '{moment(value)}+00'"
        case _:
            return str(value)


def _equal(conditions: Iterable[Condition]) -> dict[int, int]:
    """By field id."""
    return {number: low for number, (low, high) in _spans(conditions).items() if low == high}


def _spans(conditions: Iterable[Condition]) -> dict[int, point.Span]:
    """What they say of each column together, by field id; those that say nothing of the kind are left out."""
    found: dict[int, point.Span] = {}
    for one in conditions:
        span = _span(one)
        if span is not None and isinstance(one, (Among, Compare)):
            low, high = found.get(one.column.id, point.ALL)
            found[one.column.id] = max(low, span[0]), min(high, span[1])
    return found


def _span(condition: Condition) -> point.Span | None:
    low, high = point.ALL
    match condition:
        case Among(Column(_, type_), (int() as value,)) if type_ in _WHOLE:
            return value, value
        case Compare(Column(_, type_), operator, int() as value) if type_ in _WHOLE:
            return {"<": (low, value - 1), "<=": (low, value), ">": (value + 1, high), ">=": (value, high)}[operator]
    return None


def _listed(select: Select, table: ColdTable) -> tuple[ColdColumn, ...] | None:
    tokens = select.get("select")
    if any(token.kind not in ("word", "quoted") for token in tokens[::2]):
        return None
    if any(token.text != "," for token in tokens[1::2]) or len(tokens) % 2 == 0:
        return None
    found = [table.columns.get(token.text) for token in tokens[::2]]
    columns = tuple(column for column in found if column is not None and _plain(column))
    return columns if len(columns) == len(found) else None


def _plain(column: ColdColumn) -> bool:
    """Whether every row of a file has a value of its own."""
    return column.missing is None and column.unreadable is None and not column.generated
