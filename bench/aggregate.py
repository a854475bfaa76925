"""Claim: an aggregate pushed whole to a cold period is as fast as DuckDB, and far faster than the heap was."""

from __future__ import annotations

from bench import lake, tables
from bench.measure import Result, cost, interleaved, speed
from bench.world import World

TITLE = "An aggregate over one cold period, pushed whole"
WHERE = "kind < 64"


def run(world: World, rounds: int) -> list[Result]:
    shape = world.shapes["events"]
    month = list(tables.months(shape))[shape.periods // 2]
    found = lake.snapshot(world, "events")
    ids = found.column("id")
    assert ids is not None
    files = [file for file, low in zip(found.files, ids.lower, strict=True) if low == month.first]
    query = f"SELECT count(*) FROM {month.name} WHERE {WHERE}"
    with world.connect() as connection, world.connect(world.peer) as peer, lake.engine(world) as engine:
        times = interleaved(
            {
                "gateway": lambda: connection.execute(query).fetchall(),
                "duckdb": lambda: engine.execute(f"SELECT count(*) FROM {lake.reader(files)} WHERE {WHERE}").fetchall(),
                "heap": lambda: peer.execute(query).fetchall(),
            },
            rounds * 5,
        )
    rows = f"{month.rows:,} rows"
    return [
        cost(f"count over {rows}, time against DuckDB on the same file", times["gateway"], times["duckdb"], 1.3),
        speed(f"count over {rows}, speed against plain Postgres heap", times, "gateway", "heap", 10),
    ]
