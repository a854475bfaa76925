"""Claim: a fold costs what Spark's own MERGE of the same rows does, and as much whatever else the table holds."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from pyiceberg.manifest import DataFile

from bench import tables
from bench.measure import Result, Times, cost
from bench.tables import Month, Shape
from bench.world import World
from frostline.catalog import registry
from frostline.catalog.database import connect
from frostline.catalog.registry import Managed
from frostline.lake import catalog as lake
from frostline.lake import layout
from frostline.local import artifacts
from frostline.pipeline import session
from frostline.pipeline.merge import quiet
from frostline.report import Silent
from frostline.tiering import register
from frostline.tiering.archive.run import Warm, archive
from frostline.tiering.fold.run import fold

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TITLE = "Folding: against Spark's own MERGE, and as the table grows"
TABLES = False  # it makes its own
_PERIODS = {"small": 4, "large": 40}
_TOUCHED = slice(1, 3)  # the second and third oldest months
_MOST = 100_000
_WARM = 1


@dataclass
class Bench:
    """What all contenders share."""

    world: World
    spark: SparkSession
    shapes: dict[str, Shape]
    versions: int
    staged: Path

    def months(self, shape: Shape) -> list[Month]:
        return list(islice(tables.months(shape), _TOUCHED.start, _TOUCHED.stop))


def run(world: World, rounds: int) -> list[Result]:
    rows = world.shapes["events"].cold_rows
    per_period = rows // _PERIODS["large"]
    shapes = {
        name: Shape(f"fold_{name}", tables.NARROW, tables.NARROW_ROW, periods, per_period)
        for name, periods in _PERIODS.items()
    }
    versions = min(_MOST, per_period // 5 * 2)
    jars = artifacts.fetch(world.settings, report=Silent()).jars
    with session.spark_session(world.settings, jars) as spark:
        bench = Bench(world, spark, shapes, versions, world.settings.local.dir / "staged")
        try:
            for shape in shapes.values():
                _build(bench, shape)
            times = _measured(bench, rounds)
        finally:
            shutil.rmtree(bench.staged, ignore_errors=True)
            _drop(bench)
    text = f"{versions:,} changes of 2 months"
    return [
        cost(f"fold against Spark's MERGE: {text}, {rows / 1e6:g} million rows", times["large"], times["spark"], 1.2),
        cost(f"fold, {rows / 1e6:g} million rows against {rows / 1e7:g}: {text}", times["large"], times["small"], 1.2),
    ]


def _measured(bench: Bench, rounds: int) -> Times:
    """Every round changes all tables alike; what is to be merged is made ready before the clock starts."""
    times: Times = {name: [] for name in ("small", "large", "spark")}
    names = list(times)
    for number in range(-_WARM, rounds):
        turn = number % len(names)
        for name in names[turn:] + names[:turn]:
            shape = bench.shapes["large" if name == "spark" else name]
            _change(bench, shape, number)
            if name == "spark":
                _stage(bench, shape)
            started = time.perf_counter()
            (_by_spark if name == "spark" else _fold)(bench, shape)
            if number >= 0:
                times[name].append(time.perf_counter() - started)
    return times


def _fold(bench: Bench, shape: Shape) -> None:
    with Warm(lambda: _same(bench.spark)) as warm:
        [done] = fold(bench.world.settings, f"public.{shape.name}", Silent(), warm)
    assert done.versions == bench.versions


def _by_spark(bench: Bench, shape: Shape) -> None:
    managed = _managed(bench, shape)
    columns = [managed.lake_names[column.name] for column in managed.table.stored]
    name = f"{bench.world.settings.lake.name}.{managed.lake_namespace}.{_twin(managed)}"
    bench.spark.read.parquet(str(bench.staged)).createOrReplaceTempView("staged")
    with quiet():
        bench.spark.sql(
            f"MERGE INTO {name} t USING staged s ON t.id = s.id AND t.ts = s.ts"
            " WHEN MATCHED AND s._op = 'T' THEN DELETE"
            f" WHEN MATCHED THEN UPDATE SET {', '.join(f't.{c} = s.{c}' for c in columns)}"
            f" WHEN NOT MATCHED AND s._op = 'U' THEN INSERT ({', '.join(columns)})"
            f" VALUES ({', '.join(f's.{c}' for c in columns)})"
        )


def _change(bench: Bench, shape: Shape, number: int) -> None:
    """Nine of ten versions are of rows that are there, evenly spread; one is of a new one."""
    managed = _managed(bench, shape)
    delta = ".".join(managed.delta)
    with bench.world.connect() as connection:
        connection.execute(f"TRUNCATE {delta}")
        months = bench.months(shape)
        for month in months:
            count = bench.versions // len(months)
            step = f"(timestamptz '{month.upper}' - timestamptz '{month.lower}') / {month.rows}"
            every = month.rows // count
            connection.execute(
                f"INSERT INTO {delta} (id, ts, kind, value, _op, _seq, _prev)"
                f" SELECT CASE WHEN n % 10 = 0 THEN -{number + 2} * 1000000000::bigint - n ELSE n END,"
                f" timestamptz '{month.lower}' + (n - {month.first}) * ({step}), {number + 2}, random(), 'U',"
                " nextval('frostline.version'), 0"
                f" FROM (SELECT {month.first} + i * {every} AS n FROM generate_series(0::bigint, {count - 1}) i) s"
            )
        connection.execute(f"ANALYZE {delta}")


def _stage(bench: Bench, shape: Shape) -> None:
    """The same versions as Parquet, and no longer in the delta."""
    managed = _managed(bench, shape)
    delta, at = ".".join(managed.delta), lake.address(bench.world.dsn)
    rows = bench.spark.read.jdbc(
        at.jdbc,
        f"(SELECT id, ts, kind, value, _op::text FROM {delta}) v",
        properties={"driver": "org.postgresql.Driver", "user": at.user, "password": at.password},
    )
    rows.write.mode("overwrite").parquet(str(bench.staged))
    with bench.world.connect() as connection:
        connection.execute(f"TRUNCATE {delta}")


def _build(bench: Bench, shape: Shape) -> None:
    world, name = bench.world, f"public.{shape.name}"
    with world.connect() as connection:
        for statement in tables.create(shape):
            connection.execute(statement)
    with connect(world.dsn) as owner:
        register.register(owner, name, f"{tables.HOT_MONTHS} months")
    archive(world.settings, name, Silent(), lambda: _same(bench.spark))
    managed = _managed(bench, shape)
    with lake.opened(world.settings) as catalog:
        table = catalog.load_table(lake.identifier(managed))
        with table.transaction() as transaction:  # as a fold sets them, so that both write alike
            transaction.set_properties(layout.merge_properties(managed, world.settings.lake.file_size))
        table = catalog.load_table(lake.identifier(managed))
        twin = catalog.create_table(
            (managed.lake_namespace, _twin(managed)),
            table.schema(),
            partition_spec=table.spec(),
            sort_order=table.sort_order(),
            properties=dict(table.properties),
        )
        head = table.current_snapshot()
        assert head is not None
        files: list[DataFile] = [
            entry.data_file
            for manifest in head.manifests(table.io)
            for entry in manifest.fetch_manifest_entry(table.io)
        ]
        with twin.transaction() as transaction, transaction.update_snapshot().fast_append() as added:
            for file in files:
                added.append_data_file(file)  # the same files: a MERGE removes none


def _drop(bench: Bench) -> None:
    for shape in bench.shapes.values():
        managed = _managed(bench, shape)
        with lake.opened(bench.world.settings) as catalog:
            catalog.drop_table((managed.lake_namespace, _twin(managed)))
        with bench.world.connect() as connection:
            connection.execute(f"DROP TABLE public.{shape.name} CASCADE")


def _twin(managed: Managed) -> str:
    return f"{managed.lake_table}_twin"


def _managed(bench: Bench, shape: Shape) -> Managed:
    with connect(bench.world.dsn) as connection:
        return registry.get(connection, f"public.{shape.name}")


@contextmanager
def _same(spark: SparkSession) -> Iterator[SparkSession]:
    yield spark
