"""Many new old rows at once: they go into files of the lake, and nobody can tell."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest

from faults.stage import wait_until
from fix_faults import at
from fix_tiering import World
from integration.writes.pair import Pair
from integration.writes.test_isolation import LEVELS, open_at

NEW = """
INSERT INTO {t} (id, ts, i, n, f, t, v, c, b, d, u, y, j, a, m, p, k)
SELECT x, timestamptz '2026-01-01 00:30Z' + (x % 1400) * interval '1 hour',
       nullif(x % 17, 3), x * 1.5, x / 3.0, E'new\\t\\n\\\\N' || x, 'v' || x % 9, 'c' || x % 7, x % 2 = 0,
       date '2026-01-01' + x % 40, md5(x::text)::uuid, decode('00ff5c', 'hex'), jsonb_build_object('x', x),
       ARRAY[x, NULL], (ARRAY['sad', 'ok', 'happy'])[1 + x % 3]::mood, 1 + x % 5, x % 10
FROM generate_series({first}, {last}) x
"""


def new(first: int, last: int) -> str:
    """Rows of these numbers, in January and February."""
    return NEW.replace("{first}", str(first)).replace("{last}", str(last))


def staged(world: World) -> int:
    """Rows in files that Iceberg does not know yet."""
    return int(world.run("SELECT coalesce(sum(rows), 0)::int FROM frostline.staged_files")[0][0])


def on_disk(world: World) -> set[str]:
    return {path.name for path in world.directory("bulk").rglob("staged-*.parquet")}


def known(world: World) -> set[str]:
    return {Path(path).name for (path,) in world.run("SELECT path FROM frostline.staged_files")}


@pytest.fixture
def client(bulk: Pair) -> psycopg.Connection[Any]:
    connection = bulk.world.connect()
    connection.execute("SET timezone = 'Asia/Kathmandu'")
    return connection


def test_new_rows_are_read_changed_and_taken_back_like_any_other(bulk: Pair) -> None:
    before = staged(bulk.world)
    bulk.same(
        [
            new(1000, 1999),
            "SELECT count(*), sum(i), min(ts), max(n) FROM {t} WHERE ts < '2026-11-01Z'",
            "UPDATE {t} SET t = 'changed', i = i + 1 WHERE id BETWEEN 1100 AND 1120",
            "DELETE FROM {t} WHERE id BETWEEN 1115 AND 1130 RETURNING id, t",
            "SAVEPOINT a",
            new(3000, 3200),
            "UPDATE {t} SET i = 1 WHERE id = 3100 AND ts < '2026-11-01Z'",
            "ROLLBACK TO SAVEPOINT a",
            "SELECT count(*) FROM {t} WHERE id >= 3000",
            new(3000, 3200),
            "DELETE FROM {t} WHERE id = 3100",
            new(1500, 1600),  # 23505: in a file of this transaction
            new(1115, 1180),  # the same: some were deleted, some are there
            new(1118, 1119),  # free again
            "SELECT * FROM {t} WHERE id IN (1105, 1117, 1118, 3001, 3100)",
        ],
        commit=True,
    )
    assert staged(bulk.world) - before == 1201
    assert on_disk(bulk.world) == known(bulk.world)


@pytest.mark.parametrize(
    "statement",
    [
        "INSERT INTO {t} (id, ts) SELECT 4000 + x % 70, '2026-01-09Z' FROM generate_series(1, 80) x",
        "INSERT INTO {t} (id, ts) SELECT x, timestamptz '2026-01-01 00:00Z' + x * interval '1 hour'"
        " FROM generate_series(100, 300) x",
        "INSERT INTO {t} (id, ts, i) SELECT 4000 + x, '2026-01-09Z', CASE WHEN x = 190 THEN -5000 END"
        " FROM generate_series(1, 200) x",
        "INSERT INTO {t} (id, ts, p) SELECT 4000 + x, '2026-01-09Z', 100 - x FROM generate_series(1, 200) x",
        "INSERT INTO {t} (id, ts) SELECT 4000 + x, NULL FROM generate_series(1, 200) x",
        "INSERT INTO {t} (id, ts, v) SELECT 4000 + x, '2026-01-09Z', repeat('v', x) FROM generate_series(1, 200) x",
    ],
    ids=["twice", "there", "check", "domain", "null", "too long"],
)
def test_what_is_wrong_with_a_row_is_told_as_always_and_nothing_is_left(bulk: Pair, statement: str) -> None:
    (outcome, _) = bulk.same([statement])
    assert outcome[0].startswith("2")
    assert on_disk(bulk.world) == known(bulk.world)


def test_values_that_the_lake_cannot_hold_are_refused(bulk: Pair, client: psycopg.Connection[Any]) -> None:
    with pytest.raises(psycopg.errors.NumericValueOutOfRange, match="the lake cannot hold the value infinity"):
        client.execute(
            "INSERT INTO bulk (id, ts, d) SELECT -x, '2026-01-09Z', 'infinity' FROM generate_series(1, 200) x"
        )
    assert on_disk(bulk.world) == known(bulk.world)


def test_a_caught_error_takes_its_own_rows_with_it_and_no_others(bulk: Pair) -> None:
    nested = """
    DO $$ BEGIN
      {good}
      BEGIN
        INSERT INTO {t} (id, ts, i) SELECT 6000 + x, '2026-01-09Z', 195 - x * 10 FROM generate_series(1, 250) x;
      EXCEPTION WHEN check_violation THEN NULL;
      END;
      {more}
    END $$"""
    bulk.same(
        [
            nested.replace("{good}", f"{new(5000, 5199)};").replace("{more}", f"{new(5200, 5300)};"),
            "SELECT count(*), sum(id) FROM {t} WHERE id BETWEEN 5000 AND 7000",
            "CREATE OR REPLACE FUNCTION pg_temp.careful(x int) RETURNS int LANGUAGE plpgsql AS $$ BEGIN"
            " BEGIN INSERT INTO {t} (id, ts, i) SELECT 60000 + x * 1000 + y, '2026-01-09Z', 120 - y * 10"
            " FROM generate_series(1, 150) y; EXCEPTION WHEN check_violation THEN NULL; END; RETURN x; END $$",
            "INSERT INTO {t} (id, ts, i) SELECT 5400 + x, '2026-01-09Z', pg_temp.careful(x)"
            " FROM generate_series(1, 3) x",
            "SELECT count(*), sum(id) FROM {t} WHERE id BETWEEN 5000 AND 70000",
        ]
    )


def test_copy_and_rows_for_both_tiers(bulk: Pair, client: psycopg.Connection[Any]) -> None:
    rows = [(7000 + x, f"2026-{('01', '02', '11')[x % 3]}-05 00:00:{x % 60:02}Z", f"copied\t{x}\n") for x in range(900)]
    with client.transaction(force_rollback=True):
        for table in bulk.tables:
            with client.cursor().copy(f"COPY {table} (id, ts, t) FROM STDIN") as copy:
                for row in rows:
                    copy.write_row(row)
        found = [client.execute(f"SELECT * FROM {t} WHERE id >= 7000 ORDER BY id").fetchall() for t in bulk.tables]
        assert found[0] == found[1]
        assert len(found[0]) == 900
        assert client.execute("SELECT sum(rows) FROM frostline.staged_files WHERE staged_at >= now()").fetchone() == (
            600,
        )


def test_where_a_new_row_replaces_an_old_one_it_does(bulk: Pair) -> None:
    bulk.world.run("UPDATE frostline.tables SET cold_duplicates = 'upsert' WHERE relation = 'bulk'::regclass")
    client = bulk.world.connect()
    try:
        with client.transaction(force_rollback=True):
            client.execute(new(8000, 8099).format(t="bulk"))
            client.execute(
                "INSERT INTO bulk (id, ts, t) SELECT id, ts, 'newest' FROM bulk WHERE id BETWEEN 8050 AND 8099"
                " UNION ALL SELECT x, '2026-01-07Z', 'newest' FROM generate_series(8100, 8149) x"
            )
            found = client.execute(
                "SELECT count(*), count(*) FILTER (WHERE t = 'newest') FROM bulk WHERE id BETWEEN 8000 AND 8149"
            ).fetchone()
            assert found == (150, 100)
    finally:
        bulk.world.run("UPDATE frostline.tables SET cold_duplicates = 'error' WHERE relation = 'bulk'::regclass")


@pytest.mark.usefixtures("bulk")
def test_without_its_trigger_nothing_is_committed(client: psycopg.Connection[Any]) -> None:
    client.execute('ALTER TABLE bulk DISABLE TRIGGER "!frostline"')
    try:
        with pytest.raises(psycopg.errors.ObjectNotInPrerequisiteState, match="were not stored"):
            client.execute(new(9000, 9100).format(t="bulk"))
    finally:
        client.execute('ALTER TABLE bulk ENABLE ALWAYS TRIGGER "!frostline"')


@pytest.mark.parametrize("level", LEVELS)
def test_a_row_that_comes_while_files_are_written_is_not_doubled(bulk: Pair, tmp_path: Path, level: str) -> None:
    client, other = open_at(bulk, level), bulk.world.connect()
    start = 20000 + 1000 * LEVELS.index(level)
    first, row, beside = threading.Event(), start + 950, start + 850

    def act(point: str) -> None:
        if point == "write.flushed" and not first.is_set():
            first.set()
            place = f"timestamptz '2026-01-01 00:30Z' + {beside % 1400} * interval '1 hour'"
            other.execute(f"INSERT INTO bulk (id, ts) VALUES ({row}, {place})")

    with at(tmp_path, act):  # another row, at the same time and among theirs
        client.execute(new(start + 800, start + 899).format(t="bulk"))
    client.commit()
    assert first.is_set()
    assert bulk.world.run(f"SELECT count(*) FROM bulk WHERE id BETWEEN {start + 800} AND {start + 999}") == [(101,)]
    first.clear()
    row = beside = start + 50
    with at(tmp_path, act), pytest.raises(psycopg.errors.SerializationFailure):
        client.execute(new(start, start + 99).format(t="bulk"))
    client.rollback()
    assert first.is_set()
    with pytest.raises(psycopg.errors.UniqueViolation):
        client.execute(new(start, start + 99).format(t="bulk"))
    client.rollback()
    assert bulk.world.run(f"SELECT id FROM bulk WHERE id BETWEEN {start} AND {start + 99}") == [(start + 50,)]


@pytest.mark.parametrize("level", LEVELS)
def test_a_file_that_comes_while_a_row_is_written_is_not_doubled(bulk: Pair, tmp_path: Path, level: str) -> None:
    client, other, first = open_at(bulk, level), bulk.world.connect(), threading.Event()
    start = 30000 + 1000 * LEVELS.index(level)
    place = f"timestamptz '2026-01-01 00:30Z' + {(start + 50) % 1400} * interval '1 hour'"

    def act(point: str) -> None:
        if point == "write.netted" and not first.is_set():
            first.set()
            other.execute(new(start, start + 99).format(t="bulk"))

    for statement in (
        f"INSERT INTO bulk (id, ts) VALUES ({start + 50}, {place})",
        "UPDATE bulk SET i = 1 WHERE id = 7",
    ):
        first.clear()
        with at(tmp_path, act), pytest.raises(psycopg.errors.SerializationFailure):
            client.execute(statement)
        client.rollback()
        assert first.is_set()
        start += 100
    start -= 200
    assert bulk.world.run(
        f"SELECT count(*), count(DISTINCT id) FROM bulk WHERE id >= {start} AND id < {start + 200}"
    ) == [(200, 200)]
    with pytest.raises(psycopg.errors.UniqueViolation):
        client.execute(f"INSERT INTO bulk (id, ts) VALUES ({start + 50}, {place})")
    client.rollback()


@pytest.mark.parametrize("ends", ["COMMIT", "ROLLBACK"])
def test_two_stagings_of_other_rows(bulk: Pair, ends: str) -> None:
    """The second waits for the first; when that commits it has to look again, else it goes on."""
    first, second = (bulk.world.connect() for _ in range(2))
    start = 41000 if ends == "COMMIT" else 43000
    first.execute("BEGIN")
    first.execute(new(start, start + 99).format(t="bulk"))
    outcomes: list[str | None] = []

    def work() -> None:
        try:
            outcomes.append(second.execute(new(start + 1000, start + 1099).format(t="bulk")).statusmessage)
        except psycopg.Error as error:
            outcomes.append(error.sqlstate)

    thread = threading.Thread(target=work)
    thread.start()
    waits = f"SELECT EXISTS (SELECT FROM pg_locks WHERE pid = {second.info.backend_pid} AND NOT granted)"
    wait_until(lambda: bulk.world.run(waits) == [(True,)], 30, "the second waits")
    first.execute(ends)
    thread.join(120)
    assert outcomes == (["40001"] if ends == "COMMIT" else ["INSERT 0 100"])
    if ends == "COMMIT":
        second.execute(new(start + 1000, start + 1099).format(t="bulk"))
    found = bulk.world.run(f"SELECT count(*), min(id) FROM bulk WHERE id BETWEEN {start} AND {start + 1999}")
    assert found == [(200, start) if ends == "COMMIT" else (100, start + 1000)]


def test_two_stagings_of_the_same_rows(bulk: Pair) -> None:
    clients = [bulk.world.connect() for _ in range(2)]
    outcomes: list[str] = []

    def work(client: psycopg.Connection[Any]) -> None:
        try:
            outcomes.append(client.execute(new(40000, 40099).format(t="bulk")).statusmessage or "")
        except psycopg.Error as error:
            outcomes.append(str(error.sqlstate))

    threads = [threading.Thread(target=work, args=(client,)) for client in clients]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert sorted(outcomes)[0] in ("23505", "40001")
    assert sorted(outcomes)[1] == "INSERT 0 100"
    assert bulk.world.run("SELECT count(*) FROM bulk WHERE id BETWEEN 40000 AND 40099") == [(100,)]


@pytest.mark.parametrize("point", ["write.staged", "write.flushed", "write.netted", "write.stored", "write.commit"])
def test_whatever_fails_on_the_way_leaves_nothing(bulk: Pair, tmp_path: Path, point: str) -> None:
    client, before = bulk.world.connect(), staged(bulk.world)
    with at(tmp_path, lambda reached: reached != point), pytest.raises(psycopg.Error):
        client.execute(new(50000, 50099).format(t="bulk"))
    assert staged(bulk.world) == before
    assert on_disk(bulk.world) == known(bulk.world)
    assert bulk.world.run("SELECT count(*) FROM bulk WHERE id >= 50000") == [(0,)]


@pytest.mark.parametrize(
    ("how", "point"),
    [
        ("cancel", "write.held"),
        ("cancel", "write.staged"),
        ("terminate", "write.staged"),
        ("timeout", "write.flushed"),
        ("terminate", "write.netted"),
        ("cancel", "write.stored"),
    ],
)
def test_who_is_stopped_on_the_way_leaves_nothing_and_goes_on(bulk: Pair, tmp_path: Path, how: str, point: str) -> None:
    before = staged(bulk.world)
    client = bulk.world.connect(autocommit=False)
    client.execute("INSERT INTO bulk (id, ts) VALUES (51000, '2026-01-09Z')")
    client.execute("SAVEPOINT before")
    with stopped_at(bulk.world, tmp_path, point, how, client), pytest.raises(STOPPED):
        client.execute(new(51001, 51099).format(t="bulk"))
    if how == "terminate":
        client = bulk.world.connect(autocommit=False)
    else:
        client.execute("ROLLBACK TO SAVEPOINT before")
        assert client.execute("SELECT count(*) FROM bulk WHERE id >= 51000").fetchone() == (1,)
    client.execute("SAVEPOINT again")
    client.execute(new(51001, 51099).format(t="bulk"))
    client.execute("UPDATE bulk SET i = 1 WHERE id = 51050")
    client.execute("ROLLBACK TO SAVEPOINT again")
    assert client.execute("SELECT count(*) FROM bulk WHERE id > 51000").fetchone() == (0,)
    client.execute(new(51001, 51099).format(t="bulk"))
    assert client.execute("SELECT count(*) FROM bulk WHERE id > 51000").fetchone() == (99,)
    client.rollback()
    assert staged(bulk.world) == before
    bulk.world.clean("public.bulk")
    assert on_disk(bulk.world) == known(bulk.world)
    assert bulk.world.run("SELECT count(*) FROM bulk WHERE id >= 51000") == [(0,)]


STOPPED = (psycopg.errors.QueryCanceled, psycopg.errors.AdminShutdown, psycopg.errors.OperationalError)


@contextmanager
def stopped_at(world: World, directory: Path, point: str, how: str, client: psycopg.Connection[Any]) -> Iterator[None]:
    """Its statement is stopped when the gateway comes to a point."""
    pid, met = client.info.backend_pid, threading.Event()
    if how == "timeout":
        client.execute("SET LOCAL statement_timeout = '2s'")  # by then it has come to the point
    late = f"SELECT clock_timestamp() - query_start > interval '2.2 s' FROM pg_stat_activity WHERE pid = {pid}"

    def act(reached: str) -> None:
        if reached != point or met.is_set():
            return
        met.set()
        if how == "timeout":
            wait_until(lambda: world.run(late) == [(True,)], 30, "the statement is too late")
        else:
            world.run(f"SELECT pg_{how}_backend({pid})")

    with at(directory, act):
        yield
    assert met.is_set()
    if how == "terminate":
        gone = f"SELECT FROM pg_stat_activity WHERE pid = {pid}"
        wait_until(lambda: not world.run(gone), 30, "the session is gone")
    elif how == "timeout":
        client.execute("ROLLBACK TO SAVEPOINT before")
        client.execute("SET LOCAL statement_timeout = 0")
