"""ALTER TABLE on a tiered table and on its plain twin: the same rows, before and after, cold and hot."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count
from typing import Any

import psycopg
import pytest
from pyspark.sql import SparkSession

from fix_tiering import World, new_world
from frostline.report import Silent
from frostline.tiering.archive.run import Warm
from frostline.tiering.fold.run import Folded, fold

MONTHS = ("01", "02", "03")
_numbers = count(1)


@dataclass
class Twins:
    """`{t}` in a statement stands for the tiered table, then for its plain twin."""

    world: World
    tiered: str
    plain: str
    client: psycopg.Connection[Any]

    def both(self, statement: str) -> None:
        """Run on each; tags and what is returned must be equal."""
        ours, theirs = (self.outcome(statement.replace("{t}", name)) for name in (self.tiered, self.plain))
        assert ours == theirs, statement

    def outcome(self, statement: str) -> object:
        try:
            cursor = self.client.execute(statement)
        except psycopg.Error as error:
            return error.sqlstate, str(error).replace(self.tiered, "T").replace(self.plain, "T")
        rows = sorted(cursor.fetchall(), key=repr) if cursor.description else []
        return cursor.statusmessage, rows

    def same(self) -> list[tuple[Any, ...]]:
        """All rows, and what is asked of every column."""
        ours, theirs = (
            self.client.execute(f"SELECT r.id, r::text FROM {name} r ORDER BY 1, 2").fetchall()
            for name in (self.tiered, self.plain)
        )
        assert ours == theirs
        columns = self.client.execute(
            "SELECT quote_ident(attname), format_type(atttypid, -1) FROM pg_attribute"
            " WHERE attrelid = %s::regclass AND attnum > 0 AND NOT attisdropped",
            [self.plain],
        ).fetchall()
        for name, type_ in columns:
            least = "" if type_ in ("boolean", "uuid", "jsonb", "mood", "bytea") else f", min({name}), max({name})"
            self.both(f"SELECT count({name}), count(DISTINCT {name}){least} FROM {{t}}")
            self.both(f"SELECT count(*) FROM {{t}} WHERE {name} IS NULL AND ts < '2026-03-01Z'")
            self.both(
                f"SELECT id FROM {{t}} WHERE {name} = (SELECT {name} FROM {{t}} WHERE id = 5) AND ts < '2026-04-01Z'"
            )
        return ours

    def archive(self) -> int:
        return len(self.world.archive(f"public.{self.tiered}"))

    def fold(self) -> list[Folded]:
        with Warm(self.world.spark_here) as warm:
            return fold(self.world.settings, f"public.{self.tiered}", Silent(), warm)


@pytest.fixture(scope="module", params=["18", "15"])
def shared(
    request: pytest.FixtureRequest, spark: SparkSession, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[World]:
    server = request.getfixturevalue("dsn" if request.param == "18" else "postgres15")
    with new_world(server, spark, tmp_path_factory.mktemp(f"schema{request.param}")) as world:
        world.run("CREATE TYPE mood AS ENUM ('sad', 'ok', 'happy')")
        yield world


@pytest.fixture
def twins(shared: World) -> Iterator[Twins]:
    """January and February are cold, March is next, November is hot. A column was dropped before registration."""
    number = next(_numbers)
    tiered, plain = f"tiered_{number}", f"plain_{number}"
    for name in (tiered, plain):
        shared.run(
            f"CREATE TABLE {name} (gone int, id int, ts timestamptz NOT NULL, i int, r real, n numeric(10, 2),"
            f" v varchar(8), c char(4), m mood, j jsonb, PRIMARY KEY (id, ts)) PARTITION BY RANGE (ts)"
        )
        for month, after in zip(MONTHS, ("02", "03", "04"), strict=True):
            shared.run(
                f"CREATE TABLE {name}_{month} PARTITION OF {name}"
                f" FOR VALUES FROM ('2026-{month}-01Z') TO ('2026-{after}-01Z')"
            )
        shared.run(
            f"CREATE TABLE {name}_now PARTITION OF {name} FOR VALUES FROM ('2026-04-01Z') TO (MAXVALUE);"
            f"INSERT INTO {name} (id, ts, i, r, n, v, c, m, j) SELECT x, timestamptz '2026-01-01Z'"
            " + make_interval(months => CASE x % 4 WHEN 3 THEN 9 ELSE x % 4 END) + x * interval '1 hour', nullif(x % 7, 3),"
            " x / 3.0, x * 1.5, 'v' || x % 5, 'c' || x % 3, (ARRAY['sad', 'ok', 'happy'])[1 + x % 3]::mood,"
            " jsonb_build_object('x', x) FROM generate_series(1, 40) x;"
            f"ALTER TABLE {name} DROP COLUMN gone"
        )
    shared.run(f"CREATE TABLE {plain}_before PARTITION OF {plain} FOR VALUES FROM (MINVALUE) TO ('2026-01-01Z')")
    shared.register(f"public.{tiered}", hot="7 months")
    client = shared.connect()
    client.execute("SET timezone = 'UTC'")
    found = Twins(shared, tiered, plain, client)
    shared.run(f"UPDATE frostline.tables SET hot_for = '8 months 15 days' WHERE relation = '{tiered}'::regclass")
    assert found.archive() == 2
    yield found
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
    both("DELETE FROM {t} WHERE v = 'new' AND id IN (12, 13)")
    both("UPDATE {t} SET v = NULL WHERE id IN (16, 17)")
    same()
    assert twins.fold()
    same()
    both("ALTER TABLE {t} RENAME COLUMN a TO x; ALTER TABLE {t} RENAME COLUMN b TO a; ALTER TABLE {t} RENAME x TO b")
    same()
    both("UPDATE {t} SET a = -1, b = -2 WHERE id IN (20, 21)")
    same()
    twins.world.run(
        f"UPDATE frostline.tables SET hot_for = '7 months' WHERE relation = '{twins.tiered}'::regclass"
    )
    assert twins.archive() == 1
    same()
    both("UPDATE {t} SET a = a + 5, d = '2030-01-01Z' WHERE ts < '2026-04-01Z' AND id % 5 = 0")
    assert twins.fold()
    same()
