"""A few rows of one data file by their values, without an engine: DuckDB plans for a millisecond before it reads.

Only the plain case: a file of this machine without nested columns, in which few row groups can have such rows, by
their bounds and their bloom filters. Of everything else the answer is that DuckDB has to be asked.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import cached_property, partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from frostline.lake import bloom
from frostline.lake.cache import ByteCache
from frostline.lake.storage import local_path

FOOTERS = 64 * 1024 * 1024
VALUES = 128 * 1024 * 1024  # as much as Postgres takes for its own pages unless it is told otherwise
_GROUP_BYTES = 8 * 1024 * 1024  # a larger one DuckDB does not read as a whole
_GROUPS = 3  # are read, with all that filters take for possible; more are left to DuckDB
_FILTERED = 128  # row groups whose filters are asked; of more, DuckDB asks them
_FILTERS = 32 * 1024 * 1024
_CHUNK_BYTES = 700  # of a column in a row group, as metadata
_EPOCH = datetime(1970, 1, 1)  # of moments and of local times alike
_ALONE = 8  # columns: so few are read sooner than other threads wake up

Text = Callable[[Any], str]
Row = list[str | None]


class _NotPlain(Exception):
    """DuckDB has to be asked."""


@dataclass(frozen=True)
class _Column:
    place: int
    type: pa.DataType
    text: Text | None  # None: not known here


@dataclass(frozen=True)
class _File:
    """What a file's footer says."""

    metadata: pq.FileMetaData
    columns: Mapping[int, _Column]  # by field id
    bounds: dict[int, list[tuple[int, int] | None]] = field(default_factory=dict)  # by place, of each row group

    @property
    def weight(self) -> int:
        return int(_CHUNK_BYTES * (1 + self.metadata.num_row_groups) * (1 + self.metadata.num_columns))

    def column(self, number: int) -> _Column:
        found = self.columns.get(number)
        if found is None:
            raise _NotPlain
        return found

    def groups(self, place: int, value: int) -> set[int]:
        """The row groups that may have a value in a column."""
        if place not in self.bounds:
            groups = (self.metadata.row_group(at) for at in range(self.metadata.num_row_groups))
            self.bounds[place] = [_bounds(group.column(place).statistics) for group in groups]
        return {at for at, known in enumerate(self.bounds[place]) if known is None or known[0] <= value <= known[1]}


@dataclass(frozen=True)
class _Values:
    """A column of a row group."""

    array: pa.Array

    @property
    def weight(self) -> int:
        return int(self.array.nbytes)

    @cached_property
    def ascending(self) -> bool:
        """Whether its numbers, none of them NULL, come in order: a file is sorted by its key."""
        found = self.numbers
        return found is not None and bool(np.all(found[:-1] <= found[1:]))

    @cached_property
    def numbers(self) -> Any | None:
        """The whole numbers behind its values; None where one of them is NULL."""
        type_ = _integers(self.array.type)
        if type_ is None:
            raise _NotPlain
        return None if self.array.null_count else self.array.view(type_).to_numpy()


_files: ByteCache[_File] = ByteCache(FOOTERS)
_values: ByteCache[_Values] = ByteCache(VALUES)
_filters: ByteCache[bloom.Filter] = ByteCache(_FILTERS)


def rows(location: str, equal: Mapping[int, int], wanted: Sequence[int], most: int) -> list[Row] | None:
    """Texts of columns, by field id, in the rows that have these values: at most so many. None: DuckDB has to be asked.

    The values are whole numbers, days since 1970 or microseconds since then.
    """
    path = local_path(location)
    if path is None or not equal:
        return None
    try:
        return _rows(path, _files.get(path, partial(_footer, path)), equal, wanted, most)
    except (_NotPlain, OSError, ValueError, OverflowError, pa.ArrowException):
        return None  # whoever reads it next says what is wrong, if anything is


def cache_counts() -> dict[str, int]:
    """For whoever watches the process."""
    return {
        f"{name}_{what}": count
        for name, counts in (("footers", _files.counts()), ("values", _values.counts()))
        for what, count in counts.items()
    }


def _rows(path: str, file: _File, equal: Mapping[int, int], wanted: Sequence[int], most: int) -> list[Row]:
    compared = [(file.column(number), value) for number, value in equal.items()]
    columns = [file.column(number) for number in wanted]
    groups = _possible(path, file, compared)
    if len(groups) > _GROUPS:
        raise _NotPlain
    found: list[Row] = []
    for group in groups:
        found += _of_group(path, file, group, compared, columns, most - len(found))
    return found


def _possible(path: str, file: _File, compared: Sequence[tuple[_Column, int]]) -> list[int]:
    """The row groups that may have such rows: by their bounds, and where those leave several by their filters."""
    groups = sorted(set.intersection(*(file.groups(column.place, value) for column, value in compared)))
    if not 1 < len(groups) <= _FILTERED:
        return groups
    for column, value in compared:
        numbers = _integers(column.type)
        if numbers is None:
            raise _NotPlain
        wanted = bloom.hashed(value, numbers.bit_width // 8)
        groups = [group for group in groups if _filter(path, file, group, column.place).may_have(wanted)]
    return groups


def _filter(path: str, file: _File, group: int, place: int) -> bloom.Filter:
    def read() -> bloom.Filter:
        chunk = file.metadata.row_group(group).column(place)
        return bloom.read(path, chunk.bloom_filter_offset, chunk.bloom_filter_length)

    return _filters.get((path, group, place), read)


def _of_group(
    path: str,
    file: _File,
    group: int,
    compared: Sequence[tuple[_Column, int]],
    columns: Sequence[_Column],
    most: int,
) -> list[Row]:
    if file.metadata.row_group(group).total_byte_size > _GROUP_BYTES:
        raise _NotPlain
    read = _read(path, file.metadata, group, {column.place for column in (*columns, *(c for c, _ in compared))})
    at = _where(read, compared)
    if len(at) > most:
        raise _NotPlain
    each = {column.place: column for column in columns}.values()  # keys are asked for twice
    found = ({c.place: _text(c, read[c.place].array[row]) for c in each} for row in at.tolist())
    return [[texts[column.place] for column in columns] for texts in found]


def _where(read: Mapping[int, _Values], compared: Sequence[tuple[_Column, int]]) -> Any:
    """The places of the rows: all are compared once, or searched, and what is left by the next column."""
    at = None
    for column, value in compared:
        at = _equal(read[column.place], value, at)
    return at


def _read(path: str, metadata: pq.FileMetaData, group: int, places: set[int]) -> dict[int, _Values]:
    """Columns of a row group, by their places."""
    found = {place: _values.peek((path, group, place)) for place in places}
    lacking = sorted(place for place, values in found.items() if values is None)
    if lacking:
        with pa.OSFile(path) as stream:
            reader = pq.ParquetFile(stream, metadata=metadata, pre_buffer=False).reader
            table = reader.read_row_group(group, column_indices=lacking, use_threads=len(lacking) > _ALONE)
        found |= {place: _Values(_whole(table.column(at))) for at, place in enumerate(lacking)}
    return {
        place: _values.get((path, group, place), partial(_same, values))
        for place, values in found.items()
        if values is not None
    }


def _same(values: _Values) -> _Values:
    return values


def _equal(values: _Values, value: int, among: Any | None) -> Any:
    """Where they are this one, out of some places or all; NULL is not."""
    found = values.numbers
    if found is None:
        same = pc.fill_null(pc.equal(values.array.view(_integers(values.array.type)), value), False)
        found, value = same.to_numpy(zero_copy_only=False), True
    if among is not None:
        return among[found[among] == value]
    if values.numbers is not None and values.ascending:
        return np.arange(found.searchsorted(value), found.searchsorted(value, "right"))
    return np.flatnonzero(found == value)


def _whole(column: pa.ChunkedArray) -> pa.Array:
    array = column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
    return array.storage if isinstance(array, pa.ExtensionArray) else array


def _text(column: _Column, value: pa.Scalar) -> str | None:
    if column.text is None:
        raise _NotPlain
    if not value.is_valid:
        return None
    # Arrow takes as long for a moment with its zone as for everything else.
    return column.text(value.value if isinstance(value, pa.TimestampScalar) else value.as_py())


def _footer(path: str) -> _File:
    metadata = pq.read_metadata(path)
    fields = metadata.schema.to_arrow_schema()
    if len(fields) != metadata.num_columns:  # nested: places of columns are not those of their values
        return _File(metadata, {})
    known: dict[int, _Column] = {}
    for place, column in enumerate(fields):
        number = (column.metadata or {}).get(b"PARQUET:field_id")
        if number is not None:
            type_ = column.type.storage_type if isinstance(column.type, pa.BaseExtensionType) else column.type
            known[int(number)] = _Column(place, type_, _writer(type_))
    return _File(metadata, known)


def _bounds(statistics: pq.Statistics | None) -> tuple[int, int] | None:
    if statistics is None or not statistics.has_min_max:
        return None
    return statistics.min_raw, statistics.max_raw


def _integers(type_: pa.DataType) -> pa.DataType | None:
    """The type of the numbers behind a column's values; None: they are no such."""
    if pa.types.is_int32(type_) or pa.types.is_date32(type_):
        return pa.int32()
    if pa.types.is_int64(type_) or (pa.types.is_timestamp(type_) and type_.unit == "us"):
        return pa.int64()
    return None


def _writer(type_: pa.DataType) -> Text | None:
    """How values are written so that Postgres reads the same ones."""
    return next((write for known, write in _WRITERS if known(type_)), None)


def _uuid(value: bytes) -> str:
    return str(uuid.UUID(bytes=value))


def moment(micros: int) -> str:
    """Microseconds since 1970 as Postgres reads them; or OverflowError."""
    value = _EPOCH + timedelta(microseconds=micros)
    return value.isoformat(" ").rstrip("0") if value.microsecond else value.isoformat(" ")


def _moments(zone: str | None, type_: pa.DataType) -> bool:
    return bool(pa.types.is_timestamp(type_) and type_.unit == "us" and type_.tz == zone)


def _uuids(type_: pa.DataType) -> bool:
    return bool(pa.types.is_fixed_size_binary(type_) and type_.byte_width == 16)


_WRITERS: tuple[tuple[Callable[[pa.DataType], bool], Text], ...] = (
    (pa.types.is_int32, str),
    (pa.types.is_int64, str),
    (pa.types.is_string, str),
    (pa.types.is_boolean, lambda value: "t" if value else "f"),
    # Of a real: as a double it is the same, and no other real is nearer.
    (lambda type_: pa.types.is_float32(type_) or pa.types.is_float64(type_), repr),
    (pa.types.is_date32, str),
    (partial(_moments, None), moment),
    (partial(_moments, "UTC"), lambda micros: f"{moment(micros)}+00"),
    (pa.types.is_decimal128, lambda value: format(value, "f")),
    (pa.types.is_binary, lambda value: f"\\x{value.hex()}"),
    (_uuids, _uuid),
)
