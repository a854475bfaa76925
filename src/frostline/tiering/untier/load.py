"""Step 1, load: the period's rows at one snapshot stream into a new leaf that nobody sees yet.

The leaf is filled by `COPY ... FREEZE` in the transaction that makes it: once it is attached, a transaction whose
snapshot is older than the leaf sees its rows too. It is made like a pattern, not like the table: whoever wanted to
alter the table would wait, with everybody behind him, until all rows are there.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import psycopg
from psycopg.sql import SQL, Composable, Composed, Identifier, Literal

from frostline.catalog import queries
from frostline.catalog.database import Connection, connect, out_of_reach
from frostline.catalog.registry import Managed
from frostline.config import Settings
from frostline.errors import Interrupted, OperationError, RefusedError
from frostline.faults import reached
from frostline.model.tables import Leaf
from frostline.report import Task
from frostline.tiering import ddl
from frostline.tiering.archive.steps import wanted
from frostline.tiering.digest import exported_snapshot, foreign_table
from frostline.tiering.locks import with_short_locks
from frostline.tiering.premake import clauses
from frostline.tiering.untier.operation import Operation

_BLOCK = 1 << 18  # bytes handed on at once
_LIKE = "INCLUDING DEFAULTS INCLUDING GENERATED INCLUDING CONSTRAINTS INCLUDING STORAGE INCLUDING COMPRESSION"


def load(connection: Connection, settings: Settings, operation: Operation, progress: Task) -> int:
    """Make the leaf and fill it; returns the number of rows."""
    dsn = settings.dsn.get_secret_value()
    work = partial(_make_pattern, connection, operation)
    with_short_locks(connection, work, f"making a leaf for {operation.period}", wanted(connection, operation))
    with (
        connect(dsn, application="frostline untier", autocommit=False) as reader,
        connect(dsn, application="frostline untier", autocommit=False) as loader,
    ):
        source = _source(reader, operation)
        managed = operation.managed
        unproven = queries.rows(loader, "unproven_constraints", oid=managed.table.oid, hot=managed.hot_oid)
        reached("load.snapshot")
        for statement in (*_leaf(loader, operation), *_dropped(operation, unproven)):
            loader.execute(statement)
        try:
            rows = _copy(reader, loader, operation, source, progress)
        except (psycopg.errors.CheckViolation, psycopg.errors.NotNullViolation) as error:
            raise _forbidden(operation, error) from None
        except psycopg.Error as error:
            raise _failed(operation, error) from error
        reached("load.copied")
        try:
            for statement in [*_keys(loader, operation), *_added(operation, unproven)]:
                loader.execute(statement)
        except psycopg.errors.UniqueViolation as error:
            raise RefusedError(
                f"{operation.period} stays in the lake: rows of it are what {error.diag.constraint_name} forbids",
                detail=error.diag.message_detail,
                hint=f"it was added when they were cold: change these rows, or drop the constraint of"
                f" {Identifier(*operation.managed.hot).as_string(loader)}, then run the same command again",
            ) from None
        loader.execute(SQL("ANALYZE {}").format(_name(operation)))
        _note(reader, loader, operation)
        reached("load.commit")
        loader.commit()
        reader.rollback()
    operation.leaf = made(connection, operation)
    reached("load.committed")
    refer(connection, operation)
    return rows


def made(connection: Connection, operation: Operation) -> Leaf:
    """The leaf as it waits in its schema."""
    found = queries.row(connection, "resolve", schema=operation.schema, name=operation.period.name)
    assert found is not None
    return Leaf(found[0], operation.schema, operation.period.name, operation.period.range)


def refer(connection: Connection, operation: Operation) -> None:
    """Foreign keys, each in two steps: writers of the referenced table wait for a moment only."""
    leaf = operation.leaf
    assert leaf is not None
    there = {name for name, *_ in queries.rows(connection, "constraints", oid=leaf.oid)}
    for name, kind, definition, _ in queries.rows(connection, "constraints", oid=operation.managed.hot_oid):
        if kind != "f":
            continue
        if name not in there:
            unproven = definition if definition.endswith((" NOT VALID", " NOT ENFORCED")) else f"{definition} NOT VALID"
            add = SQL("ALTER TABLE {} ADD CONSTRAINT {} {}").format(_name(operation), Identifier(name), SQL(unproven))
            work = partial(connection.execute, add)
            with_short_locks(connection, work, f"adding {name} to {leaf}", wanted(connection, operation, [leaf.oid]))
        if definition.endswith(" NOT ENFORCED"):
            continue
        try:
            connection.execute(SQL("ALTER TABLE {} VALIDATE CONSTRAINT {}").format(_name(operation), Identifier(name)))
        except psycopg.errors.ForeignKeyViolation as error:
            raise RefusedError(
                f"{operation.period} stays in the lake: rows of it refer to what is gone, and {name} forbids that",
                detail=error.diag.message_detail,
                hint="delete these rows or give them what they refer to, then run the same command again",
            ) from None


def _source(reader: Connection, operation: Operation) -> Identifier:
    """A foreign table that exists only inside the reader's transaction, and shows the period at its snapshot."""
    snapshot = exported_snapshot(reader)
    name = Identifier("frostline", f"untier_{operation.id}")
    reader.execute(foreign_table(operation.managed, name, operation.period.range, f" snapshot {snapshot}"))
    return name


def _make_pattern(connection: Connection, operation: Operation) -> None:
    """What the leaf is made like: no heap, so that nobody takes it for the leaf."""
    table = operation.managed.table
    connection.execute(SQL("CREATE SCHEMA {}").format(Identifier(operation.schema)))
    # Like the table itself: before 17 the hot partition has a default where the table has an identity.
    create = SQL("CREATE TABLE {} (LIKE {} {}) PARTITION BY RANGE ({})")
    parts = (_pattern(operation), Identifier(table.schema, table.name), SQL(_LIKE), Identifier(table.key))
    connection.execute(create.format(*parts))


def _leaf(connection: Connection, operation: Operation) -> list[Composed]:
    """A leaf like those that are hot, with the CHECKs that let it be attached without being read."""
    managed, name = operation.managed, _name(operation)
    like = next((leaf for leaf in managed.table.leaves if leaf.range is not None), None)
    row = queries.row(connection, "manner", oid=like.oid if like is not None else managed.hot_oid)
    assert row is not None
    options, tablespace, method, identity, _ = row
    checks = ddl.bound_checks(managed.table, operation.period.range, upper=True)
    full = {"f": "FULL", "n": "NOTHING"}.get(identity)
    return [
        SQL("CREATE TABLE {} (LIKE {} {}{}){}").format(
            name,
            _pattern(operation),
            SQL(_LIKE),
            SQL("").join(SQL(", CONSTRAINT {} CHECK ({})").format(Identifier(check), held) for check, held in checks),
            clauses(options if like is not None else None, tablespace, method),
        ),
        *([SQL(f"ALTER TABLE {{}} REPLICA IDENTITY {full}").format(name)] if full else []),
        *(
            SQL("ALTER TABLE {} ALTER COLUMN {} SET STATISTICS {}").format(name, Identifier(column), Literal(target))
            for column, target in queries.rows(
                connection, "statistics_targets", table=managed.table.oid, partition=operation.period.oid
            )
        ),
    ]


def _copy(reader: Connection, loader: Connection, operation: Operation, source: Identifier, progress: Task) -> int:
    columns = written(operation.managed)
    out = SQL("COPY (SELECT {} FROM {}) TO STDOUT").format(columns, source)
    into = SQL("COPY {} ({}) FROM STDIN (FREEZE)").format(_name(operation), columns)
    total = 0
    with reader.cursor() as from_, loader.cursor() as to, from_.copy(out) as rows, to.copy(into) as target:
        for number, block in _blocks(rows):
            target.write(block)
            total += number
            progress.advance(number)
    return total


def _blocks(rows: psycopg.Copy) -> Iterator[tuple[int, bytes]]:
    """Rows put together to blocks, with how many there are in each."""
    block, number = bytearray(), 0
    for row in rows:
        block += row
        number += 1
        if len(block) >= _BLOCK:
            yield number, bytes(block)
            block, number = bytearray(), 0
    yield number, bytes(block)


def _keys(loader: Connection, operation: Operation) -> Iterator[Composed]:
    """Key and indexes, built where nobody waits for them, under the names that Postgres gives by itself."""
    name = _name(operation)
    for _, kind, definition, _ in queries.rows(loader, "constraints", oid=operation.managed.hot_oid):
        if kind != "f":
            yield SQL("ALTER TABLE {} ADD {}").format(name, SQL(definition))
    for tablespace, unique, definition in queries.rows(loader, "indexes", oid=operation.managed.hot_oid):
        yield SQL("SET LOCAL default_tablespace = {}").format(tablespace or "")
        yield SQL("CREATE {}INDEX ON {} {}").format(SQL("UNIQUE " if unique else ""), name, SQL(definition))


def _dropped(operation: Operation, unproven: list[tuple[str, str]]) -> list[Composed]:
    """LIKE makes them hold for every row."""
    drop = SQL("ALTER TABLE {} DROP CONSTRAINT {}")
    return [drop.format(_name(operation), Identifier(name)) for name, _ in unproven]


def _added(operation: Operation, unproven: list[tuple[str, str]]) -> list[Composed]:
    add = SQL("ALTER TABLE {} ADD CONSTRAINT {} {}")
    return [add.format(_name(operation), Identifier(name), SQL(definition)) for name, definition in unproven]


def _note(reader: Connection, loader: Connection, operation: Operation) -> None:
    """What the leaf holds: which Iceberg snapshot, and which versions of the delta."""
    managed = operation.managed
    query = SQL(
        "SELECT t.snapshot_id, t.staged, ARRAY(SELECT d._seq FROM {} d WHERE {})"
        " FROM frostline.tables t WHERE t.id = {}"
    ).format(Identifier(*managed.delta), ddl.within(managed.table, operation.period.range), managed.id)
    row = reader.execute(query).fetchone()
    assert row is not None
    loader.execute(
        "UPDATE frostline.operations SET loaded_from = %s, loaded_staged = %s, loaded = %s WHERE id = %s",
        (*row, operation.id),
    )


def _pattern(operation: Operation) -> Identifier:
    return Identifier(operation.schema, operation.pattern)


def _name(operation: Operation) -> Identifier:
    return Identifier(operation.schema, operation.period.name)


def written(managed: Managed) -> Composable:
    """The columns that can be written; generated ones are computed again."""
    return SQL(", ").join(Identifier(c.name) for c in managed.table.columns if not c.generated)


def _forbidden(operation: Operation, error: psycopg.Error) -> RefusedError:
    """Postgres believes a constraint of cold rows without a look, and looks when they come back."""
    said = error.diag
    broken = said.constraint_name or f"NOT NULL of column {said.column_name}"
    return RefusedError(
        f"{operation.period} stays in the lake: rows of it do not satisfy {broken}",
        detail=" ".join(text for text in (said.message_primary, said.message_detail) if text),
        hint="it was added when they were cold: correct them (`frostline sync` has the statement), or drop the"
        " constraint, then run the same command again",
    )


def _failed(operation: Operation, error: psycopg.Error) -> OperationError:
    away = out_of_reach(error)
    return (Interrupted if away else OperationError)(
        f"{operation.period} could not be brought back; its rows stay in the lake as they were",
        detail=" ".join(str(error).split()),
        hint="is the gateway running? `frostline status` shows it, `frostline up` starts it"
        if away
        else "run the same command again",
    )
