"""A source's rows as a DuckDB query: the files of the pinned snapshot that matter, merged with the delta."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache, partial

import duckdb
from pyiceberg.types import NestedField

from frostline.catalog.cold import ColdColumn, ColdTable
from frostline.errors import QueryError
from frostline.gateway import pruning
from frostline.gateway.constants import range_condition
from frostline.gateway.lexer import identifier
from frostline.gateway.names import Source
from frostline.gateway.translate import column_name
from frostline.gateway.view import View
from frostline.lake import files
from frostline.lake.duck import quote
from frostline.lake.engine import duckdb_type, iceberg_scan, parquet_scan
from frostline.lake.footers import MOST_ASKED, aligned_scan
from frostline.lake.layout import iceberg_type
from frostline.lake.pruning import Condition, chosen_of, wholly
from frostline.lake.storage import Storage
from frostline.model.tables import as_sql, fill_call, keep_call
from frostline.model.types import YEAR_ONE

_MARKER = "known"  # up to which number a row knows columns
_KEPT = 1000  # scans of one snapshot, about a kB each


@dataclass(frozen=True)
class Scan:
    """What a statement reads of a source: files out of how many, and the rows as a subquery named t."""

    files: Sequence[files.DataFile]
    of: int
    delta: bool
    _sql: Callable[[], str]
    recent: bool = False  # no moment in it is before the year 1
    rows: int | None = None  # exactly so many, if that is known without reading them
    version: str = "0"  # an expression: which version a row is

    @cached_property
    def sql(self) -> str:
        """Written when it is asked for: it takes a look at the files, which a row read without DuckDB does not need."""
        return self._sql()

    @property
    def empty(self) -> bool:
        """Known to have no rows, without looking."""
        return not self.files and not self.delta


def cold_rows(
    view: View,
    source: Source,
    table: ColdTable,
    columns: Collection[ColdColumn],
    conditions: Iterable[Condition] = (),
    *,
    keys: tuple[str, ...] = (),
    versions: bool = False,
) -> Scan:
    """The rows of a source that may satisfy the conditions, with the columns asked for, named c<number>.

    `keys` are conditions on the primary key, by which versions of the delta are found.
    """
    delta = None if removed(source, table) else view.delta(source, table, keys)
    read = columns if delta is None else {*columns, *table.primary_key}
    lake = lake_rows(view, source, table, read, conditions)
    count_files(view, lake)
    if delta is None:
        return lake
    names = ", ".join(column_name(column.number) for column in _in_order(frozenset(columns), (table.key,)))
    same = " AND ".join(f"t.{name} = d.{name}" for name in (column_name(c.number) for c in table.primary_key))
    old, new = (", 0 AS version", ", seq AS version") if versions else ("", "")

    def merged() -> str:
        untouched = f"SELECT {names}{old} FROM {lake.sql} ANTI JOIN {delta} AS d ON ({same})"
        return f"({untouched} UNION ALL SELECT {names}{new} FROM {delta} WHERE op = 'U') AS t"

    return Scan(lake.files, lake.of, True, merged, version="version" if versions else "0")


def count_files(view: View, found: Scan) -> None:
    """They are read."""
    if found.files:
        view.metrics.add("files_total", len(found.files))
        view.metrics.add("file_bytes_total", sum(file.size for file in found.files))


def removed(source: Source, table: ColdTable) -> bool:
    """Whether rows as old as these are not kept any more."""
    return table.retained is not None and source.range.below(table.retained)


@lru_cache(maxsize=1000)
def _in_order(columns: frozenset[ColdColumn], more: tuple[ColdColumn, ...]) -> tuple[ColdColumn, ...]:
    return tuple(sorted({*columns, *more}, key=lambda column: column.number))


def lake_rows(
    view: View, source: Source, table: ColdTable, wanted: Collection[ColdColumn], conditions: Iterable[Condition]
) -> Scan:
    """The same without the delta: what the lake has."""
    columns = _in_order(frozenset(wanted), (table.key,))  # never an empty list, and the key is read anyway
    if removed(source, table):
        return _nothing(columns, 0)
    if table.snapshot_id is None or table.metadata_location is None:
        if view.has_versions(table):
            _refuse_unreadable(table, columns)
        return _nothing(columns, 0)
    _refuse_unreadable(table, columns)
    staged = view.staged_files(source, table)
    snapshot = files.extended(view.storage, table.metadata_location, table.snapshot_id, staged)
    places = chosen_of(snapshot, source.range, lambda: pruning.in_range(table, source.range), conditions)
    if not places:
        return _nothing(columns, len(snapshot.files))
    key = (view.engine, tuple(places), columns, source.range)  # it goes on to read by the same engine
    found = snapshot.kept.get(key)
    if not isinstance(found, Scan):
        found = _reading(view, source, table, columns, snapshot, places)
        # Of more files not all footers may be known yet, and the next time it reads better.
        if len(places) <= MOST_ASKED:
            if len(snapshot.kept) >= _KEPT:
                snapshot.kept.clear()
            snapshot.kept[key] = found
    return found


def _reading(
    view: View,
    source: Source,
    table: ColdTable,
    columns: tuple[ColdColumn, ...],
    snapshot: files.Snapshot,
    places: list[int],
) -> Scan:
    read = [snapshot.files[at] for at in places]
    fields = {c: field for c in columns if (field := snapshot.fields.get(c.field_id or 0)) is not None}
    filled = any(column.missing is not None for column in columns)  # a value where rows have none of their own
    marker = snapshot.fields.get(table.marker or 0) if filled else None
    count = None
    parquet = partial(_parquet, view.engine, view.storage, fields, marker)
    if snapshot.readable(places):
        within = _unless_inside(snapshot, places, table, source)
        rows = partial(parquet, [file.path for file in read], within)
        if within is None:
            count = sum(file.rows for file in read)
    elif snapshot.vectors:
        # DuckDB takes one file's vector for another's where a Puffin file has several of them: rows would be missing.
        raise QueryError(
            f"cold rows of {table} cannot be read: another program deleted some by deletion vectors",
            hint="let it compact the table (rewrite_data_files), and keep the table in Iceberg's format version 2",
            sqlstate="0A000",
        )
    else:
        read_as = {c: _cast(field, c) for c, field in fields.items()}
        read_as[table.key] = _key(snapshot, places, table.key, fields[table.key])
        outputs = [f"{value} AS {column_name(c.number)}" for c, value in read_as.items()]
        outputs += [f"{identifier(marker.name)} AS {_MARKER}"] if marker is not None else []
        within = range_condition(table.key, source.range, read_as[table.key])
        scanned = iceberg_scan(str(table.metadata_location), int(table.snapshot_id or 0))
        merged = f"SELECT {', '.join(outputs)} FROM {scanned} WHERE {within}"
        staged = [snapshot.files[at].path for at in places if at >= len(snapshot.files) - snapshot.staged]
        if staged:
            within = range_condition(table.key, source.range, column_name(table.key.number))
            merged += f" UNION ALL SELECT {', '.join(_named(fields, marker))} FROM {parquet(staged, within)}"
        rows = partial("({}) AS t".format, merged)
    values = None
    if len(fields) < len(columns) or filled:
        values = ", ".join(f"{_value(c, fields, marker)} AS {column_name(c.number)}" for c in columns)
    recent = _recent(snapshot, places, [c for c in columns if c.storage.recent is not None])
    return Scan(read, len(snapshot.files), False, partial(_selected, values, rows), recent=recent, rows=count)


def _selected(values: str | None, rows: Callable[[], str]) -> str:
    return rows() if values is None else f"(SELECT {values} FROM {rows()}) AS t"


def _named(fields: Mapping[ColdColumn, NestedField], marker: NestedField | None) -> dict[str, NestedField]:
    """What is read of a file, by the names it gets."""
    named = {column_name(column.number): _read_as(field, column) for column, field in fields.items()}
    return named if marker is None else {**named, _MARKER: marker}


def _read_as(field: NestedField, column: ColdColumn) -> NestedField:
    """A file from before a promotion has the narrower type."""
    return NestedField(field.field_id, field.name, iceberg_type(column.storage.iceberg), required=False)


def _cast(field: NestedField, column: ColdColumn) -> str:
    wanted = iceberg_type(column.storage.iceberg)
    name = identifier(field.name)
    return name if wanted == field.field_type else f"CAST({name} AS {duckdb_type(wanted)})"


def _key(snapshot: files.Snapshot, places: Sequence[int], key: ColdColumn, field: NestedField) -> str:
    """The partition key where DuckDB leaves out files by itself: moments before 1970 only if it does not see them.

    It takes months and days before 1970 for others than Iceberg does, and files that hold them would be missing.
    """
    known = snapshot.column(field.field_id)
    lowest = [None] if known is None else [known.lower[at] for at in places]
    if not key.typname.startswith("timestamp") or all(isinstance(lower, int) and lower >= 0 for lower in lowest):
        return _cast(field, key)
    return key.storage.load.replace("{c}", f"epoch_us({identifier(field.name)})")


def _value(column: ColdColumn, fields: Collection[ColdColumn], marker: NestedField | None) -> str:
    """What a row has of its own, or what rows had when the column was added.

    A row that knows the column may have NULL of its own. One that Spark has copied into a new file may not know it.
    """
    name = column_name(column.number)
    if column.missing is None:
        return name if column in fields else column.storage.load.replace("{c}", "NULL::VARCHAR")
    value = column.storage.load.replace("{c}", quote(column.missing))
    if column not in fields:
        return value
    own = f"CASE WHEN {_MARKER} >= {column.number} THEN NULL ELSE {value} END" if marker is not None else value
    return f"coalesce({name}, {own})"


def _parquet(
    engine: duckdb.DuckDBPyConnection,
    storage: Storage,
    fields: Mapping[ColdColumn, NestedField],
    marker: NestedField | None,
    locations: Sequence[str],
    within: str | None,
) -> str:
    """Data files by themselves, with a condition on the key where they need one."""
    named = _named(fields, marker)
    try:
        rows = aligned_scan(engine, locations, named) or f"{parquet_scan(locations, named)} AS t"
    except duckdb.IOException as error:
        raise storage.unreadable(error) from error
    return rows if within is None else f"(SELECT {', '.join(named)} FROM {rows} WHERE {within}) AS t"


def _recent(snapshot: files.Snapshot, places: Sequence[int], columns: Iterable[ColdColumn]) -> bool:
    """Whether the bounds say that nothing in these columns is before the year 1."""
    for column in columns:
        known = snapshot.column(column.field_id or 0)
        if known is None or column.missing is not None:
            return False
        first = YEAR_ONE[column.storage.iceberg]
        for at in places:
            lower = known.lower[at]
            only_nulls = known.nulls[at] == snapshot.files[at].rows
            if not only_nulls and not (isinstance(lower, int) and lower >= first):
                return False
    return True


def _unless_inside(snapshot: files.Snapshot, places: list[int], table: ColdTable, source: Source) -> str | None:
    """The condition on the key, which files wholly inside the range do not need."""
    if wholly(snapshot, places, pruning.in_range(table, source.range)):
        return None
    return range_condition(table.key, source.range, column_name(table.key.number))


@lru_cache(maxsize=1000)
def _nothing(columns: tuple[ColdColumn, ...], of: int) -> Scan:
    empty = ", ".join(f"{c.storage.load.replace('{c}', 'NULL::VARCHAR')} AS {column_name(c.number)}" for c in columns)
    return Scan((), of, False, partial("(SELECT {} WHERE false) AS t".format, empty))


def _refuse_unreadable(table: ColdTable, columns: Iterable[ColdColumn]) -> None:
    for column in columns:
        if column.unreadable is not None:
            raise unreadable(table, column)


def unreadable(table: ColdTable, column: ColdColumn) -> QueryError:
    """Nobody knows what cold rows have in a column, with the way out."""
    name = (table.schema, table.name)
    if (column.unreadable or "").startswith("its expression"):
        alter = f"ALTER TABLE {as_sql(*name)} ALTER COLUMN {as_sql(column.name)}"
        kept = keep_call(name, column.name)
        hint = f"{alter} SET EXPRESSION AS it was, or drop the column; or, if they are to stay as they are, {kept}"
    elif column.generated:
        drop = f"ALTER TABLE {as_sql(*name)} DROP COLUMN {as_sql(column.name)}"
        hint = f"{drop}; one that is not generated can be added and filled"
    elif (column.unreadable or "").startswith("its type"):
        hint = "change the type back; what the lake can follow is in docs/schema.md"
    else:
        hint = f"{fill_call(name, column.name)}, or another value than NULL"
    return QueryError(
        f"cold rows of {table} have no value in column {column.name} that could be known: {column.unreadable}",
        hint=hint,
        sqlstate="0A000",
    )
