"""Rows looked up by whole numbers, days or moments, as by a primary key: read from their file without DuckDB."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from frostline.catalog.cold import ColdColumn, ColdTable
from frostline.gateway.bench import FEW_ROWS
from frostline.gateway.clauses import Select
from frostline.gateway.expressions.tree import Unknown
from frostline.gateway.names import Source
from frostline.gateway.rows import FixedRows
from frostline.gateway.scan import Scan, count_files, lake_rows
from frostline.gateway.view import View
from frostline.gateway.wire.messages import Field
from frostline.lake import point
from frostline.lake.pruning import Among, Condition

_WHOLE = frozenset({"int", "long", "date", "timestamp", "timestamptz"})


@dataclass(frozen=True)
class Point:
    """A list of columns, of rows that the conditions say all about."""

    fields: tuple[Field, ...]
    columns: tuple[ColdColumn, ...]
    read: frozenset[ColdColumn]  # these, and those of the conditions


class PointRows(FixedRows):
    """Rows that were looked up."""

    path = "file"


def asked(select: Select, table: ColdTable, conditions: Sequence[Condition]) -> Point | None:
    """What a SELECT asks for, if it is as plain as that."""
    equal = _equal(conditions)
    try:
        named, rest = select.source()
        whole = len(select.where()) == len(equal) == len(conditions) > 0
    except Unknown:
        return None
    columns = _listed(select, table)
    if not whole or named is not None or rest or columns is None or set(select.clauses) != {"select", "from", "where"}:
        return None
    compared = [column for column in table.columns.values() if column.field_id in equal]
    fields = tuple(Field(column.name, column.oid, column.typmod) for column in columns)
    return Point(fields, columns, frozenset((*columns, *compared)))


def answer(
    view: View, source: Source, table: ColdTable, found: Point, conditions: Sequence[Condition], keys: tuple[str, ...]
) -> FixedRows | None:
    """The rows; None: DuckDB has to be asked. `keys` are as for `cold_rows`."""
    view.expect(source, table, keys)  # Postgres looks for versions while we read
    scan = lake_rows(view, source, table, found.read, conditions)
    rows = few(view, source, table, scan, found.columns, conditions, keys)
    if rows is None:
        return None
    return PointRows(found.fields, rows) if scan.files else FixedRows(found.fields)


def few(
    view: View,
    source: Source,
    table: ColdTable,
    scan: Scan,
    columns: Sequence[ColdColumn],
    conditions: Iterable[Condition],
    keys: tuple[str, ...],
) -> list[point.Row] | None:
    """Columns of those rows of one file that satisfy what the conditions say of equality, in text; None: ask DuckDB."""
    rows: list[point.Row] | None = []
    if scan.files:
        if len(scan.files) != 1 or scan.rows is None or not all(map(_plain, columns)):
            return None
        rows = point.rows(scan.files[0].path, _equal(conditions), [c.field_id or 0 for c in columns], FEW_ROWS)
    if rows is None or view.delta(source, table, keys) is not None:
        return None
    count_files(view, scan)
    return rows


def _equal(conditions: Iterable[Condition]) -> dict[int, int]:
    """By field id."""
    return {
        one.column.id: one.values[0]
        for one in conditions
        if isinstance(one, Among)
        and one.column.type in _WHOLE
        and len(one.values) == 1
        and isinstance(one.values[0], int)
    }


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
