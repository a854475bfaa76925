"""Rows becoming Parquet files of an Iceberg table: in its sort order, one partition a file, with their metrics.

Rows that come in order, as they mostly do, go into a file as they come. Others are collected until they are as large as
a file may be in memory, sorted, and written. So the memory a writer needs does not depend on how many rows it gets.
Nothing here knows Spark; the files belong to no snapshot until `catalog.append` commits them.
"""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyiceberg.io import FileIO, load_file_io
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table as IcebergTable
from pyiceberg.table.locations import load_location_provider
from pyiceberg.table.sorting import NullOrder, SortDirection, SortOrder
from pyiceberg.types import DecimalType, IcebergType, NestedField, PrimitiveType, UUIDType

from frostline.lake.layout import FALSE_POSITIVES, ROWS_PER_GROUP, has_bloom
from frostline.lake.metrics import Column, Metrics
from frostline.lake.partitions import values as partition_values
from frostline.lake.storage import storage_properties

# Rows that are put in order and encoded at a time.
_ROWS_AT_ONCE = 8 * ROWS_PER_GROUP
_COMPRESSION_LEVEL = 3
_BY_DIFFERENCE = "DELTA_BINARY_PACKED"  # half the size of moments and numbers in a row, and read in half the time
_LONGEST_WHOLE = 18  # digits of a decimal that is an integer in the file
_ARROW: dict[str, pa.DataType] = {
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us"),
    "timestamptz": pa.timestamp("us", "UTC"),
    "uuid": pa.binary(16),
    "binary": pa.binary(),
    "string": pa.string(),
}


@dataclass(frozen=True)
class Target:
    """All a writer needs to know of a table, in a form that can be sent to another machine."""

    schema: Schema
    spec: PartitionSpec
    sorted_by: tuple[tuple[str, str, str], ...]  # names, directions and places of nulls, as Arrow calls them
    looked_up: tuple[str, ...]  # columns that rows are asked for by one value
    location: str
    properties: Mapping[str, str]
    io: Mapping[str, str]  # how its files are reached, with the keys; nothing of the catalog
    file_bytes: int  # rows of this size, in memory, make a file
    prefix: str  # of the files' names, to tell whose they are


@dataclass(frozen=True)
class Written:
    """A complete file and what a manifest says about it."""

    path: str
    size: int
    rows: int
    partition: tuple[int, ...]
    split_offsets: tuple[int, ...]
    metrics: Mapping[str, Any]


def target(table: IcebergTable, looked_up: tuple[str, ...], file_bytes: int, prefix: str) -> Target:
    return Target(
        schema=table.schema(),
        spec=table.spec(),
        sorted_by=arrow_order(table.schema(), table.sort_order()),
        looked_up=looked_up,
        location=table.location(),
        properties=dict(table.properties),
        io=storage_properties(table),
        file_bytes=file_bytes,
        prefix=prefix,
    )


def arrow_order(schema: Schema, order: SortOrder) -> tuple[tuple[str, str, str], ...]:
    return tuple(
        (
            schema.find_field(part.source_id).name,
            "descending" if part.direction == SortDirection.DESC else "ascending",
            "at_start" if part.null_order == NullOrder.NULLS_FIRST else "at_end",
        )
        for part in order.fields
    )


def arrow_type(type_: IcebergType) -> pa.DataType:
    """The Arrow type that holds exactly the values of an Iceberg one."""
    if isinstance(type_, DecimalType):
        return pa.decimal128(type_.precision, type_.scale)
    return _ARROW[str(type_)]


@dataclass
class Writer:
    """Takes batches of a table's columns, in the schema's order and of its Arrow types, and leaves files."""

    target: Target
    written: list[Written] = field(default_factory=list)
    _collected: list[list[pa.Array]] = field(default_factory=list)  # per column
    _rows: int = 0  # of these
    _bytes: int = 0
    _file: _File | None = None  # to which rows are added as long as they come in order
    _unordered: bool = False  # what is collected has to be sorted

    def __post_init__(self) -> None:
        (self._part,) = self.target.spec.fields  # the period: our tables are partitioned by nothing else
        self._key = self.target.schema.find_field(self._part.source_id)
        self._names = [column.name for column in self.target.schema.fields]
        self._io: FileIO = load_file_io(dict(self.target.io), self.target.location)
        self._locations = load_location_provider(self.target.location, dict(self.target.properties))

    def add(self, batch: pa.RecordBatch) -> None:
        self._collect(batch.columns, batch.num_rows, batch.nbytes)
        if self._bytes + (self._file.bytes if self._file is not None else 0) >= self.target.file_bytes:
            self.flush()
        elif not self._unordered and (
            self._rows >= _ROWS_AT_ONCE or (self._rows >= ROWS_PER_GROUP and self._bytes >= self.target.file_bytes // 8)
        ):
            self._go_on()

    def flush(self) -> None:
        """Write what has been collected."""
        if self._rows and not self._unordered:
            self._append(self._table())
        self._finish()
        if not self._rows:
            return
        period = self._period(self._table()[self._key.name])
        table = pa.table([_joined(arrays) for arrays in self._taken()], names=self._names)
        order = self._order(table)
        if period is not None:
            self._write(table, period, order)
            return
        periods = self._periods(table[self._key.name])[order]
        for period in np.unique(periods):
            self._write(table, int(period), order[periods == period])

    def discard(self) -> None:
        """Remove what was written: nobody is going to refer to it."""
        if self._file is not None:
            self._file.abandon()
            self._file = None
        for file in self.written:
            with contextlib.suppress(OSError):
                self._io.delete(file.path)

    def _collect(self, columns: Sequence[pa.Array], rows: int, size: int) -> None:
        self._collected = self._collected or [[] for _ in columns]
        for arrays, array in zip(self._collected, columns, strict=True):
            arrays.append(array)
        self._rows += rows
        self._bytes += size

    def _taken(self) -> list[list[pa.Array]]:
        collected, self._collected = self._collected, []
        self._rows = self._bytes = 0
        self._unordered = False
        return collected

    def _table(self) -> pa.Table:
        return pa.table([pa.chunked_array(arrays) for arrays in self._collected], names=self._names)

    def _go_on(self) -> None:
        """Write whole row groups of what is there; the rest waits for more."""
        table, size = self._table(), self._bytes
        whole = table.num_rows - table.num_rows % ROWS_PER_GROUP
        if self._append(table.slice(0, whole)):
            for batch in table.slice(whole).to_batches():
                self._collect(batch.columns, batch.num_rows, size * batch.num_rows // table.num_rows)
        else:
            self._finish()
            self._unordered = True

    def _append(self, table: pa.Table) -> bool:
        """Add rows that come in order, one partition after the other, to their files; False: they do not, and stay."""
        last = self._file.last if self._file is not None else None
        if not _in_order(table, self.target.sorted_by, last):
            return False
        parts = self._parts(table)
        if not parts or (self._file is not None and parts[0][0] < self._file.partition):
            return False
        for period, part in parts:
            if self._file is not None and self._file.partition != period:
                self._finish()
            if self._file is None:
                self._file = self._opened(period, part)
            self._file.add(part)
        self._taken()
        return True

    def _parts(self, table: pa.Table) -> list[tuple[int, pa.Table]]:
        """Rows of each partition; none where partitions come again."""
        column = table[self._key.name]
        period = self._period(column)
        if period is not None:
            return [(period, table)]
        periods = self._periods(column)
        if (periods[1:] < periods[:-1]).any():
            return []
        starts = [0, *(np.flatnonzero(np.diff(periods)) + 1).tolist()]
        ends = [*starts[1:], table.num_rows]
        return [(int(periods[start]), table.slice(start, end - start)) for start, end in zip(starts, ends, strict=True)]

    def _finish(self) -> None:
        if self._file is not None:
            file, self._file = self._file, None
            self.written.append(file.finished())

    def _order(self, table: pa.Table) -> Any:
        if not self.target.sorted_by:
            return np.arange(table.num_rows)
        return pc.sort_indices(table, sort_keys=self.target.sorted_by).to_numpy()

    def _period(self, column: pa.ChunkedArray) -> int | None:
        """The partition of all rows, if it is one: that of the first and the last moment."""
        ends = pc.min_max(column)
        first, last = self._periods(pa.chunked_array([pa.array([ends["min"], ends["max"]])]))
        return int(first) if first == last else None

    def _periods(self, column: pa.ChunkedArray) -> Any:
        """The partition of every row."""
        return partition_values(self._part.transform, self._key.field_type, column)

    def _write(self, table: pa.Table, partition: int, rows: Any) -> None:
        """A file of these rows, in that order."""
        middle = max(len(rows) // 2 - ROWS_PER_GROUP // 2, 0)
        file = self._opened(partition, table.take(pa.array(rows[middle : middle + ROWS_PER_GROUP])))
        try:
            for start in range(0, len(rows), _ROWS_AT_ONCE):
                file.add(table.take(pa.array(rows[start : start + _ROWS_AT_ONCE])))
        except BaseException:
            file.abandon()
            raise
        self.written.append(file.finished())

    def _opened(self, partition: int, sample: pa.Table) -> _File:
        return _File(self.target, self._io, self._path(partition), partition, sample.slice(0, ROWS_PER_GROUP))

    def _path(self, partition: int) -> str:
        transform, name = self._part.transform, f"{self.target.prefix}-{uuid.uuid4().hex}.parquet"
        value = transform.to_human_string(transform.result_type(self._key.field_type), partition)
        return self._locations.new_data_location(f"{self._part.name}={value}/{name}")


class _File:
    """One file while it is being written."""

    def __init__(self, target: Target, io: FileIO, path: str, partition: int, sample: pa.Table) -> None:
        self.partition = partition
        self.bytes = 0  # of the rows in it, as they were in memory
        self.last: pa.Table | None = None  # row
        self._target, self._io, self._path = target, io, path
        self._schema = _file_schema(target.schema)
        self._metrics = Metrics({c.field_id: Column(_primitive(c)) for c in target.schema.fields})
        self._output = io.new_output(path)
        self._open = contextlib.ExitStack()
        stream = self._open.enter_context(self._output.create())
        try:
            writer = pq.ParquetWriter(stream, self._schema, **self._options(sample))
            self._writer = self._open.enter_context(writer)
        except BaseException:
            self.abandon()
            raise

    def add(self, table: pa.Table) -> None:
        self._metrics.add(table)
        self._writer.write_table(self._with_ids(table), row_group_size=ROWS_PER_GROUP)
        self.bytes += table.nbytes
        self.last = table.slice(table.num_rows - 1).combine_chunks()

    def finished(self) -> Written:
        try:
            self._open.close()
        except BaseException:
            self.abandon()
            raise
        footer: pq.FileMetaData = self._writer.writer.metadata
        groups = [footer.row_group(number) for number in range(footer.num_row_groups)]
        for position, column in enumerate(self._target.schema.fields):
            self._metrics.sizes[column.field_id] = sum(group.column(position).total_compressed_size for group in groups)
        offsets = tuple(_offset(group.column(0)) for group in groups)
        size = len(self._output)
        return Written(self._path, size, footer.num_rows, (self.partition,), offsets, self._metrics.entries())

    def abandon(self) -> None:
        with contextlib.suppress(Exception):  # what it failed of is being told
            self._open.close()
        with contextlib.suppress(OSError):
            self._io.delete(self._path)

    def _options(self, sample: pa.Table) -> dict[str, Any]:
        names = [name for name in self._target.looked_up if has_bloom(str(self._type(name)))]
        repetitive = [name for name in sample.column_names if _repetitive(sample[name])]
        others = [name for name in sample.column_names if name not in repetitive]
        return {
            "compression": "zstd",
            "compression_level": _COMPRESSION_LEVEL,
            "use_dictionary": repetitive,
            "column_encoding": dict.fromkeys((name for name in others if _whole(sample[name].type)), _BY_DIFFERENCE),
            "bloom_filter_options": {name: {"ndv": sample.num_rows, "fpp": FALSE_POSITIVES} for name in names},
            "store_decimal_as_integer": True,  # as Iceberg wants them
            "store_schema": False,
        }

    def _with_ids(self, table: pa.Table) -> pa.Table:
        arrays = [
            chunks.cast(_in_file(column.field_type)) if isinstance(column.field_type, UUIDType) else chunks
            for column, chunks in zip(self._target.schema.fields, table.columns, strict=True)
        ]
        return pa.table(arrays, schema=self._schema)

    def _type(self, name: str) -> IcebergType:
        return self._target.schema.find_field(name).field_type


def _file_schema(schema: Schema) -> pa.Schema:
    return pa.schema(
        pa.field(
            column.name,
            _in_file(column.field_type),
            nullable=not column.required,
            metadata={b"PARQUET:field_id": str(column.field_id).encode()},
        )
        for column in schema.fields
    )


def _primitive(column: NestedField) -> PrimitiveType:
    assert isinstance(column.field_type, PrimitiveType)  # the map of types has no other
    return column.field_type


def _in_file(type_: IcebergType) -> pa.DataType:
    return pa.uuid() if isinstance(type_, UUIDType) else arrow_type(type_)


def _joined(arrays: list[pa.Array]) -> pa.Array:
    """One array; its parts are let go."""
    joined = pa.chunked_array(arrays).combine_chunks()
    arrays.clear()
    return joined


def _in_order(table: pa.Table, sorted_by: Sequence[tuple[str, str, str]], last: pa.Table | None = None) -> bool:
    """Whether the rows are known to be sorted, the first after that last one; numbers and moments tell."""
    if last is not None:
        table = pa.concat_tables([last, table])
    tied = np.ones(max(table.num_rows - 1, 0), bool)
    for name, direction, _ in sorted_by:
        if not tied.any():
            return True
        column = table[name]
        comparable = pa.types.is_integer(column.type) or pa.types.is_temporal(column.type)
        if direction != "ascending" or column.null_count or not comparable:
            return False
        values = column.to_numpy()
        if (tied & (values[1:] < values[:-1])).any():
            return False
        tied &= values[1:] == values[:-1]
    return True


def _repetitive(column: pa.ChunkedArray) -> bool:
    """Whether a dictionary makes a row group of the column smaller."""
    return bool(2 * pc.count_distinct(column).as_py() < len(column))


def _whole(type_: pa.DataType) -> bool:
    """Whether its values are whole numbers in the file."""
    return bool(
        pa.types.is_integer(type_)
        or pa.types.is_temporal(type_)
        or (pa.types.is_decimal(type_) and type_.precision <= _LONGEST_WHOLE)
    )


def _offset(column: pq.ColumnChunkMetaData) -> int:
    return int(column.dictionary_page_offset or column.data_page_offset)
