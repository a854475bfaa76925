"""Alterations that hardly anybody makes: what was meant by old rows stays so, or it is said what to do."""

from __future__ import annotations

from pathlib import Path

import psycopg
import pytest

from fix_faults import at
from fix_tiering import World
from frostline.errors import RefusedError
from frostline.faults import InjectedFault
from frostline.report import Silent
from frostline.tiering.archive.run import Warm
from frostline.tiering.unregister import unregister
from frostline.tiering.untier.run import untier


@pytest.fixture
def events(world: World) -> World:
    return make(world)


def make(world: World, also: str = "g int GENERATED ALWAYS AS (v * 2) STORED", archived: bool = True) -> World:
    world.run(
        f"CREATE TABLE events (id int, ts date, v int, n text, {also}, PRIMARY KEY (id, ts)) PARTITION BY RANGE (ts);"
        "CREATE TABLE events_1 PARTITION OF events FOR VALUES FROM ('2020-01-01') TO ('2020-02-01');"
        "CREATE TABLE events_now PARTITION OF events FOR VALUES FROM ('2020-02-01') TO (MAXVALUE);"
        "INSERT INTO events (id, ts, v, n)"
        " VALUES (1, '2020-01-05', 1, 'a'), (2, '2020-03-01', 2, 'b'), (3, '2020-01-06', 3, 'c')"
    )
    world.register("events", "1 month")
    if archived:
        world.archive("events")
    return world


def come_back(world: World) -> None:
    with Warm(world.spark_here) as warm:
        untier(world.settings, "events", "events_1", Silent(), warm)


def left(world: World) -> None:
    unregister(world.settings, "public.events", Silent(), keep_lake=False)


def waits(world: World, tmp_path: Path) -> None:
    """A leaf is loaded and follows; the run dies."""
    with at(tmp_path, lambda r: r not in ("attach.begin", "abandon.begin")), pytest.raises(InjectedFault):
        come_back(world)


def test_kept_values_and_untier(events: World) -> None:
    events.run("ALTER TABLE events ALTER g SET EXPRESSION AS (v * 3)")
    events.run("SELECT frostline.keep_computed('events', 'g')")
    assert events.run("SELECT id, g FROM events ORDER BY id") == [(1, 2), (2, 6), (3, 6)]
    with pytest.raises(RefusedError, match="than are computed"):
        come_back(events)
    events.run("ALTER TABLE events ALTER g DROP EXPRESSION")
    left(events)
    assert events.run("SELECT id, g FROM events ORDER BY id") == [(1, 2), (2, 6), (3, 6)]


def test_kept_values_computed_anew(events: World) -> None:
    events.run("ALTER TABLE events ALTER g SET EXPRESSION AS (v * 3)")
    events.run("SELECT frostline.keep_computed('events', 'g')")
    events.run("UPDATE events SET v = v WHERE ts < '2020-02-01'")
    left(events)
    assert events.run("SELECT id, g FROM events ORDER BY id") == [(1, 3), (2, 6), (3, 9)]


def test_said_too_early(events: World) -> None:
    events.run("SELECT frostline.keep_computed('events', 'g')")
    events.run("ALTER TABLE events ALTER g SET EXPRESSION AS (v * 3)")
    with pytest.raises(psycopg.errors.FeatureNotSupported):
        events.run("SELECT id, g FROM events ORDER BY id")


def test_leaf_waits_with_another_expression(world: World, tmp_path: Path) -> None:
    make(world)
    waits(world, tmp_path)
    world.run("ALTER TABLE events ALTER g SET EXPRESSION AS (v * 3)")
    world.run("SELECT frostline.keep_computed('events', 'g')")
    world.run("UPDATE events SET v = v WHERE ts < '2020-02-01'")
    come_back(world)
    world.run("UPDATE events SET v = 10 WHERE id = 1")
    assert world.run("SELECT g FROM events WHERE id = 1") == [(30,)]


def test_leaf_waits_with_another_expression_and_kept_values(world: World, tmp_path: Path) -> None:
    make(world)
    waits(world, tmp_path)
    world.run("ALTER TABLE events ALTER g SET EXPRESSION AS (v * 3)")
    world.run("SELECT frostline.keep_computed('events', 'g')")
    with pytest.raises(RefusedError, match="than are computed"):
        come_back(world)
    world.run("UPDATE events SET v = 10 WHERE id = 1")
    assert world.run("SELECT g FROM events WHERE id = 1") == [(30,)]


@pytest.mark.parametrize(
    ("add", "drop"),
    [
        ("ADD CONSTRAINT few CHECK (v < 100)", "DROP CONSTRAINT few"),
        ("ALTER v SET NOT NULL", "ALTER v DROP NOT NULL"),
    ],
)
def test_leaf_waits_with_a_constraint_that_is_dropped(events: World, tmp_path: Path, add: str, drop: str) -> None:
    events.run(f"ALTER TABLE events {add}")
    waits(events, tmp_path)
    events.run(f"ALTER TABLE events {drop}")
    come_back(events)
    events.run("INSERT INTO events VALUES (5, '2020-01-09', 1000), (6, '2020-01-09', NULL)")


def test_leaf_waits_with_an_old_default(events: World, tmp_path: Path) -> None:
    waits(events, tmp_path)
    events.run("ALTER TABLE events ALTER n SET DEFAULT 'x'")
    come_back(events)
    events.run("INSERT INTO events_1 (id, ts) VALUES (5, '2020-01-09')")
    assert events.run("SELECT n FROM events WHERE id = 5") == [("x",)]


def test_fill_of_a_generated_column(world: World) -> None:
    make(world, "k int")
    world.run("ALTER TABLE events ADD COLUMN g int GENERATED ALWAYS AS (v * 2) STORED")
    with pytest.raises(psycopg.Error, match="generated"):
        world.run("SELECT frostline.fill('events', 'g', '77')")
    world.run("ALTER TABLE events DROP COLUMN g")
    left(world)


def test_another_primary_key(world: World) -> None:
    make(world, "k int DEFAULT 5")
    world.run("UPDATE events SET v = 100 WHERE id = 1; DELETE FROM events WHERE id = 3")
    before = world.run("SELECT id, v FROM events ORDER BY 1, 2")
    assert before == [(1, 100), (2, 2)]
    world.run("ALTER TABLE events_hot DROP CONSTRAINT events_pkey, ADD PRIMARY KEY (id, ts, v)")
    with pytest.raises(psycopg.errors.FeatureNotSupported):
        world.run("SELECT id, v FROM events ORDER BY 1, 2")
    world.run("ALTER TABLE events_hot DROP CONSTRAINT events_hot_pkey, ADD CONSTRAINT events_pkey PRIMARY KEY (id, ts)")
    assert world.run("SELECT id, v FROM events ORDER BY 1, 2") == before
    world.run("UPDATE events SET v = 101 WHERE id = 1")


def test_a_generated_column_that_is_gone(events: World) -> None:
    events.run("ALTER TABLE events DROP COLUMN g")
    events.run("UPDATE events SET v = 9 WHERE id = 1")
    events.run("VACUUM FULL events_now")
    come_back(events)


def test_types_back(world: World) -> None:
    world.run("CREATE TYPE mood AS ENUM ('sad', 'ok')")
    make(world, "m mood DEFAULT 'ok', ms mood[] DEFAULT '{sad,ok}', u uuid DEFAULT md5('u')::uuid")
    rows = world.run("SELECT e::text FROM events e ORDER BY id")
    for column, old in (("v", "text"), ("m", "text"), ("ms", "text[]"), ("u", "varchar")):
        world.run(f"ALTER TABLE events ALTER {column} DROP DEFAULT, ALTER {column} TYPE {old}")
        with pytest.raises(psycopg.errors.FeatureNotSupported) as error:
            world.run("UPDATE events SET n = 'x' WHERE id = 1")
        hint = error.value.diag.message_hint
        assert hint is not None
        world.run(hint.removeprefix("nothing of them was changed; "))
        assert world.run("SELECT e::text FROM events e ORDER BY id") == rows
    world.run("UPDATE events SET n = 'x' WHERE id = 1")
    left(world)


def test_nothing_cold_and_the_key_is_gone(world: World) -> None:
    make(world, "k int", archived=False)
    world.run("ALTER TABLE events DROP COLUMN id")
    left(world)
    assert world.run("SELECT count(*) FROM events") == [(3,)]


def test_all_came_back_and_altered(world: World) -> None:
    make(world, "k int")
    come_back(world)
    world.run("ALTER TABLE events ALTER v TYPE text")
    left(world)
    assert world.run("SELECT v FROM events ORDER BY id") == [("1",), ("2",), ("3",)]


@pytest.mark.parametrize("how", ["kept", "filled"])
def test_versions_in_memory_without_the_column(world: World, how: str) -> None:
    make(world)
    world.run("UPDATE events SET v = 100 WHERE id = 1")
    if how == "kept":
        world.run("ALTER TABLE events ALTER g SET EXPRESSION AS (v * 3)")
    else:
        world.run("ALTER TABLE events ADD COLUMN w uuid DEFAULT gen_random_uuid()")
    assert world.run("SELECT sum(v) FROM events") == [(105,)]
    if how == "kept":
        world.run("SELECT frostline.keep_computed('events', 'g')")
        assert world.run("SELECT id, g FROM events ORDER BY id") == [(1, 200), (2, 6), (3, 6)]
    else:
        world.run("SELECT frostline.fill('events', 'w', NULL)")
        assert world.run("SELECT id, w FROM events WHERE ts < '2020-02-01' ORDER BY id") == [(1, None), (3, None)]


def test_hint_with_an_odd_name(world: World) -> None:
    from frostline.tiering import cycle
    from frostline.tiering.cycle import Round

    make(world, "k int")
    world.run('ALTER TABLE events RENAME TO "My % {Table}"')
    world.run('ALTER TABLE "My % {Table}" ADD CONSTRAINT small CHECK (v < 3)')
    with Warm(world.spark_here) as warm:
        done = list(cycle.STEPS["columns"](Round(world.settings, Silent(), warm), 'public."My % {Table}"'))
    assert done[-1].error is not None
    assert 'UPDATE public."My % {Table}" SET' in str(done[-1].error.hint)


def states(world: World) -> set[str]:
    from frostline.tiering import verify

    return {one.state for one in verify.verify(world.settings, "public.events", None, Silent())}


def test_verify_of_what_cannot_be_followed(world: World) -> None:
    make(world, "k int")
    assert states(world) == {"good"}
    world.run("ALTER TABLE events ADD COLUMN u uuid DEFAULT gen_random_uuid()")
    assert states(world) <= {"unknown", "good"}
    assert world.run("SELECT * FROM frostline.alarms") == []


def test_verify_after_a_key_of_char_is_longer(world: World) -> None:
    world.run(
        "CREATE TABLE events (id int, ts date, v int, k char(4), PRIMARY KEY (k, id, ts)) PARTITION BY RANGE (ts);"
        "CREATE TABLE events_1 PARTITION OF events FOR VALUES FROM ('2020-01-01') TO ('2020-02-01');"
        "CREATE TABLE events_now PARTITION OF events FOR VALUES FROM ('2020-02-01') TO (MAXVALUE);"
        "INSERT INTO events VALUES (1, '2020-01-05', 1, 'a'), (2, '2020-03-01', 2, 'b'), (3, '2020-01-06', 3, 'c')"
    )
    world.register("events", "1 month")
    world.archive("events")
    assert states(world) == {"good"}
    world.run("ALTER TABLE events ALTER k TYPE char(6)")
    world.run("UPDATE events SET v = 7 WHERE id = 1")
    assert states(world) == {"good"}
    world.run("ALTER TABLE events ALTER k TYPE text")
    world.run("UPDATE events SET v = 8 WHERE id = 1")
    assert states(world) == {"good"}


@pytest.mark.parametrize("action", ["", "ON DELETE CASCADE"])
def test_a_foreign_key_is_renamed(world: World, action: str) -> None:
    world.run("CREATE TABLE dim (v int PRIMARY KEY); INSERT INTO dim SELECT generate_series(1, 9)")
    make(world, f'k int, CONSTRAINT "to dim é" FOREIGN KEY (v) REFERENCES dim {action}')
    world.run('ALTER TABLE events_hot RENAME CONSTRAINT "to dim é" TO dimension')
    if action:
        world.run("UPDATE events SET n = 'x' WHERE id = 1")  # else whoever deletes holds up what has to follow
        world.run("DELETE FROM dim WHERE v = 3")
        assert world.run("SELECT id FROM events ORDER BY id") == [(1,), (2,)]
        return
    with pytest.raises(psycopg.errors.IntegrityError):
        world.run("DELETE FROM dim WHERE v = 3")
    assert world.run("SELECT count(*) FROM events e JOIN dim USING (v)") == [(3,)]


@pytest.mark.parametrize("action", ["", "ON DELETE CASCADE"])
def test_a_foreign_key_of_the_same_name_refers_to_another_table(world: World, action: str) -> None:
    world.run("CREATE TABLE dim (v int PRIMARY KEY); INSERT INTO dim SELECT generate_series(1, 9)")
    world.run("CREATE TABLE later (v int PRIMARY KEY); INSERT INTO later SELECT generate_series(1, 9)")
    make(world, f"k int, CONSTRAINT to_dim FOREIGN KEY (v) REFERENCES dim {action}")
    world.run(
        "ALTER TABLE events_hot DROP CONSTRAINT to_dim,"
        f" ADD CONSTRAINT to_dim FOREIGN KEY (v) REFERENCES later {action}"
    )
    world.run("UPDATE events SET n = 'x' WHERE id = 1")
    world.run("DELETE FROM dim WHERE v IN (2, 3)")  # nothing refers to it any more
    assert world.run("SELECT id FROM events ORDER BY id") == [(1,), (2,), (3,)]


def test_a_column_called_like_the_lakes_partitions(world: World) -> None:
    from frostline.tiering import cycle

    make(world, "k int")
    world.run("ALTER TABLE events ADD COLUMN period text DEFAULT 'p', ADD COLUMN period_month int DEFAULT 1")
    world.run("UPDATE events SET v = 100, period = 'q' WHERE id = 1")
    assert shape_pending(world)
    (outcome,) = cycle.folds(world.settings, ["events"], Silent(), world.spark_here)
    assert outcome.error is None
    assert not shape_pending(world)
    assert world.run("SELECT id, v, period, period_month FROM events ORDER BY id") == [
        (1, 100, "q", 1),
        (2, 2, "p", 1),
        (3, 3, "p", 1),
    ]
    left(world)


def shape_pending(world: World) -> bool:
    from frostline.catalog import registry
    from frostline.catalog.database import connect
    from frostline.tiering import shape

    with connect(world.dsn) as connection:
        return shape.pending(connection, registry.get(connection, "events"))
