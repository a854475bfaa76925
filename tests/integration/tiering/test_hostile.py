"""What other people's triggers, policies, casts, schedulers and tools can do to a table that is being archived."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import psycopg
import pytest

from fix_tiering import World
from frostline.catalog.install import install
from frostline.errors import FrostlineError, LakeError, OperationError, RefusedError
from frostline.lake import catalog as lake
from frostline.pipeline import export as pipeline
from frostline.report import Silent
from frostline.tiering.archive import swap, verify
from frostline.tiering.archive.run import Warm
from frostline.tiering.fold.run import fold
from frostline.tiering.unregister import unregister
from frostline.tiering.untier.run import untier

SIMPLE = """
CREATE TABLE public.events (id bigint, ts timestamptz NOT NULL, v int, PRIMARY KEY (id, ts)) PARTITION BY RANGE (ts);
CREATE TABLE public.events_01 PARTITION OF public.events FOR VALUES FROM ('2020-01-01') TO ('2020-02-01');
CREATE TABLE public.events_now PARTITION OF public.events FOR VALUES FROM ('2020-02-01') TO (MAXVALUE);
INSERT INTO public.events SELECT i, timestamptz '2020-01-01' + i * interval '1 h', i FROM generate_series(1, 1000) i;
"""


def rows(world: World, table: str = "public.events") -> list[tuple[Any, ...]]:
    return world.run(f"SELECT r::text FROM {table} r ORDER BY 1")


def before(monkeypatch: pytest.MonkeyPatch, module: Any, name: str, act: Callable[[], object]) -> None:
    """Let somebody act just before a step of ours, once."""
    real, left = getattr(module, name), [act]

    def wrapped(*arguments: Any, **options: Any) -> Any:
        if left:
            left.pop()()
        return real(*arguments, **options)

    monkeypatch.setattr(module, name, wrapped)


def test_a_user_s_trigger_that_changes_the_row_once_more_has_the_last_word(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.run(
        SIMPLE
        + """
        CREATE FUNCTION public.meddle() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
            IF pg_trigger_depth() = 1 THEN
                UPDATE public.events SET v = v + 1000 WHERE id = 2;
                DELETE FROM public.events WHERE id = 3;
            END IF;
            RETURN NULL;
        END $$;
        CREATE TRIGGER meddle AFTER UPDATE ON public.events FOR EACH ROW EXECUTE FUNCTION public.meddle();
        """
    )
    world.register("public.events")
    before(
        monkeypatch, pipeline, "export", lambda: world.run("UPDATE public.events SET v = v + 1 WHERE id IN (1, 2, 3)")
    )
    after: list[Any] = []
    before(monkeypatch, swap, "swap", lambda: after.extend(rows(world)))
    assert len(world.archive("public.events")) == 1
    assert rows(world) == after
    assert world.run("SELECT id, v FROM public.events WHERE id <= 3 ORDER BY id") == [(1, 2), (2, 3003)]


@pytest.mark.parametrize(
    "change",
    [
        "ALTER TABLE public.events_01 DISABLE TRIGGER ALL; UPDATE public.events_01 SET v = -1 WHERE id = 5;"
        "ALTER TABLE public.events_01 ENABLE TRIGGER ALL",
        "DROP TABLE public.events_01; CREATE TABLE public.events_01 PARTITION OF public.events_hot"
        " FOR VALUES FROM ('2020-01-01') TO ('2020-02-01'); INSERT INTO public.events VALUES (5, '2020-01-05', -5)",
        "ALTER TABLE public.events_01 RENAME TO january",
        "VACUUM FULL public.events_01",
        "ALTER TABLE public.events ADD COLUMN w int DEFAULT 9",
        # What is there again as it was.
        "ALTER TABLE public.events ALTER v SET NOT NULL; UPDATE public.events SET v = -1 WHERE id = 5;"
        "ALTER TABLE public.events ALTER v DROP NOT NULL",
        # The leaf now holds rows of the next one, too.
        "ALTER TABLE public.events_hot DETACH PARTITION public.events_01; "
        "ALTER TABLE public.events_hot DETACH PARTITION public.events_now; "
        "INSERT INTO public.events_01 SELECT id, ts, -5 FROM public.events_now WHERE id = 900; "
        "DELETE FROM public.events_now; ALTER TABLE public.events_hot ATTACH PARTITION public.events_01"
        " FOR VALUES FROM ('2020-01-01') TO ('2020-03-01'); ALTER TABLE public.events_hot ATTACH PARTITION"
        " public.events_now FOR VALUES FROM ('2020-03-01') TO (MAXVALUE)",
    ],
)
def test_whatever_happens_to_the_leaf_before_the_swap_stops_it(
    world: World, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    world.run(SIMPLE)
    world.register("public.events")

    def act() -> None:
        for statement in change.split("; "):
            world.run(statement)

    before(monkeypatch, swap, "swap", act)
    with pytest.raises(OperationError, match="events_01 was altered, rewritten or had its triggers switched off"):
        world.archive("public.events")
    hot = world.run("SELECT count(*) FROM pg_partition_tree('public.events_hot') WHERE isleaf")
    assert hot == [(2,)]
    assert world.run("SELECT count(*) FROM public.events_hot WHERE v = -1 OR v = -5") in ([(0,)], [(1,)])
    assert world.run("SELECT count(*) FROM pg_trigger WHERE tgname LIKE '!frostline capture'") == [(0,)]


def test_rows_a_policy_hides_are_not_left_behind(as_role: World, world: World) -> None:
    """The owner of a table with FORCE ROW LEVEL SECURITY sees a part of it; that part must not pass for the whole."""
    world.run(SIMPLE)
    keeper = psycopg.conninfo.conninfo_to_dict(as_role.dsn)["user"]
    world.register("public.events")
    world.run(
        f"ALTER TABLE public.events_01 OWNER TO {keeper}; ALTER TABLE public.events_01 ENABLE ROW LEVEL SECURITY;"
        "ALTER TABLE public.events_01 FORCE ROW LEVEL SECURITY;"
        "CREATE POLICY half ON public.events_01 USING (id < 100);"
        f"ALTER TABLE public.events OWNER TO {keeper}; ALTER TABLE public.events_hot OWNER TO {keeper};"
        f"GRANT USAGE, CREATE ON SCHEMA frostline, frostline_delta, frostline_lake, public TO {keeper};"
        f"GRANT ALL ON ALL TABLES IN SCHEMA frostline, frostline_delta, frostline_lake TO {keeper};"
        f"GRANT ALL ON ALL SEQUENCES IN SCHEMA frostline TO {keeper};"
        f"ALTER FUNCTION frostline_delta.no_truncate_1 OWNER TO {keeper}"
    )
    with pytest.raises((FrostlineError, psycopg.errors.InsufficientPrivilege), match="row-level security"):
        as_role.archive("public.events")
    assert world.run("SELECT count(*) FROM public.events_01") == [(743,)]


def test_the_output_function_counts_not_somebody_s_cast(world: World) -> None:
    world.run(
        """
        CREATE TYPE public.colour AS ENUM ('red', 'green');
        CREATE FUNCTION public.lie(public.colour) RETURNS text LANGUAGE sql IMMUTABLE AS $$ SELECT 'red' $$;
        CREATE CAST (public.colour AS text) WITH FUNCTION public.lie(public.colour);
        CREATE TABLE public.events (id bigint, ts timestamptz NOT NULL, c public.colour, b bpchar, PRIMARY KEY (id, ts))
            PARTITION BY RANGE (ts);
        CREATE TABLE public.events_01 PARTITION OF public.events FOR VALUES FROM ('2020-01-01') TO ('2020-02-01');
        CREATE TABLE public.events_now PARTITION OF public.events FOR VALUES FROM ('2020-02-01') TO (MAXVALUE);
        INSERT INTO public.events VALUES
            (1, '2020-01-05', 'green', 'ab   '), (2, '2020-01-05', 'red', ''), (3, '2020-01-06', NULL, NULL);
        """
    )
    look = "SELECT id, c = 'green', format('%s', c), format('[%s]', b), b IS NULL FROM public.events ORDER BY id"
    expected = world.run(look)
    world.register("public.events")
    world.archive("public.events")
    assert world.run(look) == expected


def test_a_domain_that_is_not_null_does_not_stop_a_delete(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.run(
        "CREATE DOMAIN public.filled AS text NOT NULL CHECK (VALUE <> '');"
        + SIMPLE.replace("v int,", "v int, f public.filled DEFAULT 'x',").replace("'1 h', i FROM", "'1 h', i, 'y' FROM")
    )
    world.register("public.events")
    before(monkeypatch, pipeline, "export", lambda: world.run("DELETE FROM public.events WHERE id = 7"))
    world.archive("public.events")
    assert world.run("SELECT count(*), min(f::text) FROM public.events") == [(999, "y")]
    assert world.run("SELECT id FROM public.events WHERE id IN (6, 7)") == [(6,)]


def test_somebody_else_s_commit_to_the_iceberg_table_is_not_taken_in(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.run(
        SIMPLE.replace("TO (MAXVALUE)", "TO ('2020-03-01')") + "CREATE TABLE public.events_last"
        " PARTITION OF public.events FOR VALUES FROM ('2020-03-01') TO (MAXVALUE)"
    )
    world.register("public.events")
    spark = world.spark_here()

    def intrude() -> None:
        with spark as session:
            session.sql("INSERT INTO frostline.public.events SELECT id + 100000, ts, v FROM frostline.public.events")

    calls = []
    real = pipeline.export

    def second(*arguments: Any) -> None:
        calls.append(1)
        if len(calls) == 2:
            intrude()
        real(*arguments)

    monkeypatch.setattr(pipeline, "export", second)
    with pytest.raises(OperationError, match="shows no commit of operation"):
        world.archive("public.events")
    assert world.run("SELECT count(*) FROM public.events") == [(1000,)]
    world.archive("public.events")
    assert world.run("SELECT count(*), count(*) FILTER (WHERE id > 100000) FROM public.events") == [(1000, 0)]


def test_a_lake_table_that_is_not_ours_is_left_alone(world: World) -> None:
    """A table of the same name was archived once and dropped; its files are still somebody's history."""
    world.run(SIMPLE)
    world.register("public.events")
    world.archive("public.events")
    world.run("DROP TABLE public.events; DELETE FROM frostline.periods; DELETE FROM frostline.tables")
    world.run(SIMPLE)
    world.register("public.events")
    world.archive("public.events")
    assert world.run("SELECT count(*) FROM public.events") == [(1000,)]
    assert world.run("SELECT table_name FROM frostline_lake.iceberg_tables ORDER BY 1") == [("events",), ("events_2",)]
    with lake.opened(world.settings) as catalog:
        assert catalog.load_table(("public", "events")).scan().count() == 743


def test_what_depends_on_the_leaf_keeps_it_in_postgres_and_later_runs_go_on(world: World) -> None:
    world.run(
        SIMPLE + "CREATE FUNCTION public.first() RETURNS bigint LANGUAGE sql BEGIN ATOMIC"
        " SELECT min(id) FROM public.events_01; END"
    )
    world.register("public.events")
    with pytest.raises(RefusedError, match="depends on that partition itself") as error:
        world.archive("public.events")
    assert "first()" in (error.value.detail or "")
    assert world.run("SELECT public.first()") == [(1,)]
    world.run("DROP FUNCTION public.first()")
    assert len(world.archive("public.events")) == 1


def test_timeouts_set_for_the_database_do_not_stop_a_run(world: World) -> None:
    world.run(SIMPLE)
    world.register("public.events")
    name = psycopg.conninfo.conninfo_to_dict(world.dsn)["dbname"]
    for setting in ("idle_in_transaction_session_timeout", "statement_timeout", "idle_session_timeout"):
        world.run(f"ALTER DATABASE \"{name}\" SET {setting} = '300ms'")
    assert len(world.archive("public.events")) == 1


def test_a_database_that_is_elsewhere_and_prints_otherwise_is_served_the_same(world: World) -> None:
    ((name,),) = world.run("SELECT current_database()")
    for setting in ("timezone = 'America/St_Johns'", "datestyle = 'German, DMY'", "intervalstyle = 'iso_8601'"):
        world.run(f"ALTER DATABASE {name} SET {setting}")
    world.run(
        SIMPLE.replace("v int", "v int, took interval, during tstzrange, on_ date")
        + "UPDATE public.events SET took = v * interval '25 h', during = tstzrange(ts, ts + '1 h'), on_ = ts::date"
    )
    before = rows(world)
    world.register("public.events")
    assert len(world.archive("public.events")) == 1
    assert rows(world) == before
    assert world.run("UPDATE public.events SET took = took * 2 WHERE id = 7 RETURNING took = interval '350 h'") == [
        (True,)
    ]
    assert world.run("SELECT took = interval '350 h', during = tstzrange(ts, ts + '1 h') FROM events WHERE id = 7") == [
        (True, True)
    ]


def test_a_sequence_that_the_leaf_owns_goes_on_counting(world: World) -> None:
    """The leaf was a table of its own once, and what numbers its rows numbers those of the whole table."""
    world.run(
        SIMPLE
        + """
        CREATE SEQUENCE public.own OWNED BY public.events_01.id START 5000;
        ALTER TABLE public.events ALTER id SET DEFAULT nextval('public.own');
        """
    )
    world.register("public.events")
    assert len(world.archive("public.events")) == 1
    assert world.run("INSERT INTO public.events (ts) VALUES (now()) RETURNING id") == [(5000,)]


def test_a_partition_made_below_the_seam_holds_nothing_up(world: World) -> None:
    """A scheduler that fills up the past makes it under the hot partition; rows of that time are cold all the same."""
    world.run(SIMPLE)
    world.register("public.events")
    assert len(world.archive("public.events")) == 1
    world.run(
        "CREATE TABLE public.events_19 PARTITION OF public.events_hot FOR VALUES FROM ('2019-01-01') TO ('2019-02-01')"
    )
    world.run("INSERT INTO public.events VALUES (5000, '2019-01-05', 1)")
    assert world.archive("public.events") == []
    assert world.run("SELECT v FROM public.events WHERE id = 5000") == [(1,)]


def test_a_column_whose_collation_calls_different_texts_equal_is_archived(world: World) -> None:
    world.run(
        "CREATE COLLATION public.ci (provider = icu, locale = 'und-u-ks-level2', deterministic = false);"
        + SIMPLE.replace("v int,", "v int, t text COLLATE public.ci,").replace(
            "'1 h', i FROM", "'1 h', i, 'T' || i FROM"
        )
    )
    expected = rows(world)
    world.register("public.events")
    assert len(world.archive("public.events")) == 1
    assert rows(world) == expected
    assert world.run("SELECT id FROM public.events WHERE t = 't77'") == [(77,)]


def test_on_conflict_goes_to_the_hot_partition_as_whoever_may_write_the_table(any_world: World) -> None:
    world = any_world
    world.run(
        SIMPLE.replace("id bigint,", "id bigint GENERATED BY DEFAULT AS IDENTITY,")
        + "CREATE ROLE hot_writer; GRANT SELECT, INSERT, UPDATE ON public.events TO hot_writer;"
        "SELECT setval(pg_get_serial_sequence('public.events', 'id'), 5000);"
        "GRANT USAGE ON ALL SEQUENCES IN SCHEMA public TO hot_writer"
    )
    world.register("public.events")
    client = world.connect()
    try:
        client.execute("SET ROLE hot_writer")
        upsert = (
            "INSERT INTO public.events_hot (ts, v) VALUES ('2020-02-05', 1)"
            " ON CONFLICT (id, ts) DO UPDATE SET v = 2 RETURNING id"
        )
        assert client.execute(upsert).fetchone() == (5001,)
    finally:
        client.execute("RESET ROLE; DROP OWNED BY hot_writer; DROP ROLE hot_writer")


def test_rows_in_the_default_partition_below_the_new_seam_are_named(world: World) -> None:
    world.run(
        SIMPLE.replace("FROM ('2020-02-01') TO (MAXVALUE)", "FROM ('2020-02-01') TO ('2020-04-01')")
        + "CREATE TABLE public.events_rest PARTITION OF public.events DEFAULT"
    )
    world.register("public.events")
    world.run(
        "ALTER TABLE public.events_hot DETACH PARTITION public.events_01;"
        "INSERT INTO public.events VALUES (7, '2020-01-05', 7)"
    )
    with pytest.raises(RefusedError, match=r"DEFAULT partition public\.events_rest holds rows below"):
        world.archive("public.events")


def test_the_files_are_flushed_before_the_heap_is_forgotten(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    import os

    flushed: list[str] = []
    real = os.fsync

    def note(descriptor: int) -> None:
        flushed.append(str(Path(f"/proc/self/fd/{descriptor}").readlink()))
        real(descriptor)

    monkeypatch.setattr(os, "fsync", note)
    seen: list[int] = []
    before(monkeypatch, swap, "swap", lambda: seen.append(len(flushed)))
    world.run(SIMPLE)
    world.register("public.events")
    world.archive("public.events")
    [before_swap] = seen
    word, folder = map(Path, flushed[before_swap:])  # which tells copies of this database, and no reader looks for
    assert word.parent == folder
    assert word.name.startswith("frostline-turn-")
    del flushed[before_swap:]
    assert {name.rsplit(".", 1)[-1] for name in flushed if "." in name.rsplit("/", 1)[-1]} == {
        "parquet",
        "avro",
        "json",
    }
    assert any(name.endswith("/period=2020-01") for name in flushed)


def test_a_lake_that_cannot_be_used_is_one_clear_error(world: World) -> None:
    world.run(SIMPLE)
    world.register("public.events")
    (world.settings.local.dir / "lake").write_text("a file in the lake's place")
    with pytest.raises(LakeError, match="the lake") as error:
        world.archive("public.events")
    assert str(world.settings.warehouse) in str(error.value)
    assert world.run("SELECT count(*) FROM public.events") == [(1000,)]


def test_a_table_that_is_altered_before_its_copy_is_compared_is_no_damage(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is written after that is not captured, so that the copy differs."""
    world.run(SIMPLE)
    world.register("public.events")

    def act() -> None:
        world.run("ALTER TABLE public.events ADD COLUMN w int")
        world.run("UPDATE public.events SET v = -1 WHERE id = 5")

    before(monkeypatch, verify, "verify", act)
    with pytest.raises(OperationError, match="was altered, rewritten or had its triggers switched off meanwhile"):
        world.archive("public.events")
    assert world.run("SELECT count(*) FROM frostline.alarms") == [(0,)]
    assert len(world.archive("public.events")) == 1
    assert world.run("SELECT v FROM public.events WHERE id = 5") == [(-1,)]


def test_a_publication_of_all_tables_stands_in_nobody_s_way(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """It has our tables too, and Postgres refuses to delete what it publishes and cannot tell apart."""
    world.run(
        "CREATE PUBLICATION everything FOR ALL TABLES;"
        "CREATE TABLE public.kinds (id int PRIMARY KEY); INSERT INTO public.kinds SELECT generate_series(1, 2000);"
        + SIMPLE
        + "ALTER TABLE public.events ADD FOREIGN KEY (v) REFERENCES public.kinds ON DELETE CASCADE"
    )
    world.register("public.events")
    before(monkeypatch, pipeline, "export", lambda: world.run("DELETE FROM public.events WHERE id = 5"))
    before(monkeypatch, swap, "lock", lambda: world.run("UPDATE public.events SET v = 2000 WHERE id = 6"))
    assert len(world.archive("public.events")) == 1
    world.run("UPDATE public.events SET v = 1999 WHERE id = 7; DELETE FROM public.kinds WHERE id IN (8, 1999)")
    expected = rows(world)
    assert world.run("SELECT count(*) FROM public.events WHERE id IN (5, 7, 8)") == [(0,)]
    with Warm(world.spark_here) as warm:
        fold(world.settings, "public.events", Silent(), warm)
        assert rows(world) == expected
        world.run("UPDATE public.events SET v = 1998 WHERE id = 9")
        untier(world.settings, "public.events", "2020-01-05", Silent(), warm)
    assert world.run("SELECT v FROM public.events WHERE id = 9") == [(1998,)]
    assert len(world.archive("public.events")) == 1
    unregister(world.settings, "public.events", Silent(), keep_lake=False)
    assert len(rows(world)) == len(expected)


def test_a_publication_of_all_tables_stands_in_nobody_s_way_after_an_upgrade(world: World) -> None:
    world.run(
        "CREATE TABLE public.kinds (id int PRIMARY KEY); INSERT INTO public.kinds SELECT generate_series(1, 1000);"
        + SIMPLE
        + "ALTER TABLE public.events ADD FOREIGN KEY (v) REFERENCES public.kinds ON DELETE CASCADE"
    )
    world.register("public.events")
    world.run(
        "ALTER TABLE frostline_delta.events_1 REPLICA IDENTITY DEFAULT;"
        "DELETE FROM frostline.migrations WHERE number = 28"
    )
    assert install(world.dsn) == ["migration 028_publications.sql"]
    world.run("CREATE PUBLICATION everything FOR ALL TABLES")
    assert len(world.archive("public.events")) == 1
    world.run("DELETE FROM public.kinds WHERE id = 8")
    assert world.run("SELECT count(*) FROM public.events") == [(999,)]
