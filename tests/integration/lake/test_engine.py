"""DuckDB inside its bounds: it spills, it streams, and files are read by field id."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest
from pyarrow import parquet
from pyiceberg.types import DoubleType, IntegerType, LongType, NestedField, StringType

from frostline.lake.engine import open_engine, parquet_scan


@pytest.fixture
def small(tmp_path: Path) -> Iterator[duckdb.DuckDBPyConnection]:
    engine = open_engine(memory="100MB", threads=2, directory=tmp_path / "spill")
    yield engine
    engine.close()


def test_a_sort_larger_than_memory_spills_and_is_right(small: duckdb.DuckDBPyConnection) -> None:
    numbers = "SELECT range AS n, md5(range::VARCHAR) || repeat('x', 100) AS t FROM range(1500000)"
    reader = small.execute(f"SELECT n FROM ({numbers}) ORDER BY t, n").to_arrow_reader(10_000)
    total = count = 0
    for batch in reader:
        count += batch.num_rows
        total += sum(batch.column(0).to_pylist())
    assert (count, total) == (1_500_000, 1_499_999 * 1_500_000 // 2)


def test_every_cursor_reads_in_utc_and_keeps_footers(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TZ", "America/New_York")
    engine = open_engine(memory="100MB", threads=1, directory=tmp_path)
    found = engine.cursor().execute(
        "SELECT TIMESTAMPTZ '2026-07-01 12:00:00+00'::VARCHAR, current_setting('parquet_metadata_cache')"
    )
    assert found.fetchall() == [("2026-07-01 12:00:00+00", True)]
    engine.close()


_STREAM = """
import re, sys
from pathlib import Path
from frostline.gateway.cancel import Canceller
from frostline.gateway.rows import Batches, Cursors, LakeRows
from frostline.lake.engine import open_engine
from frostline.lake.storage import Local

def most():  # megabytes; what getrusage() says is the parent's where that was larger
    return int(re.search(r"VmHWM:\\s+(\\d+)", Path("/proc/self/status").read_text())[1]) // 1024

engine = open_engine(memory="200MB", threads=2, directory=Path(sys.argv[1]))
query = "SELECT md5(range::VARCHAR) || repeat('x', 300) AS a, range::VARCHAR AS b FROM range(5000000)"
rows = LakeRows([], Batches(Cursors(engine, Local(sys.argv[1])), Canceller(), query))
size = 0
for number in range(500):
    size += sum(len(piece) for piece, _ in rows.take(10000))
    rows.prepare(10000)
    first = most() if number == 5 else (first if number > 5 else 0)
rows.close()
print(size // 2**20, first, most())
"""


def test_a_result_larger_than_memory_streams_by_the_batch(tmp_path: Path) -> None:
    """Its own process, for the peak is the process's."""
    done = subprocess.run([sys.executable, "-c", _STREAM, str(tmp_path)], check=True, capture_output=True, text=True)
    sent, early, peak = map(int, done.stdout.split())
    assert sent > 1500  # megabytes
    assert peak - early < 100
    assert peak < 500  # the interpreter, at most DuckDB's 200 MB, and what allocators keep; seen: 190


def _write(path: Path, table: pa.Table, ids: dict[str, int]) -> str:
    fields = [pa.field(f.name, f.type, metadata={"PARQUET:field_id": str(ids[f.name])}) for f in table.schema]
    parquet.write_table(table.cast(pa.schema(fields)), path)
    return str(path)


def test_columns_are_found_by_field_id_whatever_their_names(small: duckdb.DuckDBPyConnection, tmp_path: Path) -> None:
    """Renamed, added since, dropped and added again under the same name, widened."""
    old = pa.table({"n": pa.array([1], pa.int32()), "t": ["first"], "gone": ["x"]})
    new = pa.table({"t": pa.array([2], pa.int64()), "title": ["second"], "gone": [5.5]})
    paths = [
        _write(tmp_path / "old.parquet", old, {"n": 1, "t": 2, "gone": 3}),
        _write(tmp_path / "new.parquet", new, {"t": 1, "title": 2, "gone": 4}),
    ]
    columns = {
        "c1": NestedField(1, "t", LongType()),
        "c2": NestedField(2, "title", StringType()),
        "c3": NestedField(4, "gone", DoubleType()),
        "c4": NestedField(5, "later", IntegerType(), initial_default=7),
    }
    found = small.execute(f"SELECT * FROM {parquet_scan(paths, columns)} ORDER BY c1").fetchall()
    assert found == [(1, "first", None, 7), (2, "second", 5.5, 7)]


def test_a_path_with_quotes_spaces_and_stars_is_one_file(small: duckdb.DuckDBPyConnection, tmp_path: Path) -> None:
    path = tmp_path / "it's [one] *?.parquet"
    _write(tmp_path / "it's o other.parquet", pa.table({"n": pa.array([9], pa.int64())}), {"n": 1})
    _write(path, pa.table({"n": pa.array([1], pa.int64())}), {"n": 1})
    scan = parquet_scan([f"file://{path}"], {"c1": NestedField(1, "n", LongType())})
    assert small.execute(f"SELECT * FROM {scan}").fetchall() == [(1,)]
