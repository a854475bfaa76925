"""A REST catalog: it chooses where tables are, it may forget their history, and it may be away."""

from __future__ import annotations

import pytest

from fix_lake import Lake, fail, impatient
from fix_tiering import World
from frostline.errors import LakeError
from integration.lake.test_s3 import died_and_repeated, quickly, registered, untouched


def test_a_table_that_would_lie_elsewhere_than_the_gateway_reads_is_not_made(rest_lake: Lake) -> None:
    world = rest_lake.world
    registered(world)
    place = world.settings.lake.model_copy(update={"warehouse": f"s3://{rest_lake.bucket}/elsewhere"})
    other = World(world.settings.model_copy(update={"lake": place}), world.spark, world.gateway)
    with pytest.raises(LakeError, match="nothing was changed") as caught:
        other.archive("public.events")
    assert f"s3://{rest_lake.bucket}/rest/public/events_" in caught.value.message
    assert "lake.warehouse" in str(caught.value.hint)
    untouched(world)


@pytest.mark.parametrize("how", ["silent", "shut"])
def test_a_catalog_that_is_away_stops_an_archive_run_before_anything_changes(rest_lake: Lake, how: str) -> None:
    world = rest_lake.world
    registered(world)
    fail(rest_lake.door, how)
    other = World(impatient(world.settings), world.spark, world.gateway)
    error = quickly(lambda: other.archive("public.events"), LakeError)
    away = "does not answer in time" if how == "silent" else "cannot be reached"
    assert error.message == f"the Iceberg catalog at {world.settings.rest.uri} {away}; the tables are as they were"
    assert error.sqlstate == "08006"
    assert "rest." in error.hint
    assert world.run("SELECT count(*) FROM frostline.operations") == [(0,)]
    untouched(world)


def test_a_run_that_died_is_undone_though_the_catalog_has_forgotten_what_it_stood_on(
    rest_lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    died_and_repeated(rest_lake.world, monkeypatch)
