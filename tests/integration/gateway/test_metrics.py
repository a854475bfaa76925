"""/metrics: what Prometheus reads is what happened."""

from __future__ import annotations

import re
import urllib.error
import urllib.request
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from frostline.errors import StackError
from frostline.gateway.server import Gateway
from frostline.local.ports import free_port
from integration.gateway.conftest import settings_for
from integration.gateway.world import World, rows

SAMPLE = re.compile(r'frostline_gateway_([a-z_]+)(?:\{((?:[a-z]+="[^"]*",?)*)\})? ([0-9.e+-]+)')


@pytest.fixture
def port(world: World, gateway: Gateway) -> Iterator[int]:
    """Of the metrics of a gateway that has just been started; Postgres prefers the newest."""
    assert gateway.port
    found = free_port()
    started = Gateway(settings_for(world.dsn, metrics_port=found))
    started.start()
    yield found
    started.stop(grace=0)


def read(port: int) -> dict[str, float]:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
        assert answer.headers["Content-Type"].startswith("text/plain; version=0.0.4")
        text = answer.read().decode()
    found = {}
    for line in text.splitlines():
        if not line.startswith("#"):
            match = SAMPLE.fullmatch(line)
            assert match is not None, line
            found[match[1] + (f"{{{match[2]}}}" if match[2] else "")] = float(match[3])
    declared = re.findall(r"^# TYPE frostline_gateway_([a-z_]+) (counter|gauge|histogram)$", text, re.M)
    assert {name for name, _ in declared} >= {"sessions", "queries_total", "statement_seconds", "cache"}
    return found


def test_queries_rows_bytes_and_errors_are_counted(world: World, port: int) -> None:
    assert read(port)["sessions"] == 0
    with world.connect() as connection:
        count = len(rows(connection, "SELECT id FROM events WHERE ts < '2026-01-01'"))
        rows(connection, "SELECT id FROM events WHERE ts < '2026-01-01' AND repeat(t, 2) ~ 'row 1row'")
        with pytest.raises(psycopg.errors.DivisionByZero):
            connection.execute("SELECT id FROM events WHERE 1 / (id - id) = 1 AND ts < '2026-01-01'")
        found = read(port)
        assert found["sessions"] == found["sessions_total"] == found["pins"] == 1
        assert found['queries_total{path="duckdb"}'] == 1
        assert found['queries_total{path="postgres"}'] >= 1
        assert found["rows_total"] > count
        assert found["bytes_sent_total"] > 12 * count
        assert found["files_total"] >= 2
        assert found["file_bytes_total"] > 10_000
        assert found['errors_total{sqlstate="22012"}'] == 1
        assert sum(value for name, value in found.items() if name.startswith("cache") and 'what="hits"' in name) > 0


def test_latencies_are_a_cumulative_histogram(world: World, port: int) -> None:
    with world.connect() as connection:
        for _ in range(5):
            rows(connection, "SELECT id FROM events WHERE ts < '2026-01-01' AND id = 5")
    found = read(port)
    name = 'statement_seconds_bucket{statement="declare",le="%s"}'
    steps = [found[name % limit] for limit in ("0.001", "0.01", "0.1", "1.0", "60.0", "+Inf")]
    assert steps == sorted(steps)
    assert steps[-1] == found['statement_seconds_count{statement="declare"}'] == 5
    assert 0 < found['statement_seconds_sum{statement="declare"}'] < 60


def test_nothing_else_is_served_and_a_taken_port_is_one_clear_error(world: World, port: int) -> None:
    with pytest.raises(urllib.error.HTTPError, match="404"):
        urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=10)
    with pytest.raises(StackError, match=f"metrics cannot be served on 127.0.0.1 port {port}"):
        Gateway(settings_for(world.dsn, metrics_port=port)).start()


def test_refused_sessions_are_errors_too(world: World, gateway: Gateway, port: int) -> None:
    assert gateway.port
    with world.connect() as connection:
        row = connection.execute("SELECT id::text FROM frostline.installation").fetchone()
        started = connection.execute("SELECT port FROM frostline.gateways ORDER BY started_at DESC").fetchone()
    assert row is not None
    assert started is not None
    address: dict[str, Any] = {"host": "127.0.0.1", "port": started[0], "dbname": row[0], "user": "frostline"}
    with pytest.raises(psycopg.OperationalError):
        psycopg.connect(**address, password="wrong")
    assert read(port)['errors_total{sqlstate="28P01"}'] == 1


def test_columns_that_are_aggregated_again_are_kept(world: World, port: int) -> None:
    def cache(what: str) -> float:
        return read(port)[f'cache{{cache="columns",what="{what}"}}']

    with world.connect() as connection:

        def counted(after: int) -> tuple[Any, ...]:
            query = f"SELECT count(*), sum(id), max(ts) FROM {period} WHERE id > {after}"
            row: tuple[Any, ...] = connection.execute(query).fetchall()[0]
            return row

        (period,) = connection.execute("SELECT tableoid::regclass::text FROM events WHERE id = 5").fetchone() or ("",)
        found = [counted(5)]
        assert cache("entries") == 0
        found += [counted(after) for after in (5, 6, 7)]
        assert (cache("misses"), cache("hits"), cache("entries")) == (1, 2, 1)
        assert cache("bytes") >= 16 * found[0][0]
        assert found[0] == found[1]
        assert found[0][0] == found[2][0] + 1 == found[3][0] + 2
