"""Rows that are older than the oldest partition, before anything of the table is in the lake."""

from __future__ import annotations

from fix_tiering import World
from frostline.report import Silent
from frostline.tiering import cycle
from frostline.tiering.archive.run import Warm
from frostline.tiering.unregister import unregister


def test_they_wait_for_the_first_archive_run_and_nothing_fails(world: World) -> None:
    world.run(
        "CREATE TABLE events (id int, ts date, PRIMARY KEY (id, ts)) PARTITION BY RANGE (ts);"
        "CREATE TABLE events_1 PARTITION OF events FOR VALUES FROM ('2020-01-01') TO ('2020-02-01');"
        "CREATE TABLE events_now PARTITION OF events FOR VALUES FROM ('2020-02-01') TO (MAXVALUE);"
        "INSERT INTO events VALUES (1, '2020-01-05'), (2, '2020-03-01')"
    )
    world.register("events", "100 years")
    world.run("INSERT INTO events VALUES (0, '1999-12-31')")
    world.run("UPDATE frostline.tables SET fold_rows = 1")
    assert cycle.folds(world.settings, ["events"], Silent(), world.spark_here) == []
    with Warm(world.spark_here) as warm:
        shared = cycle.Round(world.settings, Silent(), warm)
        assert [one.error for step in cycle.STEPS for one in cycle.STEPS[step](shared, "events") if one.error] == []
    world.run("UPDATE frostline.tables SET hot_for = '1 year'")
    assert len(world.archive("events")) == 1
    (folded,) = cycle.folds(world.settings, ["events"], Silent(), world.spark_here)
    assert folded.folded is not None
    assert folded.folded.inserted == 1
    assert world.run("SELECT id FROM events ORDER BY id") == [(0,), (1,), (2,)]
    unregister(world.settings, "events", Silent(), keep_lake=False)
    assert world.run("SELECT id FROM events ORDER BY id") == [(0,), (1,), (2,)]
