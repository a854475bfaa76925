"""Row-level security that a table gets when it has old rows already."""

from __future__ import annotations

import psycopg
import pytest

from fix_tiering import World
from frostline.report import Silent
from frostline.tiering import cycle
from frostline.tiering.archive.run import Warm


def test_the_worker_lets_those_it_does_not_concern_write_again(world: World) -> None:
    world.run(
        "CREATE TABLE events (id int, ts date, v int, PRIMARY KEY (id, ts)) PARTITION BY RANGE (ts);"
        "CREATE TABLE events_1 PARTITION OF events FOR VALUES FROM ('2020-01-01') TO ('2020-02-01');"
        "CREATE TABLE events_now PARTITION OF events FOR VALUES FROM ('2020-02-01') TO (MAXVALUE);"
        "INSERT INTO events VALUES (1, '2020-01-05', 1)"
    )
    world.register("events", "1 month")
    world.archive("events")
    world.run("ALTER TABLE events ENABLE ROW LEVEL SECURITY; CREATE POLICY few ON events USING (v < 10)")
    with pytest.raises(psycopg.errors.FeatureNotSupported, match="enabled after the table was registered"):
        world.run("UPDATE events SET v = 2")
    with Warm(world.spark_here) as warm:
        shared = cycle.Round(world.settings, Silent(), warm)
        assert "renewed" in [one.state for one in cycle.STEPS["columns"](shared, "events")]
        assert list(cycle.STEPS["columns"](shared, "events")) == []
    world.run("UPDATE events SET v = 2")
    assert world.run("SELECT v FROM events") == [(2,)]
