"""Step 4, verify: the leaf and what the gateway will answer for it are compared, by Postgres, at one snapshot."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import psycopg
from psycopg.sql import SQL, Composable, Composed, Identifier, Literal

from frostline.catalog.database import connect
from frostline.catalog.names import SERVER_NAME
from frostline.config import Settings
from frostline.errors import Interrupted, OperationError
from frostline.faults import reached
from frostline.tiering.archive.steps import Operation

Digest = dict[str, tuple[int, Decimal | None]]
_SHOWN_KEYS = 5
_COLUMNS_AT_ONCE = 500  # a select list ends at 1664


def verify(settings: Settings, operation: Operation) -> int:
    """Count and content hash of every column, in the heap and through the gateway; returns the number of rows.

    The foreign table exists only inside this transaction. It names the operation, whose Iceberg snapshot no reader
    sees yet, and this transaction's snapshot, so that rows changed meanwhile are in both sides or in neither.
    """
    leaf = Identifier(operation.leaf.schema, operation.leaf.name)
    with connect(settings.dsn.get_secret_value(), application="frostline verify", autocommit=False) as connection:
        connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        row = connection.execute("SELECT pg_export_snapshot()").fetchone()
        assert row is not None
        foreign = Identifier("frostline", f"verify_{operation.id}")
        connection.execute(_foreign_table(operation, foreign, row[0]))
        reached("verify.table")
        try:
            heap = _digest(connection, operation, SQL("ONLY ") + leaf)
            reached("verify.heap")
            lake = _digest(connection, operation, foreign)
            if heap != lake:
                raise _mismatch(operation, heap, lake, _first_keys(connection, operation, SQL("ONLY ") + leaf, foreign))
        except psycopg.Error as error:
            raise (Interrupted if _out_of_reach(error) else OperationError)(
                f"{operation.leaf} could not be compared with the lake; it stays in Postgres as it was",
                detail=" ".join(str(error).split()),
                hint="is the gateway running? `frostline status` shows it, `frostline up` starts it"
                if _out_of_reach(error)
                else "run the same command again",
            ) from error
        finally:
            if not connection.broken:
                connection.rollback()
    reached("verify.compared")
    return heap["*"][0]


def _out_of_reach(error: psycopg.Error) -> bool:
    """Who cannot be asked now may be asked later: capture and copy are kept for that."""
    return isinstance(error, psycopg.OperationalError) and (error.sqlstate or "08")[:2] in ("08", "57", "HV")


def _foreign_table(operation: Operation, name: Identifier, snapshot: str) -> Composed:
    managed = operation.managed
    columns = SQL(", ").join(SQL("{} {}").format(Identifier(c.name), SQL(c.type)) for c in managed.table.stored)
    return SQL("CREATE FOREIGN TABLE {} ({}) SERVER {} OPTIONS (schema_name {}, table_name {})").format(
        name,
        columns,
        Identifier(SERVER_NAME),
        Literal(f"{managed.server_schema} operation {operation.id} snapshot {snapshot}"),
        Literal(str(operation.range)),
    )


def _digest(connection: psycopg.Connection[tuple[object, ...]], operation: Operation, source: Composable) -> Digest:
    """Per column: how many values, and a sum of hashes of their text that does not depend on the order."""
    names = [column.name for column in operation.managed.table.stored]
    digest: Digest = {}
    for start in range(0, len(names), _COLUMNS_AT_ONCE):
        some = names[start : start + _COLUMNS_AT_ONCE]
        # Hashed as C: a column's own collation may call different texts equal, and then they hash alike.
        columns = SQL(", ").join(
            SQL('count({c}), sum(hashtextextended(frostline.output({c}) COLLATE "C", 0))').format(c=Identifier(n))
            for n in some
        )
        row: Any = connection.execute(SQL("SELECT count(*), {} FROM {}").format(columns, source)).fetchone()
        digest["*"] = (row[0], None)
        digest |= {name: (row[1 + 2 * position], row[2 + 2 * position]) for position, name in enumerate(some)}
    return digest


def _first_keys(
    connection: psycopg.Connection[tuple[object, ...]], operation: Operation, leaf: Composable, foreign: Composable
) -> list[str]:
    """Keys of the first rows that stand on one side only, compared as text so that no type needs an equality."""
    columns = SQL(", ").join(
        SQL('frostline.output({}) COLLATE "C"').format(Identifier(c.name)) for c in operation.managed.table.stored
    )
    key = SQL(", ").join(Identifier(name) for name in operation.managed.table.primary_key)
    one = SQL("SELECT ROW({})::text AS key, {} FROM {}")
    heap, lake = one.format(key, columns, leaf), one.format(key, columns, foreign)
    differing = SQL("(({h}) EXCEPT ALL ({l})) UNION ALL (({l}) EXCEPT ALL ({h}))").format(h=heap, l=lake)
    query = SQL("SELECT DISTINCT key FROM ({}) d ORDER BY key LIMIT {}").format(differing, Literal(_SHOWN_KEYS))
    return [str(found) for (found,) in connection.execute(query)]


def _mismatch(operation: Operation, heap: Digest, lake: Digest, keys: list[str]) -> OperationError:
    columns = [name for name in heap if heap[name] != lake[name] and name != "*"]
    return OperationError(
        f"{operation.leaf} and its copy in the lake differ; the table is as it was",
        detail=f"{heap['*'][0]} rows in Postgres, {lake['*'][0]} in the lake; "
        f"columns that differ: {', '.join(columns) or 'none'}; "
        f"first keys ({', '.join(operation.managed.table.primary_key)}): {', '.join(keys) or 'none'}",
        hint="this should never happen: keep the logs and report it",
        sqlstate="XX001",
    )
