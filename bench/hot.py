"""Claim: hot rows of a registered table are as fast to write and read as those of an unregistered one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import psycopg

from bench import tables
from bench.measure import Result, interleaved, speed
from bench.world import World

TITLE = "Hot rows: registered against unregistered (speed ratio)"
STATEMENTS = 200  # per round and table


def run(world: World, rounds: int) -> list[Result]:
    shape = world.shapes["events"]
    month = [month for month in tables.months(shape) if month.rows][-1]
    results = []
    with world.connect() as connection:
        for name, make in _CASES.items():
            contenders = {
                table: _batch(connection, make(table, month.first), month.rows) for table in ("events", "plain")
            }
            times = interleaved(contenders, rounds * 3)
            results.append(speed(name, times, "events", "plain", 0.95))
    return results


Statement = Callable[[int], tuple[str, tuple[Any, ...]]]


def _batch(connection: psycopg.Connection[Any], statement: Statement, rows: int) -> Callable[[], None]:
    numbers = _spread(rows)

    def batch() -> None:
        for _ in range(STATEMENTS):
            connection.execute(*statement(next(numbers)))

    return batch


def _spread(rows: int) -> Iterator[int]:
    """Numbers all over the hot rows, the same sequence for every table."""
    number = 1
    while True:
        number = (number * 48_271) % 2_147_483_647
        yield number % rows


def _insert(table: str, _: int) -> Statement:
    """New rows of this moment; each its own commit, fsync on."""
    return lambda n: (f"INSERT INTO {table} VALUES (%s, clock_timestamp(), 1, 2.5)", (n,))


def _read(table: str, first: int) -> Statement:
    return lambda n: (f"SELECT * FROM {table} WHERE id = %s AND ts >= %s", (first + n, _month()))


def _read_now(table: str, first: int) -> Statement:
    return lambda n: (f"SELECT * FROM {table} WHERE id = %s AND ts > now() - interval '62 days'", (first + n,))


def _update(table: str, first: int) -> Statement:
    return lambda n: (f"UPDATE {table} SET value = %s WHERE id = %s AND ts >= %s", (n, first + n, _month()))


def _update_now(table: str, first: int) -> Statement:
    return lambda n: (
        f"UPDATE {table} SET value = %s WHERE id = %s AND ts > now() - interval '62 days'",
        (n, first + n),
    )


def _month() -> str:
    """The first hot moment every statement with a constant names."""
    return list(tables.months(tables.shapes(40)["events"]))[-3].lower


_CASES: dict[str, Callable[[str, int], Statement]] = {
    "insert": _insert,
    "point read": _read,
    "point read with now()": _read_now,
    "update": _update,
    "update with now()": _update_now,
}
