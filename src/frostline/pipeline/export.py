"""Copying one leaf into Iceberg: every task reads its own pages at one exported snapshot and writes its own files."""

from __future__ import annotations

import math
import re
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from psycopg.sql import Identifier

from frostline.catalog.registry import Managed
from frostline.config import Settings
from frostline.errors import FrostlineError, OperationError
from frostline.faults import InjectedFault, reached
from frostline.lake import catalog as lake
from frostline.lake import layout, storage, writer
from frostline.lake.decode import Wire
from frostline.lake.layout import OPERATION, PERIOD
from frostline.model.tables import Leaf
from frostline.pipeline import slices
from frostline.pipeline.session import told_plainly
from frostline.pipeline.slices import Job, Slice, TaskFailed

if TYPE_CHECKING:
    from pyiceberg.schema import Schema
    from pyspark.sql import SparkSession

# Less than this is not worth a task, and a file, of its own.
_LEAST_BYTES = 32_000_000


@dataclass(frozen=True)
class Source:
    """A leaf as one snapshot sees it."""

    leaf: Leaf
    snapshot: str  # pg_export_snapshot() of a transaction that stays open
    pages: int
    bytes: int  # with what is kept out of line


@told_plainly()
def export(spark: SparkSession, settings: Settings, managed: Managed, source: Source, operation: int) -> None:
    """Append the leaf to the Iceberg table in one commit that carries the operation's id."""
    try:
        table = lake.load(settings, managed)
        file_size = managed.options.file_size or settings.lake.file_size
        job = Job(
            dsn=settings.dsn.get_secret_value(),
            snapshot=source.snapshot,
            query=_query(managed, source.leaf, table.schema()),
            columns=_columns(managed, table.schema()),
            target=writer.target(table, layout.looked_up(managed), file_size, f"operation-{operation}"),
        )
        parts = cut(source.pages, source.bytes, file_size, spark.sparkContext.defaultParallelism)
        files = _run(spark, job, parts, operation)
        reached("export.written")
        lake.append(settings, managed, table.spec(), files, {OPERATION: str(operation), PERIOD: str(source.leaf.range)})
    except (FrostlineError, InjectedFault):
        raise
    except Exception as error:
        raise OperationError(
            f"exporting {source.leaf} to the lake failed; the table is as it was",
            detail=storage.of(settings).said(cause(error))[0],
            hint=f"Spark's own words are in {settings.local.dir / 'logs' / 'spark.log'}; run the same command again",
        ) from error


def _run(spark: SparkSession, job: Job, parts: Sequence[Slice], operation: int) -> list[writer.Written]:
    context, group = spark.sparkContext, f"frostline operation {operation}"
    context.setJobGroup(group, group, interruptOnCancel=True)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ResourceWarning)  # PySpark leaves its socket to be found by the collector
            found = context.parallelize(parts, len(parts)).map(partial(slices.copy, job)).collect()
    except BaseException:
        context.cancelJobGroup(group)  # tasks that still run would write files for nothing
        raise
    return [file for files in found for file in files]


def _query(managed: Managed, leaf: Leaf, schema: Schema) -> str:
    values = [
        f"{column.storage.copied.format(c=_identifier(column.name))} AS c{column.number}"
        if column is not None
        else f"{managed.table.last_number}::int AS c0"
        for _, column in layout.in_order(managed, schema)
    ]
    return f"SELECT {', '.join(values)} FROM ONLY {_identifier(leaf.schema, leaf.name)}"


def _columns(managed: Managed, schema: Schema) -> tuple[Wire, ...]:
    return tuple(
        Wire(field.name, column.storage.wire if column is not None else "int4", writer.arrow_type(field.field_type))
        for field, column in layout.in_order(managed, schema)
    )


def cut(pages: int, size: int, part_bytes: int, at_once: int) -> list[Slice]:
    """Page ranges that cover a heap whatever was added to it since: the last has no end.

    Each is about one part's worth; a heap of fewer parts than Spark runs tasks is cut further, though not too far.
    """
    count = max(math.ceil(size / part_bytes), min(at_once, size // _LEAST_BYTES), 1)
    starts = list(range(0, max(pages, 1), max(math.ceil(pages / count), 1)))
    return [Slice(start, end) for start, end in zip(starts, [*starts[1:], None], strict=True)]


def _identifier(*names: str) -> str:
    return Identifier(*names).as_string(None)


def cause(error: Exception) -> str:
    """The innermost reason of a Spark failure, one line."""
    text = str(error)
    if task := re.search(rf"{TaskFailed.__name__}: (.+)", text):
        return task[1]
    told = [line for line in text.splitlines() if not line.strip().startswith("Suppressed:")]  # the same once more
    lines = [line for line in told if "ERROR:" in line or "Caused by" in line or "Exception:" in line]
    return (lines or text.splitlines() or [type(error).__name__])[-1].strip()
