"""Writers of the same cold rows: nobody's update is lost, whatever the isolation level."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
import pytest

from fix_cluster import wait_until
from frostline.gateway.execute import Executor
from integration.writes.pair import Pair

Connection = psycopg.Connection[Any]
LEVELS = ("READ COMMITTED", "REPEATABLE READ")


def open_at(pair: Pair, level: str) -> Connection:
    connection = pair.world.connect(autocommit=False)
    connection.execute(f"SET TRANSACTION ISOLATION LEVEL {level}")
    return connection


def in_thread(work: Callable[[], object]) -> tuple[threading.Thread, list[object]]:
    outcome: list[object] = []

    def run() -> None:
        try:
            outcome.append(work())
        except psycopg.Error as error:
            outcome.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    return thread, outcome


def waits(pair: Pair, connection: Connection) -> bool:
    query = "SELECT count(*) FROM pg_stat_activity WHERE pid = %s AND wait_event_type = 'Lock'"
    return pair.world.run(query, connection.info.backend_pid) == [(1,)]


def until(condition: Callable[[], bool]) -> None:
    wait_until(condition, 60, "it comes to that")


@pytest.mark.parametrize("level", LEVELS)
def test_the_first_updater_wins(pair: Pair, level: str) -> None:
    first, second = open_at(pair, level), open_at(pair, level)
    first.execute("UPDATE tiered SET i = 200 WHERE id = 50")
    thread, outcome = in_thread(lambda: second.execute("UPDATE tiered SET i = 201 WHERE id = 50"))
    until(lambda: waits(pair, second))
    first.commit()
    thread.join(120)
    assert isinstance(outcome[0], psycopg.errors.SerializationFailure)
    second.rollback()
    second.execute("UPDATE tiered SET i = i + 1 WHERE id = 50")  # retried, it goes on from what the first wrote
    second.commit()
    assert pair.world.run("SELECT i FROM tiered WHERE id = 50") == [(201,)]


@pytest.mark.parametrize("level", LEVELS)
def test_who_waits_for_one_that_gives_up_goes_on(pair: Pair, level: str) -> None:
    first, second = open_at(pair, level), open_at(pair, level)
    first.execute("DELETE FROM tiered WHERE id = 51")
    thread, outcome = in_thread(lambda: second.execute("UPDATE tiered SET i = 202 WHERE id = 51").rowcount)
    until(lambda: waits(pair, second))
    first.rollback()
    thread.join(120)
    assert outcome == [1]
    second.commit()
    assert pair.world.run("SELECT i FROM tiered WHERE id = 51") == [(202,)]


@pytest.mark.parametrize("level", LEVELS)
def test_two_that_wait_for_each_other_are_found(pair: Pair, level: str) -> None:
    one, two = open_at(pair, level), open_at(pair, level)
    one.execute("UPDATE tiered SET i = 1 WHERE id = 52")
    two.execute("UPDATE tiered SET i = 1 WHERE id = 53")
    threads = [
        in_thread(lambda: one.execute("UPDATE tiered SET i = 2 WHERE id = 53").rowcount),
        in_thread(lambda: two.execute("UPDATE tiered SET i = 2 WHERE id = 52").rowcount),
    ]
    until(lambda: any(outcome for _, outcome in threads))
    dead = [outcome[0] for _, outcome in threads if outcome]
    assert any(isinstance(found, psycopg.errors.DeadlockDetected) for found in dead)
    for connection in (one, two):
        if connection.info.transaction_status == psycopg.pq.TransactionStatus.INERROR:
            connection.rollback()
    for thread, _ in threads:
        thread.join(120)
    found = [outcome[0] for _, outcome in threads]
    assert sorted(map(str, found), key=len)[0] == "1"  # the other goes on
    one.rollback()
    two.rollback()


@pytest.mark.parametrize("level", LEVELS)
def test_the_same_new_key_twice_is_one_row(pair: Pair, level: str) -> None:
    one, two = open_at(pair, level), open_at(pair, level)
    insert = "INSERT INTO tiered (id, ts, i) VALUES (9000, '2026-01-09Z', %s)"
    one.execute(insert, [1])
    thread, outcome = in_thread(lambda: two.execute(insert, [2]))
    until(lambda: waits(pair, two))
    one.commit()
    thread.join(120)
    assert isinstance(outcome[0], psycopg.errors.SerializationFailure)
    two.rollback()
    with pytest.raises(psycopg.errors.UniqueViolation) as error:
        two.execute(insert, [2])
    assert error.value.diag.message_detail == "Key (id, ts)=(9000, 2026-01-09 00:00:00+00) already exists."
    two.rollback()
    assert pair.world.run("DELETE FROM tiered WHERE id = 9000 RETURNING i") == [(1,)]


def test_serializable_transactions_read_cold_rows_and_do_not_write_them(pair: Pair) -> None:
    connection = open_at(pair, "SERIALIZABLE")
    assert connection.execute("SELECT count(*) FROM tiered WHERE id < 10").fetchall() == [(9,)]
    with pytest.raises(psycopg.errors.FeatureNotSupported, match="SERIALIZABLE") as error:
        connection.execute("UPDATE tiered SET i = 1 WHERE id = 5")
    assert "REPEATABLE READ" in str(error.value)
    connection.rollback()


@pytest.mark.parametrize("level", LEVELS)
def test_a_counter_counts_every_increment(pair: Pair, level: str) -> None:
    """A cold row and a hot one get the same increments, together or not at all."""
    before = pair.world.run("SELECT id, i FROM tiered WHERE id IN (60, 460) ORDER BY id")
    done, failures = [0] * 3, []

    def count(number: int) -> None:
        connection = pair.world.connect(autocommit=False)
        while done[number] < 5:
            try:
                connection.execute(f"SET TRANSACTION ISOLATION LEVEL {level}")
                for row in (60, 460) if number % 2 else (460, 60):
                    assert connection.execute("UPDATE tiered SET i = i + 1 WHERE id = %s", [row]).rowcount == 1
                connection.commit()
                done[number] += 1
            except (psycopg.errors.SerializationFailure, psycopg.errors.DeadlockDetected):
                connection.rollback()
            except BaseException as error:
                failures.append(error)
                return

    threads = [threading.Thread(target=count, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert failures == []
    after = pair.world.run("SELECT id, i FROM tiered WHERE id IN (60, 460) ORDER BY id")
    assert after == [(row, (i or 0) + 15) for row, i in before]


def test_others_see_a_write_when_it_is_committed(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    """However long the gateway takes for what nobody waits for."""
    meanwhile = Executor.meanwhile

    def slowly(executor: Executor) -> None:
        time.sleep(0.2)
        meanwhile(executor)

    monkeypatch.setattr(Executor, "meanwhile", slowly)
    writer, reader = open_at(pair, "READ COMMITTED"), open_at(pair, "READ COMMITTED")
    old = reader.execute("SELECT i FROM tiered WHERE id = 54").fetchall()
    writer.execute("UPDATE tiered SET i = 300 WHERE id = 54")
    assert reader.execute("SELECT i FROM tiered WHERE id = 54").fetchall() == old
    assert reader.execute("UPDATE tiered SET i = 1 WHERE id = -1 AND ts > '2026-11-01Z'").rowcount == 0
    writer.commit()
    assert reader.execute("SELECT i FROM tiered WHERE id = 54").fetchall() == [(300,)]
    reader.rollback()


@contextmanager
def others_at_work(pair: Pair) -> Iterator[None]:
    """Transactions that write come and go, so that a later statement is seen to have a later snapshot."""
    over = threading.Event()

    def work() -> None:
        with psycopg.connect(pair.world.dsn, autocommit=True) as connection:
            while not over.is_set():
                connection.execute("SELECT pg_current_xact_id()")

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


@pytest.mark.parametrize("level", LEVELS)
def test_a_cold_row_read_for_update_is_not_overwritten(pair: Pair, level: str) -> None:
    """It is not locked; who has changed it since is noticed when it is written."""
    other = pair.world.connect()
    other.execute("SET statement_timeout = '120s'")
    for lock in ("UPDATE", "SHARE"):
        one = open_at(pair, level)
        with others_at_work(pair):
            [(was,)] = one.execute(f"SELECT i FROM tiered WHERE id = 56 FOR {lock}").fetchall()
        assert other.execute("UPDATE tiered SET i = i + 1 WHERE id = 56").rowcount == 1  # at once
        with pytest.raises(psycopg.errors.SerializationFailure):
            one.execute("UPDATE tiered SET i = %s WHERE id = 56", [was + 100])
        one.rollback()
        assert pair.world.run("SELECT i FROM tiered WHERE id = 56") == [(was + 1,)]


def test_after_its_first_cold_write_a_transaction_sees_what_was_committed_before(pair: Pair) -> None:
    """In READ COMMITTED: of cold rows; of hot ones what Postgres shows."""
    writer, other = open_at(pair, "READ COMMITTED"), pair.world.connect()
    query = "SELECT id, i FROM tiered WHERE id IN (58, 59, 459) ORDER BY id"
    before: dict[int, int] = dict(writer.execute(query).fetchall())
    other.execute("UPDATE tiered SET i = i + 1 WHERE id IN (58, 459)")
    until(lambda: dict(writer.execute(query).fetchall()) == {**before, 58: before[58] + 1, 459: before[459] + 1})
    writer.execute("UPDATE tiered SET i = i + 10 WHERE id = 59")
    other.execute("UPDATE tiered SET i = i + 1 WHERE id IN (58, 459)")
    seen = {58: before[58] + 1, 59: before[59] + 10, 459: before[459] + 2}
    assert dict(writer.execute(query).fetchall()) == seen
    with pytest.raises(psycopg.errors.SerializationFailure):
        writer.execute("UPDATE tiered SET i = 0 WHERE id = 58")
    writer.rollback()
    assert dict(writer.execute(query).fetchall()) == {**before, 58: before[58] + 2, 459: before[459] + 2}
    writer.rollback()
