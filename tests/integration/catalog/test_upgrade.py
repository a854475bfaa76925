"""A registry of an earlier version, with a table it has registered, is brought up to date and goes on.

`registry_007.sql` is a dump of such a database, as that version made it: registered, nothing archived yet.
"""

from __future__ import annotations

import subprocess
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest
from psycopg.sql import SQL, Identifier
from pyspark.sql import SparkSession

from fix_cluster import wait_until
from fix_commands import command, environment
from fix_tiering import World, new_world
from frostline.catalog import install
from frostline.catalog.database import connect
from frostline.catalog.names import SERVER_NAME
from frostline.delta import collect
from frostline.local.ports import free_port
from frostline.report import Silent
from frostline.tiering import writing
from frostline.tiering.archive.run import Warm
from frostline.tiering.fold.run import fold

DUMP = Path(__file__).with_name("registry_007.sql")
BEFORE = "239431dd487f73b1db1c79862ca6b3c1519f7219"
ROWS = "SELECT id, ts, customer, amount, m::text, note, g FROM events ORDER BY id"


@pytest.fixture(params=["18", "15"])
def upgraded(request: pytest.FixtureRequest, spark: SparkSession, tmp_path: Path) -> Iterator[World]:
    server = request.getfixturevalue("dsn" if request.param == "18" else "postgres15")
    with new_world(server, spark, tmp_path, dump=DUMP.read_text()) as world:
        yield world


def test_an_earlier_registration_goes_on(upgraded: World) -> None:
    world = upgraded
    with connect(world.dsn) as connection:
        assert install.pending(connection) == []
        assert writing.equip(connection) == ["what writes cold rows of public.events"]
        assert writing.equip(connection) == []
    # The labels of the one enum.
    assert world.run("SELECT attnum FROM frostline.columns WHERE sense IS NOT NULL") == [(5,)]
    before = world.run(ROWS)
    assert len(before) == 300
    assert [archived.rows for archived in world.archive("public.events")] == [124, 116]
    assert world.run(ROWS) == before
    changes = (
        "UPDATE events SET note = 'late' WHERE id = 3",
        "DELETE FROM events WHERE id = 4",
        "INSERT INTO events (id, ts, customer, amount) VALUES (900, '2024-01-02Z', 1, 5)",
        "ALTER TABLE events ADD COLUMN extra int DEFAULT 7",
        "UPDATE events SET extra = 8 WHERE id IN (5, 295)",
    )
    for change in changes:
        world.run(change)
    wanted = sorted(
        [
            (*row[:5], "late" if row[0] == 3 else row[5], row[6], 8 if row[0] in (5, 295) else 7)
            for row in before
            if row[0] != 4
        ]
    )
    found = world.run(ROWS.replace(", g FROM", ", g, extra FROM"))
    assert found[:-1] == wanted
    assert found[-1][0] == 900
    _renewed_under_writers(world)
    with Warm(world.spark_here) as warm:
        fold(world.settings, "public.events", Silent(), warm)
    assert world.run(ROWS.replace(", g FROM", ", g, extra FROM")) == found
    if world.run("SELECT current_setting('server_version_num')::int >= 180000") == [(True,)]:
        _beside_an_older_gateway(world)


def _renewed_under_writers(world: World) -> None:
    """Old rows are written without pause while what stores them is made anew: it is soon, and nobody notices."""
    stop, written = threading.Event(), [0] * 4

    def write(number: int) -> None:
        with world.connect() as client:
            while not stop.is_set():
                with client.transaction():
                    for change in (1, -1):
                        client.execute(f"UPDATE events SET extra = extra + {change} WHERE id = {10 + number}")
                written[number] += 1

    [(version,)] = world.run("SELECT regexp_replace(%s, '[0-9]+', '9')", collect.VERSION)
    with ThreadPoolExecutor(len(written)) as pool, connect(world.dsn) as connection:
        writers = [pool.submit(write, number) for number in range(len(written))]
        try:
            for _ in range(3):
                wait_until(lambda: min(written) > 2, 120, "they write")
                written[:] = [0] * len(written)
                connection.execute(f"COMMENT ON FUNCTION frostline.store_1(oid, bool) IS '{version}'")
                began = time.monotonic()
                assert writing.equip(connection) == ["what writes cold rows of public.events"]
                assert time.monotonic() - began < 120
            wait_until(lambda: min(written) > 2, 120, "they go on")
        finally:
            stop.set()
    for writer in writers:
        writer.result()
    assert world.run("SELECT DISTINCT extra FROM events WHERE id BETWEEN 10 AND 13") == [(7,)]


REFUSED = psycopg.errors.ObjectNotInPrerequisiteState  # by the older gateway, whose changes no trigger asks for


def _beside_an_older_gateway(world: World) -> None:
    """One that runs on when the registry is brought up to date: it reads, and what it cannot store is refused."""
    before = world.run(ROWS)
    with older_gateway(world):
        assert world.run(ROWS) == before
        for change in (
            "UPDATE events SET note = 'older' WHERE id = 5",
            "DELETE FROM events WHERE id = 6",
            "INSERT INTO events (id, ts, customer, amount) VALUES (901, '2024-01-03Z', 1, 5)",
            "INSERT INTO events (id, ts, customer, amount)"
            " SELECT i, '2024-01-04Z', 1, 5 FROM generate_series(1000, 1100) i",
        ):
            with pytest.raises(REFUSED, match="were not stored: the transaction cannot be committed"):
                world.run(change)
        world.run("UPDATE events SET note = 'newer' WHERE id = 299")
        changed = _through_either(world)
    assert world.run(ROWS) == [(*row[:5], "newer" if row[0] in {299, *changed} else row[5], row[6]) for row in before]


def _through_either(world: World) -> set[int]:
    """Sessions come to the old gateway or to the new one beside it: all read the same, and what one stores all see."""
    world.run(SQL("ALTER SERVER {} OPTIONS (ADD load_balance_hosts 'random')").format(Identifier(SERVER_NAME)))
    rows, refused = world.run(ROWS), 0
    changed: set[int] = set()
    for number in range(20, 80):
        with psycopg.connect(world.dsn, autocommit=True) as client:
            assert client.execute(ROWS).fetchall() == rows
            try:
                client.execute(f"UPDATE events SET note = 'newer' WHERE id = {number}")
            except REFUSED:
                refused += 1
            else:
                changed.add(number)
                rows = [(*row[:5], "newer", row[6]) if row[0] == number else row for row in rows]
            assert client.execute(ROWS).fetchall() == rows
        if min(refused, len(changed)) > 3:
            return changed
    raise AssertionError(f"{len(changed)} of 60 sessions came to the new one")


@contextmanager
def older_gateway(world: World) -> Iterator[None]:
    """Of an earlier version, for which the trigger and the gateway said other things to each other, beside ours."""
    source = Path(world.settings.local.dir) / "older"
    source.mkdir()
    found = subprocess.run(["git", "archive", BEFORE, "src"], cwd=DUMP.parents[3], capture_output=True, check=False)
    if found.returncode != 0:
        pytest.skip("the sources of an earlier version are only in the history")
    subprocess.run(["tar", "x", "-C", source], input=found.stdout, check=True)
    newer = "DELETE FROM frostline.migrations WHERE number > 19 RETURNING number, name"
    forgotten = world.run(newer)  # as it was when that gateway started
    env = {
        "PYTHONPATH": str(source / "src"),
        "FROSTLINE_DSN": world.dsn,
        "FROSTLINE_LAKE_WAREHOUSE": world.settings.warehouse,
        "FROSTLINE_GATEWAY_PORT": str(free_port()),
    }
    process = subprocess.Popen(command("gateway"), env=environment(env), cwd=source)
    try:
        there = "SELECT 1 FROM pg_foreign_server WHERE array_to_string(srvoptions, ' ') LIKE %s"
        wait_until(lambda: world.run(there, f"%{env['FROSTLINE_GATEWAY_PORT']}%") != [], 120, "it is known to Postgres")
        for row in forgotten:
            world.run("INSERT INTO frostline.migrations (number, name) VALUES (%s, %s)", *row)
        yield
    finally:
        process.kill()
        process.wait()
