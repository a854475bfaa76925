"""Claim: an aggregate pushed whole to a cold period is as fast as DuckDB, and far faster than the heap was."""

from __future__ import annotations

from datetime import datetime

from bench import lake, tables
from bench.measure import Result, cost, interleaved, speed
from bench.world import World

TITLE = "An aggregate over one cold period, pushed whole"
TABLES = True  # it needs the shared ones
RUNS = 10  # in a row, as a report runs them
QUERIES = {
    "count": ("events", "SELECT count(*) FROM {} WHERE kind < 64"),
    "groups": ("events", "SELECT kind, count(*), sum(id), avg(kind) FROM {} GROUP BY kind"),
    "count, 20 columns": ("wide", "SELECT count(*) FROM {} WHERE i4 < 32000"),
    "count, 20 columns, one period": ("broad", "SELECT count(*) FROM {} WHERE i4 < 32000"),
}


def run(world: World, rounds: int) -> list[Result]:
    return [result for label, (table, query) in QUERIES.items() for result in _one(world, rounds, label, table, query)]


def _one(world: World, rounds: int, label: str, table: str, query: str) -> list[Result]:
    shape = world.shapes[table]
    month = list(tables.months(shape))[shape.periods // 2]
    with world.connect() as connection, world.connect(world.peer) as peer, lake.engine(world) as engine:
        lower, upper = (_micros(day) for day in (month.lower, month.upper))
        found = lake.snapshot(world, table)
        moments = lake.column(found, "ts")
        assert moments is not None
        files = [file for file, low in zip(found.files, moments.lower, strict=True) if lower <= low < upper]  # type: ignore[operator]
        times = interleaved(
            {
                "gateway": lambda: connection.execute(query.format(month.name)).fetchall(),
                "duckdb": lambda: engine.execute(query.format(lake.reader(files))).to_arrow_table(),
                "heap": lambda: peer.execute(query.format(month.name)).fetchall(),
            },
            rounds * 5,
            runs=RUNS,
        )
    what = f"{label} over {month.rows:,} rows"
    return [
        cost(f"{what}, time against DuckDB on the same files", times["gateway"], times["duckdb"], 1.3),
        speed(f"{what}, speed against plain Postgres heap", times, "gateway", "heap", 10),
    ]


def _micros(day: str) -> int:
    return int(datetime.fromisoformat(f"{day}T00:00:00+00:00").timestamp()) * 1_000_000
