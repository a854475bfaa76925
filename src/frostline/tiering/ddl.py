"""SQL that both registration and archiving write: bounds, CHECKs, foreign partitions."""

from __future__ import annotations

from psycopg.sql import SQL, Composable, Composed, Identifier, Literal

from frostline.catalog import queries
from frostline.catalog.database import Connection
from frostline.catalog.names import BOUND_CHECK, SERVER_NAME
from frostline.model.bounds import Bound, Range
from frostline.model.tables import Leaf, Table

IDENTITY_IN_PARTITIONS = 170000  # since this version partitions share the parent's identity


def bound(value: Bound | None, unbounded: str) -> Composable:
    """One side of FROM ... TO ..."""
    return SQL("({})").format(Literal(value.text) if value is not None else SQL(unbounded))


def for_values(range_: Range) -> Composed:
    return SQL("FOR VALUES FROM {} TO {}").format(bound(range_.lower, "MINVALUE"), bound(range_.upper, "MAXVALUE"))


def within(table: Table, range_: Range) -> Composed:
    """The partition's own condition, written so that Postgres sees it implied by an equal CHECK."""
    key = Identifier(table.key)
    parts: list[Composable] = [SQL("{} IS NOT NULL").format(key)]
    for side, operator in ((range_.lower, ">="), (range_.upper, "<")):
        if side is not None:
            value = SQL("{}::{}").format(Literal(side.text), SQL(table.key_type))
            parts.append(SQL("{} {} {}").format(key, SQL(operator), value))
    return SQL(" AND ").join(parts)


def attach(parent: Identifier, leaf: Leaf) -> Composed:
    bounds = for_values(leaf.range) if leaf.range is not None else SQL("DEFAULT")
    return SQL("ALTER TABLE {} ATTACH PARTITION {} {}").format(parent, Identifier(leaf.schema, leaf.name), bounds)


def detach(parent: Identifier, leaf: Leaf) -> Composed:
    return SQL("ALTER TABLE {} DETACH PARTITION {}").format(parent, Identifier(leaf.schema, leaf.name))


def add_bound_check(table: Table, leaf: Leaf) -> list[Composed]:
    """The CHECK that lets every later ATTACH skip its scan; VALIDATE reads the leaf without blocking writers."""
    assert leaf.range is not None
    name, check = Identifier(leaf.schema, leaf.name), Identifier(BOUND_CHECK)
    return [
        SQL("ALTER TABLE {} ADD CONSTRAINT {} CHECK ({}) NOT VALID").format(name, check, within(table, leaf.range)),
        SQL("ALTER TABLE {} VALIDATE CONSTRAINT {}").format(name, check),
    ]


def same_grants(connection: Connection, source: int | None, target: tuple[str, str]) -> list[Composed]:
    """Exactly the grants of one relation for a new one (None: none), whatever the schema's default privileges gave."""
    name = Identifier(*target)
    revoke = [
        SQL(f"REVOKE ALL ON {{}} FROM {role}").format(name)
        for (role,) in queries.rows(connection, "default_grantees", schema=target[0])
    ]
    grants = queries.rows(connection, "grants", oid=source) if source is not None else []
    return [*revoke, *(grant(name, *found) for found in grants)]


def grant(name: Identifier, role: str, privilege: str, grantable: bool, column: str | None) -> Composed:
    """One grant as the catalog lists it."""
    only = SQL(" ({})").format(Identifier(column)) if column is not None else SQL("")
    option = " WITH GRANT OPTION" if grantable else ""
    return SQL(f"GRANT {privilege}{{}} ON {{}} TO {role}{option}").format(only, name)


def owned_by(name: Identifier, table: Table) -> Composed:
    """Whoever owns the table owns its partitions: its ALTER TABLE goes down to all of them."""
    return SQL("ALTER TABLE {} OWNER TO {}").format(name, Identifier(table.owner))


def foreign_partition(table: Table, name: tuple[str, str], server_schema: str, range_: Range) -> list[Composed]:
    # PARTITION OF, because CREATE FOREIGN TABLE ... (LIKE ...) only exists since 18.
    create = SQL("CREATE FOREIGN TABLE {} PARTITION OF {} {} SERVER {} OPTIONS (schema_name {}, table_name {})").format(
        Identifier(*name),
        Identifier(table.schema, table.name),
        for_values(range_),
        Identifier(SERVER_NAME),
        Literal(server_schema),
        Literal(str(range_)),
    )
    return [create, owned_by(Identifier(*name), table)]
