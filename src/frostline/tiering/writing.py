"""What a registered table needs so that its cold rows can be written: foreign table, functions, triggers."""

from __future__ import annotations

from functools import partial

from psycopg.sql import Composed, Identifier

from frostline.catalog import queries, registry
from frostline.catalog.database import Connection
from frostline.delta import collect
from frostline.delta.collect import Connections, ForeignKey
from frostline.errors import DatabaseError
from frostline.model.tables import Table
from frostline.tiering.locks import with_short_locks


def statements(
    connection: Connection, table: Table, id_: int, hot: tuple[str, str], keys_of: int, *, checked: bool
) -> list[Composed]:
    """Made once, and again when the table has changed; `keys_of` is the relation that has its foreign keys now."""
    keys = tuple(
        ForeignKey(name, tuple(columns), (schema, referenced), tuple(keys), full)
        for name, columns, schema, referenced, keys, full in queries.rows(connection, "foreign_key_checks", oid=keys_of)
    )
    made = collect.create(table, id_, hot, keys if checked else (), _connections(connection))
    for schema, name, above, policies in queries.rows(connection, "ancestors", oid=table.oid):
        made += collect.triggers(id_, Identifier(schema, name), above=above)
        if policies:
            made += collect.policy_triggers(id_, Identifier(schema, name), above=above)
    return made


def equip(connection: Connection) -> list[str]:
    """Tables that an older version registered can be written from now on; returns what was done."""
    done = []
    for (id_,) in queries.rows(connection, "unequipped", version=collect.VERSION):
        managed = registry.get_by_id(connection, id_)
        checked = managed.options.cold_fk == "check"
        made = statements(connection, managed.table, id_, managed.hot, managed.hot_oid, checked=checked)
        for name in queries.rows(connection, "foreign_partitions", table=id_):
            made += collect.triggers(id_, Identifier(*name))
        with_short_locks(connection, partial(_execute, connection, made), f"equipping {managed.table}")
        done.append(f"what writes cold rows of {managed.table}")
    return done


def _execute(connection: Connection, made: list[Composed]) -> None:
    for statement in made:
        connection.execute(statement)


def _connections(connection: Connection) -> Connections:
    found = queries.row(connection, "fdw_connections")
    if found is None:
        raise DatabaseError("the extension postgres_fdw is not installed", hint="run frostline init")
    return Connections(*found)
