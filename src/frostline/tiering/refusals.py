"""What stands in the way of registering a table: each with the reason and the way out."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from psycopg import sql

from frostline.catalog import describe, queries
from frostline.catalog.database import Connection
from frostline.catalog.names import reserved
from frostline.model import layout
from frostline.model.bounds import KEY_TYPES, parse_partition
from frostline.model.tables import as_sql
from frostline.tiering.checks import shell_name
from frostline.tiering.kept import unkept

# Two equal keys of these families always have equal lake values, so a key can be found in the lake.
_KEY_FAMILIES = ("integer", "date", "timestamp", "uuid", "text", "char(n)", "bytea", "boolean", "numeric")


@dataclass(frozen=True)
class Objection:
    reason: str
    remedy: str


def refusals(connection: Connection, oid: int, kind: str, *, cold_fk: str) -> list[Objection]:
    """Everything that forbids registration; no partition key at all makes the rest moot."""
    first = list(_partitioning(connection, oid, kind))
    if first:
        return first
    others = _OF_THE_REGISTRY + _IN_THE_WAY + _OF_THE_ROLE + (_GUARDS if cold_fk == "check" else ())
    return [*_partitions(connection, oid), *_key(connection, oid), *_others(connection, oid, others)]


def foreseen(connection: Connection, oid: int, kind: str) -> list[Objection]:
    """The same for a table that is only looked at, partitioned or not, by whatever role, without a registry."""
    first = list(_partitioning(connection, oid, kind))
    found = [] if first else list(_partitions(connection, oid))
    return [*first, *found, *_key(connection, oid), *_others(connection, oid, _IN_THE_WAY)]


def _partitioning(connection: Connection, oid: int, kind: str) -> Iterator[Objection]:
    key = queries.row(connection, "partition_key", oid=oid)
    if kind != "p" or key is None:
        yield Objection(
            "it is not a partitioned table",
            "partition it by RANGE on a time or integer column first: `frostline partition` does, while it is in use",
        )
        return
    strategy, count, column, typname, ordinary = key
    if strategy != "r" or count != 1 or column is None:
        yield Objection("it is not partitioned by RANGE of one plain column", "re-partition it by RANGE on one column")
    elif typname not in KEY_TYPES:
        yield Objection(
            f"its partition key {column} is of type {typname}", f"partition it by one of {', '.join(KEY_TYPES)}"
        )
    elif not ordinary:
        yield Objection(
            f"its partition key {column} is ordered by an operator class of its own",
            "partition it by the type's default order",
        )


def _partitions(connection: Connection, oid: int) -> Iterator[Objection]:
    found = queries.rows(connection, "partitions", oid=oid)
    if not any(bound != "DEFAULT" for *_, bound, _, _ in found):
        yield Objection("it has no partitions", "create at least one partition")
    yield from _too_wide(connection, oid, [bound for *_, bound, _, _ in found])
    for child, schema, name, bound, kind, persistence in found:
        if kind == "p":
            branch = f"{schema}.{name}"
            yield Objection(
                f"partition {branch} is partitioned again",
                f"tier the branch by itself: frostline register {shell_name(schema, name)}",
            )
        elif kind != "r":
            yield Objection(f"partition {schema}.{name} is not an ordinary table", "detach it")
        elif persistence == "u":
            yield Objection(f"partition {schema}.{name} is UNLOGGED", f"ALTER TABLE {as_sql(schema, name)} SET LOGGED")
        elif bound == "DEFAULT":
            query = sql.SQL("SELECT EXISTS (SELECT FROM {})").format(sql.Identifier(schema, name))
            if connection.execute(query).fetchone() == (True,):
                yield Objection(
                    f"the DEFAULT partition {schema}.{name} (OID {child}) holds rows",
                    "move them into tables of their own and attach those as partitions",
                )


def _too_wide(connection: Connection, oid: int, bounds: list[str]) -> Iterator[Objection]:
    """Of an integer key: the lake would have about a file for every row."""
    key = queries.row(connection, "partition_key", oid=oid)
    if key is None or not str(key[3]).startswith("int"):
        return
    ranges = (parse_partition(bound) for bound in bounds)
    if many := layout.cuts(range_ for range_ in ranges if range_ is not None):
        yield Objection(
            f"its partitions are so wide that each would become {many:,} files or more in the lake",
            f"use partitions of {layout.WIDEST:,} at most, or partition it by a time",
        )


def _key(connection: Connection, oid: int) -> Iterator[Objection]:
    primary = {name for (name,) in queries.rows(connection, "primary_key", oid=oid)}
    enums = {name for (name,) in queries.rows(connection, "enum_columns", oid=oid)}
    if not primary:
        yield Objection(
            "it has no primary key, so a cold row has no identity", "add a primary key that includes the partition key"
        )
    for what, why in unkept(connection, oid):
        yield Objection(f"{what}, which the lake cannot keep: {why}", "use another type")
    for column in describe.columns(connection, oid):
        if reserved(column.name):
            yield Objection(
                f"a column is called {column.name}, a name Frostline or Iceberg needs", "rename that column"
            )
        comparable = column.exact_equality and (column.storage.family in _KEY_FAMILIES or column.name in enums)
        if column.name in primary and not comparable:
            yield Objection(
                f"primary key column {column.name} is of type {column.type}, whose equality the lake cannot decide",
                "use a key of integers, text with an ordinary collation, uuid, dates, times, numeric(p,s) or an enum",
            )


# (query that lists what is in the way, reason, way out)
_OF_THE_REGISTRY = (
    ("managed_relatives", "it belongs together with {}, which is registered", "leave it to that table"),
)
_IN_THE_WAY = (
    ("other_encoding", "the encoding of its database is {}", "move it into a database with ENCODING 'UTF8'"),
    ("temporary", "it ({}) is temporary: no other session can read it", "make it an ordinary table"),
    ("unlogged", "it ({}) is UNLOGGED", "ALTER TABLE ... SET LOGGED"),
    (
        "unlogged_referents",
        "its foreign keys refer to UNLOGGED tables ({})",
        "ALTER TABLE ... SET LOGGED those tables; where one is partitioned that does nothing, drop the foreign keys",
    ),
    ("of_type", "it is a typed table (OF {})", "ALTER TABLE ... NOT OF"),
    (
        "inherited_keys",
        "keys ({}) that it inherits keep foreign partitions from standing under it",
        "drop them on the table above and give each branch its own, or detach this branch and register it alone",
    ),
    (
        "half_detached",
        "partitions ({}) are half detached",
        "finish it: ALTER TABLE ... DETACH PARTITION ... FINALIZE",
    ),
    (
        "invalid_indexes",
        "indexes ({}) are invalid: some partition lacks its part, which would be built under a lock",
        "create that part and attach it (ALTER INDEX ... ATTACH PARTITION), or drop the index",
    ),
    ("inbound_foreign_keys", "foreign keys of other tables point at it ({})", "drop them"),
    ("secondary_unique", "UNIQUE besides the primary key ({}) cannot be kept in the lake", "make it an ordinary index"),
    ("deferrable_key", "its primary key ({}) is deferrable", "make it NOT DEFERRABLE"),
    ("not_valid", "constraints ({}) are not valid", "ALTER TABLE ... VALIDATE CONSTRAINT them first"),
    ("exclusions", "exclusion constraints ({}) cannot be kept in the lake", "drop them"),
    (
        "depend_on_primary_key",
        "{} depend on its primary key: they group by it, or name it in ON CONFLICT",
        "let them group by every column they select, or name columns",
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
        "a subscription ({}) writes into it, and logical replication cannot write cold rows",
        "take it out of the subscription",
    ),
    (
        "publications_by_root",
        "publications ({}) send its updates under its own name, and without a primary key there it has no identity",
        "set publish_via_partition_root = false, or give it and every partition REPLICA IDENTITY FULL",
    ),
)
# What another role may be allowed to do.
_OF_THE_ROLE = (
    (
        "forced_policies",
        "row security is forced on partitions ({}) and hides rows from this role",
        "ALTER TABLE ... NO FORCE ROW LEVEL SECURITY, or let a role with BYPASSRLS do this",
    ),
    ("foreign_owner", "it belongs to {}", "GRANT {} TO {role}"),
    ("foreign_leaves", "partitions ({}) belong to others", "GRANT {owners} TO {role}"),
    ("closed_schema", "no partition can be created in its schema {}", "GRANT CREATE, USAGE ON SCHEMA {} TO {role}"),
    ("closed_to_owner", "its owner may create nothing in its schema {}", "GRANT CREATE ON SCHEMA {} TO {owner}"),
    ("unreferenceable", "this role may not refer to {}", "GRANT REFERENCES ON {} TO {role}"),
)
_GUARDS = (
    (
        "unguardable",
        "its foreign keys refer to {}, where this role may not create the trigger that keeps cold rows' referents",
        "GRANT SELECT, TRIGGER ON {} TO {role}; or register with --cold-fk none",
    ),
    (
        "period_references",
        "foreign keys ({}) of periods of time cannot be checked for cold rows",
        "register with --cold-fk none: they hold for hot rows",
    ),
)


def _others(connection: Connection, oid: int, checks: tuple[tuple[str, str, str], ...]) -> Iterator[Objection]:
    for query, reason, remedy in checks:
        if found := names(connection, query, oid):
            yield Objection(reason.format(found), told(connection, oid, remedy, found))


def told(connection: Connection, oid: int, remedy: str, found: str) -> str:
    """A way out; where a statement is it, with what it is about."""
    if "{" not in remedy:
        return remedy
    role, owner, owners = queries.rows(connection, "roles_concerned", oid=oid)[0]
    return remedy.format(found, role=role, owner=owner, owners=owners)


def names(connection: Connection, query: str, oid: int, **parameters: object) -> str:
    """What a query lists, as one text; empty when it lists nothing."""
    return ", ".join(str(name) for (name,) in queries.rows(connection, query, oid=oid, **parameters))
