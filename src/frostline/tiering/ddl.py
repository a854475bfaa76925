"""SQL that both registration and archiving write: bounds, CHECKs, foreign partitions."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import psycopg
from psycopg.sql import SQL, Composable, Composed, Identifier, Literal

from frostline.catalog import queries
from frostline.catalog.database import Connection
from frostline.catalog.names import LOWER_CHECK, SERVER_NAME, UPPER_CHECK, server_schema
from frostline.delta import collect
from frostline.errors import RefusedError
from frostline.model.bounds import Bound, Range
from frostline.model.tables import Leaf, Table

FETCH_ROWS = 10_000  # the foreign server's fetch_size
_FEWEST_ROWS, _FETCH_BYTES = 100, 16_000_000
IDENTITY_IN_PARTITIONS = 170000  # since this version partitions share the parent's identity


def bound(value: Bound | None, unbounded: str) -> Composable:
    """One side of FROM ... TO ..."""
    return SQL("({})").format(Literal(value.text) if value is not None else SQL(unbounded))


def for_values(range_: Range) -> Composed:
    return SQL("FOR VALUES FROM {} TO {}").format(bound(range_.lower, "MINVALUE"), bound(range_.upper, "MAXVALUE"))


def within(table: Table, range_: Range) -> Composed:
    """The partition's own condition, written so that Postgres sees it implied by an equal CHECK."""
    not_null = SQL("{} IS NOT NULL").format(Identifier(table.key))
    return SQL(" AND ").join([not_null, *(condition for _, condition in _sides(table, range_))])


def outside(table: Table, range_: Range) -> Composed:
    """What holds of every other row, written so that Postgres sees it implied in the DEFAULT partition's condition."""
    return SQL("({})").format(
        SQL(" OR ").join(SQL("NOT {}").format(condition) for _, condition in _sides(table, range_))
    )


def _sides(table: Table, range_: Range) -> list[tuple[str, Composed]]:
    """The condition of each bound there is, with the name of its CHECK."""
    return [
        (
            name,
            SQL("{} {} {}::{}").format(Identifier(table.key), SQL(operator), Literal(side.text), SQL(table.key_type)),
        )
        for name, operator, side in ((LOWER_CHECK, ">=", range_.lower), (UPPER_CHECK, "<", range_.upper))
        if side is not None
    ]


def clock(key_type: str) -> SQL:
    """The present as keys of a type count it, read in UTC: without a time zone they are the database's local time."""
    if key_type == "timestamptz":
        return SQL("now()")
    return SQL("(now() AT TIME ZONE (SELECT reset_val FROM pg_settings WHERE name = 'TimeZone'))::timestamptz")


def now(connection: Connection, key_type: str) -> int:
    """The same as the order of a bound."""
    row = connection.execute(
        SQL("SELECT (extract(epoch FROM {}) * 1000000)::bigint").format(clock(key_type))
    ).fetchone()
    assert row is not None
    return int(row[0])


def newest(connection: Connection, table: Table, hot: tuple[str, str]) -> int | None:
    """Where an integer key is by now: the largest one below the end of the last partition.

    One that fits into no partition and came to the DEFAULT one may be a mistake. Were it believed every row would be
    old at once: archived, and removed where there is a retention.
    """
    ends = [leaf.range.upper for leaf in table.leaves if leaf.range is not None]
    if not ends:
        return None
    query = SQL("SELECT max({})::bigint FROM {}").format(Identifier(table.key), Identifier(*hot))
    last = max((end.order for end in ends if end is not None), default=None)
    if last is not None and None not in ends:
        query = SQL("{} WHERE {} < {}::bigint").format(query, Identifier(table.key), Literal(last))
    row = connection.execute(query).fetchone()
    return row[0] if row is not None else None


def attach(parent: Identifier, leaf: Leaf) -> Composed:
    bounds = for_values(leaf.range) if leaf.range is not None else SQL("DEFAULT")
    return SQL("ALTER TABLE {} ATTACH PARTITION {} {}").format(parent, Identifier(leaf.schema, leaf.name), bounds)


def detach(parent: Identifier, leaf: Leaf) -> Composed:
    return SQL("ALTER TABLE {} DETACH PARTITION {}").format(parent, Identifier(leaf.schema, leaf.name))


def leaves_move(connection: Connection, table: Table) -> bool:
    """Whether a swap takes every leaf out of the hot partition and attaches it again.

    Since 17 partitions share the parent's identity. ATTACH gives it to the hot partition but not to leaves under it,
    and the next DETACH then fails on the leaves: "column ... is not an identity column".
    """
    identity = any(column.identity for column in table.columns)
    return identity and connection.info.server_version >= IDENTITY_IN_PARTITIONS


def bound_checks(table: Table, range_: Range, *, upper: bool) -> list[tuple[str, Composed]]:
    """The CHECKs that let ATTACH skip its scan, by name; that the key is not NULL is known from the primary key.

    When the hot partition is attached from a new seam its leaves must be known to lie above it, and no more. Planning
    looks at every CHECK of a leaf, for each statement: the upper bound only stays where leaves are attached again.
    """
    return [(name, condition) for name, condition in _sides(table, range_) if upper or name == LOWER_CHECK]


def add_checks(leaf: Leaf, checks: list[tuple[str, Composed]]) -> Composed:
    added = SQL(", ").join(
        SQL("ADD CONSTRAINT {} CHECK ({}) NOT VALID").format(Identifier(name), condition) for name, condition in checks
    )
    return SQL("ALTER TABLE {} {}").format(Identifier(leaf.schema, leaf.name), added)


def validate_checks(leaf: Leaf, names: list[str]) -> Composed:
    """Reads the leaf once, without blocking writers."""
    validated = SQL(", ").join(SQL("VALIDATE CONSTRAINT {}").format(Identifier(name)) for name in names)
    return SQL("ALTER TABLE {} {}").format(Identifier(leaf.schema, leaf.name), validated)


def same_grants(connection: Connection, source: int | None, target: tuple[str, str]) -> list[Composed]:
    """Exactly the grants of one relation for a new one (None: none), whatever the schema's default privileges gave."""
    name = Identifier(*target)
    revoke = [
        SQL("REVOKE ALL ON {} FROM {}").format(name, SQL(role))
        for (role,) in queries.rows(connection, "default_grantees", schema=target[0])
    ]
    grants = queries.rows(connection, "grants", oid=source) if source is not None else []
    return [*revoke, *(grant(name, *found) for found in grants)]


def grant(name: Identifier, role: str, privilege: str, grantable: bool, column: str | None) -> Composed:
    """One grant as the catalog lists it."""
    only = SQL(" ({})").format(Identifier(column)) if column is not None else SQL("")
    option = " WITH GRANT OPTION" if grantable else ""
    return SQL(f"GRANT {privilege}{{}} ON {{}} TO {{}}{option}").format(only, name, SQL(role))


def owned_by(name: Identifier, table: Table) -> Composed:
    """Whoever owns the table owns its partitions: its ALTER TABLE goes down to all of them."""
    return SQL("ALTER TABLE {} OWNER TO {}").format(name, Identifier(table.owner))


def fetch_rows(width: float) -> int:
    """How many rows of that many bytes postgres_fdw is to ask for at a time, for it keeps them all in memory."""
    return int(min(max(_FETCH_BYTES / max(width, 1), _FEWEST_ROWS), FETCH_ROWS))


def foreign_partition(
    table: Table, name: tuple[str, str], id_: int, range_: Range, fetch: int = FETCH_ROWS
) -> list[Composed]:
    # PARTITION OF, because CREATE FOREIGN TABLE ... (LIKE ...) only exists since 18.
    create = SQL(
        "CREATE FOREIGN TABLE {} PARTITION OF {} {} SERVER {} OPTIONS (schema_name {}, table_name {}{})"
    ).format(
        Identifier(*name),
        Identifier(table.schema, table.name),
        for_values(range_),
        Identifier(SERVER_NAME),
        Literal(server_schema(id_)),
        Literal(str(range_)),
        SQL(", fetch_size {}").format(Literal(str(fetch))) if fetch < FETCH_ROWS else SQL(""),
    )
    return [create, *collect.triggers(id_, Identifier(*name)), owned_by(Identifier(*name), table)]


@contextmanager
def droppable(stays: str) -> Iterator[None]:
    """A partition is dropped in here, unless something depends on it itself: only Postgres knows all that may."""
    try:
        yield
    except psycopg.errors.DependentObjectsStillExist as error:
        raise RefusedError(
            stays,
            detail=error.diag.message_detail,
            hint="let it refer to the partitioned table, then run the same command again",
        ) from None
