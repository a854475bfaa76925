"""Versions of cold rows merged into the Iceberg table by one `MERGE INTO`.

Many versions Spark reads from Postgres itself, in tasks that share one exported snapshot; a few are read here, for its
Python workers start more slowly than all the rest takes. It keeps them: a MERGE looks at its source more than once.
Nothing is staged in the lake, so nothing is left there by a run that dies before its commit but the data files that
Spark was writing.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from frostline.catalog.registry import Managed
from frostline.config import Settings
from frostline.errors import FrostlineError, OperationError
from frostline.faults import InjectedFault
from frostline.lake import catalog as lake
from frostline.lake import layout, storage, writer
from frostline.lake.decode import Wire
from frostline.model.tables import Column
from frostline.pipeline import slices
from frostline.pipeline.export import cause, cut
from frostline.pipeline.session import told_plainly
from frostline.pipeline.slices import Reading, Slice

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

# Iceberg puts every session option of this prefix into the summary of the snapshots it commits.
_PROPERTY = "spark.sql.iceberg.snapshot-property."
OP = "_frostline_op"  # a table with a column of that name gets another one, see `_op`
_SLICE_BYTES = 32_000_000
# What Iceberg says when somebody else's commit came in between: nothing was committed.
_CONFLICTS = ("ValidationException", "CommitFailedException")
_SPARK_TYPES = {
    "int": "integer",
    "long": "long",
    "timestamp": "timestamp_ntz",
    "timestamptz": "timestamp",
    "uuid": "string",
}
_LITERALS = {
    "int": "CAST({n}L AS INT)",
    "long": "CAST('{n}' AS BIGINT)",
    "date": "date_from_unix_date({n})",
    "timestamp": "CAST(timestamp_micros(CAST('{n}' AS BIGINT)) AS TIMESTAMP_NTZ)",
    "timestamptz": "timestamp_micros(CAST('{n}' AS BIGINT))",
}

Bounds = Mapping[str, tuple[int, int]]  # by column: least and greatest value, as Iceberg counts


class Conflict(Exception):
    """Another engine committed what this MERGE would have to know; it did not happen."""


@dataclass(frozen=True)
class Versions:
    """The newest version of every key, as one snapshot of Postgres sees them."""

    snapshot: str  # pg_export_snapshot() of a transaction that stays open
    query: str  # the table's columns in their order, then the operation
    pages: int
    bytes: int
    bounds: Sequence[Bounds]  # of the versions in each partition concerned


def bounded(column: Column) -> bool:
    """Whether files are chosen by a column's least and greatest value: numbers and moments order alike everywhere."""
    return column.storage.iceberg in _LITERALS


@told_plainly()
def merge(spark: SparkSession, settings: Settings, managed: Managed, versions: Versions, operation: int) -> None:
    """One commit to the Iceberg table, with the operation's id."""
    context, group = spark.sparkContext, f"frostline operation {operation}"
    context.setJobGroup(group, group, interruptOnCancel=True)
    try:
        with (
            _source(spark, settings, managed, versions, operation) as source,
            stamped(spark, {layout.OPERATION: str(operation)}),
            quiet(),
        ):
            spark.sql(statement(settings, managed, source, versions.bounds))
    except (FrostlineError, InjectedFault):
        raise
    except Exception as error:
        said = cause(error)
        if any(name in str(error) for name in _CONFLICTS):
            raise Conflict(said) from error
        raise OperationError(
            f"merging the changes of {managed.table} into the lake failed; they stay in Postgres as they were",
            detail=storage.of(settings).said(said)[0],
            hint=f"Spark's own words are in {settings.local.dir / 'logs' / 'spark.log'}; run the same command again",
        ) from error
    finally:
        context.cancelJobGroup(group)  # nothing of it goes on for nobody


def statement(settings: Settings, managed: Managed, source: str, bounds: Sequence[Bounds]) -> str:
    """Tombstones delete, the others take a row's place or are added to the rows there are."""
    columns = [quoted(managed.lake_names[c.name]) for c in managed.table.stored]
    keys = [quoted(managed.lake_names[name]) for name in managed.table.primary_key]
    op = quoted(_op(managed))
    values = {column: f"s.{column}" for column in columns}
    if managed.marker is not None:
        values[quoted(managed.marker)] = str(managed.table.last_number)
    same = " AND ".join([*(f"t.{key} = s.{key}" for key in keys), *_within(managed, bounds)])
    return (
        f"MERGE INTO {table_name(settings, managed)} t USING {source} s ON {same}"
        f" WHEN MATCHED AND s.{op} = 'T' THEN DELETE"
        f" WHEN MATCHED THEN UPDATE SET {', '.join(f't.{c} = {value}' for c, value in values.items())}"
        f" WHEN NOT MATCHED AND s.{op} = 'U' THEN"
        f" INSERT ({', '.join(values)}) VALUES ({', '.join(values.values())})"
    )


def table_name(settings: Settings, managed: Managed) -> str:
    return ".".join(map(quoted, (settings.lake.name, *lake.identifier(managed))))


def quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def literal(column: Column, value: int) -> str:
    """Spark SQL of a value of a bounded column, given as Iceberg counts it."""
    return _LITERALS[column.storage.iceberg].format(n=value)


@contextmanager
def quiet() -> Iterator[None]:
    """PySpark leaves its sockets to be found by the collector."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        yield


def _within(managed: Managed, bounds: Sequence[Bounds]) -> list[str]:
    """A condition on the target alone: Iceberg chooses partitions and files by it before any is opened."""
    columns = {column.name: column for column in managed.table.stored}

    def part(ranges: Bounds) -> str:
        sides = (
            f"t.{quoted(managed.lake_names[name])} BETWEEN"
            f" {literal(columns[name], least)} AND {literal(columns[name], greatest)}"
            for name, (least, greatest) in ranges.items()
        )
        return f"({' AND '.join(sides)})"

    return [f"({' OR '.join(map(part, bounds))})"] if bounds else []


@contextmanager
def stamped(spark: SparkSession, properties: Mapping[str, str]) -> Iterator[None]:
    """What is committed in this block carries the properties in its snapshot's summary."""
    for name, value in properties.items():
        spark.conf.set(f"{_PROPERTY}{name}", value)
    try:
        yield
    finally:
        for name in properties:
            spark.conf.unset(f"{_PROPERTY}{name}")


@contextmanager
def _source(
    spark: SparkSession, settings: Settings, managed: Managed, versions: Versions, operation: int
) -> Iterator[str]:
    """A view of the versions, read once."""
    from pyspark import StorageLevel

    reading = Reading(settings.dsn.get_secret_value(), versions.snapshot, versions.query, _columns(managed))
    parts = cut(versions.pages, versions.bytes, _SLICE_BYTES, spark.sparkContext.defaultParallelism)
    name = f"frostline_versions_{operation}"
    schema = _schema(managed)
    found = _here(spark, reading, parts[0], schema) if len(parts) == 1 else _frame(spark, name, reading, parts, schema)
    rows = found.persist(StorageLevel.MEMORY_AND_DISK)
    rows.createOrReplaceTempView(name)
    try:
        yield name
    finally:
        spark.catalog.dropTempView(name)
        rows.unpersist()


def _here(spark: SparkSession, reading: Reading, part: Slice, schema: Any) -> DataFrame:
    batches: list[pa.RecordBatch] = []
    slices.read(reading, part, batches.append)
    columns = pa.schema([(column.name, column.arrow) for column in reading.columns])
    return spark.createDataFrame(pa.Table.from_batches(batches, columns), schema)


def _frame(spark: SparkSession, name: str, reading: Reading, parts: Sequence[Slice], schema: Any) -> DataFrame:
    from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

    class Reader(DataSourceReader):
        def partitions(self) -> list[InputPartition]:
            return [InputPartition(part) for part in parts]

        def read(self, partition: InputPartition) -> Iterator[Any]:
            batches: list[pa.RecordBatch] = []
            slices.read(reading, partition.value, batches.append)
            yield from batches

    class Source(DataSource):
        @classmethod
        def name(cls) -> str:
            return name

        def schema(self) -> Any:
            return schema

        def reader(self, schema: Any) -> DataSourceReader:  # noqa: ARG002
            return Reader()

    spark.dataSource.register(Source)
    return spark.read.format(name).load()


def _columns(managed: Managed) -> tuple[Wire, ...]:
    """As an export reads them, but for UUIDs: those are text to Spark."""
    found = []
    for column in managed.table.stored:
        iceberg = "string" if column.storage.iceberg == "uuid" else column.storage.iceberg
        wire = "text" if column.storage.iceberg == "uuid" else column.storage.wire
        found.append(Wire(managed.lake_names[column.name], wire, writer.arrow_type(layout.iceberg_type(iceberg))))
    return (*found, Wire(_op(managed), "text", pa.string()))


def copied(column: Column) -> str:
    """Postgres SQL of what is read of a column."""
    return "{c}::text" if column.storage.iceberg == "uuid" else column.storage.copied


def _schema(managed: Managed) -> Any:
    from pyspark.sql.types import StructType

    schema = StructType()
    for column in managed.table.stored:
        iceberg = column.storage.iceberg
        schema.add(managed.lake_names[column.name], _SPARK_TYPES.get(iceberg, iceberg.replace(" ", "")))
    return schema.add(_op(managed), "string")


def _op(managed: Managed) -> str:
    taken = {name.casefold() for name in (*managed.lake_names.values(), managed.marker or "")}
    return next(name for name in (OP, *(f"{OP}_{n}" for n in range(len(taken)))) if name not in taken)
