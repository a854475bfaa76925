"""A cold row that is named by its primary key and set to constants: its new values are known without Postgres."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import psycopg
import pytest

from fix_tiering import World
from frostline.gateway import backing
from frostline.report import Silent
from frostline.tiering.archive.run import Warm
from frostline.tiering.fold.run import fold
from integration.writes.pair import Pair
from integration.writes.test_operations import ways
from integration.writes.test_words import ALL, same, twins

COLUMNS = (
    "i int, l bigint NOT NULL, s smallint, f float8, r real, n numeric, p numeric(6,2), t text, o varchar,"
    ' v varchar(5), b bool, u uuid, d date, "user" text, "A b" text'
)
VALUES = (
    "i, i, i, i / 3.0, i / 3.0, i / 7.0, i / 7.0, 't' || i, 'o' || i, 'v' || i, i % 2 = 0,"
    " md5(i::text)::uuid, date '2020-01-01' + i, 'u' || i, 'a' || i"
)
PLAIN = COLUMNS.replace(" r real,", ""), VALUES.replace("i / 3.0, i / 3.0", "i / 3.0")
KEY = "WHERE id = 1 AND ts = (SELECT ts FROM {t} WHERE id = 1)"

SET = (
    *("i = 5", "i = -5", "i = NULL", "i = 2147483647", "l = 5", "l = -9223372036854775808", "s = 7", "s = -32768"),
    *(
        "f = 5",
        "f = -0.0",
        "f = 1e300",
        "f = 'NaN'",
        "f = '-Infinity'",
        "f = 0.1",
        "n = 1.50",
        "n = 'NaN'",
        "n = -1e-40",
    ),
    *(
        "n = 12345678901234567890",
        "p = 1.005",
        "p = 7",
        "t = ''",
        "t = 'it''s'",
        "t = E'a\\\\b'",
        "t = NULL",
        "t = '(-5)'",
    ),
    *("o = 'longer than any'", "v = 'five5'", "b = true", "b = false", "b = NULL", "d = '2021-02-03'", "d = NULL"),
    *("u = 'A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11'", "\"user\" = 'me'", '"user" = user', '"A b" = "user"', "i = s"),
    *("i = l::int", "t = o", "l = i", "t = t", "i = i, t = '1', f = 2, l = 3", "i = l + 1", "t = $$x$$ || id"),
)


def given(world: World) -> int:
    return ways(Pair(world)).get("given", 0)


def by_key(world: World, what: str, number: int = 1) -> str:
    """With the moment written out: postgres_fdw sends no sub-select whole."""
    [(moment,)] = world.run("SELECT ts::text FROM plain WHERE id = %s", number)
    return f"{what} WHERE id = {number} AND ts = '{moment}'"


@pytest.mark.parametrize("real", [False, True], ids=["known", "asked"])
def test_whatever_is_set_is_what_postgres_sets(any_world: World, real: bool) -> None:
    """Of a table that has a column of reals, which the delta has as doubles, everything is asked."""
    world = any_world
    twins(world, *((COLUMNS, VALUES) if real else PLAIN))
    before = given(world)
    for values in SET:
        same(world, by_key(world, f"UPDATE {{t}} SET {values}"), ALL)
    assert (given(world) - before > len(SET) // 2) == (not real)
    same(world, by_key(world, "DELETE FROM {t}"), ALL, by_key(world, "UPDATE {t} SET i = 1", 2), ALL)
    before = given(world)
    with world.connect() as client:
        for number in (2, 3):  # as parameters, too
            moment = world.run("SELECT ts FROM plain WHERE id = %s", number)[0][0]
            for table in ("tiered", "plain"):
                text = f"UPDATE {table} SET t = $1, l = $2, f = $3 WHERE id = $4 AND ts = $5"
                client.execute(f"PREPARE {table}_{number} (text, bigint, float8, bigint, timestamptz) AS {text}")
                for times in range(7):
                    client.execute(f"EXECUTE {table}_{number} ('x''{times}', {times}, 0.1, {number}, '{moment}')")
    same(world, ALL)
    assert (given(world) > before) == (not real)


def test_what_must_not_be_is_refused_as_by_any_table(any_world: World) -> None:
    world = any_world
    twins(world, *PLAIN)
    session = world.connect()
    session.execute(by_key(world, "UPDATE tiered SET l = 8"))
    world.run(by_key(world, "UPDATE plain SET l = 8"))
    same(world, by_key(world, "UPDATE {t} SET l = NULL"), by_key(world, "UPDATE {t} SET l = NULL, i = 3"), ALL)
    with pytest.raises(psycopg.errors.NotNullViolation):
        session.execute(by_key(world, "UPDATE tiered SET l = NULL"))
    same(world, "ALTER TABLE {t} ADD CONSTRAINT small CHECK (l < 10)", by_key(world, "UPDATE {t} SET l = 10"), ALL)
    with pytest.raises(psycopg.errors.CheckViolation):
        session.execute(by_key(world, "UPDATE tiered SET l = 11"))
    before = given(world)
    same(world, by_key(world, "UPDATE {t} SET l = 9"), ALL)
    assert given(world) == before  # Postgres is asked
    same(world, "ALTER TABLE {t} DROP CONSTRAINT small", by_key(world, "UPDATE {t} SET l = 10"), ALL)
    assert given(world) == before + 1
    same(world, "ALTER TABLE {t} ALTER COLUMN t SET NOT NULL", by_key(world, "UPDATE {t} SET t = NULL"), ALL)
    with pytest.raises(psycopg.errors.NotNullViolation):
        session.execute(by_key(world, "UPDATE tiered SET t = NULL"))


def test_a_table_altered_since_a_session_looked_is_written_as_it_is_now(any_world: World) -> None:
    """The session asks by what it knows, and finds that it is not so."""
    world = any_world
    twins(world, *PLAIN)
    sessions = {table: world.connect() for table in ("tiered", "plain")}

    def both(text: str, number: int = 1) -> None:
        statement = by_key(world, text, number)
        for table, session in sessions.items():
            assert session.execute(statement.replace("{t}", table)).rowcount == 1
        same(world, ALL)

    for number in (1, 2, 1):
        both("UPDATE {t} SET t = 'first'", number)
    for change in (
        "ALTER TABLE {t} ADD COLUMN z text DEFAULT 'added'",
        "ALTER TABLE {t} RENAME COLUMN o TO other",
        "ALTER TABLE {t} DROP COLUMN d",
        "ALTER TABLE {t} ALTER COLUMN i TYPE bigint",
    ):
        same(world, change)
        both("UPDATE {t} SET t = 'then'")
        both("UPDATE {t} SET t = 'again', i = 7", 2)
    both("UPDATE {t} SET other = 'renamed', z = 'set'", 3)


def test_what_others_have_committed_is_kept(any_world: World) -> None:
    world = any_world
    twins(world, *PLAIN)
    one, other = world.connect(), world.connect()
    statement = by_key(world, "UPDATE tiered SET {}")
    for number in range(6):
        one.execute(statement.format(f"i = {number}"))
        other.execute(statement.format(f"l = {number}"))
        assert world.run("SELECT i, l FROM tiered WHERE id = 1") == [(number, number)]
    one.execute("BEGIN")
    one.execute(by_key(world, "UPDATE tiered SET i = 0", 2))
    other.execute(statement.format("i = 77"))
    with pytest.raises(psycopg.errors.SerializationFailure):
        one.execute(statement.format("l = 78"))
    one.execute("ROLLBACK")
    assert world.run("SELECT i, l FROM tiered WHERE id = 1") == [(77, 5)]
    one.execute(by_key(world, "DELETE FROM tiered"))
    assert other.execute(statement.format("l = 1")).rowcount == 0


def test_a_transaction_that_begins_with_it_goes_on_as_any_other(any_world: World) -> None:
    world = any_world
    twins(world, *PLAIN)
    sessions = {table: world.connect() for table in ("tiered", "plain")}
    first = by_key(world, "UPDATE {t} SET t = 'first'")
    script = [
        first,
        "SELECT t FROM {t} WHERE id = 1",
        by_key(world, "UPDATE {t} SET t = 'second', i = i"),
        "UPDATE {t} SET i = i + 1 WHERE id IN (1, 2)",
        "SAVEPOINT s",
        by_key(world, "DELETE FROM {t}"),
        "SELECT count(*) FROM {t}",
        "ROLLBACK TO s",
        by_key(world, "UPDATE {t} SET i = 70", 4),
        "SELECT id, t, i FROM {t} ORDER BY id",
    ]
    for _ in range(3):
        told = []
        for table, session in sessions.items():
            with session.transaction():
                cursors = [session.execute(statement.replace("{t}", table)) for statement in script]
            told.append([(c.statusmessage, c.fetchall() if c.description else None) for c in cursors])
        assert told[0] == told[1]
        same(world, ALL)


def test_a_number_that_nobody_needed_is_not_given_to_a_later_version(any_world: World) -> None:
    """It is older than what the transaction has written since, and the newest number wins."""
    world = any_world
    twins(world, *PLAIN)
    sessions = {table: world.connect() for table in ("tiered", "plain")}
    missing = "WHERE id = 99 AND ts = '2020-01-07Z'"
    script = [
        f"UPDATE {{t}} SET i = 1 {missing}",
        "INSERT INTO {t} (id, ts, i, l) VALUES (99, '2020-01-07Z', 2, 2)",
        f"UPDATE {{t}} SET i = 3 {missing}",
        f"UPDATE {{t}} SET t = 'last' {missing}",
    ]
    for table, session in sessions.items():
        for _ in range(3):
            session.execute(by_key(world, "UPDATE {t} SET t = 'first'").replace("{t}", table))
        with session.transaction():
            for statement in script:
                session.execute(statement.replace("{t}", table))
    same(world, ALL, f"SELECT i, t FROM {{t}} {missing}")


def test_the_statement_that_comes_first_after_the_connection_was_lost_is_answered(world: World) -> None:
    twins(world, *PLAIN)
    session = world.connect()
    for number in range(3):
        session.execute(by_key(world, f"UPDATE tiered SET i = {number}"))
    ended = world.run(
        "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity"
        " WHERE application_name = 'frostline gateway' AND datname = current_database()"
    )
    assert ended[0][0] > 0
    for number in range(3, 6):
        assert session.execute(by_key(world, f"UPDATE tiered SET i = {number}")).rowcount == 1
        assert world.run("SELECT i FROM tiered WHERE id = 1") == [(number,)]


def test_what_was_folded_since_a_session_looked_is_read_where_it_is_now(world: World) -> None:
    """The file is read ahead, from where the session last saw the row."""
    twins(world, *PLAIN)
    session = world.connect()
    for number in (1, 2):
        session.execute(by_key(world, "UPDATE tiered SET i = 50", number))
    with Warm(world.spark_here) as warm:
        fold(world.settings, "public.tiered", Silent(), warm)
    for number in (1, 2, 3):
        assert session.execute(by_key(world, "UPDATE tiered SET l = 60", number)).rowcount == 1
    assert world.run("SELECT id, i, l FROM tiered WHERE id < 4 ORDER BY id") == [(1, 50, 60), (2, 50, 60), (3, 3, 60)]


def test_it_is_one_question(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """And the end of the transaction, when the client has its answer."""
    twins(world, *PLAIN)
    session = world.connect()
    for number in (1, 2, 3):
        session.execute(by_key(world, "UPDATE tiered SET i = 50", number))
    asked: list[list[str]] = []
    ask = backing._ask

    def seen(connection: psycopg.Connection[Any], statements: Sequence[str]) -> None:
        asked.append([statement.split(maxsplit=1)[0] for statement in statements])
        ask(connection, statements)

    monkeypatch.setattr(backing, "_ask", seen)
    session.execute(by_key(world, "UPDATE tiered SET i = 51"))
    until = time.monotonic() + 10
    while len(asked) < 2 and time.monotonic() < until:
        time.sleep(0.001)
    assert asked == [["BEGIN", "EXECUTE", "EXECUTE", "EXECUTE", "SELECT", "EXECUTE"], ["ROLLBACK"]]
