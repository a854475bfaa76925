"""One round over many tables: what is missing is made, what has expired goes, and what fails stops nobody else."""

from __future__ import annotations

import threading
from typing import Any

import psycopg
import pytest
from typer.testing import CliRunner

from fix_tiering import World
from frostline.catalog import describe, registry
from frostline.catalog.database import connect
from frostline.cli.main import app
from frostline.errors import ConfigError, OperationError
from frostline.model.bounds import parse_bound
from frostline.pipeline import session
from frostline.report import Silent
from frostline.tiering import coalesce, cycle, register
from frostline.tiering.archive import plan
from frostline.tiering.assess.run import assess
from frostline.tiering.partition import plan as cutting
from frostline.tiering.premake import premake
from frostline.tiering.worker.metrics import measured

MONTHS = """
CREATE TABLE public.{0} (id bigint, ts {1} NOT NULL, v date, PRIMARY KEY (id, ts)) PARTITION BY RANGE (ts);
CREATE TABLE public.{0}_2020_01 PARTITION OF public.{0} FOR VALUES FROM ('2020-01-01') TO ('2020-02-01');
CREATE TABLE public.{0}_2020_02 PARTITION OF public.{0} FOR VALUES FROM ('2020-02-01') TO ('2020-03-01');
INSERT INTO public.{0} SELECT i, date '2020-01-01' + i, '2020-01-01' FROM generate_series(0, 49) i;
"""
ODD = """
CREATE TABLE public.small (k smallint PRIMARY KEY, v text) PARTITION BY RANGE (k);
CREATE TABLE public.s1 PARTITION OF public.small FOR VALUES FROM (-32768) TO (-7);
CREATE TABLE public.s2 PARTITION OF public.small FOR VALUES FROM (0) TO (1000);
CREATE TABLE public.s3 PARTITION OF public.small FOR VALUES FROM (1000) TO (2000);
INSERT INTO public.small VALUES (-32768, 'a'), (-8, 'b'), (3, 'c'), (999, 'd'), (1999, 'e');
CREATE TABLE public.moments (ts timestamp, k bigint, PRIMARY KEY (k, ts)) PARTITION BY RANGE (ts);
CREATE TABLE public.m1 PARTITION OF public.moments FOR VALUES FROM ('-infinity') TO ('1000-01-01 BC');
CREATE TABLE public.m2 PARTITION OF public.moments FOR VALUES FROM ('2020-01-01 12:34:56.789') TO ('2020-01-03');
CREATE TABLE public.m3 PARTITION OF public.moments FOR VALUES FROM ('2021-01-01') TO ('infinity');
INSERT INTO public.moments
VALUES ('2000-01-01 BC', 1), ('2020-01-01 12:34:56.789', 2), ('2020-01-02', 3), ('2022-01-01', 4);
"""


def of_table(world: World, table: str) -> list[tuple[Any, ...]]:
    return world.run(f"SELECT r::text FROM public.{table} r ORDER BY 1")


def leaves(world: World, hot: str) -> list[str]:
    return [
        name
        for (name,) in world.run(
            "SELECT relname FROM pg_class JOIN pg_inherits ON inhrelid = pg_class.oid"
            f" WHERE inhparent = 'public.{hot}'::regclass ORDER BY 1"
        )
    ]


def test_every_table_gets_its_turn(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.run(MONTHS.format("good", "timestamptz") + MONTHS.format("bad", "date") + ODD)
    world.run("UPDATE public.bad SET v = 'infinity' WHERE id = 3")
    tables = ("bad", "good", "small", "moments")
    before = {table: of_table(world, table) for table in tables}
    for table in tables:
        world.register(f"public.{table}", "500" if table == "small" else "1 year")
    monkeypatch.setattr(session, "spark_session", lambda *_: world.spark_here())
    done = CliRunner().invoke(
        app, ["--dsn", world.dsn, "--dir", str(world.settings.local.dir), "archive"], catch_exceptions=False
    )
    assert done.exit_code == 1
    assert "holds a value Iceberg has no form for" in done.output
    lines = [line.split() for line in done.stdout.splitlines()]
    words = {tuple(line[:3]) for line in lines}
    assert {
        ("public.bad", "public.bad_2020_01", "failed"),
        ("public.bad", "public.bad_2020_02", "waits"),
        ("public.good", "public.good_2020_01", "archived"),
        ("public.good", "public.good_2020_02", "archived"),
        ("public.small", "public.s1", "archived"),
        ("public.small", "public.s2", "archived"),
        ("public.small", "public.small_2000", "created"),
        ("public.moments", "public.m1", "archived"),
        ("public.moments", "public.m2", "archived"),
    } <= words
    assert {table: of_table(world, table) for table in tables} == before
    # The month that is, and the two after it, were missing.
    [(expected,)] = world.run(
        "SELECT array_agg(to_char(date_trunc('month', now()) + n * interval '1 month', '\"good_\"YYYY_MM') ORDER BY n)"
        " FROM generate_series(0, 2) n"
    )
    assert leaves(world, "good_hot") == expected
    world.run("INSERT INTO public.good VALUES (1000, now(), NULL), (1000, now() + interval '40 days', NULL)")
    _a_second_round_changes_nothing(world)


def _a_second_round_changes_nothing(world: World) -> None:
    tables = ["public.good", "small"]
    assert cycle.cycle(world.settings, tables, Silent(), world.spark_here) == []
    with pytest.raises(ConfigError, match="--before 'soon' is no timestamptz"):
        raise cycle.cycle(world.settings, ["good"], Silent(), world.spark_here, "soon")[0].error or AssertionError


def test_keys_without_a_time_zone_are_the_database_s_local_time(world: World) -> None:
    """Six hours ago in UTC is not over yet where it is twelve hours earlier."""
    ((name, end),) = world.run("SELECT current_database(), (now() AT TIME ZONE 'UTC' - interval '6 h')::text")
    world.run(
        "CREATE TABLE public.local (ts timestamp PRIMARY KEY) PARTITION BY RANGE (ts);"
        f"CREATE TABLE public.local_1 PARTITION OF public.local FOR VALUES FROM ('2020-01-01') TO ('{end}');"
        f"CREATE TABLE public.local_2 PARTITION OF public.local FOR VALUES FROM ('{end}') TO (MAXVALUE);"
        "CREATE TABLE public.plain (ts timestamp PRIMARY KEY);"
        f"ALTER DATABASE {name} SET timezone = 'Etc/GMT+12'"
    )
    with connect(world.dsn) as connection:
        (assessed,) = assess(connection, "1 hour", ["public.local"], 1, Silent())
        assert assessed.cold is not None
        assert assessed.cold.partitions == 0
        oid, *plain = describe.resolve(connection, "public.plain")
        hour = "SELECT date_trunc('hour', now() AT TIME ZONE 'Etc/GMT+12')::text"
        ((earlier,),) = world.run(hour)
        wanted = cutting.make(connection, oid, (plain[0], plain[1]), cutting.Choice("ts", period="hour"))
        ((later,),) = world.run(hour)
        assert any(first in wanted[0].partitions[0][1] for first in {earlier, later})
    world.register("public.local", "1 hour")
    with connect(world.dsn) as connection:
        managed = registry.get(connection, "public.local")
        bound = parse_bound(end)
        assert bound is not None
        assert plan.expired(connection, managed) == []
        assert plan.expired(connection, managed, before="2100-01-01") == []
        assert coalesce.limit(connection, managed, "1 hour") < bound.order
    world.run(f"ALTER DATABASE {name} SET timezone = 'Etc/GMT+2'")
    with connect(world.dsn) as connection:
        assert [leaf.name for leaf in plan.expired(connection, managed)] == ["local_1"]
        assert 3 * 3600 <= measured(connection, managed)["lag_seconds"] < 4 * 3600
        assert coalesce.limit(connection, managed, "1 hour") > bound.order


def test_a_date_instead_of_the_hot_period(world: World) -> None:
    world.run(MONTHS.format("events", "timestamptz"))
    with connect(world.dsn) as connection:
        register.register(connection, "public.events", "100 years", {"premake": "0"})
    outcomes = cycle.cycle(world.settings, ["events"], Silent(), world.spark_here, "2020-02-15")
    assert [(o.what.rpartition(".")[2], o.state) for o in outcomes if o.state != "created"] == [
        ("events_2020_01", "archived")
    ]
    assert world.run("SELECT count(*) FROM public.events") == [(50,)]


def _premade(world: World, table: str) -> list[str]:
    with connect(world.dsn) as connection:
        return list(premake(connection, registry.get(connection, table)))


def test_a_new_partition_is_made_like_the_last_one_while_writers_go_on(any_world: World) -> None:
    world = any_world
    world.run(
        "CREATE TABLE public.dim (k int PRIMARY KEY); INSERT INTO public.dim VALUES (1);"
        "CREATE ROLE guest; CREATE TABLE public.events (id bigint GENERATED ALWAYS AS IDENTITY, n int NOT NULL,"
        " k int REFERENCES public.dim, twice int GENERATED ALWAYS AS (n * 2) STORED, CHECK (n > 0),"
        " PRIMARY KEY (id, n)) PARTITION BY RANGE (n);"
        "CREATE TABLE public.e_100 PARTITION OF public.events FOR VALUES FROM (0) TO (100) WITH (fillfactor = 60);"
        "CREATE INDEX ON public.events (k); GRANT SELECT ON public.e_100 TO guest;"
        "ALTER TABLE public.e_100 REPLICA IDENTITY FULL;"
        "INSERT INTO public.events (n, k) SELECT 90, 1 FROM generate_series(1, 10)"
    )
    try:
        world.register("public.events", "1000")
        writer = world.connect(autocommit=False)
        writer.execute("INSERT INTO public.events (n, k) VALUES (99, 1)")
        made: list[str] = []
        thread = threading.Thread(target=lambda: made.extend(_premade(world, "public.events")))
        thread.start()
        thread.join(120)
        holds = bool(thread.is_alive())
        writer.commit()
        thread.join()
        assert not holds, "it waited for the writer, who holds his locks all the while"
        assert made == ["public.events_100", "public.events_200"]
        assert world.run(
            "SELECT reloptions, relreplident::text, has_table_privilege('guest', oid, 'SELECT')"
            " FROM pg_class WHERE relname = 'events_100'"
        ) == [(["fillfactor=60"], "f", True)]
        world.run("INSERT INTO public.events (n, k) VALUES (150, 1)")
        assert world.run("SELECT id, twice, tableoid::regclass::text FROM public.events WHERE n = 150") == [
            (12, 300, "events_100")
        ]
        for row, error in (
            ("(150, 2)", psycopg.errors.ForeignKeyViolation),
            ("(-5, 1)", psycopg.errors.Error),
        ):
            with pytest.raises(error):
                world.run(f"INSERT INTO public.events (n, k) VALUES {row}")
        indexes = "SELECT count(*) FROM pg_index WHERE indrelid = 'public.{}'::regclass"
        assert world.run(indexes.format("events_100")) == world.run(indexes.format("e_100"))
        assert _premade(world, "public.events") == ["public.events_300"]
    finally:
        world.run("DROP OWNED BY guest; DROP ROLE guest")


def test_what_keeps_a_partition_from_being_made_is_told(world: World) -> None:
    world.run(MONTHS.format("events", "date") + "CREATE TABLE public.rest PARTITION OF public.events DEFAULT")
    world.register("public.events", "100 years")
    world.run("INSERT INTO public.events VALUES (1, now(), NULL)")
    with pytest.raises(OperationError, match="the DEFAULT partition holds rows of it"):
        _premade(world, "public.events")
    world.run(
        "DELETE FROM public.rest; CREATE TABLE public.odd PARTITION OF public.events_hot"
        " FOR VALUES FROM ('2020-03-01') TO ('2020-03-04')"
    )
    assert len(_premade(world, "public.events")) == 3  # threes of days: the newest counts
    world.run(
        "CREATE TABLE public.n (k int PRIMARY KEY) PARTITION BY RANGE (k);"
        "CREATE TABLE public.n1 PARTITION OF public.n FOR VALUES FROM (0) TO (10);"
        "CREATE TABLE public.n2 PARTITION OF public.n FOR VALUES FROM (10) TO (13); INSERT INTO public.n VALUES (12)"
    )
    world.register("public.n", "100")
    with pytest.raises(OperationError, match="how they follow each other is not clear"):
        _premade(world, "public.n")
