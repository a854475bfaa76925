"""Columns that are called like words of SQL, which postgres_fdw does not quote, or like names of ours."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest

from fix_tiering import World
from frostline.errors import RefusedError

ALL = "SELECT r::text FROM {t} r"
TABLE = """
CREATE TABLE {t} (id int, ts timestamptz, {columns}, PRIMARY KEY (id, ts)) PARTITION BY RANGE (ts);
CREATE TABLE {t}_01 PARTITION OF {t} FOR VALUES FROM ('2020-01-01Z') TO ('2020-02-01Z');
CREATE TABLE {t}_now PARTITION OF {t} FOR VALUES FROM ('2020-02-01Z') TO (MAXVALUE);
INSERT INTO {t} SELECT i, timestamptz '2020-01-05Z', {values} FROM generate_series(1, 4) i;
INSERT INTO {t} SELECT i, timestamptz '2020-02-05Z', {values} FROM generate_series(5, 6) i;
"""


def twins(world: World, columns: str, values: str) -> None:
    """`tiered` and `plain` with the same rows, some of which are cold."""
    for table in ("tiered", "plain"):
        world.run(TABLE.format(t=table, columns=columns.replace("{t}", table), values=values))
    world.register("public.tiered")
    assert [archived.rows for archived in world.archive("public.tiered")] == [4]


def same(world: World, *statements: str) -> None:
    """Both tables make the same of it: tag and rows, or the SQLSTATE."""
    for statement in statements:
        ours, theirs = (told(world, statement.replace("{t}", table)) for table in ("tiered", "plain"))
        assert ours == theirs, statement


def told(world: World, statement: str) -> Any:
    with psycopg.connect(world.dsn, autocommit=True) as client:
        try:
            cursor = client.execute(statement)
        except psycopg.Error as error:
            return error.sqlstate
        return cursor.statusmessage, sorted(cursor.fetchall()) if cursor.description is not None else []


def test_a_column_called_set_is_no_clause(world: World) -> None:
    """It hid that a key was set as well, and the row that had the key was lost."""
    twins(world, '"set" int, v int', "i, i * 10")
    same(
        world,
        "UPDATE {t} SET id = 2, \"set\" = 5 WHERE id = 1 AND ts < '2020-02-01Z'",
        ALL,
        "UPDATE {t} SET v = 1 WHERE id = 1 RETURNING *",
        'UPDATE {t} SET v = 2, "set" = v WHERE "set" = 3',
        "DELETE FROM {t} WHERE id = 2 RETURNING *",
        ALL,
    )


def test_a_column_called_conflict_does_not_swallow_a_duplicate(world: World) -> None:
    twins(world, "conflict int", "i")
    insert = "INSERT INTO {t} VALUES (1, '2020-01-05Z', 7)"
    same(world, f"{insert} RETURNING *", f"{insert} ON CONFLICT DO NOTHING RETURNING *", ALL)


@pytest.mark.parametrize("kind", ["int", "text"])
def test_a_column_called_depth_is_not_ours(world: World, kind: str) -> None:
    twins(world, f"depth {kind}, v int", f"i::{kind}, i")
    same(
        world,
        "UPDATE {t} SET v = 1 WHERE id = 1",
        "INSERT INTO {t} VALUES (9, '2020-01-09Z', '3', 4)",
        "DELETE FROM {t} WHERE depth = '2'",
        ALL,
    )


def test_names_of_iceberg_s_own_columns_are_refused(world: World) -> None:
    """Rows could be archived, and changes of them never folded."""
    names = ("_file", "_pos", "_partition", "_spec_id", "_deleted", "_row_id", "_last_updated_sequence_number")
    for number, name in enumerate(names):
        world.run(TABLE.format(t=f"t{number}", columns=f"{name} int", values="i"))
        with pytest.raises(RefusedError) as error:
            world.register(f"public.t{number}")
        assert f"a column is called {name}, a name Frostline or Iceberg needs" in str(error.value)


def test_names_with_the_sign_that_functions_were_quoted_by_are_registered(world: World) -> None:
    table = """
    CREATE TABLE "t$frostline$" (id int, ts date, "$frostline$" int, PRIMARY KEY (id, ts)) PARTITION BY RANGE (ts);
    CREATE TABLE now PARTITION OF "t$frostline$" FOR VALUES FROM ('2020-01-01') TO (MAXVALUE)"""
    world.run(table)
    world.register('public."t$frostline$"')
    world.run("INSERT INTO \"t$frostline$\" VALUES (1, '2020-01-05', 2)")
