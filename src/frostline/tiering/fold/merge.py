"""Steps 1 and 2, versions and merge: what one snapshot sees in the delta becomes one Iceberg commit."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from psycopg.sql import SQL, Composable, Identifier
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.transforms import DayTransform, HourTransform, MonthTransform, TruncateTransform, YearTransform

from frostline.catalog import registry
from frostline.catalog.database import Connection, connect
from frostline.catalog.registry import Managed
from frostline.config import Settings
from frostline.delta import fold as delta
from frostline.errors import Interrupted
from frostline.faults import reached
from frostline.lake import durable, layout, merging
from frostline.lake.merging import Merged, Others
from frostline.model.tables import Column
from frostline.pipeline import keys
from frostline.pipeline import merge as pipeline
from frostline.pipeline.merge import Bounds, Conflict, Versions
from frostline.tiering import commits
from frostline.tiering.archive import steps
from frostline.tiering.archive.plan import check_values
from frostline.tiering.commits import Operation

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_TRIES = 5
_MOST_PARTS = 100  # partitions told apart in the MERGE's condition
_UNITS = {YearTransform: "year", MonthTransform: "month", DayTransform: "day", HourTransform: "hour"}


@contextmanager
def snapshot(connection: Connection, settings: Settings, operation: Operation) -> Iterator[Versions]:
    """Step 1: fix which versions are folded, and note them with the operation.

    The note is a synchronous commit after the snapshot: versions of `synchronous_commit = off` transactions that the
    snapshot sees are flushed with it, and cannot outlive a crash only in the lake.
    """
    managed = operation.managed
    with connect(settings.dsn.get_secret_value(), application="frostline fold", autocommit=False) as reader:
        with steps.step(connection, operation, 1, "versions") as step:
            reader.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
            source = Identifier(*managed.delta)
            # Held to the end: were the delta rewritten meanwhile (VACUUM FULL), a task would find other rows.
            reader.execute(SQL("LOCK TABLE {} IN ACCESS SHARE MODE").format(source))
            # Nor does it follow an altered table from here on; what is to be merged has the columns we know.
            if registry.get_by_id(connection, managed.id).followed != managed.followed:
                raise Interrupted(
                    f"{managed.table} was altered meanwhile; nothing was folded", hint="run the same command again"
                )
            # A change of such a row would be merged into files it is not in.
            late = reader.execute("SELECT FROM frostline.staged_files WHERE table_id = %s LIMIT 1", (managed.id,))
            if late.fetchone() is not None:
                raise Interrupted(
                    f"many rows were added to {managed.table} meanwhile; nothing was folded",
                    hint="run the same command again",
                )
            row: Any = reader.execute(
                "SELECT pg_export_snapshot(), pg_relation_size(t.oid) / current_setting('block_size')::int,"
                " pg_table_size(t.oid) FROM pg_class t WHERE t.oid = %s",
                (managed.delta_oid,),
            ).fetchone()
            reached("versions.snapshot")
            cold = SQL("(SELECT d.* FROM {} d WHERE {}) v").format(source, delta.cold(managed))
            check_values(reader, managed, cold)
            with connection.transaction():
                connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
                connection.execute(SQL("SET TRANSACTION SNAPSHOT {}").format(row[0]))
                step.rows = delta.note(connection, managed, operation.id)
            bounds = _bounds(reader, managed, merging.spec(settings, managed))
            versions = Versions(row[0], _query(managed), row[1], row[2], bounds)
        yield versions
        reader.rollback()


def merge(
    connection: Connection, settings: Settings, operation: Operation, versions: Versions, spark: SparkSession
) -> Merged:
    """Step 2: one commit on top of the registry's snapshot, and of whatever else can be merged."""
    managed = operation.managed
    ours = commits.ours(connection, managed)
    properties = layout.merge_properties(managed, managed.options.file_size or settings.lake.file_size)
    said = ""
    for _ in range(_TRIES):
        others = merging.ready(settings, managed, ours, properties, commits.noted(connection, managed))
        examine(spark, settings, managed, others)
        reached("merge.ready")
        try:
            pipeline.merge(spark, settings, managed, versions, operation.id)
        except Conflict as conflict:
            said = str(conflict)
            continue  # on top of what the other has committed
        reached("merge.commit")
        made = merging.found(settings, managed, operation.id, ours)
        if made is None:
            raise commits.unseen(operation.id, managed, "the delta is as it was")
        if made.others.snapshots - others.snapshots:
            examine(spark, settings, managed, made.others, made.id)
        return recorded(connection, settings, managed, operation.id, made)
    raise Interrupted(
        f"{managed.table} was not folded: other programs commit to its Iceberg table all the time; nothing was changed",
        detail=said,
        hint="run the same command again when they pause",
    )


def recorded(connection: Connection, settings: Settings, managed: Managed, operation: int, made: Merged) -> Merged:
    """The snapshot on the disk, and in the operation's row."""
    reached("merge.flush")
    durable.flush(settings, managed, made.id)
    connection.execute(
        "UPDATE frostline.operations SET snapshot_id = %s, metadata_location = %s, rows = %s, bytes = %s WHERE id = %s",
        (made.id, made.metadata_location, made.count("added-records"), made.count("added-files-size"), operation),
    )
    reached("merge.recorded")
    return made


def examine(
    spark: SparkSession, settings: Settings, managed: Managed, others: Others, snapshot_id: int | None = None
) -> None:
    """What other engines have added holds no key twice."""
    if others.added:
        found = keys.doubled(spark, settings, managed, others.added, snapshot_id)
        if found:
            raise merging.doubled(managed, found)


def _query(managed: Managed) -> str:
    def value(column: Column, form: str) -> Composable:
        # The delta has a wider type.
        return SQL(form.format(c=f"({Identifier(column.name).as_string(None)}::{column.base_type})"))

    columns = [
        SQL("{} AS {}").format(value(c, pipeline.copied(c)), Identifier(f"c{c.number}")) for c in managed.table.stored
    ]
    return delta.newest(managed, [*columns, SQL("_op::text")]).as_string(None)


def _bounds(reader: Connection, managed: Managed, spec: PartitionSpec) -> list[Bounds]:
    """Of the versions in each partition of the Iceberg table."""
    by_name = {column.name: column for column in managed.table.columns}
    first = [managed.table.key, *(name for name in managed.table.primary_key if name != managed.table.key)]
    columns = [by_name[name] for name in first if pipeline.bounded(by_name[name])]
    found = delta.bounds(reader, managed, _partition(managed, spec), columns)
    if len(found) > _MOST_PARTS:
        found = delta.bounds(reader, managed, SQL("true"), columns)
    return [dict(zip((column.name for column in columns), sides, strict=True)) for sides in found]


def _partition(managed: Managed, spec: PartitionSpec) -> Composable:
    """Postgres SQL of what tells partitions apart; where others have changed how the table is cut, nothing does."""
    key = Identifier(managed.table.key)
    transform = spec.fields[0].transform if len(spec.fields) == 1 else None
    if isinstance(transform, TruncateTransform):
        return SQL("floor({}::numeric / {})").format(key, transform.width)
    unit = _UNITS.get(type(transform))  # type: ignore[arg-type]
    if unit is None:
        return SQL("true")
    return SQL("date_trunc({}, {})").format(unit, key)  # our sessions are in UTC, as Iceberg is
