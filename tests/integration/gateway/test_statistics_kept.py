"""Folds, added files and retention keep the planner's statistics of what they changed; little changes cost nothing."""

from __future__ import annotations

from typing import Any

import pytest

from fix_tiering import World
from frostline.report import Silent
from frostline.tiering import cycle
from frostline.tiering.archive.run import Warm
from frostline.tiering.fold.run import fold

# The last month is hot; 744 rows in January.
TABLE = """
CREATE TABLE public.events (id int, ts timestamptz, kind text, rare int, PRIMARY KEY (id, ts)) PARTITION BY RANGE (ts);
CREATE TABLE public.events_01 PARTITION OF public.events FOR VALUES FROM ('2020-01-01 00:00Z') TO ('2020-02-01 00:00Z');
CREATE TABLE public.events_now PARTITION OF public.events FOR VALUES FROM ('2020-02-01 00:00Z') TO (MAXVALUE);
INSERT INTO public.events SELECT i, timestamptz '2020-01-01 00:00Z' + i * interval '1 h', 'first', i
FROM generate_series(0, 743) i;
"""


def _fold(world: World) -> None:
    with Warm(world.spark_here) as warm:
        fold(world.settings, "public.events", Silent(), warm)


def _sizes(world: World) -> dict[str, float]:
    return dict(world.run("SELECT relname, reltuples FROM pg_class WHERE relkind = 'f' AND relname ~ '^events_'"))


def _column(world: World, partition: str, column: str) -> tuple[Any, ...]:
    """Share of NULLs, number of values, the least and the greatest value where a histogram says so."""
    rows = world.run(
        "SELECT round(null_frac::numeric, 2)::float8, n_distinct, (histogram_bounds::text::text[])[1],"
        " (histogram_bounds::text::text[])[array_upper(histogram_bounds::text::text[], 1)]"
        " FROM pg_stats WHERE tablename = %s AND attname = %s",
        partition,
        column,
    )
    return rows[0] if rows else ()


def _add(world: World, first: int, rows: int, start: str) -> None:
    """So many that they go into files of the lake; every second has no `rare`."""
    world.run(
        f"INSERT INTO public.events SELECT i, timestamptz '{start} 00:00Z' + i * interval '1 s', 'added',"
        f" CASE WHEN i % 2 = 0 THEN i END FROM generate_series({first}, {first + rows - 1}) i"
    )
    assert world.run("SELECT sum(rows)::int FROM frostline.staged_files") == [(rows,)]


def test_they_follow_what_is_added_folded_and_let_go(any_world: World, caplog: pytest.LogCaptureFixture) -> None:
    world = any_world
    world.run(TABLE)
    world.register("public.events", "1 month")
    world.archive("public.events")
    world.run("UPDATE frostline.tables SET bulk_rows = 50")
    assert _sizes(world) == {"events_before": 0, "events_01": 744}
    as_archived = (0.0, -1, "0", "743")
    assert _column(world, "events_01", "rare") == as_archived

    _add(world, 2001, 60, "2020-01-01")
    _fold(world)  # there is nothing to merge, only files to add
    assert world.run("SELECT rows, changed FROM frostline.periods ORDER BY rows") == [(0, 0), (804, 60)]
    assert _column(world, "events_01", "rare") == as_archived  # less than a tenth: nobody looked again

    _add(world, 1, 1000, "2019-12-01")
    world.gateway.stop(grace=0)
    _fold(world)
    assert [record.getMessage().split(":")[0] for record in caplog.records if "planner" in record.getMessage()] == [
        "the planner knows public.events_before as it was"
    ]
    world.restart_gateway()
    _fold(world)  # what failed is done by the next
    assert _sizes(world) == {"events_before": 1000, "events_01": 744}
    assert _column(world, "events_before", "rare") == (0.5, pytest.approx(-0.5), "2", "1000")

    world.run("UPDATE public.events SET rare = 7, kind = 'second' WHERE id BETWEEN 372 AND 743 AND ts >= '2020-01-01Z'")
    world.run("DELETE FROM public.events WHERE id < 72 AND ts >= '2020-01-01Z'")
    _fold(world)
    assert _sizes(world) == {"events_before": 1000, "events_01": 732}
    assert _column(world, "events_01", "kind")[1] == 3
    assert _column(world, "events_01", "rare")[0] == pytest.approx(30 / 732, abs=0.01)
    assert _column(world, "events_01", "rare")[2:] == ("72", "2060")
    assert world.run("SELECT rows, changed FROM frostline.periods ORDER BY rows") == [(732, 0), (1000, 0)]

    world.run("UPDATE frostline.tables SET retention = '3 months'")
    cycle.retains(world.settings, ["events"], Silent(), world.spark_here)
    assert _sizes(world) == {"events_before": 0}
