"""Names with every sign that SQL, Python and Iceberg could take for their own, in a schema of its own, by every key."""

from __future__ import annotations

import psycopg
import pytest

from fix_tiering import World
from frostline.catalog.database import connect
from frostline.report import Silent
from frostline.tiering import cycle, options, verify
from frostline.tiering.archive.run import Warm
from frostline.tiering.fold.run import fold
from frostline.tiering.maintain.run import maintain
from frostline.tiering.unregister import unregister
from frostline.tiering.untier.run import untier

SCHEMA, KEY = '"S %s{0}"', '"K %(a)s{}"'
TIERED, PLAIN = f'{SCHEMA}."T""%d{{x}}"', f'{SCHEMA}."Plain %"'
# Of a type: where month number n begins, the key of row i, an old key, and the options.
KEYS = {
    "date": ("'2020-{n:02}-01'", "date '2020-01-01' + i * 2", "'2020-01-05'", "1 year", "{days} days"),
    "smallint": ("{n}00", "(100 + i * 4)::smallint", "105", "100", "200"),
}


@pytest.mark.parametrize("key", KEYS)
def test_a_whole_life_under_odd_names(world: World, key: str) -> None:
    begins, value, old, hot, keep = KEYS[key]
    world.run(f"CREATE SCHEMA {SCHEMA}")
    for table in (TIERED, PLAIN):
        world.run(
            f"""CREATE TABLE {table} ("I'd" int, {KEY} {key} NOT NULL, "v{{}}" text DEFAULT '%s{{}}',"""
            f""" PRIMARY KEY ("I'd", {KEY})) PARTITION BY RANGE ({KEY})"""
        )
        for n in range(1, 6):
            upper = begins.format(n=n + 1) if n < 5 else "MAXVALUE"
            world.run(
                f'CREATE TABLE {table[:-1]}_{n}%" PARTITION OF {table}'
                f" FOR VALUES FROM ({begins.format(n=n)}) TO ({upper})"
            )
        world.run(f"INSERT INTO {table} SELECT i, {value}, 'v' || i FROM generate_series(1, 110) i")
    world.register(TIERED, hot)
    assert len(world.archive(TIERED)) >= 3
    _same(world)
    _both(world, """UPDATE {t} SET "v{{}}" = 'x%s{{}}' WHERE "I'd" IN (1, 2, 40)""")
    _both(world, """DELETE FROM {t} WHERE "I'd" IN (3, 41)""")
    _both(world, f"INSERT INTO {{t}} VALUES (500, {old})")
    with Warm(world.spark_here) as warm:
        assert fold(world.settings, TIERED, Silent(), warm)
        _same(world)
        _options(world, keep)
        maintain(world.settings, TIERED, Silent(), warm, everything=True)
        _same(world)
        assert [one.state for one in cycle.retains(world.settings, [TIERED], Silent(), world.spark_here)] == ["removed"]
        [(line,)] = world.run("SELECT retained_from FROM frostline.tables")
        world.run(f"DELETE FROM {PLAIN} WHERE {KEY} < '{line}'")
        with pytest.raises(psycopg.errors.CheckViolation, match=f"before {line} are not kept any more"):
            world.run(f"INSERT INTO {TIERED} VALUES (900, {old})")
        _both(world, 'ALTER TABLE {t} ADD COLUMN "n%s$frostline$" int DEFAULT 7')
        _both(world, """UPDATE {t} SET "n%s$frostline$" = 8 WHERE "I'd" BETWEEN 50 AND 60""")
        _same(world)
        assert {found.state for found in verify.verify(world.settings, TIERED, None, Silent())} == {"good"}
        spelled = "c.relname" if key == "date" else "p.foreign_table::regclass::text"  # as it is, or as in SQL
        newest = f"SELECT {spelled} FROM frostline.periods p JOIN pg_class c ON c.oid = p.foreign_table"
        assert untier(world.settings, TIERED, world.run(f"{newest} WHERE p.rows > 0 LIMIT 1")[0][0], Silent(), warm)
    _same(world)
    unregister(world.settings, TIERED, Silent(), keep_lake=False)
    _same(world)


def _both(world: World, statement: str) -> None:
    for table in (TIERED, PLAIN):
        world.run(statement.format(t=table))


def _same(world: World) -> None:
    tiered, plain = (world.run(f"SELECT r::text FROM {table} r ORDER BY 1") for table in (TIERED, PLAIN))
    assert tiered == plain


def _options(world: World, keep: str) -> None:
    [(days,)] = world.run("SELECT current_date - date '2020-03-10'")
    given = {"retention": keep.format(days=days), "sort_order": '"v{}" desc', "merge_mode": "merge-on-read"}
    with connect(world.dsn) as connection:
        [table] = options.tables(connection, [TIERED])
        options.apply(connection, world.settings, options.plan(connection, world.settings, [(table, given)]))


def test_a_table_may_be_called_like_what_stands_beside_the_delta(world: World) -> None:
    """Each has the number of a table behind its name, or of an operation: the first is called like the first leaf."""
    for name in ("dropped", "touched", "shape", "held", "references"):
        table = f'public."{name}"'
        world.run(
            f"CREATE TABLE {table} (id int, ts date, v int, PRIMARY KEY (id, ts)) PARTITION BY RANGE (ts);"
            f"CREATE TABLE public.{name}_old PARTITION OF {table} FOR VALUES FROM ('2020-01-01') TO ('2020-02-01');"
            f"CREATE TABLE public.{name}_now PARTITION OF {table} FOR VALUES FROM ('2020-02-01') TO (MAXVALUE);"
            f"INSERT INTO {table} SELECT i, '2020-01-02', i FROM generate_series(1, 5) i"
        )
        world.register(table)
        assert len(world.archive(table)) == 1
        world.run(f"UPDATE {table} SET v = -1 WHERE id = 2; DELETE FROM {table} WHERE id = 3")
        assert world.archive(table) == []
        assert world.run(f"SELECT id, v FROM {table} ORDER BY id") == [(1, 1), (2, -1), (4, 4), (5, 5)]


def test_the_way_out_of_a_column_without_a_value_can_be_pasted(world: World) -> None:
    table, column = '"S \'x"."T y"', '"U \'u"'
    world.run(
        f"""CREATE SCHEMA "S 'x"; CREATE TABLE {table} (id int, ts date, PRIMARY KEY (id, ts)) PARTITION BY RANGE (ts);
        CREATE TABLE "S 'x".t1 PARTITION OF {table} FOR VALUES FROM ('2020-01-01') TO ('2020-02-01');
        CREATE TABLE "S 'x".t2 PARTITION OF {table} FOR VALUES FROM ('2020-02-01') TO (MAXVALUE);
        INSERT INTO {table} SELECT i, date '2020-01-01' + i FROM generate_series(0, 49) i"""
    )
    world.register(table)
    world.archive(table)
    world.run(f"ALTER TABLE {table} ADD COLUMN {column} uuid DEFAULT gen_random_uuid()")
    with pytest.raises(psycopg.errors.FeatureNotSupported, match="its default is volatile") as error:
        world.run(f"SELECT {column} FROM {table} WHERE id = 4")
    hint = error.value.diag.message_hint or ""
    world.run(hint.partition(", or another value")[0])
    assert world.run(f"SELECT {column} FROM {table} WHERE id = 4") == [(None,)]
