"""What the planner knows of a leaf goes over to the foreign partition that takes its place.

The leaf's own statistics describe exactly the rows that are now in the lake. Since Postgres 18 they can be handed over;
before, ANALYZE asks the gateway for a sample (16, 17) or for the rows (15). The table's own statistics, over all its
partitions, stay: archiving changes no row. Later changes are counted where they are recorded, and once they are many
ANALYZE takes the statistics anew. `use_remote_estimate` is never set: planning would call the gateway.
"""

from __future__ import annotations

import logging

import psycopg
from psycopg.sql import SQL, Identifier

from frostline.catalog import queries
from frostline.catalog.database import Connection
from frostline.catalog.registry import Managed
from frostline.delta import tables as delta
from frostline.tiering.archive.steps import Operation

log = logging.getLogger(__name__)

RESTORABLE = 180000
_BLOCK = 8192
_ANALYZE = SQL("ANALYZE {}")


def carry_over(connection: Connection, operation: Operation) -> None:
    """Between swap and drop: the leaf is detached and still there. Without statistics plans suffer, rows do not."""
    leaf = operation.leaf
    try:
        if connection.info.server_version >= RESTORABLE:
            # Its last ANALYZE may be long ago, or never was.
            connection.execute(_ANALYZE.format(Identifier(delta.SCHEMA, operation.parked)))
            queries.rows(
                connection,
                "copy_column_statistics",
                schema=leaf.schema,
                name=leaf.name,
                from_schema=delta.SCHEMA,
                from_name=operation.parked,
            )
        measure(connection, operation.managed.id)
    except psycopg.Error as error:
        log.warning("the planner has no statistics of %s: %s; ANALYZE it", leaf, str(error).strip())


def measure(connection: Connection, table: int) -> None:
    """The size of every foreign partition that has none yet; the one below the oldest period is among them."""
    for schema, name, rows, size in queries.rows(connection, "unmeasured_periods", table=table):
        if connection.info.server_version >= RESTORABLE:
            pages = -(-size // _BLOCK)
            queries.row(connection, "copy_size", schema=schema, name=name, pages=pages, rows=rows)
        else:
            connection.execute(_ANALYZE.format(Identifier(schema, name)))


def measured(connection: Connection, managed: Managed) -> None:
    """The same of a partition that was made anew, where nothing else depends on it."""
    try:
        measure(connection, managed.id)
    except psycopg.Error as error:
        log.warning("the planner has no statistics of a period of %s: %s", managed.table, str(error).strip())


def refresh(connection: Connection, managed: Managed) -> None:
    """After a fold, and after files were added: the partitions of which much has changed since they were looked at.

    ANALYZE is what looks: sizes could be had from the registry, but no list of values or share of NULLs. It is asked
    for only where a tenth of a partition has changed, which cost more than its sample does. Its lock is in the way of
    no reader or writer. Where it fails the count of changes stays, and the next fold tries again.
    """
    for schema, name, upper, changed in queries.rows(connection, "outdated_periods", table=managed.id):
        try:
            connection.execute(_ANALYZE.format(Identifier(schema, name)))
        except psycopg.Error as error:
            log.warning("the planner knows %s.%s as it was: %s; ANALYZE it", schema, name, str(error).strip())
            continue
        connection.execute(
            "UPDATE frostline.periods SET changed = changed - %s WHERE table_id = %s AND upper = %s",
            (changed, managed.id, upper),
        )
