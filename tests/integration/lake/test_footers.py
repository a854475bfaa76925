"""Files are read by position only where their own footers say that it is the same."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest
from pyarrow import parquet
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IcebergType,
    IntegerType,
    LongType,
    NestedField,
    StringType,
    TimestampType,
    TimestamptzType,
    UUIDType,
)

from frostline.lake.engine import duckdb_type, open_engine
from frostline.lake.footers import aligned_scan

FIELDS = {
    "c1": NestedField(1, "id", LongType(), required=True),
    "c3": NestedField(3, "note", StringType()),
}


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[duckdb.DuckDBPyConnection]:
    opened = open_engine(memory="200MB", threads=1, directory=tmp_path / "spill")
    yield opened
    opened.close()


def written(engine: duckdb.DuckDBPyConnection, path: Path, select: str, ids: str) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    engine.execute(f"COPY ({select}) TO '{path}' (FORMAT parquet, FIELD_IDS {{{ids}}})")
    return str(path)


def test_columns_are_found_by_field_id_whatever_they_are_called(
    engine: duckdb.DuckDBPyConnection, tmp_path: Path
) -> None:
    columns = {
        "list": (9, pa.list_(pa.field("element", pa.int32(), metadata={"PARQUET:field_id": "10"})), [1, 2]),
        "was_note": (3, pa.string(), "x"),
        "A b": (1, pa.int64(), 7),
        "a B": (4, pa.int64(), 8),  # to DuckDB the same name
    }
    schema = pa.schema(
        [pa.field(name, type_, metadata={"PARQUET:field_id": str(id_)}) for name, (id_, type_, _) in columns.items()]
    )
    files = []
    for number in range(3):
        # The directory's name must not become a column.
        files.append(str(tmp_path / "period=1" / f"{number}.parquet"))
        Path(files[-1]).parent.mkdir(exist_ok=True)
        parquet.write_table(pa.Table.from_arrays([[value] for *_, value in columns.values()], schema=schema), files[-1])
    scan = aligned_scan(engine, files, FIELDS)
    assert scan is not None
    assert engine.execute(f"SELECT c1, c3 FROM {scan}").fetchall() == [(7, "x")] * 3


@pytest.mark.parametrize(
    ("select", "ids"),
    [
        ("SELECT 7::BIGINT AS id", "id: 1"),  # from before a column was added
        ("SELECT 7::INTEGER AS id, 'x' AS note", "id: 1, note: 3"),  # from before a column was widened
        ("SELECT 7::BIGINT AS id, 'x' AS note", "id: 1, note: 4"),  # the name of a column that was dropped
        ("SELECT 'x' AS note, 7::BIGINT AS id", "id: 1, note: 3"),  # another order than the first file's
    ],
)
def test_files_that_differ_are_left_to_the_map(
    engine: duckdb.DuckDBPyConnection, tmp_path: Path, select: str, ids: str
) -> None:
    usual = written(engine, tmp_path / "1.parquet", "SELECT 7::BIGINT AS id, 'x' AS note", "id: 1, note: 3")
    other = written(engine, tmp_path / "2.parquet", select, ids)
    assert aligned_scan(engine, [usual], FIELDS) is not None
    assert aligned_scan(engine, [usual, other], FIELDS) is None


def test_a_column_of_another_type_is_not_taken(engine: duckdb.DuckDBPyConnection, tmp_path: Path) -> None:
    file = written(engine, tmp_path / "1.parquet", "SELECT 7::BIGINT AS id", "id: 1")
    assert aligned_scan(engine, [file], {"c1": NestedField(1, "id", IntegerType())}) is None


def test_every_type_of_the_lake_is_recognised(engine: duckdb.DuckDBPyConnection, tmp_path: Path) -> None:
    types: list[IcebergType] = [
        BooleanType(),
        IntegerType(),
        LongType(),
        FloatType(),
        DoubleType(),
        DateType(),
        TimestampType(),
    ]
    types += [TimestamptzType(), UUIDType(), BinaryType(), StringType(), DecimalType(9, 2), DecimalType(38, 0)]
    fields = {f"c{at}": NestedField(at, f"n{at}", type_) for at, type_ in enumerate(types, 1)}
    select = ", ".join(f"CAST(NULL AS {duckdb_type(f.field_type)}) AS {f.name}" for f in fields.values())
    file = written(
        engine,
        tmp_path / "1.parquet",
        f"SELECT {select}",
        ", ".join(f"{f.name}: {f.field_id}" for f in fields.values()),
    )
    assert aligned_scan(engine, [file], fields) is not None


def test_a_file_that_is_not_there_is_named(engine: duckdb.DuckDBPyConnection, tmp_path: Path) -> None:
    with pytest.raises(duckdb.IOException, match=r"none\.parquet"):
        aligned_scan(engine, [str(tmp_path / "none.parquet")], FIELDS)
