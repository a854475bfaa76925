"""What a copy of the disk must not do to its original, and what nobody is to be told of the original."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from pydantic import SecretStr
from pyspark.sql import SparkSession

from fix_cluster import Cluster
from fix_faults import at
from fix_tiering import World, new_world
from frostline.catalog import turns
from frostline.catalog.database import connect
from frostline.catalog.registry import Managed
from frostline.config import Settings
from frostline.errors import FrostlineError, RefusedError
from frostline.faults import InjectedFault
from frostline.gateway.server import Gateway
from frostline.lake import catalog as lake
from frostline.local.ports import free_port
from frostline.local.postgres import Server
from frostline.report import Silent
from frostline.tiering import adopt, doctor
from frostline.tiering.archive.run import Warm
from frostline.tiering.checks import PROBLEM
from frostline.tiering.maintain.run import maintain
from frostline.tiering.unregister import unregister
from integration.tiering.test_restore import as_it_was, both, folded, same
from integration.tiering.test_turns import ANOTHER, CHANGE, WORK, archived, disk, folded_once, registered


@contextmanager
def woken(world: World, made: Server) -> Iterator[World]:
    """A snapshot of the disk is started as it is, and a gateway beside it."""
    port = free_port()
    made.start(port)
    try:
        settings = world.settings.model_copy(update={"dsn": SecretStr(make_conninfo(world.dsn, port=port))})
        yield World(settings, world.spark, Gateway(settings))
    finally:
        made.stop()


def refused(world: World, made: Server) -> None:
    """The copy removes nothing of the original's."""
    with woken(world, made) as clone:
        try:
            with pytest.raises(RefusedError, match=ANOTHER):
                clone.clean("public.events")
        finally:
            world.restart_gateway()
            same(world)


@pytest.mark.parametrize(("point", "work"), [("fold.begun", "fold"), ("operation.begun", "archive")])
def test_a_copy_that_was_made_while_a_run_was_at_work(
    cluster: Cluster, spark: SparkSession, tmp_path: Path, point: str, work: str
) -> None:
    """It knows the word that the run left at its beginning, and nothing of what the run has done since."""
    with new_world(cluster.dsn, spark, tmp_path) as world:
        archived(world)
        both(world, CHANGE)
        made: list[Server] = []

        def then(reached: str) -> None:
            if reached == point and not made:
                made.append(cluster.frozen(f"at_{work}"))

        with at(tmp_path, then):
            if work == "fold":
                folded(world)
            else:
                world.archive("public.events", "2020-03-01")
        same(world)
        refused(world, made[0])


def test_a_copy_that_was_made_while_a_run_was_at_work_that_died(
    cluster: Cluster, spark: SparkSession, tmp_path: Path
) -> None:
    """Who ends what it has begun tells the copy, before the leaf goes."""
    with new_world(cluster.dsn, spark, tmp_path) as world:
        archived(world)
        made: list[Server] = []

        def then(reached: str) -> bool:
            if reached == "operation.begun":
                made.append(cluster.frozen("at_death"))
            return reached != "swap.ended"

        with at(tmp_path, then), pytest.raises(InjectedFault):
            world.archive("public.events", "2020-03-01")
        world.clean("public.events")
        refused(world, made[0])


def test_a_copy_that_was_made_while_rows_were_written_to_files(
    cluster: Cluster, spark: SparkSession, tmp_path: Path
) -> None:
    with new_world(cluster.dsn, spark, tmp_path) as world:
        registered(world)
        world.run("UPDATE frostline.tables SET bulk_rows = 10")
        world.archive("public.events", "2020-02-01")
        rows = "INSERT INTO {t} (id, ts, v) SELECT x, '2020-01-02Z', x FROM generate_series(60001, 60100) x"
        client = world.connect(autocommit=False)
        for table in ("public.events", "public.plain"):
            client.execute(rows.format(t=table))
        made = cluster.frozen("at_files")
        client.commit()
        same(world)
        refused(world, made)


def test_a_copy_is_refused_before_its_rows_come_back(world: World) -> None:
    archived(world)
    with disk(world, "disk_leaves") as copy:
        folded_once(world)
        world.gateway.stop(grace=0)
        copy.gateway.start()
        cold = copy.run("SELECT count(*) FROM frostline.periods")
        with pytest.raises(RefusedError, match=ANOTHER):
            WORK["unregister"](copy)
        assert copy.run("SELECT count(*) FROM frostline.periods") == cold
    world.restart_gateway()


def test_a_copy_from_before_anything_was_archived_and_an_original_of_an_earlier_version(world: World) -> None:
    """No word was left yet by what the original archived."""
    registered(world)
    with disk(world, "disk_earlier") as copy:
        world.archive("public.events", "2020-02-01")
        (world.directory("events") / "metadata" / "frostline-turn").unlink()
        copy.gateway.start()
        with suppress(FrostlineError):
            unregister(copy.settings, "public.events", Silent(), keep_lake=False)
        world.restart_gateway()
        same(world)


def test_a_word_that_comes_late_is_the_originals_still(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """A store, or a machine, that stood still for a while; others have written many files meanwhile."""
    archived(world)
    leave = lake.leave_word
    late: list[str] = []

    def slow(settings: Settings, managed: Managed, word: str) -> bool:
        if not late:
            late.append(word)
            with connect(world.dsn) as connection:
                for _ in range(1001):  # as gateways do
                    turns.leave(connection, managed.id, lambda _: True)
        return leave(settings, managed, word)

    both(world, CHANGE)
    with monkeypatch.context() as patch:
        patch.setattr(lake, "leave_word", slow)
        folded(world)
    folded_once(world)
    same(world)


def test_a_copy_from_before_anything_was_archived_says_what_it_is(world: World) -> None:
    registered(world)
    with disk(world, "disk_says") as copy:
        world.archive("public.events", "2020-02-01")
        adopt.copy(copy.settings)  # the lake tells: nobody has to be sure


def test_a_standby_that_is_behind_is_no_copy(cluster: Cluster, spark: SparkSession, tmp_path: Path) -> None:
    standby = cluster.standby("late")
    try:
        with new_world(cluster.dsn, spark, tmp_path) as world:
            archived(world)
            standby.catch_up()
            port = conninfo_to_dict(standby.dsn)["port"]
            there = make_conninfo(world.dsn, port=port)
            settings = world.settings.model_copy(update={"dsn": SecretStr(there)})
            reader = World(settings, spark, Gateway(settings))
            reader.run("SELECT pg_wal_replay_pause()")
            folded_once(world)
            found = [check for check in doctor.examine(settings) if check.name == "Iceberg table"]
            reader.run("SELECT pg_wal_replay_resume()")
            assert [(check.verdict, check.found) for check in found if check.verdict == PROBLEM] == []
    finally:
        standby.server.stop()


@pytest.mark.parametrize("dying", [False, True])
def test_restored_to_before_snapshots_were_expired(world: World, tmp_path: Path, dying: bool) -> None:
    """A catalog in Postgres is restored with it, and knows snapshots whose files are gone since."""
    archived(world)
    folded_once(world)
    folded_once(world)
    if dying:  # a run that committed to the lake and died
        both(world, CHANGE)
        with at(tmp_path, lambda reached: reached != "merge.commit"), suppress(FrostlineError, InjectedFault):
            folded(world)
    with as_it_was(world, "restored") as restored:
        world.gateway._presence.pins.drop_unused(0)
        short = world.settings.maintenance.model_copy(update={"backup_window": 0.0})
        with Warm(world.spark_here) as warm:
            done = maintain(world.settings.model_copy(update={"maintenance": short}), "public.events", Silent(), warm)
        assert done is not None
        assert any("expired" in note for note in done.notes), done.notes
        world.gateway.stop(grace=0)
        adopt.successor(restored.settings, Silent())
        restored.gateway.start()
        same(restored)
        folded_once(restored)
        restored.clean("public.events")
        with Warm(restored.spark_here) as warm:
            maintain(restored.settings, "public.events", Silent(), warm)
        same(restored)
    world.restart_gateway()
