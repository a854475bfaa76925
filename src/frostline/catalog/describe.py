"""Reading the user's table from pg_catalog."""

from __future__ import annotations

import psycopg

from frostline.catalog import queries
from frostline.catalog.database import Connection
from frostline.errors import RefusedError
from frostline.model.bounds import parse_partition
from frostline.model.tables import Branch, Column, Leaf, Table
from frostline.model.types import storage


def resolve(connection: Connection, text: str) -> tuple[int, str, str]:
    """The relation a person meant by SCHEMA.TABLE: SQL quoting is honoured, and so is a name typed as it is."""
    for schema, name in _readings(connection, text):
        found = queries.row(connection, "resolve", schema=schema, name=name)
        if found is not None:
            return found[0], schema, name
    raise RefusedError(
        f"there is no table {text} in database {connection.info.dbname}",
        hint='write it as SCHEMA.TABLE, odd names in double quotes: \'"My Schema"."My.Table"\'',
        sqlstate="42P01",
    )


def _readings(connection: Connection, text: str) -> list[tuple[str, str]]:
    readings = []
    try:
        row = connection.execute("SELECT parse_ident(%s)", (text,)).fetchone()
        parts: list[str] = row[0] if row else []
        readings.append(("public", parts[0]) if len(parts) == 1 else (parts[0], parts[1]))
    except (psycopg.errors.InvalidParameterValue, IndexError):
        pass
    schema, dot, name = text.partition(".")
    readings.append((schema, name) if dot else ("public", text))
    return readings


def columns(connection: Connection, oid: int) -> tuple[Column, ...]:
    """Live columns in attribute order."""
    return tuple(_column(*row) for row in queries.rows(connection, "columns", oid=oid))


def _column(  # noqa: PLR0913, PLR0917 - the columns of one query
    number: int,
    name: str,
    type_: str,
    base_type: str,
    typname: str,
    typid: int,
    typmod: int,
    builtin: bool,
    typtype: str,
    not_null: bool,
    generated: str,
    identity: str,
    deterministic: bool,
) -> Column:
    return Column(
        number=number,
        name=name,
        type=type_,
        base_type=base_type,
        storage=storage(typname, typmod, builtin=builtin and typtype == "b"),
        not_null=not_null,
        generated=generated,
        identity=identity,
        base=(typid, typmod),
        typname=typname if builtin else "",
        exact_equality=deterministic and (builtin or typtype == "e"),
    )


def leaves(connection: Connection, oid: int) -> tuple[Leaf, ...]:
    """The direct partitions that are plain tables, lowest first, DEFAULT last."""
    found = [
        Leaf(child, schema, name, parse_partition(bound))
        for child, schema, name, bound, kind, _ in queries.rows(connection, "partitions", oid=oid)
        if kind == "r"
    ]
    return tuple(sorted(found, key=position))


def branches(connection: Connection, oid: int) -> tuple[Branch, ...]:
    """The direct partitions that are not plain tables."""
    return tuple(
        Branch(child, schema, name, parse_partition(bound), "partitioned again" if kind == "p" else "foreign")
        for child, schema, name, bound, kind, _ in queries.rows(connection, "partitions", oid=oid)
        if kind != "r"
    )


def position(leaf: Leaf) -> tuple[int, int]:
    if leaf.range is None:
        return 2, 0
    return (0, 0) if leaf.range.lower is None else (1, leaf.range.lower.order)


def table(connection: Connection, oid: int, schema: str, name: str) -> Table:
    """A table RANGE-partitioned by one column; `tiering.refusals` has made sure it is one."""
    key = queries.row(connection, "partition_key", oid=oid)
    owner = queries.row(connection, "owner", oid=oid)
    assert key is not None
    assert owner is not None
    return Table(
        oid=oid,
        schema=schema,
        name=name,
        owner=owner[0],
        columns=columns(connection, oid),
        key=key[2],
        key_type=key[3],
        primary_key=tuple(column for (column,) in queries.rows(connection, "primary_key", oid=oid)),
        leaves=leaves(connection, oid),
    )
