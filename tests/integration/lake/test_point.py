"""Rows read from a file by a value are those that DuckDB finds there, and Postgres reads the same values from them."""

from __future__ import annotations

import random
import uuid
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import psycopg
import pyarrow as pa
import pytest
from pyarrow import parquet
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import MonthTransform
from pyiceberg.types import LongType, NestedField, TimestamptzType

from frostline.lake import point
from frostline.lake.layout import ROWS_PER_GROUP
from frostline.lake.writer import Target, Writer

Columns = Mapping[int, tuple[pa.DataType, Sequence[Any]]]  # by field id
DAY, MOMENT = date(2024, 2, 29), datetime(2024, 2, 29, 23, 59, 59, 123456)
# Types of Postgres and Arrow, and values.
TYPES: dict[str, tuple[pa.DataType, list[Any]]] = {
    "boolean": (pa.bool_(), [True, False]),
    "integer": (pa.int32(), [-(2**31), 2**31 - 1]),
    "bigint": (pa.int64(), [-(2**63), 2**63 - 1]),
    "real": (pa.float32(), [0.1, -0.0, 1e-45, 3.4028235e38, float("inf"), float("nan")]),
    "double precision": (pa.float64(), [0.1, -0.0, 5e-324, 1.7976931348623157e308, 1e22, float("-inf"), float("nan")]),
    "date": (pa.date32(), [date(1, 1, 1), DAY, date(9999, 12, 31)]),
    "timestamp": (pa.timestamp("us"), [datetime(1, 1, 1), MOMENT, datetime(2024, 1, 1, 0, 0, 10)]),
    "timestamptz": (pa.timestamp("us", "UTC"), [MOMENT.replace(tzinfo=UTC), datetime(1999, 1, 1, tzinfo=UTC)]),
    "numeric(38, 10)": (pa.decimal128(38, 10), [Decimal("-0.0000000001"), Decimal(10) ** 27, Decimal(0)]),
    "text": (pa.string(), ["", "it's\t\\N\n", "grün 🌲"]),
    "bytea": (pa.binary(), [b"", b"\x00\xff'\\"]),
    "uuid": (pa.uuid(), [uuid.UUID(int=2**128 - 1).bytes]),
}


def written(path: Path, columns: Columns, **options: Any) -> str:
    schema = pa.schema(
        [pa.field(f"f {n}", type_, metadata={"PARQUET:field_id": str(n)}) for n, (type_, _) in columns.items()]
    )
    arrays = [pa.array(values, type_) for type_, values in columns.values()]
    parquet.write_table(pa.table(arrays, schema=schema), path, **options)
    return path.as_uri()


def rows(location: str, spans: point.Spans, wanted: Sequence[int], most: int) -> list[point.Row] | None:
    found = point.find(location, spans, wanted, most)
    return None if found is None else found.rows()


def exactly(values: Mapping[int, int]) -> dict[int, point.Span]:
    return {number: (value, value) for number, value in values.items()}


def one_by_one(location: str, keys: Sequence[int]) -> list[point.Row]:
    return [row for key in keys for row in rows(location, exactly({1: key}), [7, 1], 10) or ()]


def together(location: str, keys: Sequence[int]) -> list[point.Row]:
    found = point.find(location, {1: (keys[0], keys[-1])}, [7, 1], len(keys))
    assert found is not None
    batch = found.batch()
    assert batch is not None
    return [list(row) for row in zip(*(column.to_pylist() for column in batch.columns), strict=True)]


@pytest.mark.parametrize("read", [one_by_one, together])
@pytest.mark.parametrize("name", TYPES)
def test_postgres_reads_the_same_values(
    name: str, read: Callable[[str, Sequence[int]], list[point.Row]], dsn: str, tmp_path: Path
) -> None:
    type_, values = TYPES[name]
    keys = list(range(len(values) + 1))
    columns = {1: (pa.int64(), keys), 7: (type_, [*values, None])}
    found = read(written(tmp_path / "a.parquet", columns, row_group_size=len(values)), keys)
    assert [row[1] for row in found] == [str(key) for key in keys]
    texts = [row[0] for row in found]
    assert texts.pop() is None
    with psycopg.connect(dsn, autocommit=True) as connection:
        for text, value in zip(texts, values, strict=True):
            given = uuid.UUID(bytes=value) if name == "uuid" else value
            # By their bytes: a NaN is not equal to itself, and 0 is to -0.
            send = {"numeric(38, 10)": "numeric_send", "double precision": "float8send", "real": "float4send"}.get(name)
            same = f"{send}(%s::{name}) = {send}(%s::{name})" if send else f"%s::{name} = %s::{name}"
            assert connection.execute(f"SELECT {same}", [text, given]).fetchone() == (True,), (text, value)


def test_rows_are_found_by_every_kind_of_value_and_null_is_none(tmp_path: Path) -> None:
    numbers = [number if number % 3 else None for number in range(100)]
    columns: Columns = {1: (pa.int64(), numbers), 2: (pa.int32(), list(range(100))), 3: (pa.date32(), [DAY] * 100)}
    location = written(tmp_path / "a.parquet", columns, row_group_size=20)
    assert rows(location, exactly({1: 50}), [2], 10) == [["50"]]
    assert rows(location, exactly({1: 51}), [2], 10) == []
    assert rows(location, exactly({2: 51}), [1, 3], 10) == [[None, "2024-02-29"]]
    assert rows(location, exactly({1: 50, 2: 50}), [2], 10) == [["50"]]
    assert rows(location, exactly({1: 50, 2: 52}), [2], 10) == []
    assert rows(location, exactly({2: 51}), [3], 10) == [["2024-02-29"]]  # other columns of a row group that is known
    assert rows(location, exactly({2: 2**70}), [3], 10) == []
    assert rows(location, exactly({1: 0}), [2], 10) == []


def test_what_is_not_plain_is_for_duckdb(tmp_path: Path) -> None:
    columns: Columns = {1: (pa.int64(), [1, 2, 3, 1]), 2: (pa.float64(), [1.0] * 4), 3: (pa.string(), ["x"] * 4)}
    location = written(tmp_path / "a.parquet", columns, row_group_size=2)
    assert rows(location, exactly({1: 3}), [3], 10) == [["x"]]
    assert rows(location, exactly({1: 1}), [3], 10) == [["x"]] * 2
    spread = written(tmp_path / "spread.parquet", {1: (pa.int64(), [1] * 4)}, row_group_size=1)
    assert rows(spread, exactly({1: 1}), [1], 10) is None  # four row groups may have it
    assert rows(location, exactly({2: 1}), [3], 10) is None  # no whole number
    assert rows(location, exactly({1: 3}), [4], 10) is None  # a column that the file does not have
    assert rows(location, exactly({4: 3}), [3], 10) is None
    assert rows(location, exactly({}), [3], 10) is None
    assert rows("s3://bucket/a.parquet", exactly({1: 3}), [3], 10) is None
    assert rows((tmp_path / "gone.parquet").as_uri(), exactly({1: 3}), [3], 10) is None
    (tmp_path / "no.parquet").write_bytes(b"no Parquet")
    assert rows((tmp_path / "no.parquet").as_uri(), exactly({1: 3}), [3], 10) is None
    many = written(tmp_path / "many.parquet", {1: (pa.int64(), [7] * 11)})
    assert rows(many, exactly({1: 7}), [1], 10) is None
    assert rows(many, exactly({1: 7}), [1], 11) == [["7"]] * 11
    pair = pa.struct([("a", pa.int64()), ("b", pa.int64())])
    nested = written(tmp_path / "nested.parquet", {1: (pair, [{"a": 5, "b": 6}]), 2: (pa.int64(), [1])})
    assert rows(nested, exactly({2: 1}), [2], 10) is None
    listed = written(tmp_path / "list.parquet", {1: (pa.list_(pa.int64()), [[1, 2]]), 2: (pa.int64(), [1])})
    assert rows(listed, exactly({2: 1}), [1], 10) is None
    assert rows(listed, exactly({2: 1}), [2], 10) == [["1"]]
    zoned = {1: (pa.int64(), [1]), 2: (pa.timestamp("us", "Europe/Berlin"), [0])}
    assert rows(written(tmp_path / "zoned.parquet", zoned), exactly({1: 1}), [2], 10) is None
    late = {1: (pa.int64(), [1, 2]), 2: (pa.timestamp("us"), [0, 2**62])}
    assert rows(written(tmp_path / "late.parquet", late), exactly({1: 2}), [2], 10) is None  # Python has no such year


def test_words_that_come_again_and_again_are_not_written_out_for_every_row(tmp_path: Path) -> None:
    """They take next to nothing in the file; a look-up of one row would take gigabytes otherwise."""
    words = [letter * 20_000 for letter in "abcdefghij"]
    places = pa.array([n % 11 if n % 11 < 10 else None for n in range(16_000)], pa.int32())
    texts = pa.DictionaryArray.from_arrays(places, pa.array(words)).cast(pa.string())
    keys = pa.array(range(16_000), pa.int64())
    columns: Columns = {1: (pa.int64(), keys), 2: (pa.string(), texts), 3: (pa.binary(), texts.cast(pa.binary()))}
    location = written(tmp_path / "a.parquet", columns)
    del texts, columns
    before = pa.total_allocated_bytes()
    pool = pa.default_memory_pool()
    taken = pool.max_memory() or 0
    assert rows(location, exactly({1: 13}), [2, 3, 1], 10) == [[words[2], rf"\x{words[2].encode().hex()}", "13"]]
    assert rows(location, exactly({1: 21}), [2, 3], 10) == [[None, None]]
    assert (pool.max_memory() or 0) <= max(taken, before + 50_000_000)
    found = point.find(location, {1: (20, 500)}, [2, 1], 10_000)
    assert found is not None
    batch = found.batch()
    assert batch is not None
    assert batch.column(0).to_pylist() == [words[n % 11] if n % 11 < 10 else None for n in range(20, 501)]
    assert found.rows() == [[words[n % 11] if n % 11 < 10 else None, str(n)] for n in range(20, 501)]
    many = point.find(location, {1: (0, 9_000)}, [2], 10_000)
    assert many is not None
    assert many.batch() is None  # 160 MB: DuckDB gives them piece by piece


RANDOM = random.Random(7)
KEYS = [
    2 * RANDOM.getrandbits(61) for _ in range(8 * 2048)
]  # in no order, and even: every row group's bounds cover all
FILTERED = {"row_group_size": 2048, "bloom_filter_options": {"f 1": {"ndv": 2048, "fpp": 0.01}}}


def spoil(location: str, spared: set[int]) -> None:
    """The values of all row groups but some are gone: whoever reads them fails, or finds nothing."""
    path = Path(location.removeprefix("file://"))
    footer = parquet.read_metadata(path)
    with path.open("r+b") as file:
        for group in set(range(footer.num_row_groups)) - spared:
            for place in range(footer.num_columns):
                chunk = footer.row_group(group).column(place)
                file.seek(chunk.dictionary_page_offset or chunk.data_page_offset)
                file.write(b"\xff" * chunk.total_compressed_size)


@pytest.mark.parametrize("type_", [pa.int64(), pa.int32(), pa.timestamp("us", "UTC")], ids=str)
def test_row_groups_that_a_bloom_filter_excludes_are_not_read(tmp_path: Path, type_: pa.DataType) -> None:
    keys = [key >> 31 & ~1 for key in KEYS] if type_ == pa.int32() else KEYS
    columns = {1: (type_, keys), 2: (pa.int64(), list(range(len(keys))))}
    location = written(tmp_path / "a.parquet", columns, **FILTERED)
    for at in (0, 5000, len(keys) - 1):
        assert rows(location, exactly({1: keys[at]}), [2], 10) == [[str(at)]]
    absent = [key + 1 for key in keys[:200]]
    assert sum(rows(location, exactly({1: key}), [2], 10) == [] for key in absent) == len(absent)
    other = written(tmp_path / "b.parquet", columns, **FILTERED)
    spoil(other, {5000 // 2048})
    wanted = keys[5000:5100]
    found = [rows(other, exactly({1: key}), [2], 10) for key in wanted]
    # One in a hundred of what is not there is taken for possible, in each of the seven others.
    assert sum(rows == [[str(5000 + at)]] for at, rows in enumerate(found)) > 80
    without = written(tmp_path / "c.parquet", columns, row_group_size=2048)
    assert rows(without, exactly({1: keys[5000]}), [2], 10) is None


def test_files_of_the_lake_are_searched_by_their_bloom_filters(tmp_path: Path) -> None:
    """Random keys in files that are sorted by time: DuckDB reads what they leave, and so do look-ups of our own."""
    schema = Schema(
        NestedField(1, "id", LongType(), required=True), NestedField(2, "ts", TimestamptzType(), required=True)
    )
    spec = PartitionSpec(PartitionField(2, 1000, MonthTransform(), "period"))
    order = (("ts", "ascending", "at_end"), ("id", "ascending", "at_end"))
    place = f"file://{tmp_path}"
    writer = Writer(Target(schema, spec, order, ("id",), place, {}, {}, file_bytes=2**30, prefix="operation-5"))
    keys = [2 * RANDOM.getrandbits(61) for _ in range(4 * ROWS_PER_GROUP)]
    moments = pa.array(range(len(keys)), pa.timestamp("us", "UTC"))
    writer.add(pa.RecordBatch.from_arrays([pa.array(keys, pa.int64()), moments], names=["id", "ts"]))
    writer.flush()
    (file,) = writer.written
    spoil(file.path, {1})
    held = keys[ROWS_PER_GROUP : ROWS_PER_GROUP + 100]
    ours = [rows(file.path, exactly({1: key}), [1], 10) for key in held]
    assert sum(rows == [[str(key)]] for key, rows in zip(held, ours, strict=True)) > 60
    assert sum(_duckdb(file.path, key) == [(key,)] for key in held) > 60


def _duckdb(location: str, key: int) -> list[Any] | None:
    try:
        return duckdb.execute("SELECT id FROM read_parquet(?) WHERE id = ?", [location, key]).fetchall()
    except duckdb.Error:  # it has read what is spoilt
        return None


@pytest.mark.parametrize(
    "type_", [pa.int32(), pa.int64(), pa.date32(), pa.timestamp("us"), pa.timestamp("us", "UTC")], ids=str
)
def test_rows_between_values(type_: pa.DataType, tmp_path: Path) -> None:
    """In a column that is sorted, one that is not, and one with NULLs; of two row groups; out of every bound."""
    random.seed(str(type_))
    numbers = pa.int32() if type_ in (pa.int32(), pa.date32()) else pa.int64()
    least, most = (
        (-(2 ** (numbers.bit_width - 1)), 2 ** (numbers.bit_width - 1) - 1)
        if pa.types.is_integer(type_)
        else (-700_000, 2_000_000)
    )
    ascending = sorted([least, most, *(random.randrange(-500, 500) for _ in range(398))])
    mixed = random.sample(ascending, len(ascending))
    lacking = [None if n % 7 == 0 else n for n in mixed]
    columns = {at + 1: (numbers, found) for at, found in enumerate((ascending, mixed, lacking))}
    arrays = {n: (type_, pa.array(found, numbers).view(type_)) for n, (_, found) in columns.items()}
    location = written(tmp_path / "a.parquet", {**arrays, 9: (pa.int64(), range(400))}, row_group_size=200)
    whole = [least - 1, least, -600, -500, -3, 0, 1, 250, 499, 600, most, most + 1, 2**63, 2**70]
    spans = [*((low, high) for low in whole for high in whole), *((n, n) for n in random.sample(mixed, 20))]
    for span in spans:
        for one in ({1: span}, {2: span}, {3: span}, {1: (-400, 400), 3: span}):
            wanted = [
                [str(at)]
                for at in range(400)
                if all((v := columns[n][1][at]) is not None and low <= v <= high for n, (low, high) in one.items())
            ]
            found = point.find(location, one, [9], 400)
            assert found is not None
            assert found.rows() == wanted, one
            batch = found.batch()
            assert batch is not None
            assert [[text] for text in batch.column(0).to_pylist()] == wanted, one
            few = rows(location, one, [9], 30)
            assert few is None if len(wanted) > 30 else few in (None, wanted), one
