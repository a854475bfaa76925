"""Step 3, export: the leaf at one exported snapshot becomes one Iceberg commit."""

from __future__ import annotations

from typing import TYPE_CHECKING

from psycopg.sql import SQL, Identifier

from frostline.catalog import queries
from frostline.catalog.database import Connection, connect
from frostline.config import Settings
from frostline.errors import UnknownOutcome
from frostline.lake import catalog as lake
from frostline.lake import durable
from frostline.pipeline import export as pipeline
from frostline.tiering.archive.plan import check_values
from frostline.tiering.archive.steps import Operation

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def export(connection: Connection, spark: SparkSession, settings: Settings, operation: Operation) -> lake.Snapshot:
    """Returns the new Iceberg snapshot, recorded with the operation but not yet visible to readers."""
    managed, leaf = operation.managed, operation.leaf
    operations = {id_ for (id_,) in queries.rows(connection, "operations", table=managed.id)}
    lake.ensure_table(settings, managed, operations)
    with connect(settings.dsn.get_secret_value(), application="frostline export", autocommit=False) as reader:
        reader.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
        row = reader.execute(
            "SELECT pg_export_snapshot(), pg_relation_size(%s::regclass) / 8192", (leaf.oid,)
        ).fetchone()
        assert row is not None
        check_values(reader, managed, SQL("ONLY {}").format(Identifier(leaf.schema, leaf.name)))
        # Rows of `synchronous_commit = off` transactions that the snapshot sees must not outlive a crash only in the
        # lake: a synchronous commit after it flushes theirs too.
        connection.execute("SELECT set_config('synchronous_commit', 'on', false)")
        connection.execute("UPDATE frostline.operations SET rows = NULL WHERE id = %s", (operation.id,))
        pipeline.export(spark, settings, managed, pipeline.Source(leaf, row[0], row[1]), operation.id)
        reader.rollback()
    snapshot = lake.snapshot_of(settings, managed, operation.id) or _nothing(operation)
    durable.flush(settings, managed)
    connection.execute(
        "UPDATE frostline.operations SET snapshot_id = %s, metadata_location = %s, rows = %s, bytes = %s WHERE id = %s",
        (snapshot.id, snapshot.metadata_location, snapshot.rows, snapshot.bytes, operation.id),
    )
    return snapshot


def _nothing(operation: Operation) -> lake.Snapshot:
    raise UnknownOutcome(
        f"the lake shows no commit of operation {operation.id} on {operation.managed.table}; nothing was swapped",
        hint=f"does another program write to {'.'.join(lake.identifier(operation.managed))}? run the command again",
    )
