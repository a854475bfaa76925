"""Every type there is goes through heap, Spark, Iceberg, DuckDB and the gateway, and comes back the same."""

from __future__ import annotations

import warnings
from collections.abc import Mapping

import psycopg
import pyarrow as pa
import pytest
from psycopg import sql

from fix_tiering import World
from frostline.catalog import registry
from frostline.catalog.cold import PREPARE, cold_table
from frostline.catalog.database import Connection, connect
from frostline.errors import RefusedError
from frostline.gateway import handed
from frostline.lake.catalog import identifier
from frostline.model import types
from frostline.report import Silent
from frostline.tiering.archive.run import Warm
from frostline.tiering.fold.run import fold
from frostline.tiering.untier.run import untier
from integration.tiering import type_edges as edges
from integration.tiering.test_maintain import choose, good, maintained

_ALL = (
    "SELECT typname FROM pg_type t WHERE typnamespace = 'pg_catalog'::regnamespace"
    " AND typtype IN ('b', 'r', 'm', 'd', 'e') AND NOT EXISTS (SELECT FROM pg_type e WHERE e.typarray = t.oid)"
)
_EVENTS = """
CREATE TABLE public.events (id int, ts date, PRIMARY KEY (id, ts)) PARTITION BY RANGE (ts);
CREATE TABLE public.events_old PARTITION OF public.events FOR VALUES FROM ('2020-01-01') TO ('2020-02-01');
CREATE TABLE public.events_new PARTITION OF public.events FOR VALUES FROM ('2020-02-01') TO (MAXVALUE);
"""


Columns = dict[str, tuple[str, tuple[str, ...]]]  # by name: type and values


def columns(without_xml: bool) -> Columns:
    """Every built-in type alone and in arrays, those with modifiers, those of users."""
    found: Columns = {}
    for name, values in edges.EDGES.items():
        if name == "xml" and without_xml:
            continue
        quoted = sql.Identifier("pg_catalog", name).as_string(None)
        found[name] = (quoted, values)
        if name not in types.REFERENCES:
            found[f"{name} array"] = (f"{quoted}[]", ("{}", "{NULL}"))
    return found | {name: (name, values) for name, values in (edges.MODIFIED | edges.OWN_EDGES).items()}


def test_the_map_knows_every_type_a_column_can_have(any_world: World) -> None:
    """One that a new Postgres brings cannot be forgotten: it is in the round trip or refused."""
    known = {*types.NATIVE, "numeric", *types.AS_TEXT, *types.REFUSED}
    there = {name for (name,) in any_world.run(_ALL)}
    assert there - known == set()
    assert there - set(types.REFUSED) == set(edges.EDGES)


def test_every_type_comes_back_exactly(any_world: World) -> None:
    world = any_world
    world.run(_EVENTS + edges.OWN)
    all_columns = columns(without_xml=not _has_xml(world))
    with psycopg.connect(world.dsn, autocommit=True) as connection:
        _fill(connection, all_columns)
    stored = _texts(world, "public.plain")
    assert all(value is not None for value in stored[0][1:])
    world.register("public.events")
    (archived,) = world.archive("public.events")
    assert archived.rows == len(stored)
    assert world.run("SELECT relkind::text FROM pg_class WHERE relname = 'events_old'") == [("f",)]
    assert _texts(world, "public.events") == stored
    _read_by_spark(world, stored)


# Folds choose files by the bounds of these too, where they are part of the key.
_BOUNDED = ("timestamp", "date", "int8")
_MOMENTS = """
CREATE TABLE public.plain (id int, ts timestamptz, {columns}, PRIMARY KEY (id, ts, {bounded}));
CREATE TABLE public.events (LIKE public.plain, PRIMARY KEY (id, ts, {bounded})) PARTITION BY RANGE (ts);
CREATE TABLE public.events_old PARTITION OF public.events FOR VALUES FROM ('2020-01-01Z') TO ('2020-02-01Z');
CREATE TABLE public.events_new PARTITION OF public.events FOR VALUES FROM ('2020-02-01Z') TO (MAXVALUE);
CREATE TABLE public.edges (LIKE public.plain);
"""


def test_nothing_that_spark_does_to_the_lake_changes_a_value(world: World) -> None:
    """Folded, rewritten and brought back, beside a plain table that is given the same statements."""
    # What is kept as text is text to Spark as well: one of these will do.
    native = [name for name in (*types.NATIVE, "jsonb") if name not in types.REFERENCES]
    decimals = {name: values for name, values in edges.MODIFIED.items() if name.startswith("numeric(")}
    held = {name: edges.EDGES[name] for name in native} | decimals
    others = sql.SQL(", ").join(sql.Identifier(name) for name in held if name not in _BOUNDED).as_string(None)
    _make_edges(world, held)
    _both(world, "INSERT INTO {t} SELECT * FROM public.edges")
    world.register("public.events")
    world.archive("public.events")
    _same(world, held)
    choose(world, "events", merge_mode="merge-on-read")
    for when in ("2020-01-20Z", "4713-01-01 00:00:00Z BC"):
        moved = f"jsonb_build_object('id', id + 100, 'ts', '{when}')"
        _both(world, f"INSERT INTO {{t}} SELECT (jsonb_populate_record(e, {moved})).* FROM public.edges e")
    _both(
        world,
        f"UPDATE {{t}} t SET ({others}) = (SELECT {others} FROM public.edges e WHERE e.id = (t.id + 1) % 12)"
        " WHERE id < 12",
    )
    _both(world, "DELETE FROM {t} WHERE id = 21")
    with Warm(world.spark_here) as warm:
        [done] = fold(world.settings, "public.events", Silent(), warm)
    assert (done.updated, done.deleted) == (12, 1)
    _same(world, held)
    rewritten = maintained(world, everything=True)
    assert rewritten.before.delete_files > rewritten.after.delete_files == 0
    _same(world, held)
    good(world)
    with Warm(world.spark_here) as warm:
        assert len(untier(world.settings, "public.events", "events_before", Silent(), warm)) == 2
    _same(world, held)


def _make_edges(world: World, held: Mapping[str, tuple[str, ...]]) -> None:
    """A row for each of the values of the type that has most."""
    columns = ", ".join(f'"{name}" {name}' for name in held)
    world.run(_MOMENTS.format(columns=columns, bounded=", ".join(f'"{name}"' for name in _BOUNDED)))
    insert = f"INSERT INTO public.edges VALUES (%s, '2020-01-15Z'{', %s' * len(held)})"
    for number in range(max(map(len, held.values()))):
        world.run(insert, number, *(values[number % len(values)] for values in held.values()))


def _both(world: World, statement: str) -> None:
    for table in ("public.events", "public.plain"):
        world.run(statement.format(t=table))


def _same(world: World, held: Mapping[str, tuple[str, ...]]) -> None:
    """Every row, and those that are looked for by an edge: files are left out by what Spark says is in them."""
    assert _texts(world, "public.events") == _texts(world, "public.plain")
    with psycopg.connect(world.dsn, autocommit=True) as client:
        for name, value in ((name, value) for name, values in held.items() for value in (values[0], values[-1])):
            found, wanted = (
                client.execute(
                    f'SELECT id, ts::text FROM {table} WHERE "{name}" = %s ORDER BY 1, 2', [value]
                ).fetchall()
                for table in ("public.events", "public.plain")
            )
            assert found == wanted != []


def test_every_type_inside_a_statement_is_what_it_was(any_world: World) -> None:
    """As the Postgres of a standby is handed cold rows: it has no temporary tables."""
    world = any_world
    world.run(_EVENTS + edges.OWN)
    with connect(world.dsn) as connection:
        _fill(connection, columns(without_xml=not _has_xml(world)))
        world.register("public.events")
        connection.execute(PREPARE)
        table = cold_table(connection, registry.get(connection, "public.events").id)
        stored = _printed(connection, "public.events")
        texts = [
            [None if value is None else value.decode() for value in values] for values in zip(*stored[1], strict=True)
        ]
        batch = pa.record_batch([pa.array(text, pa.string()) for text in texts], [str(at) for at in range(len(texts))])
        every = list(table.columns.values())
        (piece,) = handed.pieces(every, [batch])
        assert _printed(connection, f"{handed.relation(every, piece)} AS t") == stored


def _printed(connection: Connection, relation: str) -> tuple[list[tuple[int, int]], list[tuple[bytes | None, ...]]]:
    """Types with their modifiers, and rows as Postgres prints them."""
    result = connection.execute(f"SELECT * FROM {relation} ORDER BY id").pgresult
    assert result is not None
    places = range(result.nfields)
    rows = [tuple(result.get_value(row, at) for at in places) for row in range(result.ntuples)]
    return [(result.ftype(at), result.fmod(at)) for at in places], rows


def _fill(
    connection: psycopg.Connection[tuple[object, ...]], all_columns: dict[str, tuple[str, tuple[str, ...]]]
) -> None:
    for name, (type_, _) in all_columns.items():
        add = sql.SQL("ALTER TABLE public.events ADD COLUMN {} {}")
        connection.execute(add.format(sql.Identifier(name), sql.SQL(type_)))
    casts = [sql.SQL("{}::{}").format(sql.Placeholder(), sql.SQL(type_)) for type_, _ in all_columns.values()]
    insert = sql.SQL("INSERT INTO public.events VALUES (%s, '2020-01-15', {})").format(sql.SQL(", ").join(casts))
    most = max(len(values) for _, values in all_columns.values())
    for number in range(most):
        row = [values[number % len(values)] for _, values in all_columns.values()]
        connection.execute(insert, [number, *row])
    connection.execute(  # arrays of the edges, with a NULL among them
        sql.SQL("UPDATE public.events SET {} WHERE id = 1").format(
            sql.SQL(", ").join(
                sql.SQL("{} = ARRAY[{}, NULL]").format(
                    sql.Identifier(name), sql.Identifier(name.removesuffix(" array"))
                )
                for name in all_columns
                if name.endswith(" array")
            )
        )
    )
    connection.execute("INSERT INTO public.events (id, ts) VALUES (-1, '2020-01-20')")  # NULL everywhere
    connection.execute("CREATE TABLE public.plain AS TABLE public.events")


def _texts(world: World, table: str) -> list[tuple[object, ...]]:
    """What each value prints as, in a session that has the settings of nobody in particular."""
    with psycopg.connect(world.dsn, autocommit=True) as connection:
        connection.execute("SET timezone = 'Asia/Kathmandu'; SET search_path = public, pg_catalog")
        connection.execute("SET extra_float_digits = 3")
        names = [
            row[0]
            for row in connection.execute(
                "SELECT attname FROM pg_attribute WHERE attrelid = 'plain'::regclass AND attnum > 0 ORDER BY attnum"
            )
        ]
        texts = sql.SQL(", ").join(sql.SQL("frostline.output({})").format(sql.Identifier(str(name))) for name in names)
        query = sql.SQL("SELECT {} FROM {} ORDER BY id DESC, ts").format(texts, sql.SQL(table))
        return connection.execute(query).fetchall()


def _read_by_spark(world: World, stored: list[tuple[object, ...]]) -> None:
    """Another reader of the same files finds the same values, of types that it prints as Postgres does."""
    with connect(world.dsn) as connection:
        managed = registry.get(connection, "public.events")
    alike = {
        number: f"CAST(`{managed.lake_names[column.name]}` AS STRING)"
        for number, column in enumerate(managed.table.stored)
        if column.storage.family in ("integer", "text", "uuid")
    }
    with world.spark_here() as spark, warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)  # PySpark does not close its socket
        rows = spark.table(".".join((world.settings.lake.name, *identifier(managed)))).orderBy("id", ascending=False)
        found = rows.selectExpr(*alike.values()).collect()
    assert [tuple(row) for row in found] == [tuple(row[number] for number in alike) for row in stored]
    assert len(alike) > 10


def _has_xml(world: World) -> bool:
    try:
        return bool(world.run("SELECT '<a/>'::xml IS NOT NULL"))
    except psycopg.errors.FeatureNotSupported:
        return False


def test_a_type_the_lake_cannot_keep_is_refused_at_registration(world: World) -> None:
    own = "CREATE TYPE public.purse AS (a int, m money); CREATE DOMAIN public.purses AS public.purse[];"
    world.run(_EVENTS + own)
    for type_ in (*types.REFUSED, "money[]", "public.purse", "public.purses", "regclass[]"):
        world.run(f"ALTER TABLE public.events ADD COLUMN held {type_}")
        with pytest.raises(RefusedError, match=r"column held (is of type|holds) \w+, which the lake cannot keep"):
            world.register("public.events")
        world.run("ALTER TABLE public.events DROP COLUMN held")
    assert world.run("SELECT count(*) FROM frostline.tables") == [(0,)]
    world.register("public.events")


_UNHELD = {
    "date": ("infinity", "-infinity"),
    "timestamp": ("infinity", "-infinity", "294247-01-01 00:00:00"),
    "timestamptz": ("infinity", "-infinity", "294276-12-31 23:59:59.999999+00"),
    "numeric(9,2)": ("NaN",),
    "public.money2": ("NaN",),
    '"char"': ("\\351",),
}


def test_a_value_iceberg_cannot_hold_stops_the_partition_before_anything_changes(world: World) -> None:
    held = "; ".join(f"ALTER TABLE public.events ADD COLUMN h{n} {type_}" for n, type_ in enumerate(_UNHELD))
    world.run(_EVENTS + edges.OWN + held)
    world.run("INSERT INTO public.events (id, ts) SELECT n, '2020-01-15' FROM generate_series(1, 5) n")
    world.register("public.events")
    for number, values in enumerate(_UNHELD.values()):
        for value in values:
            world.run(f"INSERT INTO public.events (id, ts, h{number}) VALUES (77, '2020-01-16', '{value}')")
            with pytest.raises(RefusedError, match=r"has no form for") as error:
                world.archive("public.events")
            assert "(77,2020-01-16)" in (error.value.detail or "")
            assert f"h{number} = {value}" in (error.value.detail or "")
            assert world.run("SELECT relkind::text FROM pg_class WHERE relname = 'events_old'") == [("r",)]
            assert world.run("DELETE FROM public.events WHERE id = 77 RETURNING id") == [(77,)]
    assert [one.rows for one in world.archive("public.events")] == [5]
