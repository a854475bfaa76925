"""A source's rows as a DuckDB query: Iceberg at the pinned snapshot, merged with the delta."""

from __future__ import annotations

from collections.abc import Iterable

from frostline.catalog.cold import ColdColumn, ColdTable
from frostline.errors import QueryError
from frostline.gateway.constants import range_condition
from frostline.gateway.names import Source
from frostline.gateway.translate import column_name
from frostline.gateway.view import View
from frostline.lake.engine import iceberg_scan


def cold_rows(view: View, source: Source, table: ColdTable, columns: Iterable[ColdColumn]) -> str:
    """The rows of a source with the columns asked for, named c<number>, as a subquery."""
    # Never an empty list, and the key is read anyway.
    wanted = sorted({*columns, table.key}, key=lambda column: column.number)
    delta = view.delta(source, table)
    if delta is None:
        return f"({_lake(source, table, wanted)}) AS t"
    merged = sorted({*wanted, *table.primary_key}, key=lambda column: column.number)
    names = ", ".join(column_name(column.number) for column in wanted)
    same = " AND ".join(f"l.{name} = d.{name}" for name in (column_name(c.number) for c in table.primary_key))
    untouched = f"SELECT {names} FROM ({_lake(source, table, merged)}) AS l ANTI JOIN {delta} AS d ON ({same})"
    return f"({untouched} UNION ALL SELECT {names} FROM {delta} WHERE op = 'U') AS t"


def _lake(source: Source, table: ColdTable, columns: Iterable[ColdColumn]) -> str:
    if table.snapshot_id is None or table.metadata_location is None:
        empty = ", ".join(
            f"{c.storage.load.replace('{c}', 'NULL::VARCHAR')} AS {column_name(c.number)}" for c in columns
        )
        return f"SELECT {empty} WHERE false"
    outputs = ", ".join(f"{_lake_column(table, column)} AS {column_name(column.number)}" for column in columns)
    within = range_condition(table.key, source.range, _lake_column(table, table.key))
    return f"SELECT {outputs} FROM {iceberg_scan(table.metadata_location, table.snapshot_id)} WHERE {within}"


def _lake_column(table: ColdTable, column: ColdColumn) -> str:
    if column.lake_name is None:
        raise QueryError(
            f"column {column.name} of {table} was added after the table was registered; its cold rows have no value",
            sqlstate="0A000",
        )
    return '"' + column.lake_name.replace('"', '""') + '"'
