"""The DEFAULT partition: a swap would read it under its locks, unless a CHECK says that no row of it is in the way.

The CHECK is there from a moment before the swap to its end, and refuses nothing: as long as the partitions stand where
they do, the leaf from the seam on, Postgres itself lets no such row into the DEFAULT partition. When one has been taken
away it is made anew.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from psycopg.sql import SQL, Composed, Identifier

from frostline.catalog.database import Connection
from frostline.catalog.names import DEFAULT_CHECK
from frostline.catalog.registry import Managed
from frostline.faults import reached
from frostline.model.bounds import Range
from frostline.model.tables import Leaf
from frostline.tiering import ddl
from frostline.tiering.archive.steps import Operation, wanted
from frostline.tiering.locks import with_short_locks


def close(connection: Connection, operation: Operation, leaves: Sequence[Leaf]) -> None:
    """Where there are periods without a partition below the new seam, rows may still come: then it is read."""
    managed = operation.managed
    open_again(connection, managed)
    default = next((leaf for leaf in leaves if leaf.range is None), None)
    from_seam = any(leaf.range == operation.range for leaf in leaves)
    if default is None or not from_seam:
        return
    above = ddl.within(managed.table, Range(operation.range.upper, None))
    if ddl.leaves_move(connection, managed.table):  # it is attached again, beside all the others
        beside = [ddl.outside(managed.table, leaf.range) for leaf in leaves if leaf.range is not None]
        above = SQL(" AND ").join([above, *beside])
    name = _name(managed)
    locks = wanted(connection, operation, [default.oid])
    for statement in (ddl.add_checks(default, [(name, above)]), ddl.validate_checks(default, [name])):
        with_short_locks(connection, partial(connection.execute, statement), f"adding a CHECK to {default}", locks)
        reached("default.closed")


def open_again(connection: Connection, managed: Managed) -> None:
    for statement in opened(connection, managed):
        with_short_locks(connection, partial(connection.execute, statement), f"releasing {managed.table}")


def opened(connection: Connection, managed: Managed) -> list[Composed]:
    drop, name = SQL("ALTER TABLE {} DROP CONSTRAINT {}"), Identifier(_name(managed))
    return [drop.format(Identifier(*relation), name) for relation in closed(connection, managed)]


def closed(connection: Connection, managed: Managed) -> list[tuple[str, str]]:
    """By the CHECK's name: the partition may have been renamed or detached meanwhile."""
    found = connection.execute(
        "SELECT n.nspname, c.relname FROM pg_constraint k JOIN pg_class c ON c.oid = k.conrelid"
        " JOIN pg_namespace n ON n.oid = c.relnamespace WHERE k.conname = %s",
        (_name(managed),),
    )
    return [(schema, name) for schema, name in found]


def _name(managed: Managed) -> str:
    return f"{DEFAULT_CHECK} {managed.id}"
