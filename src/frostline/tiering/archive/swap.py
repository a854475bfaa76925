"""Steps 5 and 6, swap and drop: the foreign partition takes the leaf's place and name in one short transaction."""

from __future__ import annotations

from psycopg.sql import SQL, Composed, Identifier

from frostline.catalog import describe, queries
from frostline.catalog.database import Connection
from frostline.catalog.registry import Managed
from frostline.delta import tables as delta
from frostline.lake.catalog import Snapshot
from frostline.model.bounds import Range
from frostline.model.tables import Leaf
from frostline.tiering import ddl
from frostline.tiering.archive import capture
from frostline.tiering.archive.plan import check_values
from frostline.tiering.archive.steps import Operation
from frostline.tiering.locks import with_short_locks

_GONE = "!frostline archived"
IDENTITY_IN_PARTITIONS = 170000


def swap(connection: Connection, operation: Operation, snapshot: Snapshot) -> None:
    """Readers see the leaf before and the lake after; seam and snapshot move in the same transaction."""

    def work() -> None:
        # All locks first, from the top down as every statement on the table takes them.
        names = (_parent(operation), Identifier(*operation.managed.hot), _leaf(operation))
        connection.execute(SQL("LOCK TABLE ONLY {}, ONLY {}, ONLY {} IN ACCESS EXCLUSIVE MODE").format(*names))
        for statement in _statements(operation, _to_move(connection, operation)):
            connection.execute(statement)
        # The leaf is locked: what is captured now is all there will be, and the lake must be able to hold it.
        check_values(connection, operation.managed, SQL("{}").format(Identifier(*operation.managed.delta)))
        _copy_grants(connection, operation)
        _record(connection, operation, snapshot)

    with_short_locks(connection, work, f"swapping {operation.leaf}")


def drop(connection: Connection, operation: Operation) -> None:
    parked = Identifier(delta.SCHEMA, operation.parked)
    with_short_locks(
        connection, lambda: connection.execute(SQL("DROP TABLE {}").format(parked)), f"dropping {operation.leaf}"
    )


def drop_leftovers(connection: Connection, managed: Managed) -> list[str]:
    """Leaves that a run which died after its swap left behind, detached."""
    rows = queries.rows(connection, "parked", table=managed.id)
    for name, id_, leaf in rows:
        statement = SQL("DROP TABLE {}").format(Identifier(delta.SCHEMA, name))
        with_short_locks(connection, lambda s=statement: connection.execute(s), f"dropping {leaf}")  # type: ignore[misc]
        connection.execute(
            "UPDATE frostline.operations SET state = 'done', error = NULL, finished_at = clock_timestamp()"
            " WHERE id = %s",
            (id_,),
        )
    return [leaf for _, _, leaf in rows]


def _to_move(connection: Connection, operation: Operation) -> list[Leaf]:
    """The leaves that must leave the hot partition while it is re-attached.

    Since 17 partitions share the parent's identity. ATTACH gives it to the hot partition but not to leaves under it,
    and the next DETACH then fails on the leaves: "column ... is not an identity column".
    """
    table = operation.managed.table
    if connection.info.server_version < IDENTITY_IN_PARTITIONS or not any(column.identity for column in table.columns):
        return []
    # Read again: someone may have created a partition since the run began.
    return [leaf for leaf in describe.leaves(connection, operation.managed.hot_oid) if leaf.oid != operation.leaf.oid]


def _statements(operation: Operation, moved: list[Leaf]) -> list[Composed]:
    managed, leaf = operation.managed, operation.leaf
    table = managed.table
    parent, hot, old = _parent(operation), Identifier(*managed.hot), _leaf(operation)
    parked = Identifier(delta.SCHEMA, operation.parked)
    return [
        SQL("ALTER TABLE {} DETACH PARTITION {}").format(hot, old),
        *(ddl.detach(hot, other) for other in moved),
        SQL("ALTER TABLE {} DETACH PARTITION {}").format(parent, hot),
        *capture.drop_triggers(leaf),
        SQL("ALTER TABLE {} RENAME TO {}").format(old, Identifier(operation.parked)),
        SQL("ALTER TABLE {} SET SCHEMA {}").format(Identifier(leaf.schema, operation.parked), Identifier(delta.SCHEMA)),
        # A prepared statement knows the leaf by its OID and would go on writing into it.
        SQL(
            "CREATE TRIGGER {} BEFORE INSERT OR UPDATE OR DELETE OR TRUNCATE ON {}"
            " FOR EACH STATEMENT EXECUTE FUNCTION {}()"
        ).format(Identifier(_GONE), parked, Identifier(delta.SCHEMA, delta.archived_name(managed.id))),
        SQL("ALTER TABLE {} ENABLE ALWAYS TRIGGER {}").format(parked, Identifier(_GONE)),
        *ddl.foreign_partition(table, (leaf.schema, leaf.name), managed.server_schema, operation.range),
        SQL("ALTER TABLE {} ATTACH PARTITION {} {}").format(
            parent, hot, ddl.for_values(Range(operation.range.upper, None))
        ),
        *(ddl.attach(hot, other) for other in moved),
    ]


def _parent(operation: Operation) -> Identifier:
    return Identifier(operation.managed.table.schema, operation.managed.table.name)


def _leaf(operation: Operation) -> Identifier:
    return Identifier(operation.leaf.schema, operation.leaf.name)


def _copy_grants(connection: Connection, operation: Operation) -> None:
    """Grants on the partition itself go to the foreign table that takes its name."""
    foreign = _leaf(operation)
    for role, privilege, grantable in queries.rows(connection, "grants", oid=operation.leaf.oid):
        option = " WITH GRANT OPTION" if grantable else ""
        connection.execute(SQL(f"GRANT {privilege} ON {{}} TO {role}{option}").format(foreign))


def _record(connection: Connection, operation: Operation, snapshot: Snapshot) -> None:
    upper = operation.range.upper
    assert upper is not None
    connection.execute(
        "UPDATE frostline.tables SET seam = %s, snapshot_id = %s, metadata_location = %s WHERE id = %s",
        (upper.text, snapshot.id, snapshot.metadata_location, operation.managed.id),
    )
    connection.execute(
        "INSERT INTO frostline.periods (table_id, lower, upper, foreign_table, rows, bytes, files, operation_id)"
        " VALUES (%s, %s, %s, %s::regclass, %s, %s, %s, %s)",
        (
            operation.managed.id,
            operation.range.lower.text if operation.range.lower else None,
            upper.text,
            _leaf(operation).as_string(connection),
            snapshot.rows,
            snapshot.bytes,
            snapshot.files,
            operation.id,
        ),
    )
