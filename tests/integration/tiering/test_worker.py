"""The worker: every table in its turn, one leader, a clean end, and nothing lost whatever it is stopped by."""

from __future__ import annotations

import json
import logging
import os
import signal
import socket
import subprocess
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import psycopg
import pytest
from pyspark.sql import SparkSession

from fix_commands import command, environment
from fix_faults import at
from fix_tiering import World, new_world
from frostline import config
from frostline.catalog import registry
from frostline.catalog.database import connect
from frostline.catalog.install import install
from frostline.config import Settings
from frostline.errors import OperationError
from frostline.local.ports import free_port
from frostline.report import Silent
from frostline.tiering import cycle, options, register
from frostline.tiering.locks import only_writer
from frostline.tiering.verify import verify
from frostline.tiering.worker.run import run

MONTHS = """
CREATE TABLE public.{0} (id bigint, ts timestamptz NOT NULL, v timestamptz, PRIMARY KEY (id, ts))
PARTITION BY RANGE (ts);
CREATE TABLE public.{0}_2020_01 PARTITION OF public.{0} FOR VALUES FROM ('2020-01-01') TO ('2020-02-01');
CREATE TABLE public.{0}_2020_02 PARTITION OF public.{0} FOR VALUES FROM ('2020-02-01') TO ('2020-03-01');
INSERT INTO public.{0}
SELECT i, timestamptz '2020-01-01' + i * interval '1 day', '2020-01-01' FROM generate_series(0, 49) i;
"""
FEBRUARY = datetime(2020, 2, 1, tzinfo=UTC)
TOLD = ("backlog_periods", "lake_rows", "damaged_periods")
# The session that leads.
HOLDER = """
SELECT l.pid FROM pg_locks l JOIN pg_database d ON d.oid = l.database
WHERE l.locktype = 'advisory' AND l.objid = 0 AND d.datname = current_database()
"""


@pytest.fixture(scope="module")
def busy(dsn: str, spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """Two tables, one of which cannot be archived yet."""
    with new_world(dsn, spark, tmp_path_factory.mktemp("worker"), {"worker.grace": "0.2"}) as world:
        world.run(MONTHS.format("bad") + MONTHS.format("good"))
        world.run("UPDATE public.bad SET v = 'infinity' WHERE id = 3")
        for name in ("bad", "good"):
            world.register(f"public.{name}", "1 year")
        yield world


def rows(world: World, table: str) -> list[tuple[Any, ...]]:
    return world.run(f"SELECT r::text FROM public.{table} r ORDER BY 1")


def cold(world: World, table: str) -> int:
    [(count,)] = world.run(
        f"SELECT count(*) FROM frostline.periods p JOIN frostline.tables t ON t.id = p.table_id"
        f" WHERE t.relation = 'public.{table}'::regclass AND p.lower IS NOT NULL"
    )
    return int(count)


def once(world: World) -> int:
    return run(world.settings, Silent(), world.spark_here, once=True)


def test_it_is_stopped_in_the_middle_and_the_next_one_goes_on(busy: World, tmp_path: Path) -> None:
    """By a signal after its grace, and by the loss of its session: the leaf is the truth until the swap."""
    before = rows(busy, "good")
    running = "SELECT FROM frostline.operations WHERE leaf = 'public.good_2020_01' AND state = 'running'"

    def until_it_gives_up() -> None:
        """The main thread waits for our answer, and is not to get it."""
        wait_for(lambda: not busy.run(running), 60)

    def terminated(point: str) -> None:
        if point == "export.written":
            os.kill(os.getpid(), signal.SIGTERM)
            until_it_gives_up()

    with at(tmp_path, terminated) as seen:
        once(busy)
    assert "export.commit" not in seen
    assert (rows(busy, "good"), cold(busy, "good")) == (before, 0)
    assert busy.run(
        "SELECT state, captured IS NOT NULL FROM frostline.operations WHERE leaf = 'public.good_2020_01'"
    ) == [("failed", True)]

    def cut_off(point: str) -> None:
        if point == "export.written":
            [(holder,)] = busy.run(HOLDER)
            assert busy.run(f"SELECT pg_terminate_backend({holder})") == [(True,)]
            until_it_gives_up()

    with at(tmp_path, cut_off) as seen:
        once(busy)
    assert "export.commit" not in seen
    assert (rows(busy, "good"), cold(busy, "good")) == (before, 0)
    assert busy.run("SELECT count(*) FROM frostline.operations WHERE leaf = 'public.good_2020_01'") == [(1,)]
    busy.run("UPDATE public.good SET v = 'epoch' WHERE id = 7")  # captured, for the triggers still stand
    expected = rows(busy, "good")
    assert once(busy) == 0  # what failed waits
    assert (rows(busy, "good"), cold(busy, "good")) == (expected, 2)
    assert busy.run("SELECT id, state FROM frostline.operations WHERE leaf = 'public.good_2020_01'") == [(2, "done")]


def test_what_fails_waits_longer_each_time_and_keeps_nobody_waiting(busy: World, tmp_path: Path) -> None:
    shown = 'SELECT "table", step, failures FROM frostline.failing'
    assert busy.run(shown) == [("bad", "archive", 1)]
    _told_meanwhile(busy, tmp_path)
    for failures in (3, 4):
        busy.run("UPDATE frostline.upkeep SET retry_at = now()")
        assert once(busy) == 1
        [(pause, error)] = busy.run("SELECT extract(epoch FROM retry_at - now()), error FROM frostline.failing")
        assert 0.7 * 60 * 2 ** (failures - 1) < pause < 1.3 * 60 * 2 ** (failures - 1)
        assert "Iceberg has no form for" in error
    assert busy.run(shown) == [("bad", "archive", 4)]
    assert once(busy) == 0
    assert [cold(busy, table) for table in ("bad", "good")] == [0, 2]
    busy.run("UPDATE public.bad SET v = NULL WHERE id = 3; UPDATE frostline.upkeep SET retry_at = now()")
    before = rows(busy, "bad")
    assert once(busy) == 0
    assert busy.run(shown) == []
    assert (rows(busy, "bad"), cold(busy, "bad")) == (before, 2)
    # Future partitions of both were made in the first round.
    assert busy.run("SELECT count(*) FROM pg_inherits WHERE inhparent = 'public.bad_hot'::regclass") == [(3,)]


def _told_meanwhile(busy: World, tmp_path: Path) -> None:
    """Once more it fails, and when the other table's turn has come the metrics say so."""
    busy.run("UPDATE frostline.upkeep SET retry_at = now()")
    own = busy.settings.worker.model_copy(update={"metrics_port": free_port()})
    turns: list[dict[str, float]] = []

    def look(point: str) -> None:
        if point == "recover.begin":
            turns.append(metrics(own.metrics_port))

    with at(tmp_path, look):
        assert run(busy.settings.model_copy(update={"worker": own}), Silent(), busy.spark_here, once=True) == 1
    bad, good = turns
    failures = 'frostline_worker_failures_total{step="archive",table="public.bad"}'
    assert (failures in bad, good[failures]) == (False, 1)
    of_each = [
        [good[f'frostline_worker_{name}{{table="public.{table}"}}'] for table in ("bad", "good")] for name in TOLD
    ]
    assert of_each == [[2, 0], [0, 50], [0, 0]]
    assert good['frostline_worker_failing_steps{table="public.bad"}'] == 1
    assert good['frostline_worker_lag_seconds{table="public.bad"}'] > 0


MORE = """
CREATE TABLE public.good_march_1 PARTITION OF public.good_hot FOR VALUES FROM ('2020-03-01') TO ('2020-03-16');
CREATE TABLE public.good_march_2 PARTITION OF public.good_hot FOR VALUES FROM ('2020-03-16') TO ('2020-04-01');
INSERT INTO public.good
SELECT i, timestamptz '2020-01-01' + i * interval '1 day', '2020-01-01' FROM generate_series(60, 90) i;
UPDATE public.good SET v = 'epoch' WHERE id IN (8, 40, 41);
DELETE FROM public.good WHERE id IN (9, 42);
INSERT INTO public.good VALUES (1000, '2020-02-20', NULL);
"""


def test_one_round_does_every_step_in_its_order(busy: World, caplog: pytest.LogCaptureFixture) -> None:
    """What has expired is gone, every other row is as before, and the lake has what it is said to have."""
    busy.run(MORE)
    busy.run("ALTER TABLE public.good ADD COLUMN extra int DEFAULT 7")
    days = (date.today() - date(2020, 2, 15)).days
    given = {"retention": f"{days} days", "coalesce": "month after 1 month", "premake": "3", "fold_rows": "1"}
    with connect(busy.dsn) as connection:
        table = options.tables(connection, ["public.good"])[0]
        given |= {"backup_window": "0", "compact_files": "2"}
        options.apply(connection, busy.settings, options.plan(connection, busy.settings, [(table, given)]))
    before = busy.run("SELECT * FROM public.good ORDER BY ts")
    assert (len(before), before[0][3], cold(busy, "good")) == (80, 7, 2)
    busy.run("DELETE FROM frostline.upkeep")  # it has looked at the files today
    with caplog.at_level(logging.INFO, "frostline.tiering.worker"):
        assert once(busy) == 0
    told = [getattr(record, "fields", {}) for record in caplog.records]
    done = [fields for fields in told if "state" in fields]
    of_good = [(fields["step"], fields["state"], fields["what"]) for fields in done if "good" in fields["table"]]
    assert [(step, state) for step, state, _ in of_good] == [
        ("premake", "created"),
        ("fold", "folded"),
        ("archive", "archived"),
        ("archive", "archived"),
        ("coalesce", "joined"),
        ("retention", "removed"),
        ("maintain", "maintained"),
        ("maintain", "maintained"),
    ]
    assert [what for step, _, what in of_good if step in ("fold", "coalesce", "retention", "maintain")][:-1] == [
        "7 changes",
        "public.good_2020_03",
        "30 rows before 2020-02-01 00:00:00+00",
        "small files of 1 partitions (2 files) were joined",
    ]
    assert "snapshots were expired" in of_good[-1][2]  # how many, depends on who has just read them
    assert busy.run("SELECT * FROM public.good ORDER BY ts") == [row for row in before if row[1] >= FEBRUARY]
    assert busy.run("SELECT count(*) FROM frostline_delta.good_2") == [(0,)]  # folded, or expired
    found = verify(busy.settings, "public.good", None, Silent())
    assert [(one.period, one.state, one.rows) for one in found] == [
        ("public.good_before", "good", 0),
        ("public.good_2020_02", "good", 19),
        ("public.good_2020_03", "good", 31),
    ]


@pytest.fixture
def quiet(database: str) -> str:
    """A database with a table that has nothing to archive: no Spark is needed."""
    install(database)
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute(MONTHS.format("events"))
    with connect(database) as connection:
        register.register(connection, "public.events", "100 years")
    return database


@contextmanager
def worker(dsn: str, *arguments: str, **env: str) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        command("--dsn", dsn, "run", "--interval", "1s", "--log-format", "json", *arguments),
        env=environment(env),
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait()
        assert process.stderr is not None
        process.stderr.close()


def wait_for(condition: Callable[[], object], seconds: float = 90) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.05)


def said(process: subprocess.Popen[str]) -> list[dict[str, Any]]:
    """What it logged until its end."""
    assert process.stderr is not None
    return [json.loads(line) for line in process.stderr.read().splitlines()]


def query(dsn: str, text: str) -> list[tuple[Any, ...]]:
    with psycopg.connect(dsn, autocommit=True) as connection:
        return connection.execute(text).fetchall()


def metrics(port: int) -> dict[str, float]:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=30) as answer:
        lines = answer.read().decode().splitlines()
    return {line.rpartition(" ")[0]: float(line.rpartition(" ")[2]) for line in lines if not line.startswith("#")}


def test_one_leads_and_another_takes_over(quiet: str) -> None:
    port = free_port()
    leader = "SELECT pid FROM frostline.workers WHERE leader AND heartbeat > now() - interval '20 seconds'"
    with worker(quiet, "--metrics-port", str(port)) as first:
        wait_for(lambda: query(quiet, leader) == [(first.pid,)])
        with pytest.raises(OperationError, match="another worker leads"):
            run(_settings(quiet), Silent(), _no_spark, once=True)
        with worker(quiet) as second:
            wait_for(lambda: query(quiet, "SELECT count(*) FROM frostline.workers") == [(2,)])
            wait_for(lambda: metrics(port).get("frostline_worker_rounds_total", 0) >= 2)
            found = metrics(port)
            assert found["frostline_worker_leader"] == 1
            assert found['frostline_worker_backlog_periods{table="public.events"}'] == 0
            assert found['frostline_worker_lag_seconds{table="public.events"}'] == 0
            assert found['frostline_worker_step_seconds_count{step="premake"}'] >= 2
            assert query(quiet, leader) == [(first.pid,)]
            first.kill()
            wait_for(lambda: query(quiet, leader + f" AND pid = {second.pid}"))
            query(quiet, f"UPDATE frostline.workers SET heartbeat = '2020-01-01' WHERE pid = {first.pid} RETURNING 1")
            wait_for(lambda: query(quiet, "SELECT pid FROM frostline.workers") == [(second.pid,)])
            # Its session is cut: it leads no longer, and again when nobody else does.
            [(cut,)] = query(quiet, HOLDER)
            assert query(quiet, f"SELECT pg_terminate_backend({cut})") == [(True,)]
            wait_for(lambda: query(quiet, HOLDER) not in ([], [(cut,)]))
            second.send_signal(signal.SIGTERM)
            assert second.wait(90) == 0
            events = said(second)
            messages = [event["message"] for event in events]
            assert messages[:2] == ["another worker leads; standing by", "leading"]
            assert any(message.startswith("the lead is lost") for message in messages)
            assert messages[-1] == "the worker ends"
            assert all(event["time"] and event["level"] in ("info", "warning") for event in events)
            assert query(quiet, f"SELECT count(*) FROM frostline.workers WHERE pid = {second.pid}") == [(0,)]


def test_the_first_signal_waits_for_the_step_and_the_second_does_not(quiet: str, tmp_path: Path) -> None:
    path, held = str(tmp_path / "faults"), threading.Event()
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path)
        listener.listen()
        clients = []

        def hold() -> None:
            while True:
                try:
                    clients.append(listener.accept()[0])
                except OSError:
                    return
                held.set()

        thread = threading.Thread(target=hold)
        thread.start()
        for grace, signals, code in (("0.1", 1, 0), ("600", 2, 128 + signal.SIGINT)):
            held.clear()
            with worker(quiet, FROSTLINE_FAULTS=path, FROSTLINE_WORKER_GRACE=grace) as process:
                assert held.wait(90), "it never came to a point"
                process.send_signal(signal.SIGINT)
                if signals > 1:
                    with pytest.raises(subprocess.TimeoutExpired):
                        process.wait(1)
                    process.send_signal(signal.SIGINT)
                assert process.wait(90) == code
        listener.shutdown(socket.SHUT_RDWR)
        thread.join()
        for client in clients:
            client.close()


def test_a_step_that_was_ended_has_not_failed_whatever_it_says(quiet: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(_: cycle.Round, name: str) -> cycle.Outcomes:
        try:
            os.kill(os.getpid(), signal.SIGTERM)
            while True:
                signal.pause()
        except KeyboardInterrupt:
            yield cycle.Outcome(name, "archive", "failed", error=OperationError("another command is in progress"))

    monkeypatch.setitem(cycle.STEPS, "premake", interrupted)
    settings = config.load({"dsn": quiet, "worker.grace": "0"}).settings
    assert run(settings, Silent(), _no_spark, once=True) == 0
    assert query(quiet, "SELECT * FROM frostline.failing") == []


def _settings(dsn: str) -> Settings:
    return config.load({"dsn": dsn}).settings


def _no_spark() -> Any:
    raise AssertionError("Spark was started for nothing")


def test_told_to_end_it_ends_after_the_period_that_is_under_way(world: World, tmp_path: Path) -> None:
    """Within its grace that period is finished and no other begun; one Spark serves every step of a round."""
    world.run(MONTHS.format("good"))
    world.register("public.good", "1 year")
    before, started, told = rows(world, "good"), list[int](), list[str]()

    def spark() -> AbstractContextManager[SparkSession]:
        started.append(1)
        return world.spark_here()

    def terminated(point: str) -> None:
        if point == "export.written" and not told:
            told.append(point)
            os.kill(os.getpid(), signal.SIGTERM)

    with at(tmp_path, terminated) as seen:
        assert run(world.settings, Silent(), spark, once=True) == 0
    assert (seen.count("operation.begun"), seen.count("operation.ended"), cold(world, "good")) == (1, 1, 1)
    assert rows(world, "good") == before
    world.run("UPDATE public.good SET v = NULL WHERE id = 3; UPDATE frostline.tables SET fold_rows = 1")
    expected = rows(world, "good")
    started.clear()
    assert run(world.settings, Silent(), spark, once=True) == 0  # folds, archives and maintains
    assert (len(started), cold(world, "good"), rows(world, "good")) == (1, 2, expected)


def test_a_table_with_much_to_archive_lets_others_have_their_turn(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    """The next partition of one table is for the next round, which does not wait."""
    for name in ("one", "two"):
        world.run(MONTHS.format(name))
        world.register(f"public.{name}", "1 year")
    settings = world.settings.model_copy(
        update={"worker": world.settings.worker.model_copy(update={"interval": 0.001})}
    )

    def enough(record: logging.LogRecord) -> bool:
        if getattr(record, "fields", {}).get("what") == "public.two_2020_02":
            os.kill(os.getpid(), signal.SIGTERM)
        return True

    logger = logging.getLogger("frostline.tiering.worker.rounds")
    logger.addFilter(enough)
    with caplog.at_level(logging.INFO, logger.name):
        run(settings, Silent(), world.spark_here)
    logger.removeFilter(enough)
    told = [getattr(record, "fields", {}) for record in caplog.records]
    archived = [fields["what"] for fields in told if fields.get("state") == "archived"]
    assert archived == ["public.one_2020_01", "public.two_2020_01", "public.one_2020_02", "public.two_2020_02"]


def test_a_table_whose_lock_is_not_to_be_had_fails_waits_and_holds_nothing_else_up(world: World) -> None:
    world.run(MONTHS.format("first"))
    world.register("public.first", "1 year")
    own = world.settings.archive.model_copy(update={"lock_patience": 0.5})
    settings = world.settings.model_copy(update={"archive": own})
    reader = world.connect(autocommit=False)
    reader.execute("SELECT FROM public.first LIMIT 1")
    assert run(settings, Silent(), world.spark_here, once=True) == 1
    shown = world.run('SELECT "table", step, failures, error FROM frostline.failing')
    assert [row[:3] for row in shown] == [("first", "archive", 1)]
    assert "did not get its lock within" in shown[0][3]
    # The steps after it had their turn, and in the next round it is left alone.
    assert world.run("SELECT done_at IS NOT NULL FROM frostline.upkeep WHERE step = 'maintain'") == [(True,)]
    assert run(settings, Silent(), world.spark_here, once=True) == 0
    assert world.run("SELECT failures FROM frostline.failing") == [(1,)]
    # Somebody else at work on the table is still no failure.
    reader.rollback()
    world.run("UPDATE frostline.upkeep SET retry_at = now()")
    with connect(world.dsn) as other, only_writer(other, registry.get(other, "public.first")):
        assert run(settings, Silent(), world.spark_here, once=True) == 0
    assert world.run("SELECT failures FROM frostline.failing") == [(1,)]
