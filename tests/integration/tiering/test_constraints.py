"""A constraint that old rows do not satisfy is noticed, for the planner would take it for true."""

from __future__ import annotations

import pytest

from fix_tiering import World
from frostline.report import Silent
from frostline.tiering import cycle
from frostline.tiering.archive.run import Warm
from frostline.tiering.cycle import Outcome, Round

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
