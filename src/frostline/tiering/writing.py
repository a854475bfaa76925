"""What a registered table needs so that its cold rows can be written: foreign table, functions, triggers."""

from __future__ import annotations

from functools import partial

from psycopg.sql import Composed, Identifier

from frostline.catalog import queries, registry
from frostline.catalog.database import Connection
from frostline.delta import collect, follow
from frostline.delta.collect import Target
from frostline.delta.tables import create_shape
from frostline.model.tables import Table
from frostline.tiering import references
from frostline.tiering.locks import Wanted, lock, with_short_locks


def statements(
    connection: Connection,
    table: Table,
    id_: int,
    delta: tuple[str, str],
    hot: tuple[str, str],
    keys_of: int,
    *,
    checked: bool,
) -> list[Composed]:
    """Made once, and again when the table has changed; `keys_of` is the relation that has its foreign keys now."""
    keys = follow.foreign_keys(connection, keys_of) if checked else ()
    target = Target(table, id_, delta, hot, keys)
    made = [*collect.create(target, follow.connections(connection)), *create_shape(table, id_)]
    for schema, name, above, policies in queries.rows(connection, "ancestors", oid=table.oid):
        made += collect.triggers(id_, Identifier(schema, name), above=above)
        if policies:
            made += collect.policy_triggers(id_, Identifier(schema, name), above=above)
    return made


def unequipped(connection: Connection) -> dict[int, bool]:
    """Tables for which all this is to be made anew; True: without that they cannot be written."""
    tells = follow.connections(connection).used_in_transaction
    return dict(queries.rows(connection, "unequipped", version=collect.VERSION, tells=tells))


def equip(connection: Connection, only: int | None = None) -> list[str]:
    """Tables that an older version registered, or that have policies since, can be written; returns what was done."""
    done = []
    for id_ in unequipped(connection):
        if only not in (None, id_):
            continue
        managed = registry.get_by_id(connection, id_)
        checked = managed.options.cold_fk == "check"
        made = statements(connection, managed.table, id_, managed.delta, managed.hot, managed.hot_oid, checked=checked)
        for name in queries.rows(connection, "foreign_partitions", table=id_):
            made += collect.triggers(id_, Identifier(*name))
        if checked:
            made += references.renewal(connection, managed.hot_oid, id_)
        work = partial(_execute, connection, managed.table, made)
        with_short_locks(connection, work, f"equipping {managed.table}", Wanted(written=[managed.table.oid]))
        done.append(f"what writes cold rows of {managed.table}")
    return done


def _execute(connection: Connection, table: Table, made: list[Composed]) -> None:
    # A writer comes to the table first and to what is held last: the other way round each would wait for the other.
    lock(connection, [(Identifier(table.schema, table.name), "SHARE ROW EXCLUSIVE")])
    for statement in made:
        connection.execute(statement)
