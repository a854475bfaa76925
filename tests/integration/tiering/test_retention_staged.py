"""Many rows that were loaded into a period which is let go before they are in the Iceberg table."""

from __future__ import annotations

from fix_tiering import World
from frostline.report import Silent
from frostline.tiering import cycle, verify
from frostline.tiering.unregister import unregister


def test_nobody_misses_them_afterwards(world: World) -> None:
    world.run(
        "CREATE TABLE events (id int, ts date, PRIMARY KEY (id, ts)) PARTITION BY RANGE (ts);"
        "CREATE TABLE events_1 PARTITION OF events FOR VALUES FROM ('2020-01-01') TO ('2020-02-01');"
        "CREATE TABLE events_2 PARTITION OF events FOR VALUES FROM ('2020-02-01') TO ('2020-03-01');"
        "CREATE TABLE events_now PARTITION OF events FOR VALUES FROM ('2020-03-01') TO (MAXVALUE);"
        "INSERT INTO events VALUES (1, '2020-01-05'), (2, '2020-02-05'), (3, '2020-03-05')"
    )
    world.register("events", "1 month")
    world.run("UPDATE frostline.tables SET bulk_rows = 5")
    assert len(world.archive("events")) == 2
    world.run("INSERT INTO events SELECT 10 + i, '2020-01-06' FROM generate_series(1, 9) i")
    assert world.run("SELECT count(*) FROM frostline.staged_files") == [(1,)]
    world.run("UPDATE frostline.tables SET retention = (current_date - date '2020-02-01') || ' days'")
    (removed,) = cycle.retains(world.settings, ["events"], Silent(), world.spark_here)
    assert removed.state == "removed"
    assert world.run("SELECT rows FROM frostline.periods ORDER BY upper") == [(0,), (1,)]
    assert {found.state for found in verify.verify(world.settings, "events", None, Silent())} == {"good"}
    unregister(world.settings, "events", Silent(), keep_lake=False)
    assert world.run("SELECT id FROM events ORDER BY id") == [(2,), (3,)]
    leaves = "SELECT inhrelid::regclass::text FROM pg_inherits WHERE inhparent = 'events'::regclass ORDER BY 1"
    assert world.run(leaves) == [("events_2",), ("events_now",)]
