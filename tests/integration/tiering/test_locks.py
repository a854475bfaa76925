"""Locks on busy tables: nobody waits behind us for long, and it is said whom we wait for."""

from __future__ import annotations

import shutil
import subprocess
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, replace
from statistics import median
from typing import Any

import psycopg
import pytest
from psycopg.types.json import Jsonb

from fix_commands import Run
from fix_tiering import World
from frostline.catalog.database import connect
from frostline.config import ArchiveSettings
from frostline.errors import Interrupted
from frostline.tiering import locks
from frostline.tiering.archive.run import Archived
from frostline.tiering.locks import Wanted

SIMPLE = """
CREATE TABLE public.events (id bigint, ts timestamptz NOT NULL, v int, PRIMARY KEY (id, ts)) PARTITION BY RANGE (ts);
CREATE TABLE public.events_01 PARTITION OF public.events FOR VALUES FROM ('2020-01-01') TO ('2020-02-01');
CREATE TABLE public.events_now PARTITION OF public.events FOR VALUES FROM ('2020-02-01') TO (MAXVALUE);
INSERT INTO public.events SELECT i, timestamptz '2020-01-01' + i * interval '1 h', i FROM generate_series(1, 1000) i;
"""


def in_background(world: World) -> Future[list[Archived]]:
    pool = ThreadPoolExecutor(1)
    started = pool.submit(world.archive, "public.events")
    pool.shutdown(wait=False)
    return started


def until(world: World, query: str) -> list[tuple[Any, ...]]:
    deadline = time.monotonic() + 180
    while not (found := world.run(query)):
        assert time.monotonic() < deadline, query
        time.sleep(0.05)
    return found


def test_status_says_whom_the_swap_waits_for(world: World, frostline: Run) -> None:
    world.run(SIMPLE)
    world.run(
        "CREATE TABLE public.kinds (v int PRIMARY KEY); INSERT INTO public.kinds SELECT generate_series(1, 1000);"
        "ALTER TABLE public.events ADD FOREIGN KEY (v) REFERENCES public.kinds"
    )
    world.register("public.events")
    reader = world.connect(autocommit=False)
    reader.execute("SELECT 'the long report' FROM public.events_01 LIMIT 1")
    running = in_background(world)
    pid = reader.info.backend_pid
    [(step, state, relation, since, waiting)] = until(
        world,
        "SELECT step, state, relation, since < clock_timestamp(), waiting_since < clock_timestamp()"
        f" FROM frostline.waits WHERE pid = {pid}",
    )
    assert (step, state, relation) == ("swap", "idle in transaction", "public.events_01")
    assert (since, waiting) == (True, True)
    shown = frostline("--dsn", world.dsn, "status").stdout
    assert f"pid {pid} (idle in transaction since" in shown
    assert "the long report" in shown
    # Somebody at a leaf that stays, who never came by the table, and a writer of a referenced table.
    for relation, statement in (
        ("public.events_now", "SELECT FROM public.events_now LIMIT 1"),
        ("public.kinds", "INSERT INTO public.kinds VALUES (0)"),
    ):
        another = world.connect(autocommit=False)
        another.execute(statement)
        reader.rollback()
        reader, pid = another, another.info.backend_pid
        until(world, f"SELECT 1 FROM frostline.waits WHERE pid = {pid} AND relation = '{relation}'")
    reader.rollback()
    assert len(running.result(180)) == 1
    assert world.run("SELECT waits_for FROM frostline.status") == [(None,)]


def test_whose_transactions_are_hidden_from_us_is_shown_as_far_as_it_is_known(world: World) -> None:
    """An ordinary role is not told when sessions of others began; a prepared transaction has no process."""
    world.run(SIMPLE)
    world.register("public.events")
    reader = world.connect(autocommit=False)
    reader.execute("SELECT FROM public.events_01 LIMIT 1")
    [(table, oid)] = world.run("SELECT id, 'public.events_01'::regclass::oid::int FROM frostline.tables")
    with connect(world.dsn) as ours:
        ours.execute(f"CREATE ROLE hidden_{reader.info.backend_pid}")
        try:
            [seen] = locks.holders(ours, Wanted([oid]))
            ours.execute(f"SET ROLE hidden_{reader.info.backend_pid}")
            [found] = locks.holders(ours, Wanted([oid]))
        finally:
            ours.execute("RESET ROLE")
            ours.execute(f"DROP ROLE hidden_{reader.info.backend_pid}")
    assert (seen.pid, seen.state, 0 < seen.age < 60) == (reader.info.backend_pid, "idle in transaction", True)
    assert (found.pid, found.since, found.age) == (reader.info.backend_pid, None, 1e9)
    assert f"pid {found.pid} (?, since ?) holds AccessShareLock on public.events_01" in str(found)
    world.run(
        "INSERT INTO frostline.operations (table_id, kind, leaf, upper, waiting_since, waits_for)"
        " VALUES (%s, 'archive', 'public.events_01', '2020-02-01', now(), %s)",
        table,
        Jsonb([asdict(found), asdict(replace(found, pid=None, state="prepared transaction"))]),
    )
    assert world.run("SELECT pid, since, relation FROM frostline.waits ORDER BY pid") == [
        (found.pid, None, "public.events_01"),
        (None, None, "public.events_01"),
    ]
    assert f"pid {found.pid} (? since" in world.run("SELECT waits_for FROM frostline.status")[0][0]


# Behind a try of the swap others wait for 100 ms and its own few; now and then this machine has more to do.
USUALLY, AT_MOST = 0.4, 3.0


class Clients:
    """Three sessions that read, change and insert hot rows of a table, over and over; every statement is timed."""

    def __init__(self, dsn: str, table: str) -> None:
        self.dsn, self.table, self.seconds = dsn, table, [0.0]
        self.done = [0] * 3
        self._over = threading.Event()
        self._pool = ThreadPoolExecutor(3)
        self._working = [self._pool.submit(self._work, number) for number in range(3)]

    def stop(self) -> tuple[float, float]:
        """How long a statement took that had to wait, usually and at most, in seconds; none may have failed."""
        self._over.set()
        for one in self._working:
            one.result()
        self._pool.shutdown()
        return median([taken for taken in self.seconds if taken > 0.05] or [0.0]), max(self.seconds)

    def go_on(self) -> None:
        """Until each has done some more: nobody is kept waiting until somebody else has gone."""
        goal = [done + 10 for done in self.done]
        deadline = time.monotonic() + 60
        while any(done < wanted for done, wanted in zip(self.done, goal, strict=True)):
            assert time.monotonic() < deadline, "the clients do not get on"
            assert not any(one.done() for one in self._working), "a client has failed"
            time.sleep(0.01)

    def _work(self, number: int) -> None:
        at = f"id = {900 + number} AND ts = timestamptz '2020-01-01' + {900 + number} * interval '1 h'"
        statements = (
            f"SELECT v FROM {self.table} WHERE {at}",
            f"UPDATE {self.table} SET v = v + 1 WHERE {at}",
            f"INSERT INTO {self.table} VALUES (nextval('public.numbers'), '2020-03-01', 0)",
        )
        with psycopg.connect(self.dsn, autocommit=True) as connection:
            while not self._over.is_set():
                for statement in statements:
                    began = time.monotonic()
                    connection.execute(statement)
                    self.seconds.append(time.monotonic() - began)
                self.done[number] += 1
                time.sleep(0.005)  # the two CPUs have others to serve


@contextmanager
def dumping(world: World) -> Iterator[None]:
    """pg_dump in the middle of its work, for nobody reads what it writes; where there is none, what it holds."""
    program, version = shutil.which("pg_dump"), world.connect().info.server_version // 10000
    told = subprocess.run([program, "--version"], capture_output=True, text=True, check=True).stdout if program else ""
    if program is None or int(told.split()[2].partition(".")[0]) < version:
        client = world.connect(autocommit=False)
        client.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
        tables = (
            "SELECT string_agg(oid::regclass::text, ', ') FROM pg_class WHERE relkind IN ('r', 'p') AND oid > 16383"
        )
        [(names,)] = client.execute(tables).fetchall()
        client.execute(f"SET application_name = 'pg_dump'; LOCK TABLE {names} IN ACCESS SHARE MODE")
        yield
        client.rollback()
        return
    dump = subprocess.Popen([program, world.dsn], stdout=subprocess.PIPE)
    until(
        world,
        "SELECT 1 FROM pg_locks JOIN pg_stat_activity USING (pid) WHERE relation = 'public.events_01'::regclass"
        " AND application_name = 'pg_dump' AND granted",
    )
    yield
    written, _ = dump.communicate(timeout=180)
    assert dump.returncode == 0
    assert b"COPY public.events_01 " in written


@contextmanager
def vacuuming(world: World) -> Iterator[None]:
    """A VACUUM of the leaf that takes its time; it is not cancelled by whoever waits for it, but ended here."""
    client = world.connect()
    client.execute("SET application_name = 'vacuum'; SET vacuum_cost_limit = 1; SET vacuum_cost_delay = '100ms'")
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(client.execute, "VACUUM (FREEZE, DISABLE_PAGE_SKIPPING) public.events_01")
        until(world, "SELECT 1 FROM pg_stat_progress_vacuum WHERE relid = 'public.events_01'::regclass")
        yield
        assert not running.done()
        client.cancel_safe()
        with pytest.raises(psycopg.errors.QueryCanceled):
            running.result(60)


def held_up_by(world: World, name: str) -> None:
    """Wait until a try of the swap is under way, and behind this client."""
    query = (
        "SELECT 1 FROM pg_locks l CROSS JOIN unnest(pg_blocking_pids(l.pid)) b JOIN pg_stat_activity a ON a.pid = b"
        " WHERE NOT l.granted AND l.mode = 'AccessExclusiveLock' AND a.application_name = %s"
    )
    deadline, looking = time.monotonic() + 180, world.connect()
    while not looking.execute(query, (name,)).fetchall():
        assert time.monotonic() < deadline, name
        time.sleep(0.01)


def test_a_reader_a_dump_and_a_vacuum_delay_the_swap_and_nobody_else(any_world: World) -> None:
    world = any_world
    world.run(
        SIMPLE + "UPDATE public.events SET v = v WHERE ts < '2020-02-01'; CREATE SEQUENCE public.numbers START 10000;"
    )
    world.run(
        "CREATE TABLE public.aside (LIKE public.events INCLUDING ALL); INSERT INTO public.aside TABLE public.events"
    )
    world.register("public.events")
    reader = world.connect(autocommit=False, application_name="reader")
    reader.execute("SELECT FROM public.events_01 LIMIT 1")
    running = in_background(world)
    held_up_by(world, "reader")
    # Whatever else this machine does, clients of another table suffer as well.
    clients, others = Clients(world.dsn, "public.events"), Clients(world.dsn, "public.aside")
    try:
        held_up_by(world, "reader")
        clients.go_on()
        with ExitStack() as dump:
            dump.enter_context(dumping(world))
            reader.rollback()
            held_up_by(world, "pg_dump")
            clients.go_on()
            with vacuuming(world):
                dump.close()
                held_up_by(world, "vacuum")
                clients.go_on()
                assert not running.done()
        [archived] = running.result(180)
    finally:
        (usual, longest), (usual_noise, noise) = clients.stop(), others.stop()
    assert usual < USUALLY + usual_noise, (usual, usual_noise)
    assert longest < AT_MOST + noise, (longest, noise)
    assert archived.rows == 743
    assert world.run("SELECT count(*), sum(id) FROM public.events WHERE id <= 1000") == [(1000, 500500)]


def test_all_locks_of_a_swap_together_take_one_timeout(world: World) -> None:
    """Each of three could be waited for as long: who asks for the first would wait for all three."""
    from psycopg.sql import Identifier

    from frostline.tiering.locks import lock

    world.run(SIMPLE)
    world.register("public.events")
    names = ["events", "events_hot", "events_01"]
    holder = world.connect(autocommit=False)
    holder.execute("LOCK TABLE ONLY public.events_01 IN ACCESS SHARE MODE")
    with connect(world.dsn) as connection:
        first, freed = world.connect(autocommit=False), list[float]()
        first.execute("LOCK TABLE ONLY public.events IN ACCESS SHARE MODE")

        def let_go() -> None:
            freed.append(time.monotonic())
            first.rollback()

        # The first is free after most of the time; for the last a little is left, not a whole timeout.
        timer = threading.Timer(1.2, let_go)
        timer.start()
        began = time.monotonic()
        with pytest.raises(psycopg.errors.LockNotAvailable), connection.transaction():
            lock(connection, [(Identifier("public", name), "ACCESS EXCLUSIVE") for name in names], timeout_ms=1500)
        ended = time.monotonic()
        timer.join()
    assert ended - began > 1.4
    assert ended < freed[0] + 1.5


def test_patience_ends_with_names_and_the_next_run_goes_on(world: World) -> None:
    world.run(SIMPLE)
    world.register("public.events")
    patient = world.settings
    impatient = ArchiveSettings(lock_timeout=50, lock_patience=0.5, orphan_age=3600)
    world.settings = patient.model_copy(update={"archive": impatient})
    reader = world.connect(autocommit=False)
    reader.execute("SELECT 'in the way' FROM public.events LIMIT 1")
    with pytest.raises(Interrupted, match="did not get its lock within") as error:
        world.archive("public.events")
    assert f"pid {reader.info.backend_pid} (idle in transaction" in (error.value.detail or "")
    assert "in the way" in (error.value.detail or "")
    reader.rollback()
    world.settings = patient
    # Written while nobody archives: still captured.
    world.run("UPDATE public.events SET v = -1 WHERE id = 7; DELETE FROM public.events WHERE id = 8")
    assert len(world.archive("public.events")) == 1
    assert world.run("SELECT id, v FROM public.events WHERE id BETWEEN 6 AND 9 ORDER BY id") == [
        (6, 6),
        (7, -1),
        (9, 9),
    ]
    assert world.run("SELECT name, attempts FROM frostline.steps ORDER BY number") == [
        ("capture", 1),
        ("export", 2),
        ("verify", 2),
        ("swap", 2),
        ("drop", 1),
    ]
    assert world.run("SELECT count(*) FROM frostline.operations") == [(1,)]


def test_readers_do_not_hold_up_the_capture(world: World) -> None:
    """CREATE TRIGGER only has to wait for writers."""
    world.run(SIMPLE)
    world.register("public.events")
    reader = world.connect(autocommit=False)
    reader.execute("SELECT FROM public.events_01 LIMIT 1")
    running = in_background(world)
    until(world, "SELECT 1 FROM frostline.steps WHERE name = 'capture' AND finished_at IS NOT NULL")
    reader.rollback()
    assert len(running.result(180)) == 1


def test_writers_whose_transactions_overlap_do_not_starve_it(world: World) -> None:
    world.run(SIMPLE)
    world.register("public.events")
    stop = threading.Event()

    def write(number: int) -> None:
        with psycopg.connect(world.dsn) as connection:
            while not stop.is_set():
                connection.execute(f"UPDATE public.events_hot SET v = v + 1 WHERE id = {number} AND ts < '2020-02-01'")
                time.sleep(0.15)
                connection.commit()

    writers = [threading.Thread(target=write, args=(number,)) for number in (1, 2)]
    for writer in writers:
        writer.start()
    try:
        archived = world.archive("public.events")
    finally:
        stop.set()
        for writer in writers:
            writer.join()
    assert len(archived) == 1


def test_a_copy_that_cannot_be_compared_is_made_anew_in_the_end(world: World) -> None:
    world.run(SIMPLE)
    world.register("public.events")
    world.gateway.stop(grace=0)
    for _ in range(3):
        with pytest.raises(Interrupted, match="could not be compared with the lake"):
            world.archive("public.events")
    assert world.run("SELECT count(*), max(id) FROM frostline.operations") == [(1, 1)]
    world.restart_gateway()
    assert len(world.archive("public.events")) == 1
    assert world.run("SELECT id, state FROM frostline.operations ORDER BY id") == [(1, "failed"), (2, "done")]
    assert world.run("SELECT count(*), sum(v) FROM public.events") == [(1000, 500500)]


def test_who_deletes_from_a_referenced_table_without_pause_does_not_keep_a_period_hot(world: World) -> None:
    """There is never a moment without one of them, and each holds the table we need while he looks into the leaf."""
    world.run(
        "CREATE TABLE public.customers (id int PRIMARY KEY);"
        "INSERT INTO public.customers SELECT generate_series(1, 50000);"
        + SIMPLE.replace("v int,", "v int REFERENCES public.customers,")
        + "CREATE INDEX ON public.events (v);"
    )
    world.register("public.events")
    over = threading.Event()

    def delete(start: int) -> int:
        """Short transactions, one after the other; how many."""
        with psycopg.connect(world.dsn) as client:
            for number in range(start, start + 10_000):
                if over.is_set():
                    return number - start
                for id_ in (number, number + 5000):
                    client.execute("DELETE FROM public.customers WHERE id = %s", (id_,))
                    time.sleep(0.02)
                client.commit()
        raise AssertionError("no customers are left")

    with ThreadPoolExecutor(3) as pool:
        deleting = [pool.submit(delete, start) for start in (10_001, 20_001, 30_001)]
        try:
            archived = world.archive("public.events")
        finally:
            over.set()
        assert all(done.result() > 0 for done in deleting)
    assert [one.rows for one in archived] == [743]
    assert world.run("SELECT count(*), sum(v) FROM public.events") == [(1000, 500500)]


def test_told_to_end_while_a_lock_times_out_it_ends(database: str) -> None:
    """Psycopg cancels the statement then, and raises what Postgres says of that if it is anything else."""
    with connect(database) as connection, connect(database, autocommit=False) as holder:
        connection.execute("CREATE TABLE public.held ()")
        holder.execute("LOCK public.held")

        def interrupted() -> None:
            try:
                raise KeyboardInterrupt
            except KeyboardInterrupt:
                connection.execute("LOCK public.held")

        with pytest.raises(KeyboardInterrupt):
            locks.with_short_locks(connection, interrupted, "waiting", Wanted(patience=0.5))
