"""Files of a table: sorted, of one partition, as large as asked for, and described truly."""

from __future__ import annotations

import random
import struct
import uuid
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import MonthTransform
from pyiceberg.types import (
    BinaryType,
    DecimalType,
    DoubleType,
    LongType,
    NestedField,
    StringType,
    TimestamptzType,
    UUIDType,
)

from frostline.lake import writer as writers
from frostline.lake.writer import Target, Writer, Written, arrow_type

SCHEMA = Schema(
    NestedField(7, "id", LongType(), required=True),
    NestedField(3, "ts", TimestamptzType(), required=True),
    NestedField(4, "u", UUIDType(), required=False),
    NestedField(5, "kind", StringType(), required=False),
    NestedField(9, "price", DecimalType(12, 2), required=False),
)
SPEC = PartitionSpec(PartitionField(3, 1000, MonthTransform(), "period"))
DAY = 86_400_000_000
JANUARY = 18_262 * DAY  # 2020-01-01


BY_KEY = (("id", "ascending", "at_start"), ("ts", "ascending", "at_start"))


def target(directory: Path, file_bytes: int = 2**30, sorted_by: tuple[tuple[str, str, str], ...] = BY_KEY) -> Target:
    return Target(
        SCHEMA, SPEC, sorted_by, ("id",), f"file://{directory}", {}, {}, file_bytes=file_bytes, prefix="operation-5"
    )


def rows(count: int, first: int = 0) -> pa.RecordBatch:
    """Two days apart each, so that some are of January and some of February; in no order."""
    numbers = list(range(first, first + count))
    random.Random(1).shuffle(numbers)
    arrays = [
        numbers,
        [JANUARY + n % 30 * 2 * DAY for n in numbers],
        [None if n % 7 == 0 else uuid.UUID(int=n).bytes for n in numbers],
        [f"kind {n % 5}" for n in numbers],
        [None] * count,
    ]
    types = [arrow_type(column.field_type) for column in SCHEMA.fields]
    return pa.RecordBatch.from_arrays(
        [pa.array(values, type_) for values, type_ in zip(arrays, types, strict=True)],
        names=[column.name for column in SCHEMA.fields],
    )


def write(
    directory: Path,
    *batches: pa.RecordBatch,
    file_bytes: int = 2**30,
    sorted_by: tuple[tuple[str, str, str], ...] = BY_KEY,
) -> list[Written]:
    writer = Writer(target(directory, file_bytes, sorted_by))
    for one in batches:
        writer.add(one)
    writer.flush()
    return writer.written


def table(file: Written) -> Any:
    return pq.read_table(file.path.removeprefix("file://"), partitioning=None)


def test_each_partition_has_a_file_sorted_by_the_key_and_no_row_is_lost(tmp_path: Path) -> None:
    files = write(tmp_path, rows(40_000), rows(30_000, 40_000))
    assert [file.partition for file in files] == [(600,), (601,)]
    assert [Path(file.path).parent.name for file in files] == ["period=2020-01", "period=2020-02"]
    found: list[int] = []
    for file in files:
        ids = table(file)["id"].to_pylist()
        assert ids == sorted(ids)
        assert file.rows == len(ids)
        found += ids
    assert sorted(found) == list(range(70_000))
    assert Path(files[0].path).name.startswith("operation-5-")


def test_each_sort_column_has_its_own_direction_and_place_of_nulls(tmp_path: Path) -> None:
    order = (("u", "descending", "at_end"), ("kind", "ascending", "at_start"), ("id", "descending", "at_end"))
    for file in write(tmp_path, rows(3000), sorted_by=order):
        found = [(r["u"], r["kind"], r["id"]) for r in table(file).select(["u", "kind", "id"]).to_pylist()]
        values = [u for u, _, _ in found if u is not None]
        assert values == sorted(values, reverse=True)
        without = found[len(values) :]
        assert [u for u, _, _ in without] == [None] * len(without)
        assert without == sorted(without, key=lambda row: (row[1], -row[2]))


def test_files_carry_field_ids_uuids_row_groups_and_bloom_filters(tmp_path: Path) -> None:
    (file, _) = write(tmp_path, rows(70_000))
    path = file.path.removeprefix("file://")
    engine = duckdb.connect()
    schema = engine.execute(
        "SELECT name, field_id, logical_type FROM parquet_schema(?) WHERE field_id IS NOT NULL", [path]
    ).fetchall()
    assert [(name, number) for name, number, _ in schema] == [(c.name, c.field_id) for c in SCHEMA.fields]
    assert "UUID" in schema[2][2]
    groups = engine.execute(
        "SELECT row_group_num_rows, bloom_filter_offset IS NOT NULL, compression FROM parquet_metadata(?)"
        " WHERE path_in_schema = 'id'",
        [path],
    ).fetchall()
    assert groups[0] == (16_384, True, "ZSTD")
    assert sum(count for count, _, _ in groups) == file.rows
    assert engine.execute("SELECT u FROM read_parquet(?) WHERE id = 2", [path]).fetchone() == (uuid.UUID(int=2),)
    assert Path(path).stat().st_size == file.size
    assert len(file.split_offsets) == len(groups)


def test_rows_are_found_by_bytes_and_by_zeros_of_either_sign(tmp_path: Path) -> None:
    """DuckDB asks bloom filters for other bytes than a BLOB's, and for one of the two zeros."""
    schema = Schema(
        NestedField(1, "b", BinaryType(), required=True),
        NestedField(2, "x", DoubleType(), required=True),
        NestedField(3, "ts", TimestamptzType(), required=True),
    )
    spec = PartitionSpec(PartitionField(3, 1000, MonthTransform(), "period"))
    arrays = [[b"\x00", b"\x80\xff", b"\xff"], [-1.0, -0.0, 1.0], [JANUARY] * 3]
    order = tuple((name, "ascending", "at_end") for name in ("b", "x", "ts"))
    place = f"file://{tmp_path}"
    writer = Writer(Target(schema, spec, order, ("b", "x"), place, {}, {}, file_bytes=2**30, prefix="operation-5"))
    writer.add(
        pa.RecordBatch.from_arrays(
            [pa.array(v, arrow_type(c.field_type)) for v, c in zip(arrays, schema.fields, strict=True)],
            names=["b", "x", "ts"],
        )
    )
    writer.flush()
    (file,) = writer.written
    for condition in ("b = unhex('80ff')", "x = 0::DOUBLE", "x = '-0'::DOUBLE"):
        found = duckdb.execute(f"SELECT b FROM read_parquet(?) WHERE {condition}", [file.path.removeprefix("file://")])
        assert found.fetchall() == [(b"\x80\xff",)], condition


def test_the_manifest_s_entry_says_what_is_in_the_file(tmp_path: Path) -> None:
    (file, _) = write(tmp_path, rows(600))
    found = table(file)
    assert file.metrics["value_counts"] == dict.fromkeys((7, 3, 4, 5, 9), file.rows)
    assert file.metrics["null_value_counts"] == {c.field_id: found[c.name].null_count for c in SCHEMA.fields}
    ids = found["id"].to_pylist()
    assert file.metrics["lower_bounds"][7] == struct.pack("<q", min(ids))
    assert file.metrics["upper_bounds"][7] == struct.pack("<q", max(ids))
    assert file.metrics["lower_bounds"][5] == b"kind 0"
    assert 9 not in file.metrics["lower_bounds"]
    assert all(size > 0 for size in file.metrics["column_sizes"].values())


def test_a_writer_holds_no_more_than_one_file_s_rows(tmp_path: Path) -> None:
    one = rows(1000)
    files = write(tmp_path, *[rows(1000, 1000 * n) for n in range(10)], file_bytes=2 * one.nbytes)
    assert len(files) == 10  # five times two months
    assert sum(file.rows for file in files) == 10_000


def test_what_was_discarded_is_gone(tmp_path: Path) -> None:
    writer = Writer(target(tmp_path))
    writer.add(rows(10))
    writer.flush()
    assert list(tmp_path.rglob("*.parquet"))
    writer.discard()
    assert not list(tmp_path.rglob("*.parquet"))


def test_a_file_that_cannot_be_finished_is_not_left_behind(tmp_path: Path) -> None:
    writer = Writer(target(tmp_path))
    broken = rows(10).set_column(0, "id", pa.array([None] * 10, pa.int64()))  # the key is required
    writer.add(broken)
    with pytest.raises(Exception):  # noqa: B017, PT011  Arrow's own
        writer.flush()
    assert not list(tmp_path.rglob("*.parquet"))


def plain(ids: list[int]) -> pa.RecordBatch:
    """A hundred to a month."""
    types = [arrow_type(column.field_type) for column in SCHEMA.fields]
    moments = [JANUARY + (n // 100) * 31 * DAY for n in ids]
    arrays: list[Any] = [ids, moments, [None] * len(ids), [str(n) for n in ids], [None] * len(ids)]
    return pa.RecordBatch.from_arrays(
        [pa.array(values, type_) for values, type_ in zip(arrays, types, strict=True)],
        names=[column.name for column in SCHEMA.fields],
    )


@settings(max_examples=50, deadline=None)
@given(
    st.lists(
        st.tuples(st.integers(0, 300), st.lists(st.sampled_from([0, 1, 1, 1, 1, 2, 40]), min_size=1, max_size=12)),
        max_size=12,
    ),
    st.sampled_from([300, 1500, 2**30]),
    st.booleans(),
)
def test_whatever_order_rows_come_in(
    tmp_path_factory: pytest.TempPathFactory, runs: list[tuple[int, list[int]]], file_bytes: int, rising: bool
) -> None:
    """Runs in order with steps between, one after the other or each beginning anywhere."""
    batches, at = [], 0
    for start, steps in runs:
        at = at if rising else start
        ids = [at := at + step for step in steps]
        batches.append(plain(ids))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(writers, "ROWS_PER_GROUP", 4)
        patch.setattr(writers, "_ROWS_AT_ONCE", 8)
        files = write(tmp_path_factory.mktemp("runs"), *batches, file_bytes=file_bytes)
    found = []
    for file in files:
        ids = table(file)["id"].to_pylist()
        assert ids == sorted(ids)
        assert len(ids) == file.rows
        assert {600 + id_ // 100 for id_ in ids} == {file.partition[0]}
        assert struct.unpack("<qq", file.metrics["lower_bounds"][7] + file.metrics["upper_bounds"][7]) == (
            ids[0],
            ids[-1],
        )
        found += ids
    assert sorted(found) == sorted(id_ for one in batches for id_ in one["id"].to_pylist())


def test_rows_that_come_in_order_are_not_kept(tmp_path: Path) -> None:
    """Nor are they of another file than all others of their partition."""
    writer, kept = Writer(target(tmp_path)), []
    for start in range(0, 40 * 5000, 5000):
        ids = pa.array(range(start, start + 5000), pa.int64())
        writer.add(plain([0] * 5000).set_column(0, "id", ids))
        kept.append(sum(len(array) for array in writer._collected[0]) if writer._collected else 0)
    writer.flush()
    assert max(kept) < 8 * 16_384
    (file,) = writer.written
    assert file.rows == 200_000
    groups = pq.ParquetFile(file.path.removeprefix("file://")).metadata
    assert {groups.row_group(number).num_rows for number in range(groups.num_row_groups - 1)} == {16_384}


def test_a_file_that_rows_are_still_added_to_is_discarded_too(tmp_path: Path) -> None:
    writer = Writer(target(tmp_path))
    writer.add(plain([0] * 140_000))
    assert list(tmp_path.rglob("*.parquet"))
    writer.discard()
    assert not list(tmp_path.rglob("*.parquet"))
