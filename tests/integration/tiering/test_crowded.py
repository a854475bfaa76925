"""Postgres has no connection left: hot rows know nothing of it, the rest says so, and goes on once there are some."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest

from fix_faults import at
from fix_tiering import World
from frostline.catalog.database import connect, out_of_reach
from frostline.errors import DatabaseError
from integration.tiering.test_untier import PLAIN, both, rows
from integration.tiering.test_worker import wait_for

COLD = "SELECT count(*) FROM public.events WHERE ts < '2020-02-01'"
HOT = "SELECT count(*) FROM public.events WHERE ts >= '2020-03-15'"


@contextmanager
def crowded(world: World) -> Iterator[psycopg.Connection[Any]]:
    """Every connection is taken; gives one of them."""
    with ExitStack() as stack:
        taken: list[psycopg.Connection[Any]] = []

        def fill() -> None:
            while True:
                taken.append(stack.enter_context(psycopg.connect(world.dsn, autocommit=True)))

        with pytest.raises(psycopg.OperationalError, match="too many clients already"):
            fill()
        yield taken[0]


def test_a_copy_that_nobody_could_look_at_is_not_called_damaged() -> None:
    assert out_of_reach(psycopg.errors.TooManyConnections())
    assert out_of_reach(psycopg.errors.AdminShutdown())
    assert not out_of_reach(psycopg.errors.IoError())
    assert out_of_reach(psycopg.errors.IoError(), "58")
    assert not out_of_reach(psycopg.errors.DataCorrupted())


def test_hot_rows_are_unaffected_and_all_else_goes_on_later(world: World, tmp_path: Path) -> None:
    world.run(PLAIN)
    world.register("public.events")
    with ExitStack() as stack, at(tmp_path, lambda now: _crowd(world, stack, now == "verify.begun")) as seen:
        with pytest.raises(DatabaseError, match="Postgres has no connection left") as error:
            world.archive("public.events")
        assert error.value.sqlstate == "53300"
        assert "export.ended" in seen
    world.archive("public.events")
    both(world, "UPDATE {t} SET v = v + 1 WHERE id = 5")
    reading, new = world.connect(), world.connect()
    assert reading.execute(COLD).fetchone() == (744,)
    with crowded(world) as taken:
        assert reading.execute(COLD).fetchone() == (744,)
        _only_hot(new)
        with pytest.raises(DatabaseError, match="Postgres has no connection left"):
            connect(world.dsn)
        # And what the gateway has goes, to somebody else.
        gateway = (
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name LIKE 'frostline gateway%'"
        )
        assert taken.execute(f"{gateway} AND datname = current_database()").fetchall()
        with crowded(world):
            _only_hot(reading)
    wait_for(lambda: world.run("SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()") < [(20,)])
    for client in (reading, new):
        assert client.execute(COLD).fetchone() == (744,)
    both(world, "UPDATE {t} SET v = v + 1 WHERE id = 6")
    assert rows(world, "public.events") == rows(world, "public.plain")


def _only_hot(client: psycopg.Connection[Any]) -> None:
    assert client.execute(HOT).fetchone() == (225,)
    assert client.execute("UPDATE public.events SET v = v WHERE id = 1900 AND ts >= '2020-03-15'").rowcount == 1
    for statement in (COLD, "UPDATE public.events SET v = v + 1 WHERE id = 7"):
        with pytest.raises(psycopg.errors.TooManyConnections, match="Postgres has no connection left"):
            client.execute(statement)


def _crowd(world: World, stack: ExitStack, now: bool) -> bool:
    if now:
        stack.enter_context(crowded(world))
    return True
