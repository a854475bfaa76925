"""A table that is registered and has nothing cold yet may be altered as if it were not."""

from __future__ import annotations

import psycopg
import pytest

from fix_tiering import World

TABLE = """
CREATE TYPE mood AS ENUM ('sad', 'ok');
CREATE TYPE place AS (x int, y int);
CREATE TABLE public.events (id int, ts timestamptz, v int, m mood, p place, PRIMARY KEY (id, ts))
PARTITION BY RANGE (ts);
CREATE TABLE public.events_01 PARTITION OF public.events FOR VALUES FROM ('2020-01-01Z') TO ('2020-02-01Z');
CREATE TABLE public.events_now PARTITION OF public.events FOR VALUES FROM ('2020-02-01Z') TO (MAXVALUE);
INSERT INTO public.events SELECT i, timestamptz '2020-01-05Z' + i * interval '5 days', i, 'sad', ROW(i, i)::place
FROM generate_series(1, 9) i;
"""
ROWS = "SELECT e::text FROM public.events e ORDER BY id"


@pytest.mark.parametrize(
    "change",
    [
        "ALTER TYPE mood RENAME VALUE 'sad' TO 'glum'",
        "ALTER TYPE place ADD ATTRIBUTE z int, DROP ATTRIBUTE x",
        "ALTER TABLE public.events ALTER v TYPE text",
        "ALTER TABLE public.events ADD COLUMN made timestamptz DEFAULT clock_timestamp()",
        "ALTER TABLE public.events ALTER id TYPE text",
    ],
)
def test_its_types_may_change(world: World, change: str) -> None:
    world.run(TABLE)
    world.register("public.events")
    world.run(change)
    expected = world.run(ROWS)
    with psycopg.connect(world.dsn, autocommit=True) as client:
        assert client.execute(ROWS).fetchall() == expected
    assert [one.rows for one in world.archive("public.events")] == [5]
    assert world.run(ROWS) == expected
    world.run("UPDATE public.events SET v = NULL WHERE id::text = '1'; DELETE FROM public.events WHERE id::text = '2'")
    assert len(world.run(ROWS)) == len(expected) - 1
