"""After a restore, and in a clone: Postgres finds its rows, and the lake belongs to one database only."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from pydantic import SecretStr
from pyspark.sql import SparkSession

from fix_cluster import Cluster
from fix_faults import at
from fix_lake import Lake
from fix_tiering import World, new_world
from frostline.catalog import registry
from frostline.catalog.database import connect
from frostline.catalog.install import install
from frostline.errors import FrostlineError, LakeError, RefusedError
from frostline.faults import InjectedFault
from frostline.gateway.server import Gateway
from frostline.local.ports import free_port
from frostline.report import Silent
from frostline.tiering import adopt, clean, cycle, doctor, verify
from frostline.tiering.archive.run import Warm
from frostline.tiering.checks import PROBLEM
from frostline.tiering.fold.run import fold
from frostline.tiering.locks import only_writer
from frostline.tiering.maintain.run import maintain
from frostline.tiering.unregister import unregister
from frostline.tiering.untier.run import untier
from integration.tiering.test_archive import SIMPLE

PLAIN = SIMPLE + "CREATE TABLE public.plain AS TABLE public.events;"


def rows(world: World, table: str) -> list[tuple[Any, ...]]:
    return world.run(f"SELECT r.id, r::text FROM {table} r ORDER BY 1, 2")


def same(world: World) -> None:
    assert rows(world, "public.events") == rows(world, "public.plain")


def both(world: World, statement: str) -> None:
    world.run("; ".join(statement.format(t=table) for table in ("public.events", "public.plain")))


def folded(world: World) -> None:
    with Warm(world.spark_here) as warm:
        fold(world.settings, "public.events", Silent(), warm)


def test_restored_to_a_point_in_time_it_finds_its_rows_and_sets_the_lost_future_aside(
    cluster: Cluster, spark: SparkSession, tmp_path: Path
) -> None:
    with new_world(cluster.dsn, spark, tmp_path, {"archive.orphan_age": "0"}) as world:
        world.run(PLAIN)
        world.register("public.events", "3 months")
        world.archive("public.events")
        both(world, "UPDATE {t} SET v = v + 1 WHERE id IN (1, 2, 3)")
        copy = cluster.copy("copy")
        both(world, "UPDATE {t} SET v = v + 1 WHERE id IN (10, 800)")
        world.run("SELECT pg_create_restore_point('here')")
        # What is lost: other changes, in the delta and folded, and files that took the place of all there were.
        both(world, "UPDATE {t} SET v = -1 WHERE id IN (20, 21, 801)")
        same(world)
        folded(world)
        world.gateway._presence.pins.drop_unused(0)  # only the backup window keeps the old ones
        with Warm(world.spark_here) as warm:
            assert maintain(world.settings, "public.events", Silent(), warm, everything=True)
        both(world, "DELETE FROM {t} WHERE id < 50")
        world.run("SELECT pg_switch_wal()")
        world.run("CHECKPOINT")
        cluster.server.stop()
        cluster.start(copy, cluster.port, "recovery_target_name = 'here'")
        # The gateway has lived through it, and knows versions with the numbers that are given now once more.
        same(world)
        assert world.run("SELECT v FROM public.events WHERE id IN (10, 20) ORDER BY id") == [(11,), (20,)]
        both(world, "UPDATE {t} SET v = -2 WHERE id IN (30, 31, 802)")
        same(world)
        with pytest.raises(RefusedError, match="not the one that its lake belongs to") as error:
            folded(world)
        assert "timeline 1; this is" in (error.value.detail or "")
        [found] = adopt.successor(world.settings, Silent())
        assert found.table == "public.events"
        folded(world)
        same(world)
        with (
            connect(world.dsn) as connection,
            only_writer(connection, registry.get(connection, "public.events")) as managed,
        ):
            removed = clean.clean(connection, world.settings, managed, 0, Silent())
        assert any(one.what == "file" and not one.kept for one in removed)  # of the lost future
        same(world)
        assert {f.state for f in verify.verify(world.settings, "public.events", None, Silent())} == {"good"}


def test_a_clone_is_refused_until_it_has_a_name_of_its_own_and_never_changes_the_lake(
    cluster: Cluster, spark: SparkSession, tmp_path: Path
) -> None:
    with new_world(cluster.dsn, spark, tmp_path) as world:
        world.run(PLAIN)
        world.register("public.events", "3 months")
        world.archive("public.events")
        both(world, "UPDATE {t} SET v = v + 1 WHERE id IN (1, 2, 3)")
        copy, port = cluster.copy("copy"), free_port()
        cluster.start(copy, port, "recovery_target = 'immediate'")
        files = sorted(str(path) for path in world.directory("events").rglob("*"))
        settings = world.settings.model_copy(update={"dsn": SecretStr(make_conninfo(world.dsn, port=port))})
        clone = World(settings, world.spark, Gateway(settings))
        with pytest.raises(psycopg.errors.SqlclientUnableToEstablishSqlconnection, match="is a copy of it"):
            rows(clone, "public.events")
        for work in (lambda: clone.archive("public.events"), lambda: folded(clone)):
            with pytest.raises(RefusedError, match="not the one that its lake belongs to"):
                work()
        with pytest.raises(RefusedError, match="is the one its lake belongs to"):
            adopt.copy(world.settings)
        adopt.copy(settings)
        clone.gateway.start()
        try:
            _a_copy_of_its_own(clone)
        finally:
            clone.gateway.stop(grace=0)
        assert sorted(str(path) for path in world.directory("events").rglob("*")) == files
        same(world)
        folded(world)
        assert {f.state for f in verify.verify(world.settings, "public.events", None, Silent())} == {"good"}


def test_a_snapshot_of_the_disk_is_known_by_what_the_other_one_has_done(
    cluster: Cluster, spark: SparkSession, tmp_path: Path
) -> None:
    """Cluster, database and timeline are the original's. What this writes later would be leftovers to the copy."""
    with new_world(cluster.dsn, spark, tmp_path) as world:
        world.run(PLAIN)
        world.register("public.events", "100 years")
        world.archive("public.events", "2020-02-01")
        copy, port = cluster.disk("snapshot"), free_port()
        copy.start(port)
        settings = world.settings.model_copy(update={"dsn": SecretStr(make_conninfo(world.dsn, port=port))})
        clone = World(settings, world.spark, Gateway(settings))
        with pytest.raises(RefusedError, match="is the one its lake belongs to") as error:
            adopt.copy(settings)
        assert "--sure" in (error.value.hint or "")
        world.archive("public.events", "2020-03-01")
        both(world, "UPDATE {t} SET v = v + 1 WHERE id IN (1, 2, 3, 800)")
        folded(world)
        files = sorted(str(path) for path in world.directory("events").rglob("*"))
        with Warm(clone.spark_here) as warm:
            for work in (
                lambda: clone.archive("public.events", "2020-03-01"),
                lambda: clone.clean("public.events"),
                lambda: maintain(settings, "public.events", Silent(), warm),
            ):
                with pytest.raises(RefusedError, match="under the name of this one"):
                    work()
        found = [check for check in doctor.examine(settings) if check.name == "Iceberg table"]
        assert [check.verdict for check in found] == [PROBLEM]
        adopt.copy(settings)
        clone.gateway.start()
        try:
            assert clone.run("SELECT count(*), sum(v) FROM public.events") == [(2001, 2001000)]
        finally:
            clone.gateway.stop(grace=0)
        assert sorted(str(path) for path in world.directory("events").rglob("*")) == files
        world.clean("public.events")
        same(world)
        assert {f.state for f in verify.verify(world.settings, "public.events", None, Silent())} == {"good"}
        copy.stop()


def _a_copy_of_its_own(clone: World) -> None:
    same(clone)
    both(clone, "UPDATE {t} SET v = 7 WHERE id % 100 = 5")
    same(clone)
    with pytest.raises(LakeError, match="belongs to the database that this is a copy of"):
        folded(clone)
    with pytest.raises(LakeError, match="belongs to the database that this is a copy of"):
        unregister(clone.settings, "public.events", Silent(), keep_lake=False)
    # Refused before anything came back; and what is done here is never done to the lake.
    assert clone.run("SELECT count(*) FROM frostline.periods WHERE rows > 0") == [(2,)]
    with Warm(clone.spark_here) as warm:
        assert [one.rows for one in untier(clone.settings, "public.events", "events_02", Silent(), warm)] == [696]
    same(clone)
    clone.run("UPDATE frostline.tables SET retention = (now()::date - date '2020-02-03') || ' days'")
    assert [one.state for one in cycle.retains(clone.settings, [], Silent(), clone.spark_here)] == ["removed"]
    clone.run("DELETE FROM public.plain WHERE ts < '2020-02-01'")
    same(clone)
    left = unregister(clone.settings, "public.events", Silent(), keep_lake=True)
    assert left.lake is not None
    same(clone)
    clone.register("public.events")
    clone.archive("public.events")
    same(clone)


def _programs(version: str) -> Path:
    """Where pg_dump and psql of a version are: Debian's, or the first in the path."""
    first = shutil.which("pg_dump")
    for directory in (Path("/usr/lib/postgresql") / version / "bin", *([Path(first).parent] if first else [])):
        program = directory / "pg_dump"
        if program.exists() and f" {version}." in subprocess.check_output([program, "--version"], text=True):
            return directory
    pytest.skip(f"there is no pg_dump {version} here")


@contextmanager
def _loaded(world: World, programs: Path, dump: bytes, name: str) -> Iterator[World]:
    """A dump in a database of its own, whose gateway is yet to start."""
    world.run(f"CREATE DATABASE {name}")
    settings = world.settings.model_copy(update={"dsn": SecretStr(make_conninfo(world.dsn, dbname=name))})
    loaded = World(settings, world.spark, Gateway(settings))
    psql = [str(programs / "psql"), "-qX", "-v", "ON_ERROR_STOP=1", loaded.dsn]
    subprocess.run(psql, input=dump, check=True, capture_output=True)
    try:
        yield loaded
    finally:
        loaded.gateway.stop(grace=0)
        world.run(f"DROP DATABASE {name} WITH (FORCE)")


@contextmanager
def as_it_was(world: World, name: str) -> Iterator[World]:
    """The database of this moment, as a restore finds it; its gateway is yet to start."""
    world.gateway.stop(grace=0)
    settings = world.settings.model_copy(update={"dsn": SecretStr(make_conninfo(world.dsn, dbname=name))})
    with psycopg.connect(make_conninfo(world.dsn, dbname="postgres"), autocommit=True) as server:
        original = conninfo_to_dict(world.dsn)["dbname"]
        server.execute("SELECT pg_terminate_backend(pid, 60000) FROM pg_stat_activity WHERE datname = %s", (original,))
        server.execute(f"CREATE DATABASE {name} TEMPLATE {original}")
        restored = World(settings, world.spark, Gateway(settings))
        world.restart_gateway()
        try:
            yield restored
        finally:
            if restored.gateway.port:
                restored.gateway.stop(grace=0)
            server.execute(f"DROP DATABASE {name} WITH (FORCE)")


def test_a_copy_that_is_restored_goes_on_as_a_copy(world: World) -> None:
    """It has the lake's rows of another database, which it only reads, beside a table of its own."""
    world.run(PLAIN)
    world.register("public.events", "3 months")
    world.archive("public.events")
    with as_it_was(world, "staged") as copy:
        adopt.copy(copy.settings)
        copy.run(SIMPLE.replace("events", "others"))
        copy.gateway.start()
        both(copy, "UPDATE {t} SET v = 7 WHERE id % 100 = 5")
        assert PROBLEM not in {check.verdict for check in doctor.examine(copy.settings)}
        copy.register("public.others", "3 months")
        copy.archive("public.others")
        with as_it_was(copy, "staged_again") as again:
            copy.gateway.stop(grace=0)
            with pytest.raises(RefusedError, match="not the one that its lake belongs to"):
                again.archive("public.others")
            assert [found.table for found in adopt.successor(again.settings, Silent())] == ["public.others"]
            again.gateway.start()
            same(again)
            with Warm(again.spark_here) as warm:
                fold(again.settings, "public.others", Silent(), warm)
            with pytest.raises(LakeError, match="belongs to the database that this is a copy of"):
                folded(again)
            world.clean("public.events")  # nobody has taken its place
            same(world)


@pytest.mark.parametrize("point", ["export.commit", "export.recorded", "merge.commit", "merge.recorded"])
def test_a_commit_that_nobody_saw_and_that_is_removed_since_is_made_anew(
    world: World, tmp_path: Path, point: str
) -> None:
    """Restored to a moment in the middle of a run, which died afterwards."""
    work = (lambda one: one.archive("public.events", "2020-03-01")) if point.startswith("export") else folded
    world.run(PLAIN)
    world.register("public.events", "100 years")
    world.archive("public.events", "2020-02-01")
    both(world, "UPDATE {t} SET v = v + 1 WHERE id IN (1, 2, 3)")
    with ExitStack() as stack:

        def then(reached: str) -> bool:
            if reached == point:
                world.run("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = %s", mine)
            return reached != point

        mine = "frostline archive" if point.startswith("export") else "frostline fold"
        stack.enter_context(at(tmp_path, then))
        with suppress(FrostlineError, psycopg.Error, InjectedFault):
            work(world)
    with as_it_was(world, "in_the_middle") as restored:
        # The next run is for another period, or comes first: what the one that died has committed is put aside.
        world.run("UPDATE frostline.operations SET captured = NULL, state = 'failed' WHERE state = 'running'")
        world.archive("public.events", "2020-03-01")
        world.clean("public.events")
        same(world)
        world.gateway.stop(grace=0)
        assert restored.run("SELECT count(*) FROM frostline.operations WHERE state = 'running'") == [(1,)]
        assert [found.snapshots for found in adopt.successor(restored.settings, Silent())] == [1]
        restored.gateway.start()
        same(restored)
        work(restored)
        folded(restored)
        restored.clean("public.events")
        same(restored)
        assert {f.state for f in verify.verify(restored.settings, "public.events", None, Silent())} == {"good"}


@pytest.mark.parametrize(("version", "server"), [("15", "postgres15"), ("18", "dsn")])
def test_a_dump_is_loaded_elsewhere_as_a_copy_and_as_the_successor(
    version: str, server: str, request: pytest.FixtureRequest, spark: SparkSession, tmp_path: Path
) -> None:
    programs = _programs(version)
    with new_world(request.getfixturevalue(server), spark, tmp_path) as world:
        # Labels and attributes have other numbers in what is made from a dump.
        world.run("CREATE TYPE mood AS ENUM ('sad', 'ok'); ALTER TYPE mood ADD VALUE 'so so' BEFORE 'ok'")
        world.run("CREATE TYPE place AS (o int, x int, m mood); ALTER TYPE place DROP ATTRIBUTE o")
        world.run(SIMPLE + "ALTER TABLE public.events ADD m mood DEFAULT 'so so', ADD p place")
        world.run("UPDATE public.events SET p = ROW(id, 'ok'); CREATE TABLE public.plain AS TABLE public.events")
        world.register("public.events", "3 months")
        world.archive("public.events")
        both(world, "UPDATE {t} SET v = v + 1, m = 'sad' WHERE id IN (1, 2, 3, 800)")
        dump = subprocess.check_output([programs / "pg_dump", world.dsn])
        files = sorted(str(path) for path in world.directory("events").rglob("*"))
        with _loaded(world, programs, dump, "copied") as copied:
            with pytest.raises(psycopg.errors.SqlclientUnableToEstablishSqlconnection, match="is a copy of it"):
                rows(copied, "public.events")
            adopt.copy(copied.settings)
            copied.gateway.start()
            _a_copy_of_its_own(copied)
        assert sorted(str(path) for path in world.directory("events").rglob("*")) == files
        same(world)
        world.gateway.stop(grace=0)
        with _loaded(world, programs, dump, "loaded") as loaded:
            with pytest.raises(RefusedError, match="not the one that its lake belongs to"):
                folded(loaded)
            adopt.successor(loaded.settings, Silent())
            loaded.gateway.start()
            same(loaded)
            folded(loaded)
            both(loaded, "UPDATE {t} SET v = v + 1 WHERE id IN (1, 900)")
            same(loaded)
            assert {f.state for f in verify.verify(loaded.settings, "public.events", None, Silent())} == {"good"}
            unregister(loaded.settings, "public.events", Silent(), keep_lake=False)
            same(loaded)


def test_a_dump_without_the_secret_gets_another_one(postgres15: str, spark: SparkSession, tmp_path: Path) -> None:
    """It was made by a role that may read everything, and not see the options of user mappings."""
    programs = _programs("15")
    with new_world(postgres15, spark, tmp_path) as world:
        world.run(PLAIN + "CREATE ROLE reader LOGIN PASSWORD 'reader'; GRANT pg_read_all_data TO reader")
        world.register("public.events", "3 months")
        world.archive("public.events")
        reader = make_conninfo(world.dsn, user="reader", password="reader")
        dump = subprocess.check_output([programs / "pg_dump", "--no-owner", "--no-acl", reader])
        world.run("DROP OWNED BY reader; DROP ROLE reader")
        world.gateway.stop(grace=0)
        with _loaded(world, programs, dump, "a_copy_of_it") as copy:
            adopt.copy(copy.settings)
            copy.gateway.start()
            same(copy)
        with _loaded(world, programs, dump, "what_came_of_it") as successor:
            adopt.successor(successor.settings, Silent())
            assert install(successor.dsn) == ["the user mapping of the gateway's foreign server"]
            assert install(successor.dsn) == []
            successor.gateway.start()
            same(successor)


def test_a_dump_that_renumbers_columns_is_refused(world: World) -> None:
    world.run(SIMPLE + "ALTER TABLE public.events DROP COLUMN v; ALTER TABLE public.events ADD w int;")
    world.register("public.events")
    with connect(world.dsn) as connection:
        adopt.successor(world.settings, Silent())
        # As if the table had been made anew: id, ts, w.
        connection.execute("UPDATE frostline.columns SET attnum = 9 WHERE lake_name = 'w'")
        with pytest.raises(RefusedError, match="have other numbers than in the lake") as error:
            adopt.successor(world.settings, Silent())
    assert "in the lake and not here: w" in (error.value.detail or "")
    # Nor is it read, by a gateway that knew the database before, or by one that is started.
    world.run("UPDATE frostline.installation SET timeline = timeline - 1")
    ended = "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity WHERE application_name = %s"
    world.run(ended, "frostline gateway control")
    with pytest.raises(psycopg.Error, match="have other numbers than in the lake"):
        world.run("SELECT * FROM public.events")
    with pytest.raises(RefusedError, match="have other numbers than in the lake"):
        Gateway(world.settings).start()


def test_a_dump_of_a_table_that_was_just_altered_is_refused(world: World) -> None:
    """Columns that nobody had followed yet: one that is new may have the number of one that was dropped."""
    world.run(SIMPLE)
    world.register("public.events")
    world.run("ALTER TABLE public.events RENAME COLUMN v TO w")
    adopt.successor(world.settings, Silent())  # here they have their numbers still
    world.run("""UPDATE frostline.tables SET heaps = '{"1": "1 of 1"}'""")  # as after a dump: other partitions
    for adopted in (lambda: adopt.successor(world.settings, Silent()), lambda: adopt.copy(world.settings)):
        with pytest.raises(RefusedError, match="which in the lake they are") as error:
            adopted()
        assert error.value.detail == "w here, v before"


def test_a_catalog_elsewhere_is_put_back_where_the_restored_database_stands(rest_lake: Lake) -> None:
    """The catalog was not restored: it shows commits that the database knows nothing of."""
    world = rest_lake.world
    world.run(PLAIN)
    world.register("public.events", "3 months")
    world.archive("public.events")
    both(world, "UPDATE {t} SET v = v + 1 WHERE id IN (1, 2, 3)")
    world.gateway.stop(grace=0)
    name = f"{conninfo_to_dict(world.dsn)['dbname']}_restored"
    with psycopg.connect(make_conninfo(world.dsn, dbname="postgres"), autocommit=True) as server:
        server.execute(f"CREATE DATABASE {name} TEMPLATE {conninfo_to_dict(world.dsn)['dbname']}")
        world.restart_gateway()
        both(world, "UPDATE {t} SET v = -1 WHERE id IN (1, 20, 900)")
        folded(world)
        world.gateway.stop(grace=0)
        settings = world.settings.model_copy(update={"dsn": SecretStr(make_conninfo(world.dsn, dbname=name))})
        restored = World(settings, world.spark, Gateway(settings))
        restored.gateway.start()
        try:
            same(restored)
            files = set(rest_lake.s3.files(rest_lake.bucket))
            assert [found.snapshots for found in adopt.successor(settings, Silent())] == [1]
            assert [found.snapshots for found in adopt.successor(settings, Silent())] == [0]
            # What is set aside is there for whoever restores a later moment, or was no successor.
            assert files <= set(rest_lake.s3.files(rest_lake.bucket))
            folded(restored)
            same(restored)
            assert {f.state for f in verify.verify(settings, "public.events", None, Silent())} == {"good"}
        finally:
            restored.gateway.stop(grace=0)
            server.execute(f"DROP DATABASE {name} WITH (FORCE)")
    world.restart_gateway()


def test_columns_of_a_lost_future_are_nobodys_in_a_catalog_elsewhere(rest_lake: Lake) -> None:
    """A number given there is given to another column here; what was dropped or grew there is as it was here."""
    world = rest_lake.world
    world.run(PLAIN)
    both(world, "ALTER TABLE {t} ADD COLUMN gone int DEFAULT 3, ADD COLUMN grown int DEFAULT 4")
    world.register("public.events", "3 months")
    world.archive("public.events")
    both(world, "UPDATE {t} SET gone = 5, grown = 6 WHERE id IN (1, 2, 800)")
    folded(world)
    with as_it_was(world, f"{conninfo_to_dict(world.dsn)['dbname']}_restored") as restored:
        both(world, "ALTER TABLE {t} DROP COLUMN gone, ALTER COLUMN grown TYPE bigint")
        both(world, "ALTER TABLE {t} ADD COLUMN lost int DEFAULT 7; ALTER TABLE {t} RENAME COLUMN v TO w")
        both(world, "UPDATE {t} SET lost = 8, w = -1 WHERE id IN (1, 20, 900)")
        folded(world)
        same(world)
        world.gateway.stop(grace=0)
        assert [found.snapshots for found in adopt.successor(restored.settings, Silent())] == [1]
        restored.gateway.start()
        same(restored)
        both(restored, "ALTER TABLE {t} ADD COLUMN found text DEFAULT 'here'")
        both(restored, "UPDATE {t} SET found = 'there', gone = gone + 1 WHERE id IN (1, 3, 30, 900)")
        folded(restored)
        same(restored)
        assert {f.state for f in verify.verify(restored.settings, "public.events", None, Silent())} == {"good"}
    world.restart_gateway()
