"""Below the line of retention nothing is read and nothing can be written, whatever way it takes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg.errors import CheckViolation

from fix_faults import at
from fix_tiering import World
from frostline.catalog import registry
from frostline.catalog.database import connect
from frostline.errors import RefusedError
from frostline.faults import RETENTION_POINTS
from frostline.lake import files, storage
from frostline.report import Silent
from frostline.tiering import cycle, retention
from frostline.tiering.archive.run import Warm
from frostline.tiering.retention import Expired
from frostline.tiering.untier.run import untier
from integration.tiering.test_fold import managed
from integration.tiering.test_maintain import choose, held, maintained, unpinned
from integration.tiering.test_worker import wait_for

MONTHS = 6  # the last two are hot
# The month in which the test began: it may end in the next.
THIS_MONTH = "CREATE FUNCTION this_month() RETURNS timestamptz LANGUAGE plpgsql STABLE AS 'BEGIN RETURN ''{}''; END'"
LINE = "this_month() - interval '3 months'"
BELOW = f"({LINE} - interval '1 day')"


WRITES = (
    f"INSERT INTO events VALUES (1000, {BELOW})",
    f"INSERT INTO events_before VALUES (1000, {BELOW})",
    f"INSERT INTO events VALUES (1000, this_month()), (1001, {BELOW})",
    f"UPDATE events SET ts = {BELOW} WHERE ts >= {LINE} AND ts < {LINE} + interval '1 day'",
    f"SELECT frostline.move('events', jsonb_build_object('id', id, 'ts', ts), ({BELOW})::text)"
    " FROM (SELECT * FROM events ORDER BY id DESC LIMIT 1) newest",
    f"SELECT frostline.upsert('events', jsonb_build_object('id', 1000, 'ts', {BELOW}))",
)


def build(world: World) -> None:
    """A row every day for six months, of which four are in the lake and two shall go."""
    world.run("CREATE TABLE events (id int, ts timestamptz, note text, PRIMARY KEY (id, ts)) PARTITION BY RANGE (ts)")
    ((now,),) = world.run("SELECT date_trunc('month', now())::text")
    world.run(THIS_MONTH.format(now))
    for month in range(MONTHS):
        start = f"this_month() - interval '{MONTHS - 1 - month} months'"
        ((lower, upper),) = world.run(f"SELECT ({start})::text, ({start} + interval '1 month')::text")
        world.run(f"CREATE TABLE events_{month} PARTITION OF events FOR VALUES FROM ('{lower}') TO ('{upper}')")
    world.run(
        "INSERT INTO events SELECT row_number() OVER (ORDER BY d), d, 'day' FROM generate_series("
        f"this_month() - interval '{MONTHS - 1} months', this_month(), '1 day') d"
    )
    world.register("events", "1 month")
    world.archive("events")
    # To the middle of a month: it is kept whole, today and tomorrow.
    world.run(f"UPDATE frostline.tables SET retention = (now() - ({LINE} + interval '14 days'))::text")


def retain(world: World) -> list[cycle.Outcome]:
    return cycle.retains(world.settings, ["events"], Silent(), world.spark_here)


def expired(world: World) -> Expired | None:
    with connect(world.dsn) as connection:
        return retention.expired(connection, registry.get(connection, "events"))


def in_lake(world: World) -> int:
    """How many rows readers would find there, were nothing cut off."""
    with connect(world.dsn) as connection:
        managed = registry.get(connection, "events")
    assert managed.metadata_location is not None
    assert managed.snapshot_id is not None
    return sum(
        file.rows
        for file in files.snapshot(storage.of(world.settings), managed.metadata_location, managed.snapshot_id).files
    )


def test_what_is_older_is_gone_and_stays_gone(any_world: World, tmp_path: Path) -> None:
    world = any_world
    build(world)
    world.run(f"UPDATE events SET note = 'changed' WHERE ts = {BELOW}; DELETE FROM events WHERE id = 1")
    world.run("GRANT SELECT ON events_before TO pg_monitor")
    ((everything,),) = world.run("SELECT count(*) FROM events")
    wanted = world.run(f"SELECT * FROM events WHERE ts >= {LINE} ORDER BY id")
    found, stood = expired(world), _read(world)
    assert found is not None
    assert found.rows == everything + 1 - len(wanted)  # as they were archived

    world.run("CREATE VIEW mine AS SELECT * FROM events_0")
    (outcome,) = retain(world)
    assert isinstance(outcome.error, RefusedError)
    assert "mine" in (outcome.error.detail or "")
    assert world.run("SELECT count(*) FROM events") == [(everything,)]
    world.run("DROP VIEW mine")
    ((bounds,),) = world.run("SELECT pg_get_expr(relpartbound, oid) FROM pg_class WHERE relname = 'events_0'")
    world.run("ALTER TABLE events DETACH PARTITION events_0")
    (outcome,) = retain(world)
    assert "events_0 was detached from public.events" in str(outcome.error)
    world.run(f"ALTER TABLE events ATTACH PARTITION events_0 {bounds}")

    late, writer, pinned = world.connect(), world.connect(), world.connect()
    for client in (late, writer, pinned):
        client.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
        client.execute("SELECT count(*) FROM frostline.tables")
    ((snapshot,),) = pinned.execute("SELECT pg_export_snapshot()").fetchall()
    for point in (*RETENTION_POINTS, "trim.begin", "trim.commit"):
        with at(tmp_path, lambda reached, point=point: reached != point) as seen:  # type: ignore[misc]
            assert [outcome.state for outcome in retain(world)] == ["failed"]
        assert point in seen
        committed = point.startswith("trim") or point == "retention.done"
        assert world.run("SELECT count(*) FROM events") == [(len(wanted) if committed else everything,)]
    assert retain(world) == []
    _is_gone(world, wanted)
    assert in_lake(world) == world.run("SELECT sum(rows)::int FROM frostline.periods")[0][0] > 0
    assert world.run("SELECT has_table_privilege('pg_monitor', 'events_before', 'SELECT')") == [(True,)]
    assert expired(world) is None
    assert retain(world) == []
    # A transaction reads cold rows as they were at its first look there, one that is pinned as at its beginning.
    assert late.execute("SELECT count(*) FROM events").fetchone() == (len(wanted),)
    with pytest.raises(psycopg.errors.SerializationFailure):
        writer.execute(f"INSERT INTO events VALUES (1000, {LINE} + interval '1 hour')")
    reader = world.connect()
    reader.execute(f"BEGIN ISOLATION LEVEL REPEATABLE READ; SET TRANSACTION SNAPSHOT '{snapshot}'")
    reader.execute("SELECT frostline.pin()")
    assert reader.execute("SELECT count(*) FROM events").fetchone() == (everything,)
    _is_refused(world)
    _is_gone(world, wanted)
    _files_go(world, stood, reader, everything)
    _is_gone(world, wanted)


def _read(world: World) -> set[Path]:
    """The files of the snapshot that Postgres reads."""
    snapshot = managed(world, "events").snapshot_id
    assert snapshot is not None
    return held(world, "events")[snapshot]


def _files_go(world: World, stood: set[Path], reader: psycopg.Connection[Any], rows: int) -> None:
    """What an expired period consisted of goes once the backup window is over and nobody reads it any more."""
    kept = _read(world)
    gone = stood - kept
    assert len(gone) == 2
    for window in ("default", "0"):
        choose(world, "events", backup_window=window)
        maintained(world, "events")
        assert [path.exists() for path in (*gone, *kept)] == [True] * len(gone | kept)
        assert reader.execute("SELECT count(*) FROM events").fetchone() == (rows,)
    for client in world.connections:
        client.close()
    wait_for(lambda: unpinned(world) and world.run("SELECT 1 FROM frostline.pins") == [])
    maintained(world, "events")
    assert [path.exists() for path in gone] == [False] * len(gone)
    assert all(path.exists() for path in kept)


def test_what_is_written_once_everything_is_hot_again_is_kept(world: World) -> None:
    world.run(
        "CREATE TABLE events (id int, ts timestamptz, PRIMARY KEY (id, ts)) PARTITION BY RANGE (ts);"
        "CREATE TABLE events_1 PARTITION OF events FOR VALUES FROM ('2020-01-01') TO ('2020-02-01');"
        "CREATE TABLE events_now PARTITION OF events FOR VALUES FROM ('2020-02-01') TO (MAXVALUE);"
        "INSERT INTO events VALUES (1, '2020-01-05'), (2, '2020-03-01')"
    )
    world.register("events", "1 month")
    world.archive("events")
    world.run("UPDATE frostline.tables SET retention = '3 months'")
    assert [outcome.state for outcome in retain(world)] == ["removed"]
    with Warm(world.spark_here) as warm:
        untier(world.settings, "events", "events_before", Silent(), warm)
    world.run("INSERT INTO events VALUES (3, '2020-01-06')")
    assert len(world.archive("events")) == 1
    assert world.run("SELECT id FROM events ORDER BY 1") == [(2,), (3,)]


def _is_gone(world: World, wanted: list[tuple[Any, ...]]) -> None:
    assert world.run("SELECT * FROM events ORDER BY id") == wanted
    assert world.run(f"SELECT count(*), max(ts) FROM events WHERE ts < {LINE}") == [(0, None)]
    assert world.run("SELECT count(*) FROM events_before") == [(0,)]
    assert world.run("SELECT count(*) FROM events") == [(len(wanted),)]
    assert world.run(f"DELETE FROM events WHERE ts < {LINE} RETURNING id") == []
    partitions = "SELECT count(*) FROM pg_inherits WHERE inhparent = 'events'::regclass"
    assert world.run(partitions) == [(4,)]  # before, two cold, the hot ones


def _is_refused(world: World) -> None:
    ((line, old),) = world.run(f"SELECT retained_from, ({BELOW})::text FROM frostline.tables")
    for statement in WRITES:
        with pytest.raises(CheckViolation, match="are not kept any more") as error:
            world.run(statement)
        assert line in str(error.value)
    copying = world.connect().cursor().copy("COPY events FROM STDIN")
    with pytest.raises(CheckViolation, match="not kept any more"), copying as copy:
        copy.write(f"1000\t{old}\tx\n")


def test_a_key_that_fits_into_no_partition_makes_nothing_old(world: World) -> None:
    """By an integer key of the DEFAULT partition no row is archived, joined or removed, nor a partition made."""
    world.run("CREATE TABLE events (id int8 PRIMARY KEY) PARTITION BY RANGE (id)")
    for start in (0, 100, 200, 300):
        world.run(f"CREATE TABLE events_{start} PARTITION OF events FOR VALUES FROM ({start}) TO ({start + 100})")
    world.run("CREATE TABLE events_default PARTITION OF events DEFAULT")
    world.run("INSERT INTO events SELECT generate_series(0, 350, 10)")
    world.register("events", "120")
    world.run("INSERT INTO events VALUES (9000000000000000000)")
    world.run("UPDATE frostline.tables SET retention = 300, premake = 1, coalesce_to = '1000', coalesce_after = '300'")
    before = world.run("SELECT id FROM events ORDER BY 1")
    with Warm(world.spark_here) as warm:
        shared = cycle.Round(world.settings, Silent(), warm)
        told = [(one.what, one.state) for step in cycle.STEPS.values() for one in step(shared, "events")]
    assert [what for what, state in told if state == "created"] == ["public.events_400"]
    assert [what for what, state in told if state == "archived"] == ["public.events_0", "public.events_100"]
    assert {state for _, state in told} == {"created", "followed", "archived"}
    assert expired(world) is None
    assert world.run("SELECT id FROM events ORDER BY 1") == before
