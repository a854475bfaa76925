"""Years of a table in minutes: whatever it goes through, in any order, its rows are those of a plain table.

Columns come and go, rows of all ages are written, periods are archived and come back, folds and maintenance run.
`make soak` lets it run longer.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import count

import psycopg
import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule, run_state_machine_as_test
from pyspark.sql import SparkSession

from fix_tiering import World, new_world
from frostline.catalog.database import connect
from frostline.report import Silent
from frostline.tiering import options, verify
from frostline.tiering.archive.run import Warm
from frostline.tiering.maintain.run import maintain
from frostline.tiering.untier.run import untier
from integration.tiering.twins import Twins

SOAK = "SOAK_EXAMPLES" in os.environ
LIVES = max(int(os.environ.get("SOAK_EXAMPLES", "200")) // 100, 1)
STEPS = 40 if SOAK else 22
MONTHS = 5  # that can become cold

# A type, values of it, and what it can become.
TYPES = {
    "int": ("NULL", "0", "-7", "2147483647"),
    "bigint": ("NULL", "1", "9223372036854775807"),
    "real": ("NULL", "1.1", "'-0'", "'NaN'"),
    "double precision": ("NULL", "0.1", "'Infinity'"),
    "numeric(8, 2)": ("NULL", "0", "-123456.78"),
    "numeric(12, 2)": ("NULL", "1234567890.12"),
    "text": ("NULL", "''", "'Größe'", "E'a\\\\b\\n'"),
    "varchar(8)": ("NULL", "'x '", "'eight888'"),
    "varchar(20)": ("NULL", "'rather more than 8'"),
    "boolean": ("NULL", "true", "false"),
    "timestamptz": ("NULL", "'2026-03-29 01:30Z'", "'0044-03-15Z BC'"),
    "date": ("NULL", "'1969-12-31'"),
    "mood": ("NULL", "'sad'", "'happy'"),
    "jsonb": ("NULL", "'null'", """'{"a": [1, 2.50]}'"""),
    "int[]": ("NULL", "'{}'", "'{1,NULL}'"),
    "interval": ("NULL", "'1 month -1 day'"),
    "uuid": ("NULL", "'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11'"),
}
AS_TEXT = ("mood", "jsonb", "int[]", "interval")  # in the lake: files are not sorted by them
PROMOTIONS = {
    "int": "bigint",
    "real": "double precision",
    "numeric(8, 2)": "numeric(12, 2)",
    "varchar(8)": "varchar(20)",
    "varchar(20)": "text",
}
NAMES = ("a", "b", "c", '"Odd, name"', '"select"')
_numbers = count(1)
CHOICE = st.integers(0, 1000)


@dataclass
class Life:
    twins: Twins
    columns: dict[str, str] = field(default_factory=lambda: {"a": "int", "b": "varchar(8)"})
    cold: int = 0  # months
    born: int = 40  # rows so far


class Lives(RuleBasedStateMachine):
    """Everything is chosen by number from what there is, so that a history of numbers makes sense with any table."""

    world: World
    life: Life

    @initialize()
    def born(self) -> None:
        self.life = Life(_registered(self.world))

    def teardown(self) -> None:
        life = self.life
        if life.cold:
            life.twins.fold()
            life.twins.same()
            findings = verify.verify(self.world.settings, f"public.{life.twins.tiered}", None, Silent())
            assert all(not finding.problems for finding in findings)
        life.twins.client.close()

    def _both(self, statement: str) -> None:
        """Given to each, with the same result."""
        twins = self.life.twins
        ours, theirs = (self._outcome(statement.replace("{t}", name)) for name in (twins.tiered, twins.plain))
        assert ours == theirs, statement
        self._same()

    def _outcome(self, statement: str) -> tuple[str | None, list[str]]:
        """The tag and what is returned, or the state: a message names the partition."""
        try:
            with self.life.twins.client.transaction():
                cursor = self.life.twins.client.execute(statement)
                return cursor.statusmessage, sorted(
                    map(repr, cursor.fetchall() if cursor.description is not None else [])
                )
        except psycopg.Error as error:
            return error.sqlstate, []

    def _same(self) -> None:
        ours, theirs = (
            self.life.twins.client.execute(f"SELECT r.id, r::text FROM {name} r ORDER BY 1, 2").fetchall()
            for name in (self.life.twins.tiered, self.life.twins.plain)
        )
        assert ours == theirs

    def _column(self, choice: int) -> str:
        return list(self.life.columns)[choice % len(self.life.columns)]

    def _value(self, column: str, choice: int) -> str:
        values = TYPES[self.life.columns[column]]
        return values[choice % len(values)]

    # What is altered

    @precondition(lambda self: len(self.life.columns) < len(NAMES))
    @rule(name=CHOICE, type_=st.sampled_from(sorted(TYPES)), value=CHOICE, default=st.booleans())
    def add_column(self, name: int, type_: str, value: int, default: bool) -> None:
        free = [known for known in NAMES if known not in self.life.columns]
        column = free[name % len(free)]
        self.life.columns[column] = type_
        chosen = self._value(column, value)
        said = f" DEFAULT {chosen}" if default else ""
        if default and chosen != "NULL" and value % 2:
            said += " NOT NULL"
        self._both(f"ALTER TABLE {{t}} ADD COLUMN {column} {type_}{said}")

    @precondition(lambda self: len(self.life.columns) > 1)
    @rule(which=CHOICE)
    def drop_column(self, which: int) -> None:
        column = self._column(which)
        del self.life.columns[column]
        self._both(f"ALTER TABLE {{t}} DROP COLUMN {column}")

    @precondition(lambda self: len(self.life.columns) < len(NAMES))
    @rule(which=CHOICE, name=CHOICE)
    def rename_column(self, which: int, name: int) -> None:
        free = [known for known in NAMES if known not in self.life.columns]
        column, new = self._column(which), free[name % len(free)]
        self.life.columns[new] = self.life.columns.pop(column)
        self._both(f"ALTER TABLE {{t}} RENAME COLUMN {column} TO {new}")

    @precondition(lambda self: any(type_ in PROMOTIONS for type_ in self.life.columns.values()))
    @rule(which=CHOICE)
    def promote_column(self, which: int) -> None:
        able = [column for column, type_ in self.life.columns.items() if type_ in PROMOTIONS]
        column = able[which % len(able)]
        self.life.columns[column] = PROMOTIONS[self.life.columns[column]]
        self._both(f"ALTER TABLE {{t}} ALTER COLUMN {column} TYPE {self.life.columns[column]}")

    @rule(which=CHOICE, value=CHOICE)
    def set_default(self, which: int, value: int) -> None:
        column = self._column(which)
        self._both(f"ALTER TABLE {{t}} ALTER COLUMN {column} SET DEFAULT {self._value(column, value)}")

    # What is written

    @rule(month=st.integers(-1, MONTHS + 1), which=CHOICE, value=CHOICE, rows=st.integers(1, 5))
    def insert(self, month: int, which: int, value: int, rows: int) -> None:
        column = self._column(which)
        self.life.born += 5
        self._both(
            f"INSERT INTO {{t}} (id, ts, {column}) SELECT {self.life.born} + x,"
            f" timestamptz '2026-01-10Z' + make_interval(months => {month}, hours => x), {self._value(column, value)}"
            f" FROM generate_series(1, {rows}) x"
        )

    @rule(which=CHOICE, value=CHOICE, every=st.integers(2, 9), returning=st.booleans())
    def update(self, which: int, value: int, every: int, returning: bool) -> None:
        column = self._column(which)
        self._both(
            f"UPDATE {{t}} SET {column} = {self._value(column, value)} WHERE id % {every} = {value % every}"
            + (" RETURNING *" if returning else "")
        )

    @rule(every=st.integers(5, 12), left=CHOICE)
    def delete(self, every: int, left: int) -> None:
        self._both(f"DELETE FROM {{t}} WHERE id % {every} = {left % every}")

    @rule(every=st.integers(2, 9), which=CHOICE, value=CHOICE)
    def undo(self, every: int, which: int, value: int) -> None:
        column = self._column(which)
        with self.life.twins.client.transaction():
            self._both(f"UPDATE {{t}} SET {column} = {self._value(column, value)} WHERE id % {every} = 1")
            raise psycopg.Rollback
        self._same()

    # What is chosen

    @rule(
        step=st.sampled_from(["auto", "day", "month"]),
        which=CHOICE,
        order=st.sampled_from(["", " desc", " nulls first", " desc nulls last"]),
        mode=st.sampled_from(["copy-on-write", "merge-on-read"]),
        compaction=st.sampled_from(["sort", "binpack"]),
    )
    def lay_out(self, step: str, which: int, order: str, mode: str, compaction: str) -> None:
        columns = [*(column for column, type_ in self.life.columns.items() if type_ not in AS_TEXT), "ts"]
        sorted_by = f"{columns[which % len(columns)]}{order}, id"
        given = {"lake_partition": step, "sort_order": sorted_by, "merge_mode": mode, "compaction": compaction}
        with connect(self.world.dsn) as connection:
            [table] = options.tables(connection, [f"public.{self.life.twins.tiered}"])
            options.apply(
                connection, self.world.settings, options.plan(connection, self.world.settings, [(table, given)])
            )
        self._same()

    # What is looked after

    @precondition(lambda self: self.life.cold < MONTHS)
    @rule()
    def archive(self) -> None:
        self.life.cold += 1
        assert self.life.twins.archive(f"2026-{self.life.cold + 1:02}-01Z") == 1
        self._same()

    @precondition(lambda self: self.life.cold)
    @rule()
    def fold(self) -> None:
        self.life.twins.fold()
        self._same()

    @precondition(lambda self: self.life.cold)
    @rule(everything=st.booleans())
    def maintain(self, everything: bool) -> None:
        with Warm(self.world.spark_here) as warm:
            name = f"public.{self.life.twins.tiered}"
            maintain(self.world.settings, name, Silent(), warm, everything=everything)
        self._same()

    @precondition(lambda self: self.life.cold)
    @rule()
    def untier(self) -> None:
        with Warm(self.world.spark_here) as warm:
            newest = f"2026-{self.life.cold:02}-15Z"
            assert untier(self.world.settings, f"public.{self.life.twins.tiered}", newest, Silent(), warm)
        self.life.cold -= 1
        self._same()


@pytest.fixture(scope="module")
def world(dsn: str, spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    eager = {"maintenance.files": "2", "maintenance.manifests": "2", "gateway.bulk_rows": "3"}
    with new_world(dsn, spark, tmp_path_factory.mktemp("lives"), eager) as world:
        world.run("CREATE TYPE mood AS ENUM ('sad', 'ok', 'happy')")
        yield world


def _registered(world: World) -> Twins:
    """Nothing is cold yet."""
    number = next(_numbers)
    tiered, plain = f"tiered_{number}", f"plain_{number}"
    for name in (tiered, plain):
        world.run(
            f"CREATE TABLE {name} (id int, ts timestamptz NOT NULL, a int, b varchar(8) DEFAULT 'b',"
            " PRIMARY KEY (id, ts)) PARTITION BY RANGE (ts)"
        )
        for month in range(1, MONTHS + 1):
            world.run(
                f"CREATE TABLE {name}_{month} PARTITION OF {name}"
                f" FOR VALUES FROM ('2026-{month:02}-01Z') TO ('2026-{month + 1:02}-01Z')"
            )
        world.run(
            f"CREATE TABLE {name}_now PARTITION OF {name} FOR VALUES FROM ('2026-{MONTHS + 1:02}-01Z') TO (MAXVALUE);"
            f"INSERT INTO {name} (id, ts, a) SELECT x, timestamptz '2026-01-01Z'"
            f" + make_interval(months => x % {MONTHS + 1}, hours => x), nullif(x % 7, 3) FROM generate_series(1, 40) x"
        )
    world.run(f"CREATE TABLE {plain}_before PARTITION OF {plain} FOR VALUES FROM (MINVALUE) TO ('2026-01-01Z')")
    world.register(f"public.{tiered}", hot="100 years")
    client = world.connect()
    client.execute("SET timezone = 'UTC'")
    return Twins(world, tiered, plain, client)


def test_lives(world: World) -> None:
    class Here(Lives):
        pass

    Here.world = world
    run_state_machine_as_test(
        Here,
        settings=settings(
            max_examples=LIVES,
            stateful_step_count=STEPS,
            deadline=None,
            database=None,
            derandomize=not SOAK,
            suppress_health_check=list(HealthCheck),
            phases=[Phase.explicit, Phase.generate, *([Phase.shrink] if SOAK else [])],
        ),
    )
