"""Words in the lake: a copy of the disk is known by them, and the original never takes itself for one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import psycopg
import pytest

from fix_commands import Lines
from fix_lake import Lake
from fix_tiering import World
from frostline.catalog import identity, registry
from frostline.catalog.database import connect
from frostline.catalog.names import SERVER_NAME
from frostline.catalog.registry import Managed
from frostline.config import Settings
from frostline.errors import FrostlineError, LakeError, RefusedError
from frostline.lake import catalog as lake
from frostline.report import Silent
from frostline.tiering import adopt, shape
from frostline.tiering.locks import only_writer
from frostline.tiering.unregister import unregister
from integration.tiering.test_restore import PLAIN, as_it_was, both, folded, same

ANOTHER = "another database has changed the lake of public.events"
CHANGE = "UPDATE {t} SET v = v + 1 WHERE id IN (1, 2, 3)"


@contextmanager
def disk(world: World, name: str) -> Iterator[World]:
    """As a snapshot of the disk: nothing in Postgres tells it from the original."""
    with as_it_was(world, name) as copy:
        with connect(copy.dsn) as connection:
            identity.become(connection)
            assert identity.known(connection) == identity.here(connection)
        yield copy


def registered(world: World, *more: str) -> None:
    world.run(PLAIN)
    for statement in more:
        both(world, statement)
    world.register("public.events", "100 years")


def folded_once(world: World) -> None:
    both(world, CHANGE)
    folded(world)


def archived(world: World) -> None:
    registered(world)
    world.archive("public.events", "2020-02-01")
    folded_once(world)


def synced(world: World) -> None:
    with connect(world.dsn) as connection:
        managed = registry.get(connection, "public.events")
        with only_writer(connection, managed) as managed:
            shape.followed(connection, world.settings, managed)


WORK: dict[str, Callable[[World], object]] = {
    "archive": lambda world: world.archive("public.events", "2020-03-01"),
    "sync": synced,
    "unregister": lambda world: unregister(world.settings, "public.events", Silent(), keep_lake=False),
}


def test_words_of_before_are_known_still(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that a power cut brought back, and one of a run that had lost its session and did not know."""
    archived(world)
    place = world.directory("events") / "metadata" / "frostline-turn"
    before = place.read_bytes()
    folded_once(world)
    assert place.read_bytes() != before
    place.write_bytes(before)
    folded_once(world)

    late: list[str] = []
    ended = "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity WHERE application_name = 'frostline fold'"
    leave = lake.leave_word

    def lost(settings: Settings, managed: Managed, word: str) -> bool:
        if not late:
            late.append(word)
            world.run(ended)
            folded(world)  # the next one, in the meantime
        return leave(settings, managed, word)

    both(world, CHANGE)
    with monkeypatch.context() as patch:
        patch.setattr(lake, "leave_word", lost)
        with pytest.raises((FrostlineError, psycopg.Error), match="connection"):
            folded(world)
    folded_once(world)
    same(world)


@pytest.mark.parametrize("what", ["archive", "unregister"])
def test_a_copy_from_before_anything_was_archived(world: World, what: str) -> None:
    """Its catalog knows no table; the files of the original's are where its own would be."""
    registered(world)
    with disk(world, f"disk_{what}") as copy:
        world.archive("public.events", "2020-02-01")
        both(world, CHANGE)
        copy.gateway.start()
        with pytest.raises(RefusedError, match=ANOTHER):
            WORK[what](copy)
        world.restart_gateway()
        same(world)
        folded_once(world)
        same(world)


def test_rows_that_the_gateway_has_written_to_files_are_known_to_be_anothers(world: World) -> None:
    """No operation of the worker has told that the original goes on."""
    registered(world)
    world.run("UPDATE frostline.tables SET bulk_rows = 10")
    world.archive("public.events", "2020-02-01")
    with disk(world, "disk_staged") as copy:
        both(world, "INSERT INTO {t} (id, ts, v) SELECT x, '2020-01-02Z', x FROM generate_series(60001, 60100) x")
        assert world.run("SELECT count(*) > 0 FROM frostline.staged_files") == [(True,)]
        with pytest.raises(RefusedError, match=ANOTHER):
            copy.clean("public.events")
        copy.gateway.start()  # what it is given itself goes into its delta
        both(copy, "INSERT INTO {t} (id, ts, v) SELECT x, '2020-01-02Z', x FROM generate_series(70001, 70100) x")
        assert copy.run("SELECT count(*) FROM frostline.staged_files") == [(0,)]
        same(copy)
        world.restart_gateway()
        folded(world)
        same(world)


def test_a_successor_from_before_anything_was_archived(world: World) -> None:
    registered(world)
    with as_it_was(world, "before_the_first") as restored:
        world.archive("public.events", "2020-02-01")
        folded_once(world)
        world.gateway.stop(grace=0)
        adopt.successor(restored.settings, Silent())
        restored.gateway.start()
        restored.archive("public.events", "2020-02-01")
        folded_once(restored)
        restored.clean("public.events")
        same(restored)
    world.restart_gateway()


@pytest.mark.parametrize("what", ["sync", "archive"])
def test_columns_in_a_catalog_elsewhere_stay_what_they_are_to_the_original(rest_lake: Lake, what: str) -> None:
    world = rest_lake.world
    registered(world, "ALTER TABLE {t} ADD COLUMN extra int DEFAULT 3")
    world.archive("public.events", "2020-02-01")
    both(world, "UPDATE {t} SET extra = id WHERE id IN (1, 2, 3)")
    folded(world)
    with disk(world, f"disk_rest_{what}") as copy:
        both(world, "UPDATE {t} SET extra = id WHERE id IN (4, 5)")
        folded(world)
        copy.gateway.start()
        copy.run("ALTER TABLE public.events DROP COLUMN extra")
        with pytest.raises(RefusedError, match=ANOTHER):
            WORK[what](copy)
        world.restart_gateway()
        folded_once(world)
        same(world)


def test_a_catalog_elsewhere_and_a_successor_from_before_anything_was_archived(rest_lake: Lake) -> None:
    world = rest_lake.world
    registered(world)
    with as_it_was(world, "before_rest") as restored:
        world.archive("public.events", "2020-02-01")
        adopt.successor(restored.settings, Silent())
        restored.gateway.start()
        with pytest.raises(LakeError, match="did not write"):  # with the way out: rename or remove it
            restored.archive("public.events", "2020-02-01")
        same(restored)


def test_a_table_that_was_kept_in_the_lake_is_registered_again(world: World) -> None:
    archived(world)
    unregister(world.settings, "public.events", Silent(), keep_lake=True)
    world.run("DELETE FROM frostline_lake.iceberg_tables")  # dropped there, but for its files
    world.register("public.events", "100 years")
    world.archive("public.events", "2020-02-01")
    folded_once(world)
    same(world)


def test_a_table_that_was_kept_in_a_catalog_elsewhere_is_registered_again(rest_lake: Lake) -> None:
    world = rest_lake.world
    archived(world)
    unregister(world.settings, "public.events", Silent(), keep_lake=True)
    world.register("public.events", "100 years")
    with pytest.raises(LakeError, match="did not write"):
        world.archive("public.events", "2020-02-01")


def test_an_original_whose_place_was_taken_becomes_a_copy(world: World) -> None:
    archived(world)
    with as_it_was(world, "successor") as one:
        adopt.successor(one.settings, Silent())
        adopt.copy(world.settings)
        world.restart_gateway()
        same(world)


def test_one_that_was_called_a_copy_by_mistake_is_told_whose_tables_it_has_and_takes_that_name_back(
    world: World,
) -> None:
    archived(world)
    ((name,),) = world.run("SELECT id::text FROM frostline.installation")
    with as_it_was(world, "mistaken") as one:
        adopt.copy(one.settings)
        told = Lines()
        assert adopt.successor(one.settings, told) == []
        assert told.said == [f"public.events belongs to installation {name}, and this is a copy that only reads it"]
        # As docs/backup.md has it.
        one.run(f"UPDATE frostline.installation SET id = '{name}'")
        one.run(f"ALTER SERVER \"{SERVER_NAME}\" OPTIONS (SET dbname '{name}')")
        assert [found.table for found in adopt.successor(one.settings, Silent())] == ["public.events"]
        one.gateway.start()
        folded_once(one)
        same(one)


def test_restored_to_before_it_was_registered(world: World) -> None:
    """What the lost future has left is in the place of what comes, and asks for another word."""
    world.run(PLAIN)
    with as_it_was(world, "unregistered") as restored:
        world.register("public.events", "100 years")
        world.archive("public.events", "2020-02-01")
        world.gateway.stop(grace=0)
        adopt.successor(restored.settings, Silent())
        restored.gateway.start()
        restored.register("public.events", "100 years")
        with pytest.raises(RefusedError, match=ANOTHER):
            restored.archive("public.events", "2020-02-01")
        adopt.successor(restored.settings, Silent())
        restored.archive("public.events", "2020-02-01")
        folded_once(restored)
        restored.clean("public.events")
        same(restored)
    world.restart_gateway()
