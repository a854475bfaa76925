"""Claim: cold rows stream through postgres_fdw as fast as rows of another real Postgres."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import psycopg

from bench import tables
from bench.measure import Result, interleaved, speed
from bench.world import World

TITLE = "Cold rows streamed: gateway against a real Postgres behind postgres_fdw (speed ratio)"
TABLES = True  # it needs the shared ones


def run(world: World, rounds: int) -> list[Result]:
    results = []
    with world.connect() as connection:
        for name, columns, target in (("events", "4 narrow columns", 0.95), ("wide", "20 mixed columns", 0.8)):
            shape = world.shapes[name]
            end = list(tables.months(shape))[shape.periods].lower
            contenders = {
                "gateway": _scan(connection, name, end),
                "postgres": _scan(connection, f"peer_{name}", end),
            }
            times = interleaved(contenders, rounds, warm=0 if shape.cold_rows > 5_000_000 else 1)
            claim = f"{columns}, {shape.cold_rows / 1e6:g} million rows"
            results.append(speed(claim, times, "gateway", "postgres", target))
    return results


def _scan(connection: psycopg.Connection[Any], table: str, end: str) -> Callable[[], None]:
    """Every row becomes a tuple in the local server; none is sent on to us, which would measure this client."""

    def scan() -> None:
        connection.execute(f"EXPLAIN (ANALYZE, TIMING OFF) SELECT * FROM {table} WHERE ts < '{end}'")

    return scan
