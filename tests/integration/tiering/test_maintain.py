"""Maintenance: fewer and larger files, the same rows, whoever reads, writes or dies meanwhile."""

from __future__ import annotations

import itertools
import re
import threading
from collections.abc import Iterator
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import Any

import psycopg
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession
from typer.testing import CliRunner

from fix_faults import at
from fix_lake import Lake
from fix_tiering import World, new_world
from frostline.catalog.database import connect
from frostline.cli.main import app
from frostline.errors import OperationError
from frostline.faults import InjectedFault
from frostline.lake import catalog as lake
from frostline.lake import files, inspect, storage
from frostline.pipeline import compact, session
from frostline.report import Silent
from frostline.tiering import cycle, options, verify
from frostline.tiering.archive.run import Warm
from frostline.tiering.fold.run import fold
from frostline.tiering.maintain import run
from frostline.tiering.maintain.run import Maintained
from frostline.tiering.unregister import unregister
from frostline.tiering.untier.run import untier
from integration.tiering.test_archive import EVERY_TYPE, SIMPLE
from integration.tiering.test_fold import _laid_out_as_ours, data_files, managed
from integration.tiering.test_worker import wait_for

FEBRUARY = 1580515200 * 1_000_000  # 2020-02-01, as the lake counts


@pytest.fixture(scope="module")
def lakes(dsn: str, spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """Two months in a file per page, each change a file of deletes; and a table of every type."""
    limits = {"maintenance.manifests": "3", "maintenance.deleted_rows": "0.001", "archive.orphan_age": "0"}
    with new_world(dsn, spark, tmp_path_factory.mktemp("maintain"), limits) as world:
        world.run(SIMPLE + EVERY_TYPE.replace("public.events", "public.kinds"))
        for table in ("events", "kinds"):
            world.register(f"public.{table}")
            choose(world, table, file_size="8192", merge_mode="merge-on-read", compact_files="2")
            world.archive(f"public.{table}")
            choose(world, table, file_size="default")
        yield world


def choose(world: World, table: str, **given: str) -> None:
    with connect(world.dsn) as connection:
        changes = options.plan(
            connection, world.settings, [(options.tables(connection, [f"public.{table}"])[0], given)]
        )
        options.apply(connection, world.settings, changes)


def rows(world: World, table: str = "events") -> list[tuple[Any, ...]]:
    return world.run(f"SELECT r::text FROM public.{table} r ORDER BY 1")


def changed(world: World, *statements: str, table: str = "events") -> None:
    """Cold rows changed and folded: files of deletes."""
    for statement in statements:
        world.run(statement)
        with Warm(world.spark_here) as warm:
            assert fold(world.settings, f"public.{table}", Silent(), warm)


def maintained(world: World, table: str = "events", *, everything: bool = False) -> Maintained:
    with Warm(world.spark_here) as warm:
        done = run.maintain(world.settings, f"public.{table}", Silent(), warm, everything=everything)
    assert done is not None
    return done


def good(world: World, table: str = "events") -> None:
    assert {f.state for f in verify.verify(world.settings, f"public.{table}", None, Silent())} == {"good"}


def test_it_shows_what_it_would_do_and_does_it(lakes: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world = lakes
    changed(
        world,
        "UPDATE public.events SET v = -v WHERE id BETWEEN 10 AND 400",
        "DELETE FROM public.events WHERE id BETWEEN 100 AND 150",
    )
    expected, before = rows(world), data_files(world)
    good(world)  # and the hashes are recorded
    digests = world.run("SELECT upper, rows, digest FROM frostline.periods WHERE table_id = 1 ORDER BY 1")
    assert [len(paths) >= 4 for paths in before.values()] == [True, True]
    monkeypatch.setattr(session, "spark_session", lambda *_: world.spark_here())
    here = ["--dsn", world.dsn, "--dir", str(world.settings.local.dir), "maintain", "public.events"]
    monkeypatch.setenv("FROSTLINE_LAKE_WAREHOUSE", world.settings.lake.warehouse)
    monkeypatch.setenv("FROSTLINE_MAINTENANCE_MANIFESTS", "3")
    shown = CliRunner().invoke(app, [*here, "--dry-run"], catch_exceptions=False)
    found = re.search(r"1 partitions with (\d+) files of deletes would be rewritten", shown.stdout)
    assert found is not None, shown.output
    assert "small files of 1 partitions" in shown.stdout
    assert "manifests would be rewritten" in shown.stdout
    assert data_files(world) == before
    manifests = manifests_of(world)
    pinned = world.connect(autocommit=False)  # reads the old files as long as it likes
    pinned.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
    pinned.execute("SELECT frostline.pin()")
    seen = pinned.execute("SELECT r::text FROM public.events r ORDER BY 1").fetchall()
    old, superseded = managed(world).snapshot_id, held(world)
    assert old is not None
    unpinned(world)
    done = CliRunner().invoke(app, here, catch_exceptions=False)
    assert done.exit_code == 0, done.output
    words = [line.split() for line in done.stdout.splitlines()]
    assert words[0][-2:] == ["manifests", "snapshots"]
    assert words[1][:4] == ["public.events", "before", str(sum(map(len, before.values()))), found[1]]
    assert words[1][5:] == [str(manifests), str(len(superseded))]
    assert words[2][:4] == ["public.events", "after", "2", "0"]
    assert words[2][5:] == ["1", str(len(snapshots(world)))]
    assert (manifests >= 3, manifests_of(world)) == (True, 1)
    assert rows(world) == expected == seen
    after = data_files(world)
    assert [len(paths) for paths in after.values()] == [1, 1]
    for paths in after.values():
        _laid_out_as_ours(*paths)
    assert world.run("SELECT upper, rows, digest FROM frostline.periods WHERE table_id = 1 ORDER BY 1") == digests
    good(world)
    assert world.run("SELECT state FROM frostline.operations WHERE kind = 'maintain'") == [("done",)]
    _expires(world, old, superseded)
    assert pinned.execute("SELECT r::text FROM public.events r ORDER BY 1").fetchall() == seen
    pinned.close()
    wait_for(lambda: unpinned(world) and world.run(f"SELECT 1 FROM frostline.pins WHERE snapshot_id = {old}") == [])
    maintained(world)
    assert snapshots(world) == {managed(world).snapshot_id}
    assert missing(superseded) == set().union(*superseded.values())
    assert rows(world) == expected
    choose(world, "events", backup_window="default")


def _expires(world: World, read: int, superseded: dict[int, set[Path]]) -> None:
    """What was superseded stays for as long as a Postgres may be restored to it; then goes what is not `read`."""
    unpinned(world)
    maintained(world)
    assert snapshots(world) > superseded.keys() > {read}
    assert missing(superseded) == set()
    choose(world, "events", backup_window="0")
    maintained(world)
    assert snapshots(world) == {read, managed(world).snapshot_id}
    assert missing({read: superseded[read]}) == set()


def snapshots(world: World) -> set[int]:
    return set(held(world))


def held(world: World, table: str = "public.events") -> dict[int, set[Path]]:
    """The Parquet files of every snapshot, those of deletes included."""
    found = lake.load(world.settings, managed(world, table))
    return {
        snapshot.snapshot_id: {
            Path(re.sub("^file:/+", "/", entry.data_file.file_path))
            for manifest in snapshot.manifests(found.io)
            for entry in manifest.fetch_manifest_entry(found.io)
        }
        for snapshot in found.snapshots()
    }


def missing(files: dict[int, set[Path]]) -> set[Path]:
    return {path for paths in files.values() for path in paths if not path.exists()}


def manifests_of(world: World) -> int:
    """How many the table that Postgres reads consists of."""
    found = lake.load(world.settings, managed(world))
    current = found.current_snapshot()
    assert current is not None
    return len(current.manifests(found.io))


def unpinned(world: World) -> bool:
    """What nobody reads any more; the gateway keeps it for a minute else."""
    world.gateway._presence.pins.drop_unused(0)
    return True


def test_every_type_is_rewritten_exactly(lakes: World) -> None:
    changed(
        lakes,
        "UPDATE public.kinds SET s = s || 'x' WHERE ts = '2020-01-01';"
        "UPDATE public.kinds SET b = NOT b WHERE ts >= '2020-02-01' AND ts < '2020-03-01'",
        "UPDATE public.kinds SET s = s || 'y', i2 = 5 WHERE ts = '2020-01-01';"
        "UPDATE public.kinds SET f4 = '-0', f8 = 'NaN' WHERE ts = '2020-02-11'",
        table="kinds",
    )
    expected = rows(lakes, "kinds")
    done = maintained(lakes, "kinds")
    assert done.before.delete_files >= 2
    assert (done.after.files, done.after.delete_files) == (2, 0)
    assert rows(lakes, "kinds") == expected
    good(lakes, "kinds")


def test_columns_that_were_altered_since_keep_their_values(lakes: World) -> None:
    changed(lakes, "DELETE FROM public.events WHERE id IN (40, 41)")
    lakes.run(
        "ALTER TABLE public.events RENAME COLUMN v TO w; ALTER TABLE public.events ADD COLUMN more int DEFAULT 42;"
        "ALTER TABLE public.events ADD COLUMN gone text"
    )
    expected = rows(lakes)
    done = maintained(lakes)
    assert done.before.delete_files > done.after.delete_files == 0
    assert rows(lakes) == expected
    assert lakes.run("SELECT DISTINCT more FROM public.events WHERE id < 700") == [(42,)]
    lakes.run(
        "ALTER TABLE public.events RENAME COLUMN w TO v; ALTER TABLE public.events DROP COLUMN more;"
        "ALTER TABLE public.events DROP COLUMN gone"
    )
    assert list(cycle.STEPS["columns"](cycle.Round(lakes.settings, Silent(), Warm(lakes.spark_here)), "public.events"))


def test_nothing_to_do_starts_no_spark(lakes: World) -> None:
    choose(lakes, "kinds", maintenance="none")
    maintained(lakes, "kinds")

    def no_spark() -> Any:
        raise AssertionError

    with Warm(no_spark) as warm:
        assert run.maintain(lakes.settings, "public.kinds", Silent(), warm) is not None
        assert list(cycle.STEPS["maintain"](cycle.Round(lakes.settings, Silent(), warm), "public.kinds")) == []


def test_rows_deleted_and_changed_meanwhile_stay_so(lakes: World, tmp_path: Path) -> None:
    """At every point of it, and by somebody who never pauses."""
    world = lakes
    changed(world, "DELETE FROM public.events WHERE id BETWEEN 200 AND 220")
    world.run("DROP TABLE IF EXISTS public.mirror; CREATE TABLE public.mirror AS TABLE public.events")
    ended, ids, lock = threading.Event(), itertools.count(300), threading.Lock()

    def write() -> None:
        """The same to both tables; a lost race is tried again, as an application does."""
        with lock:
            id_ = next(ids)
        with psycopg.connect(world.dsn) as client:
            while True:
                with suppress(psycopg.errors.SerializationFailure), client.transaction():
                    for table in ("events", "mirror"):
                        client.execute(f"DELETE FROM public.{table} WHERE id = {id_}")
                        client.execute(f"UPDATE public.{table} SET v = v + 1000 WHERE id = {id_ - 290}")
                    return

    def always() -> None:
        while not ended.wait(0.05):
            write()

    def meanwhile(point: str) -> None:
        # At the move the fence is up, and the other writer runs into it; a write has points of its own.
        if not point.startswith(("move.", "write.")):
            write()

    thread = threading.Thread(target=always)
    thread.start()
    try:
        with at(tmp_path, meanwhile) as points:
            done = maintained(world)
    finally:
        ended.set()
        thread.join()
    assert {"rewrite.deletes", "rewrite.dangling", "rewrite.commit", "compare.end", "move.fenced"} <= set(points)
    assert done.after.delete_files == 0
    assert rows(world) == rows(world, "mirror")
    changed(world, "SELECT 1")  # what was written is folded into the new files
    assert rows(world) == rows(world, "mirror")
    good(world)


# Where it fails, and how the next run begins: anew, or with what is in the lake.
_FAILING = (
    "rewrite.deletes",
    "rewrite.commit",
    "rewrite.flushed",
    "maintain.adopt",
    "compare.end",
    "move.fenced",
    "move.commit",
    "move.end",
)


def test_wherever_it_dies_no_row_changes_and_the_next_run_finishes_it(lakes: World, tmp_path: Path) -> None:
    world = lakes
    changed(
        world,
        "DELETE FROM public.events WHERE id IN (20, 800); UPDATE public.events SET v = 7 WHERE id IN (21, 801)",
    )
    expected = rows(world)
    for failing in _FAILING:
        with at(tmp_path, lambda point, failing=failing: point != failing) as seen, pytest.raises(InjectedFault):  # type: ignore[misc]
            maintained(world)
        assert seen[-1] == failing
        assert rows(world) == expected
    operations = "SELECT count(*) FROM frostline.operations WHERE kind = 'maintain' AND state = 'done'"
    [(before,)] = world.run(operations)
    maintained(world)
    assert world.run(operations) == [(before + 1,)]
    assert rows(world) == expected
    good(world)


def test_files_that_hold_other_rows_are_never_shown(lakes: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world = lakes
    changed(world, "DELETE FROM public.events WHERE id IN (30, 31)")
    expected, snapshot, sums = rows(world), managed(world).snapshot_id, iter([(1, 1), (1, 2)])
    monkeypatch.setattr(compact, "sums", lambda *_: next(sums))
    with pytest.raises(OperationError, match="do not hold the rows"):
        maintained(world)
    monkeypatch.undo()
    assert (rows(world), managed(world).snapshot_id) == (expected, snapshot)
    done = maintained(world)  # anew: what was made is not taken up
    assert done.after.delete_files == 0
    assert rows(world) == expected


def test_a_lake_on_s3_in_a_catalog_that_keeps_no_history(rest_lake: Lake, tmp_path: Path) -> None:
    """There commits of a run that died are known by their files; and files are of two layouts."""
    world = rest_lake.world
    world.run(SIMPLE + "CREATE TABLE public.mirror AS TABLE public.events")
    world.register("public.events")
    choose(world, "events", file_size="8192", merge_mode="merge-on-read", compact_files="2")
    world.archive("public.events")
    choose(world, "events", file_size="default", lake_partition="day", sort_order="v desc")
    for table in ("events", "mirror"):
        world.run(f"UPDATE public.{table} SET v = -v WHERE id < 24; DELETE FROM public.{table} WHERE id IN (30, 800)")
    changed(world, "SELECT 1")
    choose(world, "events", lake_partition="month")
    for failing in ("rewrite.commit", "move.commit"):
        with at(tmp_path, lambda point, failing=failing: point != failing), pytest.raises(InjectedFault):  # type: ignore[misc]
            maintained(world)
        assert rows(world) == rows(world, "mirror")
    done = maintained(world)
    assert (done.after.files, done.after.delete_files) == (2, 0)
    assert rows(world) == rows(world, "mirror")
    # A fold puts aside what a run has left, and finds the old files' partitions again.
    choose(world, "events", lake_partition="day", merge_mode="default")
    with at(tmp_path, lambda point: point != "rewrite.commit"), pytest.raises(InjectedFault):
        maintained(world, everything=True)
    for table in ("events", "mirror"):
        world.run(f"UPDATE public.{table} SET v = 7 WHERE id = 40")
    changed(world, "SELECT 1")
    assert rows(world) == rows(world, "mirror")
    assert {file.partition[0] for file in snapshot_files(world)} == {0, 1}
    good(world)
    # And everything comes back from there: one period, which is trimmed from the lake, then the rest.
    with Warm(world.spark_here) as warm:
        [back] = untier(world.settings, "public.events", "events_02", Silent(), warm)
    assert (back.period.name, back.rows) == ("events_02", 695)
    assert rows(world) == rows(world, "mirror")
    assert {inspect.ends(file, 2)[1] < FEBRUARY for file in snapshot_files(world)} == {True}  # type: ignore[index]
    location = lake.load(world.settings, managed(world)).location()
    unregister(world.settings, "public.events", Silent(), keep_lake=False)
    assert rows(world) == rows(world, "mirror")
    held = [f"s3://{rest_lake.bucket}/{name}" for name in rest_lake.s3.files(rest_lake.bucket)]
    assert [name for name in held if name.startswith(location)] == []


def snapshot_files(world: World) -> tuple[files.DataFile, ...]:
    found = managed(world)
    assert found.metadata_location is not None
    assert found.snapshot_id is not None
    return files.snapshot(storage.of(world.settings), found.metadata_location, found.snapshot_id).files


def test_on_postgres_15(postgres15: str, spark: SparkSession, tmp_path: Path) -> None:
    with new_world(postgres15, spark, tmp_path, {"archive.orphan_age": "0"}) as world:
        world.run(SIMPLE + "UPDATE public.events SET v = id * 7919 % 2003")
        world.register("public.events")
        choose(world, "events", file_size="8192", compact_files="2", backup_window="0")
        world.archive("public.events")
        changed(world, "DELETE FROM public.events WHERE id IN (30, 800)")
        expected = rows(world)
        # Joined, new files have rows of the whole order, and sorted each a part of it.
        for way, size, apart in (("binpack", "12000", False), ("sort", "128000", True)):
            choose(world, "events", file_size=size, sort_order="v", compaction=way)
            done = maintained(world)
            found = orders(world)
            assert done.before.files > done.after.files or way == "sort"
            assert [len(files) > 1 for files in found] == [True, True]
            assert [all(one[1] < two[0] for one, two in pairwise(files)) for files in found] == [apart, apart]
        choose(world, "events", compact_files="100")
        unpinned(world)
        assert maintained(world).after.snapshots == 1
        assert rows(world) == expected
        good(world)


def orders(world: World) -> list[list[tuple[int, int]]]:
    """Of every partition its data files, each of which is sorted by v: the first and the last."""
    found: dict[str, list[tuple[int, int]]] = {}
    for file in snapshot_files(world):
        values = pq.read_table(re.sub("^file:/+", "/", file.path), columns=["v"])["v"].to_pylist()
        assert values == sorted(values)
        found.setdefault(file.path.split("period=")[1][:7], []).append((values[0], values[-1]))
    return [sorted(part) for part in found.values()]
