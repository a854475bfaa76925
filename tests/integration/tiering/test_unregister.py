"""A table that leaves is what it was: its rows, and everything the catalogue says of it."""

from __future__ import annotations

import re
import shutil
import subprocess
from functools import partial
from operator import ne
from pathlib import Path
from typing import Any

import psycopg
import pytest
from typer.testing import CliRunner

from faults.archiver import Forks
from fix_tiering import World
from frostline import faults
from frostline.catalog.database import connect
from frostline.cli.main import app
from frostline.errors import DatabaseError
from frostline.faults import LEAVE_POINTS, InjectedFault
from frostline.pipeline.merge import quiet
from frostline.report import Silent
from frostline.tiering import register
from frostline.tiering.unregister import Left, plan, unregister
from integration.tiering.test_untier import killed, told

TABLE = """
CREATE TYPE public.mood AS ENUM ('sad', 'ok');
CREATE TABLE public.dim (k int PRIMARY KEY, note text);
CREATE TABLE public.late (k bigint PRIMARY KEY);
INSERT INTO public.dim SELECT i, 'x' FROM generate_series(0, 9) i;
INSERT INTO public.late SELECT generate_series(0, 9);
CREATE TABLE public.events (
    id bigint GENERATED ALWAYS AS IDENTITY, "At" timestamptz NOT NULL, k int CONSTRAINT to_dim REFERENCES public.dim,
    late int, m public.mood DEFAULT 'ok', v int CONSTRAINT small CHECK (v < 1000000),
    twice int GENERATED ALWAYS AS (v * 2) STORED,
    CONSTRAINT the_key PRIMARY KEY (id, "At") WITH (fillfactor = 90),
    CONSTRAINT to_late FOREIGN KEY (late) REFERENCES public.late ON DELETE CASCADE DEFERRABLE INITIALLY DEFERRED
) PARTITION BY RANGE ("At");
COMMENT ON TABLE public.events IS 'mine';
COMMENT ON CONSTRAINT the_key ON public.events IS 'the key';
CREATE TABLE public.events_01 PARTITION OF public.events FOR VALUES FROM ('2020-01-01') TO ('2020-02-01')
    WITH (fillfactor = 80);
CREATE TABLE public.events_02 PARTITION OF public.events FOR VALUES FROM ('2020-02-01') TO ('2020-03-01')
    WITH (fillfactor = 80);
CREATE TABLE public.events_now PARTITION OF public.events FOR VALUES FROM ('2020-03-01') TO (MAXVALUE)
    WITH (fillfactor = 80);
CREATE INDEX ON public.events (v);
CREATE INDEX by_mood ON public.events (m, lower(k::text)) INCLUDE (late) WHERE v > 3;
CREATE STATISTICS public.together ON k, m FROM public.events;
ALTER TABLE public.events ALTER COLUMN k SET STATISTICS 50;
CREATE FUNCTION public.noted() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NEW; END';
CREATE TRIGGER noted BEFORE INSERT ON public.events FOR EACH ROW EXECUTE FUNCTION public.noted();
CREATE VIEW public.seen AS SELECT id, v FROM public.events;
GRANT SELECT ON public.events TO pg_monitor;
INSERT INTO public.events ("At", k, late, v)
    SELECT timestamptz '2020-01-01' + i * interval '1 h', i % 10, i % 10, i FROM generate_series(0, 2000) i;
CREATE TABLE public.plain AS TABLE public.events;
"""

# What the catalogue says of every relation in the schema public; which way a partition came by what it inherits is not
# part of it: a leaf that was detached and attached says so.
_CATALOGUE = {
    "relations": """
        SELECT c.oid::regclass::text, c.relkind, c.relpersistence, c.reloptions, c.relreplident, c.relrowsecurity,
               c.relacl, c.relowner::regrole::text, pg_get_expr(c.relpartbound, c.oid), pg_get_partkeydef(c.oid),
               (SELECT inhparent::regclass::text FROM pg_inherits WHERE inhrelid = c.oid),
               obj_description(c.oid, 'pg_class')
        FROM pg_class c WHERE c.relnamespace = 'public'::regnamespace ORDER BY 1""",
    "columns": """
        SELECT a.attrelid::regclass::text, a.attnum, a.attname, format_type(a.atttypid, a.atttypmod), a.attnotnull,
               a.attidentity, a.attgenerated, a.attstorage, a.attcompression, a.attstattarget, a.attacl,
               pg_get_expr(d.adbin, d.adrelid)
        FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid AND c.relnamespace = 'public'::regnamespace
        LEFT JOIN pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
        WHERE a.attnum > 0 AND NOT a.attisdropped ORDER BY 1, 2""",
    "constraints": """
        SELECT k.conrelid::regclass::text, k.conname, k.contype, k.condeferrable, k.condeferred, k.convalidated,
               pg_get_constraintdef(k.oid), k.conindid::regclass::text, up.conname,
               obj_description(k.oid, 'pg_constraint')
        FROM pg_constraint k LEFT JOIN pg_constraint up ON up.oid = k.conparentid
        WHERE k.connamespace = 'public'::regnamespace AND k.contype <> 'n' ORDER BY 1, 2, 7""",
    "indexes": """
        SELECT x.indexrelid::regclass::text, pg_get_indexdef(x.indexrelid), x.indisvalid, x.indisprimary,
               (SELECT inhparent::regclass::text FROM pg_inherits WHERE inhrelid = x.indexrelid)
        FROM pg_index x JOIN pg_class c ON c.oid = x.indexrelid AND c.relnamespace = 'public'::regnamespace
        ORDER BY 1""",
    "triggers": """
        SELECT t.tgrelid::regclass::text, CASE WHEN t.tgisinternal THEN t.tgfoid::regproc::text ELSE t.tgname END,
               t.tgenabled, t.tgtype, t.tgisinternal, t.tgdeferrable, count(*)
        FROM pg_trigger t JOIN pg_class c ON c.oid = t.tgrelid AND c.relnamespace = 'public'::regnamespace
        GROUP BY 1, 2, 3, 4, 5, 6 ORDER BY 1, 2, 4""",
    "functions": "SELECT oid::regprocedure::text FROM pg_proc WHERE pronamespace = 'public'::regnamespace ORDER BY 1",
    "schemas": "SELECT nspname FROM pg_namespace WHERE nspname !~ '^pg_' ORDER BY 1",
    "ours": """
        SELECT c.oid::regclass::text FROM pg_class c
        WHERE c.relnamespace IN ('frostline'::regnamespace, 'frostline_delta'::regnamespace) ORDER BY 1""",
    "our functions": """
        SELECT oid::regprocedure::text FROM pg_proc
        WHERE pronamespace IN ('frostline'::regnamespace, 'frostline_delta'::regnamespace) ORDER BY 1""",
    "sequence": "SELECT last_value, is_called FROM public.events_id_seq",
}


def catalogue(world: World) -> dict[str, list[tuple[Any, ...]]]:
    return {name: world.run(query) for name, query in _CATALOGUE.items()}


def dump(world: World) -> str | None:
    """What pg_dump writes of the schema public, where there is one for this server."""
    program = shutil.which("pg_dump")
    [(version,)] = world.run("SELECT current_setting('server_version_num')::int / 10000")
    if program is None or f" {version}." not in subprocess.check_output([program, "--version"], text=True):
        return None
    written = subprocess.check_output([program, "--schema-only", "--schema=public", world.dsn], text=True)
    return re.sub(r"^\\(un)?restrict .*$", "", written, flags=re.M)


def leave(world: World, *, keep_lake: bool = False) -> Left:
    return unregister(world.settings, "public.events", Silent(), keep_lake=keep_lake)


def rows(world: World, table: str) -> list[tuple[Any, ...]]:
    return world.run(f"SELECT r.id, r::text FROM {table} r ORDER BY 1")


@pytest.mark.parametrize(("any_world", "mode"), [("18", "check"), ("15", "none")], indirect=["any_world"])
def test_the_catalogue_is_what_it_was(any_world: World, mode: str, tmp_path: Path) -> None:
    world = any_world
    world.run(TABLE)
    before, text = catalogue(world), dump(world)
    with connect(world.dsn) as connection:
        register.register(connection, "public.events", "3 months", {"cold_fk": mode, "premake": "0"})
    assert catalogue(world) != before
    world.archive("public.events")
    for table in ("public.events", "public.plain"):
        world.run(
            f"""UPDATE {table} SET v = v + 1 WHERE id IN (5, 800, 1900); DELETE FROM {table} WHERE id IN (6, 801)"""
        )
    assert [(one.period.name, one.rows, one.changed) for one in plan(world.settings, "public.events")] == [
        ("events_02", 696, 2),
        ("events_01", 744, 2),
    ]
    world.run("UPDATE public.plain SET twice = v * 2")
    files = world.directory("events")
    assert files.exists()
    left = _leave_meanwhile(
        world,
        tmp_path,
        {
            "load.copied": "ALTER TABLE public.events RENAME TO elsewhere",
            "untier.tidied": "ALTER TABLE public.elsewhere RENAME TO events",
            "leave.dropped": "ALTER TABLE public.events_hot RENAME TO elsewhere",
        },
    )
    assert ([one.rows for one in left.returned], left.lake) == ([695, 743], None)
    assert rows(world, "public.events") == rows(world, "public.plain")
    after = catalogue(world)
    for name, found in before.items():
        assert after[name] == found, name
    assert dump(world) == text
    assert not files.exists()
    assert world.run("SELECT count(*) FROM frostline_lake.iceberg_tables") == [(0,)]
    _is_of_use(world)


def _leave_meanwhile(world: World, directory: Path, statements: dict[str, str]) -> Left:
    """Leave, while others alter the table, once each."""

    def act(point: str) -> bool:
        if statement := statements.pop(point, None):
            world.run(f"SET lock_timeout = '10s'; {statement}")
        return True

    with told(directory, act) as path, pytest.MonkeyPatch.context() as patch:
        patch.setenv(faults.VARIABLE, str(path))
        left = leave(world)
    assert statements == {}
    return left


def _is_of_use(world: World) -> None:
    """Keys hold, and the table can be registered and archived once more."""
    with pytest.raises(psycopg.errors.ForeignKeyViolation):
        world.run("DELETE FROM public.dim WHERE k = 1")
    world.run("DELETE FROM public.late WHERE k = 1")
    world.run("DELETE FROM public.plain WHERE late = 1")
    world.run('INSERT INTO public.events ("At", v) VALUES (\'2020-01-02\', 7) ON CONFLICT (id, "At") DO NOTHING')
    world.run("DELETE FROM public.events WHERE v = 7 AND \"At\" = '2020-01-02' AND k IS NULL")
    world.register("public.events")
    world.archive("public.events")
    assert rows(world, "public.events") == rows(world, "public.plain")


@pytest.mark.parametrize("how", ["fails", "is killed"])
def test_wherever_it_ends_the_next_run_goes_on(world: World, tmp_path: Path, how: str) -> None:
    world.run(TABLE)
    before = catalogue(world)
    with connect(world.dsn) as connection:
        register.register(connection, "public.events", "3 months", {"premake": "0"})
    world.archive("public.events")
    # A row below the oldest partition, where the table had none: it comes back in a partition of its own.
    world.run("INSERT INTO public.events (id, \"At\", v) OVERRIDING SYSTEM VALUE VALUES (-1, '2019-05-05', 3)")
    world.run("INSERT INTO public.plain (id, \"At\", v, twice, m) VALUES (-1, '2019-05-05', 3, 6, 'ok')")
    forks = Forks(world.settings)
    for point in ("load.copied", "attach.commit", "untier.tidied", *LEAVE_POINTS):
        if how == "is killed":
            assert killed(forks, tmp_path, "unregister", point).killed, point
        else:
            with told(tmp_path, partial(ne, point)) as path, pytest.MonkeyPatch.context() as patch:
                patch.setenv(faults.VARIABLE, str(path))
                with pytest.raises(InjectedFault):
                    leave(world)
        assert rows(world, "public.events") == rows(world, "public.plain"), point
    forks.end()
    assert world.run("SELECT count(*) FROM frostline.tables") == [(0,)]
    assert world.run("SELECT count(*) FROM public.events_before") == [(1,)]
    world.run("DELETE FROM public.events WHERE id = -1; DROP TABLE public.events_before")
    after = catalogue(world)
    for name, found in before.items():
        assert after[name] == found, name


ODD = """
CREATE TABLE public."%d" ("%(a)s" date, "v%" int, PRIMARY KEY ("%(a)s")) PARTITION BY RANGE ("%(a)s");
CREATE TABLE public."%s" PARTITION OF public."%d" FOR VALUES FROM ('2020-01-01') TO ('2020-02-01');
INSERT INTO public."%d" VALUES ('2020-01-05', 1);
"""


def _names_have_percent_signs(world: World) -> None:
    world.run(ODD)
    world.register('public."%d"')
    world.archive('public."%d"')
    assert [one.rows for one in unregister(world.settings, 'public."%d"', Silent(), keep_lake=False).returned] == [1]
    assert world.run('SELECT "v%", tableoid::regclass::text FROM public."%d"') == [(1, '"%s"')]


def test_the_lake_can_be_kept_and_all_of_frostline_removed(world: World) -> None:
    _names_have_percent_signs(world)
    world.run(TABLE)
    world.register("public.events")
    world.archive("public.events")

    def invoke(*arguments: str) -> Any:
        settings = ["--dsn", world.dsn, "--dir", str(world.settings.local.dir)]
        return CliRunner(env={"FROSTLINE_LAKE_WAREHOUSE": world.settings.warehouse}).invoke(
            app, [*settings, *arguments]
        )

    refused = invoke("uninstall")
    assert refused.exit_code == 1
    assert "public.events would lose their cold rows" in refused.output
    dry = invoke("unregister", "public.events", "--keep-lake", "--dry-run")
    assert "1,440 rows" in dry.output
    done = invoke("unregister", "public.events", "--keep-lake")
    assert done.exit_code == 0, done.output
    assert "public.events is an ordinary table again." in done.output
    assert "The Iceberg table public.events in " in done.output
    with world.spark_here() as spark, quiet():
        assert spark.sql("SELECT count(*), sum(v) FROM frostline.public.events").collect()[0][:] == (1440, 1036080)
    assert rows(world, "public.events") == rows(world, "public.plain")
    world.gateway.stop(grace=0)
    done = invoke("uninstall")
    assert done.exit_code == 0, done.output
    assert world.run("SELECT nspname FROM pg_namespace WHERE nspname LIKE 'frostline%'") == [("frostline_lake",)]
    assert world.run("SELECT count(*) FROM pg_foreign_server") == [(0,)]
    assert rows(world, "public.events") == rows(world, "public.plain")
    with pytest.raises(DatabaseError, match="not installed"):
        leave(world)
