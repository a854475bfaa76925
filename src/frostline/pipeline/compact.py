"""Files of the Iceberg table rewritten by Spark: the same rows in fewer, larger files, sorted together or each alone.

Every commit carries the operation's id. What folds set in the table's properties holds here too, so that files have the
size, the row groups, the bounds and the bloom filters that readers rely on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from frostline.catalog.registry import Managed
from frostline.config import Settings
from frostline.errors import FrostlineError, OperationError
from frostline.faults import InjectedFault, reached
from frostline.lake import layout, storage
from frostline.lake.condition import Crowded, Work
from frostline.pipeline.export import cause
from frostline.pipeline.merge import literal, quiet, quoted, table_name
from frostline.pipeline.session import told_plainly

if TYPE_CHECKING:
    from pyiceberg.types import NestedField
    from pyspark.sql import SparkSession

# New sequence numbers: every delete that was there is older than the files that have it in them, and can go.
_OPTIONS = {"use-starting-sequence-number": "false", "partial-progress.enabled": "false"}


@told_plainly()
def rewrite(
    spark: SparkSession,
    settings: Settings,
    managed: Managed,
    operation: int,
    work: Work,
    committed: Callable[[], None],
) -> None:
    """Whole partitions that have deletes, the small files of others, and the manifests of all; or every file.

    `committed` is called after each commit that others may follow.
    """
    context, group = spark.sparkContext, f"frostline operation {operation}"
    context.setJobGroup(group, group, interruptOnCancel=True)
    try:
        with quiet(), _active(spark):
            if work.deleted or work.everything:
                parts = None if work.everything else work.deleted
                _files(spark, settings, managed, operation, parts, {"rewrite-all": "true"})
                committed()
                reached("rewrite.deletes")
                _run(_actions(spark).removeDanglingDeleteFiles(_table(spark, settings, managed)), operation)
                committed()
                reached("rewrite.dangling")
            if work.small:
                _files(spark, settings, managed, operation, work.small, {"min-input-files": str(work.least)})
                committed()
                reached("rewrite.small")
            if work.manifests:
                _run(_actions(spark).rewriteManifests(_table(spark, settings, managed)), operation)
    except (FrostlineError, InjectedFault):
        raise
    except Exception as error:
        raise OperationError(
            f"rewriting files of {managed.table} in the lake failed; readers go on with what they had",
            detail=storage.of(settings).said(cause(error))[0],
            hint=f"Spark's own words are in {settings.local.dir / 'logs' / 'spark.log'}; run the same command again",
        ) from error
    finally:
        context.cancelJobGroup(group)  # nothing of it goes on for nobody


@told_plainly()
def sums(
    spark: SparkSession,
    settings: Settings,
    managed: Managed,
    snapshot: tuple[str, int],
    fields: Sequence[tuple[NestedField, NestedField]],
    parts: Sequence[Crowded],
) -> tuple[int, int]:
    """How many rows a snapshot holds of these partitions (none named: of all), and the sum of their hashes.

    `snapshot`: the metadata file that describes it, and its id. `fields`: its own columns, each with what its values
    are compared as.
    """
    key, key_id = managed.table.key_column, managed.field_ids[managed.table.key]
    name = next(quoted(own.name) for own, _ in fields if own.field_id == key_id)
    within = " OR ".join(
        f"{name} BETWEEN {literal(key, part.least)} AND {literal(key, part.greatest)}" for part in parts
    )
    values = [_value(own, wanted) for own, wanted in fields]
    # A NULL leaves a hash as it is, so where they are is hashed too.
    hashed = f"xxhash64({', '.join(f'{value}, isnull({value})' for value in values)})"
    with quiet(), _active(spark), _described(spark, settings, managed, snapshot) as table:
        rows = spark.sql(
            f"SELECT count(*), coalesce(sum(CAST({hashed} AS DECIMAL(20, 0))), 0) FROM {table} WHERE {within or 'true'}"
        ).collect()
    return int(rows[0][0]), int(rows[0][1])


@contextmanager
def _described(spark: SparkSession, settings: Settings, managed: Managed, snapshot: tuple[str, int]) -> Iterator[str]:
    """A view of a snapshot as a metadata file describes it: the catalog may have forgotten it (lake/lineage.py)."""
    from pyspark.sql import DataFrame

    jvm: Any = spark._jvm
    iceberg, metadata, id_ = jvm.org.apache.iceberg, *snapshot
    operations = iceberg.StaticTableOperations(metadata, _table(spark, settings, managed).io())
    table = iceberg.spark.source.SparkTable.create(
        iceberg.BaseTable(operations, table_name(settings, managed)), iceberg.spark.TimeTravel.version(str(id_))
    )
    nowhere = jvm.scala.Option.empty()
    relation = jvm.org.apache.spark.sql.execution.datasources.v2.DataSourceV2Relation.create(table, nowhere, nowhere)
    rows = DataFrame(jvm.org.apache.spark.sql.classic.Dataset.ofRows(spark._jsparkSession, relation), spark)
    name = f"frostline_snapshot_{id_}"
    rows.createOrReplaceTempView(name)
    try:
        yield name
    finally:
        spark.catalog.dropTempView(name)


def _value(own: NestedField, wanted: NestedField) -> str:
    name = quoted(own.name)
    return name if own.field_type == wanted.field_type else f"CAST({name} AS {wanted.field_type})"


@contextmanager
def _active(spark: SparkSession) -> Iterator[None]:
    """Iceberg's actions look for the catalog in whichever session is active, not in the one they were given."""
    sessions: Any = spark._jvm.org.apache.spark.sql.SparkSession  # type: ignore[union-attr]
    before = sessions.getActiveSession()
    sessions.setActiveSession(spark._jsparkSession)
    try:
        yield
    finally:
        if before.isDefined():
            sessions.setActiveSession(before.get())
        else:
            sessions.clearActiveSession()


def _files(
    spark: SparkSession,
    settings: Settings,
    managed: Managed,
    operation: int,
    parts: Sequence[Crowded] | None,
    options: dict[str, str],
) -> None:
    """Those of some partitions, or all there are: these are sorted whatever the table's option says."""
    action = _actions(spark).rewriteDataFiles(_table(spark, settings, managed))
    if parts is not None:
        action = action.filter(_within(spark, managed, parts))
    for name, value in {**_OPTIONS, **options}.items():
        action = action.option(name, value)
    # Joined files are sorted too, each for itself: Iceberg does that for a table that has an order.
    joined = parts is not None and managed.options.compaction == "binpack"
    _run(action.binPack() if joined else action.sort(), operation)


def _run(action: Any, operation: int) -> None:
    action.snapshotProperty(layout.OPERATION, str(operation)).execute()


def _within(spark: SparkSession, managed: Managed, parts: Sequence[Crowded]) -> Any:
    """Iceberg's own expression: a literal is what the lake counts in."""
    expressions: Any = spark._jvm.org.apache.iceberg.expressions.Expressions  # type: ignore[union-attr]
    name = managed.lake_names[managed.table.key]
    found = expressions.alwaysFalse()
    for part in parts:
        one = getattr(expressions, "and")(
            expressions.greaterThanOrEqual(name, part.least), expressions.lessThanOrEqual(name, part.greatest)
        )
        found = getattr(expressions, "or")(found, one)
    return found


def _actions(spark: SparkSession) -> Any:
    return spark._jvm.org.apache.iceberg.spark.actions.SparkActions.get(spark._jsparkSession)  # type: ignore[union-attr]


def _table(spark: SparkSession, settings: Settings, managed: Managed) -> Any:
    name = table_name(settings, managed)
    return spark._jvm.org.apache.iceberg.spark.Spark3Util.loadIcebergTable(spark._jsparkSession, name)  # type: ignore[union-attr]
