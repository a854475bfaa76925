"""A constraint that old rows do not satisfy is noticed, for the planner would take it for true."""

from __future__ import annotations

import psycopg
import pytest

from fix_tiering import World
from frostline.errors import RefusedError
from frostline.report import Silent
from frostline.tiering import cycle
from frostline.tiering.archive.run import Warm, periods
from frostline.tiering.checks import Check
from frostline.tiering.cycle import Outcome, Round
from frostline.tiering.doctor import examine
from frostline.tiering.unregister import unregister

TABLE = """
CREATE TABLE events (id int, ts timestamptz, amount int, note text, PRIMARY KEY (id, ts)) PARTITION BY RANGE (ts);
CREATE TABLE events_1 PARTITION OF events FOR VALUES FROM ('2024-01-01Z') TO ('2024-02-01Z');
CREATE TABLE events_2 PARTITION OF events FOR VALUES FROM ('2024-02-01Z') TO ('2100-01-01Z');
INSERT INTO events SELECT x, timestamptz '2024-01-01Z' + x * interval '1 day', x * 100, nullif('n' || x, 'n3')
FROM generate_series(1, 20) x;
INSERT INTO events VALUES (100, now(), 1, 'new');
"""


def synced(world: World) -> list[Outcome]:
    with Warm(world.spark_here) as warm:
        return list(cycle.STEPS["columns"](Round(world.settings, Silent(), warm), "public.events"))


@pytest.mark.parametrize(
    ("alter", "drop", "correct", "named"),
    [
        (
            "ADD CONSTRAINT small CHECK (amount < 1000)",
            "DROP CONSTRAINT small",
            "UPDATE events SET amount = 7 WHERE (amount < 1000) IS FALSE",
            "11 old rows of public.events do not satisfy small",
        ),
        (
            "ALTER COLUMN note SET NOT NULL",
            "ALTER COLUMN note DROP NOT NULL",
            "UPDATE events SET note = '' WHERE num_nulls(note) > 0",
            "1 old rows of public.events do not satisfy NOT NULL of column note",
        ),
    ],
)
def test_it_is_noticed_and_can_be_corrected(any_world: World, alter: str, drop: str, correct: str, named: str) -> None:
    world = any_world
    world.run(TABLE)
    world.register("public.events")
    world.archive("public.events")
    assert [outcome for outcome in synced(world) if outcome.state == "proven"] == []
    world.run(f"ALTER TABLE events {alter}")
    error = synced(world)[-1].error
    assert error is not None
    assert named in error.message
    assert synced(world)[-1].error is not None  # until something is done about it
    world.run(f"ALTER TABLE events {drop}")
    assert {outcome.state for outcome in synced(world)} <= {"followed"}
    world.run(f"ALTER TABLE events {alter}")
    assert synced(world)[-1].error is not None
    client = world.connect()
    client.execute("SET constraint_exclusion = off")
    assert client.execute(correct).rowcount > 0
    assert [outcome.state for outcome in synced(world)][-1] == "proven"
    assert synced(world) == []


def test_what_holds_among_hot_rows_only_is_told(world: World) -> None:
    """Postgres lets an EXCLUDE be added to a table with foreign partitions, and asks none of them."""
    world.run(TABLE.replace("2100-01-01Z", "2024-03-01Z").rpartition("INSERT")[0])
    world.run("CREATE TABLE events_3 PARTITION OF events FOR VALUES FROM ('2024-03-01Z') TO ('2100-01-01Z')")
    world.run("INSERT INTO events VALUES (50, '2024-02-05Z', 5, 'x'), (100, now(), 1, 'new'); ANALYZE events")
    world.register("public.events")
    with Warm(world.spark_here) as warm:
        assert list(periods(world.settings, "public.events", Silent(), warm, "2024-02-01Z"))
    # On the table itself: nothing is archived, and the remedy moves it.
    world.run("ALTER TABLE events ADD CONSTRAINT alone EXCLUDE USING btree (ts WITH =, amount WITH =)")
    with pytest.raises(RefusedError, match="EXCLUDE constraint alone, which every swap") as refused:
        world.archive("public.events")
    [check] = hot_only(world)
    assert check.verdict == "problem"
    assert refused.value.hint == f"move it to the hot partition: {check.remedy}"
    world.run(check.remedy)
    with pytest.raises(psycopg.errors.ExclusionViolation):
        world.run("INSERT INTO events SELECT 51, ts, amount, 'y' FROM events WHERE id = 50")
    world.run("INSERT INTO events SELECT 52, ts, amount, note FROM events WHERE id = 4")  # cold: nobody asks
    assert [one.leaf.name for one in world.archive("public.events")] == ["events_2"]
    # On the hot partition: told, and in the way of what comes back only.
    [check] = hot_only(world)
    assert (check.verdict, check.remedy) == ("warning", 'ALTER TABLE "public"."events_hot" DROP CONSTRAINT "alone"')
    with pytest.raises(RefusedError, match="partitions that come back") as refused:
        left(world)
    assert refused.value.hint == f"drop it, and add it again afterwards: {check.remedy}"
    world.run(check.remedy)
    world.run("ALTER TABLE events_hot ADD CONSTRAINT once UNIQUE (ts, note)")
    before = world.run("SELECT * FROM events ORDER BY id")
    with pytest.raises(RefusedError, match=r"events_1 stays in the lake: rows of it are what \w+ forbids"):
        left(world)
    assert world.run("SELECT * FROM events ORDER BY id") == before
    world.run("DELETE FROM events WHERE id = 52")
    left(world)
    assert world.run("SELECT * FROM events ORDER BY id") == [row for row in before if row[0] != 52]
    kept = "SELECT conname FROM pg_constraint WHERE conrelid = 'events'::regclass AND contype IN ('x', 'u')"
    assert world.run(kept) == [("once",)]


def hot_only(world: World) -> list[Check]:
    return [check for check in examine(world.settings) if check.name == "constraints"]


def left(world: World) -> None:
    unregister(world.settings, "public.events", Silent(), keep_lake=False)
