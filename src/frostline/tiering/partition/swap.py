"""The exchange: in one transaction the partitioned table takes the name of the plain one, and all that goes with it.

Everything is written down beforehand (shape.py), so the same statements are tried on the empty copy before the first
row is copied, and rolled back: whatever Postgres has against them is known then, and not after the last row.
"""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
from psycopg.sql import SQL, Composed, Identifier, Literal

from frostline.catalog import queries
from frostline.catalog.database import Connection
from frostline.errors import OperationError, RefusedError
from frostline.faults import reached
from frostline.model.tables import Table, derived_name
from frostline.tiering import ddl
from frostline.tiering.locks import Wanted, lock, referents, with_short_locks
from frostline.tiering.partition import copying, plan, shape, state
from frostline.tiering.partition.plan import KEPT
from frostline.tiering.partition.shape import Shape
from frostline.tiering.partition.state import Work

_CLOSED = "!frostline closed"
_APPLIED_UNDER_LOCK = 2_000
_ENABLED = {"D": "DISABLE", "R": "ENABLE REPLICA", "A": "ENABLE ALWAYS"}


class Behind(Exception):
    """More has changed since the last look than can be caught up with under a lock."""


def rehearse(connection: Connection, work: Work, now: Shape, wanted: Wanted) -> None:
    """All of the exchange, taken back at once."""

    def attempt() -> None:
        with connection.transaction() as savepoint:
            _lock(connection, work, now, wanted)
            _exchange(connection, work, now)
            raise psycopg.Rollback(savepoint)

    try:
        with_short_locks(connection, attempt, f"rehearsing the swap of {work.plan}", wanted)
    except (psycopg.errors.LockNotAvailable, psycopg.errors.DeadlockDetected):
        raise
    except psycopg.Error as error:
        raise RefusedError(
            f"{work.plan} cannot be partitioned as it is; nothing was changed",
            detail=f"Postgres says: {error.diag.message_primary}",
            hint=error.diag.message_hint or "remove what this is about, and create it again afterwards",
        ) from error


def swap(connection: Connection, work: Work, table: Table, wanted: Wanted) -> None:
    """For good: with what changed at last, and nothing else changed since the beginning."""

    def exchange() -> None:
        _lock(connection, work, shape.read(connection, work.source), wanted)
        reached("partition.locked")
        now = _unchanged(connection, work)
        row = connection.execute(
            SQL("SELECT count(*) FROM (SELECT FROM {} LIMIT {}) few").format(work.log, _APPLIED_UNDER_LOCK + 1)
        ).fetchone()
        if row is None or row[0] > _APPLIED_UNDER_LOCK:
            raise Behind
        copying.apply_now(connection, work, table, None)
        _exchange(connection, work, now)
        work.state, work.shape = "swapped", now.json()
        state.record(connection, work)
        reached("partition.swap")

    try:
        with_short_locks(connection, exchange, f"swapping {work.plan}", wanted)
    except BaseException:
        if work.state == "swapped" and not connection.broken:
            work.state = "copied"
        raise


def _unchanged(connection: Connection, work: Work) -> Shape:
    """What the copy was made after is as it was; the rest is carried over as it is now."""
    copying.check_triggers(connection, work)
    now = shape.read(connection, work.source)
    changed = [part for part in shape.COPIED if now.json()[part] != work.shape[part]]
    if not changed and copying.standing(connection, work) != work.compared:
        raise OperationError(
            f"{work.plan} was altered meanwhile (its rows); it is as it was",
            hint="run the same command again: it compares them once more",
        )
    named = queries.row(connection, "resolve", schema=work.plan.schema, name=work.plan.name)
    if changed or named is None or named[0] != work.source:
        raise OperationError(
            f"{work.plan} was altered meanwhile ({', '.join(changed) or 'its name'}); it is as it was",
            hint=f"undo that, or begin anew: frostline partition {work.plan.pasted} --abandon,"
            " then the same command again",
        )
    name = (work.plan.schema, work.plan.name)
    plan.refuse(name, list(plan.others(connection, work.source, work.plan.by)))
    return now


def _lock(connection: Connection, work: Work, now: Shape, wanted: Wanted) -> None:
    """From where readers and writers come: views, then the table; referenced tables before all."""
    referenced = [(name, "SHARE ROW EXCLUSIVE") for name, _ in referents(connection, [work.source])]
    lock(connection, referenced, wanted.timeout_ms)
    for schema, name, _, _, owner in now.views:
        # LOCK TABLE would lock whatever else the view reads; this locks the view alone, and changes nothing.
        connection.execute(SQL("ALTER VIEW {} OWNER TO {}").format(Identifier(schema, name), _sql(owner)))
    lock(connection, [(work.plan.table, "ACCESS EXCLUSIVE"), (work.plan.target, "ACCESS EXCLUSIVE")], wanted.timeout_ms)


def _exchange(connection: Connection, work: Work, now: Shape) -> None:
    for statement in statements(connection, work, now):
        connection.execute(statement)


def statements(connection: Connection, work: Work, now: Shape) -> Iterator[Composed]:
    """In an order in which every name is free when it is wanted."""
    space, table = work.plan.schema, work.plan.table
    # What is kept is called so before anything else is: none of the others may get that name.
    taken = {name for (name,) in queries.rows(connection, "names_in_schema", schema=space)} | {work.plan.kept}
    copied = _copied_names(connection, work)
    old = Identifier(space, work.plan.kept)
    yield from copying.drop_triggers(table)
    for name, *_ in now.foreign_keys:  # its copy is to keep nothing from being deleted
        yield SQL("ALTER TABLE {} DROP CONSTRAINT {}").format(table, Identifier(name))
    yield from _unpublish(table, now)
    yield SQL("ALTER TABLE {} RENAME TO {}").format(table, Identifier(work.plan.kept))
    renamed = [now.primary_key[0], *(name for name, *_ in now.indexes)]
    for name in renamed:
        yield _rename_index(space, name, _kept_name(name, taken))
    yield SQL("ALTER TABLE {} RENAME TO {}").format(work.plan.target, Identifier(work.plan.name))
    for temporary, name in zip(copied, renamed, strict=True):
        yield _rename_index(space, temporary, name)
    yield from _sequences(connection, work, now, taken)
    yield from _foreign_keys(work, now)
    yield from _statistics(now, taken)
    yield from _attached(table, now)
    yield from _rights(table, now)
    yield from _comments(space, table, now)
    for schema, name, definition, options, _ in now.views:
        with_options = f" WITH ({', '.join(options)})" if options else ""
        yield SQL(f"CREATE OR REPLACE VIEW {{}}{with_options} AS {{}}").format(
            Identifier(schema, name), _sql(definition)
        )
    yield SQL(
        "CREATE TRIGGER {} BEFORE INSERT OR UPDATE OR DELETE OR TRUNCATE ON {} FOR EACH STATEMENT"
        " EXECUTE FUNCTION frostline.closed()"
    ).format(Identifier(_CLOSED), old)
    yield SQL("ALTER TABLE {} ENABLE ALWAYS TRIGGER {}").format(old, Identifier(_CLOSED))


def _copied_names(connection: Connection, work: Work) -> list[str]:
    """The copy's indexes: of its primary key, then those that were made, in the order of the shape."""
    row = queries.row(connection, "plain_primary_key", oid=work.target)
    assert row is not None
    return [row[0], *(name for name, *_ in made_indexes(work))]


def made_indexes(work: Work) -> list[tuple[str, Composed]]:
    """The names that secondary indexes have until the swap, and how they are made."""
    found = []
    for number, (_, unique, definition, _, constraint, _) in enumerate(work.shape["indexes"], 1):
        name = derived_name(work.plan.copy, f"_{number}")
        if constraint is not None:
            add = SQL("ALTER TABLE {} ADD CONSTRAINT {} {}").format(
                work.plan.target, Identifier(name), _sql(constraint)
            )
            found.append((name, add))
            continue
        create = SQL(f"CREATE {'UNIQUE ' if unique else ''}INDEX {{}} ON {{}} {{}}").format(
            Identifier(name), work.plan.target, _sql(definition)
        )
        found.append((name, create))
    return found


def dropped_indexes(work: Work) -> list[Composed]:
    return [
        SQL("DROP INDEX {}").format(Identifier(work.plan.schema, name))
        if constraint is None
        else SQL("ALTER TABLE {} DROP CONSTRAINT {}").format(work.plan.target, Identifier(name))
        for (name, _), (*_, constraint, _) in zip(made_indexes(work), work.shape["indexes"], strict=True)
    ]


def _kept_name(name: str, taken: set[str]) -> str:
    """Long names begin alike, and are cut to that: each is taken once it is given."""
    kept = derived_name(name, KEPT, taken)
    taken.add(kept)
    return kept


def _rename_index(schema: str, name: str, to: str) -> Composed:
    return SQL("ALTER INDEX {} RENAME TO {}").format(Identifier(schema, name), Identifier(to))


def _sequences(connection: Connection, work: Work, now: Shape, taken: set[str]) -> Iterator[Composed]:
    table = work.plan.table
    identity = {name: kind for name, _, _, _, kind, *_ in now.columns}
    for dependency, column, schema, name, oid in now.sequences:
        sequence, of = Identifier(schema, name), Identifier(column)
        if dependency == "a":
            yield SQL("ALTER SEQUENCE {} OWNED BY {}.{}").format(sequence, table, of)
            continue
        options = queries.row(connection, "sequence_options", oid=oid)
        assert options is not None
        _, start, increment, least, most, cache, cycle = options
        kept = _kept_name(name, taken)
        always = "ALWAYS" if identity[column] == "a" else "BY DEFAULT"
        yield SQL("ALTER SEQUENCE {} RENAME TO {}").format(sequence, Identifier(kept))
        yield SQL(
            f"ALTER TABLE {{}} ALTER COLUMN {{}} ADD GENERATED {always} AS IDENTITY (SEQUENCE NAME {{}}"
            f" START {start} INCREMENT {increment} MINVALUE {least} MAXVALUE {most} CACHE {cache}"
            f" {'CYCLE' if cycle else 'NO CYCLE'})"
        ).format(table, of, sequence)
        yield SQL("SELECT setval({}::regclass, last_value, is_called) FROM {}").format(
            Literal(sequence.as_string(connection)), Identifier(schema, kept)
        )
        for role, privilege, grantable, _ in queries.rows(connection, "all_grants", oid=oid):
            option = " WITH GRANT OPTION" if grantable else ""
            yield SQL(f"GRANT {privilege} ON SEQUENCE {{}} TO {{}}{option}").format(sequence, _sql(role))


def _foreign_keys(work: Work, now: Shape) -> Iterator[Composed]:
    """On every partition, for new rows; that the old ones hold is proven afterwards, without a lock that matters."""
    for leaf in work.plan.leaves():
        for name, definition, _ in now.foreign_keys:
            yield SQL("ALTER TABLE {} ADD CONSTRAINT {} {} NOT VALID").format(leaf, Identifier(name), _sql(definition))


def _statistics(now: Shape, taken: set[str]) -> Iterator[Composed]:
    for schema, name, definition, comment, target in now.statistics:
        here = Identifier(schema, name)
        yield SQL("ALTER STATISTICS {} RENAME TO {}").format(here, Identifier(_kept_name(name, taken)))
        yield SQL("{}").format(_sql(definition))
        yield SQL("ALTER STATISTICS {} OWNER TO {}").format(here, Identifier(now.owner))
        if target is not None:
            yield SQL("ALTER STATISTICS {} SET STATISTICS {}").format(here, Literal(target))
        if comment is not None:
            yield SQL("COMMENT ON STATISTICS {} IS {}").format(here, Literal(comment))


def _attached(table: Identifier, now: Shape) -> Iterator[Composed]:
    """Triggers, policies, publications, replica identity."""
    for name, definition, enabled, comment in now.triggers:
        yield SQL("{}").format(_sql(definition))
        if enabled in _ENABLED:
            yield SQL(f"ALTER TABLE {{}} {_ENABLED[enabled]} TRIGGER {{}}").format(table, Identifier(name))
        if comment is not None:
            yield SQL("COMMENT ON TRIGGER {} ON {} IS {}").format(Identifier(name), table, Literal(comment))
    for name, kind, command, roles, using, check, comment in now.policies:
        conditions = (f" USING ({using})" if using else "") + (f" WITH CHECK ({check})" if check else "")
        yield SQL(f"CREATE POLICY {{}} ON {{}} AS {kind} FOR {command} TO {{}}{{}}").format(
            Identifier(name), table, _sql(roles), _sql(conditions)
        )
        if comment is not None:
            yield SQL("COMMENT ON POLICY {} ON {} IS {}").format(Identifier(name), table, Literal(comment))
    if now.row_security:
        yield SQL("ALTER TABLE {} ENABLE ROW LEVEL SECURITY").format(table)
    if now.forced:
        yield SQL("ALTER TABLE {} FORCE ROW LEVEL SECURITY").format(table)
    if now.replica_identity in ("f", "n"):
        kind = {"f": "FULL", "n": "NOTHING"}[now.replica_identity]
        yield SQL(f"ALTER TABLE {{}} REPLICA IDENTITY {kind}").format(table)
    for publication, columns, condition in now.publications:
        only = f" ({columns})" if columns else ""
        where = f" WHERE ({condition})" if condition else ""
        yield SQL("ALTER PUBLICATION {} ADD TABLE {}{}{}").format(
            Identifier(publication), table, _sql(only), _sql(where)
        )


def _unpublish(table: Identifier, now: Shape) -> Iterator[Composed]:
    for publication, *_ in now.publications:
        yield SQL("ALTER PUBLICATION {} DROP TABLE {}").format(Identifier(publication), table)


def _rights(table: Identifier, now: Shape) -> Iterator[Composed]:
    for role, privilege, grantable, column in now.grants:
        yield ddl.grant(table, role, privilege, grantable, column)


def _comments(schema: str, table: Identifier, now: Shape) -> Iterator[Composed]:
    if now.comment is not None:
        yield SQL("COMMENT ON TABLE {} IS {}").format(table, Literal(now.comment))
    name, _, _, comment, of_index, _ = now.primary_key
    for constraint, text in ((name, comment), *((index, text) for index, *_, text in now.indexes)):
        if text is not None:
            yield SQL("COMMENT ON CONSTRAINT {} ON {} IS {}").format(Identifier(constraint), table, Literal(text))
    for index, text in ((name, of_index), *((index, text) for index, _, _, text, *_ in now.indexes)):
        if text is not None:
            yield SQL("COMMENT ON INDEX {} IS {}").format(Identifier(schema, index), Literal(text))


def prove_foreign_keys(connection: Connection, work: Work, wanted: Wanted) -> None:
    """Each partition's, one by one; then the table has them too, and no row is read for it."""
    for schema, leaf, name in queries.rows(connection, "leaf_foreign_keys", oid=work.target):
        validate = SQL("ALTER TABLE {} VALIDATE CONSTRAINT {}").format(Identifier(schema, leaf), Identifier(name))
        _short(connection, validate, f"validating {name} of {leaf}", wanted)
        reached("partition.proven")
    there = {name for name, *_ in queries.rows(connection, "plain_foreign_keys", oid=work.target)}
    table = work.plan.table
    for name, definition, comment in work.shape["foreign_keys"]:
        if name in there:
            continue
        add = SQL("ALTER TABLE {} ADD CONSTRAINT {} {}").format(table, Identifier(name), _sql(definition))
        _short(connection, add, f"adding {name} to {work.plan}", wanted)
        if comment is not None:
            connection.execute(
                SQL("COMMENT ON CONSTRAINT {} ON {} IS {}").format(Identifier(name), table, Literal(comment))
            )


def _short(connection: Connection, statement: Composed, what: str, wanted: Wanted) -> None:
    with_short_locks(connection, lambda: connection.execute(statement), what, wanted)


def _sql(text: str) -> SQL:
    return SQL(text)
