"""What stands in the way of registering a table: each with the reason and the way out."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from psycopg import sql

from frostline.catalog import describe, queries
from frostline.catalog.database import Connection
from frostline.catalog.names import DELTA_COLUMNS
from frostline.model.bounds import KEY_TYPES

# Two equal keys of these families always have equal lake values, so a key can be found in the lake.
_KEY_FAMILIES = ("integer", "date", "timestamp", "uuid", "text", "char(n)", "bytea", "boolean", "numeric")


@dataclass(frozen=True)
class Objection:
    reason: str
    remedy: str


def refusals(connection: Connection, oid: int, kind: str) -> list[Objection]:
    """Everything that forbids registration; no partition key at all makes the rest moot."""
    first = list(_partitioning(connection, oid, kind))
    return first or [*_partitions(connection, oid), *_key(connection, oid), *_others(connection, oid)]


def warnings(connection: Connection, oid: int) -> list[str]:
    """What a user should know before registering."""
    found = []
    if names := _names(connection, "row_triggers", oid):
        found.append(f"row triggers ({names}) will fire on cold rows too and keep their updates from being pushed down")
    if names := _names(connection, "publications", oid):
        found.append(f"publications ({names}) do not carry changes of cold rows")
    if names := _names(connection, "foreign_keys", oid):
        found.append(
            f"foreign keys ({names}) hold for hot rows only: deleting a row they refer to does not see cold rows"
        )
    return found


def _partitioning(connection: Connection, oid: int, kind: str) -> Iterator[Objection]:
    key = queries.row(connection, "partition_key", oid=oid)
    if kind != "p" or key is None:
        yield Objection("it is not a partitioned table", "partition it by RANGE on a time or integer column first")
        return
    strategy, count, column, typname = key
    if strategy != "r" or count != 1 or column is None:
        yield Objection("it is not partitioned by RANGE of one plain column", "re-partition it by RANGE on one column")
    elif typname not in KEY_TYPES:
        yield Objection(
            f"its partition key {column} is of type {typname}", f"partition it by one of {', '.join(KEY_TYPES)}"
        )


def _partitions(connection: Connection, oid: int) -> Iterator[Objection]:
    if _names(connection, "is_partition", oid):
        yield Objection("it is itself a partition of another table", "detach it, or register the table at the top")
    found = queries.rows(connection, "partitions", oid=oid)
    if not any(bound != "DEFAULT" for *_, bound, _, _ in found):
        yield Objection("it has no partitions", "create at least one partition")
    for child, schema, name, bound, kind, persistence in found:
        if kind == "p":
            yield Objection(f"partition {schema}.{name} is partitioned again", "tier single-level tables only")
        elif kind != "r":
            yield Objection(f"partition {schema}.{name} is not an ordinary table", "detach it")
        elif persistence != "p":
            yield Objection(f"partition {schema}.{name} is UNLOGGED", f"ALTER TABLE {schema}.{name} SET LOGGED")
        elif bound == "DEFAULT":
            query = sql.SQL("SELECT EXISTS (SELECT FROM {})").format(sql.Identifier(schema, name))
            if connection.execute(query).fetchone() == (True,):
                yield Objection(
                    f"the DEFAULT partition {schema}.{name} (OID {child}) holds rows",
                    "create partitions for them and move them there",
                )


def _key(connection: Connection, oid: int) -> Iterator[Objection]:
    primary = {name for (name,) in queries.rows(connection, "primary_key", oid=oid)}
    enums = {name for (name,) in queries.rows(connection, "enum_columns", oid=oid)}
    if not primary:
        yield Objection(
            "it has no primary key, so a cold row has no identity", "add a primary key that includes the partition key"
        )
    for column in describe.columns(connection, oid):
        if column.name in DELTA_COLUMNS:
            yield Objection(f"a column is called {column.name}, a name Frostline needs", "rename that column")
        comparable = column.exact_equality and (column.storage.family in _KEY_FAMILIES or column.name in enums)
        if column.name in primary and not comparable:
            yield Objection(
                f"primary key column {column.name} is of type {column.type}, whose equality the lake cannot decide",
                "use a key of integers, text with an ordinary collation, uuid, dates, times, numeric(p,s) or an enum",
            )


# (query that lists what is in the way, reason, way out)
_IN_THE_WAY = (
    ("inbound_foreign_keys", "foreign keys of other tables point at it ({})", "drop them"),
    ("secondary_unique", "UNIQUE besides the primary key ({}) cannot be kept in the lake", "make it an ordinary index"),
    ("deferrable_key", "its primary key ({}) is deferrable", "make it NOT DEFERRABLE"),
    ("not_valid", "constraints ({}) are not valid", "ALTER TABLE ... VALIDATE CONSTRAINT them first"),
    ("exclusions", "exclusion constraints ({}) cannot be kept in the lake", "drop them"),
    (
        "views_on_primary_key",
        "views group by its primary key ({}) and so depend on it",
        "let them group by every column they select",
    ),
    (
        "constraint_triggers",
        "constraint triggers ({}) cannot stand on a table with foreign partitions",
        "use ordinary triggers",
    ),
    (
        "transition_triggers",
        "triggers with transition tables ({}) see no foreign rows",
        "use triggers without REFERENCING",
    ),
    (
        "subscriptions",
        "a subscription (OID {}) writes into it, and logical replication cannot write cold rows",
        "take it out of the subscription",
    ),
    ("foreign_owner", "it belongs to {}", "become a member of that role"),
    ("closed_schema", "no partition can be created in its schema {}", "GRANT CREATE on that schema to this role"),
)


def _others(connection: Connection, oid: int) -> Iterator[Objection]:
    for query, reason, remedy in _IN_THE_WAY:
        if names := _names(connection, query, oid):
            yield Objection(reason.format(names), remedy)


def _names(connection: Connection, query: str, oid: int) -> str:
    return ", ".join(str(name) for (name,) in queries.rows(connection, query, oid=oid))
