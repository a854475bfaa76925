"""What is written to a leaf on its way to the lake is captured, or the leaf stays: whoever writes, however he does."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import psycopg
import pytest

from fix_faults import at
from fix_tiering import World
from frostline.catalog import registry
from frostline.catalog.database import Connection, connect
from frostline.delta import tables as delta
from frostline.errors import OperationError
from frostline.pipeline import export as pipeline
from frostline.tiering.archive import capture, plan, recover, steps, swap
from integration.tiering.test_hostile import SIMPLE, before, rows


def test_triggers_that_were_switched_off_and_on_as_they_were_are_noticed(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.run(SIMPLE)
    world.register("public.events")
    switch = 'ALTER TABLE public.events_01 {} TRIGGER "!frostline capture"'

    def act() -> None:
        world.run(switch.format("DISABLE"))
        world.run("UPDATE public.events SET v = -1 WHERE id = 5; DELETE FROM public.events WHERE id = 6")
        world.run(switch.format("ENABLE ALWAYS"))

    before(monkeypatch, swap, "swap", act)
    with pytest.raises(OperationError, match="had its triggers switched off meanwhile"):
        world.archive("public.events")
    assert world.run("SELECT id, v FROM public.events WHERE id IN (5, 6)") == [(5, -1)]
    assert len(world.archive("public.events")) == 1
    assert world.run("SELECT id, v FROM public.events WHERE id IN (5, 6)") == [(5, -1)]


def test_a_row_that_a_policy_hides_from_the_capture_is_not_taken_for_deleted(
    keeper: World, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.run("GRANT CREATE ON SCHEMA public TO PUBLIC")
    keeper.run(
        SIMPLE + "ALTER TABLE public.events_01 ENABLE ROW LEVEL SECURITY;"
        "CREATE POLICY half ON public.events_01 USING (id < 100)"
    )
    keeper.register("public.events")

    def act() -> None:
        keeper.run("ALTER TABLE public.events_01 FORCE ROW LEVEL SECURITY")
        world.run("UPDATE public.events SET v = -1 WHERE id = 500")
        keeper.run("ALTER TABLE public.events_01 NO FORCE ROW LEVEL SECURITY")

    before(monkeypatch, swap, "swap", act)
    assert len(keeper.archive("public.events")) == 1
    assert world.run("SELECT v FROM public.events WHERE id = 500") == [(-1,)]


@pytest.mark.parametrize("level", ["REPEATABLE READ", "SERIALIZABLE"])
def test_a_key_that_was_deleted_since_a_transaction_s_snapshot_can_be_inserted_there(
    world: World, monkeypatch: pytest.MonkeyPatch, level: str
) -> None:
    """It sees the old row and its own; the capture must take its own."""
    world.run(SIMPLE)
    world.register("public.events")
    client = world.connect(autocommit=False)

    def look() -> None:
        client.execute(f"SET TRANSACTION ISOLATION LEVEL {level}")
        client.execute("SELECT count(*) FROM pg_class")
        world.run("DELETE FROM public.events WHERE id IN (5, 6)")

    def write() -> None:
        client.execute("INSERT INTO public.events VALUES (5, timestamptz '2020-01-01' + interval '5 h', -5)")
        client.execute("UPDATE public.events SET id = 6, ts = ts - interval '1 h' WHERE id = 7 AND ts < '2020-02-01'")
        client.commit()

    before(monkeypatch, capture, "start", look)
    before(monkeypatch, pipeline, "export", write)
    assert len(world.archive("public.events")) == 1
    assert world.run("SELECT id, v FROM public.events WHERE id < 9 AND id > 3 ORDER BY id") == [
        (4, 4),
        (5, -5),
        (6, 7),
        (8, 8),
    ]


def test_a_row_that_somebody_deleted_does_not_come_back_with_one_that_took_its_key_for_a_moment(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The transaction's snapshot still has the first one."""
    world.run(SIMPLE)
    world.register("public.events")
    client = world.connect(autocommit=False)

    def look() -> None:
        client.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        client.execute("SELECT count(*) FROM pg_class")
        world.run("DELETE FROM public.events WHERE id = 5")

    def write() -> None:
        client.execute("INSERT INTO public.events VALUES (5, timestamptz '2020-01-01' + interval '5 h', -5)")
        client.execute("DELETE FROM public.events WHERE id = 5 AND v = -5")
        client.commit()

    before(monkeypatch, capture, "start", look)
    before(monkeypatch, pipeline, "export", write)
    assert len(world.archive("public.events")) == 1
    assert world.run("SELECT id FROM public.events WHERE id BETWEEN 4 AND 6 ORDER BY id") == [(4,), (6,)]


ODD = """
CREATE TABLE public.odd ("$f$ %s" int, other int, ts timestamptz, n numeric(6,2), v int,
    PRIMARY KEY (n, "$f$ %s", other, ts)) PARTITION BY RANGE (ts);
CREATE TABLE public.odd_1 PARTITION OF public.odd FOR VALUES FROM ('2020-01-01') TO ('2020-02-01');
CREATE TABLE public.odd_2 PARTITION OF public.odd FOR VALUES FROM ('2020-02-01') TO (MAXVALUE);
INSERT INTO public.odd
    SELECT i % 50, i, timestamptz '2020-01-01' + i * interval '1 h', i, i FROM generate_series(1, 1000) i;
"""
WRITES = [
    "INSERT INTO public.odd SELECT i, i, '2020-01-09', i, -1 FROM generate_series(2001, 2020) i",
    "COPY public.odd FROM PROGRAM 'printf \"7\\t7\\t2020-01-07\\t7\\t-7\\n\"'",
    "SET session_replication_role = replica; UPDATE public.odd SET v = -2 WHERE other = 17",
    "UPDATE public.odd_hot SET ts = '2020-03-01' WHERE other = 18",
    "UPDATE public.odd_hot SET ts = '2020-01-03' WHERE other = 900",
    "UPDATE public.odd SET other = 3000, v = -3 WHERE other = 20; UPDATE public.odd SET other = 20 WHERE other = 3000",
    "BEGIN; SAVEPOINT a; DELETE FROM public.odd WHERE other = 21; ROLLBACK TO a;"
    "UPDATE public.odd SET v = -4 WHERE other = 21; SAVEPOINT b; UPDATE public.odd SET v = -5 WHERE other = 22; "
    "RELEASE b; COMMIT",
    "BEGIN ISOLATION LEVEL SERIALIZABLE; DELETE FROM public.odd_hot WHERE other = 25;"
    "INSERT INTO public.odd_hot SELECT 25, 25, ts, n, -7 FROM public.odd_hot WHERE other = 26; COMMIT",
    "INSERT INTO public.odd_1 SELECT * FROM public.odd WHERE other = 27 ON CONFLICT DO NOTHING",
    "INSERT INTO public.odd_hot SELECT * FROM public.odd_hot WHERE other = 28"
    ' ON CONFLICT (n, "$f$ %s", other, ts) DO UPDATE SET v = -8',
]


# What is rolled back was never altered, and never written.
UNDONE = [
    "BEGIN; ALTER TABLE public.odd RENAME v TO x; UPDATE public.odd SET x = 0 WHERE other = 23; ROLLBACK",
    "BEGIN; SAVEPOINT a; ALTER TABLE public.odd RENAME v TO x; UPDATE public.odd SET x = 0 WHERE other = 23;"
    "ROLLBACK TO a; UPDATE public.odd SET v = -6 WHERE other = 24; COMMIT",
]


def test_whatever_is_written_between_any_two_steps_arrives(
    any_world: World, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Before the export, after it, while what was noted is carried and compared, and before the lock is held."""
    world = any_world
    world.run(ODD)
    world.register("public.odd")
    monkeypatch.setattr(capture, "MANY", 3)
    places = {
        "export.begun": list(UNDONE),
        "export.commit": [],
        "carry.commit": [],
        "verify.table": [],
        "verify.compared": [],
    }
    for number, statement in enumerate(WRITES * 2):
        list(places.values())[number % len(places)].append(statement)
    late = world.connect(autocommit=False)
    late.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
    late.execute("SELECT 1")
    expected: list[Any] = []

    def act(point: str) -> None:
        if point == "export.written":
            late.execute("UPDATE public.odd SET v = -10 WHERE other IN (30, 31)")
        for statement in places.pop(point, ()):
            try:
                world.run(statement)
            except psycopg.errors.UniqueViolation:
                pass  # it is the second time
            except psycopg.Error as error:
                late.rollback()
                raise AssertionError(statement) from error
        if point == "verify.compared":
            late.commit()

    def last() -> None:
        world.run("UPDATE public.odd SET v = v - 100 WHERE ts < '2020-01-05'")
        expected.extend(rows(world, "public.odd"))

    before(monkeypatch, swap, "lock", last)
    with at(tmp_path, act) as seen:
        assert len(world.archive("public.odd")) == 1
    assert not places
    assert seen.count("swap.locked") == 2  # the first time too much was left to be carried
    assert rows(world, "public.odd") == expected
    assert world.run("SELECT to_regclass('frostline_delta.touched_1_keys')") == [(None,)]


@pytest.mark.parametrize(
    ("alter", "write", "back"),
    [
        # Two columns change places for a while: what the trigger takes for the key is none of the leaf's.
        (
            "ALTER TABLE public.odd RENAME v TO x; ALTER TABLE public.odd RENAME other TO v;"
            "ALTER TABLE public.odd RENAME x TO other",
            "UPDATE public.odd_hot SET other = other - 10000 WHERE v = {}",
            "ALTER TABLE public.odd RENAME v TO x; ALTER TABLE public.odd RENAME other TO v;"
            "ALTER TABLE public.odd RENAME x TO other",
        ),
        (
            "ALTER TABLE public.odd RENAME other TO x",
            "UPDATE public.odd_hot SET v = v - 10000 WHERE x = {}",
            "ALTER TABLE public.odd RENAME x TO other",
        ),
        (
            "ALTER TABLE public.odd_hot DETACH PARTITION public.odd_1",
            "UPDATE public.odd_1 SET v = v - 10000 WHERE other = {}",
            "ALTER TABLE public.odd_hot ATTACH PARTITION public.odd_1 FOR VALUES FROM ('2020-01-01') TO ('2020-02-01')",
        ),
        (
            "ALTER TABLE public.odd ADD w int",
            "UPDATE public.odd_hot SET v = v - 10000 WHERE other = {}",
            "ALTER TABLE public.odd DROP w",
        ),
    ],
)
def test_a_leaf_that_was_altered_and_is_as_it_was_again_stays_and_nobody_s_write_fails(
    world: World, monkeypatch: pytest.MonkeyPatch, alter: str, write: str, back: str
) -> None:
    world.run(ODD)
    world.register("public.odd")
    older = world.connect(autocommit=False)

    def act() -> None:
        older.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        older.execute("SELECT 1")
        world.run(alter)
        older.execute(write.format(17).encode())
        older.commit()
        world.run(write.format(18))
        world.run(back)
        world.run(f"BEGIN; {alter}; {write.format(19)}; {back}; COMMIT")

    before(monkeypatch, swap, "swap", act)
    with pytest.raises(OperationError, match="was altered, rewritten or had its triggers switched off meanwhile"):
        world.archive("public.odd")
    written = "SELECT other FROM public.odd WHERE v < -5000 AND other < 1000 ORDER BY 1"
    assert world.run(written) == [(17,), (18,), (19,)]
    assert len(world.archive("public.odd")) == 1
    assert world.run(written) == [(17,), (18,), (19,)]


@pytest.mark.parametrize(
    "change",
    [
        "GRANT SELECT ON ALL TABLES IN SCHEMA public TO pg_monitor",
        "ALTER TABLE public.events_01 RENAME TO x; UPDATE public.x SET v = -2 WHERE id = 6;"
        "ALTER TABLE public.x RENAME TO events_01",
        "CREATE INDEX ON public.events_01 (v); REINDEX TABLE public.events_01; ANALYZE public.events_01",
        "ALTER TABLE public.events_01 SET (fillfactor = 50), REPLICA IDENTITY FULL",
    ],
)
def test_what_changes_no_row_and_no_column_of_a_leaf_does_not_stop_it(
    world: World, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    """Grants are given again with every deployment: a leaf must not be exported anew for each."""
    world.run(SIMPLE)
    world.register("public.events")
    act = f"UPDATE public.events SET v = -1 WHERE id = 5; {change}; UPDATE public.events SET v = -3 WHERE id = 7"
    expected: list[Any] = []

    def meanwhile() -> None:
        world.run(act)
        expected.extend(rows(world))

    before(monkeypatch, swap, "swap", meanwhile)
    assert len(world.archive("public.events")) == 1
    assert rows(world) == expected
    granted = world.run("SELECT has_table_privilege('pg_monitor', 'public.events_01', 'SELECT')")
    assert granted == [("GRANT" in change,)]


@pytest.mark.parametrize("change", ["ALTER TYPE app.mood RENAME TO humour", "ALTER SCHEMA app RENAME TO other"])
def test_a_type_of_the_key_that_gets_another_name_makes_nobody_s_write_fail(
    world: World, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    world.run(
        "CREATE SCHEMA app; CREATE TYPE app.mood AS ENUM ('a', 'b');"
        "CREATE TABLE public.events (m app.mood, id int, ts timestamptz, v int, PRIMARY KEY (m, id, ts))"
        " PARTITION BY RANGE (ts);"
        "CREATE TABLE public.events_01 PARTITION OF public.events FOR VALUES FROM ('2020-01-01') TO ('2020-02-01');"
        "CREATE TABLE public.events_now PARTITION OF public.events FOR VALUES FROM ('2020-02-01') TO (MAXVALUE);"
        "INSERT INTO public.events SELECT 'a', i, '2020-01-05', i FROM generate_series(1, 20) i"
    )
    world.register("public.events")
    write = "UPDATE public.events SET v = -v, m = 'b' WHERE id = {}; DELETE FROM public.events WHERE id = {}"

    def act() -> None:
        world.run(write.format(1, 2))
        world.run(change)
        world.run(write.format(3, 4))

    before(monkeypatch, pipeline, "export", act)
    with pytest.raises(OperationError, match=r"events_01 was altered.* it stays in Postgres"):
        world.archive("public.events")
    expected = rows(world)
    assert len(expected) == 18
    assert len(world.archive("public.events")) == 1
    assert rows(world) == expected


def test_a_cold_row_is_not_deleted_by_one_that_was_in_a_leaf_while_it_stood_alone(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.run(SIMPLE)
    world.register("public.events")
    assert len(world.archive("public.events")) == 1
    world.run(
        "ALTER TABLE public.events_hot DETACH PARTITION public.events_now;"
        "CREATE TABLE public.events_02 PARTITION OF public.events_hot FOR VALUES FROM ('2020-02-01') TO ('2020-04-01');"
        "INSERT INTO public.events_02 SELECT * FROM public.events_now; DROP TABLE public.events_now;"
        "CREATE TABLE public.events_now PARTITION OF public.events_hot FOR VALUES FROM ('2020-04-01') TO (MAXVALUE)"
    )
    expected = rows(world)

    def act() -> None:
        world.run(
            "ALTER TABLE public.events_hot DETACH PARTITION public.events_02;"
            "ALTER TABLE public.events_02 DROP CONSTRAINT IF EXISTS frostline_bound;"
            "INSERT INTO public.events_02 VALUES (5, timestamptz '2020-01-01' + interval '5 h', 0);"
            "DELETE FROM public.events_02 WHERE id = 5;"
            "ALTER TABLE public.events_hot ATTACH PARTITION public.events_02"
            " FOR VALUES FROM ('2020-02-01') TO ('2020-04-01')"
        )

    before(monkeypatch, swap, "swap", act)
    with pytest.raises(OperationError, match="it stays in Postgres"):
        world.archive("public.events")
    assert rows(world) == expected
    assert len(world.archive("public.events")) == 1
    assert rows(world) == expected


def test_whoever_archives_a_table_next_his_capture_can_write(keeper: World, world: World) -> None:
    """The function belongs to whom it belonged to first."""
    world.run("GRANT CREATE ON SCHEMA public TO PUBLIC")
    keeper.run(SIMPLE)
    keeper.register("public.events")
    for who in (keeper, world, keeper):
        with connect(who.dsn) as connection:
            managed = registry.get(connection, "public.events")
            operation = steps.begin(connection, managed, plan.expired(connection, managed)[0])
            capture.start(connection, operation)
            world.run("UPDATE public.events_hot SET v = v + 1 WHERE id = 5")
            capture.catch_up(connection, operation)
            assert world.run("SELECT id, v FROM frostline_delta.events_1") == [(5, operation.id + 5)]
            recover.give_up(connection, operation)


@pytest.mark.parametrize("type_", ["char(10)", "varchar(10)", "smallint", "numeric(8,2)", "public.short", "mood"])
def test_rows_are_looked_up_by_the_leaf_s_index_whatever_the_key_is(
    world: World, monkeypatch: pytest.MonkeyPatch, type_: str
) -> None:
    """The last are looked up while everybody waits. The delta has wider types than the leaf."""
    world.run(
        "CREATE DOMAIN public.short AS char(5); CREATE TYPE mood AS ENUM ('1', '2', '3');"
        f"CREATE TABLE public.events (k {type_}, ts timestamptz, v int, PRIMARY KEY (k, ts)) PARTITION BY RANGE (ts);"
        "CREATE TABLE public.events_01 PARTITION OF public.events FOR VALUES FROM ('2020-01-01') TO ('2020-02-01');"
        "CREATE TABLE public.events_now PARTITION OF public.events FOR VALUES FROM ('2020-02-01') TO (MAXVALUE);"
        "INSERT INTO public.events VALUES ('1', '2020-01-01', 1), ('2', '2020-01-01', 2), ('3', '2020-01-01', 3)"
    )
    world.register("public.events")
    real, plans = capture.carry, []

    def explained(connection: Connection, operation: steps.Operation) -> tuple[int, int | None]:
        head = delta.carry(operation.managed.table, operation.managed.id, operation.managed.delta, operation.leaf)
        with connection.transaction():
            connection.execute("SET LOCAL enable_seqscan = off; SET LOCAL enable_bitmapscan = off")
            plan = connection.execute(b"EXPLAIN " + head.as_bytes(connection) + b" SELECT count(*) FROM put")
            plans.append("\n".join(line for (line,) in plan))
        return real(connection, operation)

    monkeypatch.setattr(capture, "carry", explained)
    write = "UPDATE public.events SET v = -v WHERE k = '1'; DELETE FROM public.events WHERE k = '2'"
    before(monkeypatch, swap, "lock", lambda: world.run(write))
    assert len(world.archive("public.events")) == 1
    assert world.run("SELECT trim(k::text)::numeric, v FROM public.events ORDER BY 1") == [(1, -1), (3, 3)]
    assert plans
    assert all(re.search(r"Index Cond: \(\(+k\b.* = .*gone.k", plan) for plan in plans), plans[0]
