"""Claim: a partition goes to the lake about as fast as it can be read, and nobody waits for it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from bench import stock, tables
from bench.clients import Clients
from bench.measure import Result, cost, interleaved, speed
from bench.world import World
from frostline.catalog import registry
from frostline.catalog.database import LOCK_TIMEOUT_MS, connect
from frostline.catalog.registry import Managed
from frostline.lake import catalog as lake
from frostline.local import artifacts
from frostline.pipeline import export, session
from frostline.report import Silent
from frostline.tiering import register, shape
from frostline.tiering.archive.run import archive

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TITLE = "Archiving: export, pauses, room"
TABLES = False  # it makes its own
_MILLION = 1_000_000
_PAUSE = (LOCK_TIMEOUT_MS + 20) / 1000
_HELD_SECONDS = 5  # after the first try: time for two more at least
_SHAPES = {"narrow": (tables.NARROW, tables.NARROW_ROW, 1), "wide": (tables.WIDE, tables.WIDE_ROW, 8)}


def run(world: World, rounds: int) -> list[Result]:
    rows = world.shapes["events"].cold_rows
    results = []
    jars = artifacts.fetch(world.settings, report=Silent()).jars
    with session.spark_session(world.settings, jars) as spark:
        for shape, columns in (("narrow", "4 narrow columns"), ("wide", "20 mixed columns")):
            results += _speed(world, spark, shape, columns, min(rows, 4 * _MILLION) // _SHAPES[shape][2], rounds)
    return [*results, _pauses(world, max(rows // 20, 100_000))]


def _speed(world: World, spark: SparkSession, shape: str, columns: str, rows: int, rounds: int) -> list[Result]:
    """The export alone against the others, then the whole of it, once."""
    with table(world, shape, rows) as name:
        contenders = {
            "ours": lambda: _ours(world, spark, _fresh(world, name)),
            "stock": lambda: _stock(world, spark, _fresh(world, name)),
            "psql": lambda: _psql(world, f"{name}_1"),
        }
        times = interleaved(contenders, rounds)
        _fresh(world, name)
        heap = _one(world, f"SELECT pg_table_size('{name}_1')")
        started = time.perf_counter()
        (archived,) = archive(world.settings, name, Silent(), lambda: _same(spark))
        whole = time.perf_counter() - started
    text = f"{columns}, {rows / 1e6:g} million rows"
    return [
        speed(f"export against psql's binary \\copy: {text}", times, "ours", "psql", 0.4),
        speed(f"export against Spark's JDBC source: {text}", times, "ours", "stock", 1.5),
        cost(
            f"whole archive, export to drop, against psql: {rows / whole:,.0f} rows/s",
            [whole],
            [times["psql"][-1]],
            None,
        ),
        cost(f"files against heap: {text}", [archived.bytes / 1e6], [heap / 1e6], 0.5, "MB"),
    ]


def _pauses(world: World, rows: int) -> Result:
    """What clients of hot rows see while partitions are swapped, one of them behind a long reader."""
    with table(world, "narrow", rows, periods=4) as name:
        clients = Clients(world.dsn, name)
        clients.start(4, "2021-06-01")
        try:
            with _long_reader(world, f"{name}_2"):
                subprocess.run(command(name), env=environment(world), check=True, stdout=subprocess.DEVNULL)
        finally:
            clients.stop()
        with world.connect() as connection:
            swaps = connection.execute(
                "SELECT extract(epoch FROM s.started_at)::float8, extract(epoch FROM s.finished_at)::float8"
                " FROM frostline.steps s JOIN frostline.operations o ON o.id = s.operation_id"
                " WHERE s.name = 'swap' AND o.leaf LIKE %s || '%%'",
                [name],
            ).fetchall()
    if clients.errors:
        raise RuntimeError(f"clients got errors: {clients.errors[:3]}")
    claim = f"longest of {len(clients.statements):,} statements during {len(swaps)} swaps, one held up, no error"
    return cost(claim, [clients.longest(swaps)], [_PAUSE], 1)


@contextmanager
def _long_reader(world: World, leaf: str) -> Iterator[None]:
    """Somebody reads the leaf until its swap has waited for him a few times: only then is the timeout needed."""
    begun, over = threading.Event(), threading.Event()

    def read() -> bool:
        with world.connect() as looking, world.connect() as reader, reader.transaction():
            reader.execute(f"SELECT FROM {leaf} LIMIT 1")
            begun.set()
            query = "SELECT EXISTS (SELECT FROM frostline.waits WHERE pid = %s)"
            while looking.execute(query, (reader.info.backend_pid,)).fetchone() != (True,):
                if over.wait(0.05):
                    return False
            over.wait(_HELD_SECONDS)
            return True

    with ThreadPoolExecutor(1) as pool:
        reading = pool.submit(read)
        begun.wait()
        try:
            yield
        finally:
            over.set()
        if not reading.result():
            raise RuntimeError(f"no swap waited for the reader of {leaf}")


@contextmanager
def table(world: World, shape: str, rows: int, periods: int = 1) -> Iterator[str]:
    """A registered table of that many rows in expired partitions, and a few that are hot."""
    columns, row, _ = _SHAPES[shape]
    name = f"public.archive_{shape}_{rows}_{periods}"
    with world.connect() as connection:
        connection.execute(f"CREATE TABLE {name} ({columns}, PRIMARY KEY (id, ts)) PARTITION BY RANGE (ts)")
        first = 1
        for month in range(1, periods + 1):
            lower, upper = f"2020-{month:02}-01", f"2020-{month + 1:02}-01"
            leaf = f"{name}_{month}"
            connection.execute(f"CREATE TABLE {leaf} PARTITION OF {name} FOR VALUES FROM ('{lower}') TO ('{upper}')")
            part = tables.Month(leaf, lower, upper, first, rows // periods)
            connection.execute(tables.fill(tables.Shape(name, columns, row, periods, rows // periods), part, leaf))
            first += rows // periods
        connection.execute(f"CREATE TABLE {name}_hot_1 PARTITION OF {name} FOR VALUES FROM ('{upper}') TO (MAXVALUE)")
        if shape == "narrow":
            connection.execute(f"INSERT INTO {name} SELECT -n, '2021-06-01', 0, 0 FROM generate_series(1, 64) n")
        connection.execute(f"VACUUM (ANALYZE, FREEZE) {name}")
    with connect(world.dsn) as owner:
        # The hot partition reaches to the end of time, so only the others ever expire.
        register.register(owner, name, "3 months")
    try:
        yield name
    finally:
        with world.connect() as connection:
            connection.execute(f"DROP TABLE {name} CASCADE")


def _fresh(world: World, name: str) -> Managed:
    """The table's lake side, empty again."""
    with connect(world.dsn) as connection:
        managed = registry.get(connection, name)
        with lake.opened(world.settings) as catalog:
            if catalog.table_exists(lake.identifier(managed)):
                catalog.purge_table(lake.identifier(managed))
        lake.ensure_table(world.settings, managed, set())
        return shape.followed(connection, world.settings, managed)


@contextmanager
def _source(world: World, managed: Managed) -> Iterator[export.Source]:
    leaf = managed.table.leaves[0]
    with connect(world.dsn, autocommit=False) as reader:
        reader.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
        row = reader.execute(
            "SELECT pg_export_snapshot(), pg_relation_size(%s::regclass) / 8192, pg_table_size(%s::regclass)",
            (leaf.oid, leaf.oid),
        ).fetchone()
        assert row is not None
        yield export.Source(leaf, *row)


def _ours(world: World, spark: SparkSession, managed: Managed) -> None:
    with _source(world, managed) as source:
        export.export(spark, world.settings, managed, source, 0)


def _stock(world: World, spark: SparkSession, managed: Managed) -> None:
    with _source(world, managed) as source:
        stock.export(spark, world.settings, managed, source)


def _psql(world: World, leaf: str) -> None:
    command = f"\\copy (SELECT * FROM {leaf}) TO /dev/null (FORMAT binary)"
    subprocess.run([shutil.which("psql") or "psql", "-qXc", command, world.dsn], check=True)


@contextmanager
def _same(spark: SparkSession) -> Iterator[SparkSession]:
    yield spark


def command(name: str, what: str = "archive", *arguments: str) -> list[str]:
    return [sys.executable, "-m", "frostline", what, name, *arguments]


def environment(world: World) -> dict[str, str]:
    return {**os.environ, "FROSTLINE_LOCAL_DIR": str(world.settings.local.dir)}


def _one(world: World, query: str) -> Any:
    with world.connect() as connection:
        row = connection.execute(query).fetchone()
        assert row is not None
        return row[0]
