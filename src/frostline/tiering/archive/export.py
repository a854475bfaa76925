"""Step 3, export: the leaf at one exported snapshot becomes one Iceberg commit."""

from __future__ import annotations

from typing import TYPE_CHECKING

from psycopg.sql import SQL, Identifier

from frostline.catalog.database import Connection, connect
from frostline.config import Settings
from frostline.faults import reached
from frostline.lake import catalog as lake
from frostline.lake import durable
from frostline.pipeline import export as pipeline
from frostline.tiering import commits, shape
from frostline.tiering.archive.plan import check_values
from frostline.tiering.archive.steps import Operation

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_TRIES = 3


def export(connection: Connection, spark: SparkSession, settings: Settings, operation: Operation) -> lake.Snapshot:
    """Returns the operation's Iceberg snapshot, recorded with it but not yet visible to readers.

    A commit that an earlier run made for this operation and did not live to record is taken as it is.
    """
    managed = operation.managed
    ours = commits.ours(connection, managed)
    snapshot = lake.adopt(settings, managed, operation.id, ours) if operation.resumed else None
    for _ in range(_TRIES):
        if snapshot is not None:
            break
        _copy(connection, spark, settings, operation, ours)
        # A Spark that outlived its run may have committed just before: then ours stands on rows nobody wants.
        snapshot = lake.adopt(settings, managed, operation.id, ours)
        if snapshot is None and not lake.only_ours_above(settings, managed, ours):
            break
    if snapshot is None:
        raise commits.unseen(operation.id, operation.managed, "nothing was swapped")
    reached("export.flush")
    durable.flush(settings, managed)
    reached("export.flushed")
    connection.execute(
        "UPDATE frostline.operations SET snapshot_id = %s, metadata_location = %s, rows = %s, bytes = %s WHERE id = %s",
        (snapshot.id, snapshot.metadata_location, snapshot.rows, snapshot.bytes, operation.id),
    )
    reached("export.recorded")
    return snapshot


def _copy(
    connection: Connection, spark: SparkSession, settings: Settings, operation: Operation, ours: set[str]
) -> None:
    managed, leaf = operation.managed, operation.leaf
    # A run that is gone on with may have made the table and not lived to record its columns.
    if lake.ensure_table(settings, managed, ours) or operation.resumed:
        managed = operation.managed = shape.followed(connection, settings, managed)
    reached("export.table")
    with connect(settings.dsn.get_secret_value(), application="frostline export", autocommit=False) as reader:
        reader.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
        source = SQL("ONLY {}").format(Identifier(leaf.schema, leaf.name))
        # Held to the end: were the leaf rewritten meanwhile (VACUUM FULL), a task would find other rows in its pages.
        reader.execute(SQL("LOCK TABLE {} IN ACCESS SHARE MODE").format(source))
        row = reader.execute(
            "SELECT pg_export_snapshot(), pg_relation_size(t.oid) / current_setting('block_size')::int,"
            " pg_table_size(t.oid) FROM pg_class t WHERE t.oid = %s",
            (leaf.oid,),
        ).fetchone()
        assert row is not None
        check_values(reader, managed, source, leaf.range)
        # Rows of `synchronous_commit = off` transactions that the snapshot sees must not outlive a crash only in the
        # lake: a synchronous commit after it flushes theirs too.
        connection.execute("UPDATE frostline.operations SET rows = NULL WHERE id = %s", (operation.id,))
        reached("export.snapshot")
        pipeline.export(spark, settings, managed, pipeline.Source(leaf, *row), operation.id)
        reached("export.commit")
        reader.rollback()
