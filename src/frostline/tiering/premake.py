"""Future partitions: made before they are needed, in the spacing and the manner of those that are there."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
from psycopg.sql import SQL, Composable, Composed, Identifier

from frostline.catalog import describe, queries
from frostline.catalog.database import Connection
from frostline.catalog.registry import Managed
from frostline.errors import OperationError
from frostline.model import spacing
from frostline.model.bounds import Range
from frostline.model.tables import Leaf, derived_name
from frostline.tiering import ddl
from frostline.tiering.locks import Wanted, with_short_locks


def premake(connection: Connection, managed: Managed) -> Iterator[str]:
    """Create what is missing, one by one: the current partition, and as many after it as the table's options say."""
    leaves = [leaf for leaf in managed.table.leaves if leaf.range is not None]
    # A partition that is no plain table takes its place as well.
    every = sorted([*leaves, *describe.branches(connection, managed.hot_oid)], key=describe.position)
    ranges = [leaf.range for leaf in every if leaf.range is not None]
    key_type, (home, now) = managed.table.key_type, _now(connection, managed)
    if not leaves or now is None or not _needed(ranges, now, managed.options.premake):
        return
    step = spacing.recognise(ranges, key_type, home)
    if step is None:
        raise OperationError(
            f"no partition of {managed.table} could be made: how they follow each other is not clear from their bounds",
            detail=f"the last one is {leaves[-1]}, {leaves[-1].range}",
            hint=f"create partitions under {'.'.join(managed.hot)} yourself, or end with two of equal width",
        )
    taken = {name for (name,) in queries.rows(connection, "names_in_schema", schema=leaves[-1].schema)}
    like = next(leaf for leaf in reversed(leaves) if leaf.range is not None and leaf.range.lower is not None)
    for range_ in spacing.missing(ranges, step, now, managed.options.premake, key_type):
        assert range_.lower is not None
        assert like.range is not None
        assert like.range.lower is not None
        wished = spacing.name_of(managed.table.name, (like.name, like.range.lower), range_.lower, step, key_type)
        name = derived_name(wished, "", taken)
        taken.add(name)
        _create(connection, managed, like, name, range_)
        yield f"{like.schema}.{name}"


def _needed(ranges: list[Range], now: int, premake: int) -> bool:
    """Unless there is room after the last partition, or now is in a hole, nothing has to be recognised."""
    if ranges[-1].upper is not None:
        return sum(r.lower is not None and r.lower.order > now for r in ranges) < premake or not _covered(ranges, now)
    return not _covered(ranges, now)


def _covered(ranges: list[Range], now: int) -> bool:
    return any((r.lower is None or r.lower.order <= now) and (r.upper is None or now < r.upper.order) for r in ranges)


def _now(connection: Connection, managed: Managed) -> tuple[str, int | None]:
    """The database's own time zone, and where the key is by now: the clock, or the largest number."""
    if managed.table.key_type.startswith("int"):
        return "UTC", ddl.newest(connection, managed.table, managed.hot)
    # What the session would have had; ours is set to UTC.
    row = connection.execute("SELECT reset_val FROM pg_settings WHERE name = 'TimeZone'").fetchone()
    assert row is not None
    return row[0], ddl.now(connection, managed.table.key_type)


def _create(connection: Connection, managed: Managed, like: Leaf, name: str, range_: Range) -> None:
    """Made apart and attached: that lets readers and writers of the table go on, CREATE ... PARTITION OF does not."""
    statements = _statements(connection, managed, like, Leaf(0, like.schema, name, range_))

    def work() -> None:
        for statement in statements:
            connection.execute(statement)

    try:
        with_short_locks(connection, work, f"creating {like.schema}.{name}", Wanted(written=[managed.hot_oid]))
    except psycopg.errors.CheckViolation as error:
        raise OperationError(
            f"partition {like.schema}.{name} ({range_}) could not be made: the DEFAULT partition holds rows of it",
            detail=error.diag.message_primary,
            hint="move those rows away and run the same command again; nothing was changed",
        ) from None


def _statements(connection: Connection, managed: Managed, like: Leaf, leaf: Leaf) -> list[Composed]:
    assert leaf.range is not None
    name, hot = Identifier(leaf.schema, leaf.name), Identifier(*managed.hot)
    row = queries.row(connection, "manner", oid=like.oid)
    assert row is not None
    options, tablespace, method, identity, policies = row
    checks = ddl.bound_checks(managed.table, leaf.range, upper=ddl.leaves_move(connection, managed.table))
    create = SQL(
        "CREATE TABLE {} (LIKE {} INCLUDING DEFAULTS INCLUDING GENERATED INCLUDING CONSTRAINTS INCLUDING STORAGE"
        " INCLUDING COMPRESSION{}){}"
    ).format(
        name,
        hot,
        SQL("").join(SQL(", CONSTRAINT {} CHECK ({})").format(Identifier(check), held) for check, held in checks),
        clauses(options, tablespace, method),
    )
    full = {"f": "FULL", "n": "NOTHING"}.get(identity)
    return [
        create,
        ddl.owned_by(name, managed.table),
        # A partition with policies is no example: they would have to be copied too.
        *ddl.same_grants(connection, None if policies else like.oid, (leaf.schema, leaf.name)),
        *([SQL(f"ALTER TABLE {{}} REPLICA IDENTITY {full}").format(name)] if full else []),
        ddl.attach(hot, leaf),
    ]


def clauses(options: list[str] | None, tablespace: str | None, method: str | None) -> Composable:
    parts: list[Composable] = []
    if method is not None:
        parts.append(SQL(" USING {}").format(Identifier(method)))
    if options:
        parts.append(SQL(" WITH ({})").format(SQL(", ".join(options))))
    if tablespace is not None:
        parts.append(SQL(" TABLESPACE {}").format(Identifier(tablespace)))
    return SQL("").join(parts)
