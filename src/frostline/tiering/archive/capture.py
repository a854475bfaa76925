"""Step 2, capture: from here on every change of the leaf is also written to the delta."""

from __future__ import annotations

from dataclasses import replace

from psycopg.sql import SQL, Composed, Identifier

from frostline.catalog import queries
from frostline.catalog.database import Connection
from frostline.catalog.registry import Managed
from frostline.delta import tables as delta
from frostline.model.tables import Leaf
from frostline.tiering import ddl
from frostline.tiering.archive.steps import Operation
from frostline.tiering.locks import with_short_locks

# "!" sorts before any ordinary name, so the capture fires first.
CAPTURE, NO_TRUNCATE = "!frostline capture", "!frostline truncate"


def start(connection: Connection, operation: Operation) -> None:
    """The lock of CREATE TRIGGER waits for every writer, so no change falls between this and the export."""
    managed, leaf = operation.managed, operation.leaf

    def work() -> None:
        for statement in (
            delta.capture(managed.table, managed.id, leaf),
            *_triggers(managed, leaf),
            clear(managed, leaf),
        ):
            connection.execute(statement)
        operation.captured = state(connection, leaf)

    with_short_locks(connection, work, f"capturing changes of {leaf}")


def abandon(connection: Connection, operation: Operation) -> None:
    """Take the triggers off a leaf that stays hot."""
    found = queries.row(connection, "relation", oid=operation.leaf.oid)
    if found is None:
        return  # dropped meanwhile
    managed, leaf = operation.managed, replace(operation.leaf, schema=found[0], name=found[1])

    def work() -> None:
        for statement in (*drop_triggers(leaf), clear(managed, leaf)):
            connection.execute(statement)

    with_short_locks(connection, work, f"releasing {leaf}")


def state(connection: Connection, leaf: Leaf) -> tuple[object, ...] | None:
    """What tells that no change has passed the capture by: the leaf's OID, its file, its triggers as we left them."""
    return queries.row(connection, "state_of_leaf", schema=leaf.schema, name=leaf.name)


def drop_triggers(leaf: Leaf) -> list[Composed]:
    return [
        SQL("DROP TRIGGER IF EXISTS {} ON {}").format(Identifier(name), Identifier(leaf.schema, leaf.name))
        for name in (CAPTURE, NO_TRUNCATE)
    ]


def clear(managed: Managed, leaf: Leaf) -> Composed:
    """Forget captured rows of a leaf; what an earlier, broken run left must not outlive it."""
    assert leaf.range is not None
    return SQL("DELETE FROM {} WHERE {}").format(Identifier(*managed.delta), ddl.within(managed.table, leaf.range))


def _triggers(managed: Managed, leaf: Leaf) -> list[Composed]:
    on = Identifier(leaf.schema, leaf.name)
    made = [
        SQL("CREATE TRIGGER {} AFTER INSERT OR UPDATE OR DELETE ON {} FOR EACH ROW EXECUTE FUNCTION {}()").format(
            Identifier(CAPTURE), on, Identifier(delta.SCHEMA, delta.capture_name(managed.id))
        ),
        SQL("CREATE TRIGGER {} BEFORE TRUNCATE ON {} FOR EACH STATEMENT EXECUTE FUNCTION {}()").format(
            Identifier(NO_TRUNCATE), on, Identifier(delta.SCHEMA, delta.no_truncate_name(managed.id))
        ),
    ]
    # ALWAYS: logical replication and session_replication_role = replica pass ordinary triggers by.
    always = [SQL("ALTER TABLE {} ENABLE ALWAYS TRIGGER {}").format(on, Identifier(n)) for n in (CAPTURE, NO_TRUNCATE)]
    return [*drop_triggers(leaf), *made, *always]
