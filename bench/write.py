"""Claim: old rows are written nearly as fast as rows of another Postgres, and cost hot rows hardly anything."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import psycopg

from bench import tables
from bench.lookup import numbered
from bench.measure import Result, Times, cost, interleaved, speed
from bench.world import World

TITLE = "Old rows written: gateway against a real Postgres behind postgres_fdw"
TABLES = True
UPDATES = 120
CHANGED = 100_000  # versions in the delta
HOT_WRITES = 200
_HOT = {
    "UPDATE": "UPDATE events SET value = value WHERE id = {id} AND ts = '{ts}'",
    "INSERT": "INSERT INTO events VALUES (nextval('hot_ids'), '{ts}', 1, 2.5)",
}
_MET = ", in a session that has met old rows"

Connection = psycopg.Connection[Any]


def run(world: World, rounds: int) -> list[Result]:
    bulk = max(world.shapes["events"].cold_rows // 20, 50_000)
    with world.connect() as connection, _without_traces(connection):
        connection.execute("ALTER SERVER peer OPTIONS (ADD batch_size '1000')")
        connection.execute("CREATE SEQUENCE IF NOT EXISTS hot_ids INCREMENT -1")
        first, single, again = _single(world, connection, UPDATES * max(rounds // 3, 1))
        inserts = _bulk(world, connection, bulk, rounds)
        hot = {
            (verb, met): _hot(world, connection, max(rounds, 5), statement, met=met)
            for verb, statement in _HOT.items()
            for met in (False, True)
        }
        reads = _reads(world, connection, rounds)
    return [
        cost("UPDATE of one old row by primary key (time)", single["gateway"], single["postgres"], 3),
        cost("the first after a start in a data file (time)", first["gateway"], first["postgres"], None),
        cost("the same row once more (time)", again["gateway"], again["postgres"], None),
        speed(f"INSERT ... SELECT of {bulk:,} old rows (speed)", inserts, "gateway", "postgres", 0.6),
        *(
            cost(
                f"{what}, {_share(world):,} of its rows changed and not folded, against none",
                times["changed"],
                times["none"],
                1.5,
            )
            for what, times in reads.items()
        ),
        *(
            speed(
                f"{verb} of a hot row, triggers against none{_MET if met else ''} (speed)",
                times,
                "with",
                "without",
                0.97,
            )
            for (verb, met), times in hot.items()
        ),
    ]


@contextmanager
def _without_traces(connection: Connection) -> Iterator[None]:
    """Every change writes what is there already, so without its versions the table is as it was."""
    try:
        yield
    finally:
        row = connection.execute(
            "SELECT delta::text FROM frostline.tables WHERE relation = 'events'::regclass"
        ).fetchone()
        assert row is not None
        connection.execute(f"TRUNCATE {row[0]}")


def _single(world: World, connection: Connection, count: int) -> tuple[Times, Times, Times]:
    """Of files that nobody has read since the gateway started, of the others, and of each row a second time."""
    first: Times = {"gateway": [], "postgres": []}
    times: Times = {"gateway": [], "postgres": []}
    again: Times = {"gateway": [], "postgres": []}
    numbers, known = numbered(world.shapes["events"]), set()
    with world.connect(world.peer) as peer:
        for _ in range(count):
            number, month = next(numbers)
            row = peer.execute("SELECT ts FROM events WHERE id = %s", [number]).fetchone()
            assert row is not None
            update = f"SET value = value WHERE id = {number} AND ts = '{row[0].isoformat()}'"
            contenders = {
                "gateway": _client(connection, f"UPDATE events {update}"),
                "postgres": _client(connection, f"UPDATE peer_events {update}"),
            }
            for group in (times if month.name in known else first, again):
                for name, more in interleaved(contenders, 1, warm=0).items():
                    group[name] += more
            known.add(month.name)
    return first, times, again


def _bulk(world: World, connection: Connection, rows: int, rounds: int) -> Times:
    month = next(iter(tables.months(world.shapes["events"])))
    step = f"(timestamptz '{month.upper}' - timestamptz '{month.lower}') / {rows}"
    select = f"SELECT -n, timestamptz '{month.lower}' + (n - 1) * ({step}), 1, n FROM generate_series(1, {rows}) n"

    def insert(table: str) -> Callable[[], object]:
        def work() -> None:
            with connection.transaction(force_rollback=True):
                connection.execute(f"INSERT INTO {table} (id, ts, kind, value) {select}")

        return work

    return interleaved({"gateway": insert("events"), "postgres": insert("peer_events")}, rounds, warm=0)


def _share(world: World) -> int:
    return min(CHANGED, world.shapes["events"].per_period // 2)


def _reads(world: World, connection: Connection, rounds: int) -> dict[str, Times]:
    """Two periods of one size, one of them with many changed rows."""
    changed, plain = list(tables.months(world.shapes["events"]))[:2]
    share = _share(world)
    connection.execute(
        f"UPDATE events SET value = value WHERE id >= {changed.first} AND id < {changed.first + share}"
        f" AND ts < '{changed.upper}'"
    )
    found = {}
    for what, query in (
        ("all rows of a period", "EXPLAIN (ANALYZE, TIMING OFF) SELECT * FROM {}"),
        ("a count over a period", "SELECT count(*), sum(value) FROM {}"),
    ):
        found[what] = interleaved(
            {
                "changed": _client(connection, query.format(changed.name)),
                "none": _client(connection, query.format(plain.name)),
            },
            max(rounds, 5),
        )
    return found


def _hot(world: World, connection: Connection, rounds: int, statement: str, *, met: bool) -> Times:
    """The triggers are switched off and on again between the rounds, outside of what is timed."""
    row = connection.execute("SELECT id, ts FROM events_hot LIMIT 1").fetchone()
    assert row is not None
    written = statement.format(id=row[0], ts=row[1].isoformat())
    times: Times = {"with": [], "without": []}
    with world.connect() as client:
        if met:
            client.execute("SELECT count(*) FROM events WHERE id = 1")
        for number in range(2 * rounds + 2):
            name = ("with", "without")[number % 2]
            state = "ENABLE ALWAYS" if name == "with" else "DISABLE"
            for trigger in ("!frostline", "!frostline.before"):
                connection.execute(f'ALTER TABLE events {state} TRIGGER "{trigger}"')
            client.execute(written)
            taken = []
            for _ in range(HOT_WRITES):
                started = time.perf_counter()
                client.execute(written)
                taken.append(time.perf_counter() - started)
            if number >= 2:
                times[name].append(statistics.median(taken))
    for trigger in ("!frostline", "!frostline.before"):
        connection.execute(f'ALTER TABLE events ENABLE ALWAYS TRIGGER "{trigger}"')
    return times


def _client(connection: Connection, statement: str) -> Callable[[], object]:
    return lambda: connection.execute(statement)
