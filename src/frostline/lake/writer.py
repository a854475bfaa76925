"""Rows becoming Parquet files of an Iceberg table: in its sort order, one partition a file, with their metrics.

Rows are collected until they are as large as a file may be in memory, sorted, and written. So the memory a writer
needs does not depend on how many rows it gets. Nothing here knows Spark; the files belong to no snapshot until
`catalog.append` commits them.
"""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Mapping
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
    _bytes: int = 0

    def __post_init__(self) -> None:
        (self._part,) = self.target.spec.fields  # the period: our tables are partitioned by nothing else
        self._key = self.target.schema.find_field(self._part.source_id)
        self._io: FileIO = load_file_io(dict(self.target.io), self.target.location)
        self._locations = load_location_provider(self.target.location, dict(self.target.properties))

    def add(self, batch: pa.RecordBatch) -> None:
        self._collected = self._collected or [[] for _ in batch.columns]
        for arrays, array in zip(self._collected, batch.columns, strict=True):
            arrays.append(array)
        self._bytes += batch.nbytes
        if self._bytes >= self.target.file_bytes:
            self.flush()

    def flush(self) -> None:
        """Write what has been collected."""
        collected, self._collected, self._bytes = self._collected, [], 0
        if not collected:
            return
        names = [column.name for column in self.target.schema.fields]
        table = pa.table([pa.chunked_array(arrays) for arrays in collected], names=names)
        period = self._period(table)
        if period is not None and self._sorted_already(table):
            self._write(table, period, None)  # as rows mostly come: none has to be moved
            return
        del table  # and with it the parts, as they are joined
        table = pa.table([_joined(arrays) for arrays in collected], names=names)
        order = self._order(table)
        if period is not None:
            self._write(table, period, order)
            return
        periods = self._periods(table[self._key.name])[order]
        for period in np.unique(periods):
            self._write(table, int(period), order[periods == period])

    def discard(self) -> None:
        """Remove what was written: nobody is going to refer to it."""
        for file in self.written:
            with contextlib.suppress(OSError):
                self._io.delete(file.path)

    def _sorted_already(self, table: pa.Table) -> bool:
        """By the first column alone, if that tells all rows apart."""
        if not self.target.sorted_by:
            return True
        name, direction, _ = self.target.sorted_by[0]
        return direction == "ascending" and _increasing(table[name])

    def _order(self, table: pa.Table) -> Any:
        if not self.target.sorted_by:
            return np.arange(table.num_rows)
        return pc.sort_indices(table, sort_keys=self.target.sorted_by).to_numpy()

    def _period(self, table: pa.Table) -> int | None:
        """The partition of all rows, if it is one: that of the first and the last moment."""
        ends = pc.min_max(table[self._key.name])
        first, last = self._periods(pa.chunked_array([pa.array([ends["min"], ends["max"]])]))
        return int(first) if first == last else None

    def _periods(self, column: pa.ChunkedArray) -> Any:
        """The partition of every row."""
        return partition_values(self._part.transform, self._key.field_type, column)

    def _write(self, table: pa.Table, partition: int, rows: Any) -> None:
        count = table.num_rows if rows is None else len(rows)
        path = self._path(partition)
        metrics = Metrics({c.field_id: Column(_primitive(c)) for c in self.target.schema.fields})
        output = self._io.new_output(path)
        try:
            with (
                output.create() as stream,
                pq.ParquetWriter(stream, self._file_schema(), **self._options(table, rows, count)) as writer,
            ):
                for start in range(0, count, _ROWS_AT_ONCE):
                    part = _in_order(table, rows, start, min(start + _ROWS_AT_ONCE, count))
                    metrics.add(part)
                    writer.write_table(self._with_ids(part), row_group_size=ROWS_PER_GROUP)
                writer.close()
                footer = writer.writer.metadata
        except BaseException:
            with contextlib.suppress(OSError):
                self._io.delete(path)
            raise
        self.written.append(self._described(path, len(output), partition, footer, metrics))

    def _path(self, partition: int) -> str:
        transform, name = self._part.transform, f"{self.target.prefix}-{uuid.uuid4().hex}.parquet"
        value = transform.to_human_string(transform.result_type(self._key.field_type), partition)
        return self._locations.new_data_location(f"{self._part.name}={value}/{name}")

    def _file_schema(self) -> pa.Schema:
        return pa.schema(
            pa.field(
                column.name,
                _in_file(column.field_type),
                nullable=not column.required,
                metadata={b"PARQUET:field_id": str(column.field_id).encode()},
            )
            for column in self.target.schema.fields
        )

    def _with_ids(self, table: pa.Table) -> pa.Table:
        arrays = [
            chunks.cast(_in_file(column.field_type)) if isinstance(column.field_type, UUIDType) else chunks
            for column, chunks in zip(self.target.schema.fields, table.columns, strict=True)
        ]
        return pa.table(arrays, schema=self._file_schema())

    def _options(self, table: pa.Table, rows: Any, count: int) -> dict[str, Any]:
        middle = max(count // 2 - ROWS_PER_GROUP // 2, 0)
        sample = _in_order(table, rows, middle, min(middle + ROWS_PER_GROUP, count))
        distinct = min(ROWS_PER_GROUP, count)
        return {
            "compression": "zstd",
            "compression_level": _COMPRESSION_LEVEL,
            "use_dictionary": [name for name in sample.column_names if _repetitive(sample[name])],
            "bloom_filter_options": {name: {"ndv": distinct, "fpp": FALSE_POSITIVES} for name in self._blooms()},
            "store_decimal_as_integer": True,  # as Iceberg wants them
            "store_schema": False,
        }

    def _blooms(self) -> list[str]:
        schema = self.target.schema
        return [name for name in self.target.looked_up if has_bloom(str(schema.find_field(name).field_type))]

    def _described(self, path: str, size: int, partition: int, footer: pq.FileMetaData, metrics: Metrics) -> Written:
        groups = [footer.row_group(number) for number in range(footer.num_row_groups)]
        for position, column in enumerate(self.target.schema.fields):
            metrics.sizes[column.field_id] = sum(group.column(position).total_compressed_size for group in groups)
        offsets = tuple(_offset(group.column(0)) for group in groups)
        return Written(path, size, footer.num_rows, (partition,), offsets, metrics.entries())


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


def _increasing(column: pa.ChunkedArray) -> bool:
    """Whether each value is greater than the one before: then the rest of the key does not matter."""
    if not (pa.types.is_integer(column.type) or pa.types.is_temporal(column.type)) or column.null_count:
        return False
    last = None
    for chunk in column.chunks:
        values = chunk.to_numpy(zero_copy_only=False)
        if (last is not None and values[0] <= last) or (values[1:] <= values[:-1]).any():
            return False
        last = values[-1]
    return True


def _in_order(table: pa.Table, rows: Any, start: int, end: int) -> pa.Table:
    return table.slice(start, end - start) if rows is None else table.take(pa.array(rows[start:end]))


def _repetitive(column: pa.ChunkedArray) -> bool:
    """Whether a dictionary makes a row group of the column smaller."""
    return bool(2 * pc.count_distinct(column).as_py() < len(column))


def _offset(column: pq.ColumnChunkMetaData) -> int:
    return int(column.dictionary_page_offset or column.data_page_offset)
