"""A few rows of one data file by their values, without an engine: DuckDB plans for a millisecond before it reads.

Only the plain case: a file of this machine without nested columns, in which few row groups can have such rows, by
their bounds and their bloom filters. Of everything else the answer is that DuckDB has to be asked.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from frostline.lake import bloom
from frostline.lake.cache import ByteCache
from frostline.lake.storage import local_path
from frostline.lake.texts import Texts, texts

FOOTERS = 64 * 1024 * 1024
VALUES = 128 * 1024 * 1024  # as much as Postgres takes for its own pages unless it is told otherwise
_GROUP_BYTES = 8 * 1024 * 1024  # a larger one DuckDB does not read as a whole
_ANSWER_BYTES = 64 * 1024 * 1024  # of texts; DuckDB gives more piece by piece
_OPEN = 128  # files that stay open: some years of months
_OPEN_SECONDS = 10.0
_GROUPS = 3  # are read, with all that filters take for possible; more are left to DuckDB
_FILTERED = 128  # row groups whose filters are asked; of more, DuckDB asks them
_FILTERS = 32 * 1024 * 1024
_CHUNK_BYTES = 700  # of a column in a row group, as metadata
_ALONE = 8  # columns: so few are read sooner than other threads wake up
_ONE_BY_ONE = 4  # rows: so few are taken sooner without a copy of them
_LIMITS = {size: (-(2 ** (8 * size - 1)), 2 ** (8 * size - 1) - 1) for size in (4, 8)}  # by bytes of a number

Row = list[str | None]
Span = tuple[int, int]  # both are in it
Spans = Mapping[int, Span]  # by field id
ALL: Span = -(2**63), 2**63 - 1


class _NotPlain(Exception):
    """DuckDB has to be asked."""


@dataclass(frozen=True)
class _Column:
    place: int
    type: pa.DataType
    texts: Texts | None  # None: not known here


@dataclass(frozen=True)
class _File:
    """What a file's footer says."""

    metadata: pq.FileMetaData
    columns: Mapping[int, _Column]  # by field id
    words: Mapping[int, str] = field(default_factory=dict)  # names of columns of texts and bytes, by place
    bounds: dict[int, list[Span | None]] = field(default_factory=dict)  # by place, of each row group

    @property
    def weight(self) -> int:
        return int(_CHUNK_BYTES * (1 + self.metadata.num_row_groups) * (1 + self.metadata.num_columns))

    def column(self, number: int) -> _Column:
        found = self.columns.get(number)
        if found is None:
            raise _NotPlain
        return found

    def groups(self, place: int, span: Span) -> set[int]:
        """The row groups that may have such a value in a column."""
        known = self._bounds(place)
        return {at for at, own in enumerate(known) if own is None or (own[0] <= span[1] and span[0] <= own[1])}

    def share(self, place: int, group: int, span: Span) -> float:
        """How much of a row group has such values in a column, were these evenly spread."""
        own = self._bounds(place)[group]
        if own is None:
            return 1.0
        return (min(own[1], span[1]) - max(own[0], span[0]) + 1) / (own[1] - own[0] + 1)

    def _bounds(self, place: int) -> list[Span | None]:
        if place not in self.bounds:
            groups = (self.metadata.row_group(at) for at in range(self.metadata.num_row_groups))
            self.bounds[place] = [_bounds(group.column(place).statistics) for group in groups]
        return self.bounds[place]


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


@dataclass(frozen=True)
class _Part:
    """Rows of one row group."""

    columns: Mapping[int, pa.Array]  # by place
    at: Any  # the rows' places

    def listed(self, column: _Column) -> list[str | None]:
        """A column's texts, value by value."""
        assert column.texts is not None
        array, write = self.columns[column.place], column.texts.one
        # Arrow takes as long for a moment with its zone as for everything else.
        moments = pa.types.is_timestamp(column.type)
        if len(self.at) < _ONE_BY_ONE:
            found = [array[row] for row in self.at.tolist()]
            values = [value.value if moments else value.as_py() for value in found]
        else:
            some = self._taken(array)
            values = (some.view(pa.int64()) if moments else some).to_pylist()
        return [None if value is None else write(value) for value in values]

    def together(self, column: _Column) -> pa.Array:
        """A column's texts, all at once."""
        assert column.texts is not None
        array = self._taken(self.columns[column.place])
        return column.texts.all(array.dictionary_decode() if _repeated(array) else array)

    def size(self, column: _Column) -> int:
        """How many bytes the texts are whose values come again and again."""
        array = self.columns[column.place]
        if not _repeated(array):
            return 0
        array = self._taken(array)
        return int(pc.sum(pc.binary_length(array.dictionary).take(array.indices)).as_py() or 0)

    def _taken(self, array: pa.Array) -> pa.Array:
        if self.at[-1] - self.at[0] == len(self.at) - 1:
            return array.slice(self.at[0], len(self.at))
        return array.take(pa.array(self.at))


@dataclass(frozen=True)
class Found:
    """Rows of a file, of which the texts are made when somebody wants them. None: DuckDB has to be asked."""

    _columns: Sequence[_Column]
    _parts: Sequence[_Part] = ()

    @property
    def count(self) -> int:
        return _count(self._parts)

    def rows(self) -> list[Row] | None:
        """Of few rows the sooner way."""
        with _plain:
            each = {column.place: column for column in self._columns}  # keys are asked for twice
            found: list[Row] = []
            for part in self._parts:
                texts = {place: part.listed(column) for place, column in each.items()}
                found += [list(row) for row in zip(*(texts[c.place] for c in self._columns), strict=True)]
            return found
        return None

    def batch(self) -> pa.RecordBatch | None:
        """Of many."""
        with _plain:
            if sum(part.size(column) for part in self._parts for column in self._columns) > _ANSWER_BYTES:
                raise _NotPlain
            names = [str(at) for at in range(len(self._columns))]
            arrays = [pa.chunked_array([p.together(c) for p in self._parts], pa.string()) for c in self._columns]
            return pa.RecordBatch.from_arrays([array.combine_chunks() for array in arrays], names)
        return None


NOTHING = Found(())
_plain = contextlib.suppress(  # whoever reads it next says what is wrong, if anything is
    _NotPlain, OSError, ValueError, OverflowError, pa.ArrowException
)
_files: ByteCache[_File] = ByteCache(FOOTERS)
_values: ByteCache[_Values] = ByteCache(VALUES)
_filters: ByteCache[bloom.Filter] = ByteCache(_FILTERS)


class _Opened:
    """A file that can be read, by one at a time."""

    def __init__(self, path: str, metadata: pq.FileMetaData, words: Sequence[str]) -> None:
        self._stream = pa.OSFile(path)
        self._file = pq.ParquetFile(self._stream, metadata=metadata, pre_buffer=False, read_dictionary=list(words))
        self.reader = self._file.reader
        self.since = 0.0  # nobody has used it

    def close(self) -> None:
        self._stream.close()


class _Open:
    """Files that were read lately: opening one takes a third of what it takes to read a row group of it."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._lock = threading.Lock()
        self._files: OrderedDict[tuple[str, ...], _Opened] = OrderedDict()

    def take(self, path: str, words: Sequence[str]) -> _Opened | None:
        with self._lock:
            return self._files.pop((path, *words), None)

    def give(self, path: str, words: Sequence[str], opened: _Opened) -> None:
        opened.since = time.monotonic()
        with self._lock:
            gone = [self._files.pop((path, *words), None)]
            self._files[path, *words] = opened
            if len(self._files) > self._most:
                gone.append(self._files.popitem(last=False)[1])
        for other in gone:
            if other is not None:
                other.close()

    def close_unused(self, seconds: float) -> None:
        limit = time.monotonic() - seconds
        with self._lock:
            unused = [key for key, opened in self._files.items() if opened.since <= limit]
            gone = [self._files.pop(key) for key in unused]
        for opened in gone:
            opened.close()


_open = _Open(_OPEN)


def close_unused(seconds: float = _OPEN_SECONDS) -> None:
    """Close files that nobody has read for a while: one that was removed takes its room until then."""
    _open.close_unused(seconds)


def endless(span: Span) -> bool:
    """Whether it has no end."""
    return span[0] <= ALL[0] or ALL[1] <= span[1]


def find(location: str, spans: Spans, wanted: Sequence[int], most: int) -> Found | None:
    """Columns, by field id, of the rows with such values: at most so many. None: DuckDB has to be asked.

    The values are whole numbers, days since 1970 or microseconds since then.
    """
    path = local_path(location)
    if path is None or not spans:
        return None
    with _plain:
        return _find(path, _files.get(path, partial(_footer, path)), spans, wanted, most)
    return None


def cache_counts() -> dict[str, int]:
    """For whoever watches the process."""
    return {
        f"{name}_{what}": count
        for name, counts in (("footers", _files.counts()), ("values", _values.counts()))
        for what, count in counts.items()
    }


def _find(path: str, file: _File, spans: Spans, wanted: Sequence[int], most: int) -> Found:
    compared = [(file.column(number), span) for number, span in spans.items()]
    columns = [file.column(number) for number in wanted]
    if any(column.texts is None for column in columns):
        raise _NotPlain
    groups = _possible(path, file, compared)
    if len(groups) > _GROUPS or _likely(file, groups, compared) > 4 * most:
        raise _NotPlain
    parts: list[_Part] = []
    for group in groups:
        parts += _of_group(path, file, group, compared, columns, most - _count(parts))
    return Found(columns, parts)


def _count(parts: Sequence[_Part]) -> int:
    return sum(len(part.at) for part in parts)


def _possible(path: str, file: _File, compared: Sequence[tuple[_Column, Span]]) -> list[int]:
    """The row groups that may have such rows: by their bounds, and where those leave several by their filters."""
    groups = sorted(set.intersection(*(file.groups(column.place, span) for column, span in compared)))
    if not 1 < len(groups) <= _FILTERED:
        return groups
    for column, (value, highest) in compared:
        numbers = _integers(column.type)
        if numbers is None:
            raise _NotPlain
        if value == highest:
            wanted = bloom.hashed(value, numbers.bit_width // 8)
            groups = [group for group in groups if _filter(path, file, group, column.place).may_have(wanted)]
    return groups


def _likely(file: _File, groups: Sequence[int], compared: Sequence[tuple[_Column, Span]]) -> float:
    """About how many rows that is, were all values evenly spread."""
    likely = 0.0
    for group in groups:
        rows = int(file.metadata.row_group(group).num_rows)
        likely += rows * min([file.share(column.place, group, span) for column, span in compared])
    return likely


def _filter(path: str, file: _File, group: int, place: int) -> bloom.Filter:
    def read() -> bloom.Filter:
        chunk = file.metadata.row_group(group).column(place)
        return bloom.read(path, chunk.bloom_filter_offset, chunk.bloom_filter_length)

    return _filters.get((path, group, place), read)


def _of_group(
    path: str,
    file: _File,
    group: int,
    compared: Sequence[tuple[_Column, Span]],
    columns: Sequence[_Column],
    most: int,
) -> list[_Part]:
    if file.metadata.row_group(group).total_byte_size > _GROUP_BYTES:
        raise _NotPlain
    places = {column.place for column, _ in compared}
    if all(low == high for _, (low, high) in compared):
        places |= {column.place for column in columns}  # few rows, if any: all is read at once
    read = _read(path, file, group, places)
    at = _where(read, compared)
    if len(at) > most:
        raise _NotPlain
    if not len(at):
        return []
    each = {column.place: column for column in columns}  # keys are asked for twice
    read |= _read(path, file, group, each.keys() - places)
    return [_Part({place: read[place].array for place in each}, at)]


def _where(read: Mapping[int, _Values], compared: Sequence[tuple[_Column, Span]]) -> Any:
    """The places of the rows: all are compared once, or searched, and what is left by the next column."""
    at = None
    for column, span in compared:
        at = _within(read[column.place], span, at)
    return at


def _read(path: str, file: _File, group: int, places: Iterable[int]) -> dict[int, _Values]:
    """Columns of a row group, by their places.

    Words that come again and again take next to nothing in the file, and are not written out for every row.
    """
    found = {place: _values.peek((path, group, place)) for place in places}
    lacking = sorted(place for place, values in found.items() if values is None)
    if lacking:
        chunks = file.metadata.row_group(group)
        again = [file.words[at] for at in lacking if at in file.words and chunks.column(at).has_dictionary_page]
        opened = _open.take(path, again) or _Opened(path, file.metadata, again)
        table = opened.reader.read_row_group(group, column_indices=lacking, use_threads=len(lacking) > _ALONE)
        _open.give(path, again, opened)
        found |= {place: _Values(_whole(table.column(at))) for at, place in enumerate(lacking)}
    return {
        place: _values.get((path, group, place), partial(_same, values))
        for place, values in found.items()
        if values is not None
    }


def _same(values: _Values) -> _Values:
    return values


def _within(values: _Values, span: Span, among: Any | None) -> Any:
    """Where they are in it, out of some places or all; NULL is not."""
    low, high = max(span[0], ALL[0]), min(span[1], ALL[1])
    if low > high:
        return np.arange(0)
    numbers = values.numbers
    if numbers is None:
        numbers = values.array.view(_integers(values.array.type))
        inside = pc.fill_null(pc.and_(pc.greater_equal(numbers, low), pc.less_equal(numbers, high)), False)
        found = np.flatnonzero(inside.to_numpy(zero_copy_only=False))
        return found if among is None else np.intersect1d(found, among, assume_unique=True)
    if among is not None and len(among) < _ONE_BY_ONE:
        return np.array([at for at in among.tolist() if low <= numbers.item(at) <= high], np.int64)
    if among is not None:
        left = numbers[among]
        return among[(left >= low) & (left <= high)]
    if values.ascending:
        return _between(numbers, low, high)
    return np.flatnonzero(numbers == low if low == high else (numbers >= low) & (numbers <= high))


def _between(numbers: Any, low: int, high: int) -> Any:
    """Where numbers are that come in order."""
    first = _place(numbers, low, "left")
    if low == high and first + 1 < len(numbers) and numbers.item(first + 1) > high:  # alone, as in a key
        return np.arange(first, first + (numbers.item(first) == low))
    return np.arange(first, _place(numbers, high, "right"))


def _place(numbers: Any, value: int, side: Literal["left", "right"]) -> Any:
    """Of the column's own kind, or all of it would be converted."""
    lowest, highest = _LIMITS[numbers.dtype.itemsize]
    if not lowest <= value <= highest:
        return 0 if value < lowest else len(numbers)
    return numbers.searchsorted(numbers.dtype.type(value), side)


def _repeated(array: pa.Array) -> bool:
    return bool(pa.types.is_dictionary(array.type))


def _whole(column: pa.ChunkedArray) -> pa.Array:
    array = column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
    return array.storage if isinstance(array, pa.ExtensionArray) else array


def _footer(path: str) -> _File:
    metadata = pq.read_metadata(path)
    fields = metadata.schema.to_arrow_schema()
    if len(fields) != metadata.num_columns:  # nested: places of columns are not those of their values
        return _File(metadata, {})
    known: dict[int, _Column] = {}
    words: dict[int, str] = {}
    for place, column in enumerate(fields):
        number = (column.metadata or {}).get(b"PARQUET:field_id")
        if number is not None:
            type_ = column.type.storage_type if isinstance(column.type, pa.BaseExtensionType) else column.type
            known[int(number)] = _Column(place, type_, texts(type_))
            if pa.types.is_string(type_) or pa.types.is_binary(type_):
                words[place] = column.name
    return _File(metadata, known, words)


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
