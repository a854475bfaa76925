"""A lake on S3 behind the JDBC catalog: where things go, what is kept secret, and what fails how."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest
from pydantic import SecretStr

from fix_lake import ACCESS_KEY, PATIENCE, Lake, fail, impatient
from fix_tiering import World
from frostline.catalog import registry
from frostline.catalog.database import connect
from frostline.config import Settings
from frostline.errors import LakeError, OperationError
from frostline.lake import files
from frostline.lake.cache import ByteCache
from frostline.pipeline import export
from frostline.tiering import clean
from frostline.tiering.archive import swap

SHAPE = """
CREATE TABLE public.events (id bigint, ts timestamptz NOT NULL, v int NOT NULL, PRIMARY KEY (id, ts))
    PARTITION BY RANGE (ts);
CREATE TABLE public.events_01 PARTITION OF public.events FOR VALUES FROM ('2020-01-01') TO ('2020-02-01');
CREATE TABLE public.events_02 PARTITION OF public.events FOR VALUES FROM ('2020-02-01') TO ('2020-03-01');
CREATE TABLE public.events_now PARTITION OF public.events FOR VALUES FROM ('2020-03-01') TO (MAXVALUE);
INSERT INTO public.events
SELECT i, timestamptz '2020-01-01' + i * interval '1 hour', i % 10 FROM generate_series(1, 2000) i;
CREATE TABLE public.plain AS TABLE public.events;
"""


def registered(world: World) -> None:
    world.run(SHAPE)
    world.register("public.events")


def everything(world: World) -> list[tuple[Any, ...]]:
    return world.run("SELECT * FROM public.events ORDER BY id")


def untouched(world: World) -> None:
    """No row, no partition and no trigger is other than before."""
    assert everything(world) == world.run("SELECT * FROM public.plain ORDER BY id")
    leaves = world.run("SELECT relid::regclass::text FROM pg_partition_tree('public.events') WHERE isleaf ORDER BY 1")
    assert [name for (name,) in leaves] == ["events_01", "events_02", "events_before", "events_now"]
    assert world.run("SELECT tgname FROM pg_trigger WHERE tgrelid = 'public.events_01'::regclass") == []


def quickly(act: Callable[[], object], kind: type[Exception]) -> Any:
    """The error, which came before anybody's patience ended."""
    start = time.monotonic()
    with pytest.raises(kind) as caught:
        act()
    assert time.monotonic() - start < PATIENCE
    return caught.value


def test_rows_go_to_the_bucket_come_back_equal_and_keys_stay_secret(
    s3_lake: Lake, settings: Settings, capsys: pytest.CaptureFixture[str]
) -> None:
    world, secret = s3_lake.world, s3_lake.s3.secret
    registered(world)
    assert [one.rows for one in world.archive("public.events")] == [743, 696]
    assert everything(world) == world.run("SELECT * FROM public.plain ORDER BY id")
    names = s3_lake.s3.files(s3_lake.bucket)
    assert all(name.startswith("some/prefix/public/events-") for name in names), names
    assert sum(name.endswith(".parquet") for name in names) == 2  # and the probe has left nothing
    for said in (_database(world), _spark(world, capsys)):
        assert s3_lake.bucket in said or "s3.endpoint" in said  # it does speak of the lake
        assert secret not in said
        assert ACCESS_KEY not in said
    for log in (settings.local.dir / "logs").iterdir():  # Spark's, and the gateway's of the stack
        assert secret not in log.read_text(errors="replace"), log
    _many_rows(world)
    assert sum(name.endswith(".parquet") for name in s3_lake.s3.files(s3_lake.bucket)) == 3


def _many_rows(world: World) -> None:
    """They go there too, and those that are taken back leave nothing."""
    world.run("UPDATE frostline.tables SET bulk_rows = 50")
    many = "INSERT INTO public.{} SELECT -x, '2020-01-20', x FROM generate_series(1, 100) x"
    client = world.connect(autocommit=False)
    client.execute(many.format("events"))
    client.rollback()
    for table in ("events", "plain"):
        world.run(many.format(table))
    assert world.run("SELECT rows FROM frostline.staged_files") == [(100,)]
    assert everything(world) == world.run("SELECT * FROM public.plain ORDER BY id")


def _database(world: World) -> str:
    """All that Postgres keeps of us."""
    tables = world.run("SELECT format('%I.%I', schemaname, tablename) FROM pg_tables WHERE schemaname ~ '^frostline'")
    rows = [world.run(f"SELECT t::text FROM {name} t") for (name,) in tables]
    servers = world.run(
        "SELECT srvoptions::text, umoptions::text FROM pg_user_mappings JOIN pg_foreign_server USING (srvname)"
    )
    foreign = world.run("SELECT ftoptions::text FROM pg_foreign_table")
    return str([rows, servers, foreign])


def _spark(world: World, capsys: pytest.CaptureFixture[str]) -> str:
    """Spark's settings as it prints them, to a person and to its event log."""
    with world.spark_here() as session:
        session.sql("SET").show(1000, truncate=False)
    return capsys.readouterr().out


def test_a_run_that_died_after_its_commit_is_undone_by_the_next(s3_lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    died_and_repeated(s3_lake.world, monkeypatch)


def died_and_repeated(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """One period is archived; the run for the next dies between its commit in the lake and the swap, twice."""
    registered(world)
    real, seen = swap.swap, []

    def dies(*arguments: Any) -> None:
        seen.append(arguments)
        if len(seen) in (2, 3):
            raise KeyboardInterrupt
        real(*arguments)

    with monkeypatch.context() as patch:
        patch.setattr(swap, "swap", dies)
        for _ in range(2):
            with pytest.raises(KeyboardInterrupt):
                world.archive("public.events")
    assert everything(world) == world.run("SELECT * FROM public.plain ORDER BY id")
    assert [one.rows for one in world.archive("public.events")] == [696]
    assert everything(world) == world.run("SELECT * FROM public.plain ORDER BY id")
    # What the dead runs left is removed at once, and nothing that a reader who knows nothing yet may ask for.
    with connect(world.dsn) as connection:
        clean.in_lake(connection, world.settings, registry.get(connection, "public.events"), older_than=0)
    for name in ("_snapshots", "_manifests"):
        monkeypatch.setattr(files, name, ByteCache(files.CAPACITY))
    world.restart_gateway()
    assert everything(world) == world.run("SELECT * FROM public.plain ORDER BY id")


def wrong(world: World, **changes: object) -> World:
    """The same world with other S3 settings."""
    s3 = world.settings.s3.model_copy(update=changes)
    return World(world.settings.model_copy(update={"s3": s3}), world.spark, world.gateway)


def test_wrong_keys_are_found_before_anything_changes(s3_lake: Lake) -> None:
    world = s3_lake.world
    registered(world)
    other = wrong(world, secret_key=SecretStr("not-the-secret"))
    error = quickly(lambda: other.archive("public.events"), LakeError)
    assert error.message.endswith("cannot be used: writing to it failed; nothing was changed")
    assert error.detail.startswith("the store refuses these keys (")
    assert "s3.secret_key" in error.hint
    assert "not-the-secret" not in str(error)
    assert world.run("SELECT count(*) FROM frostline.operations") == [(0,)]
    untouched(world)


def test_a_missing_bucket_is_found_before_anything_changes(s3_lake: Lake) -> None:
    world = s3_lake.world
    registered(world)
    (s3_lake.s3.directory / s3_lake.bucket).rmdir()
    error = quickly(lambda: world.archive("public.events"), LakeError)
    assert error.detail.startswith("there is no such bucket (")
    assert error.hint == "create it, or correct lake.warehouse"
    untouched(world)


@pytest.mark.parametrize("how", ["silent", "shut"])
def test_a_store_that_fails_under_an_archive_run_leaves_everything_as_it_was(
    s3_lake: Lake, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    world, door = s3_lake.world, s3_lake.door
    registered(world)
    real = export._run

    def late(*arguments: Any) -> Any:
        """The table is there; the rows are about to be written."""
        fail(door, how)
        return real(*arguments)

    other = World(impatient(world.settings), world.spark, world.gateway)
    with monkeypatch.context() as patch:
        patch.setattr(export, "_run", late)
        error = quickly(lambda: other.archive("public.events"), OperationError)
    assert error.message == "exporting public.events_01 to the lake failed; the table is as it was"
    meaning = "does not answer in time" if how == "silent" else "cannot be reached"
    assert error.detail.startswith(f"the store {meaning} (")
    assert world.run("SELECT state FROM frostline.operations") == [("failed",)]
    untouched(world)
    door.open()
    assert [one.rows for one in world.archive("public.events")] == [743, 696]
    assert everything(world) == world.run("SELECT * FROM public.plain ORDER BY id")
