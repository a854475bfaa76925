"""Step 1, plan: which leaves have expired, and whether the lake can hold what is in them."""

from __future__ import annotations

import psycopg
from psycopg.sql import SQL, Composed, Identifier, Literal

from frostline.catalog import queries
from frostline.catalog.database import Connection
from frostline.catalog.registry import Managed
from frostline.errors import ConfigError, RefusedError
from frostline.model.bounds import Range
from frostline.model.tables import Leaf
from frostline.tiering import ddl

_FAR = 2**62  # microseconds: about the year 148,000; -infinity and infinity are far beyond


def expired(connection: Connection, managed: Managed, before: str | None = None, *, named: bool = False) -> list[Leaf]:
    """The leaves wholly older than the hot period, oldest first; only a run from the seam up can be archived.

    `before` stands in for the hot period's end. The current partition is never among them, and what was brought back on
    purpose only when a person has named the table.
    """
    if not named and _held(connection, managed):
        return []
    limit = _limit(connection, managed) if before is None else _chosen(connection, managed, before)
    found = []
    for leaf in managed.table.leaves:
        if leaf.range is not None and leaf.range.below(managed.seam):
            continue  # made there since: it never holds a row, for those are cold
        if (
            leaf.range is None
            or leaf.range.upper is None
            or not _passed(connection, managed, leaf.range.upper.text, limit)
        ):
            break
        found.append(leaf)
    return found


def check_default(connection: Connection, managed: Managed, leaf: Leaf) -> None:
    """Rows in the DEFAULT partition below the new seam would have no place in the hot partition."""
    default = next((other for other in managed.table.leaves if other.range is None), None)
    if default is None or leaf.range is None:
        return
    name, below = Identifier(default.schema, default.name), ddl.within(managed.table, Range(None, leaf.range.upper))
    if connection.execute(SQL("SELECT EXISTS (SELECT FROM {} WHERE {})").format(name, below)).fetchone() == (True,):
        raise RefusedError(
            f"{leaf} stays in Postgres: the DEFAULT partition {default} holds rows below {leaf.range.upper}",
            hint="move them into a table of their own and attach that as a partition, then run the same command again",
        )


def check_dependents(connection: Connection, leaf: Leaf) -> None:
    """A view or foreign key on the leaf itself would keep it from being dropped."""
    views = queries.rows(connection, "dependents", oid=leaf.oid)
    if views:
        raise RefusedError(
            f"{leaf} stays in Postgres: {', '.join(name for (name,) in views)} depend on that partition itself",
            hint="let them refer to the partitioned table, then run the same command again",
        )


def check_values(connection: Connection, managed: Managed, source: Composed, range_: Range | None = None) -> None:
    """No value Iceberg has no form for; the first row that holds one is named."""
    # Between two bounds the key itself is held; a leaf whose other columns are too need not be read for this.
    ends = (range_.lower, range_.upper) if range_ is not None else (None,)
    bounded = all(end is not None and abs(end.order) < _FAR for end in ends)
    checks = [
        (c, c.storage.cannot_hold)
        for c in managed.table.stored
        if c.storage.cannot_hold and not (bounded and c.name == managed.table.key)
    ]
    if not checks:
        return
    conditions = SQL(" OR ").join(_sql(check.format(c=Identifier(c.name).as_string(connection))) for c, check in checks)
    key = SQL(", ").join(Identifier(name) for name in managed.table.primary_key)
    columns = SQL(", ").join(SQL("{}::text").format(Identifier(c.name)) for c, _ in checks)
    row = connection.execute(
        SQL("SELECT ROW({})::text, {} FROM {} WHERE {} LIMIT 1").format(key, columns, source, conditions)
    ).fetchone()
    if row is not None:
        values = ", ".join(f"{c.name} = {value}" for (c, _), value in zip(checks, row[1:], strict=True))
        raise RefusedError(
            f"a row of {managed.table} holds a value Iceberg has no form for; nothing was changed",
            detail=f"primary key ({', '.join(managed.table.primary_key)}) = {row[0]}: {values}",
            hint="change that value (infinity, NaN), then run the same command again",
            sqlstate="22003",
        )


def _held(connection: Connection, managed: Managed) -> bool:
    """All that is hot follows what came back: only a run from the seam up can be archived."""
    row = connection.execute("SELECT held_from FROM frostline.tables WHERE id = %s", (managed.id,)).fetchone()
    return row is not None and row[0] is not None


def _limit(connection: Connection, managed: Managed) -> Composed:
    """The key below which rows are no longer hot: by the clock, or for an integer key by the largest one."""
    if managed.table.key_type.startswith("int"):
        newest = ddl.newest(connection, managed.table, managed.hot)
        return SQL("({}::bigint - {}::bigint)").format(Literal(newest), Literal(managed.hot_for))
    return SQL("({} - {}::interval)").format(ddl.clock(managed.table.key_type), Literal(managed.hot_for))


def _chosen(connection: Connection, managed: Managed, before: str) -> Composed:
    """A limit that a person gave, but not beyond the present."""
    type_ = "bigint" if managed.table.key_type.startswith("int") else "timestamptz"
    value = SQL("{}::{}").format(Literal(before), _sql(type_))
    try:
        connection.execute(SQL("SELECT {}").format(value))
    except psycopg.DataError:
        raise ConfigError(
            f"--before {before!r} is no {type_}, which the key of {managed.table} needs",
            hint=f"for example: --before {'1000000' if type_ == 'bigint' else '2026-01-01'}",
        ) from None
    if type_ == "timestamptz":
        return SQL("least({}, {})").format(value, ddl.clock(managed.table.key_type))
    newest = ddl.newest(connection, managed.table, managed.hot)
    return SQL("least({}, {}::bigint)").format(value, Literal(newest))


def _passed(connection: Connection, managed: Managed, upper: str, limit: Composed) -> bool:
    type_ = "bigint" if managed.table.key_type.startswith("int") else "timestamptz"
    query = SQL("SELECT {}::{}::{} <= {}").format(Literal(upper), _sql(managed.table.key_type), _sql(type_), limit)
    return connection.execute(query).fetchone() == (True,)


def _sql(text: str) -> SQL:
    return SQL(text)
