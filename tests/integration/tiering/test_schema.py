"""ALTER TABLE on a tiered table and on its plain twin: the same rows, before and after, cold and hot."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from typing import Any

import psycopg
import pytest
from pyiceberg.table import Table as IcebergTable
from pyspark.sql import SparkSession
from typer.testing import CliRunner

from fix_cluster import wait_until
from fix_tiering import World, new_world
from frostline.catalog import registry
from frostline.catalog.database import connect
from frostline.cli.main import app
from frostline.errors import FrostlineError
from frostline.gateway import follower
from frostline.lake import catalog as lake
from frostline.pipeline import session
from frostline.pipeline.merge import quiet
from frostline.report import Silent
from frostline.tiering import verify
from integration.tiering.twins import AT_ONCE, Twins, patience

MONTHS = ("01", "02", "03")
_numbers = count(1)


@pytest.fixture(scope="module", params=["18", "15"])
def shared(
    request: pytest.FixtureRequest, spark: SparkSession, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[World]:
    server = request.getfixturevalue("dsn" if request.param == "18" else "postgres15")
    with new_world(server, spark, tmp_path_factory.mktemp(f"schema{request.param}")) as world:
        world.run("CREATE TYPE mood AS ENUM ('sad', 'ok', 'happy')")
        yield world


@pytest.fixture
def twins(registered: Twins) -> Twins:
    """January and February are cold, March is next, November is hot."""
    assert registered.archive("2026-03-01Z") == 2
    return registered


@pytest.fixture(scope="module")
def kept(shared: World) -> Iterator[Twins]:
    """The same, for tests that leave it with its rows, and with the columns that it has at first."""
    with made(shared) as found:
        assert found.archive("2026-03-01Z") == 2
        yield found


@pytest.fixture
def registered(shared: World) -> Iterator[Twins]:
    """Nothing is cold yet. A column was dropped before registration."""
    with made(shared) as found:
        yield found


@contextmanager
def made(shared: World, key: str = "id", also: str = "") -> Iterator[Twins]:
    number = next(_numbers)
    tiered, plain = f"tiered_{number}", f"plain_{number}"
    for name in (tiered, plain):
        shared.run(
            f"CREATE TABLE {name} (gone int, id int, ts timestamptz NOT NULL, i int, r real, n numeric(10, 2),"
            " v varchar(8), v2 varchar(8) DEFAULT 'two', c char(4), m mood, j jsonb,"
            f" {also}{also and ','} PRIMARY KEY ({key}, ts))"
            " PARTITION BY RANGE (ts)"
        )
        for month, after in zip(MONTHS, ("02", "03", "04"), strict=True):
            shared.run(
                f"CREATE TABLE {name}_{month} PARTITION OF {name}"
                f" FOR VALUES FROM ('2026-{month}-01Z') TO ('2026-{after}-01Z')"
            )
        shared.run(
            f"CREATE TABLE {name}_now PARTITION OF {name} FOR VALUES FROM ('2026-04-01Z') TO (MAXVALUE);"
            f"INSERT INTO {name} (id, ts, i, r, n, v, c, m, j) SELECT x, timestamptz '2026-01-01Z'"
            " + make_interval(months => CASE x % 4 WHEN 3 THEN 9 ELSE x % 4 END) + x * interval '1 hour',"
            " nullif(x % 7, 3), x / 3.0, x * 1.5, 'v' || x % 5, 'c' || x % 3,"
            " (ARRAY['sad', 'ok', 'happy'])[1 + x % 3]::mood,"
            " jsonb_build_object('x', x) FROM generate_series(1, 40) x;"
            f"ALTER TABLE {name} DROP COLUMN gone"
        )
    shared.run(f"CREATE TABLE {plain}_before PARTITION OF {plain} FOR VALUES FROM (MINVALUE) TO ('2026-01-01Z')")
    shared.register(f"public.{tiered}", hot="100 years")
    client = shared.connect()
    client.execute("SET timezone = 'UTC'")
    yield Twins(shared, tiered, plain, client)
    client.close()


def test_columns_come_go_and_change_their_names(twins: Twins) -> None:
    both, same = twins.both, twins.same
    same()
    both("UPDATE {t} SET i = 100 WHERE id IN (4, 5)")  # versions from before
    both("DELETE FROM {t} WHERE id = 8")
    both("ALTER TABLE {t} ADD COLUMN a int")
    both("ALTER TABLE {t} ADD COLUMN b int NOT NULL DEFAULT 7")
    both("ALTER TABLE {t} ADD COLUMN d timestamptz DEFAULT '2020-02-02 00:00Z'")
    same()
    both("UPDATE {t} SET a = id, b = b + 1 WHERE id IN (1, 4, 9) RETURNING id, a, b, d")
    both("INSERT INTO {t} (id, ts, a) VALUES (100, '2026-01-05Z', 1), (101, '2026-11-05Z', 1), (102, '2025-01-05Z', 2)")
    both("UPDATE {t} SET d = NULL WHERE id IN (2, 5, 100)")
    same()
    both("ALTER TABLE {t} RENAME COLUMN i TO amount")
    same()
    both("UPDATE {t} SET amount = amount + 1000 WHERE id < 12")
    both("ALTER TABLE {t} DROP COLUMN v")
    both("ALTER TABLE {t} ADD COLUMN v text DEFAULT 'new'")
    rows = same()
    assert "v1" not in str(rows)
    for change, update in (
        ("ADD COLUMN e text DEFAULT 'e'", "e = 'set'"),
        ("RENAME COLUMN e TO f", "f = f || '!'"),
        ("DROP COLUMN f", "b = b + 1"),
    ):
        both("UPDATE {t} SET b = b + 1 WHERE id = 4")  # the session knows the functions of before
        both(f"ALTER TABLE {{t}} {change}")
        both(f"UPDATE {{t}} SET {update} WHERE id IN (4, 5)")
        both("SELECT * FROM {t} WHERE id IN (4, 5)")
    both("DELETE FROM {t} WHERE v = 'new' AND id IN (12, 13)")
    both("UPDATE {t} SET v = NULL WHERE id IN (16, 17)")
    same()
    assert twins.fold()
    same()
    both("ALTER TABLE {t} RENAME COLUMN a TO x; ALTER TABLE {t} RENAME COLUMN b TO a; ALTER TABLE {t} RENAME x TO b")
    same()
    both("UPDATE {t} SET a = -1, b = -2 WHERE id IN (20, 21)")
    same()
    assert twins.archive("2026-04-01Z") == 1
    same()
    both("UPDATE {t} SET a = a + 5, d = '2030-01-01Z' WHERE ts < '2026-04-01Z' AND id % 5 = 0")
    assert twins.fold()
    same()


@pytest.mark.parametrize("shared", ["18"], indirect=True)
def test_columns_that_changed_before_anything_was_cold(registered: Twins) -> None:
    """All rows the lake will have know every column: none of their NULLs is older than one."""
    both = registered.both
    both("INSERT INTO {t} (id, ts, i) VALUES (102, '2025-01-05Z', 2)")  # below the oldest partition: a cold row
    both("ALTER TABLE {t} ADD COLUMN a int DEFAULT 5, DROP COLUMN v")
    both("ALTER TABLE {t} RENAME COLUMN i TO amount")
    both("UPDATE {t} SET a = NULL WHERE id % 3 = 0")
    registered.same()
    assert registered.archive("2026-03-01Z") == 2
    registered.same()
    both("ALTER TABLE {t} ADD COLUMN b int DEFAULT 6")
    both("UPDATE {t} SET a = NULL, b = NULL WHERE id % 5 = 0")
    registered.same()
    assert registered.archive("2026-04-01Z") == 1
    registered.same()


@pytest.mark.parametrize("shared", ["18"], indirect=True)
def test_types_are_promoted(twins: Twins) -> None:
    both, same = twins.both, twins.same
    both("UPDATE {t} SET i = 100, r = 0.1, v = 'changed', c = 'x' WHERE id IN (4, 5)")
    both("UPDATE {t} SET r = 0.1 WHERE id = 7")
    both("ALTER TABLE {t} ADD COLUMN f real DEFAULT 0.1, ADD COLUMN k char(3) DEFAULT 'k', ADD s int2 DEFAULT 3")
    same()
    both("ALTER TABLE {t} ALTER id TYPE bigint, ALTER i TYPE bigint, ALTER r TYPE float8, ALTER n TYPE numeric(14, 2)")
    both("ALTER TABLE {t} ALTER v TYPE varchar(20), ALTER c TYPE char(6), ALTER f TYPE float8, ALTER s TYPE int8")
    same()
    both("UPDATE {t} SET i = 5000000000, n = 999999999999.99, v = 'not so short', c = 'abcdef' WHERE id IN (1, 4)")
    both("INSERT INTO {t} (id, ts, i, s, r) VALUES (6000000000, '2026-02-05Z', 1, 1, 1e300)")
    both("SELECT * FROM {t} WHERE id IN (1, 5, 6000000000)")
    both("ALTER TABLE {t} ALTER v TYPE text, ALTER c TYPE text, ALTER k TYPE varchar(3)")
    both("UPDATE {t} SET c = c || '  ', v = v || '  ' WHERE id IN (5, 6)")
    same()
    assert twins.fold()
    same()
    assert twins.archive("2026-04-01Z") == 1
    both("UPDATE {t} SET i = i + 1, c = c || '!' WHERE id % 3 = 0")
    same()
    found = verify.verify(twins.world.settings, f"public.{twins.tiered}", None, Silent())
    assert {(one.state, one.problems) for one in found} == {("good", ())}


def test_what_cannot_be_followed_is_said_at_once_with_the_way_out(twins: Twins) -> None:
    both, same, refused = twins.both, twins.same, twins.refused
    twins.client.execute(f"ALTER TABLE {twins.tiered} ADD COLUMN u uuid DEFAULT gen_random_uuid()")
    refused("SELECT u FROM {t} WHERE id = 4", "0A000", "its default is volatile")
    refused("UPDATE {t} SET i = 1 WHERE id = 4", "0A000", "its default is volatile")
    assert twins.client.execute(f"SELECT i FROM {twins.tiered} WHERE id = 4").fetchall() == [(4,)]
    with pytest.raises(FrostlineError, match="volatile"):
        twins.archive("2026-04-01Z")
    twins.client.execute(f"SELECT frostline.fill('{twins.tiered}', 'u', NULL)")
    assert twins.client.execute(f"SELECT u FROM {twins.tiered} WHERE id = 4").fetchall() == [(None,)]
    twins.client.execute(f"UPDATE {twins.tiered} SET u = gen_random_uuid() WHERE u IS NULL")
    found = twins.client.execute(f"SELECT count(DISTINCT u), count(*) FROM {twins.tiered}").fetchall()
    assert found == [(40, 40)]
    refused("SELECT frostline.fill('{t}', 'u', NULL)", "55000", "is known")
    both("ALTER TABLE {t} DROP COLUMN IF EXISTS u")
    same()
    # The partitions are rewritten, and with them the value is gone that the column was added with.
    twins.client.execute(f"ALTER TABLE {twins.tiered} ADD COLUMN l int DEFAULT 1, ALTER i TYPE bigint")
    refused("SELECT l FROM {t} WHERE id = 4", "0A000", "no hot partition has kept the value")
    refused("SELECT frostline.fill('{t}', 'l', 'x')", "22P02", "invalid input syntax")
    twins.client.execute(f"SELECT frostline.fill('{twins.tiered}', 'l', '1')")
    twins.client.execute(f"ALTER TABLE {twins.plain} ADD COLUMN l int DEFAULT 1, ALTER i TYPE bigint")
    same()
    twins.client.execute(f"ALTER TABLE {twins.tiered} ALTER i TYPE text")
    refused("SELECT i FROM {t} WHERE id = 4", "0A000", "its type was changed from (integer|bigint) to text")
    refused("DELETE FROM {t} WHERE id = 4", "0A000", "was changed from (integer|bigint) to text")
    assert twins.client.execute(f"SELECT v FROM {twins.tiered} WHERE id = 4").fetchall() == [("v4",)]
    with pytest.raises(FrostlineError, match=r"(integer|bigint) to text"):
        twins.archive("2026-04-01Z")
    refused("ALTER TABLE {t} ALTER i TYPE int USING i::int", "42809", "is not a table")
    twins.client.execute(f"ALTER TABLE {twins.tiered} DROP COLUMN i; ALTER TABLE {twins.plain} DROP COLUMN i")
    same()
    refused("ALTER TABLE {t} DROP COLUMN ts", "42P16", "partition key")
    twins.client.execute(f"ALTER TABLE {twins.tiered} ADD COLUMN g int GENERATED ALWAYS AS (id * 2) STORED")
    refused("SELECT g FROM {t} WHERE id = 4", "0A000", "it is generated")
    twins.client.execute(f"ALTER TABLE {twins.tiered} DROP COLUMN g, ADD COLUMN _op int")
    refused("UPDATE {t} SET v = 1 WHERE id = 4", "0A000", "cannot have a column called _op")
    twins.client.execute(f"ALTER TABLE {twins.tiered} DROP COLUMN _op, ADD COLUMN cash money")
    refused("UPDATE {t} SET v = 1 WHERE id = 4", "0A000", "of type money")
    twins.client.execute(f"ALTER TABLE {twins.tiered} DROP COLUMN cash")
    both("UPDATE {t} SET v = 1 WHERE id = 4")
    same()
    twins.client.execute(f"ALTER TABLE {twins.tiered} DROP COLUMN id")
    refused("UPDATE {t} SET v = 2", "0A000", "its primary key is no longer")


@pytest.mark.parametrize("shared", ["18"], indirect=True)
def test_the_expression_of_a_generated_column_is_another(shared: World) -> None:
    with made(shared, also="g int GENERATED ALWAYS AS (id * 2) STORED") as twins:
        assert twins.archive("2026-03-01Z") == 2
        twins.client.execute(f"ALTER TABLE {twins.tiered} ALTER g SET EXPRESSION AS (id * 3)")
        twins.refused("SELECT g FROM {t} WHERE id = 4", "0A000", r"its expression was changed from \(id \* 2\) to")
        twins.refused("UPDATE {t} SET i = 1 WHERE id = 4", "0A000", r"its expression was changed from \(id \* 2\) to")
        with pytest.raises(FrostlineError, match="its expression was changed"):
            twins.archive("2026-04-01Z")
        twins.client.execute(f"ALTER TABLE {twins.tiered} RENAME COLUMN id TO number")
        twins.client.execute(f"ALTER TABLE {twins.tiered} ALTER g SET EXPRESSION AS (number * 2)")
        twins.client.execute(f"ALTER TABLE {twins.tiered} RENAME COLUMN number TO id")
        twins.both("UPDATE {t} SET i = 1 WHERE id IN (4, 7) RETURNING g")
        twins.same()


OTHER_VALUES = {
    "dropped after it was altered": ("ALTER g SET EXPRESSION AS (i * 3)", "ALTER g DROP EXPRESSION"),
    "of another column by now": (
        "RENAME COLUMN i TO before",
        "RENAME COLUMN k TO i",
        "ALTER g SET EXPRESSION AS (i * 2)",
        "DROP COLUMN before",
    ),
}
SAME_VALUES = {
    "dropped": ("ALTER g DROP EXPRESSION",),
    "of a larger type": ("ALTER g TYPE bigint",),
    "of columns that changed their names": ("RENAME COLUMN i TO before", "RENAME COLUMN k TO i"),
}


@pytest.mark.parametrize("shared", ["18"], indirect=True)
@pytest.mark.parametrize("changes", [pytest.param(c, id=name) for name, c in {**OTHER_VALUES, **SAME_VALUES}.items()])
def test_what_a_generated_column_was_computed_by(shared: World, changes: tuple[str, ...]) -> None:
    with made(shared, also="k int DEFAULT 5, g int GENERATED ALWAYS AS (i * 2) STORED") as twins:
        assert twins.archive("2026-03-01Z") == 2
        for change in changes:
            twins.both(f"ALTER TABLE {{t}} {change}")
        if changes in OTHER_VALUES.values():
            twins.refused("SELECT g FROM {t} WHERE id = 4", "0A000", "its expression was")
            twins.refused("UPDATE {t} SET v = 'x' WHERE id = 4", "0A000", "frostline.keep_computed")
            twins.client.execute(f"SELECT frostline.keep_computed('{twins.tiered}', 'g')")
            assert twins.client.execute(f"SELECT g FROM {twins.tiered} WHERE id = 4").fetchone() == (8,)
            return
        twins.both("UPDATE {t} SET v = 'x' WHERE id IN (4, 7) RETURNING g")
        twins.same()


def test_the_collation_of_the_key_calls_different_texts_equal(shared: World) -> None:
    shared.run(
        "CREATE COLLATION IF NOT EXISTS public.loose"
        " (provider = icu, locale = 'und-u-ks-level2', deterministic = false)"
    )
    with made(shared, key="v") as twins:
        assert twins.archive("2026-03-01Z") == 2
        twins.client.execute(f"ALTER TABLE {twins.tiered} ALTER v TYPE varchar(8) COLLATE public.loose")
        insert = "INSERT INTO {t} (id, ts, v) VALUES (4, '2026-01-01 04:00Z', 'V4')"
        said = "the collation of v, of its primary key, calls different texts equal"
        twins.refused(insert, "0A000", said)
        # Who has read cold rows before is not told to try again.
        twins.refused("INSERT INTO {t} (id, ts, v) SELECT id, ts, upper(v) FROM {t} WHERE id = 4", "0A000", said)
        twins.client.execute(f'ALTER TABLE {twins.tiered} ALTER v TYPE varchar(8) COLLATE "default"')
        twins.both("UPDATE {t} SET i = 1 WHERE v = 'v4'")
        twins.same()


def test_a_default_that_the_lake_cannot_hold(kept: Twins) -> None:
    kept.client.execute(f"ALTER TABLE {kept.tiered} ADD COLUMN until timestamptz DEFAULT 'infinity'")
    kept.refused("SELECT until FROM {t} WHERE id = 4", "0A000", "with the value infinity, which the lake cannot hold")
    kept.refused("UPDATE {t} SET i = i WHERE id = 4", "0A000", "with the value infinity, which the lake cannot hold")
    kept.refused("SELECT frostline.fill('{t}', 'until', '-infinity')", "22003", "cannot hold the value -infinity")
    kept.client.execute(f"SELECT frostline.fill('{kept.tiered}', 'until', NULL)")
    found = kept.client.execute(
        f"SELECT count(*), count(until), count(*) FILTER (WHERE until = 'infinity') FROM {kept.tiered}"
    )
    assert found.fetchall() == [(40, 20, 20)]
    kept.client.execute(f"ALTER TABLE {kept.tiered} DROP COLUMN until")
    kept.both("UPDATE {t} SET i = i WHERE id = 4")


def test_a_default_that_is_later_than_the_lake_counts(kept: Twins) -> None:
    kept.client.execute(f"ALTER TABLE {kept.tiered} ADD COLUMN until timestamp DEFAULT '294276-12-31 23:59:59'")
    kept.refused("SELECT until FROM {t} WHERE id = 4", "0A000", "which the lake cannot hold")
    kept.client.execute(f"SELECT frostline.fill('{kept.tiered}', 'until', NULL)")
    found = kept.client.execute(f"SELECT count(*), count(until) FROM {kept.tiered}")
    assert found.fetchall() == [(40, 20)]
    kept.client.execute(f"ALTER TABLE {kept.tiered} DROP COLUMN until")
    kept.both("UPDATE {t} SET i = i WHERE id = 4")


@pytest.mark.parametrize("shared", ["18"], indirect=True)
def test_not_null_that_is_not_valid_does_not_keep_old_rows_from_being_null(kept: Twins) -> None:
    kept.client.execute(f"ALTER TABLE {kept.tiered} ADD COLUMN until timestamptz DEFAULT 'infinity'")
    kept.client.execute(f"ALTER TABLE {kept.tiered} ADD CONSTRAINT until_there NOT NULL until NOT VALID")
    kept.client.execute(f"SELECT frostline.fill('{kept.tiered}', 'until', NULL)")
    found = kept.client.execute(f"SELECT count(*), count(until) FROM {kept.tiered}")
    assert found.fetchall() == [(40, 20)]
    kept.client.execute(f"ALTER TABLE {kept.tiered} DROP COLUMN until")
    kept.both("UPDATE {t} SET i = i WHERE id = 4")


def test_a_column_that_is_never_null_is_not_filled_with_null(kept: Twins) -> None:
    """A plan since 17 finds no row by IS NULL then, so that nobody could give these rows another value."""
    kept.client.execute(f"ALTER TABLE {kept.tiered} ADD COLUMN u uuid NOT NULL DEFAULT gen_random_uuid()")
    kept.refused("SELECT frostline.fill('{t}', 'u', NULL)", "23502", "column u of .* is NOT NULL")
    nil = "00000000-0000-0000-0000-000000000000"
    kept.client.execute(f"SELECT frostline.fill('{kept.tiered}', 'u', '{nil}')")
    changed = kept.client.execute(f"UPDATE {kept.tiered} SET u = gen_random_uuid() WHERE u = '{nil}'")
    assert changed.rowcount == 20
    assert kept.client.execute(f"SELECT count(DISTINCT u) FROM {kept.tiered}").fetchall() == [(40,)]
    kept.client.execute(f"ALTER TABLE {kept.tiered} DROP COLUMN u")
    kept.both("UPDATE {t} SET i = i WHERE id = 4")


def test_in_the_altering_transaction_cold_rows_are_refused_at_once(kept: Twins) -> None:
    twins = kept
    for change, statement, state in (
        ("ADD COLUMN a int DEFAULT 5", "SELECT a FROM {t} WHERE id = 4", "42703"),
        ("ADD COLUMN a int DEFAULT 5", "INSERT INTO {t} (id, ts, a) VALUES (100, '2026-01-05Z', 1)", "42703"),
        ("RENAME COLUMN i TO k", "UPDATE {t} SET k = 1 WHERE id = 4", "42703"),
        ("DROP COLUMN i", "UPDATE {t} SET v = 'x' WHERE id = 4", "0A000"),
        ("ADD CHECK (i < 1000)", "UPDATE {t} SET i = 2000 WHERE id = 4", "0A000"),
    ):
        with twins.client.transaction(force_rollback=True):
            twins.client.execute(f"ALTER TABLE {twins.tiered} {change}")
            with twins.client.transaction(force_rollback=True):
                assert twins.client.execute(f"SELECT v FROM {twins.tiered} WHERE id = 4").fetchall() == [("v4",)]
            twins.client.execute("SAVEPOINT s")
            twins.refused(statement, state, "alter")
            twins.client.execute("ROLLBACK TO SAVEPOINT s")
    twins.same()


def test_an_alter_that_waits_keeps_no_cold_writer_waiting(kept: Twins) -> None:
    """It waits for the writer's transaction, and what works for that must not wait for it."""
    twins = kept

    def alter(connection: psycopg.Connection[Any]) -> None:
        connection.execute(f"ALTER TABLE {twins.tiered} ADD COLUMN a int DEFAULT 5")

    with twins.world.connect() as other:
        with twins.client.transaction():
            twins.client.execute(f"SELECT FROM {twins.tiered} WHERE id = 7")
            thread = threading.Thread(target=alter, args=[other])
            thread.start()
            _until(twins, f"SELECT FROM pg_locks WHERE relation = '{twins.tiered}'::regclass AND NOT granted")
            begun = time.monotonic()
            with patience():
                assert twins.client.execute(f"UPDATE {twins.tiered} SET i = 100 WHERE id IN (4, 5)").rowcount == 2
            assert time.monotonic() - begun < AT_ONCE
        thread.join()
    twins.client.execute(f"UPDATE {twins.plain} SET i = 100 WHERE id IN (4, 5)")
    twins.client.execute(f"ALTER TABLE {twins.plain} ADD COLUMN a int DEFAULT 5")
    twins.same()
    twins.both("ALTER TABLE {t} DROP COLUMN a")


def _until(twins: Twins, query: str) -> None:
    with twins.world.connect() as watcher:
        wait_until(lambda: watcher.execute(query).rowcount > 0, 60, query)


def test_a_table_altered_since_a_transactions_cold_snapshot(kept: Twins) -> None:
    """In READ COMMITTED the next statement sees it; a snapshot that stays cannot, and says so."""
    twins, first = kept, f"first_{kept.tiered}"
    twins.world.run(
        f"CREATE TABLE {first} (id int, ts timestamptz, PRIMARY KEY (id, ts)) PARTITION BY RANGE (ts);"
        f"CREATE TABLE {first}_1 PARTITION OF {first} FOR VALUES FROM ('2026-01-01Z') TO ('2026-02-01Z')"
    )
    twins.world.register(f"public.{first}", hot="100 years")
    alter = f"ALTER TABLE {twins.tiered} ADD COLUMN {{}} int DEFAULT 5"
    with twins.world.connect() as client, client.transaction():
        assert client.execute(f"SELECT * FROM {first}").fetchall() == []
        twins.client.execute(alter.format("a"))
        assert client.execute(f"SELECT a FROM {twins.tiered} WHERE id = 4").fetchall() == [(5,)]
    with twins.world.connect() as client:
        client.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        client.autocommit = False
        client.execute(f"SELECT * FROM {first}").fetchall()
        twins.client.execute(alter.format("b"))
        with pytest.raises(psycopg.errors.SerializationFailure):
            client.execute(f"SELECT b FROM {twins.tiered} WHERE id = 4")
        client.rollback()
        assert client.execute(f"SELECT b FROM {twins.tiered} WHERE id = 4").fetchall() == [(5,)]
    twins.client.execute(f"ALTER TABLE {twins.tiered} DROP COLUMN a, DROP COLUMN b")


@pytest.mark.parametrize("shared", ["18"], indirect=True)
def test_tables_schemas_and_partitions_are_renamed(twins: Twins) -> None:
    old, new = twins.tiered, f"renamed_{twins.tiered}"
    twins.both("UPDATE {t} SET i = 100 WHERE id IN (4, 5)")
    twins.client.execute(f"CREATE SCHEMA s_{new}; ALTER TABLE {old} RENAME TO {new}")
    twins.client.execute(f"ALTER TABLE {old}_03 RENAME TO {new}_march; ALTER TABLE {new} SET SCHEMA s_{new}")
    twins.client.execute(f"ALTER SCHEMA s_{new} RENAME TO t_{new}")
    twins.tiered = f"t_{new}.{new}"
    twins.same()
    twins.both("UPDATE {t} SET i = 200 WHERE id IN (4, 9)")
    twins.both("UPDATE {t} SET ts = '2026-11-11Z' WHERE id = 8 AND ts < '2026-02-01Z'")
    assert twins.archive("2026-04-01Z") == 1
    assert twins.fold()
    twins.same()


def test_what_else_is_altered_behaves(kept: Twins) -> None:
    twins, both = kept, kept.both
    both("ALTER TABLE {t} ALTER i SET DEFAULT 42, ALTER v SET DEFAULT 'set'")
    both("INSERT INTO {t} (id, ts) VALUES (100, '2026-01-05Z'), (101, '2026-11-05Z') RETURNING i, v")
    both("ALTER TABLE {t} ALTER i DROP DEFAULT")
    both("INSERT INTO {t} (id, ts) VALUES (102, '2026-01-05Z') RETURNING i, v")
    twins.client.execute(f"ALTER TYPE mood ADD VALUE IF NOT EXISTS 'new {twins.tiered}' BEFORE 'ok'")
    both(f"UPDATE {{t}} SET m = 'new {twins.tiered}' WHERE id IN (4, 7)")
    both("SELECT id FROM {t} WHERE m < 'ok' ORDER BY m, id")
    both("CREATE INDEX ON {t} (i)")
    both("ALTER TABLE {t} ADD CONSTRAINT small CHECK (i < 1000)")
    for statement in (
        "UPDATE {t} SET i = 2000 WHERE id = 4",
        "INSERT INTO {t} (id, ts, i) VALUES (200, '2026-01-05Z', 5000)",
        "UPDATE {t} SET i = 2000 WHERE id = 7 AND ts > '2026-10-01Z'",
    ):
        twins.refused(statement, "23514", "small")
    both("ALTER TABLE {t} DROP CONSTRAINT small")
    both("UPDATE {t} SET i = 2000 WHERE id = 4")
    both("COMMENT ON COLUMN {t}.i IS 'commented'; ALTER TABLE {t} ALTER v SET STATISTICS 50")
    both("UPDATE {t} SET i = 3000 WHERE id = 5")
    for statement in ("ALTER TABLE {t} ADD UNIQUE (id, ts)", "CREATE UNIQUE INDEX ON {t} (id, ts)"):
        twins.refused(statement, "42809", "foreign")
    twins.same()


def test_reading_needs_no_lock_that_a_fold_holds_and_writing_says_so(
    kept: Twins, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(follower, "_WRITER_SECONDS", 0.5)
    twins, both = kept, kept.both
    both("UPDATE {t} SET i = 100 WHERE id IN (4, 5)")
    (delta,) = twins.client.execute(
        f"SELECT delta::text FROM frostline.tables WHERE relation = '{twins.tiered}'::regclass"
    ).fetchone() or ("",)
    with twins.world.connect() as other, other.transaction():
        other.execute(f"LOCK TABLE {delta} IN ACCESS SHARE MODE")
        both("ALTER TABLE {t} RENAME COLUMN id TO number; ALTER TABLE {t} RENAME i TO id")
        both("ALTER TABLE {t} ADD COLUMN a int DEFAULT 5, DROP COLUMN v, ALTER v2 TYPE varchar(20)")
        both("SELECT * FROM {t}")
        both("SELECT count(a), min(a), sum(id) FROM {t} WHERE number = 5")
        with pytest.raises(psycopg.errors.LockNotAvailable, match="could not follow"):
            twins.client.execute(f"UPDATE {twins.tiered} SET a = 1 WHERE number = 5")
    both("UPDATE {t} SET a = 1 WHERE number = 5")
    both("ALTER TABLE {t} RENAME COLUMN id TO i; ALTER TABLE {t} RENAME number TO id")
    twins.same()


@pytest.mark.parametrize("shared", ["18"], indirect=True)  # what is written to the lake is no matter of Postgres
def test_other_engines_find_the_new_names_and_no_defaults_in_old_files(twins: Twins) -> None:
    both, same, world = twins.both, twins.same, twins.world
    world.run(f"UPDATE frostline.tables SET merge_mode = 'merge-on-read' WHERE relation = '{twins.tiered}'::regclass")
    before = {field.name: field.field_id for field in _iceberg(twins).schema().fields}
    both("ALTER TABLE {t} DROP COLUMN v, ALTER id TYPE bigint")
    both("SELECT count(*) FROM {t} WHERE ts < '2026-02-01Z'")  # the partitions were rewritten, and somebody has looked
    both("ALTER TABLE {t} ADD COLUMN a int DEFAULT 5")
    both("ALTER TABLE {t} RENAME COLUMN i TO amount")
    both("UPDATE {t} SET a = NULL WHERE id IN (4, 5)")
    both("UPDATE {t} SET a = 6 WHERE id IN (8, 9)")
    result = CliRunner().invoke(app, ["--dsn", world.dsn, "sync", f"public.{twins.tiered}"], env=_environment(world))
    assert result.exit_code == 0, result.output
    schema = _iceberg(twins).schema()
    now = {field.name: field.field_id for field in schema.fields}
    assert "v" not in now
    assert now["amount"] == before["i"]
    assert str(schema.find_type("id")) == "long"
    assert twins.fold()
    same()
    both("ALTER TABLE {t} ADD COLUMN v text DEFAULT 'again'")
    both("UPDATE {t} SET v = NULL WHERE id IN (4, 16)")
    both("ALTER TABLE {t} RENAME COLUMN amount TO sum")
    same()
    assert twins.fold()
    same()
    table = _iceberg(twins)
    assert table.schema().find_field("v").field_id > max(before.values())
    rows = table.scan().to_arrow().select(["id", "sum", "a", "v"]).to_pylist()
    expected = {
        id_: (sum_, a if id_ in (4, 5, 8, 9, 16) else None, None)
        for id_, sum_, a in world.run(f"SELECT id, sum, a FROM {twins.tiered} WHERE ts < '2026-03-01Z'")
    }
    assert {row["id"]: (row["sum"], row["a"], row["v"]) for row in rows} == expected
    with quiet():
        spark = session.for_database(world.spark, world.settings)
        found = spark.sql(f"SELECT id, sum, a, v FROM {world.settings.lake.name}.public.{twins.tiered}").collect()
    assert {row["id"]: (row["sum"], row["a"], row["v"]) for row in found} == expected


def _environment(world: World) -> dict[str, str]:
    return {
        "FROSTLINE_LAKE_WAREHOUSE": world.settings.warehouse,
        "FROSTLINE_LOCAL_DIR": str(world.settings.local.dir),
    }


def _iceberg(twins: Twins) -> IcebergTable:
    with connect(twins.world.dsn) as connection:
        return lake.load(twins.world.settings, registry.get(connection, f"public.{twins.tiered}"))
