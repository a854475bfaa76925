"""Real archive runs under open transactions: a period is seen before or after, never missing or doubled, or 40001."""

from __future__ import annotations

import random
import re
import threading
from collections.abc import Callable
from typing import Any

import psycopg
import pytest

from fix_cluster import wait_until
from fix_tiering import World

TABLE = """
CREATE TABLE public.{0} (id bigint, ts timestamptz NOT NULL, v int NOT NULL, PRIMARY KEY (id, ts))
    PARTITION BY RANGE (ts);
CREATE TABLE public.{0}_01 PARTITION OF public.{0} FOR VALUES FROM ('2020-01-01') TO ('2020-02-01');
CREATE TABLE public.{0}_02 PARTITION OF public.{0} FOR VALUES FROM ('2020-02-01') TO ('2020-03-01');
CREATE TABLE public.{0}_now PARTITION OF public.{0} FOR VALUES FROM ('2020-03-01') TO (MAXVALUE);
INSERT INTO public.{0} SELECT i, timestamptz '2020-01-01' + i * interval '1 h', i FROM generate_series(0, 1999) i;
ANALYZE public.{0};
"""
ALL = "SELECT count(*), sum(v) FROM public.events"
EXPECTED = (2000, 1999000)
COLD = "SELECT count(*) FROM public.others WHERE ts < '2020-02-01'"  # opens the session's view of the cold tier
Connection = psycopg.Connection[Any]


def _begun(world: World, level: str, *statements: str) -> Connection:
    """A session in a transaction that has read cold rows of another table."""
    connection = world.connect()
    connection.execute("PREPARE all_events AS " + ALL)
    connection.execute("SET plan_cache_mode = force_generic_plan")
    assert connection.execute("EXECUTE all_events").fetchone() == EXPECTED
    connection.execute(f"BEGIN ISOLATION LEVEL {level}")
    for statement in statements:
        connection.execute(statement)
    return connection


CURSOR = "DECLARE c CURSOR FOR SELECT id FROM public.others WHERE ts < '2020-02-01'"
ROLLED_BACK = ("SAVEPOINT s", f"{ALL} WHERE ts < '2020-03-01'", "ROLLBACK TO s", COLD)
# What a transaction did before the archive run, and whether it may go on after it.
BEFORE: dict[str, tuple[str, tuple[str, ...], bool]] = {
    "committed, cold read": ("READ COMMITTED", (COLD,), True),
    "committed, nothing read": ("READ COMMITTED", ("SELECT 1",), True),
    "committed, cursor open": ("READ COMMITTED", (CURSOR, "FETCH 1 FROM c"), False),
    "committed, cursor closed": ("READ COMMITTED", (CURSOR, "FETCH 1 FROM c", "CLOSE c"), True),
    "committed, savepoint": ("READ COMMITTED", ROLLED_BACK, True),
    "repeatable, cold read": ("REPEATABLE READ", (COLD,), False),
    "repeatable, snapshot only": ("REPEATABLE READ", ("SELECT count(*) FROM pg_class",), True),
    "repeatable, savepoint": ("REPEATABLE READ", ROLLED_BACK, False),
    "repeatable, pinned": ("REPEATABLE READ", ("SELECT frostline.pin()",), False),
    "serializable, cold read": ("SERIALIZABLE", (COLD,), False),
    "serializable, snapshot only": ("SERIALIZABLE", ("SELECT count(*) FROM pg_class",), True),
}


def test_every_kind_of_transaction_that_was_open_when_a_period_was_archived(any_world: World) -> None:
    any_world.run(TABLE.format("events") + TABLE.format("others"))
    any_world.register("public.others")
    any_world.archive("public.others")
    any_world.register("public.events")
    sessions = {name: _begun(any_world, level, *did) for name, (level, did, _) in BEFORE.items()}
    assert [one.rows for one in any_world.archive("public.events")] == [744, 696]
    _reads_on_what_did_not_move(any_world, sessions["repeatable, pinned"])
    found: dict[str, object] = {}
    for name, connection in sessions.items():
        try:
            found[name] = connection.execute("EXECUTE all_events").fetchone()
            assert connection.execute(ALL).fetchone() == found[name]
            connection.execute("COMMIT")
        except psycopg.errors.SerializationFailure:
            found[name] = None
            connection.execute("ROLLBACK")
    assert found == {name: EXPECTED if goes_on else None for name, (_, _, goes_on) in BEFORE.items()}
    for connection in sessions.values():
        assert connection.execute("EXECUTE all_events").fetchone() == EXPECTED
    _a_table_registered_since(any_world)


def _reads_on_what_did_not_move(world: World, pinned: Connection) -> None:
    """Another table's cold rows and this one's hot ones, as they were when the transaction was pinned."""
    recent = "FROM public.events WHERE ts >= '2020-03-01'"
    world.run("UPDATE public.events SET v = v + 1 WHERE ts >= '2020-03-01'")
    assert pinned.execute(COLD).fetchone() == (744,)
    assert pinned.execute(f"SELECT sum(v) {recent}").fetchone() == (962920,)
    assert world.run(f"SELECT sum(v) {recent}") == [(963480,)]
    world.run("UPDATE public.events SET v = v - 1 WHERE ts >= '2020-03-01'")


def _a_table_registered_since(world: World) -> None:
    """An older snapshot knows nothing of its cold rows, and says so in a way that is tried again."""
    world.run(TABLE.format("late"))
    write = "UPDATE public.others SET v = v WHERE ts = '2020-01-05'"
    kinds = (("REPEATABLE READ", COLD), ("REPEATABLE READ", "SELECT frostline.pin()"), ("READ COMMITTED", write))
    sessions = [_begun(world, level, statement) for level, statement in kinds]
    world.register("public.late")
    for connection in sessions:
        with pytest.raises(psycopg.errors.SerializationFailure):
            connection.execute("SELECT count(*), sum(v) FROM public.late")
        connection.execute("ROLLBACK")
        assert connection.execute("SELECT count(*), sum(v) FROM public.late").fetchone() == EXPECTED


class Racing:
    """Threads that work until told to stop, and say what went wrong."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.stop = threading.Event()
        self.wrong: list[object] = []
        self.done: dict[str, int] = {}
        self._threads: list[threading.Thread] = []

    def start(self, name: str, step: Callable[[Connection], None]) -> None:
        def work() -> None:
            with psycopg.connect(self.world.dsn, autocommit=True) as connection:
                while not self.stop.is_set():
                    try:
                        step(connection)
                        self.done[name] = self.done.get(name, 0) + 1
                    except psycopg.errors.SerializationFailure:
                        self.done[f"{name}, retried"] = self.done.get(f"{name}, retried", 0) + 1
                        connection.execute("ROLLBACK")
                    except Exception as error:
                        self.wrong.append((name, error))
                        return

        self.done[name] = 0
        self._threads.append(threading.Thread(target=work))
        self._threads[-1].start()

    def finish(self, more: int) -> None:
        """Let everybody do some more after the run, then end."""
        before = {name: done for name, done in self.done.items() if "retried" not in name}
        try:
            wait_until(
                lambda: bool(self.wrong) or all(self.done[n] >= done + more for n, done in before.items()),
                120,
                "everybody goes on",
            )
        finally:
            self._end()

    def _end(self) -> None:
        self.stop.set()
        for thread in self._threads:
            thread.join(30)
        assert self.wrong == []


def _reader(racing: Racing, level: str) -> Callable[[Connection], None]:
    def step(connection: Connection) -> None:
        connection.execute(f"BEGIN ISOLATION LEVEL {level}")
        connection.execute(COLD)
        for _ in range(2):
            found = connection.execute(ALL).fetchone()
            if found != EXPECTED:
                racing.wrong.append((level, found))
        connection.execute("COMMIT")

    return step


def test_readers_that_never_pause_see_every_row_once(any_world: World) -> None:
    any_world.run(TABLE.format("events") + TABLE.format("others"))
    any_world.register("public.others")
    any_world.archive("public.others")
    any_world.register("public.events")
    racing = Racing(any_world)
    for level in ("READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"):
        racing.start(level, _reader(racing, level))
    try:
        assert len(any_world.archive("public.events")) == 2
    finally:
        racing.finish(more=3)
    assert "READ COMMITTED, retried" not in racing.done or racing.done["READ COMMITTED"] > 0


def _transfer(transferred: list[int]) -> Callable[[Connection], None]:
    """One row gives to another, anywhere in the table, hot or cold; a transaction that is overtaken is given up."""

    def step(connection: Connection) -> None:
        one, two = random.sample(range(2000), 2)
        try:
            with connection.transaction():
                for row, change in ((one, -7), (two, 7)):
                    done = connection.execute("UPDATE public.events SET v = v + %s WHERE id = %s", [change, row])
                    assert done.rowcount == 1
            transferred[0] += 1
        except (psycopg.errors.SerializationFailure, psycopg.errors.ObjectNotInPrerequisiteState):
            pass

    return step


def _pinned(racing: Racing) -> Callable[[Connection], None]:
    def step(connection: Connection) -> None:
        connection.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
        connection.execute("SELECT frostline.pin()")
        first = connection.execute("SELECT id, v FROM public.events ORDER BY id").fetchall()
        total = sum(v for _, v in first)
        if (len(first), total) != EXPECTED:
            racing.wrong.append((len(first), total))
        if connection.execute(ALL).fetchone() != EXPECTED:
            racing.wrong.append("second read")
        connection.execute("COMMIT")

    return step


def test_a_pinned_total_is_constant_under_transfers_and_archiving(any_world: World) -> None:
    any_world.run(TABLE.format("events"))
    any_world.register("public.events")
    racing, transferred = Racing(any_world), [0]
    racing.start("pinned", _pinned(racing))
    racing.start("transfer", _transfer(transferred))
    try:
        assert len(any_world.archive("public.events")) == 2
        wait_until(lambda: bool(racing.wrong) or transferred[0] > 20, 120, "they have moved something")
    finally:
        racing.finish(more=5)
    moved = any_world.run("SELECT count(*) FROM public.events WHERE v <> id")
    assert moved[0][0] > 20


@pytest.mark.parametrize("any_world", ["18"], indirect=True)  # the gateway's business alone
def test_a_bare_count_reads_no_file_and_is_exact(any_world: World) -> None:
    """It is known from the files' row counts, where all of their rows count and none has changed."""
    world = any_world
    world.run(TABLE.format("events"))
    world.register("public.events")
    world.archive("public.events")
    connection = world.connect()

    def count(table: str = "events_01") -> int:
        row = connection.execute(f"SELECT count(*) FROM public.{table}").fetchone()
        assert row is not None
        return int(row[0])

    def read() -> int:
        found = re.search(r'queries_total\{path="duckdb"\} (\d+)', world.gateway._metrics.text())
        return int(found[1]) if found else 0

    before = read()
    assert (count(), count("events_02"), count("events_before")) == (744, 696, 0)
    assert read() == before
    # A part of a file's rows has to be read.
    ((options,),) = world.run("SELECT ftoptions FROM pg_foreign_table WHERE ftrelid = 'public.events_01'::regclass")
    (schema,) = [option.partition("=")[2] for option in options if option.startswith("schema_name=")]
    ((server,),) = world.run("SELECT quote_ident(srvname) FROM pg_foreign_server")
    connection.execute(
        f"CREATE FOREIGN TABLE public.part (id bigint, ts timestamptz, v int) SERVER {server}"
        f" OPTIONS (schema_name '{schema}', table_name 'from 2020-01-11 00:00:00+00 to 2020-01-12 00:00:00+00')"
    )
    assert count("part") == 24
    assert read() == before + 1
    # One row is gone, one has changed, two are new.
    for id_, op in ((1, "T"), (2, "U"), (3000, "U"), (3001, "U")):
        connection.execute(
            "INSERT INTO frostline_delta.events_1 (id, ts, v, _op, _seq, _prev)"
            " VALUES (%s, timestamptz '2020-01-01' + %s * interval '1 h', 0, %s, %s, 0)",
            (id_, id_ % 1000, op, id_),
        )
    assert (count(), count("events_02")) == (745, 696)


class Asked:
    """A session, and who has answered it."""

    def __init__(self, world: World) -> None:
        self.connection, self._gateway = world.connect(), world.gateway

    def rows(self, where: str, columns: str = "v, id") -> tuple[list[tuple[Any, ...]], list[str]]:
        before = self._counts()
        rows = self.connection.execute(f"SELECT {columns} FROM public.events WHERE {where}").fetchall()
        return rows, [path for path, count in self._counts().items() if count > before.get(path, 0)]

    def _counts(self) -> dict[str, int]:
        found = re.findall(r'queries_total\{path="(\w+)"\} (\d+)', self._gateway._metrics.text())
        return {path: int(count) for path, count in found}


@pytest.fixture
def asked(any_world: World) -> Asked:
    any_world.run(TABLE.format("events"))
    any_world.register("public.events")
    any_world.archive("public.events")
    return Asked(any_world)


@pytest.mark.parametrize("any_world", ["18"], indirect=True)  # the gateway's business alone
def test_rows_between_two_values_are_read_from_their_file(any_world: World, asked: Asked) -> None:
    assert asked.rows("id = 700 AND ts >= '2020-01-02' AND ts < '2020-02-01'") == ([(700, 700)], ["file"])
    assert asked.rows("id = 700 AND ts >= '2020-01-02' AND ts < '2020-01-03'") == ([], ["file"])
    hours = "ts > '2020-01-03 00:00Z' AND ts <= '2020-01-03 05:00Z' AND id"
    some = any_world.run(f"SELECT v, id FROM public.events WHERE {hours} + 0 > 0")
    assert len(some) == 5
    assert asked.rows(f"{hours} BETWEEN 0 AND 1000000") == (some, ["file"])
    assert asked.rows(f"{hours} > {some[-1][1]}") == ([], ["file"])
    days = "ts >= '2020-01-03' AND ts < '2020-01-19' AND id"
    many = any_world.run(f"SELECT v, id FROM public.events WHERE {days} + 0 > 0")
    assert len(many) == 16 * 24  # so many that their texts are made a column at once
    assert asked.rows(f"{days} BETWEEN 0 AND 1000000") == (many, ["file"])
    ((server,),) = any_world.run("SELECT quote_ident(srvname) FROM pg_foreign_server")
    any_world.run(f"ALTER SERVER {server} OPTIONS (SET fetch_size '100')")
    assert asked.rows(f"{days} BETWEEN 0 AND 1000000") == (many, ["file"])
    again = f"SELECT n, v, id FROM generate_series(1, 2) n CROSS JOIN LATERAL (SELECT * FROM public.events WHERE {days}"
    twice = asked.connection.execute(f"{again} BETWEEN n - n AND 1000000 OFFSET 0) e").fetchall()
    assert twice == [(n, *row) for n in (1, 2) for row in many]
    with asked.connection.transaction():
        asked.connection.execute(
            f"DECLARE c CURSOR FOR SELECT v, id FROM public.events WHERE {days} BETWEEN 0 AND 1000000"
        )
        fetched = [asked.connection.execute("FETCH 100 FROM c").fetchall() for _ in range(5)]
        assert [row for rows in fetched for row in rows] == many
    assert asked.rows(f"{hours} + 0 > 0") == (some, ["duckdb"])
    with asked.connection.transaction(force_rollback=True):
        assert asked.connection.execute(f"DELETE FROM public.events WHERE {hours} = {some[2][1]}").rowcount == 1
        assert asked.rows(f"{hours} BETWEEN 0 AND 1000000")[0] == [*some[:2], *some[3:]]


@pytest.mark.parametrize("any_world", ["18"], indirect=True)  # the gateway's business alone
def test_many_rows_between_two_values_are_of_the_types_that_columns_have_now(any_world: World) -> None:
    """A real is another text as a double, as which Postgres reads it once the column is one."""
    any_world.run(
        TABLE.format("events") + "; ALTER TABLE public.events ADD COLUMN r real; UPDATE public.events SET r = id / 10.0"
    )
    any_world.register("public.events")
    any_world.archive("public.events")
    any_world.run("ALTER TABLE public.events ALTER COLUMN r TYPE double precision, ALTER COLUMN v TYPE bigint")
    asked = Asked(any_world)
    read = "ts >= '2020-01-01' AND ts < '2020-02-01' AND {} BETWEEN 1 AND 600"
    found, path = asked.rows(read.format("id"), "r, v, id")
    assert (len(found), path, found[0][0]) == (600, ["file"], 0.10000000149011612)
    assert asked.rows(read.format("id + 0"), "r, v, id") == (found, ["duckdb"])


@pytest.mark.parametrize("any_world", ["18"], indirect=True)  # the gateway's business alone
def test_a_look_up_is_read_from_its_file_until_its_row_has_changed(any_world: World, asked: Asked) -> None:
    def at(id_: int) -> str:
        return f"id = {id_} AND ts = timestamptz '2020-01-01' + {id_} * interval '1 h'"

    def moment(id_: int) -> str:
        ((text,),) = any_world.run(f"SELECT (timestamptz '2020-01-01' + {id_} * interval '1 h')::text")
        return f"id = {id_} AND ts = '{text}'"

    connection = asked.connection
    assert asked.rows(moment(700)) == ([(700, 700)], ["file"])
    assert asked.rows(moment(700).replace("700", "701")) == ([], ["file"])  # one column fits, the other does not
    assert asked.rows("id = 700 AND id = 701 AND ts < '2020-02-01'")[0] == []
    assert set(asked.rows("id = 1000")[1]) == {"file", "known"}
    assert asked.rows(at(1000))[0] == [(1000, 1000)]
    for change, rows, path in (
        ("UPDATE public.events SET v = -1", [(-1, 700)], "delta"),
        ("DELETE FROM public.events", [], "file"),
    ):
        with connection.transaction(force_rollback=True):
            assert connection.execute(f"{change} WHERE {moment(700)}").rowcount == 1
            assert asked.rows(moment(700)) == (rows, [path])
            assert asked.rows(f"{moment(700)} AND v = 700") == ([], ["duckdb"])
            assert asked.rows(moment(702)) == ([(702, 702)], ["file"])
        assert asked.rows(moment(700)) == ([(700, 700)], ["file"])
    connection.execute(f"UPDATE public.events SET v = v + 1 WHERE {moment(700)}")
    assert asked.rows(moment(700)) == ([(701, 700)], ["delta"])
    assert asked.rows(moment(703)) == ([(703, 703)], ["file"])
    connection.execute(f"UPDATE public.events SET v = v + 1 WHERE {moment(700)} AND v = 700")
    assert asked.rows(moment(700)) == ([(701, 700)], ["delta"])
    connection.execute(f"DELETE FROM public.events WHERE {moment(700)} AND v = 701")
    assert asked.rows(moment(700)) == ([], ["file"])


KEYED = """
CREATE TABLE public.keyed ("D ay" date, "I""d" int, at timestamp, big bigint, c char(4), n numeric(6, 2), w interval,
    PRIMARY KEY ("D ay", "I""d", at, big)) PARTITION BY RANGE ("D ay");
CREATE TABLE public.keyed_old PARTITION OF public.keyed FOR VALUES FROM ('0100-01-01 BC') TO ('2020-01-01');
CREATE TABLE public.keyed_now PARTITION OF public.keyed FOR VALUES FROM ('2020-01-01') TO (MAXVALUE);
INSERT INTO public.keyed SELECT d, i, t, b, 'x', 1.5, '1 month 2 days'
FROM unnest('{0044-03-15 BC, 1969-12-31, 2019-12-31}'::date[]) d, unnest('{-2147483648, 7}'::int[]) i,
    unnest('{0044-03-15 01:02:03.000004 BC, 1969-12-31 23:59:59.999999, 2019-12-31}'::timestamp[]) t,
    unnest('{-9223372036854775808, 5}'::bigint[]) b;
CREATE TABLE public.plain AS SELECT * FROM public.keyed;
"""


@pytest.mark.parametrize("any_world", ["18"], indirect=True)  # the gateway's business alone
def test_changed_rows_are_found_by_keys_of_every_whole_type(any_world: World) -> None:
    world = any_world
    world.run(KEYED)
    world.register("public.keyed")
    world.archive("public.keyed")
    connection = world.connect()
    texts = connection.execute('SELECT "D ay"::text, "I""d"::text, at::text, big::text FROM public.plain').fetchall()
    names = ('"D ay"', '"I""d"', "at", "big")
    wheres = [" AND ".join(f"{n} = '{v}'" for n, v in zip(names, row, strict=True)) for row in texts]
    assert len(wheres) == 36

    for turn in range(2):
        for number, where in enumerate(wheres):
            update = f"UPDATE {{}} SET n = n * 2, w = w * 2, c = 't{turn}'"
            changed, wanted = (
                connection.execute(f"{statement.format(table)} WHERE {where}").rowcount
                for statement in ["DELETE FROM {}" if number % 6 == turn else update]
                for table in ("public.keyed", "public.plain")
            )
            assert changed == wanted == (0 if turn and number % 6 == 0 else 1)
            found, expected = (
                connection.execute(f"SELECT x::text FROM {table} x WHERE {where}").fetchall()
                for table in ("public.keyed", "public.plain")
            )
            assert found == expected
    assert connection.execute(
        "SELECT count(*) FROM ((TABLE public.keyed EXCEPT TABLE public.plain)"
        " UNION ALL (TABLE public.plain EXCEPT TABLE public.keyed)) d"
    ).fetchone() == (0,)
