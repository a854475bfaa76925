"""What data files say of their own columns, asked once: files that agree are read without a map of field ids.

The map costs DuckDB a fifth of a millisecond to bind and keeps it from reading one file with several threads.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import duckdb
from pyiceberg.types import NestedField

from frostline.lake.cache import ByteCache
from frostline.lake.engine import duckdb_type, parquet_files

CAPACITY = 64 * 1024 * 1024
_COLUMN_BYTES = 200
MOST_ASKED = 16  # files asked for one statement, half a millisecond each


@dataclass(frozen=True)
class Footer:
    """A file's columns in its order: field id, name, and the type DuckDB reads them as."""

    columns: tuple[tuple[int | None, str, str], ...]

    @property
    def weight(self) -> int:
        return _COLUMN_BYTES * (1 + len(self.columns))


_footers: ByteCache[Footer] = ByteCache(CAPACITY)


def aligned_scan(
    engine: duckdb.DuckDBPyConnection, locations: Sequence[str], columns: Mapping[str, NestedField]
) -> str | None:
    """A FROM item named t that reads the columns under the given names; None where files differ or lack one."""
    known = {location: _footers.peek(location) for location in locations}
    unknown = [location for location, footer in known.items() if footer is None]
    if len(unknown) > MOST_ASKED:
        return None
    if unknown:
        try:
            with engine.cursor() as cursor:
                for location in unknown:
                    known[location] = _footers.get(location, partial(_read, cursor, location))
        except duckdb.IOException:
            raise  # a store that is away: asking it for the rows too would only wait as long again
        except duckdb.Error:
            return None  # whoever reads the rows will say what is wrong
    found = set(known.values())
    if len(found) != 1:
        return None
    footer = found.pop()
    names = None if footer is None else _names(footer, columns)
    return None if names is None else f"{parquet_files(locations)} AS t ({', '.join(names)})"


def _names(footer: Footer, columns: Mapping[str, NestedField]) -> list[str] | None:
    """A name for each column of the file, ours for those we want."""
    wanted = {
        (field.field_id, duckdb_type(field.field_type).replace(", ", ",")): name for name, field in columns.items()
    }
    names = [wanted.pop((number, type_), f"_{at}") for at, (number, _, type_) in enumerate(footer.columns)]  # type: ignore[arg-type]
    return None if wanted else names


def _read(cursor: duckdb.DuckDBPyConnection, location: str) -> Footer:
    described = cursor.execute(f"DESCRIBE SELECT * FROM {parquet_files([location])}").fetchall()
    ids = _top_level(
        cursor.execute(f"SELECT field_id, num_children FROM {parquet_files([location], 'parquet_schema')}").fetchall()
    )
    return Footer(tuple((number, name, type_) for number, (name, type_, *_) in zip(ids, described, strict=True)))


def _top_level(elements: list[tuple[int | None, int | None]]) -> list[int | None]:
    """The field ids of a schema's columns, out of all elements in depth-first order with the root first."""
    found: list[int | None] = []
    inside = 0
    for number, children in elements[1:]:
        if inside == 0:
            found.append(number)
        else:
            inside -= 1
        inside += children or 0
    return found
