"""Files with new old rows become the Iceberg table's own; no row is missed or doubled by whatever happens before."""

from __future__ import annotations

import errno
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from unittest.mock import ANY

import psycopg
import pytest
from pyspark.sql import SparkSession

from fix_faults import at
from fix_tiering import World, new_world
from frostline.catalog import registry
from frostline.catalog.database import connect
from frostline.errors import FrostlineError, LakeError
from frostline.faults import InjectedFault
from frostline.lake import files, writer
from frostline.lake.storage import of
from frostline.report import Silent
from frostline.tiering import coalesce, cycle, staged, verify
from frostline.tiering.archive.run import Warm
from frostline.tiering.fold.run import Folded, fold
from frostline.tiering.locks import Wanted, only_writer
from frostline.tiering.unregister import unregister
from frostline.tiering.untier.run import untier
from integration.tiering.test_archive import SIMPLE
from integration.tiering.test_fold import by_spark


@pytest.fixture(scope="module")
def cold(dsn: str, spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """Four months in the lake, the first two of them empty, and a twin of all rows."""
    with new_world(dsn, spark, tmp_path_factory.mktemp("staged"), {"gateway.bulk_rows": "50"}) as world:
        world.run(SIMPLE)
        for month, end in (("2019-11", "2019-12"), ("2019-12", "2020-01")):
            name = f"events_{month.replace('-', '_')}"
            world.run(f"CREATE TABLE {name} PARTITION OF events FOR VALUES FROM ('{month}-01') TO ('{end}-01')")
        world.run("CREATE TABLE twin (LIKE events); INSERT INTO twin SELECT * FROM events")
        world.register("public.events")
        world.archive("public.events")
        yield world


def both(world: World, statement: str) -> None:
    for table in ("events", "twin"):
        world.run(statement.replace("{t}", table))


def add(world: World, first: int, rows: int = 100, start: str = "2020-01-02") -> None:
    both(
        world,
        f"INSERT INTO {{t}} (id, ts, v) SELECT x, timestamptz '{start}Z' + (x % 700) * interval '1 h', x"
        f" FROM generate_series({first}, {first + rows - 1}) x",
    )


def same(world: World) -> None:
    found, wanted = (world.run(f"SELECT * FROM {table} ORDER BY 1, 2") for table in ("events", "twin"))
    assert found == wanted


def waiting(world: World) -> list[str]:
    return [path for (path,) in world.run("SELECT path FROM frostline.staged_files ORDER BY id")]


def in_the_lake(world: World) -> set[str]:
    with connect(world.dsn) as connection:
        managed = registry.get(connection, "public.events")
    assert managed.metadata_location is not None
    assert managed.snapshot_id is not None
    return {f.path for f in files.snapshot(of(world.settings), managed.metadata_location, managed.snapshot_id).files}


def folded(world: World, *, always: bool = True) -> list[Folded]:
    with Warm(world.spark_here) as warm:
        return fold(world.settings, "public.events", Silent(), warm, always=always)


def test_a_fold_takes_the_files_as_they_are(cold: World) -> None:
    add(cold, 10_000)
    paths = waiting(cold)
    assert paths
    assert folded(cold, always=False) == []
    assert waiting(cold) == paths  # too few, and too young
    assert folded(cold) == []  # nothing to merge
    assert waiting(cold) == []
    assert set(paths) <= in_the_lake(cold)
    same(cold)
    found = verify.verify(cold.settings, "public.events", None, Silent())
    assert [one.state for one in found] == ["good"] * len(found)


def test_changes_of_staged_rows_are_merged_into_their_files(cold: World) -> None:
    add(cold, 11_000)
    both(cold, "UPDATE {t} SET v = -v WHERE id BETWEEN 11010 AND 11020")
    both(cold, "DELETE FROM {t} WHERE id BETWEEN 11015 AND 11030")
    same(cold)
    cold.run("UPDATE frostline.tables SET fold_age = 0")
    (done,) = folded(cold, always=False)
    cold.run("UPDATE frostline.tables SET fold_age = NULL")
    assert (done.updated, done.deleted, done.inserted) == (5, 16, 0)
    assert waiting(cold) == []
    same(cold)


def test_beside_files_of_deletes_staged_rows_are_read(cold: World) -> None:
    cold.run("UPDATE frostline.tables SET merge_mode = 'merge-on-read'")
    both(cold, "DELETE FROM {t} WHERE id BETWEEN 30 AND 40")
    folded(cold)
    add(cold, 12_000)
    both(cold, "UPDATE {t} SET v = 0 WHERE id IN (12005, 45)")
    assert waiting(cold)
    same(cold)
    assert cold.run("SELECT count(*), sum(v) FROM events WHERE ts < '2020-02-01'") == cold.run(
        "SELECT count(*), sum(v) FROM twin WHERE ts < '2020-02-01'"
    )
    folded(cold)
    same(cold)
    cold.run("UPDATE frostline.tables SET merge_mode = 'copy-on-write'")


def test_what_another_engine_commits_between_staging_and_adding(cold: World, tmp_path: Path) -> None:
    add(cold, 13_000)
    new = "INSERT INTO {t} VALUES (13500, TIMESTAMP '2020-01-05 00:30:00', 5)"
    by_spark(cold, new)
    same(cold)  # nobody has looked at it yet
    both(cold, "UPDATE {t} SET v = 1 WHERE id IN (13001, 42)")

    def interfere(point: str) -> None:
        if point == "append.begun":
            by_spark(cold, "DELETE FROM {t} WHERE id = 43 AND ts < TIMESTAMP '2020-03-01'")

    with at(tmp_path, interfere):
        folded(cold)
    cold.run("INSERT INTO twin VALUES (13500, '2020-01-05 00:30Z', 5); DELETE FROM twin WHERE id = 43")
    same(cold)
    assert waiting(cold) == []


def test_a_key_that_is_staged_and_that_another_engine_adds_too(cold: World) -> None:
    add(cold, 14_000)
    paths = waiting(cold)
    ((ts,),) = cold.run("SELECT to_char(ts AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI:SS') FROM twin WHERE id = 14007")
    by_spark(cold, f"INSERT INTO {{t}} VALUES (14007, TIMESTAMP '{ts}', -1)")
    for _ in range(2):
        with pytest.raises(LakeError, match="what cannot be merged") as error:
            folded(cold)
        assert "14007" in (error.value.detail or "")
        assert waiting(cold) == paths
        same(cold)
    by_spark(cold, "DELETE FROM {t} WHERE id = 14007 AND v = -1")
    folded(cold)
    assert waiting(cold) == []
    same(cold)


def test_a_fold_and_then_another_run_that_died_after_their_commits(cold: World, tmp_path: Path) -> None:
    """The second has put the first one's commit aside: it is not taken up again."""
    both(cold, "UPDATE {t} SET v = 4 WHERE id IN (54, 56)")
    add(cold, 19_000)
    with at(tmp_path, lambda now: now != "merge.commit"), pytest.raises(InjectedFault):
        folded(cold)
    add(cold, 19_200)
    with at(tmp_path, lambda now: now != "append.commit"), pytest.raises(InjectedFault):
        returned(cold, "2020-02-10")
    same(cold)
    assert [done.updated for done in folded(cold)] == [2]
    assert waiting(cold) == []
    same(cold)


@contextmanager
def many_at(world: World, directory: Path, points: Sequence[str], first: int, start: str) -> Iterator[None]:
    """Whenever a run comes to one of these points somebody inserts many rows; with `*`, while the run goes on."""
    threads: list[threading.Thread] = []

    def insert(number: int) -> None:
        rows = (
            f"SELECT x, timestamptz '{start}Z' + x % 700 * interval '1 h', x"
            f" FROM generate_series({number}, {number + 99}) x"
        )
        while True:
            with suppress(psycopg.errors.SerializationFailure):
                world.run(f"INSERT INTO events (id, ts, v) {rows}")
                break
        world.run(f"INSERT INTO twin (id, ts, v) {rows}")

    def act(point: str) -> None:
        for at_once in {point, f"{point}*"} & set(points[len(threads) :]):
            threads.append(threading.Thread(target=insert, args=(first + 100 * len(threads),)))
            threads[-1].start()
            if not at_once.endswith("*"):
                threads[-1].join(60)

    with at(directory, act):
        yield
        for thread in threads:
            thread.join(60)
            assert not thread.is_alive()
    assert len(threads) == len(points)


def test_rows_that_are_staged_while_others_are_folded(cold: World, tmp_path: Path) -> None:
    both(cold, "UPDATE {t} SET v = 2 WHERE id IN (50, 52)")
    with many_at(cold, tmp_path, ["versions.snapshot", "merge.commit", "record.fenced*"], 15_000, "2020-01-02"):
        (done,) = folded(cold)
    assert done.updated == 2
    assert len(waiting(cold)) == 3
    same(cold)
    both(cold, "UPDATE {t} SET v = 3 WHERE id IN (50, 15050, 15150, 15250)")
    with (
        many_at(cold, tmp_path, ["fold.begun"], 16_000, "2020-01-02"),
        pytest.raises(FrostlineError, match="meanwhile; nothing was folded"),
    ):
        folded(cold)
    same(cold)
    folded(cold)
    assert waiting(cold) == []
    same(cold)


def test_rows_that_are_staged_while_periods_are_joined(cold: World, tmp_path: Path) -> None:
    cold.run("UPDATE frostline.tables SET coalesce_to = 'quarter', coalesce_after = '1 month'")
    add(cold, 17_000, start="2019-11-10")
    points = ["coalesce.locked*", "coalesce.commit*", "coalesce.joined"]
    with (
        many_at(cold, tmp_path, points, 18_000, "2019-11-10"),
        connect(cold.dsn) as connection,
        only_writer(connection, registry.get(connection, "public.events")) as managed,
    ):
        (group,) = coalesce.joined(connection, managed, Wanted())
    assert len(group.parts) == 2
    same(cold)
    folded(cold)
    same(cold)


def test_only_files_that_nobody_will_read_are_removed(cold: World, tmp_path: Path) -> None:
    add(cold, 30_000)
    with at(tmp_path, lambda now: now != "append.commit"), pytest.raises(InjectedFault):
        folded(cold)
    add(cold, 30_200)
    left = cold.directory("events") / "data" / "staged-1-left.parquet"
    left.write_bytes(b"")
    cold.clean("public.events")  # also the commit that was never shown
    assert not left.exists()
    same(cold)
    client = cold.connect(autocommit=False)
    client.execute("INSERT INTO events SELECT x, '2020-01-20Z', x FROM generate_series(31000, 31099) x")
    left.write_bytes(b"")
    cold.clean("public.events")  # while a transaction is about to commit
    client.commit()
    cold.run("INSERT INTO twin SELECT x, '2020-01-20Z', x FROM generate_series(31000, 31099) x")
    same(cold)
    cold.clean("public.events")
    assert not left.exists()
    folded(cold)
    same(cold)


def test_who_waits_until_its_files_are_gone_tries_again(cold: World, tmp_path: Path) -> None:
    def act(point: str) -> None:
        if point == "write.flushed":
            cold.clean("public.events")

    insert = "INSERT INTO events SELECT x, '2020-01-21Z', x FROM generate_series(32000, 32099) x"
    client = cold.connect()
    with at(tmp_path, act), pytest.raises(psycopg.errors.SerializationFailure):
        client.execute(insert)
    assert cold.run("SELECT count(*) FROM events WHERE id >= 32000") == [(0,)]
    client.execute(insert)
    cold.run(insert.replace("events", "twin"))
    same(cold)


def test_columns_that_come_and_go_after_rows_were_staged(cold: World) -> None:
    add(cold, 33_000)
    both(cold, "ALTER TABLE {t} ADD COLUMN note text DEFAULT 'old'")
    same(cold)
    both(cold, "UPDATE {t} SET note = NULL WHERE id = 33001")
    both(cold, "INSERT INTO {t} SELECT x, '2020-01-22Z', x, 'n' || x FROM generate_series(34000, 34099) x")
    same(cold)
    folded(cold)
    assert waiting(cold) == []
    both(
        cold,
        "INSERT INTO {t} SELECT x, '2020-01-22Z', x, nullif('n' || x, 'n35001') FROM generate_series(35000, 35099) x",
    )
    assert waiting(cold)  # the lake has the column by now
    same(cold)
    both(cold, "ALTER TABLE {t} DROP COLUMN note")
    both(cold, "ALTER TABLE {t} ALTER COLUMN v TYPE bigint")
    same(cold)
    add(cold, 36_000)
    folded(cold)
    add(cold, 37_000)
    same(cold)


def returned(world: World, period: str) -> list[Any]:
    with Warm(world.spark_here) as warm:
        return untier(world.settings, "public.events", period, Silent(), warm)


def test_rows_that_are_staged_while_a_period_comes_back_are_not_left_behind(cold: World, tmp_path: Path) -> None:
    add(cold, 38_000, start="2020-02-01")

    def act(point: str) -> None:
        if point == "compare.begin":
            add(cold, 39_000, start="2020-02-01")

    with at(tmp_path, act), pytest.raises(FrostlineError, match=r"many rows were added|differ"):
        returned(cold, "2020-02-10")
    same(cold)
    returned(cold, "2020-02-10")
    same(cold)
    assert waiting(cold) == []


def test_rows_that_are_staged_while_a_partition_is_archived(cold: World, tmp_path: Path) -> None:
    points = ["capture.end", "export.snapshot", "export.commit", "verify.heap", "swap.locked*", "swap.commit*"]
    with many_at(cold, tmp_path, points, 45_000, "2020-01-02"):
        (done,) = cold.archive("public.events")
    assert done.leaf.name == "events_02"
    same(cold)
    assert len(waiting(cold)) == len(points)


def test_rows_that_are_staged_while_others_are_not_kept_any_longer(cold: World, tmp_path: Path) -> None:
    cold.run("UPDATE frostline.tables SET retention = (now() - timestamptz '2020-01-10Z')::text")
    add(cold, 46_000, start="2019-12-01")
    points = ["retention.locked*", "retention.commit*", "retention.done"]
    with many_at(cold, tmp_path, points, 47_000, "2020-01-02"):
        outcomes = cycle.retains(cold.settings, ["public.events"], Silent(), cold.spark_here)
    assert [(outcome.what, outcome.state, outcome.error) for outcome in outcomes] == [(ANY, "removed", None)]
    cold.run("DELETE FROM twin WHERE ts < '2020-01-01Z'")
    same(cold)
    with pytest.raises(psycopg.errors.CheckViolation, match="not kept any more"):
        cold.run("INSERT INTO events SELECT x, '2019-12-20Z', x FROM generate_series(48000, 48099) x")
    folded(cold)
    same(cold)
    cold.run("UPDATE frostline.tables SET retention = NULL, retained_from = NULL")  # what comes next is kept


def test_a_full_disk_is_called_that(cold: World, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_: writer.Writer) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    before = cold.run("SELECT count(*) FROM events")
    statement = "INSERT INTO events (id, ts, v) SELECT x, '2020-01-02Z', x FROM generate_series(60001, 60100) x"
    with monkeypatch.context() as patch:
        patch.setattr(writer.Writer, "flush", full)
        with pytest.raises(psycopg.Error, match=r"the lake in .* cannot be used; the tables are as they were") as error:
            cold.run(statement)
    assert (error.value.sqlstate, "No space left" in str(error.value.diag.message_detail)) == ("58030", True)
    assert cold.run("SELECT count(*) FROM events") == before
    cold.run(statement)
    cold.run("DELETE FROM events WHERE id > 60000")
    folded(cold)


def test_all_rows_come_back(cold: World) -> None:
    add(cold, 50_000)
    add(cold, 51_000, start="2019-05-01")  # below the oldest period
    with connect(cold.dsn) as connection:
        assert staged.waiting(connection, registry.get(connection, "public.events")).rows == 200
    unregister(cold.settings, "public.events", Silent(), keep_lake=False)
    same(cold)
    assert not list(Path(cold.settings.warehouse).rglob("staged-*"))
