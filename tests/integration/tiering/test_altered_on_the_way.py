"""Columns that change while a period comes back are never taken for one another."""

from __future__ import annotations

from pathlib import Path

import pytest

from fix_faults import at
from fix_tiering import World
from frostline.errors import OperationError, RefusedError
from frostline.report import Silent
from frostline.tiering import cycle
from frostline.tiering.archive.run import Warm
from frostline.tiering.untier.run import untier

ANOTHER = {
    "names that change places": "ALTER TABLE events RENAME a TO c; ALTER TABLE events RENAME b TO a; "
    "ALTER TABLE events RENAME c TO b",
    "a column of the same name": "ALTER TABLE events DROP a, ADD a text",
    "another name": "ALTER TABLE events RENAME b TO c; ALTER TABLE events ADD b text",
}


@pytest.fixture
def events(world: World) -> World:
    world.run(
        "CREATE TABLE events (id int, ts date, a text, b text, PRIMARY KEY (id, ts)) PARTITION BY RANGE (ts);"
        "CREATE TABLE events_1 PARTITION OF events FOR VALUES FROM ('2020-01-01') TO ('2020-02-01');"
        "CREATE TABLE events_now PARTITION OF events FOR VALUES FROM ('2020-02-01') TO (MAXVALUE);"
        "INSERT INTO events VALUES (1, '2020-01-05', 'of a', 'of b'), (2, '2020-03-01', 'of a', 'of b')"
    )
    world.register("events", "1 month")
    world.archive("events")
    return world


@pytest.mark.parametrize("change", ["ADD CONSTRAINT few CHECK (id < 10)", "ALTER a SET NOT NULL"])
def test_a_constraint_is_added_when_the_leaf_is_made(events: World, tmp_path: Path, change: str) -> None:
    def alter(reached: str) -> None:
        if reached == "attach.begin":
            events.run(f"ALTER TABLE events {change}")

    with at(tmp_path, alter), pytest.raises(OperationError, match="was altered, or many rows were added, meanwhile"):
        come_back(events)
    come_back(events)
    assert events.run("SELECT id, a, b FROM events ORDER BY id") == [(1, "of a", "of b"), (2, "of a", "of b")]


def test_a_constraint_is_validated_when_the_leaf_is_made(events: World, tmp_path: Path) -> None:
    events.run("ALTER TABLE events ADD CONSTRAINT few CHECK (id < 10) NOT VALID")

    def alter(reached: str) -> None:
        if reached == "attach.begin":
            events.run("ALTER TABLE events VALIDATE CONSTRAINT few")

    with at(tmp_path, alter), pytest.raises(OperationError, match="was altered, or many rows were added, meanwhile"):
        come_back(events)
    come_back(events)
    assert events.run("SELECT id, a, b FROM events ORDER BY id") == [(1, "of a", "of b"), (2, "of a", "of b")]


def test_a_generated_column_is_computed_otherwise_when_the_leaf_is_made(world: World, tmp_path: Path) -> None:
    world.run(
        "CREATE TABLE events (id int, ts date, a int GENERATED ALWAYS AS (id * 2) STORED, PRIMARY KEY (id, ts))"
        " PARTITION BY RANGE (ts);"
        "CREATE TABLE events_1 PARTITION OF events FOR VALUES FROM ('2020-01-01') TO ('2020-02-01');"
        "CREATE TABLE events_now PARTITION OF events FOR VALUES FROM ('2020-02-01') TO (MAXVALUE);"
        "INSERT INTO events VALUES (1, '2020-01-05'), (2, '2020-03-01')"
    )
    world.register("events", "1 month")
    world.archive("events")

    def alter(reached: str) -> None:
        if reached == "attach.begin":
            world.run("ALTER TABLE events ALTER a SET EXPRESSION AS (id * 3)")

    with at(tmp_path, alter), pytest.raises(OperationError, match="was altered, or many rows were added, meanwhile"):
        come_back(world)
    with pytest.raises(RefusedError, match="its expression was changed"):
        come_back(world)
    world.run("ALTER TABLE events ALTER a SET EXPRESSION AS (id * 2)")
    come_back(world)
    assert world.run("SELECT id, a FROM events ORDER BY id") == [(1, 2), (2, 4)]


@pytest.mark.parametrize("point", ["load.committed", "compare.begin", "attach.begin"])
@pytest.mark.parametrize("change", sorted(ANOTHER))
def test_a_column_is_another_by_the_time_the_leaf_is_attached(
    events: World, tmp_path: Path, point: str, change: str
) -> None:
    def alter(reached: str) -> None:
        if reached == point:
            events.run(ANOTHER[change])

    with at(tmp_path, alter), pytest.raises(OperationError, match="was altered, or many rows were added, meanwhile"):
        come_back(events)
    wanted = events.run("SELECT id, a, b FROM events ORDER BY id")
    assert wanted[0][1:] == wanted[1][1:]
    come_back(events)
    assert events.run("SELECT id, a, b FROM events ORDER BY id") == wanted


def test_old_rows_can_be_written_while_a_leaf_of_other_columns_follows(events: World, tmp_path: Path) -> None:
    """It is of no use any more, and in nobody's way."""

    def die(reached: str) -> bool:
        return reached not in ("compare.begin", "abandon.begin")

    with at(tmp_path, die), pytest.raises(OSError, match="a test failed this"):
        come_back(events)
    events.run("ALTER TABLE events DROP b, ADD c int DEFAULT 7")
    events.run("UPDATE events SET a = 'new', c = 8 WHERE id = 1")
    events.run("INSERT INTO events VALUES (3, '2020-01-06', 'late', 9)")
    wanted = [(1, "new", 8), (2, "of a", 7), (3, "late", 9)]
    assert events.run("SELECT id, a, c FROM events ORDER BY id") == wanted
    come_back(events)
    assert events.run("SELECT id, a, c FROM events ORDER BY id") == wanted


def test_a_leaf_that_waits_is_gone_on_with_when_a_fold_came_in_between(events: World, tmp_path: Path) -> None:
    events.run("UPDATE events SET a = 'new' WHERE id = 1; INSERT INTO events VALUES (3, '2020-01-06', 'late', 'b')")
    with (
        at(tmp_path, lambda reached: reached not in ("compare.begin", "abandon.begin")),
        pytest.raises(OSError, match="a test failed this"),
    ):
        come_back(events)
    with at(tmp_path, lambda reached: reached != "merge.end"):
        (outcome,) = cycle.folds(events.settings, ["events"], Silent(), events.spark_here)
    assert outcome.state == "failed"
    come_back(events)
    assert events.run("SELECT id, a FROM events ORDER BY id") == [(1, "new"), (2, "of a"), (3, "late")]
    kinds = "SELECT kind, state FROM frostline.operations WHERE kind IN ('fold', 'untier') ORDER BY kind"
    assert events.run(kinds) == [("fold", "done"), ("untier", "done")]


def come_back(world: World) -> None:
    with Warm(world.spark_here) as warm:
        untier(world.settings, "events", "events_1", Silent(), warm)
