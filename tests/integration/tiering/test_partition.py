"""`frostline partition`: a plain table becomes a partitioned one, whole, whoever writes and whatever is killed."""

from __future__ import annotations

import itertools
import os
import random
import shlex
import signal
import socket
import subprocess
import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import date
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from fix_cluster import wait_until
from fix_commands import Run, command, environment, failed_clearly
from fix_tiering import World
from frostline import faults
from frostline.catalog import describe
from frostline.catalog.database import connect
from frostline.catalog.install import install
from frostline.errors import ConfigError, OperationError, RefusedError
from frostline.report import Silent
from frostline.tiering.locks import Wanted
from frostline.tiering.partition import copying, run, shape, swap
from frostline.tiering.partition.plan import Choice

ORDERS = """
CREATE SCHEMA shop;
CREATE TABLE shop.customers (id int PRIMARY KEY, name text);
INSERT INTO shop.customers SELECT i, 'c' || i FROM generate_series(1, 100) i;
CREATE TABLE shop.orders (
    gone int,
    id bigint GENERATED ALWAYS AS IDENTITY (INCREMENT 2) PRIMARY KEY,
    at timestamptz NOT NULL DEFAULT now(),
    customer int CONSTRAINT "who" REFERENCES shop.customers ON DELETE CASCADE,
    amount numeric(10, 2) CHECK (amount >= 0),
    twice numeric GENERATED ALWAYS AS (amount * 2) STORED,
    code serial,
    note text DEFAULT 'none'
) WITH (fillfactor = 80, autovacuum_vacuum_scale_factor = 0.05, toast.autovacuum_enabled = false);
ALTER TABLE shop.orders DROP COLUMN gone;
ALTER TABLE shop.orders ALTER COLUMN note SET STATISTICS 500, ALTER COLUMN note SET STORAGE MAIN,
    ALTER COLUMN customer SET (n_distinct = 100);
COMMENT ON TABLE shop.orders IS 'all orders';
COMMENT ON COLUMN shop.orders.note IS 'a note';
COMMENT ON CONSTRAINT "who" ON shop.orders IS 'who has ordered';
COMMENT ON CONSTRAINT orders_pkey ON shop.orders IS 'which';
INSERT INTO shop.orders (at, customer, amount)
SELECT timestamptz '2024-01-05' + i * interval '20 min', 1 + i % 100, i % 1000 FROM generate_series(1, 9000) i;
CREATE INDEX orders_customer ON shop.orders (customer) WHERE amount > 10;
COMMENT ON INDEX shop.orders_customer IS 'by customer';
CREATE INDEX "odd idx" ON shop.orders USING brin (at);
CREATE UNIQUE INDEX orders_unique ON shop.orders (note, id, at);
CREATE STATISTICS shop.together (dependencies) ON customer, amount FROM shop.orders;
CREATE VIEW shop.big WITH (security_barrier = true) AS SELECT id, amount FROM shop.orders WHERE amount > 500;
CREATE VIEW shop.bigger AS SELECT * FROM shop.big WHERE amount > 900;
CREATE FUNCTION shop.stamp() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN NEW.note := NEW.note || '!'; RETURN NEW; END $$;
CREATE TRIGGER stamp BEFORE UPDATE ON shop.orders FOR EACH ROW EXECUTE FUNCTION shop.stamp();
ALTER TABLE shop.orders ENABLE ALWAYS TRIGGER stamp;
COMMENT ON TRIGGER stamp ON shop.orders IS 'stamps';
GRANT SELECT, UPDATE (note) ON shop.orders TO pg_monitor;
GRANT INSERT, TRUNCATE, REFERENCES ON shop.orders TO pg_read_all_stats WITH GRANT OPTION;
ALTER TABLE shop.orders ENABLE ROW LEVEL SECURITY;
CREATE POLICY own ON shop.orders AS RESTRICTIVE FOR UPDATE TO pg_monitor USING (customer = 7) WITH CHECK (amount < 5);
ALTER TABLE shop.orders REPLICA IDENTITY FULL;
CREATE PUBLICATION feed FOR TABLE shop.orders (id, at) WHERE (id > 5)
    WITH (publish = 'insert', publish_via_partition_root = true);
"""
EVENTS = """
CREATE TABLE public.events (id int PRIMARY KEY, ts timestamp NOT NULL, v text);
INSERT INTO public.events SELECT i, timestamp '2024-01-01' + i * interval '1 h', repeat('x', i % 50)
FROM generate_series(1, 4000) i;
"""
BY_TS = Choice("ts", key=("id", "ts"))


@pytest.fixture(params=["18", "15"])
def server(request: pytest.FixtureRequest) -> Iterator[str]:
    """DSN of a database with a registry and nothing else."""
    dsn = request.getfixturevalue("dsn" if request.param == "18" else "postgres15")
    name = f"test_{uuid.uuid4().hex[:12]}"
    execute(dsn, f"CREATE DATABASE {name}")
    made = make_conninfo(dsn, dbname=name)
    install(made)
    yield made
    execute(dsn, f"DROP DATABASE {name} WITH (FORCE)")


@pytest.fixture
def installed(database: str) -> str:
    install(database)
    return database


def execute(dsn: str, text: str) -> list[tuple[Any, ...]]:
    with psycopg.connect(dsn, autocommit=True) as connection:
        cursor = connection.execute(text)
        return cursor.fetchall() if cursor.description is not None else []


def partition(dsn: str, table: str, choice: Choice, *, drop_old: bool = False) -> run.Partitioned:
    with connect(dsn) as connection:
        return run.partition(connection, table, choice, Wanted(patience=20), Silent(), drop_old=drop_old)


def shape_of(dsn: str, table: str) -> dict[str, Any]:
    with connect(dsn) as connection:
        found: dict[str, Any] = shape.read(connection, describe.resolve(connection, table)[0]).json()
        return found


def nothing_left(dsn: str) -> bool:
    """Of the work itself: no log, no function, no row."""
    return execute(
        dsn,
        "SELECT (SELECT count(*) FROM frostline.partitionings), to_regclass('public.events_partitioned') IS NULL,"
        " (SELECT count(*) FROM pg_class WHERE relname LIKE 'changes\\_%'),"
        " (SELECT count(*) FROM pg_proc WHERE proname LIKE 'log\\_changes%')",
    ) == [(0, True, 0, 0)]


def test_everything_a_table_has_is_there_afterwards(server: str) -> None:
    execute(server, ORDERS)
    before = shape_of(server, "shop.orders")
    rows = execute(server, "SELECT * FROM shop.orders ORDER BY id")
    done = partition(server, "shop.orders", Choice("at", key=("id", "at")))
    assert [name for name, _ in done.plan.partitions[:5]] == [f"orders_2024_0{month}" for month in range(1, 6)]
    assert (done.plan.partitions[-1][0], done.in_default) == ("orders_default", 0)

    after = shape_of(server, "shop.orders")
    for part in ("owner", "comment", "replica_identity", "row_security", "forced", "columns", "checks", "foreign_keys"):
        assert after[part] == before[part], part
    for part in ("triggers", "policies", "statistics", "publications", "views", "grants"):
        assert after[part] == before[part], part
    assert after["primary_key"][0] == before["primary_key"][0] == "orders_pkey"
    assert after["primary_key"][3] == "which"
    assert [(name, unique, comment) for name, unique, _, comment, *_ in after["indexes"]] == [
        (name, unique, comment) for name, unique, _, comment, *_ in before["indexes"]
    ]
    assert [(kind, column, name) for kind, column, _, name, _ in after["sequences"]] == [
        ("i", "id", "orders_id_seq"),
        ("a", "code", "orders_code_seq"),
    ]
    leaf = shape_of(server, "shop.orders_2024_02")
    assert sorted(leaf["options"]) == sorted(before["options"])
    assert leaf["replica_identity"] == "f"

    assert execute(server, "SELECT * FROM shop.orders ORDER BY id") == rows
    assert execute(server, "SELECT count(*) FROM shop.bigger") == [(891,)]
    new = "INSERT INTO shop.orders (customer, amount) VALUES (1, 999) RETURNING id, code"
    assert execute(server, new) == [(18001, 9001)]
    assert execute(server, "SELECT count(*) FROM shop.bigger") == [(892,)]
    with pytest.raises(psycopg.errors.ForeignKeyViolation):
        execute(server, "INSERT INTO shop.orders (customer, amount) VALUES (1000, 1)")
    # One foreign key, proven, that every partition has from the table; and none that would keep the old rows.
    keys = (
        "SELECT bool_and(convalidated), count(*) FILTER (WHERE conparentid = 0) FROM pg_constraint"
        " WHERE contype = 'f' AND conrelid::regclass::text LIKE 'shop.%'"
    )
    assert execute(server, keys) == [(True, 1)]
    execute(server, "DELETE FROM shop.customers WHERE id = 2")
    assert execute(server, "SELECT count(*) FROM shop.orders WHERE customer = 2") == [(0,)]
    assert execute(server, "SELECT count(*) FROM shop.orders_before_partition") == [(9000,)]
    with pytest.raises(psycopg.errors.ObjectNotInPrerequisiteState, match="before it was partitioned"):
        execute(server, "DELETE FROM shop.orders_before_partition")
    execute(server, "DROP TABLE shop.orders_before_partition")
    assert execute(server, new) == [(18005, 9003)]
    assert nothing_left(server)


class Writers:
    """Sessions that change a table and a plain copy of it, in one transaction each, in every way there is."""

    def __init__(self, dsn: str) -> None:
        self.dsn, self.stop, self.done, self.errors = dsn, threading.Event(), 0, list[Exception]()
        execute(dsn, "CREATE TABLE public.truth (LIKE public.events INCLUDING ALL); INSERT INTO truth TABLE events")
        self.threads = [threading.Thread(target=self._write, args=(number,)) for number in range(3)]

    def __enter__(self) -> Writers:
        for thread in self.threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop.set()
        for thread in self.threads:
            thread.join()
        assert self.errors == []

    def _write(self, number: int) -> None:
        chance = random.Random(number)
        level = psycopg.IsolationLevel.REPEATABLE_READ if number == 0 else psycopg.IsolationLevel.READ_COMMITTED
        fresh = itertools.count(1_000_000 * (number + 1))
        with psycopg.connect(self.dsn) as connection:
            connection.isolation_level = level
            while not self.stop.wait(0.01):  # as clients think; without it whoever is to be killed has no turn
                try:
                    for statement in self._statements(chance, fresh):
                        for table in ("public.events", "public.truth"):
                            self._run(connection, statement, table)
                    if chance.random() < 0.2:
                        connection.rollback()
                    connection.commit()
                    self.done += 1
                except (psycopg.errors.SerializationFailure, psycopg.errors.DeadlockDetected):
                    connection.rollback()
                except psycopg.errors.ObjectNotInPrerequisiteState:
                    connection.rollback()  # it had the old table open: "run the statement again"
                except Exception as error:
                    self.errors.append(error)
                    return

    def _run(self, connection: psycopg.Connection[Any], statement: str, table: str) -> None:
        if not statement.startswith("COPY"):
            connection.execute(statement.format(t=table))
            return
        head, _, rows = statement.partition("|")
        with connection.cursor().copy(head.format(t=table)) as copy:
            copy.write(rows)

    def _statements(self, chance: random.Random, fresh: Iterator[int]) -> Iterator[str]:
        some = chance.randrange(1, 4000)
        for _ in range(chance.randrange(1, 4)):
            yield chance.choice(
                [
                    f"INSERT INTO {{t}} VALUES ({next(fresh)}, timestamp '2024-01-01' + interval '{some} h', 'new')",
                    f"UPDATE {{t}} SET v = v || 'y' WHERE id BETWEEN {some} AND {some + 3}",
                    f"UPDATE {{t}} SET ts = ts + interval '17 days' WHERE id = {some}",
                    f"DELETE FROM {{t}} WHERE id = {some}",
                    f"UPDATE {{t}} SET id = id + 100000 WHERE id = {some}",
                    f"COPY {{t}} (id, ts, v) FROM STDIN|{next(fresh)}\t2031-01-01\tcopied\n",
                ]
            )


def compare(dsn: str) -> int:
    """How many rows there are, when both tables have the same."""
    differing = (
        "SELECT (SELECT count(*) FROM (TABLE public.events EXCEPT ALL TABLE public.truth) a),"
        " (SELECT count(*) FROM (TABLE public.truth EXCEPT ALL TABLE public.events) b)"
    )
    assert execute(dsn, differing) == [(0, 0)]
    return int(execute(dsn, "SELECT count(*) FROM public.events")[0][0])


@contextmanager
def killing(path: Path) -> Iterator[set[str]]:
    """Kill whoever comes to one of the points for the first time."""
    killed: set[str] = set()
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(path))
    listener.listen()

    def serve() -> None:
        while True:
            try:
                client, _ = listener.accept()
            except OSError:
                return
            with client:
                pid, _, point = client.recv(200).decode().strip().partition(" ")
                if point in killed:
                    client.sendall(b"go")
                else:
                    killed.add(point)
                    os.kill(int(pid), signal.SIGKILL)

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    yield killed
    listener.shutdown(socket.SHUT_RDWR)
    listener.close()
    thread.join()


def test_nothing_is_lost_when_it_is_killed_at_every_point_while_all_write(installed: str, tmp_path: Path) -> None:
    execute(installed, EVENTS + "CREATE INDEX events_v ON public.events (v)")
    execute(
        installed,
        "CREATE TABLE public.kinds (v text PRIMARY KEY); INSERT INTO kinds VALUES ('k');"
        "ALTER TABLE public.events ADD kind text DEFAULT 'k' REFERENCES public.kinds",
    )
    arguments = ("--dsn", installed, "partition", "public.events", "--by", "ts", "--key", "id,ts")
    with killing(tmp_path / "faults") as killed, Writers(installed) as writers:
        for _ in range(len(faults.PARTITION_POINTS) + 1):
            done = subprocess.run(
                command(*arguments),
                env=environment({faults.VARIABLE: str(tmp_path / "faults"), "FROSTLINE_ARCHIVE_LOCK_PATIENCE": "120"}),
                capture_output=True,
                text=True,
                check=False,
                timeout=300,
            )
            if done.returncode == 0:
                break
            assert done.returncode == -signal.SIGKILL, done.stderr
        assert done.returncode == 0, done.stderr
        assert killed == set(faults.PARTITION_POINTS)
        before = writers.done
        wait_until(lambda: bool(writers.errors) or writers.done >= before + 20, 120, "they write the partitioned one")
    assert compare(installed) > 3000
    assert execute(installed, "SELECT count(*) > 10 FROM pg_partition_tree('public.events') WHERE isleaf") == [(True,)]
    assert nothing_left(installed)


def while_it_copies(monkeypatch: pytest.MonkeyPatch, point: str, act: Callable[[], object]) -> None:
    """Do something once, at a point of the run."""
    acts = [act]

    def reached(here: str) -> None:
        if here == point and acts:
            acts.pop()()

    monkeypatch.setattr(copying, "reached", reached)


def test_an_older_snapshot_deletes_what_was_copied_since(installed: str, monkeypatch: pytest.MonkeyPatch) -> None:
    execute(installed, EVENTS)
    with psycopg.connect(installed) as old:
        old.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        assert old.execute("SELECT count(*) FROM public.events").fetchone() == (4000,)

        def delete() -> None:
            old.execute("DELETE FROM public.events WHERE id IN (1, 2)")
            old.execute("UPDATE public.events SET v = 'old' WHERE id = 3")
            old.commit()

        while_it_copies(monkeypatch, "partition.batch", delete)
        # The reader's lock would keep the rehearsal waiting.
        monkeypatch.setattr(run, "_rehearse", lambda *_: None)
        partition(installed, "public.events", BY_TS)
    assert execute(installed, "SELECT count(*), min(id) FROM public.events") == [(3998, 3)]
    assert execute(installed, "SELECT v FROM public.events WHERE id = 3") == [("old",)]


def test_a_table_that_is_rewritten_meanwhile_is_copied_whole(installed: str, monkeypatch: pytest.MonkeyPatch) -> None:
    execute(installed, EVENTS + "DELETE FROM public.events WHERE id < 1000")
    rows = execute(installed, "SELECT * FROM public.events ORDER BY id")
    monkeypatch.setattr(copying, "_FIRST_PAGES", 2)
    while_it_copies(monkeypatch, "partition.batch", lambda: execute(installed, "VACUUM FULL public.events"))
    partition(installed, "public.events", BY_TS, drop_old=True)
    assert execute(installed, "SELECT * FROM public.events ORDER BY id") == rows
    assert execute(installed, "SELECT to_regclass('public.events_before_partition')") == [(None,)]


def test_what_would_lose_rows_is_refused_and_what_is_new_is_carried(
    installed: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    execute(installed, EVENTS)

    def meddle() -> None:
        with pytest.raises(psycopg.errors.ObjectInUse, match="being partitioned"):
            execute(installed, "TRUNCATE public.events")
        execute(installed, "CREATE VIEW public.later AS SELECT count(*) FROM public.events")
        execute(installed, "ALTER TABLE public.events ADD extra int")

    while_it_copies(monkeypatch, "partition.batch", meddle)
    with pytest.raises(OperationError, match=r"altered meanwhile \(columns\)"):
        partition(installed, "public.events", BY_TS)
    with pytest.raises(OperationError, match="being partitioned otherwise: --by ts --period month --key id,ts"):
        partition(installed, "public.events", Choice("ts", "day", ("id", "ts")))
    execute(installed, "ALTER TABLE public.events DROP extra")
    partition(installed, "public.events", Choice(""))
    assert execute(installed, "TABLE public.later") == [(4000,)]
    execute(installed, "INSERT INTO public.events VALUES (5000, now(), '')")
    assert execute(installed, "TABLE public.later") == [(4001,)]


def test_what_is_committed_while_the_swap_waits_is_in_the_copy_whatever_isolation_is_the_default(
    installed: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = psycopg.conninfo.conninfo_to_dict(installed)["dbname"]
    execute(installed, EVENTS)
    execute(installed, f"ALTER DATABASE {name} SET default_transaction_isolation = 'repeatable read'")
    real, ids = swap._lock, itertools.count(5000)

    def late(*arguments: Any) -> None:
        execute(installed, f"INSERT INTO public.events VALUES ({next(ids)}, '2024-03-01', 'late')")
        real(*arguments)

    monkeypatch.setattr(swap, "_lock", late)
    partition(installed, "public.events", BY_TS)
    assert execute(installed, "SELECT count(*) FROM public.events WHERE v = 'late'") == [(next(ids) - 5000,)]


def test_triggers_that_were_switched_off_are_noticed(installed: str, monkeypatch: pytest.MonkeyPatch) -> None:
    execute(installed, EVENTS)
    off = "ALTER TABLE public.events DISABLE TRIGGER ALL; DELETE FROM public.events WHERE id < 9"
    while_it_copies(monkeypatch, "partition.batch", lambda: execute(installed, off))
    with pytest.raises(OperationError, match="removed or switched off"):
        partition(installed, "public.events", BY_TS)


def test_a_change_that_passed_the_log_by_stops_the_swap(installed: str, monkeypatch: pytest.MonkeyPatch) -> None:
    execute(installed, EVENTS)
    behind = (
        "ALTER TABLE public.events DISABLE TRIGGER ALL; UPDATE public.events SET v = 'unseen' WHERE id = 7;"
        'ALTER TABLE public.events ENABLE ALWAYS TRIGGER "!frostline changes";'
        'ALTER TABLE public.events ENABLE ALWAYS TRIGGER "!frostline truncate"'
    )
    while_it_copies(monkeypatch, "partition.batch", lambda: execute(installed, behind))
    with pytest.raises(OperationError, match="is not what the table is") as told:
        partition(installed, "public.events", BY_TS)
    assert "not the same: v" in str(told.value)


def test_abandoned_it_is_as_it_was(server: str, monkeypatch: pytest.MonkeyPatch) -> None:
    execute(server, EVENTS)
    before = shape_of(server, "public.events")

    def die() -> None:
        raise RuntimeError("enough")

    while_it_copies(monkeypatch, "partition.batch", die)
    with pytest.raises(RuntimeError, match="enough"):
        partition(server, "public.events", BY_TS)
    older = "shape = jsonb_set(shape, '{primary_key}', (shape -> 'primary_key') - -1)"
    execute(server, f"UPDATE frostline.partitionings SET {older} RETURNING 1")
    with pytest.raises(OperationError, match="by another version") as error:
        partition(server, "public.events", BY_TS)
    assert "frostline partition public.events --abandon" in (error.value.hint or "")
    with connect(server) as connection:
        run.abandon(connection, "public.events", Wanted())
        with pytest.raises(RefusedError, match=r"no partitioning of public\.events is under way"):
            run.abandon(connection, "public.events", Wanted())
    assert shape_of(server, "public.events") == before
    assert execute(server, "SELECT count(*) FROM pg_trigger WHERE NOT tgisinternal") == [(0,)]
    assert execute(server, "SELECT count(*) FROM pg_class WHERE relname LIKE 'events\\_2%'") == [(0,)]
    assert nothing_left(server)


REFUSED = (
    ("CREATE TABLE public.t (id int PRIMARY KEY, ts timestamptz)", "ts may be NULL"),
    ("CREATE TABLE public.t (id int, ts timestamptz NOT NULL)", "no primary key"),
    ("CREATE TABLE public.t (id int PRIMARY KEY, ts text NOT NULL)", "of type text"),
    (
        "CREATE TYPE public.pair AS (a int); CREATE TABLE public.t (id public.pair PRIMARY KEY, ts date NOT NULL)",
        "different values equal",
    ),
    ("CREATE UNLOGGED TABLE public.t (id int PRIMARY KEY, ts date NOT NULL)", "UNLOGGED"),
    ("CREATE TABLE public.t (id int, ts date, PRIMARY KEY (id, ts)) PARTITION BY RANGE (ts)", "partitioned already"),
    ("{plain}; CREATE TABLE public.u (t int REFERENCES public.t)", "foreign keys of other tables"),
    ("{plain}; CREATE UNIQUE INDEX one ON public.t (v)", "UNIQUE indexes (one) do not hold ts"),
    ("{plain}; ALTER TABLE public.t ADD CONSTRAINT later UNIQUE (v, ts) DEFERRABLE", "keys (later) are deferrable"),
    ("{plain}; ALTER TABLE public.t ADD CHECK (v > 0) NO INHERIT", "NO INHERIT"),
    ("{plain}; CREATE MATERIALIZED VIEW public.m AS TABLE public.t", "materialized view public.m"),
    ("{plain}; CREATE FUNCTION public.f(public.t) RETURNS int LANGUAGE sql AS 'SELECT 1'", "function public.f"),
    ("{plain}; CREATE FUNCTION public.g() RETURNS bigint BEGIN ATOMIC SELECT count(*) FROM public.t; END", "public.g"),
    ("{plain}; CREATE VIEW public.w AS SELECT id, ts, v FROM public.t GROUP BY id", "depend on its primary key"),
    ("{plain}; CREATE VIEW public.r AS SELECT t FROM public.t", "public.r"),
    ("{plain}; CREATE RULE r AS ON DELETE TO public.t DO INSTEAD NOTHING", "rules (r)"),
    ("{plain}; CREATE PUBLICATION p FOR ALL TABLES", "publications (p)"),
    ("{plain}; CREATE PUBLICATION p FOR TABLE public.t", "publications (p)"),
    ("{plain}; CREATE TABLE public.kid () INHERITS (public.t)", "inherit from it"),
    ("{plain}; INSERT INTO public.t VALUES (1, '0001-01-01', 1)", "more than 1000 partitions"),
)


def test_what_cannot_be_partitioned_is_told_before_anything_changes(installed: str) -> None:
    plain = "CREATE TABLE public.t (id int PRIMARY KEY, ts date NOT NULL, v int)"
    for text, word in REFUSED:
        execute(installed, text.format(plain=plain))
        told = ""
        try:
            partition(installed, "public.t", Choice("ts", key=("id", "ts")))
        except RefusedError as error:
            told = str(error)
        assert word in told, text
        execute(installed, "DROP SCHEMA public CASCADE; CREATE SCHEMA public; DROP PUBLICATION IF EXISTS p")
        assert execute(installed, "SELECT count(*) FROM frostline.partitionings") == [(0,)]


def test_what_only_postgres_knows_is_found_by_the_rehearsal(installed: str) -> None:
    execute(installed, EVENTS + "CREATE TYPE public.pair AS (a int)")
    execute(
        installed,
        "CREATE FUNCTION public.no() RETURNS event_trigger LANGUAGE plpgsql AS $$ BEGIN"
        " RAISE EXCEPTION 'renaming is forbidden here'; END $$;"
        "CREATE VIEW public.seen AS TABLE public.events;"
        "CREATE EVENT TRIGGER no ON ddl_command_end WHEN TAG IN ('CREATE VIEW') EXECUTE FUNCTION public.no()",
    )
    with pytest.raises(RefusedError, match="renaming is forbidden here"):
        partition(installed, "public.events", BY_TS)
    assert nothing_left(installed)
    execute(installed, "DROP EVENT TRIGGER no")
    partition(installed, "public.events", BY_TS)


def bounds(dsn: str, table: str) -> dict[str, str]:
    return dict(
        execute(
            dsn,
            "SELECT relname, pg_get_expr(relpartbound, c.oid) FROM pg_inherits JOIN pg_class c ON c.oid = inhrelid"
            f" WHERE inhparent = '{table}'::regclass",
        )
    )


def test_periods_of_every_kind(installed: str) -> None:
    execute(
        installed,
        "CREATE TABLE public.n (id bigint PRIMARY KEY); INSERT INTO public.n VALUES (-5), (2500000);"
        "CREATE TABLE public.d (day date, k text, PRIMARY KEY (k, day));"
        "INSERT INTO public.d VALUES ('2024-03-31', 'a'), ('infinity', 'b'), ('1900-01-01', 'c');"
        "CREATE TABLE public.z (id int, at timestamptz, PRIMARY KEY (id, at));"
        "INSERT INTO public.z VALUES (1, '2026-01-31 23:30+00');"
        'CREATE TABLE public."Odd.t" ("K ey" int PRIMARY KEY, "T s" timestamp NOT NULL)',
    )
    partition(installed, "public.n", Choice("id", "1000000"))
    assert bounds(installed, "public.n")["n_n1000000"] == "FOR VALUES FROM ('-1000000') TO ('0')"
    assert len(bounds(installed, "public.n")) == 1 + 3 + 3 + 1
    done = partition(installed, "public.d", Choice("day", "quarter", since="2024-01-01"))
    assert bounds(installed, "public.d")["d_before"] == "FOR VALUES FROM (MINVALUE) TO ('2024-01-01')"
    assert bounds(installed, "public.d")["d_2024_01"] == "FOR VALUES FROM ('2024-01-01') TO ('2024-04-01')"
    assert done.in_default == 1
    partition(installed, "public.z", Choice("at", zone="Europe/Berlin"))
    execute(installed, "SET timezone = 'UTC'")
    assert "z_2026_02" in bounds(installed, "public.z")
    assert "z_2026_01" not in bounds(installed, "public.z")
    partition(installed, 'public."Odd.t"', Choice("T s", "week", ("K ey", "T s")))
    assert len(bounds(installed, 'public."Odd.t"')) == 5


def test_a_foreign_key_that_is_not_enforced_comes_along(installed: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if execute(installed, "SELECT current_setting('server_version_num')::int < 180000") == [(True,)]:
        pytest.skip("every constraint is enforced before 18")
    execute(
        installed,
        "CREATE TABLE public.dim (k int PRIMARY KEY);"
        "CREATE TABLE public.t (id int, ts date, k int CONSTRAINT to_dim REFERENCES public.dim NOT ENFORCED,"
        " PRIMARY KEY (id, ts));"
        "INSERT INTO public.t VALUES (1, '2024-03-15', 7)",
    )

    def stop(point: str) -> None:
        if point == "partition.swapped":
            raise RuntimeError("enough")

    with monkeypatch.context() as patched:
        patched.setattr(run, "reached", stop)
        with pytest.raises(RuntimeError, match="enough"):
            partition(installed, "public.t", Choice("ts", "year"))
    partition(installed, "public.t", Choice("ts", "year"), drop_old=True)
    # Each partition has the one of the table, and none of its own.
    keys = (
        "SELECT conname, conenforced, count(*) FILTER (WHERE conparentid = 0), count(*) FILTER (WHERE conparentid <> 0)"
        " = (SELECT count(*) FROM pg_inherits WHERE inhparent = 'public.t'::regclass)"
        " FROM pg_constraint WHERE contype = 'f' AND confrelid = 'public.dim'::regclass GROUP BY 1, 2"
    )
    assert execute(installed, keys) == [("to_dim", False, 1, True)]
    assert execute(installed, "TABLE public.t") == [(1, date(2024, 3, 15), 7)]
    assert nothing_left(installed)


@pytest.mark.parametrize(
    ("type_", "values", "period", "expected"),
    [
        ("smallint", "(1), (25000)", "10000", ("t_30000", "FOR VALUES FROM ('30000') TO (MAXVALUE)")),
        ("int", "(1), (2147483600)", "900000000", ("t_1800000000", "FOR VALUES FROM (1800000000) TO (MAXVALUE)")),
        (
            "int",
            "(-2147483648)",
            "900000000",
            ("t_n2147483648", "FOR VALUES FROM ('-2147483648') TO (-1800000000)"),
        ),
        ("bigint", "(9223372036854775807), (-9223372036854775808)", "1" + "0" * 18, ("t_default", "DEFAULT")),
    ],
)
def test_keys_at_the_end_of_their_type(
    installed: str, type_: str, values: str, period: str, expected: tuple[str, str]
) -> None:
    execute(installed, f"CREATE TABLE public.t (id {type_} PRIMARY KEY); INSERT INTO public.t VALUES {values}")
    rows = execute(installed, "SELECT * FROM public.t ORDER BY id")
    assert partition(installed, "public.t", Choice("id", period)).in_default == 0
    assert execute(installed, "SELECT * FROM public.t ORDER BY id") == rows
    name, range_ = expected
    assert bounds(installed, "public.t")[name].replace("'", "") == range_.replace("'", "")


def test_what_no_calendar_holds_is_told_in_words(installed: str) -> None:
    execute(
        installed,
        "CREATE TABLE public.t (id int, at timestamptz, PRIMARY KEY (id, at));"
        "CREATE TABLE public.d (id int, day date, PRIMARY KEY (id, day));"
        "INSERT INTO public.t VALUES (1, '0044-03-15 BC'), (2, '2024-03-15');"
        "INSERT INTO public.d VALUES (1, '4713-01-01 BC'), (2, '2024-03-15'), (3, '5874897-12-31')",
    )
    for zone in ("Europe/Berln", "Europe", "../UTC", ""):
        with pytest.raises(ConfigError, match=f"--zone '{zone}' is no time zone"):
            partition(installed, "public.t", Choice("at", zone=zone))
    for since in ("-infinity", "infinity", "9999-01-01", "yesteryear"):
        with pytest.raises(ConfigError, match=f"--since '{since}' is no timestamptz"):
            partition(installed, "public.t", Choice("at", since=since))
    for table, column in (("public.t", "at"), ("public.d", "day")):
        for choice in (Choice(column), Choice(column, "week"), Choice(column, since="0044-01-01 BC")):
            with pytest.raises(RefusedError, match="from before the year 1000 on") as told:
                partition(installed, table, choice)
            assert "--since DATE" in str(told.value)
    with pytest.raises(RefusedError, match="from before the year 1000 on"):
        partition(installed, "public.t", Choice("at", "hour"))
    assert nothing_left(installed)
    assert partition(installed, "public.t", Choice("at", since="2020-01-01")).in_default == 0
    assert execute(installed, "SELECT id FROM public.t_before") == [(1,)]
    assert partition(installed, "public.d", Choice("day", "year", since="2020-01-01")).in_default == 1
    assert execute(installed, "SELECT id FROM public.d_default") == [(3,)]


def test_a_key_may_have_any_name(installed: str, monkeypatch: pytest.MonkeyPatch) -> None:
    execute(
        installed,
        'CREATE TABLE public.t (_seq int, "$body$" int, ts date, v int, PRIMARY KEY (_seq, "$body$", ts));'
        "INSERT INTO public.t SELECT i, i, '2024-03-15', 0 FROM generate_series(1, 9) i",
    )
    change = "UPDATE public.t SET v = 1 WHERE _seq = 2; DELETE FROM public.t WHERE _seq > 3"
    while_it_copies(monkeypatch, "partition.batch", lambda: execute(installed, change))
    partition(installed, "public.t", Choice("ts", "year"))
    assert execute(installed, "SELECT _seq, v FROM public.t ORDER BY 1") == [(1, 0), (2, 1), (3, 0)]
    assert nothing_left(installed)


def test_long_names_that_begin_alike_stay_apart(server: str) -> None:
    """Beside them the table as it was is kept, with its keys, indexes and sequences, under names that are cut."""
    name = "x" * 58
    execute(
        server,
        f'CREATE TABLE public."{name}" (id serial, ts date, v int, PRIMARY KEY (id, ts));'
        f'CREATE INDEX "{name}1" ON public."{name}" (v); CREATE INDEX "{name}2" ON public."{name}" (ts);'
        f'ALTER TABLE public."{name}" ADD n int GENERATED ALWAYS AS IDENTITY;'
        f"""INSERT INTO public."{name}" (ts, v) SELECT '2024-03-15', i FROM generate_series(1, 9) i""",
    )
    done = partition(server, f'public."{name}"', Choice("ts", "year"))
    indexes = "SELECT count(*) FROM pg_indexes WHERE tablename = '{}'"
    assert execute(server, indexes.format(name)) == execute(server, indexes.format(done.plan.kept)) == [(3,)]
    assert execute(server, f'INSERT INTO public."{name}" (ts) VALUES (now()) RETURNING id, n') == [(10, 10)]


def test_keys_are_constraints_afterwards_and_hold_what_they_held(server: str) -> None:
    execute(
        server,
        "CREATE TABLE public.t (id int, ts date, v int, w int, PRIMARY KEY (id) INCLUDE (w, ts),"
        " CONSTRAINT once UNIQUE (v, ts) INCLUDE (w) WITH (fillfactor = 70));"
        "COMMENT ON CONSTRAINT once ON public.t IS 'only once';"
        "INSERT INTO public.t SELECT i, '2024-03-15', i, 0 FROM generate_series(1, 9) i",
    )
    execute(server, "ALTER TABLE public.t ALTER ts SET NOT NULL")
    definition = "SELECT conname, pg_get_constraintdef(oid) FROM pg_constraint WHERE conrelid = 'public.t'::regclass"
    definition += " AND contype IN ('p', 'u') ORDER BY 1"
    once = ("once", "UNIQUE (v, ts) INCLUDE (w)")
    assert execute(server, definition) == [once, ("t_pkey", "PRIMARY KEY (id) INCLUDE (w, ts)")]
    partition(server, "public.t", Choice("ts", "year", key=("id", "ts")))
    assert execute(server, definition) == [once, ("t_pkey", "PRIMARY KEY (id, ts) INCLUDE (w)")]
    again = (
        "INSERT INTO public.t VALUES (10, '2024-03-15', 3, 0) ON CONFLICT ON CONSTRAINT once DO NOTHING RETURNING id"
    )
    assert execute(server, again) == []
    comment = "SELECT obj_description(oid, 'pg_constraint') FROM pg_constraint WHERE conname = 'once'"
    assert execute(server, comment + " AND conparentid = 0") == [("only once",)]
    assert execute(server, "SELECT reloptions FROM pg_class WHERE relname = 'once'") == [(["fillfactor=70"],)]


def test_a_key_without_overlaps_is_no_ordinary_one(installed: str) -> None:
    execute(
        installed,
        "CREATE EXTENSION btree_gist;"
        "CREATE TABLE public.t (id int, ts date NOT NULL, span daterange, PRIMARY KEY (id, span WITHOUT OVERLAPS))",
    )
    with pytest.raises(RefusedError, match=r"exclusion constraints \(t_pkey\) cannot be kept across partitions"):
        partition(installed, "public.t", Choice("ts", key=("id", "span", "ts")))


def test_the_command_asks_for_consent_to_a_new_key(installed: str, frostline: Run) -> None:
    execute(installed, EVENTS)
    base = ("--dsn", installed, "partition", "public.events")
    told = frostline(*base, "--by", "ts")
    failed_clearly(told, "public.events cannot be partitioned as it is")
    assert "--key id,ts" in told.stderr
    dry = frostline(*base, "--by", "ts", "--key", "id, ts", "--dry-run")
    assert dry.returncode == 0, dry.stderr
    assert "CREATE TABLE" in dry.stdout
    assert "the primary key is (id, ts)" in dry.stdout
    assert nothing_left(installed)


def test_under_any_name_and_told_how_to_go_on_so_that_it_can_be_pasted(
    installed: str, monkeypatch: pytest.MonkeyPatch, frostline: Run, request: pytest.FixtureRequest
) -> None:
    role = f'"we{{ird}} %s {uuid.uuid4().hex[:6]}"'
    table = '"S.%s{0}"."T ""{x}%d"'
    execute(
        installed,
        f"""CREATE ROLE {role}; CREATE SCHEMA "S.%s{{0}}"; GRANT ALL ON SCHEMA "S.%s{{0}}" TO {role};
        CREATE TABLE {table} ("I,d" int PRIMARY KEY, "T ""s" date NOT NULL, v serial,
                              n int GENERATED ALWAYS AS IDENTITY);
        INSERT INTO {table} SELECT i, '2024-03-15' FROM generate_series(1, 9) i;
        GRANT SELECT, UPDATE (v) ON {table} TO {role};
        CREATE POLICY "p{{}}" ON {table} TO {role} USING (v > 0);
        CREATE VIEW "S.%s{{0}}"."v{{}}" AS SELECT v FROM {table}; ALTER VIEW "S.%s{{0}}"."v{{}}" OWNER TO {role};
        GRANT USAGE ON SEQUENCE "S.%s{{0}}"."T ""{{x}}%d_n_seq" TO {role}""",
    )
    request.addfinalizer(lambda: execute(installed, f"DROP OWNED BY {role} CASCADE; DROP ROLE {role}"))
    begin = ["partition", table, "--by", 'T "s', "--period", "year"]
    told = frostline("--dsn", installed, *begin)
    failed_clearly(told, "cannot be partitioned as it is")
    key = shlex.split(told.stderr.rpartition("--key ")[2])[0]

    def interrupt() -> None:
        raise KeyboardInterrupt

    while_it_copies(monkeypatch, "partition.batch", interrupt)
    with pytest.raises(KeyboardInterrupt):
        partition(installed, table, Choice('T "s', "year", ("I,d", 'T "s')))
    told = frostline("--dsn", installed, *begin)
    failed_clearly(told, "is being partitioned otherwise")
    command_ = told.stderr.partition("hint:")[2].partition(" goes on with that")[0]
    assert frostline("--dsn", installed, *shlex.split(command_)[1:], "--abandon").returncode == 0
    assert frostline("--dsn", installed, *begin, "--key", key).returncode == 0
    assert execute(installed, f"SELECT count(*) FROM {table}") == [(9,)]
    grants = "SELECT count(*) FROM pg_class c, aclexplode(relacl) a WHERE c.oid = {}::regclass AND grantee <> relowner"
    assert execute(installed, grants.replace("{}", f"'{table}'")) == [(1,)]


def test_what_is_said_next_can_be_pasted(world: World, frostline: Run) -> None:
    world.run(
        'CREATE SCHEMA "S.x";'
        'CREATE TABLE "S.x"."E\'v" (id int, ts date, PRIMARY KEY (id, ts)) PARTITION BY RANGE (ts);'
        """CREATE TABLE "S.x".e1 PARTITION OF "S.x"."E'v" FOR VALUES FROM ('2020-01-01') TO ('2020-02-01')"""
    )
    told = frostline("--dsn", world.dsn, "list", '"S.x"."E\'v"')
    hint = shlex.split(told.stderr.partition("register it first: ")[2])
    told = frostline("--dsn", world.dsn, *hint[1:])
    assert told.returncode == 0
    assert shlex.split(told.stderr.rpartition("Next: ")[2]) == ["frostline", "archive", '"S.x"."E\'v"']
    told = frostline("--dsn", world.dsn, "uninstall")
    assert shlex.split(told.stderr.partition("first: ")[2]) == ["frostline", "unregister", '"S.x"."E\'v"']


def test_a_plain_table_comes_into_the_lake(world: World) -> None:
    world.run(EVENTS + "ALTER TABLE public.events ADD n int GENERATED ALWAYS AS IDENTITY")
    rows = world.run("SELECT * FROM public.events ORDER BY id")
    partition(world.dsn, "public.events", Choice("ts", "year", ("id", "ts")), drop_old=True)
    world.register("public.events")
    assert sum(one.rows for one in world.archive("public.events")) == 4000
    assert world.run("SELECT * FROM public.events ORDER BY id") == rows
