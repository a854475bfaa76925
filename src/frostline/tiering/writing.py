"""What a registered table needs so that its cold rows can be written: foreign table, functions, triggers."""

from __future__ import annotations

from psycopg.sql import Composed, Identifier

from frostline.catalog import queries
from frostline.catalog.database import Connection
from frostline.delta import collect
from frostline.delta.collect import Connections, ForeignKey
from frostline.errors import DatabaseError
from frostline.model.tables import Table


def statements(
    connection: Connection, table: Table, id_: int, hot: tuple[str, str], keys_of: int, *, checked: bool
) -> list[Composed]:
    """Made once, and again when the table has changed; `keys_of` is the relation that has its foreign keys now."""
    keys = tuple(
        ForeignKey(name, tuple(columns), (schema, referenced), tuple(keys), full)
        for name, columns, schema, referenced, keys, full in queries.rows(connection, "foreign_key_checks", oid=keys_of)
    )
    made = collect.create(table, id_, hot, keys if checked else (), _connections(connection))
    above = [Identifier(*name) for name in queries.rows(connection, "ancestors", oid=table.oid)]
    for relation in (Identifier(table.schema, table.name), *above):
        made += collect.triggers(id_, relation)
    return made


def _connections(connection: Connection) -> Connections:
    found = queries.row(connection, "fdw_connections")
    if found is None:
        raise DatabaseError("the extension postgres_fdw is not installed", hint="run frostline init")
    return Connections(*found)
