"""Whoever is in the middle of something when rows come back or go sees them as they were or as they are, never some."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest
from psycopg import sql

from fix_tiering import World
from frostline.errors import Interrupted
from frostline.report import Silent
from frostline.tiering import cycle
from frostline.tiering.unregister import unregister
from integration.tiering.test_untier import PLAIN, back, both, patience

Rows = tuple[Any, ...]
_ALL = "SELECT count(*), count(DISTINCT id), sum(v), sum(id) FROM {}"


def seen(client: psycopg.Connection[Any], table: str = "public.events") -> Rows:
    row = client.execute(sql.SQL(_ALL).format(sql.SQL(table))).fetchone()
    assert row is not None
    return tuple(row)


def sessions(world: World) -> Iterator[tuple[str, bool, Callable[[], Rows]]]:
    """Who holds no lock on the table and goes on later; whether he is to see what he saw."""
    for level in ("READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"):
        client = world.connect()
        client.execute(f"BEGIN ISOLATION LEVEL {level}; SAVEPOINT a")
        seen(client)
        client.execute("ROLLBACK TO a")  # the locks go, the gateway's snapshot stays
        yield f"{level}, has read", level != "READ COMMITTED", lambda client=client: seen(client)  # type: ignore[misc]
    pinned = world.connect()
    pinned.execute("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT frostline.pin()")
    yield "pinned, has not read", True, lambda: seen(pinned)
    prepared = world.connect()
    prepared.execute(
        "SET plan_cache_mode = force_generic_plan; PREPARE q (timestamptz) AS "
        + _ALL.format("public.events")
        + " WHERE ts >= $1"
    )
    again = "EXECUTE q ('-infinity')"
    prepared.execute(again)
    yield "a generic plan", False, lambda: prepared.execute(again).fetchall()[0]
    holding = world.connect()
    holding.execute("BEGIN; DECLARE h CURSOR WITH HOLD FOR SELECT id, v FROM public.events ORDER BY ts DESC")
    fetched = holding.execute("FETCH 700 FROM h").fetchall()
    holding.execute("COMMIT")

    def rest() -> Rows:
        rows = fetched + holding.execute("FETCH ALL FROM h").fetchall()
        return len(rows), len({id_ for id_, _ in rows}), sum(v for _, v in rows), sum(id_ for id_, _ in rows)

    yield "a cursor WITH HOLD", True, rest


def meanwhile(world: World, act: Callable[[], object], twin: str = "") -> None:
    before = seen(world.connect(), "public.plain")
    going = list(sessions(world))
    act()
    if twin:
        world.run(twin)
    now = seen(world.connect(), "public.plain")
    assert seen(world.connect()) == now
    for who, keeps, look in going:
        assert look() == (before if keeps else now), who
    for client in world.connections:
        client.close()


def retain(world: World) -> None:
    world.run("UPDATE frostline.tables SET retention = (now()::date - date '2020-02-03') || ' days'")
    [outcome] = cycle.retains(world.settings, ["public.events"], Silent(), world.spark_here)
    assert outcome.state == "removed"


@pytest.mark.parametrize("any_world", ["18", "15"], indirect=True)
def test_sessions_go_on_with_what_they_saw(any_world: World) -> None:
    world = any_world
    world.run(PLAIN)
    world.register("public.events")
    world.archive("public.events")
    both(world, "UPDATE {t} SET v = v + 1 WHERE id IN (5, 800); DELETE FROM {t} WHERE id IN (6, 801)")
    meanwhile(world, lambda: back(world, "events_02", patience(world, 0.3)))
    meanwhile(world, lambda: retain(world), "DELETE FROM public.plain WHERE ts < '2020-02-01'")
    world.archive("public.events")
    meanwhile(world, lambda: leaves(world))
    unregister(world.settings, "public.events", Silent(), keep_lake=False)
    assert seen(world.connect()) == seen(world.connect(), "public.plain")
    assert world.run("SELECT proname FROM pg_proc WHERE pronamespace = 'frostline_delta'::regnamespace") == []


def leaves(world: World) -> None:
    """All of it comes back; the last step waits for those that have read the delta, and names the gateway's session."""
    with pytest.raises(Interrupted, match=r"^restoring public\.events did not get") as error:
        unregister(patience(world, 0.3), "public.events", Silent(), keep_lake=False)
    assert "AccessShareLock on frostline_delta.events_1" in (error.value.detail or "")
