"""The layout of a table in the lake, by option: other files, the same rows, whatever was chosen when.

Beside the tiered table there is a plain one that gets the same statements; both are asked the same questions.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import duckdb
import pytest
from psycopg.errors import CheckViolation
from pyspark.sql import SparkSession

from fix_tiering import World, new_world
from frostline.catalog.database import connect
from frostline.errors import ConfigError
from frostline.lake import catalog as lake
from frostline.lake import files
from frostline.lake.files import DataFile
from frostline.lake.storage import of
from frostline.report import Silent
from frostline.tiering import cycle, register, verify
from frostline.tiering.archive.run import Warm, periods
from frostline.tiering.fold.run import fold
from frostline.tiering.maintain import run as maintenance
from frostline.tiering.maintain.run import Maintained
from integration.tiering.test_fold import managed
from integration.tiering.test_maintain import choose

DAYS = ("01", "09", "17", "25")
MONTHS = [f"2020-{month:02}-01" for month in range(1, 8)]
QUESTIONS = (
    "SELECT count(*), min(ts), max(ts), sum(id) FROM {t}",
    "SELECT * FROM {t} WHERE id = 77",
    "SELECT * FROM {t} WHERE id IN (3, 900, 2400) ORDER BY id, ts",
    "SELECT * FROM {t} WHERE ts >= '2020-01-31 20:00Z' AND ts < '2020-02-01 04:00Z' ORDER BY id, ts",
    "SELECT id, ts FROM {t} WHERE ts >= '2020-02-05Z' AND ts < '2020-02-06Z' ORDER BY id, ts",
    "SELECT id FROM {t} WHERE note = 'late' ORDER BY 1",
    "SELECT ts::date, count(*), sum(id) FROM {t} GROUP BY 1 ORDER BY 1",
)


@pytest.fixture(scope="module")
def months(dsn: str, spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """Six months, four days of each with rows; nothing is cold yet."""
    limits = {"archive.orphan_age": "0", "maintenance.deleted_rows": "0.001"}
    with new_world(dsn, spark, tmp_path_factory.mktemp("layout"), limits) as world:
        world.run(
            "CREATE TABLE public.events (id bigint, ts timestamptz NOT NULL, device int, note text,"
            " PRIMARY KEY (id, ts)) PARTITION BY RANGE (ts)"
        )
        for number, (lower, upper) in enumerate(pairwise(MONTHS), 1):
            world.run(
                f"CREATE TABLE public.events_{number:02} PARTITION OF public.events"
                f" FOR VALUES FROM ('{lower}Z') TO ('{upper}Z')"
            )
        world.run(
            "INSERT INTO public.events SELECT i, (timestamp '2020-01-01' + i / 720 * interval '1 month'"
            " + i % 720 / 180 * interval '8 days' + i % 180 * interval '8 min') AT TIME ZONE 'UTC',"
            " CASE WHEN i % 11 > 0 THEN (i * 7) % 10 END, 'n' || i FROM generate_series(0, 4319) i;"
            "CREATE TABLE public.plain AS TABLE public.events"
        )
        world.register("public.events", "1000 years")
        yield world


def write(world: World, *statements: str) -> None:
    """The same to both tables."""
    for statement in statements:
        for table in ("events", "plain"):
            world.run(statement.format(t=f"public.{table}"))


def same(world: World) -> None:
    for table in ("events", "plain"):
        assert world.run(f"SELECT 1 FROM public.{table} LIMIT 1")
    for question in (*QUESTIONS, "SELECT r::text FROM {t} r ORDER BY 1"):
        assert world.run(question.format(t="public.events")) == world.run(question.format(t="public.plain")), question


def archived(world: World, before: str) -> None:
    with Warm(world.spark_here) as warm:
        assert list(periods(world.settings, "public.events", Silent(), warm, f"{before}Z"))


def folded(world: World) -> None:
    with Warm(world.spark_here) as warm:
        assert fold(world.settings, "public.events", Silent(), warm)


def maintained(world: World, *, everything: bool = False) -> Maintained:
    with Warm(world.spark_here) as warm:
        done = maintenance.maintain(world.settings, "public.events", Silent(), warm, everything=everything)
    assert done is not None
    return done


def good(world: World) -> None:
    assert {one.state for one in verify.verify(world.settings, "public.events", None, Silent())} == {"good"}


def data_files(world: World) -> dict[str, DataFile]:
    table = managed(world)
    assert table.metadata_location is not None
    assert table.snapshot_id is not None
    found = files.snapshot(of(world.settings), table.metadata_location, table.snapshot_id).files
    return {file.path.removeprefix("file://"): file for file in found}


def column(path: str, *names: str) -> list[Any]:
    with duckdb.connect() as engine:
        return engine.execute(f"SELECT {', '.join(names)} FROM read_parquet(?)", [path]).fetchall()


def in_order(path: str) -> bool:
    """By device, nulls first, then the newest."""
    found = column(path, "device", "epoch_us(ts)")
    return found == sorted(found, key=lambda row: (row[0] is not None, row[0] or 0, -row[1]))


def blooms(path: str) -> set[str]:
    with duckdb.connect() as engine:
        query = "SELECT path_in_schema FROM parquet_metadata(?) WHERE bloom_filter_offset IS NOT NULL"
        return {name for (name,) in engine.execute(query, [path]).fetchall()}


def under(path: str) -> str:
    """The directory of a file: its partition."""
    return path.split("/")[-2]


def test_new_files_follow_the_layout_and_old_ones_stay(months: World) -> None:
    world = months
    archived(world, MONTHS[1])
    [january] = data_files(world)
    assert under(january) == "period=2020-01"
    choose(world, "events", lake_partition="day", sort_order="device nulls first, ts DESC")
    same(world)
    archived(world, MONTHS[2])
    found = data_files(world)
    february = sorted(set(found) - {january})
    assert [under(path) for path in february] == [f"period_day=2020-02-{day}" for day in DAYS]
    assert all(in_order(path) for path in february)
    assert {name for path in february for name in blooms(path)} == {"id"}
    assert not in_order(january)
    same(world)
    good(world)


def test_a_merge_touches_only_files_that_hold_its_rows(months: World) -> None:
    world = months
    before = data_files(world)
    write(
        world,
        "UPDATE {t} SET note = 'late' WHERE id IN (750, 751)",  # 2020-02-01
        "DELETE FROM {t} WHERE id = 900",  # 2020-02-09
        "INSERT INTO {t} VALUES (9000, '2020-02-17 12:34Z', 3, 'late')",
    )
    folded(world)
    after = data_files(world)
    assert {under(path) for path in before.keys() - after.keys()} == {"period_day=2020-02-01", "period_day=2020-02-09"}
    new = after.keys() - before.keys()
    assert sorted(map(under, new)) == [f"period_day=2020-02-{day}" for day in ("01", "09", "17")]
    assert all(in_order(path) and blooms(path) == {"id"} for path in new)
    same(world)
    # A file of the old layout that is rewritten follows the new one.
    write(world, "UPDATE {t} SET note = 'late' WHERE id = 77")
    folded(world)
    found = data_files(world)
    assert {under(path) for path in after.keys() - found.keys()} == {"period=2020-01"}
    assert {under(path) for path in found.keys() - after.keys()} == {f"period_day=2020-01-{day}" for day in DAYS}
    same(world)
    good(world)


def test_files_of_several_layouts_have_their_deletes(months: World) -> None:
    """A month cut by days, one by months, one by days again: each with files of deletes."""
    world = months
    choose(world, "events", lake_partition="auto", merge_mode="merge-on-read")
    archived(world, MONTHS[3])
    found = data_files(world)
    assert {under(path)[:13] for path in found} == {"period_day=20", "period=2020-0"}
    assert len({file.partition[0] for file in found.values()}) == 2  # the first spec is found again
    write(
        world,
        "DELETE FROM {t} WHERE id IN (10, 800, 1500)",
        "UPDATE {t} SET note = 'late' WHERE id IN (11, 801, 1501)",
        "UPDATE {t} SET ts = ts + interval '1 month' WHERE id = 12",
    )
    same(world)
    folded(world)
    assert data_files(world).keys() > found.keys()
    same(world)
    # Days that lie in one month are counted together, and become files of the month.
    choose(world, "events", compact_files="4")
    done = maintained(world)
    assert done.before.delete_files > 0
    assert done.after.delete_files == 0
    assert {under(path) for path in data_files(world)} == {f"period=2020-0{n}" for n in (1, 2, 3)}
    assert all(in_order(path) for path in data_files(world))
    same(world)
    good(world)
    assert maintained(world).notes == ()


def test_a_sort_column_is_renamed_and_dropped(months: World) -> None:
    world = months
    write(world, 'ALTER TABLE {t} RENAME COLUMN device TO "Thing"')
    [(before,)] = world.run("SELECT sort_order FROM frostline.tables")
    choose(world, "events", sort_order='"Thing" nulls first, ts desc')  # what it is already
    assert world.run("SELECT sort_order FROM frostline.tables") == [(before,)]
    write(world, "UPDATE {t} SET note = 'late' WHERE id = 1600")
    folded(world)
    same(world)
    write(world, 'ALTER TABLE {t} DROP COLUMN "Thing"')
    archived(world, MONTHS[4])
    [april] = [path for path in data_files(world) if "2020-04" in path]
    ids = [id_ for (id_,) in column(april, "id")]
    assert ids == sorted(ids, reverse=True)  # by what is left of it: ts desc
    write(world, "UPDATE {t} SET note = 'late' WHERE id = 2400")
    folded(world)
    same(world)
    good(world)
    assert [len(lake.load(world.settings, managed(world)).sort_order().fields)] == [1]


def test_retention_removes_files_of_every_layout_and_rewrites_none(months: World) -> None:
    world = months
    choose(world, "events", lake_partition="day", merge_mode="default")
    archived(world, MONTHS[5])
    before = data_files(world)
    assert {under(path)[:11] for path in before} == {"period_day=", "period=2020"}
    [(keep,)] = world.run("SELECT (now() - timestamptz '2020-03-05Z')::text")
    choose(world, "events", hot="1 year", retention=keep)
    assert len(cycle.retains(world.settings, ["public.events"], Silent(), world.spark_here)) == 1
    world.run("DELETE FROM public.plain WHERE ts < '2020-03-01Z'")
    assert data_files(world).keys() == {path for path in before if path.split("=2020-0")[1] >= "3"}
    same(world)
    good(world)


def test_every_file_is_rewritten_on_demand(months: World) -> None:
    world = months
    choose(world, "events", sort_order="primary key", compaction="binpack")
    done = maintained(world, everything=True)
    assert done.notes[0] == "every file was rewritten"
    found = data_files(world)
    assert {under(path)[:11] for path in found} == {"period_day="}
    for path in found:
        ids = [id_ for (id_,) in column(path, "id")]
        assert ids == sorted(ids)
    same(world)
    good(world)


def test_registration_takes_a_layout(months: World) -> None:
    world = months
    world.run(
        "CREATE TABLE public.numbers (n bigint PRIMARY KEY, f float8, t text) PARTITION BY RANGE (n);"
        "CREATE TABLE public.numbers_0 PARTITION OF public.numbers FOR VALUES FROM (0) TO (1000);"
        "CREATE TABLE public.numbers_1 PARTITION OF public.numbers FOR VALUES FROM (1000) TO (2000);"
        "CREATE TABLE public.numbers_2 PARTITION OF public.numbers FOR VALUES FROM (2000) TO (3000);"
        "INSERT INTO public.numbers"
        " SELECT n, CASE n % 5 WHEN 0 THEN NULL WHEN 1 THEN float8 'NaN' ELSE -n END, 'x' || n"
        " FROM generate_series(0, 2500) n"
    )
    before = world.run("SELECT r::text FROM public.numbers r ORDER BY n")
    with connect(world.dsn) as connection:
        wrong = {"lake_partition": "5000"}
        with pytest.raises(ConfigError, match="not allowed"):
            register.register(connection, "public.numbers", "500", wrong)
        register.register(connection, "public.numbers", "500", {"lake_partition": "250", "sort_order": "f desc, n"})
    with Warm(world.spark_here) as warm:
        assert len(list(periods(world.settings, "public.numbers", Silent(), warm))) == 2
    [first] = [path for path in _files(world, "public.numbers") if under(path) == "period=0"]
    ids = [n for (n,) in column(first, "n")]
    assert ids[:50] == list(range(0, 250, 5))  # nulls come first where it descends
    assert world.run("SELECT r::text FROM public.numbers r ORDER BY n") == before
    assert world.run("SELECT t FROM public.numbers WHERE n = 777") == [("x777",)]


def test_an_integer_key_is_retained_back_from_the_largest(months: World) -> None:
    world = months
    choose(world, "numbers", retention="1501")
    assert cycle.retains(world.settings, ["public.numbers"], Silent(), world.spark_here) == []  # 2500 - 1501 = 999
    choose(world, "numbers", retention="1500")
    assert len(cycle.retains(world.settings, ["public.numbers"], Silent(), world.spark_here)) == 1
    assert world.run("SELECT count(*), min(n), max(n) FROM public.numbers") == [(1501, 1000, 2500)]
    assert {under(path) for path in _files(world, "public.numbers")} == {f"period={n}" for n in range(1000, 2000, 250)}
    with pytest.raises(CheckViolation, match="are not kept any more"):
        world.run("INSERT INTO public.numbers VALUES (999)")


def _files(world: World, table: str) -> list[str]:
    found = managed(world, table)
    assert found.metadata_location is not None
    assert found.snapshot_id is not None
    snapshot = files.snapshot(of(world.settings), found.metadata_location, found.snapshot_id)
    return [file.path.removeprefix("file://") for file in snapshot.files]
