"""A registry of an earlier version, with a table it has registered, is brought up to date and goes on.

`registry_007.sql` is a dump of such a database, as that version made it: registered, nothing archived yet.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from fix_tiering import World, new_world
from frostline.catalog import install
from frostline.catalog.database import connect
from frostline.report import Silent
from frostline.tiering import writing
from frostline.tiering.archive.run import Warm
from frostline.tiering.fold.run import fold

DUMP = Path(__file__).with_name("registry_007.sql")
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
    with Warm(world.spark_here) as warm:
        fold(world.settings, "public.events", Silent(), warm)
    assert world.run(ROWS.replace(", g FROM", ", g, extra FROM")) == found
