"""Step 2, capture: from here on every change of the leaf is noted by its key, and carried into the delta."""

from __future__ import annotations

from functools import partial
from typing import Any

import psycopg
from psycopg.sql import SQL, Composed, Identifier, Literal
from psycopg.types.json import Jsonb

from frostline.catalog import queries
from frostline.catalog.database import Connection
from frostline.catalog.registry import Managed
from frostline.delta import tables as delta
from frostline.errors import OperationError
from frostline.faults import reached
from frostline.model.bounds import Range
from frostline.model.tables import Leaf
from frostline.tiering import ddl
from frostline.tiering.archive.steps import Operation, wanted
from frostline.tiering.locks import Wanted, with_short_locks

# "!" sorts before any ordinary name, so the capture fires first.
CAPTURE, NO_TRUNCATE = "!frostline capture", "!frostline truncate"
MANY = 300  # keys: some ten milliseconds
_ROUNDS = 10


def start(connection: Connection, operation: Operation) -> None:
    """The lock of CREATE TRIGGER waits for every writer, so no change falls between this and the export.

    Whatever an earlier run captured has been removed before: no row may be left in the delta when this begins.
    """
    managed, leaf = operation.managed, operation.leaf

    def work() -> list[object] | None:
        row: Any = queries.row(connection, "shape", table=managed.id)
        if row[0] != managed.followed:
            raise OperationError(
                f"{managed.table} was altered meanwhile; {leaf} stays in Postgres as it was",
                hint="run the same command again",
            )
        for statement in (*delta.create_touched(managed.table, managed.id), delta.capture(managed.table, managed.id)):
            connection.execute(statement)
        for statement in (_same_owner(connection, managed), *_triggers(managed, leaf)):
            connection.execute(statement)
        captured = state(connection, managed, leaf)
        connection.execute(
            "UPDATE frostline.operations SET captured = %s WHERE id = %s", (Jsonb(captured), operation.id)
        )
        reached("capture.commit")
        return captured

    locks = wanted(connection, operation, written=[leaf.oid])
    operation.captured = with_short_locks(connection, work, f"capturing changes of {leaf}", locks)


def catch_up(connection: Connection, operation: Operation) -> None:
    """What was noted so far goes into the delta, until little is left to be done under the swap's locks."""
    leaf = Identifier(operation.leaf.schema, operation.leaf.name)

    def work() -> int:
        # By its name, and no other relation may come by that while it is read.
        connection.execute(SQL("LOCK TABLE ONLY {} IN ACCESS SHARE MODE").format(leaf))
        if state(connection, operation.managed, operation.leaf) != operation.captured:
            raise altered(operation)
        keys, _ = carry(connection, operation)
        reached("carry.commit")
        return keys

    locks = wanted(connection, operation, written=[operation.leaf.oid])
    try:
        for _ in range(_ROUNDS):
            if with_short_locks(connection, work, f"carrying changes of {operation.leaf}", locks) <= MANY:
                return
            # Or the next round reads the pages of these once more. No writer waits for this, nor is the file cut.
            connection.execute(SQL("VACUUM (TRUNCATE false) {}").format(delta.touched(operation.managed.id)))
    except psycopg.errors.UndefinedTable as error:
        raise altered(operation) from error


def carry(connection: Connection, operation: Operation) -> tuple[int, int | None]:
    """What is noted goes into the delta; how many keys, and the first of the versions that they got."""
    managed = operation.managed
    head = delta.carry(managed.table, managed.id, managed.delta, operation.leaf)
    row: Any = connection.execute(SQL("{} SELECT count(*), min(_seq) FROM put").format(head)).fetchone()
    keys, first = row
    return keys, first


def behind(connection: Connection, operation: Operation) -> bool:
    """Whether more was noted since than is to be carried under a lock."""
    noted = delta.touched(operation.managed.id)
    query = SQL("SELECT count(*) > {} FROM (SELECT FROM {} LIMIT {}) t").format(MANY, noted, MANY + 1)
    return connection.execute(query).fetchone() == (True,)


def noted(connection: Connection, managed: Managed) -> int:
    """How many changes are noted and not carried, whoever for."""
    if queries.row(connection, "resolve", schema=delta.SCHEMA, name=delta.touched_name(managed.id)) is None:
        return 0
    row: Any = connection.execute(SQL("SELECT count(*) FROM {}").format(delta.touched(managed.id))).fetchone()
    return int(row[0])


def forget(connection: Connection, managed: Managed) -> None:
    """No trigger notes anything any more, nor is anything noted that counts."""
    work = partial(connection.execute, delta.drop_touched(managed.id))
    with_short_locks(connection, work, f"forgetting noted changes of {managed.table}")


def release(connection: Connection, managed: Managed, oid: int, captured: Range | None) -> None:
    """Take the triggers off a relation that stays in Postgres, then forget what they captured.

    The rows in a transaction of their own: there may be many, and the triggers' lock keeps everybody out.
    """
    found = queries.row(connection, "relation", oid=oid)
    reached("release.begin")
    if found is not None:  # else it was dropped meanwhile

        def work() -> None:
            for statement in drop_triggers(*found):
                connection.execute(statement)

        with_short_locks(connection, work, f"releasing {'.'.join(found)}", Wanted([oid]))
    reached("release.triggers")
    if captured is not None:
        connection.execute(clear(managed, captured))
    reached("release.end")


def state(connection: Connection, managed: Managed, leaf: Leaf) -> list[object] | None:
    """What tells that no change has passed the capture by: the leaf's OID, its file, its triggers as we left them,
    the table's shape, the leaf's bounds, and how often a change was let pass."""
    found = queries.row(connection, "state_of_leaf", schema=leaf.schema, name=leaf.name, table=managed.id)
    return None if found is None else list(found)


def drop_triggers(schema: str, name: str) -> list[Composed]:
    return [
        SQL("DROP TRIGGER IF EXISTS {} ON {}").format(Identifier(trigger), Identifier(schema, name))
        for trigger in (CAPTURE, NO_TRUNCATE)
    ]


def clear(managed: Managed, captured: Range) -> Composed:
    """Forget captured rows of a range that is not cold."""
    within = ddl.within(managed.table, captured)
    return SQL("DELETE FROM {} WHERE {} AND {}").format(Identifier(*managed.delta), within, hot(managed))


def hot(managed: Managed) -> Composed:
    """At or above the seam as it stands in the registry, whatever the caller remembers: the swap may have moved it.

    Below it a captured row is the only copy of what it says.
    """
    seam = SQL("(SELECT t.seam::{} FROM frostline.tables t WHERE t.id = {})").format(
        SQL(managed.table.key_type), Literal(managed.id)
    )
    return SQL("({} < {}) IS NOT TRUE").format(Identifier(managed.table.key), seam)


def _triggers(managed: Managed, leaf: Leaf) -> list[Composed]:
    on = Identifier(leaf.schema, leaf.name)
    # OR REPLACE, not DROP and CREATE: to drop a trigger Postgres locks out readers too.
    made = [
        SQL(
            "CREATE OR REPLACE TRIGGER {} AFTER INSERT OR UPDATE OR DELETE ON {} FOR EACH ROW EXECUTE FUNCTION {}()"
        ).format(Identifier(CAPTURE), on, Identifier(delta.SCHEMA, delta.capture_name(managed.id))),
        SQL("CREATE OR REPLACE TRIGGER {} BEFORE TRUNCATE ON {} FOR EACH STATEMENT EXECUTE FUNCTION {}()").format(
            Identifier(NO_TRUNCATE), on, Identifier(delta.SCHEMA, delta.no_truncate_name(managed.id))
        ),
    ]
    # ALWAYS: logical replication and session_replication_role = replica pass ordinary triggers by.
    always = [SQL("ALTER TABLE {} ENABLE ALWAYS TRIGGER {}").format(on, Identifier(n)) for n in (CAPTURE, NO_TRUNCATE)]
    return [*made, *always]


def _same_owner(connection: Connection, managed: Managed) -> Composed:
    """The function keeps the owner it had, and writes as him, whoever makes the table anew."""
    name = f"{delta.SCHEMA}.{delta.capture_name(managed.id)}()"
    query = "SELECT pg_get_userbyid(proowner) FROM pg_proc WHERE oid = %s::regprocedure"
    row: Any = connection.execute(query, (name,)).fetchone()
    return SQL("ALTER TABLE {} OWNER TO {}").format(delta.touched(managed.id), Identifier(row[0]))


def altered(operation: Operation) -> OperationError:
    """What was exported and captured is not this table and this leaf any more, or not all of it."""
    return OperationError(
        f"{operation.leaf} was altered, rewritten or had its triggers switched off meanwhile; it stays in Postgres",
        hint="run the same command again",
    )
