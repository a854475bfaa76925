"""What an export leaves in the lake: one commit that says whose it is, of rows as they were at one moment."""

from __future__ import annotations

from typing import Any

import pytest

from fix_tiering import World
from frostline.catalog import registry
from frostline.catalog.database import connect
from frostline.lake import catalog as lake
from frostline.lake import layout, lineage
from frostline.pipeline import export as pipeline
from integration.tiering.test_hostile import SIMPLE


def test_a_commit_says_whose_it_is_and_which_period_it_brought(world: World) -> None:
    world.run(SIMPLE)
    world.register("public.events")
    world.archive("public.events")
    [(operation,)] = world.run("SELECT id FROM frostline.operations")
    with connect(world.dsn) as connection:
        table = lake.load(world.settings, registry.get(connection, "public.events"))
    [snapshot] = table.snapshots()
    assert lineage.made_by(snapshot) == str(operation)
    assert snapshot.summary is not None
    assert snapshot.summary.get(layout.PERIOD) == "from 2020-01-01 00:00:00+00 to 2020-02-01 00:00:00+00"


def test_all_tasks_read_the_leaf_as_it_was_when_its_snapshot_was_exported(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is written before the first of them begins is captured, and in none of their files."""
    world.run(SIMPLE)
    world.register("public.events")
    world.run("UPDATE frostline.tables SET file_size = 8192")
    parts: list[int] = []
    real = pipeline._run

    def late(*arguments: Any) -> Any:
        parts.append(len(arguments[2]))
        world.run("INSERT INTO public.events SELECT 5000 + i, '2020-01-15', i FROM generate_series(1, 500) i")
        world.run("UPDATE public.events SET v = -v WHERE id % 2 = 0 AND ts < '2020-02-01'")
        return real(*arguments)

    monkeypatch.setattr(pipeline, "_run", late)
    [archived] = world.archive("public.events")
    assert archived.rows == 743
    assert parts[0] > 3
    with connect(world.dsn) as connection:
        found = lake.load(world.settings, registry.get(connection, "public.events")).scan().to_arrow()
    assert (found.num_rows, min(found["v"].to_pylist())) == (743, 1)
    assert world.run("SELECT count(*), count(*) FILTER (WHERE v < 0) FROM public.events") == [(1500, 371 + 250)]
