"""Steps 5 and 6, swap and drop: the foreign partition takes the leaf's place and name in one short transaction."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import psycopg
from psycopg.sql import SQL, Composed, Identifier, Literal
from psycopg.types.json import Jsonb

from frostline.catalog import describe, queries
from frostline.catalog.database import Connection
from frostline.delta import tables as delta
from frostline.faults import reached
from frostline.lake.catalog import Snapshot
from frostline.model.bounds import Range
from frostline.model.tables import Leaf
from frostline.tiering import ddl
from frostline.tiering.archive import capture, default
from frostline.tiering.archive.plan import check_values
from frostline.tiering.archive.steps import Operation, wanted
from frostline.tiering.locks import Wanted, lock, referents, with_short_locks

_GONE = "!frostline archived"
_TRIES = 10  # then even many changes are carried under the locks


def swap(connection: Connection, operation: Operation, snapshot: Snapshot) -> None:
    """Readers see the leaf before and the lake after; seam and snapshot move in the same transaction."""
    managed, leaf, tries, fetch = operation.managed, operation.leaf, 0, ddl.FETCH_ROWS
    beside: tuple[Leaf, ...] = ()

    def work() -> bool:
        # Rows of a partition that somebody has taken away belong to the DEFAULT one now, whose CHECK knows the others.
        if describe.leaves(connection, managed.hot_oid) != beside:
            return False
        lock(connection, _locks(connection, operation), _patience_ms(connection, operation))
        reached("swap.locked")
        moved = _others(connection, operation) if ddl.leaves_move(connection, managed.table) else []
        _check_unchanged(connection, operation)
        if tries < _TRIES and capture.behind(connection, operation):
            return False
        # The leaf is locked: what is carried now is the last, and the lake must be able to hold it.
        _, first = capture.carry(connection, operation)
        if first is not None:
            last = SQL("(SELECT * FROM {} WHERE _seq >= {}) v").format(Identifier(*managed.delta), Literal(first))
            check_values(connection, managed, last)
        _rename_indexes(connection, operation)
        for point, statements in _statements(operation, moved, fetch):
            connection.execute(SQL("; ").join(statements))  # in one message: everybody waits
            reached(point)
        for statement in default.opened(connection, managed):
            connection.execute(statement)
        _check_droppable(connection, operation)
        source = None if _leaf_has_policies(operation) else leaf.oid
        for grant in ddl.same_grants(connection, source, (leaf.schema, leaf.name)):
            connection.execute(grant)
        _record(connection, operation, snapshot)
        reached("swap.commit")
        return True

    try:
        fetch = _fetch_rows(connection, operation)
        done = False
        while not done:
            tries += 1
            if (now := describe.leaves(connection, managed.hot_oid)) != beside:
                beside = now
                default.close(connection, operation, now)
            capture.catch_up(connection, operation)
            check_values(connection, managed, SQL("{}").format(Identifier(*managed.delta)))
            done = with_short_locks(connection, work, f"swapping {leaf}", _wanted(connection, operation))
    except psycopg.errors.UndefinedTable as error:
        raise capture.altered(operation) from error


def drop(connection: Connection, operation: Operation) -> None:
    """The detached leaf goes; one that is gone already is no error."""
    parked = Identifier(delta.SCHEMA, operation.parked)

    def work() -> None:
        found = queries.row(connection, "resolve", schema=delta.SCHEMA, name=operation.parked)
        # Who deletes from a referenced table comes to the leaf second, to look for rows there; so do we.
        referenced = referents(connection, [found[0]]) if found is not None else []
        lock(connection, [(name, "ACCESS EXCLUSIVE") for name, _ in referenced], operation.locks.timeout_ms)
        connection.execute(SQL("DROP TABLE IF EXISTS {}").format(parked))
        reached("drop.commit")

    oid = operation.leaf.oid
    locks = wanted(connection, operation, [oid, *(oid for _, oid in referents(connection, [oid]))])
    with_short_locks(connection, work, f"dropping {operation.leaf}", locks)


def keep_sequences(connection: Connection, leaf: Leaf, locks: Wanted) -> None:
    """A leaf that was once a table of its own may own the sequence that everybody goes on using: it stays."""
    owned = [row[2:] for row in queries.rows(connection, "plain_sequences", oid=leaf.oid) if row[0] == "a"]
    for schema, name, oid in owned:
        statement = SQL("ALTER SEQUENCE {} OWNED BY NONE").format(Identifier(schema, name))
        work = partial(connection.execute, statement)
        with_short_locks(connection, work, f"keeping {schema}.{name}", replace(locks, relations=[oid]))


def _locks(connection: Connection, operation: Operation) -> list[tuple[Identifier, str]]:
    """All that the statements below will lock, from the top down as every statement on the table does.

    Referenced tables come first: whoever deletes from one holds it while he looks for rows that refer to his, and would
    wait for us with what we wait for. Whoever inserts comes to them last, with a lock that this one does not keep out.
    Detaching the hot partition locks all its leaves, whoever else may use them.
    """
    leaves = [operation.leaf, *_others(connection, operation)]
    exclusive = [_parent(operation), Identifier(*operation.managed.hot)]
    exclusive += [Identifier(leaf.schema, leaf.name) for leaf in leaves]
    shared = [(name, "SHARE ROW EXCLUSIVE") for name, _ in referents(connection, [leaf.oid for leaf in leaves])]
    return shared + [(name, "ACCESS EXCLUSIVE") for name in exclusive]


def _patience_ms(connection: Connection, operation: Operation) -> int:
    """Whoever comes while we wait for our locks waits for the swap too: the longer that takes, the shorter we wait."""
    whole = operation.locks.timeout_ms
    if not ddl.leaves_move(connection, operation.managed.table):
        return whole
    return max(whole // 4, whole - len(_others(connection, operation)))  # a millisecond for each leaf


def _wanted(connection: Connection, operation: Operation) -> Wanted:
    """The same, for `frostline status`."""
    managed = operation.managed
    leaves = [operation.leaf.oid, *(leaf.oid for leaf in _others(connection, operation))]
    referenced = [oid for _, oid in referents(connection, leaves)]
    return wanted(connection, operation, [managed.table.oid, managed.hot_oid, *leaves], written=referenced)


def _others(connection: Connection, operation: Operation) -> list[Leaf]:
    """The other hot leaves: not as they were when the run began, someone may have created one since."""
    return [leaf for leaf in describe.leaves(connection, operation.managed.hot_oid) if leaf.oid != operation.leaf.oid]


def _check_unchanged(connection: Connection, operation: Operation) -> None:
    """Under the lock: what was exported and captured is still this table and this leaf, all of it."""
    managed, leaf = operation.managed, operation.leaf
    named = [
        (queries.row(connection, "resolve", schema=schema, name=name) or (None,))[0]
        for schema, name in ((managed.table.schema, managed.table.name), managed.hot)
    ]
    if named != [managed.table.oid, managed.hot_oid] or capture.state(connection, managed, leaf) != operation.captured:
        raise capture.altered(operation)


def _check_droppable(connection: Connection, operation: Operation) -> None:
    """Tried in a savepoint, for only Postgres knows all that may depend on a table."""
    stays = f"{operation.leaf} stays in Postgres: something depends on that partition itself"
    with ddl.droppable(stays), connection.transaction() as attempt:
        connection.execute(SQL("DROP TABLE {}").format(Identifier(delta.SCHEMA, operation.parked)))
        raise psycopg.Rollback(attempt)


def _statements(operation: Operation, moved: list[Leaf], fetch: int) -> list[tuple[str, list[Composed]]]:
    """What is done, up to which point."""
    managed, leaf = operation.managed, operation.leaf
    table = managed.table
    parent, hot, old = _parent(operation), Identifier(*managed.hot), _leaf(operation)
    parked = Identifier(delta.SCHEMA, operation.parked)
    detach = SQL("ALTER TABLE {} DETACH PARTITION {}")
    park = [
        *capture.drop_triggers(leaf.schema, leaf.name),
        SQL("ALTER TABLE {} RENAME TO {}").format(old, Identifier(operation.parked)),
        SQL("ALTER TABLE {} SET SCHEMA {}").format(Identifier(leaf.schema, operation.parked), Identifier(delta.SCHEMA)),
        # A prepared statement knows the leaf by its OID and would go on writing into it.
        SQL(
            "CREATE TRIGGER {} BEFORE INSERT OR UPDATE OR DELETE OR TRUNCATE ON {}"
            " FOR EACH STATEMENT EXECUTE FUNCTION {}()"
        ).format(Identifier(_GONE), parked, Identifier(delta.SCHEMA, delta.archived_name(managed.id))),
        SQL("ALTER TABLE {} ENABLE ALWAYS TRIGGER {}").format(parked, Identifier(_GONE)),
    ]
    attach = SQL("ALTER TABLE {} ATTACH PARTITION {} {}").format(
        parent, hot, ddl.for_values(Range(operation.range.upper, None))
    )
    return [
        ("swap.detached", [detach.format(hot, old)]),
        ("swap.hot_detached", [*(ddl.detach(hot, other) for other in moved), detach.format(parent, hot)]),
        ("swap.parked", park),
        (
            "swap.foreign",
            ddl.foreign_partition(table, (leaf.schema, leaf.name), managed.id, operation.range, fetch),
        ),
        ("swap.attached", [attach, *(ddl.attach(hot, other) for other in moved)]),
    ]


def _fetch_rows(connection: Connection, operation: Operation) -> int:
    """As a sample of some pages says: their rows as text, which is what is fetched."""
    sample = SQL(
        "SELECT avg(octet_length(ROW(l.*)::text))::float8 FROM (SELECT * FROM ONLY {leaf} TABLESAMPLE SYSTEM"
        " (least(100, 100.0 * 50 * current_setting('block_size')::int / greatest(pg_relation_size({oid}), 1)))"
        " ORDER BY random() LIMIT 500) l"
    ).format(leaf=_leaf(operation), oid=Literal(operation.leaf.oid))
    row = connection.execute(sample).fetchone()
    return ddl.fetch_rows(row[0]) if row is not None and row[0] is not None else ddl.FETCH_ROWS


def _rename_indexes(connection: Connection, operation: Operation) -> None:
    """They go where the leaf waits, and another table's leaf may wait there with indexes of the same names."""
    names = connection.execute(
        "SELECT c.relname FROM pg_index x JOIN pg_class c ON c.oid = x.indexrelid WHERE x.indrelid = %s ORDER BY c.oid",
        (operation.leaf.oid,),
    ).fetchall()
    for number, (name,) in enumerate(names):
        connection.execute(
            SQL("ALTER INDEX {} RENAME TO {}").format(
                Identifier(operation.leaf.schema, name), Identifier(f"{operation.parked}_{number}")
            )
        )


def _leaf_has_policies(operation: Operation) -> bool:
    """A foreign table has no policies: grants on a leaf that has some would show more than the leaf did."""
    return operation.captured is not None and bool(operation.captured[2])


def _parent(operation: Operation) -> Identifier:
    return Identifier(operation.managed.table.schema, operation.managed.table.name)


def _leaf(operation: Operation) -> Identifier:
    return Identifier(operation.leaf.schema, operation.leaf.name)


def _record(connection: Connection, operation: Operation, snapshot: Snapshot) -> None:
    upper = operation.range.upper
    assert upper is not None
    connection.execute(
        "UPDATE frostline.tables SET seam = %s, snapshot_id = %s, metadata_location = %s, held_from = NULL"
        " WHERE id = %s",
        (upper.text, snapshot.id, snapshot.metadata_location, operation.managed.id),
    )
    connection.execute(
        "INSERT INTO frostline.periods"
        " (table_id, lower, upper, foreign_table, rows, bytes, files, operation_id, digest)"
        " VALUES (%s, %s, %s, %s::regclass, %s, %s, %s, %s, %s)",
        (
            operation.managed.id,
            operation.range.lower.text if operation.range.lower else None,
            upper.text,
            _leaf(operation).as_string(connection),
            snapshot.rows,
            snapshot.bytes,
            snapshot.files,
            operation.id,
            Jsonb(operation.digest.json()) if operation.digest is not None else None,
        ),
    )
