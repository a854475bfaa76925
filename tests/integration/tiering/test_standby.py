"""A physical standby: cold rows are read there as on the primary, and after its promotion everything goes on."""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from pydantic import SecretStr
from pyspark.sql import SparkSession

from fix_cluster import Cluster, Standby, new_cluster, wait_until
from fix_commands import command, environment
from fix_tiering import World, new_world
from frostline.catalog import identity, registry
from frostline.catalog.database import connect
from frostline.config import Settings
from frostline.errors import RefusedError
from frostline.gateway import handed
from frostline.gateway.server import Gateway
from frostline.local.ports import free_port
from frostline.report import Report, Silent
from frostline.tiering import adopt, clean, doctor, verify
from frostline.tiering.archive.run import Warm, periods
from frostline.tiering.checks import PROBLEM, WARNING
from frostline.tiering.fold.run import fold
from frostline.tiering.untier.run import untier
from frostline.tiering.worker import run as worker
from frostline.tiering.worker.leader import OnStandby
from integration.gateway import world as both_forms
from integration.gateway.pair import COLD, Pair, agree, open_pair, outcome
from integration.gateway.queries import ERRORS, FILTERS, ORDERED, QUERIES, written
from integration.tiering.test_archive import SIMPLE

TOTAL = "SELECT count(*), sum(v), count(DISTINCT id) FROM public.events"
RETRY = "40001"


@pytest.fixture(scope="module")
def servers(settings: Settings, report: Report, open_directory: Path) -> Iterator[tuple[Cluster, Standby]]:
    with new_cluster(settings, report, open_directory / "standby") as cluster:
        yield cluster, cluster.standby("follower")


def elsewhere(dsn: str, server: str) -> str:
    """The same database on another server."""
    return make_conninfo(dsn, port=conninfo_to_dict(server)["port"])


def at(settings: Settings, dsn: str, **gateway: Any) -> Settings:
    return settings.model_copy(update={"dsn": SecretStr(dsn), "gateway": settings.gateway.model_copy(update=gateway)})


@contextmanager
def started(settings: Settings) -> Iterator[Gateway]:
    gateway = Gateway(settings)
    gateway.start()
    try:
        yield gateway
    finally:
        gateway.stop(grace=0)


@contextmanager
def followed(world: World, standby: Standby) -> Iterator[World]:
    """The world on its standby, with a gateway of its own there."""
    port = free_port()
    settings = at(world.settings, elsewhere(world.dsn, standby.dsn), port=port)
    world.gateway.stop(grace=0)
    world.settings = at(world.settings, world.dsn, standbys=f"127.0.0.1:{port}")
    world.restart_gateway()
    standby.catch_up()
    with started(settings) as gateway:
        there = World(settings, world.spark, gateway)
        yield there
        for client in there.connections:
            client.close()


def folded(world: World) -> None:
    with Warm(world.spark_here) as warm:
        fold(world.settings, "public.events", Silent(), warm)


@dataclass
class Reader:
    """Asks for one thing again and again; the answer is always the same, or to be asked for again."""

    world: World
    query: str
    expected: tuple[Any, ...]
    begin: str = "BEGIN"
    answers: int = 0
    retries: int = 0
    wrong: list[object] = field(default_factory=list)
    _end: threading.Event = field(default_factory=threading.Event)

    def __enter__(self) -> Reader:
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self._thread.join(60)
        assert not self.wrong
        assert self.answers > self.retries

    def _read(self) -> None:
        with psycopg.connect(self.world.dsn, autocommit=True) as connection:
            while not self._end.wait(0.1):
                try:
                    connection.execute(self.begin)
                    found = connection.execute(self.query).fetchone()
                    connection.execute("COMMIT")
                except psycopg.Error as error:
                    if error.sqlstate != RETRY or connection.closed:
                        self.wrong.append(error)
                        return
                    self.retries += 1
                    connection.execute("ROLLBACK")
                    continue
                self.answers += 1
                if found != self.expected:
                    self.wrong.append(found)


@pytest.fixture(scope="module")
def forms(servers: tuple[Cluster, Standby], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Forms]:
    """The table in both forms, with a gateway on each server."""
    cluster, standby = servers
    world = both_forms.build(cluster.dsn, tmp_path_factory.mktemp("forms"), dense=True)
    port, settings = free_port(), Settings(dsn=SecretStr(world.dsn))
    there = replace(world, dsn=elsewhere(world.dsn, standby.dsn))
    with (
        started(at(settings, world.dsn, standbys=f"127.0.0.1:{port}")),
        started(at(settings, there.dsn, port=port)) as gateway,
    ):
        standby.catch_up()
        pair = open_pair(there, gateway)
        with pair.direct, pair.connection, world.connect() as primary:
            yield Forms(pair, primary, standby)


@dataclass
class Forms:
    pair: Pair  # on the standby
    primary: psycopg.Connection[Any]
    standby: Standby


def test_what_postgres_evaluates_is_the_same_on_a_standby(forms: Forms, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows come to it in statements: piece by piece where each stands for itself, all together where they do not."""
    monkeypatch.setattr(handed, "PIECE_BYTES", 20_000)
    pair = forms.pair
    columns = ", ".join(f'"{column.name.replace(chr(34), chr(34) * 2)}"' for column in pair.world.columns)
    rows = f"SELECT {columns} FROM {{t}} WHERE t ~ '' OR t IS NULL"
    assert pair.translated(rows) is None
    cold = rows.replace("WHERE", f"WHERE {COLD} AND (") + ")"
    assert agree(*pair.remotely(rows, cold))
    assert agree(*pair.remotely(f"{rows} ORDER BY id LIMIT 1000", f"{cold} ORDER BY id LIMIT 1000"), ordered=True)
    _read_again(pair, f"SELECT id, t FROM {pair.source} WHERE t ~ '' OR t IS NULL")
    _ask(pair)


def _read_again(pair: Pair, query: str) -> None:
    with pair.direct.transaction():
        pair.direct.execute(f"DECLARE c1 CURSOR FOR {query}")
        first = pair.direct.execute("FETCH 777 FROM c1").fetchall()
        pair.direct.execute("MOVE BACKWARD ALL IN c1")
        again = [*pair.direct.execute("FETCH 500 FROM c1"), *pair.direct.execute("FETCH ALL FROM c1")]
        assert len(first) == 777
        assert set(first) < set(again)
        assert len(again) == len(set(again)) > 1000
        assert pair.direct.execute("FETCH 10 FROM c1").fetchall() == []


def test_a_standby_that_has_to_go_on_ends_what_is_read_and_says_so(forms: Forms) -> None:
    """The versions that a transaction reads are folded and vacuumed away on the primary."""
    primary, standby = forms.primary, forms.standby
    version = "(id, ts, i4, _op, _seq, _prev) SELECT id, ts, 424242, 'U', id, 0 FROM copy WHERE id IN (1, 2, 3)"
    primary.execute(f"INSERT INTO frostline_delta.events {version}")
    with standby.hurried(), forms.pair.world.connect() as reader:
        standby.catch_up()
        reader.execute("BEGIN")
        assert reader.execute("SELECT count(*) FROM events WHERE i4 = 424242 AND id < 2").fetchone() == (1,)
        reader.execute("SAVEPOINT here")
        primary.execute("DELETE FROM frostline_delta.events")
        needed = "SELECT FROM pg_stat_activity WHERE backend_xmin IS NOT NULL AND pid <> pg_backend_pid()"
        wait_until(lambda: primary.execute(needed).fetchone() is None, 120, "nobody needs what was deleted")
        primary.execute("VACUUM frostline_delta.events")
        standby.catch_up()
        for _ in range(2):
            with pytest.raises(psycopg.errors.SerializationFailure):
                reader.execute("SELECT count(*) FROM events WHERE i4 = 424242")
            reader.execute("ROLLBACK TO SAVEPOINT here")
        reader.execute("ROLLBACK")
        assert reader.execute("SELECT count(*) FROM events WHERE i4 = 424242").fetchone() == (0,)


def test_files_that_the_primary_has_removed_are_an_error_not_missing_rows(forms: Forms) -> None:
    primary, files = forms.primary, Path(forms.pair.world.lake.location().removeprefix("file://")) / "data"
    files.rename(files.with_name("away"))
    try:
        with forms.pair.world.connect() as reader:
            with pytest.raises(psycopg.Error, match=r"retry, once it has caught up") as error:
                reader.execute("SELECT sum(i4) FROM events")
            assert error.value.sqlstate == "58030"
            primary.execute("INSERT INTO frostline.expiring SELECT id, snapshot_id FROM frostline.tables")
            forms.standby.catch_up()
            with pytest.raises(psycopg.errors.SerializationFailure):
                reader.execute("SELECT sum(i4) FROM events")
    finally:
        primary.execute("DELETE FROM frostline.expiring")
        files.with_name("away").rename(files)


def test_too_many_rows_for_one_statement_are_refused_with_the_way_out(
    forms: Forms, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(handed, "MOST_BYTES", 10_000)
    pair, rows = forms.pair, "SELECT t FROM {} WHERE t ~ 'row 1'"
    with pytest.raises(psycopg.errors.ProgramLimitExceeded, match="OFFSET 0"):
        pair.direct.execute(rows.replace("t FROM", "count(*) FROM").format(pair.source))
    each = pair.direct.execute(rows.format(pair.source)).fetchall()
    assert sorted(each) == sorted(pair.connection.execute(f"{rows.format('copy')} AND {COLD}").fetchall())
    assert len(each) > 100


def _ask(pair: Pair) -> None:
    unknown = [one for one in FILTERS if pair.translated(f"SELECT id FROM {{t}} WHERE {one}") is None]
    for condition in unknown[::4]:
        assert agree(*pair.both(f"SELECT id, t, n, d FROM {{t}} WHERE {condition}")), condition
    for query in [*QUERIES, *ORDERED][::4]:
        if "ctid" not in query:
            assert agree(*pair.both(written(query)), ordered=query in ORDERED), query
    for condition in ERRORS[::4]:
        assert agree(*pair.both(f"SELECT id FROM {{t}} WHERE {condition}")), condition
    assert outcome(pair.connection, "SELECT ctid FROM events WHERE id = 5") == "25006"


def test_readers_on_a_standby_see_each_row_once_whatever_the_primary_does(
    servers: tuple[Cluster, Standby], spark: SparkSession, tmp_path: Path
) -> None:
    cluster, standby = servers
    with new_world(cluster.dsn, spark, tmp_path) as world:
        world.run(SIMPLE)
        world.register("public.events")
        with followed(world, standby) as there:
            expected = world.run(TOTAL)[0]
            pinned = "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT frostline.pin()"
            with Reader(there, TOTAL, expected, pinned):
                with Reader(there, TOTAL, expected):
                    world.archive("public.events")
                    world.run("UPDATE public.events SET v = v + 450 - id WHERE id IN (1, 899)")
                    folded(world)
                    with Warm(world.spark_here) as warm:
                        untier(world.settings, "public.events", "public.events_02", Silent(), warm)
                for number in range(1, 6):
                    world.run("UPDATE public.events SET v = v + 1000 - id WHERE id IN (1, 1999)")
                    world.run(f"UPDATE public.events SET ts = '2021-01-01' WHERE id = {number} AND ts < '2020-02-01'")
            standby.catch_up()
            assert there.run(TOTAL) == [expected]


@dataclass
class Mover:
    """Takes from an old row and gives to a new one, or the other way round; and appends an old row that says so."""

    dsn: str
    number: int
    answered: list[int] = field(default_factory=list)
    asked: list[int] = field(default_factory=list)
    end: threading.Event = field(default_factory=threading.Event)

    def __enter__(self) -> Mover:
        self._thread = threading.Thread(target=self._move, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.end.set()
        self._thread.join(60)

    def _move(self) -> None:
        cold, hot = self.number, 1990 + self.number
        with suppress(psycopg.OperationalError), psycopg.connect(self.dsn, autocommit=True) as connection:
            while not self.end.wait(0.02):
                row = self.number * 1_000_000 + len(self.asked)
                self.asked.append(row)
                with connection.transaction():
                    connection.execute("UPDATE public.events SET v = v - 1 WHERE id = %s", (cold,))
                    connection.execute("UPDATE public.events SET v = v + 1 WHERE id = %s", (hot,))
                    connection.execute("INSERT INTO public.events VALUES (%s, '2020-01-05', 0)", (row,))
                self.answered.append(row)


def archived(world: World, before: str) -> list[str]:
    with Warm(world.spark_here) as warm:
        return [one.leaf.name for one in periods(world.settings, "public.events", Silent(), warm, before)]


def test_a_standby_takes_over_from_a_primary_that_was_killed_and_the_next_one_from_one_that_lives_on(
    older_cluster: Cluster, spark: SparkSession, tmp_path: Path
) -> None:
    cluster, standby = older_cluster, older_cluster.standby("first")
    with new_world(cluster.dsn, spark, tmp_path, keep=True) as world, ExitStack() as gateways:
        world.run(SIMPLE)
        world.register("public.events", "100 years")
        assert archived(world, "2020-02-01") == ["events_01"]
        there = gateways.enter_context(followed(world, standby))
        reading = there.connect()
        assert reading.execute(TOTAL).fetchone() == world.run(TOTAL)[0]
        _only_read(there)
        _late(world, there)
        # What was acknowledged was on the standby before.
        world.run("ALTER SYSTEM SET synchronous_standby_names = 'standby'")
        world.run("SELECT pg_reload_conf()")
        with Mover(world.dsn, 1) as one, Mover(world.dsn, 2) as two:
            wait_until(lambda: min(len(one.answered), len(two.answered)) > 10, 120, "rows are written")
            cluster.kill()
        standby.promote()
        cluster.succeeded_by(standby)
        # The session that was there goes on, and so does its gateway.
        _written_once(reading, [one, two])
        reading.execute("UPDATE public.events SET v = v + 1000 WHERE id IN (5, 1995)")
        with pytest.raises(RefusedError, match="not the one that its lake belongs to"):
            folded(there)
        assert [found.snapshots for found in adopt.successor(there.settings, Silent())] == [0]
        _beside_the_old_one(cluster, there, gateways)


def _beside_the_old_one(cluster: Cluster, world: World, gateways: ExitStack) -> None:
    """The primary archives a period of which its standby has not heard, and goes on when that is promoted."""
    standby = cluster.standby("second")
    there = gateways.enter_context(followed(world, standby))
    kept = world.run("SELECT * FROM public.events ORDER BY id")
    there.run("ALTER SYSTEM SET primary_conninfo = ''")
    there.run("SELECT pg_reload_conf()")
    wait_until(lambda: not world.run("SELECT FROM pg_stat_replication"), 120, "nobody follows")
    world.run("UPDATE public.events SET v = -1 WHERE id IN (7, 800)")
    assert archived(world, "2020-03-01") == ["events_02"]
    assert there.run("SELECT * FROM public.events ORDER BY id") == kept
    assert worked(world) == 0
    with waiting(there) as next_worker:
        standby.promote()
        adopt.successor(there.settings, Silent())
        wait_until(lambda: there.run("SELECT leader FROM frostline.workers WHERE leader") != [], 120, "it leads")
        next_worker.terminate()
        assert next_worker.wait(120) == 0
    assert there.run("SELECT * FROM public.events ORDER BY id") == kept
    _cannot_disturb(world)
    there.run("UPDATE public.events SET v = v + 1 WHERE id IN (7, 800)")
    assert archived(there, "2020-03-01") == ["events_02"]
    folded(there)
    changed = [(id_, ts, v + (id_ in (7, 800))) for id_, ts, v in kept]
    assert there.run("SELECT * FROM public.events ORDER BY id") == changed
    assert {found.state for found in verify.verify(there.settings, "public.events", None, Silent())} == {"good"}


def worked(world: World) -> int:
    """One round of a worker that has something to fold: how many steps failed."""
    world.run("UPDATE frostline.tables SET fold_rows = 1; UPDATE frostline.upkeep SET retry_at = now()")
    return worker.run(world.settings, Silent(), world.spark_here, once=True)


@contextmanager
def waiting(world: World) -> Iterator[subprocess.Popen[bytes]]:
    """A worker, as a person starts it, on a standby."""
    settings = {"FROSTLINE_DSN": world.dsn, "FROSTLINE_LAKE_WAREHOUSE": world.settings.warehouse}
    log = Path(world.settings.local.dir) / "next.log"
    with (
        log.open("wb") as output,
        subprocess.Popen(command("run", "--interval", "60"), env=environment(settings), stderr=output) as process,
    ):
        try:
            wait_until(lambda: b"Postgres is a standby" in log.read_bytes(), 120, "it waits")
            yield process
        finally:
            process.kill()


def _cannot_disturb(old: World) -> None:
    """Whoever works for the database whose place was taken finds that in the lake, and changes nothing there."""
    old.run("UPDATE public.events SET v = -2 WHERE id = 9")
    files = {path for path in old.directory("events").rglob("*") if path.is_file()}
    assert worked(old) > 0
    assert "another database has taken the place" in str(old.run("SELECT error FROM frostline.failing"))
    with connect(old.dsn) as connection, pytest.raises(RefusedError, match="taken the place"):
        clean.clean(connection, old.settings, registry.get(connection, "public.events"), 0, Silent())
    assert {path for path in old.directory("events").rglob("*") if path.is_file()} == files


def _only_read(standby: World) -> None:
    """What changes something is refused, with the reason."""
    for work in (
        lambda: folded(standby),
        lambda: adopt.successor(standby.settings, Silent()),
        lambda: verify.verify(standby.settings, "public.events", None, Silent()),
    ):
        with pytest.raises(RefusedError, match="standby"):
            work()
    with pytest.raises(OnStandby):
        worker.run(standby.settings, Silent(), standby.spark_here, once=True)
    with pytest.raises(psycopg.errors.ReadOnlySqlTransaction):
        standby.run("UPDATE public.events SET v = 0 WHERE id = 1")
    checks = list(doctor.examine(standby.settings))
    assert PROBLEM not in {check.verdict for check in checks}
    assert [check.found[:10] for check in checks if check.name == "standby"] == ["a standby,"]


def _late(primary: World, standby: World) -> None:
    """Further behind than what it reads is kept for."""
    short = standby.settings.maintenance.model_copy(update={"backup_window": 0.001})
    settings = standby.settings.model_copy(update={"maintenance": short})
    standby.run("SELECT pg_wal_replay_pause()")
    primary.run("SELECT pg_create_restore_point('later')")

    def told() -> bool:
        found = [check for check in doctor.examine(settings) if check.name == "standby"]
        return [(one.verdict, "backup_window" in one.remedy) for one in found] == [(WARNING, True)]

    wait_until(told, 120, "the doctor says so")
    standby.run("SELECT pg_wal_replay_resume()")


def _written_once(connection: psycopg.Connection[Any], movers: list[Mover]) -> None:
    """All that was answered is there, and what was asked for is there as a whole or not at all."""
    found = {row for (row,) in connection.execute("SELECT id FROM public.events WHERE id >= 1000000")}
    assert {row for mover in movers for row in mover.answered} <= found
    assert found <= {row for mover in movers for row in mover.asked}
    for mover in movers:
        moved = sum(row // 1_000_000 == mover.number for row in found)
        rows = connection.execute(
            "SELECT v - id FROM public.events WHERE id IN (%s, %s) ORDER BY id", (mover.number, 1990 + mover.number)
        )
        assert rows.fetchall() == [(-moved,), (moved,)]


def test_of_two_standbys_that_are_both_promoted_one_changes_the_lake(
    cluster: Cluster, spark: SparkSession, tmp_path: Path
) -> None:
    """Cluster, database and timeline are the same."""
    with new_world(cluster.dsn, spark, tmp_path) as world:
        world.run(SIMPLE)
        world.register("public.events", "100 years")
        world.archive("public.events", "2020-02-01")
        forks = []
        for name in ("one", "two"):
            standby = cluster.standby(name)
            standby.catch_up()
            with psycopg.connect(standby.dsn, autocommit=True) as here:
                here.execute("ALTER SYSTEM SET primary_conninfo = ''")
                here.execute("SELECT pg_reload_conf()")
            standby.promote()
            settings = at(world.settings, elsewhere(world.dsn, standby.dsn))
            forks.append(World(settings, world.spark, Gateway(settings)))
        one, two = forks
        with connect(one.dsn) as a, connect(two.dsn) as b:
            assert identity.here(a) == identity.here(b)
        world.gateway.stop(grace=0)
        adopt.successor(one.settings, Silent())
        one.gateway.start()
        kept = one.run("SELECT * FROM public.events ORDER BY id")
        one.archive("public.events", "2020-03-01")
        adopt.successor(two.settings, Silent())
        with pytest.raises(RefusedError, match="under the name of this one"):
            one.clean("public.events")
        two.gateway.start()
        assert two.run("SELECT * FROM public.events ORDER BY id") == kept
        one.gateway.stop(grace=0)
        two.gateway.stop(grace=0)
        world.restart_gateway()
