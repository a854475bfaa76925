"""Periods come back from the lake, and nobody sees a difference, whatever fails and whoever writes meanwhile."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import psycopg
import pytest

from fix_tiering import World
from frostline.report import Silent
from frostline.tiering.archive.run import Warm
from frostline.tiering.untier.run import Returned, untier
from integration.tiering.test_archive import EVERY_TYPE, SIMPLE


def back(world: World, period: str, table: str = "public.events") -> list[Returned]:
    with Warm(world.spark_here) as warm:
        return untier(world.settings, table, period, Silent(), warm)


def rows(world: World, table: str) -> list[tuple[Any, ...]]:
    return world.run(f"SELECT r.id, r::text FROM {table} r ORDER BY 1, 2")


def kinds(world: World) -> dict[str, str]:
    found = world.run(
        "SELECT c.relname, c.relkind::text || ' of ' || i.inhparent::regclass FROM pg_class c"
        " JOIN pg_inherits i ON i.inhrelid = c.oid WHERE c.relname LIKE 'events\\_%' AND c.relkind IN ('r', 'f')"
    )
    return dict(found)


def test_every_type_comes_back_exactly(any_world: World) -> None:
    world = any_world
    world.run(EVERY_TYPE)
    world.register("public.events")
    world.archive("public.events")
    for table in ("public.events", "public.plain"):
        world.run(f"UPDATE {table} SET s = 'changed', jb = '[1]' WHERE ts = '2020-02-10'")
        world.run(f"DELETE FROM {table} WHERE ts = '2020-01-01'")
    assert [(one.period.name, one.rows) for one in back(world, "2020-01-15")] == [("events_02", 2), ("events_01", 1)]
    assert rows(world, "public.events") == rows(world, "public.plain")
    assert kinds(world) == {
        "events_before": "f of events",
        "events_01": "r of events_hot",
        "events_02": "r of events_hot",
        "events_now": "r of events_hot",
    }
    world.gateway.stop(grace=0)
    assert world.run("SELECT count(*) FROM public.events WHERE ts >= '2020-01-01'") == [(4,)]
    world.restart_gateway()
    # And again to the lake: nothing there twice.
    world.archive("public.events")
    assert rows(world, "public.events") == rows(world, "public.plain")
    assert world.run("SELECT rows FROM frostline.periods ORDER BY upper") == [(0,), (1,), (2,)]
