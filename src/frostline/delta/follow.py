"""Whatever is made for a table's cold rows follows the table: its delta, the foreign table of held versions, functions.

Columns are known by their attribute number, so that a rename is a rename and a column of the same name is another one.
No event tells that a table was altered: whoever needs the delta compares the table's shape with the one it was last
made for. Nothing here rewrites the delta, or older snapshots would find it empty.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import psycopg
from psycopg.sql import SQL, Composed, Identifier, Literal
from psycopg.types.json import Jsonb

from frostline.catalog import queries, registry
from frostline.catalog.database import BUSY, LOCK_TIMEOUT_MS, Connection
from frostline.catalog.names import SHAPE, reserved
from frostline.catalog.registry import Managed
from frostline.delta import collect, tables
from frostline.delta.collect import Connections, ForeignKey, Target
from frostline.errors import DatabaseError, OperationError, RefusedError
from frostline.model import types
from frostline.model.tables import Column, Table, as_sql, fill_call, keep_call

_PAUSE_SECONDS = 0.05


@dataclass(frozen=True)
class Recorded:
    """What the registry knows of a column."""

    number: int
    lake_name: str | None
    field_id: int | None
    delta_name: str | None
    base: int | None
    typmod: int
    type: str
    typname: str
    builtin: bool
    missing: str | None
    undecided: str | None
    sense: Any
    computed: str | None  # how its expression was changed


@dataclass(frozen=True)
class Seen:
    """The table at one moment. Our lock keeps it as it is, but not the types of its columns."""

    shape: str
    senses: dict[int, Any]  # by attribute number


def follow(connection: Connection, id_: int, patience: float = 5.0) -> Managed:
    """Make what belongs to a table follow it, in a transaction of its own; the table as it is then."""
    deadline = time.monotonic() + patience
    while True:
        try:
            with connection.transaction():
                connection.execute(f"SET LOCAL lock_timeout = '{LOCK_TIMEOUT_MS}ms'")
                return _follow(connection, id_)
        except BUSY as busy:
            if time.monotonic() > deadline:
                raise OperationError(
                    f"what belongs to the table registered under number {id_} could not follow its new columns",
                    detail="; ".join(_in_the_way(connection, id_)) or str(busy).strip(),
                    hint="nothing was changed; a fold keeps the delta as it is until it is over: try again then",
                    sqlstate="55P03",
                ) from busy
        except psycopg.errors.InsufficientPrivilege as error:
            raise OperationError(
                f"what belongs to the table registered under number {id_} must follow its new columns",
                detail=str(error).strip(),
                hint="run `frostline sync` as the role that registered the table",
                sqlstate="42501",
            ) from None
        time.sleep(_PAUSE_SECONDS)


def recorded(connection: Connection, id_: int) -> dict[int, Recorded]:
    """By attribute number; those of dropped columns included."""
    return {row[0]: Recorded(*row) for row in queries.rows(connection, "recorded_columns", table=id_)}


def foreign_keys(connection: Connection, relation: int) -> tuple[ForeignKey, ...]:
    """The outbound foreign keys of a relation."""
    return tuple(
        ForeignKey(name, tuple(columns), (schema, referenced), tuple(keys), full)
        for name, columns, schema, referenced, keys, full in queries.rows(
            connection, "foreign_key_checks", oid=relation
        )
    )


def connections(connection: Connection) -> Connections:
    """How sessions know that they have used the gateway."""
    found = queries.row(connection, "fdw_connections")
    if found is None:
        raise DatabaseError("the extension postgres_fdw is not installed", hint="run frostline init")
    return Connections(*found)


def _follow(connection: Connection, id_: int) -> Managed:
    managed = registry.get_by_id(connection, id_)
    if _current(connection, id_):
        return managed
    owner = queries.row(connection, "owner", oid=managed.delta_oid)
    assert owner is not None
    # What is made anew belongs to whom it belonged.
    connection.execute(SQL("SET LOCAL ROLE {}").format(Identifier(owner[0])))
    # Who alters the table waits for us from here on, and two of us for each other.
    name = Identifier(managed.table.schema, managed.table.name)
    connection.execute(SQL("LOCK TABLE ONLY {} IN ACCESS SHARE MODE").format(name))
    connection.execute("SELECT pg_advisory_xact_lock(%s, %s)", (SHAPE, id_))
    if _current(connection, id_):
        return registry.get_by_id(connection, id_)
    managed = registry.get_by_id(connection, id_)
    seen = _seen(connection, id_)
    known = recorded(connection, id_)
    _note_added(connection, managed, known)
    known = recorded(connection, id_)
    lock = SQL("LOCK TABLE {} IN ACCESS EXCLUSIVE MODE").format(Identifier(*managed.delta))
    retyped: list[Composed] = []
    try:
        _refuse(connection, managed, known, seen)
    except RefusedError:
        if not _bare(connection, managed, known, lock):
            raise
        retyped = _retyped(managed, known)
        _forget(connection, managed)
        known = recorded(connection, id_)
        _refuse(connection, managed, known, seen)
    statements = [*_delta_changes(managed, known), *retyped]
    if statements:
        statements = [lock, *_stop(connection, managed), *statements, *collect.held(_target(connection, managed))]
    for statement in (*statements, *_made_anew(connection, managed)):
        connection.execute(statement)
    _record(connection, managed, known, seen)
    return registry.get_by_id(connection, id_)


def _bare(connection: Connection, managed: Managed, known: dict[int, Recorded], lock: Composed) -> bool:
    """Whether there is no cold row that could have another idea of the columns, nor a table in the lake."""
    if managed.snapshot_id is not None or any(found.field_id is not None for found in known.values()):
        return False
    connection.execute(lock)  # nor does one come
    query = SQL("SELECT EXISTS (SELECT FROM {})").format(Identifier(*managed.delta))
    return connection.execute(query).fetchone() == (False,)


def _retyped(managed: Managed, known: dict[int, Recorded]) -> list[Composed]:
    """The empty delta gets the types that the columns have now."""
    alter = SQL("ALTER TABLE {} ALTER COLUMN {} TYPE {type} USING NULL::{type}")
    return [
        alter.format(Identifier(*managed.delta), Identifier(column.name), type=SQL(types.delta_type(column.base_type)))
        for column in managed.table.stored
        if known[column.number].delta_name is not None and not _readable(column, known[column.number])
    ]


def _forget(connection: Connection, managed: Managed) -> None:
    """What is recorded of columns is as if the table were registered now."""
    for column in managed.table.stored:
        connection.execute(
            "UPDATE frostline.columns SET base = %s::oid, typmod = %s, sense = NULL, expression = NULL,"
            " missing = NULL, undecided = NULL"
            " WHERE table_id = %s AND attnum = %s",
            (*column.base, managed.id, column.number),
        )


def _stop(connection: Connection, managed: Managed) -> list[Composed]:
    """A period on its way back gets changes by a trigger on the delta; without it, it is not attached any more."""
    found = connection.execute(
        "SELECT tgname FROM pg_trigger WHERE tgrelid = %s AND tgname LIKE '!frostline follow %%'", (managed.delta_oid,)
    )
    delta = Identifier(*managed.delta)
    return [SQL("DROP TRIGGER {} ON {}").format(Identifier(name), delta) for (name,) in found]


def _current(connection: Connection, id_: int) -> bool:
    row = queries.row(connection, "shape", table=id_)
    return row is not None and row[0] == row[1]


def _seen(connection: Connection, id_: int) -> Seen:
    found: Any = queries.row(connection, "senses", table=id_)
    return Seen(found[0], {int(number): sense for number, sense in found[1].items()})


def _note_added(connection: Connection, managed: Managed, known: Iterable[int]) -> None:
    """Record the columns that are new, with the value older rows have, while it can be found out."""
    added = {
        number: (missing, undecided)
        for number, missing, undecided in connection.execute("SELECT * FROM frostline.added_columns(%s)", (managed.id,))
    }
    for column in managed.table.stored:
        if column.number in added and column.number not in set(known):
            connection.execute(
                "INSERT INTO frostline.columns (table_id, attnum, base, typmod, missing, undecided)"
                " VALUES (%s, %s, %s::oid, %s, %s, %s) ON CONFLICT DO NOTHING",
                (managed.id, column.number, *column.base, *added[column.number]),
            )


def _refuse(connection: Connection, managed: Managed, known: dict[int, Recorded], seen: Seen) -> None:
    """What cold rows cannot follow, each with the way out."""
    table = managed.table
    _refuse_kinds(connection, table)
    for column in table.stored:
        found = known[column.number]
        if found.undecided is not None:
            raise undecided(table, column.name, found.undecided)
        if not _readable(column, found):
            raise RefusedError(
                f"cold rows of {table} cannot follow: column {column.name} was changed from {found.type}"
                f" to {column.base_type}, which the lake cannot do",
                hint=f"nothing of them was changed; {_back(connection, managed, column, found)}",
            )
        if found.computed is not None:
            raise RefusedError(
                f"cold rows of {table} cannot follow: column {column.name}: {found.computed}",
                hint=f"nothing of them was computed anew; {_alter(table, column)} SET EXPRESSION AS it was,"
                " or drop the column; or, if their values are to stay as they are,"
                f" {keep_call((table.schema, table.name), column.name)}",
            )
        if found.sense is not None:
            _refuse_sense(connection, table, column.name, found.sense, seen.senses.get(column.number))
    for column in table.columns:
        if column.name in table.primary_key and not column.exact_equality:
            raise RefusedError(
                f"cold rows of {table} cannot follow: the collation of {column.name}, of its primary key, calls"
                " different texts equal",
                hint=f"nothing of them was changed; {_alter(table, column)} TYPE {column.type} COLLATE as it was",
            )
    key = _delta_key(connection, managed, known)
    if sorted(key) != sorted(c.number for c in table.columns if c.name in table.primary_key):
        raise RefusedError(
            f"cold rows of {table} cannot follow: its primary key is no longer the one it was registered with",
            hint=f"give {'.'.join(managed.hot)} the same primary key again",
        )


def _alter(table: Table, column: Column) -> str:
    return f"ALTER TABLE {as_sql(table.schema, table.name)} ALTER COLUMN {as_sql(column.name)}"


def _back(connection: Connection, managed: Managed, column: Column, found: Recorded) -> str:
    """The statements that give a column the type it had. USING is for no foreign table, so those step aside."""
    table, alter = managed.table, f"{_alter(managed.table, column)} TYPE {found.type}"
    if queries.row(connection, "assignable", source=column.base[0], target=found.base) == (True,):
        return alter
    parts = queries.rows(connection, "foreign_bounds", table=managed.id)
    parent, name = f"ALTER TABLE {as_sql(table.schema, table.name)}", as_sql(column.name)
    return "; ".join(
        [
            "BEGIN",
            *(f"{parent} DETACH PARTITION {as_sql(schema, part)}" for schema, part, _ in parts),
            f"{alter} USING {name}::{found.type}",
            *(f"ALTER TABLE {as_sql(schema, part)} ALTER COLUMN {name} TYPE {found.type}" for schema, part, _ in parts),
            *(f"{parent} ATTACH PARTITION {as_sql(schema, part)} {bounds}" for schema, part, bounds in parts),
            "COMMIT",
        ]
    )


def _refuse_sense(connection: Connection, table: Table, column: str, known: object, current: object) -> None:
    """Labels and attributes that the text in the lake would be taken for others by."""
    row = connection.execute("SELECT frostline.sense_changed(%s, %s)", (Jsonb(known), Jsonb(current))).fetchone()
    if row is not None and row[0] is not None:
        raise RefusedError(
            f"cold rows of {table} cannot follow: the type of column {column} was changed: {row[0]}",
            hint="nothing of them was changed; change the type back: docs/schema.md",
        )


def _refuse_kinds(connection: Connection, table: Table) -> None:
    """Names and types that registration refuses too."""
    for column in table.stored:
        if reserved(column.name):
            raise RefusedError(
                f"cold rows of {table} cannot have a column called {column.name}",
                hint=f"ALTER TABLE {as_sql(table.schema, table.name)} RENAME COLUMN {as_sql(column.name)} TO ...",
            )
    for name, typname, inside in queries.rows(connection, "types_within", oid=table.oid):
        reason = types.refused(typname, inside=inside)
        if reason is not None:
            raise RefusedError(
                f"cold rows of {table} cannot have column {name} of type {typname}: {reason}",
                hint=f"ALTER TABLE {as_sql(table.schema, table.name)} ALTER COLUMN {as_sql(name)} TYPE ..., or drop it",
            )


def undecided(table: Table, column: str, why: str) -> RefusedError:
    """A column was added, and nobody knows which value older rows have."""
    generated, name = "generated" in why, (table.schema, table.name)
    return RefusedError(
        f"column {column} of {table} has no value in older cold rows that could be known: {why}",
        hint=f"ALTER TABLE {as_sql(*name)} DROP COLUMN {as_sql(column)};"
        " a column that is not generated can be added and filled"
        if generated
        else f"{fill_call(name, column)}, or another value than NULL;"
        f" UPDATE {as_sql(*name)} SET {as_sql(column)} = ... then gives each row its own",
    )


def _readable(column: Column, found: Recorded) -> bool:
    if found.base is None or (found.base, found.typmod) == column.base:
        return True
    typname = column.typname
    return found.builtin and bool(typname) and types.promotes((found.typname, found.typmod), (typname, column.base[1]))


def _delta_key(connection: Connection, managed: Managed, known: dict[int, Recorded]) -> list[int]:
    """The attribute numbers of the key that the delta is unique by."""
    numbers = {found.delta_name: number for number, found in known.items()}
    rows = connection.execute(
        "SELECT a.attname FROM pg_constraint c CROSS JOIN LATERAL unnest(c.conkey) k (attnum)"
        " JOIN pg_attribute a ON a.attrelid = c.conrelid AND a.attnum = k.attnum"
        " WHERE c.conrelid = %s AND c.contype = 'u' AND a.attname NOT IN ('_seq', '_prev')",
        (managed.delta_oid,),
    )
    return [numbers[name] for (name,) in rows if name in numbers]


def _delta_changes(managed: Managed, known: dict[int, Recorded]) -> Iterator[Composed]:
    """The delta gets the table's columns: gone, renamed, new ones; old versions have what rows of their age have."""
    delta = Identifier(*managed.delta)
    live = {column.number: column for column in managed.table.stored}
    for number, found in known.items():
        if number not in live and found.delta_name is not None:
            yield SQL("ALTER TABLE {} DROP COLUMN {}").format(delta, Identifier(found.delta_name))
    renamed = [
        (found.delta_name, f"!frostline {number}", live[number].name)
        for number, found in known.items()
        if number in live and found.delta_name is not None and found.delta_name != live[number].name
    ]
    rename = SQL("ALTER TABLE {} RENAME COLUMN {} TO {}")
    yield from (rename.format(delta, Identifier(old), Identifier(between)) for old, between, _ in renamed)
    yield from (rename.format(delta, Identifier(between), Identifier(new)) for _, between, new in renamed)
    for column in managed.table.stored:
        found = known[column.number]
        if found.delta_name is None:
            type_ = SQL(types.delta_type(column.base_type))
            value = SQL("{}::{}::{}").format(Literal(found.missing), SQL(found.type), SQL(column.base_type))
            yield SQL("ALTER TABLE {} ADD COLUMN {} {} DEFAULT {}").format(delta, Identifier(column.name), type_, value)
            yield SQL("ALTER TABLE {} ALTER COLUMN {} DROP DEFAULT").format(delta, Identifier(column.name))


def _target(connection: Connection, managed: Managed) -> Target:
    checked = managed.options.cold_fk == "check"
    keys = foreign_keys(connection, managed.hot_oid) if checked else ()
    return Target(managed.table, managed.id, managed.delta, managed.hot, keys)


def _made_anew(connection: Connection, managed: Managed) -> Sequence[Composed]:
    target = _target(connection, managed)
    made = [*tables.create_shape(managed.table, managed.id), *collect.functions(target, connections(connection))]
    if _passing(connection, managed) != _expected(managed, target.references):
        made += collect.references(target)
    return made


def _passing(connection: Connection, managed: Managed) -> list[object]:
    """What the tables are like now through which foreign keys are checked."""
    found: list[object] = []
    for number, oid in connection.execute("SELECT * FROM frostline.passing_tables(%s) ORDER BY 1", (managed.id,)):
        columns = connection.execute(
            "SELECT attname, format_type(atttypid, atttypmod) FROM pg_attribute"
            " WHERE attrelid = %s AND attnum > 1 AND NOT attisdropped",
            (oid,),
        )
        found.append((number, foreign_keys(connection, oid), dict(columns.fetchall())))
    return found


def _expected(managed: Managed, keys: tuple[ForeignKey, ...]) -> list[object]:
    kinds = {column.name: collect.passing_type(column) for column in managed.table.columns}
    return [(number, (key,), {name: kinds[name] for name in key.columns}) for number, key in enumerate(keys, 1)]


def _record(connection: Connection, managed: Managed, known: dict[int, Recorded], seen: Seen) -> None:
    for column in managed.table.stored:
        found = known[column.number]
        sense = seen.senses.get(column.number)
        connection.execute(
            "UPDATE frostline.columns SET delta_name = %s, base = %s::oid, typmod = %s, sense = %s,"
            " expression = frostline.expression(%s, attnum), missing = CASE WHEN missing IS NOT NULL THEN %s END"
            " WHERE table_id = %s AND attnum = %s",
            (
                column.name,
                *column.base,
                None if sense is None else Jsonb(sense),
                managed.table.oid,
                _converted(connection, column, found),
                managed.id,
                column.number,
            ),
        )
        if found.base is not None and (found.base, found.typmod) != column.base:
            # Its values are printed, and so hashed, differently from now on; with a key's all that hang on it.
            key = column.name in managed.table.primary_key
            connection.execute(
                "UPDATE frostline.periods SET digest = CASE WHEN %s THEN NULL ELSE digest #- ARRAY['columns', %s] END"
                " WHERE table_id = %s",
                (key, str(column.number), managed.id),
            )
    connection.execute(
        "UPDATE frostline.columns SET delta_name = NULL WHERE table_id = %s AND attnum > 0 AND attnum <> ALL (%s)",
        (managed.id, [column.number for column in managed.table.stored]),
    )
    connection.execute(
        "UPDATE frostline.tables SET followed = %s, heaps = frostline.heaps(id) WHERE id = %s",
        (seen.shape, managed.id),
    )


def _converted(connection: Connection, column: Column, found: Recorded) -> str | None:
    """The value of rows from before the column was added, in its type of today."""
    if found.missing is None:
        return None
    query = SQL("SELECT frostline.output({}::{}::{})").format(
        Literal(found.missing), SQL(found.type), SQL(column.base_type)
    )
    row = connection.execute(query).fetchone()
    return row[0] if row else None


def _in_the_way(connection: Connection, id_: int) -> list[str]:
    managed = registry.get_by_id(connection, id_)
    found = queries.rows(
        connection,
        "holders",
        relations=[managed.table.oid, managed.delta_oid],
        written=[],
        fence=SHAPE,
        fenced=id_,
    )
    return [f"pid {pid} holds {mode} on {relation}: {query}" for pid, _, _, _, relation, mode, query in found]
