"""Periods come back from the lake, and nobody sees a difference, whatever fails and whoever writes meanwhile."""

from __future__ import annotations

import contextlib
import itertools
import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg import IsolationLevel
from pyspark.sql import SparkSession
from typer.testing import CliRunner

from faults.archiver import Ended, Forks
from fix_tiering import World, new_world
from frostline import faults
from frostline.catalog import registry
from frostline.catalog.database import connect
from frostline.catalog.registry import Managed
from frostline.cli.main import app
from frostline.config import Settings
from frostline.errors import Interrupted, OperationError, RefusedError
from frostline.faults import UNTIER_POINTS, InjectedFault
from frostline.lake import surplus
from frostline.model.bounds import Bound, parse_bound
from frostline.report import Silent
from frostline.tiering import clean, cycle, register, verify
from frostline.tiering.archive.run import Warm, archive
from frostline.tiering.fold.run import fold
from frostline.tiering.locks import only_writer
from frostline.tiering.untier.run import Returned, untier
from integration.tiering.test_archive import EVERY_TYPE, SIMPLE
from integration.tiering.test_references import TABLE

PLAIN = SIMPLE + "CREATE TABLE public.plain AS TABLE public.events;"
DELTA = "frostline_delta.events_1"


def back(world: World, period: str, settings: Settings | None = None) -> list[Returned]:
    with Warm(world.spark_here) as warm:
        return untier(settings or world.settings, "public.events", period, Silent(), warm)


def rows(world: World, table: str) -> list[tuple[Any, ...]]:
    return world.run(f"SELECT r.id, r::text FROM {table} r ORDER BY 1, 2")


def kinds(world: World) -> dict[str, str]:
    found = world.run(
        "SELECT c.relname, c.relkind::text || ' of ' || i.inhparent::regclass FROM pg_class c"
        " JOIN pg_inherits i ON i.inhrelid = c.oid WHERE c.relname LIKE 'events\\_%' AND c.relkind IN ('r', 'f')"
    )
    return dict(found)


def managed(world: World) -> Managed:
    with connect(world.dsn) as connection:
        return registry.get(connection, "public.events")


def nothing_left(world: World) -> None:
    """Neither schema nor trigger nor function nor version nor row of the lake."""
    assert world.run("SELECT nspname FROM pg_namespace WHERE nspname LIKE 'frostline\\_untier%'") == []
    assert world.run("SELECT tgname FROM pg_trigger WHERE tgname LIKE '!frostline follow%'") == []
    assert world.run("SELECT proname FROM pg_proc WHERE proname LIKE 'follow\\_%'") == []
    assert world.run("SELECT surplus FROM frostline.tables") == [(False,)]
    assert surplus.places(world.settings, managed(world), None) == ([], [])


def both(world: World, statement: str) -> None:
    """The same to the tiered table and to a plain one, in one transaction."""
    world.run("; ".join(statement.format(t=table) for table in ("public.events", "public.plain")))


def patience(world: World, seconds: float) -> Settings:
    changed = world.settings.archive.model_copy(update={"lock_patience": seconds})
    return world.settings.model_copy(update={"archive": changed})


@pytest.fixture(scope="module")
def cold(dsn: str, spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """January and February of SIMPLE in the lake; shared, every test leaves them there."""
    with new_world(dsn, spark, tmp_path_factory.mktemp("untier")) as world:
        world.run(PLAIN)
        world.register("public.events")
        world.archive("public.events")
        yield world


def test_every_type_comes_back_exactly(any_world: World) -> None:
    world = any_world
    world.run(EVERY_TYPE)
    world.register("public.events")
    world.archive("public.events")
    both(world, "UPDATE {t} SET s = 'changed', jb = '[1]' WHERE ts = '2020-02-10'")
    both(world, "DELETE FROM {t} WHERE ts = '2020-01-01'")
    assert [(one.period.name, one.rows) for one in back(world, "2020-01-15")] == [("events_02", 2), ("events_01", 1)]
    assert rows(world, "public.events") == rows(world, "public.plain")
    assert kinds(world) == {
        "events_before": "f of events",
        "events_01": "r of events_hot",
        "events_02": "r of events_hot",
        "events_now": "r of events_hot",
    }
    nothing_left(world)
    world.gateway.stop(grace=0)
    assert world.run("SELECT count(*) FROM public.events WHERE ts >= '2020-01-01'") == [(4,)]
    world.restart_gateway()
    # What came back stays until somebody names the table.
    assert [one.state for one in cycle.cycle(world.settings, [], Silent(), world.spark_here)] == []
    # And again to the lake: nothing there twice.
    world.archive("public.events")
    assert rows(world, "public.events") == rows(world, "public.plain")
    assert world.run("SELECT rows FROM frostline.periods ORDER BY upper") == [(0,), (1,), (2,)]


def test_the_leaf_is_as_postgres_would_have_made_it(cold: World) -> None:
    world = cold
    world.run("CREATE INDEX ON public.events (v) WHERE v > 5; ALTER TABLE public.events ALTER v SET STATISTICS 321")
    dry = CliRunner().invoke(app, ["--dsn", world.dsn, "untier", "public.events", "2020-02-03", "--dry-run"])
    assert "events_02" in dry.output
    assert "696" in dry.output
    assert kinds(world)["events_02"] == "f of events"
    world.run("GRANT SELECT ON public.events_02 TO pg_monitor")
    assert [one.period.name for one in back(world, "events_02")] == ["events_02"]
    assert world.run("SELECT indexdef FROM pg_indexes WHERE tablename = 'events_02' ORDER BY 1") == [
        ("CREATE INDEX events_02_v_idx ON public.events_02 USING btree (v) WHERE (v > 5)",),
        ("CREATE UNIQUE INDEX events_02_pkey ON public.events_02 USING btree (id, ts)",),
    ]
    assert world.run("SELECT has_table_privilege('pg_monitor', 'public.events_02', 'SELECT')") == [(True,)]
    assert world.run(
        "SELECT conname FROM pg_constraint WHERE conrelid = 'public.events_02'::regclass AND contype = 'c'"
    ) == [("frostline_bound",)]
    assert world.run("SELECT reltuples FROM pg_class WHERE relname = 'events_02'") == [(696,)]
    assert world.run(
        "SELECT attname FROM pg_attribute WHERE attrelid = 'public.events_02'::regclass AND attstattarget = 321"
    ) == [("v",)]
    assert world.run("SELECT kind, state, rows FROM frostline.operations WHERE kind = 'untier'") == [
        ("untier", "done", 696)
    ]
    with pytest.raises(RefusedError, match="no cold period events_02"):
        back(world, "events_02")
    both(world, "UPDATE {t} SET v = v + 1 WHERE id = 800")
    assert rows(world, "public.events") == rows(world, "public.plain")
    world.archive("public.events")
    assert {found.state for found in verify.verify(world.settings, "public.events", None, Silent())} == {"good"}
    world.run("DROP INDEX public.events_v_idx")


def test_a_transaction_that_began_before_sees_every_row(cold: World) -> None:
    world = cold
    client = world.connect(autocommit=False)
    client.isolation_level = IsolationLevel.REPEATABLE_READ
    client.execute("SELECT 1 FROM pg_class LIMIT 1")
    both(world, "UPDATE {t} SET v = v + 1 WHERE id = 5")  # January's: none of February's business
    back(world, "events_02")
    [expected] = world.run(
        "SELECT count(*), sum(v) FROM public.plain WHERE ts BETWEEN '2020-02-01' AND '2020-02-29 23:59'"
    )
    assert client.execute("SELECT count(*), sum(v) FROM public.events_02").fetchone() == expected
    # January was changed since: to show him the new leaf would show him the change.
    with pytest.raises(Interrupted, match="began before its rows were last changed") as error:
        back(world, "events_01", patience(world, 0.3))
    assert f"pid {client.info.backend_pid}" in (error.value.detail or "")
    assert client.execute("SELECT v FROM public.events WHERE id = 5").fetchone() == (6,)  # cold rows: as of now
    client.rollback()
    both(world, "UPDATE {t} SET v = v + 1 WHERE id = 6")  # reaches the leaf that waits
    assert world.run(f"SELECT v FROM frostline_untier_{_waiting(world)}.events_01 WHERE id = 6") == [(7,)]
    assert [one.period.name for one in back(world, "events_01")] == ["events_01"]
    assert world.run("SELECT count(*) FROM frostline.steps WHERE name = 'load' AND attempts > 1") == [(0,)]
    assert rows(world, "public.events") == rows(world, "public.plain")
    nothing_left(world)
    world.archive("public.events")


def test_who_reads_other_cold_rows_keeps_nothing_back_but_a_trigger(cold: World, tmp_path: Path) -> None:
    world = cold
    client = world.connect(autocommit=False)
    client.isolation_level = IsolationLevel.REPEATABLE_READ
    january = client.execute("SELECT count(*), sum(v) FROM public.events_01").fetchone()
    with told(tmp_path, lambda point: point != "compare.leaf") as path, pytest.MonkeyPatch.context() as patch:
        patch.setenv(faults.VARIABLE, str(path))
        with pytest.raises(InjectedFault):  # not that the leaf cannot be dropped now: the next run goes on with it
            back(world, "events_02", patience(world, 0.3))
    assert [one.period.name for one in back(world, "events_02", patience(world, 0.3))] == ["events_02"]
    assert client.execute("SELECT count(*), sum(v) FROM public.events_01").fetchone() == january
    assert world.run("SELECT count(*) FROM pg_trigger WHERE tgname LIKE '!frostline follow%'") == [(1,)]
    assert world.run(f"SELECT state FROM frostline.operations WHERE id = {_waiting(world)}") == [("done",)]
    both(world, "UPDATE {t} SET v = v + 1 WHERE id IN (7, 807)")
    client.rollback()
    world.archive("public.events")  # what was left does no harm when the period is cold again
    both(world, "UPDATE {t} SET v = v + 1 WHERE id IN (7, 807)")
    with connect(world.dsn) as connection, only_writer(connection, managed(world)) as table:
        left = clean.look(connection, world.settings, table, 0)
        assert [(one.what, one.note) for one in left] == [("untier", "its rows are back, a trigger is left")]
        clean.clean(connection, world.settings, table, 0, Silent())
    nothing_left(world)
    assert world.run(f"SELECT state FROM frostline.operations WHERE id = {_waiting(world)}") == [("done",)]
    assert rows(world, "public.events") == rows(world, "public.plain")


def test_a_table_can_be_altered_and_renamed_while_a_period_is_loaded(cold: World, tmp_path: Path) -> None:
    world = cold

    def renaming(at: str, statement: str) -> Callable[[str], bool]:
        def act(point: str) -> bool:
            if point == at:
                # And whoever asks how large everything is does not wait either.
                world.run(f"SET lock_timeout = '10s'; SELECT sum(pg_table_size(oid)) FROM pg_class; {statement}")
            return True

        return act

    renamed = (
        ("load.copied", "ALTER TABLE public.events RENAME TO e; ALTER TABLE public.events_hot RENAME TO h", None),
        ("load.begun", "ALTER TABLE public.e RENAME TO events", "was renamed meanwhile; what came back stays hot"),
        ("load.copied", "ALTER TABLE public.events_02 RENAME TO feb", "was altered, or many rows were added"),
    )
    for at, statement, said in renamed:
        table = "public.e" if "public.e " in statement else "public.events"
        with told(tmp_path, renaming(at, statement)) as path, pytest.MonkeyPatch.context() as patch:
            patch.setenv(faults.VARIABLE, str(path))
            expected = contextlib.nullcontext() if said is None else pytest.raises(OperationError, match=said)
            with Warm(world.spark_here) as warm, expected:
                untier(world.settings, table, "2020-02-03", Silent(), warm)
        if said is None:
            world.archive("public.e")
    back(world, "feb")
    nothing_left(world)
    world.run("ALTER TABLE public.feb RENAME TO events_02; ALTER TABLE public.h RENAME TO events_hot")
    assert rows(world, "public.events") == rows(world, "public.plain")
    world.archive("public.events")


def _waiting(world: World) -> int:
    [(id_,)] = world.run("SELECT max(id) FROM frostline.operations WHERE kind = 'untier'")
    return int(id_)


def test_who_reads_keeps_the_period_where_it_is(cold: World) -> None:
    world = cold
    client = world.connect(autocommit=False)
    assert client.execute("SELECT count(*) FROM public.events WHERE ts < '2020-02-01'").fetchone() == (744,)
    with pytest.raises(Interrupted, match="did not get its lock"):
        back(world, "events_02", patience(world, 0.3))
    client.rollback()
    with connect(world.dsn) as connection, only_writer(connection, managed(world)) as table:
        assert [one.what for one in clean.look(connection, world.settings, table, 0)] == ["untier"]
        clean.clean(connection, world.settings, table, 0, Silent())
    nothing_left(world)
    assert kinds(world)["events_02"] == "f of events"
    assert rows(world, "public.events") == rows(world, "public.plain")


# Every kind of state a run can leave: nothing, a leaf that does not follow, one that does, one that is attached, with
# versions in the delta or without, and a lake that is trimmed and nobody knows.
KILLS = ("load.commit", "load.committed", "follow.commit", "follow.ended", "attach.commit", "attach.committed")
LATE_KILLS = ("untier.tidied", "trim.commit")


def test_killed_anywhere_it_is_finished_or_undone_by_the_next_run(cold: World, tmp_path: Path) -> None:
    world = cold
    forks = Forks(world.settings)
    try:
        both(world, "UPDATE {t} SET v = v + 1 WHERE id IN (700, 701, 900)")
        for number, point in enumerate(KILLS):
            assert _killed(forks, tmp_path, "events_02", point).killed, point
            both(world, f"UPDATE {{t}} SET v = v + 10 WHERE id = {800 + number}")
            assert rows(world, "public.events") == rows(world, "public.plain"), point
        assert kinds(world)["events_02"] == "r of events_hot"
        for point in LATE_KILLS:
            assert _killed(forks, tmp_path, "events_01", point).killed, point
            if point == "untier.tidied":
                # What is left in the lake goes before the period comes there once more.
                world.archive("public.events")
            assert rows(world, "public.events") == rows(world, "public.plain"), point
        assert _killed(forks, tmp_path, "events_before", "").error is None
    finally:
        forks.end()
    nothing_left(world)
    assert rows(world, "public.events") == rows(world, "public.plain")
    world.archive("public.events")
    assert rows(world, "public.events") == rows(world, "public.plain")


def test_what_an_untier_left_is_cleaned_without_what_an_archive_run_captured(cold: World, tmp_path: Path) -> None:
    world = cold
    with told(tmp_path, lambda point: point != "attach.committed") as path, pytest.MonkeyPatch.context() as patch:
        patch.setenv(faults.VARIABLE, str(path))
        with pytest.raises(InjectedFault):
            back(world, "events_02")
    client = world.connect(autocommit=False)
    client.execute("SELECT FROM public.events LIMIT 1")
    with pytest.raises(Interrupted, match=r"swapping public\.events_02 did not get its lock"):
        archive(patience(world, 0.3), "public.events", Silent(), world.spark_here)
    client.rollback()
    both(world, "UPDATE {t} SET v = v + 1 WHERE id = 810; DELETE FROM {t} WHERE id = 811")
    noted = "SELECT id FROM frostline_delta.touched_1_keys ORDER BY id"
    assert world.run(noted) == [(810,), (811,)]
    world.clean("public.events")
    assert world.run(noted) == [(810,), (811,)]
    assert [one.leaf.name for one in world.archive("public.events")] == ["events_02"]
    assert rows(world, "public.events") == rows(world, "public.plain")
    nothing_left(world)


def test_a_writer_finds_his_row_in_the_new_leaf_by_its_index(world: World, tmp_path: Path) -> None:
    """The delta has a char(n) of the key as text, which no index on that is for."""
    world.run(
        "CREATE TABLE public.events (id char(9), ts timestamptz, PRIMARY KEY (id, ts)) PARTITION BY RANGE (ts);"
        "CREATE TABLE public.events_01 PARTITION OF public.events FOR VALUES FROM ('2020-01-01') TO ('2020-02-01');"
        "CREATE TABLE public.events_now PARTITION OF public.events FOR VALUES FROM ('2020-02-01') TO (MAXVALUE);"
        "INSERT INTO public.events SELECT i, '2020-01-05' FROM generate_series(1, 2000) i"
    )
    world.register("public.events")
    assert len(world.archive("public.events")) == 1
    read: list[tuple[Any, ...]] = []

    def act(point: str) -> bool:
        if point == "compare.leaf":
            client = world.connect(autocommit=False)
            client.execute("DELETE FROM public.events WHERE id = '7' AND ts < '2020-02-01'")
            read.extend(
                client.execute(
                    "SELECT pg_stat_get_xact_tuples_returned(c.oid), pg_stat_get_xact_tuples_deleted(c.oid)"
                    " FROM pg_class c WHERE relname = 'events_01' AND relkind = 'r'"
                )
            )
            client.commit()
        return True

    with told(tmp_path, act) as path, pytest.MonkeyPatch.context() as patch:
        patch.setenv(faults.VARIABLE, str(path))
        back(world, "events_01")
    assert read == [(0, 1)]  # of a whole table that is read all rows are counted
    assert world.run("SELECT count(*) FROM public.events") == [(1999,)]


@contextmanager
def told(directory: Path, act: Callable[[str], bool]) -> Iterator[Path]:
    """Every point that is reached is told to `act`; False makes it fail there. Writers reach points too, meanwhile."""
    path = directory / "points"

    def answer(client: socket.socket) -> None:
        with client, contextlib.suppress(OSError):  # whoever asked may have been killed
            client.sendall(b"go" if act(client.recv(200).decode().split()[1]) else b"fail")

    def serve(listener: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while True:
                threading.Thread(target=answer, args=(listener.accept()[0],)).start()

    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()
        thread = threading.Thread(target=serve, args=(listener,))
        thread.start()
        yield path
        listener.shutdown(socket.SHUT_RDWR)
        thread.join()
    path.unlink()


def _killed(forks: Forks, directory: Path, period: str, point: str) -> Ended:
    return killed(forks, directory, f"untier {period}", point)


def killed(forks: Forks, directory: Path, what: str, point: str) -> Ended:
    """A run of its own, killed at a point."""
    pids: list[int] = []

    def act(seen: str) -> bool:
        if seen == point:
            os.kill(pids[0], signal.SIGKILL)
        return True

    with told(directory, act) as path:
        pids.append(forks.start(what, "public.events", {}, path))
        return forks.wait()


def test_failing_anywhere_leaves_the_rows_where_they_are_or_brings_them_back(cold: World, tmp_path: Path) -> None:
    world, reached = cold, set[str]()
    both(world, "DELETE FROM {t} WHERE id BETWEEN 100 AND 110 OR id BETWEEN 1000 AND 1010")
    for number, point in enumerate(UNTIER_POINTS):
        reached |= _failing(world, tmp_path, point, busy=number % 5 == 0)
        if world.run("SELECT seam FROM frostline.tables") == [(None,)]:
            world.archive("public.events")
    assert set(UNTIER_POINTS) <= reached
    back(world, "events_02")
    nothing_left(world)
    assert rows(world, "public.events") == rows(world, "public.plain")
    world.archive("public.events")


def _failing(world: World, directory: Path, point: str, *, busy: bool) -> set[str]:
    """One period back, failed at a point; then the rows must be the same to everybody."""
    cold_now = [name for name, kind in sorted(kinds(world).items()) if kind.startswith("f")]
    seen: set[str] = set()

    def act(now: str) -> bool:
        if busy and now == "load.snapshot":
            both(world, "UPDATE {t} SET v = v + 1 WHERE id % 100 = 50")
        seen.add(now)
        return now != point and not (point.startswith("abandon") and now == "compare.leaf")

    with told(directory, act) as path, pytest.MonkeyPatch.context() as patch, contextlib.suppress(InjectedFault):
        patch.setenv(faults.VARIABLE, str(path))
        back(world, "events_02" if "events_02" in cold_now else cold_now[-1])
    assert rows(world, "public.events") == rows(world, "public.plain"), point
    return seen


@dataclass
class Crowd:
    """Writers who do the same to the table and to a plain one, and a reader who compares them at one snapshot."""

    dsn: str
    stop: threading.Event = field(default_factory=threading.Event)
    wrong: list[str] = field(default_factory=list)
    new: Iterator[int] = field(default_factory=itertools.count)
    written: int = 0
    looked: int = 0

    def write(self, number: int) -> None:
        with psycopg.connect(self.dsn) as client:
            for step in itertools.count():
                if self.stop.is_set():
                    return
                id_, new = 750 + (step * 7 + number * 300) % 600, 100_000 + next(self.new)
                for table in ("public.plain", "public.events"):
                    client.execute(f"UPDATE {table} SET v = v + 1 WHERE id = {id_} AND ts < '2020-03-01'")
                    if step % 3 == 0:
                        client.execute(f"DELETE FROM {table} WHERE id = {id_ + 1} AND ts < '2020-03-01'")
                        client.execute(f"INSERT INTO {table} VALUES ({new}, '2020-02-07 11:11', {step})")
                client.commit()
                self.written += 1

    def look(self) -> None:
        query = "SELECT count(*), sum(v), sum(id) FROM {} WHERE ts >= '2020-02-01' AND ts < '2020-03-01'"
        with psycopg.connect(self.dsn) as client:
            client.isolation_level = IsolationLevel.REPEATABLE_READ
            while not self.stop.is_set():
                client.execute("SELECT frostline.pin()")
                plain = client.execute(query.format("public.plain")).fetchone()
                self.stop.wait(0.02)
                tiered = client.execute(query.format("public.events")).fetchone()
                client.rollback()
                self.looked += 1
                if plain != tiered:
                    self.wrong.append(f"{plain} is {tiered}")

    def retrying(self, work: Callable[[], None]) -> None:
        while not self.stop.is_set():
            try:
                work()
            except (psycopg.errors.SerializationFailure, psycopg.errors.DeadlockDetected):
                pass
            except Exception as error:
                self.wrong.append(f"{type(error).__name__}: {error}")
                return

    def wait(self, more: int) -> None:
        """Until everybody has done some more."""
        written, looked, end = self.written + more, self.looked + more, time.monotonic() + 120
        while (self.written < written or self.looked < looked) and not self.wrong:
            assert time.monotonic() < end, f"{self.written} of {written} written, {self.looked} of {looked} read"
            time.sleep(0.01)

    @contextmanager
    def at_work(self) -> Iterator[None]:
        tasks = (lambda: self.write(0), lambda: self.write(1), self.look)
        threads = [threading.Thread(target=self.retrying, args=(task,)) for task in tasks]
        for thread in threads:
            thread.start()
        try:
            self.wait(5)
            yield
            self.wait(5)
        finally:
            self.stop.set()
            for thread in threads:
                thread.join()
        assert self.wrong == []


def test_writers_and_readers_go_on_meanwhile(any_world: World) -> None:
    world = any_world
    world.run(PLAIN)
    world.register("public.events")
    world.archive("public.events")
    with Crowd(world.dsn).at_work():
        back(world, "events_02")
    assert rows(world, "public.events") == rows(world, "public.plain")
    world.clean("public.events")  # a trigger that does nothing any more, if it had to wait too long for the crowd
    nothing_left(world)


@pytest.mark.parametrize("mode", ["check", "none"])
def test_foreign_keys_hold_again(world: World, mode: str) -> None:
    world.run(TABLE)
    with connect(world.dsn) as connection:
        register.register(connection, "public.events", "3 months", {"cold_fk": mode})
    world.archive("public.events")
    if mode == "none":
        world.run("DELETE FROM public.dim WHERE k = 2")
        with pytest.raises(RefusedError, match="to_dim forbids that") as error:
            back(world, "events_01")
        assert "Key (k, r)=(2, a) is not present" in (error.value.detail or "")
        nothing_left(world)
        world.run("INSERT INTO public.dim VALUES (2, 'a', 'again')")
    assert [one.rows for one in back(world, "events_01")] == [6]
    for statement in ("DELETE FROM public.dim WHERE k = 2", "DELETE FROM public.late WHERE k = 3"):
        with pytest.raises(psycopg.errors.ForeignKeyViolation, match="is still referenced from table"):
            world.run(statement)
    world.run("DELETE FROM public.gone WHERE k IN (1, 6)")
    assert world.run("SELECT count(*) FROM public.events") == [(9,)]
    assert world.run(
        "SELECT count(*), bool_and(convalidated) FROM pg_constraint"
        " WHERE conrelid = 'public.events_01'::regclass AND contype = 'f' AND conname LIKE 'to%' AND conparentid <> 0"
        " AND confrelid IN (SELECT confrelid FROM pg_constraint WHERE conrelid = 'public.events_hot'::regclass)"
    ) == [(3, True)]


def test_a_file_that_holds_rows_of_two_periods_keeps_those_that_stay(world: World) -> None:
    world.run(
        """
CREATE TABLE public.events (id bigint, ts timestamptz NOT NULL, v int NOT NULL, PRIMARY KEY (id, ts))
    PARTITION BY RANGE (ts);
CREATE TABLE public.events_a PARTITION OF public.events FOR VALUES FROM ('2020-01-01') TO ('2020-01-16 12:00');
CREATE TABLE public.events_b PARTITION OF public.events FOR VALUES FROM ('2020-01-16 12:00') TO ('2020-02-01');
CREATE TABLE public.events_now PARTITION OF public.events FOR VALUES FROM ('2020-02-01') TO (MAXVALUE);
INSERT INTO public.events SELECT i, timestamptz '2020-01-01' + i * interval '1 h', i FROM generate_series(0, 800) i;
CREATE TABLE public.plain AS TABLE public.events;
"""
    )
    world.register("public.events")
    world.archive("public.events")
    both(world, "UPDATE {t} SET v = v + 1 WHERE id % 10 = 0")
    with Warm(world.spark_here) as warm:
        fold(world.settings, "public.events", Silent(), warm)
    inside = replace(managed(world), seam=_seam("2020-01-16 12:00:00+00"))
    assert len(surplus.places(world.settings, inside, None)[1]) == 1
    back(world, "events_b")
    nothing_left(world)
    assert rows(world, "public.events") == rows(world, "public.plain")
    world.archive("public.events")
    assert rows(world, "public.events") == rows(world, "public.plain")


def _seam(text: str) -> Bound:
    found = parse_bound(text)
    assert found is not None
    return found
