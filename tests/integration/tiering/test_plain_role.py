"""Pins, frostline.pin(), explain and statistics as on managed Postgres: nobody is a superuser."""

from __future__ import annotations

import logging

import psycopg
import pytest

from fix_tiering import World
from frostline.catalog import pins
from frostline.catalog.database import connect

TABLE = """
CREATE SCHEMA own;
CREATE TABLE own.events (id bigint, ts timestamptz NOT NULL, kind text, PRIMARY KEY (id, ts)) PARTITION BY RANGE (ts);
CREATE TABLE own.events_01 PARTITION OF own.events FOR VALUES FROM ('2020-01-01') TO ('2020-02-01');
CREATE TABLE own.events_now PARTITION OF own.events FOR VALUES FROM ('2020-02-01') TO (MAXVALUE);
INSERT INTO own.events
SELECT i, timestamptz '2020-01-01' + i * interval '1 h', 'k' || i % 3 FROM generate_series(0, 999) i;
"""


def test_no_part_of_the_gateway_needs_a_superuser(keeper: World, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        keeper.run(TABLE)
        keeper.register("own.events")
        assert [one.rows for one in keeper.archive("own.events")] == [744]
        keeper.gateway.renew()
    assert [record.getMessage() for record in caplog.records if record.name.startswith("frostline")] == []
    _look(keeper)
    _alter(keeper)


def _look(as_role: World) -> None:
    assert as_role.run("SELECT reltuples::int FROM pg_class WHERE relname = 'events_01'") == [(744,)]
    assert as_role.run("SELECT n_distinct FROM pg_stats WHERE tablename = 'events_01' AND attname = 'kind'") == [(3,)]
    with psycopg.connect(as_role.dsn, autocommit=True) as connection:
        connection.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
        connection.execute("SELECT frostline.pin()")
        assert connection.execute("SELECT count(*) FROM own.events").fetchone() == (1000,)
        with connect(as_role.dsn) as keeper:
            current = keeper.execute("SELECT id, snapshot_id FROM frostline.tables").fetchone()
            assert current is not None
            assert pins.claim_expired(keeper, current[0], [current[1]]) == set()
        connection.execute("COMMIT")
        # A later statement of a transaction asks whether the client has moved on.
        connection.execute("BEGIN")
        for _ in range(2):
            assert connection.execute("SELECT count(*) FROM own.events WHERE id < 10").fetchone() == (10,)
        connection.execute("COMMIT")
        found = connection.execute(
            "SELECT tier, engine, files FROM frostline.explain('SELECT * FROM own.events WHERE ts < ''2020-02-01''')"
        ).fetchall()
        assert ("cold", "DuckDB", 1) in found


def _alter(as_role: World) -> None:
    as_role.run("ALTER TABLE own.events ADD COLUMN extra int DEFAULT 5, DROP COLUMN kind")
    as_role.run("ALTER TABLE own.events RENAME COLUMN id TO number")
    as_role.run("UPDATE own.events SET extra = 6 WHERE number = 4")
    found = as_role.run("SELECT * FROM own.events WHERE number IN (4, 5, 900) ORDER BY number")
    assert [(number, extra) for number, _, extra in found] == [(4, 6), (5, 5), (900, 5)]
