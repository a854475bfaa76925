"""Many sessions share one gateway: nobody waits for a long scan of somebody else."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from pydantic import SecretStr

from frostline.catalog.names import GATEWAY_USER, SERVER_NAME
from frostline.config import Settings
from frostline.gateway.server import Gateway
from integration.gateway.world import World, build

SESSIONS = 64
LOOKUPS = 6
FEBRUARY = '"table {}"."from 2026-02-01 00:00:00+00 to 2026-03-01 00:00:00+00"'


@pytest.fixture(scope="module")
def served(dsn: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[World, Gateway]]:
    """A tiered table behind a gateway of its own."""
    world = build(dsn, tmp_path_factory.mktemp("fair"))
    gateway = Gateway(Settings(dsn=SecretStr(world.dsn)))
    gateway.start()
    yield world, gateway
    gateway.stop(grace=0)


def direct(world: World, gateway: Gateway) -> psycopg.Connection[Any]:
    """Straight to the gateway: through Postgres 64 sessions would need 128 of its connections."""
    with world.connect() as connection:
        row = connection.execute(
            "SELECT m.umoptions, i.id::text FROM pg_user_mappings m, frostline.installation i WHERE m.srvname = %s",
            [SERVER_NAME],
        ).fetchone()
    assert row is not None
    password = dict(option.split("=", 1) for option in row[0])["password"]
    return psycopg.connect(
        host="127.0.0.1",
        port=gateway.port,
        user=GATEWAY_USER,
        password=password,
        dbname=row[1],
        autocommit=True,
        prepare_threshold=None,
    )


def test_point_look_ups_go_on_while_one_session_scans(served: tuple[World, Gateway]) -> None:
    world, gateway = served
    source = FEBRUARY.format(world.table_id)
    answered: list[list[float]] = [[] for _ in range(SESSIONS)]
    wrong: list[str] = []
    stop = threading.Event()
    scans: list[tuple[float, float]] = []

    def scan() -> None:
        with direct(world, gateway) as connection:
            while not stop.is_set():
                started = time.monotonic()
                connection.execute(f"SELECT * FROM {source}", prepare=False).fetchall()
                scans.append((started, time.monotonic()))

    ready = threading.Barrier(SESSIONS)

    def look_up(number: int) -> None:
        with direct(world, gateway) as connection:
            connection.execute(f"SELECT id FROM {source} WHERE id = 1")
            ready.wait(120)
            for turn in range(LOOKUPS):
                key = 4000 + number * LOOKUPS + turn
                found = connection.execute(f"SELECT id FROM {source} WHERE ((id = {key}))").fetchall()
                answered[number].append(time.monotonic())
                if found != [(key,)]:
                    wrong.append(f"{key}: {found}")

    scanner = threading.Thread(target=scan)
    sessions = [threading.Thread(target=look_up, args=(number,)) for number in range(SESSIONS)]
    for thread in (scanner, *sessions):
        thread.start()
    for thread in sessions:
        thread.join(300)
    stop.set()
    scanner.join(60)
    assert not wrong
    assert [len(session) for session in answered] == [LOOKUPS] * SESSIONS
    # Nor is the scan starved: it ends, and while it goes on others are answered, one after the other.
    meanwhile = [sum(start < moment < end for session in answered for moment in session) for start, end in scans]
    assert max(meanwhile) > 4
