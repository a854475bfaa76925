"""A constraint that old rows do not satisfy is noticed, for the planner would take it for true."""

from __future__ import annotations

from contextlib import nullcontext

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
from frostline.tiering.untier.run import untier

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


def test_rows_older_than_the_oldest_partition_are_looked_at_before_any_is_in_the_lake(world: World) -> None:
    world.run(TABLE)
    world.register("public.events")
    world.run("INSERT INTO events VALUES (200, '2023-05-05Z', 5000)")
    world.run("ALTER TABLE events ADD CONSTRAINT small CHECK (amount < 3000)")
    error = synced(world)[-1].error
    assert error is not None
    assert "1 old rows of public.events do not satisfy small" in error.message


NOT_VALID = {
    "CHECK (amount < 1000)": "small",
    "NOT NULL note": "note_not_null",
}


@pytest.mark.parametrize("definition", NOT_VALID)
def test_what_is_not_valid_needs_no_proof_and_lets_rows_come_back(world: World, definition: str) -> None:
    name = NOT_VALID[definition]
    world.run(TABLE)
    world.register("public.events")
    world.archive("public.events")
    before = world.run("SELECT * FROM events ORDER BY id")
    world.run(f"ALTER TABLE events ADD CONSTRAINT {name} {definition} NOT VALID")
    assert {outcome.state for outcome in synced(world)} <= {"followed"}
    with Warm(world.spark_here) as warm:
        untier(world.settings, "public.events", "2024-01-15", Silent(), warm)
    assert world.run("SELECT * FROM events ORDER BY id") == before
    # It holds for what is written from now on, and can be made valid.
    with pytest.raises(psycopg.errors.IntegrityError):
        world.run("INSERT INTO events VALUES (300, '2024-01-05Z', 5000, NULL)")
    with pytest.raises(psycopg.errors.IntegrityError):
        world.run(f"ALTER TABLE events VALIDATE CONSTRAINT {name}")
    world.run("UPDATE events SET amount = 1, note = ''")
    world.run(f"ALTER TABLE events VALIDATE CONSTRAINT {name}")


@pytest.mark.parametrize(
    ("definition", "broken"),
    [("CHECK (amount < 1000)", True), ("CHECK (amount < 100000)", False), ("NOT NULL amount", False)],
)
def test_what_is_valid_among_hot_rows_holds_for_rows_that_come_back(
    world: World, definition: str, broken: bool
) -> None:
    """Postgres attaches nothing to the hot partition that may not satisfy what it has as valid."""
    world.run(TABLE)
    world.register("public.events")
    world.archive("public.events")
    before = world.run("SELECT * FROM events ORDER BY id")
    world.run(f"ALTER TABLE events ADD CONSTRAINT proven {definition} NOT VALID")
    world.run("ALTER TABLE events_hot VALIDATE CONSTRAINT proven")
    refused = pytest.raises(RefusedError, match="rows of it do not satisfy proven") if broken else nullcontext()
    with Warm(world.spark_here) as warm, refused:
        untier(world.settings, "public.events", "2024-01-15", Silent(), warm)
    assert world.run("SELECT * FROM events ORDER BY id") == before


def test_rows_that_break_a_constraint_stay_in_the_lake_with_the_way_out(world: World) -> None:
    world.run(TABLE)
    world.register("public.events")
    world.archive("public.events")
    world.run("ALTER TABLE events ADD CONSTRAINT small CHECK (amount < 1000 OR id > 50)")
    with Warm(world.spark_here) as warm, pytest.raises(RefusedError, match="rows of it do not satisfy small") as error:
        untier(world.settings, "public.events", "2024-01-15", Silent(), warm)
    assert "correct them" in str(error.value.hint)
    client = world.connect()
    client.execute("SET constraint_exclusion = off")
    client.execute("UPDATE events SET amount = 7 WHERE (amount < 1000 OR id > 50) IS FALSE")
    with Warm(world.spark_here) as warm:
        untier(world.settings, "public.events", "2024-01-15", Silent(), warm)
    assert world.run("SELECT count(*), sum(amount) FROM events WHERE id < 50") == [(20, 4500 + 11 * 7)]


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


def test_a_column_that_came_when_nothing_was_hot_may_have_had_a_default(world: World) -> None:
    """Postgres keeps the value with the rows of partitions, and with nothing else once the default is dropped."""
    world.run(TABLE)
    world.register("public.events", "3 months")
    world.archive("public.events")
    world.run("ALTER TABLE events_hot DETACH PARTITION events_2; DROP TABLE events_2")
    synced(world)
    assert world.run("SELECT heaps FROM frostline.tables") == [({},)]
    world.run("ALTER TABLE events ADD COLUMN w int DEFAULT 5; ALTER TABLE events ALTER COLUMN w DROP DEFAULT")
    with pytest.raises(psycopg.errors.FeatureNotSupported, match="no hot partition has kept the value"):
        world.run("SELECT w FROM events WHERE id = 1")
    world.run("SELECT frostline.fill('events', 'w', '5')")
    assert world.run("SELECT DISTINCT w FROM events") == [(5,)]


def test_what_was_recorded_in_another_cluster_is_not_taken_for_what_has_its_number_here(world: World) -> None:
    """A dump has no rows of before a column was added, and files have the numbers of where it was loaded."""
    world.run(TABLE)
    world.register("public.events", "3 months")
    world.archive("public.events")
    world.run("ALTER TABLE events ADD COLUMN w int DEFAULT 5")
    world.run("VACUUM FULL events_2")
    world.run(
        "UPDATE frostline.tables SET heaps = replace(frostline.heaps(id)::text, system_identifier::text, '1')::jsonb"
        " FROM pg_control_system()"
    )
    with pytest.raises(psycopg.errors.FeatureNotSupported, match="no hot partition has kept the value"):
        world.run("SELECT w FROM events WHERE id = 1")
