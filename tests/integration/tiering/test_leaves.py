"""Leaves as databases have them: from elsewhere, of the same names, with days that no calendar of Python's has."""

from __future__ import annotations

import pytest

from fix_tiering import World
from frostline.report import Silent
from frostline.tiering.archive import swap
from frostline.tiering.verify import verify
from integration.tiering.test_hostile import SIMPLE, before, rows


def test_what_one_table_left_to_be_dropped_is_not_in_the_way_of_another_of_the_same_name(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    for schema in ("one", "two"):
        world.run(f"CREATE SCHEMA {schema};" + SIMPLE.replace("public.", f"{schema}."))
        world.register(f"{schema}.events")

    class Killed(BaseException):
        pass

    def die(*_: object) -> None:
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(swap, "drop", die)
        with pytest.raises(Killed):
            world.archive("one.events")
    assert [one.leaf.name for one in world.archive("two.events")] == ["events_01"]


@pytest.mark.parametrize("key", ["timestamptz", "date"])
def test_days_before_the_first_year_are_archived_and_written_in_bulk(world: World, key: str) -> None:
    """By day, files lie in a directory of that day: Python has no name for it."""
    world.run(
        f"""
        CREATE TABLE public.events (id bigint, ts {key}, PRIMARY KEY (id, ts)) PARTITION BY RANGE (ts);
        CREATE TABLE public.e_old PARTITION OF public.events FOR VALUES FROM (MINVALUE) TO ('2020-01-01');
        CREATE TABLE public.e_1 PARTITION OF public.events FOR VALUES FROM ('2020-01-01') TO ('2020-01-02');
        CREATE TABLE public.e_2 PARTITION OF public.events FOR VALUES FROM ('2020-01-02') TO ('2020-01-03');
        CREATE TABLE public.e_now PARTITION OF public.events FOR VALUES FROM ('2020-01-03') TO (MAXVALUE);
        INSERT INTO public.events VALUES (1, '0044-03-15 BC'), (2, '2019-05-05'), (3, '2020-01-01'), (4, '2020-02-02');
        """
    )
    expected = rows(world)
    world.register("public.events")
    assert [one.rows for one in world.archive("public.events")] == [2, 1, 0]
    assert rows(world) == expected
    world.run("UPDATE frostline.tables SET bulk_rows = 50")
    world.run("INSERT INTO public.events SELECT -x, '0044-03-15 BC' FROM generate_series(1, 100) x")
    assert world.run("SELECT count(*) FROM public.events WHERE ts < '0001-01-01'") == [(101,)]
    assert {one.state for one in verify(world.settings, "public.events", None, Silent())} == {"good"}


def test_a_leaf_from_elsewhere_goes_as_it_is(any_world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of another schema, with its columns in another order, gaps among them, storage of its own and large values."""
    world = any_world
    world.run(
        """
        CREATE SCHEMA old;
        CREATE TYPE public.mood AS ENUM ('sad', 'ok');
        CREATE TABLE public.events (gone int, ts timestamptz, v int, "M" public.mood, big text,
            g int GENERATED ALWAYS AS (v * 2) STORED, id uuid, PRIMARY KEY (ts, id)) PARTITION BY RANGE (ts);
        ALTER TABLE public.events DROP COLUMN gone;
        CREATE TABLE old.events_01 (id uuid NOT NULL, junk text, big text, g int GENERATED ALWAYS AS (v * 2) STORED,
            "M" public.mood, v int, ts timestamptz NOT NULL, more int) WITH (fillfactor = 50);
        ALTER TABLE old.events_01 DROP COLUMN junk, DROP COLUMN more, ALTER COLUMN big SET STORAGE EXTERNAL;
        ALTER TABLE public.events ATTACH PARTITION old.events_01 FOR VALUES FROM ('-infinity') TO ('2020-02-01');
        CREATE TABLE public.events_02 PARTITION OF public.events FOR VALUES FROM ('2020-02-01') TO ('infinity');
        INSERT INTO public.events (ts, v, "M", big, id)
        SELECT timestamptz '2020-01-01' + i * interval '1 h', i, 'ok',
            CASE WHEN i % 100 = 0 THEN repeat(md5(i::text), 100000) END, md5(i::text)::uuid
        FROM generate_series(1, 1000) i;
        CREATE TABLE public.plain (LIKE public.events INCLUDING GENERATED);
        """
    )
    columns = 'ts, v, "M", big, id'
    world.run(f"INSERT INTO public.plain ({columns}) SELECT {columns} FROM public.events")
    world.register("public.events")

    def write() -> None:
        for table in ("public.events", "public.plain"):
            world.run(
                f"UPDATE {table} SET v = -v WHERE v % 7 = 0 AND ts < '2020-02-01';"
                f"DELETE FROM {table} WHERE v % 11 = 0 AND ts < '2020-02-01';"
                f"INSERT INTO {table} ({columns})"
                " VALUES ('0044-03-15 BC', 5, 'sad', repeat('y', 3000000), md5('new')::uuid)"
            )

    before(monkeypatch, swap, "swap", write)
    assert [str(one.leaf) for one in world.archive("public.events")] == ["old.events_01"]
    assert rows(world) == rows(world, "public.plain")
    assert world.run("SELECT relkind::text FROM pg_class WHERE oid = 'old.events_01'::regclass") == [("f",)]
