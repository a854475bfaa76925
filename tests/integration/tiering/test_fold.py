"""Folding: changes of cold rows go into the lake, and nobody sees a difference, whatever fails, whoever interferes."""

from __future__ import annotations

import random
import re
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import duckdb
import psycopg
import pytest
from pyspark.sql import SparkSession
from typer.testing import CliRunner

from fix_faults import at
from fix_lake import Lake
from fix_tiering import World, new_world
from frostline.catalog import registry
from frostline.catalog.database import connect
from frostline.catalog.names import FENCE, LAKE_WRITER
from frostline.catalog.registry import Managed
from frostline.cli.main import app
from frostline.config import Settings
from frostline.delta.fold import Waiting
from frostline.errors import FrostlineError, Interrupted, LakeError, OperationError, RefusedError
from frostline.faults import FOLD_POINTS, InjectedFault
from frostline.lake import catalog as lake
from frostline.lake import files
from frostline.lake.storage import of
from frostline.pipeline import merge, session
from frostline.pipeline.merge import quiet
from frostline.report import Silent
from frostline.tiering import cycle, verify
from frostline.tiering.archive.run import Warm
from frostline.tiering.fold import merge as merging
from frostline.tiering.fold.run import Folded, due, fold
from integration.tiering.test_archive import EVERY_TYPE, SIMPLE

JANUARY, FEBRUARY = 744, 696  # rows of SIMPLE's cold months
DELTA = "frostline_delta.events_1"


def rows(world: World, table: str = "public.events") -> list[tuple[Any, ...]]:
    return world.run(f"SELECT r.id, r::text FROM {table} r ORDER BY 1, 2")


def folded(world: World, table: str = "public.events") -> list[Folded]:
    with Warm(world.spark_here) as warm:
        return fold(world.settings, table, Silent(), warm)


def managed(world: World, table: str = "public.events") -> Managed:
    with connect(world.dsn) as connection:
        return registry.get(connection, table)


def write(world: World, op: str, where: str, change: str = "v = v", prev: int = 0) -> None:
    """New versions of rows as they are now, as the collecting function makes them."""
    values = "n.id, n.ts, " + ("n.v" if op == "U" else "NULL")
    assigned = change.partition("=")[2]
    world.run(
        f"INSERT INTO {DELTA} (id, ts, v, _op, _seq, _prev)"
        f" SELECT {values}, '{op}', nextval('frostline.version'), {prev}"
        f" FROM (SELECT id, ts, ({assigned})::int AS v FROM public.events WHERE {where}) n"
    )


def insert(world: World, id_: int, ts: str, v: int, prev: int = 0) -> int:
    [(seq,)] = world.run(
        f"INSERT INTO {DELTA} (id, ts, v, _op, _seq, _prev)"
        f" VALUES ({id_}, '{ts}', {v}, 'U', nextval('frostline.version'), {prev}) RETURNING _seq"
    )
    return int(seq)


@pytest.fixture(scope="module")
def cold(dsn: str, spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """January and February of SIMPLE in the lake; shared, every test leaves an empty delta."""
    with new_world(dsn, spark, tmp_path_factory.mktemp("fold")) as world:
        world.run(SIMPLE)
        world.register("public.events")
        world.archive("public.events")
        yield world


def data_files(world: World) -> dict[str, set[str]]:
    """Paths of the registry's snapshot by partition."""
    table = managed(world)
    assert table.metadata_location is not None
    assert table.snapshot_id is not None
    found: dict[str, set[str]] = {}
    for file in files.snapshot(of(world.settings), table.metadata_location, table.snapshot_id).files:
        found.setdefault(file.path.split("period=")[1][:7], set()).add(file.path)
    return found


def test_versions_become_rows_of_the_lake_and_only_their_partition_is_rewritten(cold: World) -> None:
    world = cold
    first = insert(world, 1, "2020-01-01 01:00", 100)
    second = insert(world, 1, "2020-01-01 01:00", 101, first)
    insert(world, 1, "2020-01-01 01:00", 102, second)
    write(world, "U", "id BETWEEN 10 AND 19", "v = v + 1000")
    write(world, "T", "id BETWEEN 20 AND 29")
    insert(world, 9001, "2020-01-31 23:59:59.999999", 7)
    world.run(
        f"INSERT INTO {DELTA} (id, ts, _op, _seq, _prev)"
        " VALUES (-5, '2020-01-05', 'T', nextval('frostline.version'), 0)"  # nothing there to delete
    )
    expected, before, snapshot = rows(world), data_files(world), managed(world).snapshot_id
    assert {(1, 102), (9001, 7), (10, 1010)} <= {(i, v) for i, v in world.run("SELECT id, v FROM public.events")}
    [done] = folded(world)
    assert (done.versions, done.updated, done.deleted, done.inserted, done.files) == (25, 11, 10, 1, 1)
    assert rows(world) == expected
    assert world.run(f"SELECT count(*) FROM {DELTA}") == [(0,)]
    after = data_files(world)
    assert after["2020-02"] == before["2020-02"]
    _laid_out_as_ours(*after["2020-01"])
    assert not after["2020-01"] & before["2020-01"]
    assert managed(world).snapshot_id != snapshot
    assert world.run("SELECT rows, files, digest IS NULL FROM frostline.periods ORDER BY upper") == [
        (0, 0, True),
        (JANUARY - 9, 1, True),
        (FEBRUARY, 1, False),
    ]
    assert world.run("SELECT state, folded, snapshot_id FROM frostline.operations WHERE kind = 'fold'") == [
        ("done", None, managed(world).snapshot_id)
    ]
    # What verify finds is recorded, and holds.
    for _ in range(2):
        assert {f.state for f in verify.verify(world.settings, "public.events", None, Silent())} == {"good"}
    assert world.run("SELECT bool_and(digest IS NOT NULL) FROM frostline.periods") == [(True,)]


def _laid_out_as_ours(location: str) -> None:
    """What Spark wrote is sorted by the key, compressed, and has bloom filters where rows are looked up."""
    path = location.removeprefix("file://")
    with duckdb.connect() as engine:
        ids = [id_ for (id_,) in engine.execute("SELECT id FROM read_parquet(?)", [path]).fetchall()]
        assert ids == sorted(ids)
        found = engine.execute(
            "SELECT path_in_schema, compression, bloom_filter_offset IS NOT NULL FROM parquet_metadata(?)", [path]
        )
        assert found.fetchall() == [("id", "ZSTD", True), ("ts", "ZSTD", False), ("v", "ZSTD", False)]


def test_nothing_to_fold_starts_no_spark(cold: World) -> None:
    def no_spark() -> Any:
        raise AssertionError

    with Warm(no_spark) as warm:
        assert fold(cold.settings, "public.events", Silent(), warm) == []
    assert [o.state for o in cycle.cycle(cold.settings, ["public.events"], Silent(), no_spark)] == []


def test_thresholds_decide_in_a_round_of_archiving(cold: World) -> None:
    world = cold
    insert(world, 2, "2020-01-01 02:00", 5)

    def settings(**limits: Any) -> Settings:
        return world.settings.model_copy(update={"fold": world.settings.fold.model_copy(update=limits)})

    def states(chosen: Settings) -> list[str]:
        return [o.state for o in cycle.cycle(chosen, ["public.events"], Silent(), world.spark_here)]

    assert states(settings(age=3600.0)) == []  # one version, and the last fold was just now
    assert states(settings(rows=1)) == ["folded"]
    assert world.run("SELECT v FROM public.events WHERE id = 2") == [(5,)]
    with connect(world.dsn) as connection:
        found = managed(world)
        for waiting, limits, expected in (
            (Waiting(9, 90), {"rows": 10, "bytes": 100, "age": 3600.0}, False),
            (Waiting(10, 90), {"rows": 10, "bytes": 100, "age": 3600.0}, True),
            (Waiting(9, 100), {"rows": 10, "bytes": 100, "age": 3600.0}, True),
            (Waiting(1, 1), {"rows": 10, "bytes": 100, "age": 0.0}, True),
        ):
            assert due(connection, settings(**limits), found, waiting) is expected


def test_a_newer_version_committed_meanwhile_stays(cold: World, tmp_path: Path) -> None:
    world = cold
    old = insert(world, 3, "2020-01-01 03:00", 30)
    late = world.connect(autocommit=False)
    # A version with a lower number than those that are folded, committed after they were read.
    late.execute(f"INSERT INTO {DELTA} VALUES (4, '2020-01-01 04:00', 40, 'U', nextval('frostline.version'), 0)")
    insert(world, 5, "2020-01-01 05:00", 50)

    def meanwhile(point: str) -> None:
        if point == "merge.ready":
            insert(world, 3, "2020-01-01 03:00", 31, old)
            late.commit()
        if point == "record.counted":
            insert(world, 6, "2020-01-01 06:00", 60)

    with at(tmp_path, meanwhile):
        [done] = folded(world)
    assert done.versions == 2
    assert world.run(f"SELECT id, v, _prev = {old} FROM {DELTA} ORDER BY id") == [
        (3, 31, True),
        (4, 40, False),
        (6, 60, False),
    ]
    values = "SELECT id, v FROM public.events WHERE id BETWEEN 3 AND 6 ORDER BY id"
    assert world.run(values) == [(3, 31), (4, 40), (5, 50), (6, 60)]
    folded(world)
    assert world.run(f"SELECT count(*) FROM {DELTA}") == [(0,)]
    assert world.run(values) == [(3, 31), (4, 40), (5, 50), (6, 60)]


# In the order a run comes to them: before the commit to Iceberg a run begins anew, after it the commit is gone on with.
_FAILING = (
    *("fold.begin", "fold.begun", "versions.begin", "versions.begun", "versions.snapshot", "versions.end"),
    *("versions.ended", "merge.begin", "merge.begun", "merge.ready", "merge.commit"),
    *("adopt.begin", "merge.flush", "merge.recorded", "record.begin", "record.begun", "record.counted"),
    *("record.fenced", "record.commit", "record.end"),
)


@pytest.mark.parametrize("points", [_FAILING, ("merge.end", "record.ended"), ("merge.ended", "fold.end")])
def test_a_fold_that_fails_at_any_point_is_made_good_by_the_next(
    cold: World, tmp_path: Path, points: tuple[str, ...]
) -> None:
    world = cold
    insert(world, 100_000 + len(points), "2020-02-02 00:30", 1)
    write(world, "U", f"id = {800 + len(points)}", "v = v + 1")
    write(world, "T", f"id = {850 + len(points)}")
    expected = rows(world)
    for number, point in enumerate(points):
        with (
            at(tmp_path, lambda reached, point=point: reached != point) as seen,  # type: ignore[misc]
            pytest.raises((InjectedFault, FrostlineError)),
        ):
            folded(world)
        assert seen[-1] == point
        assert rows(world) == expected, point
        if number % 2:  # as a kill -9 leaves it
            world.run("UPDATE frostline.operations SET state = 'running' WHERE state = 'failed' AND folded IS NOT NULL")
    folded(world)
    assert rows(world) == expected
    assert world.run(f"SELECT count(*) FROM {DELTA}") == [(0,)]
    assert world.run("SELECT id FROM frostline.operations WHERE state = 'running' OR folded IS NOT NULL") == []
    assert {f.state for f in verify.verify(world.settings, "public.events", None, Silent())} == {"good"}


def test_every_point_of_a_fold_has_a_failure() -> None:
    assert {*_FAILING, "merge.end", "merge.ended", "record.ended", "fold.end"} == set(FOLD_POINTS)


def by_spark(world: World, *statements: str) -> list[list[Any]]:
    """Another engine at work on the Iceberg table `t`."""
    name = ".".join((world.settings.lake.name, *lake.identifier(managed(world))))
    with world.spark_here() as spark, quiet():
        return [[tuple(row) for row in spark.sql(text.format(t=name)).collect()] for text in statements]


def test_what_another_engine_committed_before_the_merge_becomes_part_of_the_table(cold: World, tmp_path: Path) -> None:
    world = cold
    by_spark(world, "INSERT INTO {t} VALUES (500001, TIMESTAMP '2020-02-20 00:30:00', 1)")
    assert world.run("SELECT count(*) FROM public.events WHERE id >= 500000") == [(0,)]
    insert(world, 7, "2020-01-01 07:00", 70)

    def interfere(point: str) -> None:
        if point == "merge.ready":
            by_spark(
                world,
                "INSERT INTO {t} VALUES (500002, TIMESTAMP '2020-02-21 00:30:00', 2)",
                "DELETE FROM {t} WHERE id = 8",  # of the file we merge into
            )

    with at(tmp_path, interfere):
        folded(world)
    assert world.run("SELECT id, v FROM public.events WHERE id IN (7, 8) OR id >= 500000 ORDER BY id") == [
        *((7, 70), (500001, 1), (500002, 2)),
    ]


@contextmanager
def committing_meanwhile(world: World, *ids: int) -> Iterator[list[int]]:
    """Another engine deletes rows of January, one for each MERGE, after Spark has loaded the table for that."""
    left: list[int] = list(ids)
    done: list[int] = []

    def run(self: SparkSession, text: str, *arguments: Any, **named: Any) -> Any:
        if not text.startswith("MERGE INTO") or not left:
            return plain(self, text, *arguments, **named)
        java: Any = self._jsparkSession
        state = java.sessionState()
        loaded = state.executePlan(state.sqlParser().parsePlan(text), _mode(self)).analyzed()
        by_spark(world, f"DELETE FROM {{t}} WHERE id = {left[0]}")  # a session of its own, which knows nothing of this
        done.append(left.pop(0))
        return self._jvm.org.apache.spark.sql.classic.Dataset.ofRows(java, loaded)  # type: ignore[union-attr]

    with pytest.MonkeyPatch.context() as patch:
        plain = SparkSession.sql
        patch.setattr(SparkSession, "sql", run)
        yield done


def _mode(spark: SparkSession) -> Any:
    return spark._jvm.org.apache.spark.sql.execution.CommandExecutionMode.ALL()  # type: ignore[union-attr]


def test_a_commit_of_another_engine_under_the_merge_is_merged_with_at_the_next_try(cold: World, tmp_path: Path) -> None:
    world = cold
    insert(world, 13, "2020-01-01 13:00", 130)
    expected = [row for row in rows(world) if row[0] != 14]
    with committing_meanwhile(world, 14) as done, at(tmp_path, lambda _: None) as seen:
        folded(world)
    assert done == [14]
    assert (seen.count("merge.ready"), seen.count("merge.commit")) == (2, 1)
    assert rows(world) == expected
    assert world.run(f"SELECT count(*) FROM {DELTA}") == [(0,)]
    assert {f.state for f in verify.verify(world.settings, "public.events", None, Silent())} == {"good"}


def test_other_engines_that_never_pause_are_an_error_and_nothing_changes(
    cold: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = cold
    monkeypatch.setattr(merging, "_TRIES", 2)
    insert(world, 13, "2020-01-01 13:00", 131)
    before, expected = managed(world), rows(world)
    with (
        committing_meanwhile(world, 15, 16) as done,
        at(tmp_path, lambda _: None) as seen,
        pytest.raises(Interrupted, match="commit to its Iceberg table all the time; nothing was changed") as error,
    ):
        folded(world)
    assert done == [15, 16]
    assert (seen.count("merge.ready"), seen.count("merge.commit")) == (2, 0)
    assert "Found conflicting files" in (error.value.detail or "")
    assert "when they pause" in (error.value.hint or "")
    assert (managed(world), rows(world)) == (before, expected)
    assert world.run(f"SELECT id, v FROM {DELTA}") == [(13, 131)]
    folded(world)
    assert rows(world) == [row for row in expected if row[0] not in (15, 16)]


def test_what_cannot_be_merged_is_refused_and_nothing_changes(cold: World, tmp_path: Path) -> None:
    world = cold
    insert(world, 9, "2020-01-01 09:00", 90)
    before, expected = managed(world), rows(world)
    back = "CALL {}.system.rollback_to_snapshot('{}', {})".format(
        world.settings.lake.name, ".".join(lake.identifier(before)), before.snapshot_id
    )
    for why, *statements in (
        (r"stand there twice: \{9, 2020-01-01 09", "INSERT INTO {t} VALUES (9, TIMESTAMP '2020-01-01 09:00:00', 1)"),
        ("reaches beyond 2020-03-01", "INSERT INTO {t} VALUES (9, TIMESTAMP '2020-03-01 00:00:00', 1)"),
        (
            "has changed the table's columns",
            "ALTER TABLE {t} ADD COLUMN more INT",
            "INSERT INTO {t} VALUES (500003, TIMESTAMP '2020-02-21', 2, 3)",
        ),
    ):
        by_spark(world, *statements)
        with pytest.raises(LakeError, match="what cannot be merged; nothing was folded") as error:
            folded(world)
        assert re.search(why, error.value.detail or "")
        assert "rollback_to_snapshot" in (error.value.hint or "")
        assert managed(world) == before
        assert rows(world) == expected
        by_spark(world, back)
    by_spark(world, "ALTER TABLE {t} DROP COLUMN more")
    late = ["INSERT INTO {t} VALUES (9, TIMESTAMP '2020-03-01 00:00:00', 1)"]  # our own commit then stands on it

    def interfere(point: str) -> None:
        if point == "merge.ready" and late:
            by_spark(world, late.pop())

    with at(tmp_path, interfere), pytest.raises(LakeError, match="what cannot be merged"):
        folded(world)
    by_spark(world, back)
    folded(world)
    assert rows(world) == expected
    assert world.run(f"SELECT count(*) FROM {DELTA}") == [(0,)]


def test_cold_writers_are_kept_out_for_a_moment_and_named_when_they_stay(cold: World) -> None:
    world = cold
    insert(world, 11, "2020-01-01 11:00", 110)
    writer = world.connect(autocommit=False)
    writer.execute(f"SELECT pg_advisory_xact_lock_shared({FENCE}, 1)")
    archive = world.settings.archive.model_copy(update={"lock_patience": 0.5})
    impatient = world.settings.model_copy(update={"archive": archive})
    before = managed(world).snapshot_id
    with Warm(world.spark_here) as warm, pytest.raises(Interrupted, match="did not get its lock") as error:
        fold(impatient, "public.events", Silent(), warm)
    assert f"pid {writer.info.backend_pid} (idle in transaction" in (error.value.detail or "")
    assert "the fence of cold writers" in (error.value.detail or "")
    assert managed(world).snapshot_id == before
    threading.Timer(1, writer.rollback).start()
    [done] = folded(world)  # goes on with the commit that is there
    assert (done.versions, done.updated) == (1, 1)
    assert world.run("SELECT v FROM public.events WHERE id = 11") == [(110,)]


def test_only_one_writer_of_the_lake_at_a_time(cold: World) -> None:
    cold.connect().execute(f"SELECT pg_advisory_lock({LAKE_WRITER}, 1)")
    with pytest.raises(OperationError, match=r"another run is archiving or folding public\.events"):
        folded(cold)
    cold.connections.pop().close()


def test_the_command_says_what_it_did(cold: World, monkeypatch: pytest.MonkeyPatch) -> None:
    insert(cold, 12, "2020-01-01 12:00", 120)
    monkeypatch.setattr(session, "spark_session", lambda *_: cold.spark_here())
    options = ["--dsn", cold.dsn, "--dir", str(cold.settings.local.dir)]
    done = CliRunner().invoke(app, [*options, "fold"], catch_exceptions=False)
    assert done.exit_code == 0
    assert ["public.events", "1", "1", "0", "0", "1"] in [line.split()[:-1] for line in done.stdout.splitlines()]
    again = CliRunner().invoke(app, [*options, "fold", "public.events"], catch_exceptions=False)
    assert "nothing to fold" in again.output


def test_a_value_the_lake_cannot_hold_and_changed_columns_are_told(cold: World) -> None:
    cold.run(f"INSERT INTO {DELTA} VALUES (1, '-infinity', 1, 'U', nextval('frostline.version'), 0)")
    with pytest.raises(RefusedError, match="holds a value Iceberg has no form for"):
        folded(cold)
    cold.run(f"DELETE FROM {DELTA}")


def test_every_type_and_a_period_that_is_still_hot(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.run(EVERY_TYPE)
    world.register("public.events")
    world.archive("public.events")
    columns = [c.name for c in managed(world).table.stored if c.name not in ("id", "ts")]
    names = ", ".join('"' + name.replace('"', '""') + '"' for name in columns)
    others = ", ".join("o." + name for name in names.split(", "))
    # Every row gets all the values of another one, two are new, one goes; the last is of a leaf that is still hot.
    world.run(
        f"""
        CREATE TABLE public.other AS SELECT * FROM public.plain;
        INSERT INTO {DELTA} (id, ts, {names}, _op, _seq, _prev)
        SELECT t.id, t.ts, {others}, 'U', nextval('frostline.version'), 0
        FROM public.plain t JOIN public.other o ON o.id = 5 - t.id WHERE t.id < 5;
        INSERT INTO {DELTA} (id, ts, {names}, _op, _seq, _prev)
        SELECT 100 + o.id, t.ts, {others}, 'U', nextval('frostline.version'), 0
        FROM public.plain t JOIN public.other o ON t.id = 1;
        INSERT INTO {DELTA} (id, ts, _op, _seq, _prev)
        SELECT id, ts, 'T', nextval('frostline.version'), 0 FROM public.plain WHERE id = 5;
        """
    )
    expected = rows(world)
    assert len(expected) == 4 + 5 + 1
    [done] = folded(world)
    assert (done.versions, done.updated, done.inserted) == (9, 4, 5)
    assert rows(world) == expected
    assert world.run(f"SELECT id, _op::text FROM {DELTA}") == [(5, "T")]
    # And when they are so many that tasks read them, each some pages.
    world.run(
        f"""
        INSERT INTO {DELTA} (id, ts, {names}, _op, _seq, _prev)
        SELECT o.id + 10 * n.x, t.ts, {others}, 'U', nextval('frostline.version'), 0
        FROM public.plain t JOIN public.other o ON t.id = 1 CROSS JOIN generate_series(10, 50) n (x)
        """
    )
    expected = rows(world)
    monkeypatch.setattr(merge, "_SLICE_BYTES", 1)
    assert world.run(f"SELECT pg_relation_size('{DELTA}') > 2 * 8192") == [(True,)]
    [done] = folded(world)
    assert (done.versions, done.updated, done.inserted) == (205, 5, 200)
    assert rows(world) == expected
    assert {f.state for f in verify.verify(world.settings, "public.events", None, Silent())} == {"good"}


def test_merge_on_read_gives_the_same_rows(world: World) -> None:
    world.run(SIMPLE)
    world.register("public.events")
    world.run("UPDATE frostline.tables SET merge_mode = 'merge-on-read'")
    world.archive("public.events")
    before = data_files(world)
    for turn in range(2):
        write(world, "U", f"id BETWEEN {10 + turn} AND 19", "v = v + 1000")
        write(world, "T", f"id BETWEEN {20 + 3 * turn} AND {22 + 3 * turn}")
        insert(world, 9001 + turn, "2020-01-31", 7)
        expected = rows(world)
        folded(world)
        assert rows(world) == expected
        assert world.run(f"SELECT count(*) FROM {DELTA}") == [(0,)]
        assert before["2020-01"] < data_files(world)["2020-01"]
        assert world.run("SELECT rows FROM frostline.periods ORDER BY upper") == [
            *((0,), (JANUARY - 2 * (turn + 1),), (FEBRUARY,)),
        ]
    assert {f.state for f in verify.verify(world.settings, "public.events", None, Silent())} == {"good"}


def test_keys_of_other_types_and_files_that_reach_over_a_period(world: World) -> None:
    """Odd bounds do not follow Iceberg's partitions: a file can hold rows of two periods."""
    world.run(
        """
        CREATE TABLE public.events ("Key ü" uuid, ts date, name text, n numeric(20, 3), v text,
            PRIMARY KEY ("Key ü", name, ts, n)) PARTITION BY RANGE (ts);
        CREATE TABLE public.e1 PARTITION OF public.events FOR VALUES FROM ('2020-01-03') TO ('2020-02-08');
        CREATE TABLE public.e2 PARTITION OF public.events FOR VALUES FROM ('2020-02-08') TO ('2020-03-11');
        CREATE TABLE public.e3 PARTITION OF public.events FOR VALUES FROM ('2020-03-11') TO (MAXVALUE);
        INSERT INTO public.events
        SELECT md5(i::text)::uuid, date '2020-01-03' + i % 60, 'n' || i % 7, i * 1.001, 'v' || i
        FROM generate_series(1, 2000) i;
        CREATE TABLE public.plain AS TABLE public.events;
        """
    )
    world.register("public.events")
    world.archive("public.events")
    world.run(
        f"""
        INSERT INTO {DELTA} SELECT "Key ü", ts, name, n, 'new', 'U', nextval('frostline.version'), 0
        FROM public.plain WHERE n < 300;
        INSERT INTO {DELTA} SELECT "Key ü", ts, name, n, NULL, 'T', nextval('frostline.version'), 0
        FROM public.plain WHERE n BETWEEN 300 AND 600;
        INSERT INTO {DELTA} SELECT md5((-i)::text)::uuid, date '2020-02-01' + i, 'é' || i, i, NULL, 'U',
            nextval('frostline.version'), 0 FROM generate_series(1, 20) i;
        UPDATE public.plain SET v = 'new' WHERE n < 300;
        DELETE FROM public.plain WHERE n BETWEEN 300 AND 600;
        INSERT INTO public.plain SELECT md5((-i)::text)::uuid, date '2020-02-01' + i, 'é' || i, i
        FROM generate_series(1, 20) i;
        """
    )
    expected = world.run("SELECT r::text FROM public.plain r ORDER BY 1")
    assert world.run("SELECT r::text FROM public.events r ORDER BY 1") == expected
    [done] = folded(world)
    assert (done.versions, done.updated, done.deleted, done.inserted) == (619, 299, 300, 20)
    assert world.run("SELECT r::text FROM public.events r ORDER BY 1") == expected
    assert world.run("SELECT rows FROM frostline.periods ORDER BY upper") == [
        *world.run("SELECT count(*) FROM public.plain WHERE ts < '2020-01-03'"),
        *world.run("SELECT count(*) FROM public.plain WHERE ts < '2020-02-08'"),
        *world.run("SELECT count(*) FROM public.plain WHERE ts >= '2020-02-08' AND ts < '2020-03-11'"),
    ]
    [(one, found)] = world.run("SELECT \"Key ü\", v FROM public.events WHERE v = 'new' LIMIT 1")
    assert world.run('SELECT v FROM public.events WHERE "Key ü" = %s', one) == [(found,)]
    assert {f.state for f in verify.verify(world.settings, "public.events", None, Silent())} == {"good"}


def test_a_fold_between_working_out_and_storing_is_a_conflict(cold: World) -> None:
    """A statement that has come to cold rows waits for a hot one meanwhile; another transaction has read before."""
    world = cold
    insert(world, 17, "2020-01-01 17:00", 170)
    query = "SELECT id, v FROM public.events WHERE id IN (17, 18, 2000) ORDER BY id"
    change = "UPDATE public.events SET v = -1 WHERE id IN (18, 2000)"
    early, holder, writer = (world.connect(autocommit=False) for _ in range(3))
    early.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
    before = early.execute(query).fetchall()
    holder.execute("UPDATE public.events SET v = v WHERE id = 2000 AND ts >= '2020-03-01+00'")
    with ThreadPoolExecutor(1) as pool:
        outcome = pool.submit(writer.execute, change)
        waiting = "SELECT 1 FROM pg_stat_activity WHERE pid = %s AND wait_event_type = 'Lock'"
        try:
            until(lambda: world.run(waiting, writer.info.backend_pid) != [], "the writer waits for the hot row")
            [done] = folded(world)
        finally:
            holder.rollback()
        assert done.versions == 1
        with pytest.raises(psycopg.errors.SerializationFailure, match="the lake has changed meanwhile"):
            outcome.result(60)
    with pytest.raises(psycopg.errors.SerializationFailure):
        early.execute(change)
    for connection in (writer, early):
        connection.rollback()
        assert connection.execute(query).fetchall() == before
        connection.rollback()
    assert writer.execute(change).rowcount == 2  # tried again
    writer.rollback()


def until(condition: Callable[[], bool], what: str, seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"in vain: {what}"
        time.sleep(0.01)


class Storm:
    """Sessions that raise counters of cold rows, each as fast as it can."""

    def __init__(self, world: World, writers: int, keys: Sequence[int]) -> None:
        self.dsn, self.keys = world.dsn, keys
        self.raised = [0] * writers  # how often each was successful
        self.added: Counter[int] = Counter()  # by key, what was committed
        self.failures: list[BaseException] = []
        self._stop, self._lock = threading.Event(), threading.Lock()
        self._threads = [threading.Thread(target=self._work, args=(number,)) for number in range(writers)]

    def __enter__(self) -> Storm:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()

    def everyone_gets_a_turn(self) -> None:
        earlier = list(self.raised)

        def had() -> bool:
            return bool(self.failures) or all(now > then for now, then in zip(self.raised, earlier, strict=True))

        until(had, "every writer gets its turn", 120)
        assert self.failures == []

    def _work(self, number: int) -> None:
        chosen = random.Random(number)
        try:
            with psycopg.connect(self.dsn, autocommit=True) as connection:
                while not self._stop.is_set():
                    self._raise(connection, number, chosen.choice(self.keys))
        except BaseException as error:
            self.failures.append(error)

    def _raise(self, connection: psycopg.Connection[Any], number: int, key: int) -> None:
        try:
            done = connection.execute(
                "UPDATE public.events SET v = v + 1"
                " WHERE id = %s AND ts = timestamptz '2020-01-01+00' + %s * interval '1 h'",
                [key, key],
            )
        except psycopg.errors.SerializationFailure:
            pass  # another was first, or the lake has changed
        else:
            assert done.rowcount == 1
            self.raised[number] += 1
            with self._lock:
                self.added[key] += 1


def test_writers_and_folds_go_on_together(cold: World, tmp_path: Path) -> None:
    """Counters of both months that many raise while the table is folded: none loses a step, nobody waits long."""
    world = cold
    keys = [*range(100, 120), *range(1000, 1020)]
    query = f"SELECT id, v FROM public.events WHERE id IN ({', '.join(map(str, keys))}) ORDER BY id"
    before = dict(world.run(query))
    turns: list[str] = []

    def everyone(point: str) -> None:
        """A writer at the fence waits for a transaction of the fold that has its locks, not for the merge."""
        if point in ("versions.snapshot", "merge.commit"):
            storm.everyone_gets_a_turn()
            turns.append(point)

    with Storm(world, 16, keys) as storm:
        for _ in range(2):
            storm.everyone_gets_a_turn()
            with at(tmp_path, everyone), Warm(world.spark_here) as warm:
                [done] = fold(world.settings, "public.events", Silent(), warm)  # it gets the fence in the end
            assert done.versions > 0
    assert storm.failures == []
    assert turns == ["versions.snapshot", "merge.commit"] * 2
    assert {key < JANUARY for key in storm.added} == {True, False}
    expected = {key: v + storm.added[key] for key, v in before.items()}
    assert dict(world.run(query)) == expected
    folded(world)
    assert dict(world.run(query)) == expected
    assert world.run(f"SELECT count(*) FROM {DELTA}") == [(0,)]


def test_a_lake_on_s3_in_a_catalog_that_keeps_no_history(rest_lake: Lake, tmp_path: Path) -> None:
    """There a commit of a run that died is known by its files."""
    world = rest_lake.world
    world.run(SIMPLE)
    world.register("public.events")
    world.archive("public.events")
    write(world, "U", "id BETWEEN 10 AND 19", "v = v + 1000")
    write(world, "T", "id BETWEEN 20 AND 29")
    insert(world, 9001, "2020-02-01", 7)
    expected = rows(world)
    with at(tmp_path, lambda point: point != "merge.commit"), pytest.raises(InjectedFault):
        folded(world)
    assert rows(world) == expected
    [done] = folded(world)
    assert (done.versions, done.updated, done.deleted, done.inserted) == (21, 10, 10, 1)
    assert rows(world) == expected
    assert world.run(f"SELECT count(*) FROM {DELTA}") == [(0,)]
    world.run("UPDATE frostline.tables SET bulk_rows = 50")
    world.run("INSERT INTO public.events SELECT 9100 + x, '2020-01-20', x FROM generate_series(1, 100) x")
    expected = rows(world)
    with at(tmp_path, lambda point: point != "append.commit"), pytest.raises(InjectedFault):
        folded(world)
    assert rows(world) == expected
    assert world.run("SELECT sum(rows)::int FROM frostline.staged_files") == [(100,)]
    folded(world)
    assert world.run("SELECT sum(rows)::int FROM frostline.staged_files") == [(None,)]
    assert rows(world) == expected
