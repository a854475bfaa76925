"""A few rows of a file, found without an engine: always those that a look at every row finds."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from random import Random

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from frostline.lake import point


@pytest.fixture(autouse=True)
def _nothing_open() -> Iterator[None]:
    point.close_unused(0)
    yield
    point.close_unused(0)


def written(path: Path, ids: list[int], days: list[int]) -> str:
    fields = [
        pa.field(name, type_, metadata={"PARQUET:field_id": str(number)})
        for number, (name, type_) in enumerate((("id", pa.int64()), ("day", pa.int32()), ("t", pa.string())), 1)
    ]
    columns = [pa.array(ids, pa.int64()), pa.array(days, pa.int32()), pa.array([f"row {n}" for n in range(len(ids))])]
    pq.write_table(pa.Table.from_arrays(columns, schema=pa.schema(fields)), path, row_group_size=max(len(ids), 1))
    return str(path)


def open_in(directory: Path) -> list[str]:
    found = []
    for descriptor in Path("/proc/self/fd").iterdir():
        try:
            found.append(str(descriptor.readlink()))
        except OSError:
            continue
    return [path for path in found if path.startswith(str(directory))]


@pytest.mark.parametrize("seed", range(20))
def test_the_rows_are_those_with_such_values(tmp_path: Path, seed: int) -> None:
    random = Random(seed)
    ids = [random.choice((random.randrange(-5, 30), 2**63 - 1, -(2**63))) for _ in range(random.choice((1, 2, 60)))]
    if seed % 2:
        ids.sort()
    days = [random.randrange(4) for _ in ids]
    path = written(tmp_path / "file.parquet", ids, days)
    for _ in range(60):
        low = random.choice((*ids, *range(-7, 33)))
        high = max(low, random.choice((low, low, low + 3, 2**63 - 1)))
        spans = {1: (low, high)} | ({2: (day, day)} if (day := random.randrange(5)) else {})
        found = point.find(path, spans, [3, 1, 2], 1000)
        wanted = [
            [f"row {at}", str(id_), str(on)]
            for at, (id_, on) in enumerate(zip(ids, days, strict=True))
            if low <= id_ <= high and (2 not in spans or on == day)
        ]
        assert found is not None
        assert found.rows() == wanted, spans


def test_a_file_that_was_removed_takes_its_room_no_longer_than_it_is_used(tmp_path: Path) -> None:
    path = written(tmp_path / "file.parquet", [1, 2, 3], [0, 0, 0])
    for _ in range(2):
        assert point.find(path, {1: (2, 2)}, [3], 10) is not None
    assert open_in(tmp_path) == [path]
    Path(path).unlink()
    point.close_unused(3600)
    assert open_in(tmp_path) == [f"{path} (deleted)"]
    point.close_unused(0)
    assert open_in(tmp_path) == []


def test_few_files_stay_open(tmp_path: Path) -> None:
    for number in range(point._OPEN + 10):
        path = written(tmp_path / f"{number}.parquet", [number], [number])
        found = point.find(path, {1: (number, number)}, [2], 10)
        assert found is not None
        assert found.rows() == [[str(number)]]
    assert len(open_in(tmp_path)) == point._OPEN
