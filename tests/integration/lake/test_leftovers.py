"""What nothing refers to is removed, and never a file that somebody reads: whatever it is called, whoever wrote it."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from fix_lake import Lake, impatient
from fix_tiering import World, new_world
from frostline.catalog import registry
from frostline.catalog.database import connect
from frostline.errors import LakeError
from frostline.lake import catalog as lake_catalog
from frostline.report import Silent
from frostline.tiering import clean
from frostline.tiering.clean import Found
from frostline.tiering.verify import Finding, verify

SHAPE = """
CREATE TABLE public.events (id bigint, ts timestamptz NOT NULL, v int NOT NULL, PRIMARY KEY (id, ts))
    PARTITION BY RANGE (ts);
CREATE TABLE public.events_01 PARTITION OF public.events FOR VALUES FROM ('2020-01-01') TO ('2020-02-01');
CREATE TABLE public.events_now PARTITION OF public.events FOR VALUES FROM ('2020-02-01') TO (MAXVALUE);
INSERT INTO public.events
SELECT i, timestamptz '2020-01-01' + i * interval '1 hour', i % 10 FROM generate_series(1, 1000) i;
CREATE TABLE public.plain AS TABLE public.events;
"""


def archived(world: World) -> None:
    world.run(SHAPE)
    world.register("public.events")
    assert [one.rows for one in world.archive("public.events")] == [743]


def cleaned(world: World, older_than: float = 0) -> list[Found]:
    """All that nothing refers to is removed; then nobody remembers a file."""
    with connect(world.dsn) as connection:
        managed = registry.get(connection, "public.events")
        found = clean.clean(connection, world.settings, managed, older_than, Silent())
    world.restart_gateway()
    return found


def rows(world: World, table: str) -> list[tuple[Any, ...]]:
    return world.run(f"SELECT * FROM public.{table} ORDER BY id")


@pytest.mark.parametrize("name", ["a:b", "file:", "with space", "100%25"])
def test_a_warehouse_may_have_any_name(dsn: str, spark: SparkSession, tmp_path: Path, name: str) -> None:
    with new_world(dsn, spark, tmp_path, {"lake.warehouse": str(tmp_path / name / "lake")}) as world:
        archived(world)
        assert cleaned(world) == []
        assert rows(world, "events") == rows(world, "plain")


def test_two_databases_share_a_warehouse(dsn: str, spark: SparkSession, tmp_path: Path) -> None:
    with new_world(dsn, spark, tmp_path) as one, new_world(dsn, spark, tmp_path) as other:
        assert one.settings.warehouse == other.settings.warehouse
        for world in (one, other):
            archived(world)
        for world in (one, other):
            assert cleaned(world) == []
        for world in (one, other):
            assert rows(world, "events") == rows(world, "plain")


def test_a_catalog_shared_with_another_database_tells_the_tables_apart(
    dsn: str, rest_lake: Lake, tmp_path: Path
) -> None:
    """Both call it public.events and its first operation 1: neither takes the other's for its own."""
    one = rest_lake.world
    archived(one)
    places = {
        "lake.catalog": "rest",
        "lake.warehouse": one.settings.warehouse,
        "rest.uri": one.settings.rest.uri,
        "s3.endpoint": one.settings.s3.endpoint,
        "s3.access_key": one.settings.s3.access_key.get_secret_value(),
        "s3.secret_key": one.settings.s3.secret_key.get_secret_value(),
    }
    with new_world(dsn, one.spark, tmp_path / "other", places) as other:
        other.run(SHAPE)
        other.register("public.events")
        for act in (lambda: other.archive("public.events"), lambda: cleaned(other)):
            with pytest.raises(LakeError, match=r"a table public\.events already that public\.events did not write"):
                act()
        assert rows(other, "events") == rows(other, "plain")
    one.restart_gateway()
    assert rows(one, "events") == rows(one, "plain")


def test_a_file_is_as_old_as_the_store_says(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ours may be days ahead of the clock by which the file of a writer that is still at work was dated."""
    archived(world)
    young = world.directory("events") / "data" / "young.parquet"
    young.write_bytes(b"PAR1")
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now + 86_400)
    [found] = cleaned(world, older_than=3600)
    assert (found.name, found.kept) == ("data/young.parquet", True)
    assert young.exists()


def test_what_other_engines_keep_with_a_table_is_referred_to(world: World) -> None:
    """Spark's statistics of columns and of partitions, and the checksums it leaves beside its files."""
    archived(world)
    with world.spark_here() as session:
        for procedure in ("compute_table_stats", "compute_partition_stats"):
            session.sql(f"CALL {world.settings.lake.name}.system.{procedure}(table => 'public.events')")
    before = sorted(path.name for path in world.directory("events").rglob("*") if path.is_file())
    kinds = ["stats" in name for name in before if not name.endswith(".crc")]
    assert kinds.count(True) == 2, before
    cleaned(world)
    assert sorted(path.name for path in world.directory("events").rglob("*") if path.is_file()) == before


def test_on_s3_what_is_left_goes_and_what_is_used_stays_and_is_verified(s3_lake: Lake) -> None:
    world = s3_lake.world
    archived(world)
    [file] = [name for name in s3_lake.s3.files(s3_lake.bucket) if name.endswith(".parquet")]
    used = s3_lake.s3.directory / s3_lake.bucket / file
    young, old = used.with_name("young.parquet"), used.with_name("old.parquet")
    for path in (young, old):
        path.write_bytes(b"PAR1")
    os.utime(old, (time.time() - 7200,) * 2)
    assert {found.name.rpartition("/")[2]: found.kept for found in cleaned(world, 3600)} == {
        "young.parquet": True,
        "old.parquet": False,
    }
    assert (old.exists(), young.exists(), used.exists()) == (False, True, True)
    assert cleaned(world)[0].name.endswith("young.parquet")
    assert rows(world, "events") == rows(world, "plain")
    assert [(one.state, one.rows) for one in verified(world)] == [("good", 0), ("good", 743)]
    # A store that cannot be asked has damaged nothing.
    s3_lake.door.shut()
    away = World(impatient(world.settings), world.spark, world.gateway)
    assert [one.state for one in verified(away)] == ["unknown", "unknown"]
    assert world.run("SELECT alarm FROM frostline.periods WHERE alarm IS NOT NULL") == []
    s3_lake.door.open()
    used.unlink()
    [_, damaged] = verified(world)
    assert damaged.state == "damaged"
    assert file in damaged.problems[0]
    assert "is missing" in damaged.problems[0]
    assert world.run("SELECT count(*) FROM frostline.periods WHERE alarm IS NOT NULL") == [(1,)]


def verified(world: World) -> list[Finding]:
    return verify(world.settings, "public.events", None, Silent())


def test_a_first_run_that_failed_before_there_was_a_table_is_followed_by_one_that_does_not(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """When what it left is looked for, there is nothing yet to look in."""
    world.run(SHAPE)
    world.register("public.events")
    own = world.settings.archive.model_copy(update={"orphan_age": 0.0})
    world.settings = world.settings.model_copy(update={"archive": own})

    def full(*_: object, **__: object) -> None:
        raise LakeError("the disk is full")

    with monkeypatch.context() as patch:
        patch.setattr(lake_catalog, "_create", full)
        with pytest.raises(LakeError, match="the disk is full"):
            world.archive("public.events")
    assert cleaned(world) == []
    with monkeypatch.context() as patch:
        patch.setattr(lake_catalog, "_create", full)
        with pytest.raises(LakeError, match="the disk is full"):
            world.archive("public.events")
    assert [one.rows for one in world.archive("public.events")] == [743]
    assert rows(world, "events") == rows(world, "plain")
