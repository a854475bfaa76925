"""Claim: a cold look-up costs DuckDB's own time on the files concerned and one and a half round trips."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import duckdb
import psycopg

from bench import lake, tables
from bench.measure import Result, cost, interleaved
from bench.tables import Shape
from bench.world import World
from frostline.lake.files import Snapshot

TITLE = "Cold look-ups, warm: time taken of the time allowed (ratio)"
TABLES = True  # it needs the shared ones
LOOKUPS = 60  # per table


def run(world: World, rounds: int) -> list[Result]:
    count = LOOKUPS * max(rounds // 3, 1)
    with world.connect() as connection, lake.engine(world) as engine:
        point = _point(world, connection, engine, "events", count)
        few = _point(world, connection, engine, "few", count)
        hour = _hour(world, connection, engine, count)
        alone = _alone(world, connection, count)
    allowed, read = _allowed(point), 1.5 * statistics.median(point["postgres"])
    # A single probe's allowance, four times over, for forty periods.
    budget = [4 * statistics.median(allowed)] * count
    return [
        cost("point look-up by primary key, 40 periods", point["gateway"], allowed, 1),
        cost("point look-up by primary key, 2 periods", few["gateway"], _allowed(few), 1),
        cost("the same: 40 periods against 2", point["gateway"], few["gateway"], 1.1),
        cost("one hour of rows", hour["gateway"], [own + read for own in hour["duckdb"]], 1),
        cost("look-up by id alone over 40 periods", alone["gateway"], budget, 1),
    ]


def _allowed(times: dict[str, list[float]]) -> list[float]:
    return [own + 1.5 * fdw for own, fdw in zip(times["duckdb"], times["postgres"], strict=True)]


def numbered(shape: Shape) -> Iterator[tuple[int, Any]]:
    """Numbers and months all over the cold rows."""
    months = list(tables.months(shape))[: shape.periods]
    number = 1
    while True:
        number = (number * 48_271) % 2_147_483_647
        month = months[number % len(months)]
        yield month.first + number % month.rows, month


def _point(
    world: World,
    connection: psycopg.Connection[Any],
    engine: duckdb.DuckDBPyConnection,
    name: str,
    count: int,
) -> dict[str, list[float]]:
    peer = world.connect(world.peer)
    found = lake.snapshot(world, name)
    times: dict[str, list[float]] = {"gateway": [], "postgres": [], "duckdb": []}
    numbers = numbered(world.shapes[name])
    for _ in range(count):
        number, _month = next(numbers)
        row = peer.execute(f"SELECT ts FROM {name} WHERE id = %s", [number]).fetchone()
        assert row is not None
        where = f"id = {number} AND ts = '{row[0].isoformat()}'"
        _add(times, _contest(connection, engine, found, name, where, number, peer=f"peer_{name}"))
    peer.close()
    return times


def _hour(
    world: World, connection: psycopg.Connection[Any], engine: duckdb.DuckDBPyConnection, count: int
) -> dict[str, list[float]]:
    peer = world.connect(world.peer)
    found = lake.snapshot(world, "events")
    times: dict[str, list[float]] = {"gateway": [], "duckdb": []}
    numbers = numbered(world.shapes["events"])
    for _ in range(count):
        number, month = next(numbers)
        number = min(number, month.first + month.rows - month.rows // 100)  # the hour stays inside its month
        row = peer.execute("SELECT ts FROM events WHERE id = %s", [number]).fetchone()
        assert row is not None
        until = row[0] + timedelta(hours=1)
        where = f"ts >= '{row[0].isoformat()}' AND ts < '{until.isoformat()}'"
        _add(times, _contest(connection, engine, found, "events", where, number))
    peer.close()
    return times


def _alone(world: World, connection: psycopg.Connection[Any], count: int) -> dict[str, list[float]]:
    numbers = numbered(world.shapes["events"])
    times: dict[str, list[float]] = {"gateway": []}
    for _ in range(count):
        number, _month = next(numbers)
        _add(times, interleaved({"gateway": _client(connection, "events", f"id = {number}")}, 1))
    return times


def _contest(
    connection: psycopg.Connection[Any],
    engine: duckdb.DuckDBPyConnection,
    found: Snapshot,
    name: str,
    where: str,
    number: int,
    peer: str | None = None,
) -> dict[str, list[float]]:
    ids = lake.column(found, "id")
    assert ids is not None
    concerned = [f for f, low, high in zip(found.files, ids.lower, ids.upper, strict=True) if low <= number <= high]  # type: ignore[operator]
    columns = "CAST(id AS VARCHAR), CAST(ts AS VARCHAR), CAST(kind AS VARCHAR), CAST(value AS VARCHAR)"
    query = f"SELECT {columns} FROM {lake.reader(concerned)} WHERE {where}"
    contenders: dict[str, Callable[[], object]] = {
        "gateway": _client(connection, name, where),
        "duckdb": lambda: engine.execute(query).to_arrow_table(),
    }
    if peer is not None:
        contenders["postgres"] = _client(connection, peer, where)
    return interleaved(contenders, 1)


def _client(connection: psycopg.Connection[Any], table: str, where: str) -> Callable[[], object]:
    return lambda: connection.execute(f"SELECT * FROM {table} WHERE {where}").fetchall()


def _add(times: dict[str, list[float]], more: dict[str, list[float]]) -> None:
    for name, found in more.items():
        times[name] += found
