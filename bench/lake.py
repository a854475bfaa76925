"""The files of a benchmark table, and DuckDB reading exactly those: what no gateway can be faster than."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import duckdb

from bench.world import World
from frostline.lake import files
from frostline.lake.duck import quote
from frostline.lake.engine import open_engine
from frostline.lake.storage import of


@contextmanager
def engine(world: World) -> Iterator[duckdb.DuckDBPyConnection]:
    """DuckDB set up as the gateway's."""
    options = world.settings.gateway
    with tempfile.TemporaryDirectory() as name:
        opened = open_engine(
            memory=options.memory, threads=options.threads, directory=Path(name), storage=of(world.settings)
        )
        try:
            yield opened
        finally:
            opened.close()


def snapshot(world: World, table: str) -> files.Snapshot:
    with world.connect() as connection:
        row = connection.execute(
            "SELECT metadata_location, snapshot_id FROM frostline.tables WHERE relation = %s::regclass", [table]
        ).fetchone()
    assert row is not None
    return files.snapshot(of(world.settings), *row)


def column(found: files.Snapshot, name: str) -> files.ColumnStatistics | None:
    """What is known of a column in every file."""
    return next((found.column(number) for number, field in found.fields.items() if field.name == name), None)


def reader(found: list[files.DataFile]) -> str:
    """A FROM item over these files."""
    return f"read_parquet([{', '.join(quote(file.path.removeprefix('file:')) for file in found)}])"
