"""Old periods become one: the same rows before, meanwhile and after, for every kind of transaction."""

from __future__ import annotations

import threading
from typing import Any

import psycopg
import pytest

from fix_cluster import wait_until
from fix_tiering import World
from frostline.catalog import registry
from frostline.catalog.database import connect
from frostline.errors import RefusedError
from frostline.report import Silent
from frostline.tiering import coalesce, register
from frostline.tiering.archive import run
from frostline.tiering.coalesce import Group
from frostline.tiering.locks import Wanted
from frostline.tiering.unregister import unregister
from frostline.tiering.verify import verify

TABLE = """
CREATE TABLE public.events (id bigint GENERATED ALWAYS AS IDENTITY, ts timestamptz, v int, PRIMARY KEY (id, ts))
    PARTITION BY RANGE (ts);
CREATE TABLE public.events_1 PARTITION OF public.events FOR VALUES FROM ('2020-03-01') TO ('2020-05-01');
CREATE TABLE public.events_2 PARTITION OF public.events FOR VALUES FROM ('2020-05-01') TO ('2020-09-01');
CREATE TABLE public.events_3 PARTITION OF public.events FOR VALUES FROM ('2020-09-01') TO ('2021-01-01');
CREATE TABLE public.events_now PARTITION OF public.events FOR VALUES FROM ('2021-01-01') TO (MAXVALUE);
INSERT INTO public.events (ts, v)
SELECT timestamptz '2020-03-01' + i * interval '4 h', i % 7 FROM generate_series(0, 1999) i;
ANALYZE public.events;
"""
ALL = "SELECT count(*), sum(id), sum(v) FROM public.events"
EXPECTED = (2000, 2001000, 5995)


def joined(world: World, table: str = "public.events") -> list[Group]:
    with connect(world.dsn) as connection:
        return list(coalesce.joined(connection, registry.get(connection, table), Wanted()))


def shape(world: World) -> list[tuple[Any, ...]]:
    return world.run(
        "SELECT c.relname, pg_get_expr(c.relpartbound, c.oid) FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid"
        " WHERE i.inhparent = 'public.events'::regclass AND c.relkind = 'f' ORDER BY 1"
    )


def test_periods_of_a_year_become_one_under_open_transactions_and_readers(any_world: World) -> None:
    world = any_world
    world.run(TABLE)
    world.register("public.events", "1 month")
    assert len(world.archive("public.events")) == 3
    before = shape(world)
    sessions = {level: _begun(world, level) for level in ("READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE")}
    readers = _Readers(world)
    try:
        [group] = joined(world)
        readers.go_on(10)
    finally:
        readers.stop()
    assert [part.name for part in group.parts] == ["events_1", "events_2", "events_3"]
    for connection_ in sessions.values():
        for _ in range(2):
            assert connection_.execute("EXECUTE all_events").fetchone() == EXPECTED
        connection_.execute("COMMIT")
    assert world.run(ALL) == [EXPECTED]
    assert len(before) == 4
    _one_partition(world)
    assert joined(world) == []


def _begun(world: World, level: str) -> psycopg.Connection[Any]:
    """A transaction that has a snapshot, and a plan for all the partitions there were."""
    connection = world.connect()
    connection.execute("PREPARE all_events AS " + ALL)
    connection.execute("SET plan_cache_mode = force_generic_plan")
    assert connection.execute("EXECUTE all_events").fetchone() == EXPECTED
    connection.execute(f"BEGIN ISOLATION LEVEL {level}")
    connection.execute("SELECT count(*) FROM pg_class")
    return connection


class _Readers:
    """Read on without a pause, each in its own way; a 40001 is tried again, a wrong answer is kept."""

    def __init__(self, world: World) -> None:
        self.world, self.over, self.wrong = world, threading.Event(), []  # type: ignore[var-annotated]
        self.done = {"READ COMMITTED": 0, "REPEATABLE READ": 0}
        self._threads = [threading.Thread(target=self._read, args=(level,)) for level in self.done]
        for thread in self._threads:
            thread.start()

    def _read(self, level: str) -> None:
        with psycopg.connect(self.world.dsn, autocommit=True) as connection:
            while not self.over.is_set() and not self.wrong:
                try:
                    connection.execute(f"BEGIN ISOLATION LEVEL {level}")
                    found = [connection.execute(ALL).fetchone() for _ in range(2)]
                    connection.execute("COMMIT")
                    self.done[level] += 1
                    if found != [EXPECTED, EXPECTED]:
                        self.wrong.append(found)
                except psycopg.errors.SerializationFailure:
                    connection.execute("ROLLBACK")
                except Exception as error:
                    self.wrong.append(error)

    def go_on(self, more: int) -> None:
        goal = {level: count + more for level, count in self.done.items()}
        wait_until(lambda: bool(self.wrong) or all(self.done[level] >= goal[level] for level in goal), 120, "they read")

    def stop(self) -> None:
        self.over.set()
        for thread in self._threads:
            thread.join(60)
        assert self.wrong == []


def _one_partition(world: World) -> None:
    with world.connect() as client:
        client.execute("SET timezone = 'UTC'")
        bounds = client.execute(
            "SELECT relname, pg_get_expr(relpartbound, oid) FROM pg_class WHERE relname LIKE 'events_2020%'"
        ).fetchall()
    assert bounds == [("events_2020", "FOR VALUES FROM ('2020-03-01 00:00:00+00') TO ('2021-01-01 00:00:00+00')")]
    assert [name for name, _ in shape(world)] == ["events_2020", "events_before"]
    assert world.run("SELECT kind, leaf, state, rows FROM frostline.operations ORDER BY id DESC LIMIT 1") == [
        ("coalesce", "public.events_2020", "done", 1836)
    ]
    assert world.run("SELECT rows, files FROM frostline.periods WHERE lower IS NOT NULL") == [(1836, 10)]
    # The planner knows it as it knew its parts.
    assert world.run("SELECT reltuples::int FROM pg_class WHERE relname = 'events_2020'") == [(1836,)]
    assert world.run("SELECT n_distinct FROM pg_stats WHERE tablename = 'events_2020' AND attname = 'v'") == [(7,)]
    found = verify(world.settings, "public.events", None, Silent())  # hashes of the parts add up
    assert [(one.period, one.state, one.rows) for one in found] == [
        ("public.events_before", "good", 0),
        ("public.events_2020", "good", 1836),
    ]


def _cold(world: World, table: str, policy: str, periods: list[tuple[int, int]]) -> None:
    """Foreign partitions without a lake behind them: what is joined when does not depend on it."""
    leaves = "".join(
        f"CREATE TABLE public.{table}_{n} PARTITION OF public.{table} FOR VALUES FROM ({lower}) TO ({upper});"
        for n, (lower, upper) in enumerate(periods)
    )
    world.run(f"CREATE TABLE public.{table} (k int PRIMARY KEY) PARTITION BY RANGE (k); {leaves}")
    with connect(world.dsn) as connection:
        register.register(connection, f"public.{table}", "1", {"coalesce": policy, "premake": "0"})


def test_what_somebody_dropped_stays_dropped_and_holds_nothing_up(world: World) -> None:
    world.run(TABLE)
    world.register("public.events", "1 month")
    assert len(world.archive("public.events")) == 3
    world.run("DROP FOREIGN TABLE public.events_2")
    left = world.run(ALL)
    assert joined(world) == []
    assert world.run(ALL) == left
    unregister(world.settings, "public.events", Silent(), keep_lake=False)
    assert world.run(ALL) == left


def test_what_the_policy_says_is_joined_and_nothing_else(world: World) -> None:
    _cold(world, "n", "100 after 200", [(0, 50), (50, 100), (100, 130), (130, 210), (210, 250), (250, 300), (300, 900)])
    world.run("INSERT INTO public.n VALUES (10), (60), (120), (140), (220), (260), (500)")
    assert len(world.archive("public.n")) == 6
    with connect(world.dsn) as connection:
        managed = registry.get(connection, "public.n")
        # 130..210 reaches into the next hundred, and so does not belong to either.
        assert [(g.name, len(g.parts)) for g in coalesce.groups(connection, managed)] == [
            ("n_0_to_100", 2),
            ("n_200_to_300", 2),
        ]
    _somebody_depends_on_one(world)
    _a_run_that_dies(world)
    assert [g.name for g in joined(world, "public.n")] == ["n_0_to_100", "n_200_to_300"]
    assert world.run("SELECT array_agg(k ORDER BY k) FROM public.n") == [([10, 60, 120, 140, 220, 260, 500],)]
    assert world.run(
        "SELECT has_table_privilege('looker', 'public.n_0_to_100', 'SELECT'),"
        " has_table_privilege('looker', 'public.n_200_to_300', 'SELECT')"
    ) == [(True, False)]
    world.run("DROP OWNED BY looker; DROP ROLE looker")


def _somebody_depends_on_one(world: World) -> None:
    world.run(
        "CREATE ROLE looker; GRANT SELECT ON public.n_0, public.n_1, public.n_4 TO looker;"
        "CREATE VIEW public.first AS SELECT * FROM public.n_1"
    )
    with pytest.raises(RefusedError, match="something depends on one of them itself") as error:
        joined(world, "public.n")
    assert "view public.first" in (error.value.detail or "")
    world.run("DROP VIEW public.first")
    assert world.run("SELECT count(*) FROM frostline.periods") == [(7,)]


def _a_run_that_dies(world: World) -> None:
    class Killed(BaseException):
        pass

    def die(*_: object) -> None:
        raise Killed

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(coalesce, "_digests", die)
        with pytest.raises(Killed):
            joined(world, "public.n")
    assert world.run("SELECT count(*) FROM frostline.periods") == [(7,)]
    assert world.run("SELECT count(*) FROM frostline.operations WHERE kind = 'coalesce'") == [(0,)]
    assert world.run("SELECT count(*) FROM public.n") == [(7,)]


@pytest.mark.parametrize("change", ["ADD COLUMN w int DEFAULT 9", "ADD COLUMN w timestamptz", "ALTER v TYPE bigint"])
def test_periods_from_limitand_after_a_change_of_columns_are_joined_and_verified(world: World, change: str) -> None:
    world.run(
        """
        CREATE TABLE public.events (id bigint, ts timestamptz, v int, PRIMARY KEY (id, ts)) PARTITION BY RANGE (ts);
        CREATE TABLE public.events_1 PARTITION OF public.events FOR VALUES FROM ('2020-01-01Z') TO ('2020-07-01Z');
        CREATE TABLE public.events_2 PARTITION OF public.events FOR VALUES FROM ('2020-07-01Z') TO ('2021-01-01Z');
        CREATE TABLE public.events_now PARTITION OF public.events FOR VALUES FROM ('2021-01-01Z') TO (MAXVALUE);
        INSERT INTO public.events
        SELECT i, timestamptz '2020-01-01Z' + i * interval '4 h', i FROM generate_series(1, 2000) i;
        """
    )
    with connect(world.dsn) as connection:
        options = {"coalesce": "year after 1 month", "premake": "0"}
        register.register(connection, "public.events", "100 years", options)
    with run.Warm(world.spark_here) as warm:
        for limit, statement in (("2020-07-01Z", f"ALTER TABLE public.events {change}"), ("2021-01-01Z", "SELECT 1")):
            assert len(list(run.periods(world.settings, "public.events", Silent(), warm, limit, named=True))) == 1
            world.run(statement)
    assert len(joined(world)) == 1
    found = verify(world.settings, "public.events", "events_2020", Silent())
    assert [(one.state, one.rows, one.problems) for one in found] == [("good", 2000, ())]


def test_wide_rows_are_fetched_a_few_at_a_time(world: World) -> None:
    """Narrow ones as the server's entry says."""
    world.run(TABLE.replace("v int,", "v int, t text,"))
    world.run("UPDATE public.events SET t = repeat(md5(id::text), 1000) WHERE ts >= '2020-05-01' AND id % 10 = 0")
    world.run("UPDATE public.events SET t = repeat(md5(id::text), 3000) WHERE ts >= '2020-09-01' AND id < 1500")
    world.register("public.events", "1 month")
    contents = "SELECT count(*), sum(id), sum(length(t)) FROM public.events"
    expected = world.run(contents)
    world.archive("public.events")
    options = (
        "SELECT f.ftrelid::regclass::text, o.option_value::int FROM pg_foreign_table f"
        " JOIN frostline.periods p ON p.foreign_table = f.ftrelid"
        " LEFT JOIN pg_options_to_table(f.ftoptions) o ON o.option_name = 'fetch_size' ORDER BY 1"
    )
    found = dict(world.run(options))
    assert found["events_1"] is None
    assert 3000 < found["events_2"] < 8000
    assert 150 < found["events_3"] < 500
    [group] = joined(world)
    assert dict(world.run(options)) == {"events_before": None, group.name: found["events_3"]}
    assert world.run(contents) == expected
