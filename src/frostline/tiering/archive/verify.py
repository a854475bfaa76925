"""Step 4, verify: the leaf and what the gateway will answer for it are compared, by Postgres, at one snapshot."""

from __future__ import annotations

import psycopg
from psycopg.sql import SQL, Composable, Identifier

from frostline.catalog.database import Connection, connect, out_of_reach
from frostline.config import Settings
from frostline.delta import tables as delta
from frostline.errors import Differs, Interrupted, OperationError
from frostline.faults import reached
from frostline.tiering import ddl
from frostline.tiering.archive import capture
from frostline.tiering.archive.steps import Operation
from frostline.tiering.digest import Digest, differing, digest_of, exported_snapshot, first_keys, foreign_table


def verify(settings: Settings, operation: Operation) -> int:
    """Count and content hash of every column, in the heap and through the gateway; returns the number of rows.

    The foreign table exists only inside this transaction. It names the operation, whose Iceberg snapshot no reader
    sees yet, and this transaction's snapshot, so that rows changed meanwhile are in both sides or in neither.
    What the lake alone holds is remembered with the operation, for `frostline verify` later.
    """
    managed = operation.managed
    leaf: Composable = SQL("ONLY {}").format(Identifier(operation.leaf.schema, operation.leaf.name))
    with connect(settings.dsn.get_secret_value(), application="frostline verify", autocommit=False) as connection:
        snapshot = exported_snapshot(connection)
        made = Identifier("frostline", f"verify_{operation.id}")
        scope = f" operation {operation.id}{{}} snapshot {snapshot}"
        try:
            connection.execute(foreign_table(managed, made, operation.range, scope.format("")))
        except (psycopg.errors.UndefinedObject, psycopg.errors.InvalidSchemaName) as error:
            raise capture.altered(operation) from error  # a type has another name by now
        reached("verify.table")
        foreign: Composable = made
        noted = capture.noted(connection, managed) > 0
        if noted:
            # What was changed a moment ago is not in the delta yet, and will come there from the leaf.
            leaf, foreign = (delta.untouched(managed.table, managed.id, source) for source in (leaf, foreign))
        try:
            heap = digest_of(connection, managed.table, leaf)
            reached("verify.heap")
            lake = digest_of(connection, managed.table, foreign)
            if heap != lake:
                _refuse_altered(settings, operation)
                raise _mismatch(operation, heap, lake, first_keys(connection, managed, leaf, foreign))
            operation.digest = heap
            if noted or _captured(connection, operation):
                copy = Identifier("frostline", f"verify_{operation.id}_lake")
                connection.execute(foreign_table(managed, copy, operation.range, scope.format(" lake")))
                operation.digest = digest_of(connection, managed.table, copy)
        except psycopg.Error as error:
            # Who cannot be asked now may be asked later: capture and copy are kept for that.
            raise (Interrupted if out_of_reach(error) else OperationError)(
                f"{operation.leaf} could not be compared with the lake; it stays in Postgres as it was",
                detail=" ".join(str(error).split()),
                hint="is the gateway running? `frostline status` shows it, `frostline up` starts it"
                if out_of_reach(error)
                else "run the same command again",
            ) from error
        finally:
            if not connection.broken:
                connection.rollback()
    reached("verify.compared")
    return heap.rows


def _captured(connection: Connection, operation: Operation) -> bool:
    """Whether the leaf was changed since it was exported; otherwise the lake holds exactly what the leaf does."""
    versions, within = Identifier(*operation.managed.delta), ddl.within(operation.managed.table, operation.range)
    query = SQL("SELECT EXISTS (SELECT FROM {} WHERE {})").format(versions, within)
    return connection.execute(query).fetchone() == (True,)


def _refuse_altered(settings: Settings, operation: Operation) -> None:
    """Looked at as it is now: a change that came after the table was altered has passed the capture by."""
    with connect(settings.dsn.get_secret_value(), application="frostline verify") as connection:
        if capture.state(connection, operation.managed, operation.leaf) != operation.captured:
            raise capture.altered(operation)


def _mismatch(operation: Operation, heap: Digest, lake: Digest, keys: list[str]) -> Differs:
    table = operation.managed.table
    columns = differing(table.stored, heap, lake)
    return Differs(
        f"{operation.leaf} and its copy in the lake differ; the table is as it was",
        detail=f"{heap.rows} rows in Postgres, {lake.rows} in the lake; "
        f"columns that differ: {', '.join(columns) or 'none'}; "
        f"first keys ({', '.join(table.primary_key)}): {', '.join(keys) or 'none'}",
        hint="this should never happen: keep the logs and report it",
    )
