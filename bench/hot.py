"""Claim: hot rows of a registered table are as fast to write and read as those of an unregistered one."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any

import psycopg

from bench.measure import Result, interleaved, speed
from bench.world import World

TITLE = "Hot rows: registered against unregistered (speed ratio)"
TABLES = True  # it needs the shared ones
STATEMENTS = 20  # per round and table: short ones, so that both meet the same noise


def run(world: World, rounds: int) -> list[Result]:
    results = []
    with world.connect() as connection:
        # Rows that both have: each inserts others of its own.
        both = "SELECT id, ts FROM plain JOIN events_hot USING (id, ts) ORDER BY hashint8(id) LIMIT 5000"
        keys = connection.execute(both).fetchall()
        for name, statement in _CASES.items():
            contenders = {table: _batch(connection, statement(table), keys) for table in ("events", "plain")}
            times = interleaved(contenders, rounds * 50, warm=2)
            results.append(speed(name, times, "events", "plain", 0.95))
    return results


Key = tuple[int, datetime]
Statement = Callable[[Key], tuple[str, tuple[Any, ...]]]


def _batch(connection: psycopg.Connection[Any], statement: Statement, keys: Sequence[Key]) -> Callable[[], None]:
    """The same keys in the same order for every table."""
    turning = itertools.cycle(keys)

    def batch() -> None:
        for key in itertools.islice(turning, STATEMENTS):
            connection.execute(*statement(key))

    return batch


def _insert(table: str) -> Statement:
    """New rows of this moment; each its own commit, fsync on."""
    return lambda key: (f"INSERT INTO {table} VALUES (%s, clock_timestamp(), 1, 2.5)", (key[0],))


def _read(table: str) -> Statement:
    return lambda key: (f"SELECT * FROM {table} WHERE id = %s AND ts = %s", key)


def _read_now(table: str) -> Statement:
    return lambda key: (f"SELECT * FROM {table} WHERE id = %s AND ts > now() - interval '62 days'", key[:1])


def _update(table: str) -> Statement:
    return lambda key: (f"UPDATE {table} SET value = value + 1 WHERE id = %s AND ts = %s", key)


def _update_now(table: str) -> Statement:
    changed = "value = value + 1 WHERE id = %s AND ts > now() - interval '62 days'"
    return lambda key: (f"UPDATE {table} SET {changed}", key[:1])


_CASES: dict[str, Callable[[str], Statement]] = {
    "insert": _insert,
    "point read": _read,
    "point read with now()": _read_now,
    "update": _update,
    "update with now()": _update_now,
}
