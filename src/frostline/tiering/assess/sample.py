"""How large rows are in the lake: a few runs of pages are really written as the archive would write them."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pyarrow as pa
from psycopg.sql import SQL, Composable, Composed, Identifier

from frostline.catalog.database import Connection
from frostline.catalog.registry import Managed
from frostline.lake import layout, writer
from frostline.lake.decode import TRAILER, Wire, batch, without_header
from frostline.model.tables import Table, lake_names
from frostline.pipeline.slices import Slice

_MOST_ROWS = 4 * layout.ROWS_PER_GROUP
_MOST_BYTES = 32_000_000
_RUNS = 4  # of adjoining pages, for adjoining rows are alike and compress together, in the lake too
_ROWS_AT_ONCE = 5_000


@dataclass(frozen=True)
class Source:
    """A heap to read some pages of: a table, and which of its partitions."""

    relation: Composable
    within: Composable
    bytes: int  # of the heap
    row_bytes: float  # with what is kept out of line


@dataclass(frozen=True)
class Measured:
    rows: int
    bytes: int

    @property
    def row_bytes(self) -> float:
        return self.bytes / self.rows


def measure(connection: Connection, table: Table, sources: Sequence[Source]) -> Measured | None:
    """Write a sample of the rows into a temporary directory; None when there are none."""
    managed = _as_if_registered(table)
    with tempfile.TemporaryDirectory(prefix="frostline-sample-") as directory:
        target = writer.Target(
            schema=layout.schema(managed),
            spec=layout.partition_spec(managed),
            sorted_by=writer.arrow_order(layout.schema(managed), layout.sort_order(managed)),
            looked_up=layout.looked_up(managed),
            location=Path(directory).as_uri(),
            properties={},
            io={},
            file_bytes=2**40,  # as few files as there can be
            prefix="sample",
        )
        made = writer.Writer(target)
        for source in sources:
            for rows in _batches(connection, managed, source, len(sources)):
                made.add(rows)
        made.flush()
        found = Measured(sum(file.rows for file in made.written), sum(file.size for file in made.written))
    return found if found.rows else None


def _as_if_registered(table: Table) -> Managed:
    """A table without a primary key is sorted by what it is cut by."""
    key = table.primary_key or (table.key,)
    names = lake_names({column.number: column.name for column in table.stored})
    return Managed(
        id=0,
        table=replace(table, primary_key=key),
        hot=("", ""),
        hot_oid=0,
        delta=("", ""),
        delta_oid=0,
        hot_for="",
        lake_namespace="",
        lake_table="",
        seam=None,
        snapshot_id=None,
        metadata_location=None,
        lake_names={column.name: names[column.number] for column in table.stored},
        installation="",
    )


def _batches(connection: Connection, managed: Managed, source: Source, among: int) -> Iterator[pa.RecordBatch]:
    columns = tuple(
        Wire(managed.lake_names[c.name], c.storage.wire, writer.arrow_type(layout.iceberg_type(c.storage.iceberg)))
        for c in managed.table.stored
    )
    limit = max(int(min(_MOST_ROWS, _MOST_BYTES / max(source.row_bytes, 1)) / among / _RUNS), 50)
    for part in _runs(connection, source, limit):
        with connection.cursor().copy(_query(managed, source, part, limit)) as copy:
            messages = [bytes(message) for message in copy]
        rows = [row for row in (without_header(messages[0]), *messages[1:]) if row and row != TRAILER]
        for start in range(0, len(rows), _ROWS_AT_ONCE):
            yield batch(rows[start : start + _ROWS_AT_ONCE], columns)


def _runs(connection: Connection, source: Source, rows: int) -> list[Slice]:
    """Page ranges that hold about so many rows each, evenly spread."""
    row = connection.execute("SELECT current_setting('block_size')::int").fetchone()
    assert row is not None
    pages = source.bytes // row[0] + 1
    length = max(int(rows * source.row_bytes / row[0]) + 1, 2)
    if pages <= length * _RUNS:
        step = max(pages // _RUNS, 1)
        starts = list(range(0, pages, step))
        return [Slice(start, end) for start, end in zip(starts, [*starts[1:], None], strict=True)]
    return [Slice(start, start + length) for start in (pages * number // _RUNS for number in range(_RUNS))]


def _query(managed: Managed, source: Source, part: Slice, limit: int) -> Composed:
    """The rows of some pages, without those that could not be archived."""
    table = managed.table
    names = {c.name: Identifier(c.name).as_string(None) for c in table.stored}
    values = ", ".join(c.storage.copied_anywhere.format(c=names[c.name]) for c in table.stored)
    held = [
        f"({c.storage.cannot_hold.format(c=names[c.name])}) IS NOT TRUE" for c in table.stored if c.storage.cannot_hold
    ]
    known = [f"{names[name]} IS NOT NULL" for name in (*table.primary_key, table.key)]
    conditions = _sql(" AND ".join([part.condition, *known, *held]))
    return SQL("COPY (SELECT {} FROM {} WHERE {} AND {} LIMIT {}) TO STDOUT (FORMAT binary)").format(
        _sql(values), source.relation, source.within, conditions, limit
    )


def _sql(text: str) -> SQL:
    return SQL(text)
