"""What the planner knows of a leaf goes over to the foreign partition that takes its place.

The leaf's own statistics describe exactly the rows that are now in the lake. Since Postgres 18 they can be handed over;
before, ANALYZE asks the gateway for a sample (16, 17) or for the rows (15). The table's own statistics, over all its
partitions, stay: archiving changes no row. `use_remote_estimate` is never set: planning would call the gateway.
"""

from __future__ import annotations

import logging

import psycopg
from psycopg.sql import SQL, Identifier

from frostline.catalog import queries
from frostline.catalog.database import Connection
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


def resize(connection: Connection, table: int) -> None:
    """The size of foreign partitions whose rows have changed by more than a tenth since the planner was told."""
    for schema, name, rows, size in queries.rows(connection, "resized_periods", table=table):
        if connection.info.server_version >= RESTORABLE:
            queries.row(connection, "copy_size", schema=schema, name=name, pages=-(-size // _BLOCK), rows=rows)
        else:
            connection.execute(_ANALYZE.format(Identifier(schema, name)))
