"""A registry that is of another version is not worked on, and bringing it up to date keeps nobody from his rows."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import psycopg
import pytest

from fix_tiering import World
from frostline.catalog import cold, install
from frostline.errors import DatabaseError
from frostline.gateway.server import Gateway
from frostline.report import Silent
from frostline.tiering.archive.run import Warm
from frostline.tiering.fold.run import fold
from frostline.tiering.unregister import unregister
from frostline.tiering.worker.run import run as work
from integration.tiering.test_hostile import SIMPLE

COLD_ROWS = "SELECT count(*) FROM public.events WHERE ts < '2020-02-01'"


@pytest.fixture
def tiered(world: World) -> World:
    world.run(SIMPLE)
    world.register("public.events")
    world.archive("public.events")
    return world


def works(world: World) -> tuple[Callable[[], object], ...]:
    """Whatever changes the lake or the registry."""

    def folded() -> None:
        with Warm(world.spark_here) as warm:
            fold(world.settings, "public.events", Silent(), warm)

    return (
        folded,
        lambda: world.clean("public.events"),
        lambda: world.archive("public.events"),
        lambda: unregister(world.settings, "public.events", Silent(), keep_lake=False),
        lambda: work(world.settings, Silent(), world.spark_here, once=True),
    )


def test_what_is_newer_than_this_version_is_not_worked_on_by_it(tiered: World) -> None:
    """A worker that was forgotten would take files that it does not know of for leftovers. Readers go on."""
    world = tiered
    world.run("UPDATE public.events SET v = -1 WHERE id = 3")
    world.run("INSERT INTO frostline.migrations VALUES (999, 'from the future')")
    for one in (*works(world), Gateway(world.settings).start):
        with pytest.raises(DatabaseError, match="newer than this Frostline knows"):
            one()
    assert world.run("SELECT v FROM public.events WHERE id = 3") == [(-1,)]
    assert world.run("SELECT count(*) FROM frostline.operations WHERE kind <> 'archive'") == [(0,)]


def test_on_a_registry_that_is_older_nothing_of_ours_starts(tiered: World) -> None:
    world = tiered
    newest = "DELETE FROM frostline.migrations WHERE number = (SELECT max(number) FROM frostline.migrations)"
    world.run(newest)
    for one in (*works(world), Gateway(world.settings).start):
        with pytest.raises(DatabaseError, match="is older than this Frostline; nothing was changed") as error:
            one()
        assert "frostline init" in (error.value.hint or "")


def test_a_gateway_does_not_read_what_is_kept_in_a_way_that_it_does_not_know(tiered: World) -> None:
    """In a session that has read the table before, too."""
    world = tiered
    with psycopg.connect(world.dsn, autocommit=True) as client:
        assert client.execute(COLD_ROWS).fetchone() == (743,)
        client.execute("UPDATE frostline.tables SET readers = %s", [cold.READS + 1])
        for statement in (COLD_ROWS, "UPDATE public.events SET v = 0 WHERE id = 3"):
            with pytest.raises(psycopg.errors.FeatureNotSupported, match="in a way that only a newer gateway knows"):
                client.execute(statement)
        assert client.execute("SELECT count(*) FROM public.events WHERE ts >= '2020-02-01'").fetchone() == (257,)


def test_a_reader_that_stays_holds_up_the_upgrade_and_nobody_else(
    tiered: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = tiered
    known = list(install.migrations())
    change = (999, "999_more.sql", "ALTER TABLE frostline.tables ADD COLUMN more int")
    monkeypatch.setattr(install, "migrations", lambda: iter([*known, change]))
    reader, done = world.connect(autocommit=False), list[list[str]]()
    reader.execute(COLD_ROWS)
    upgrade = threading.Thread(target=lambda: done.append(install.install(world.dsn)))
    upgrade.start()
    try:
        end = time.monotonic() + 3
        while time.monotonic() < end:  # both would be errors after ten seconds
            assert world.run(COLD_ROWS) == [(743,)]
            world.run("UPDATE public.events SET v = v + 1 WHERE id = 7")
        assert done == []
        monkeypatch.setattr(install, "PATIENCE_SECONDS", 0.0)
        with pytest.raises(DatabaseError, match="the registry did not get its locks within") as error:
            install.install(world.dsn)
        assert "held by pid" in (error.value.detail or "")
    finally:
        monkeypatch.setattr(install, "PATIENCE_SECONDS", 300.0)
        reader.rollback()
        upgrade.join()
    assert done == [["migration 999_more.sql"]]
