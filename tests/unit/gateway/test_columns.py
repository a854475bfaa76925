"""Columns in memory: kept for whoever asks twice, within bounds, and no longer than somebody reads them."""

from __future__ import annotations

import duckdb
import pytest

from frostline.catalog.cold import ColdColumn
from frostline.gateway.cancel import Canceller
from frostline.gateway.columns import Columns, Kept, size
from frostline.gateway.rows import Cursors
from frostline.lake.storage import Local
from frostline.model.types import storage

NUMBERS = "SELECT i AS c1 FROM range({}) AS t (i)"


class Reader:
    """A session that asks for columns."""

    def __init__(self, capacity: int) -> None:
        self.engine = duckdb.connect()
        self.columns = Columns(self.engine, capacity)
        self.cursors = Cursors(self.engine, Local("."))

    def get(self, text: str, weight: int = 10) -> Kept | None:
        return self.columns.get(text, weight, self.cursors, Canceller())

    @property
    def tables(self) -> list[str]:
        return [name for (name,) in self.engine.execute("SELECT table_name FROM duckdb_tables() ORDER BY 1").fetchall()]


@pytest.fixture
def reader() -> Reader:
    return Reader(50)


def test_who_asks_for_the_second_time_has_it_kept(reader: Reader) -> None:
    text = NUMBERS.format(7)
    assert reader.get(text) is None
    assert reader.tables == []
    kept = reader.get(text)
    assert kept is not None
    assert reader.engine.execute(f"SELECT sum(c1) FROM {kept.name}").fetchone() == (21,)
    assert reader.get(text) is kept
    assert reader.columns.counts() == {
        "columns_hits": 1,
        "columns_misses": 1,
        "columns_entries": 1,
        "columns_bytes": 10,
    }


def test_it_goes_when_there_is_no_room_and_nobody_reads_it(reader: Reader) -> None:
    held = [reader.get(NUMBERS.format(n)) or reader.get(NUMBERS.format(n)) for n in range(6)]
    assert reader.columns.counts()["columns_bytes"] == 50
    assert len(reader.tables) == 6  # the first is still read by somebody
    held.clear()
    assert len(reader.tables) == 5


def test_what_is_still_read_counts(reader: Reader) -> None:
    """Beyond one and a half times of what there may be nothing more is kept, whoever holds it."""
    held = [reader.get(NUMBERS.format(n)) or reader.get(NUMBERS.format(n)) for n in range(9)]
    assert [kept is not None for kept in held] == [True] * 7 + [False] * 2
    held.clear()
    assert reader.get(NUMBERS.format(8)) is not None


def test_of_more_than_there_is_room_for_a_part_stays(reader: Reader) -> None:
    """Were each to push out the one that is asked for next, all would be loaded in vain."""
    for _ in range(3):
        for n in range(8):
            reader.get(NUMBERS.format(n))
    counts = reader.columns.counts()
    assert (counts["columns_entries"], counts["columns_misses"], counts["columns_hits"]) == (5, 5, 5)


def test_one_loads_it_while_others_read_the_files(reader: Reader) -> None:
    text = NUMBERS.format(7)
    found: list[Kept | None] = []

    class Taking(Cursors):
        def take(self) -> duckdb.DuckDBPyConnection:
            found.append(reader.get(text))
            return super().take()

    assert reader.get(text) is None
    kept = reader.columns.get(text, 10, Taking(reader.engine, Local(".")), Canceller())
    assert kept is not None
    assert found == [None]
    assert reader.tables == [kept.name]


def test_what_would_push_out_most_of_the_rest_is_not_kept(reader: Reader) -> None:
    assert [reader.get(NUMBERS.format(7), 26) for _ in range(3)] == [None, None, None]
    assert reader.tables == []


def test_what_cannot_be_read_is_left_to_others_and_not_tried_again(reader: Reader) -> None:
    text = "SELECT * FROM gone"
    assert [reader.get(text) for _ in range(3)] == [None, None, None]
    reader.engine.execute("CREATE TABLE gone (i int)")
    assert reader.get(text) is None


def kept_columns(*types: str) -> list[ColdColumn]:
    return [
        ColdColumn(n, "c", name, name, 0, -1, name, False, False, storage(name), n, "c", None, True, True)
        for n, name in enumerate(types)
    ]


@pytest.mark.parametrize(
    ("type_", "value"),
    [
        ("bool", "i % 2 = 0"),
        ("int4", "i::INT"),
        ("int8", "i"),
        ("float4", "i::FLOAT"),
        ("uuid", "md5(i::VARCHAR)::UUID"),
    ],
)
@pytest.mark.parametrize("rows", [1000, 122_880, 1_000_000])
def test_how_much_columns_take_is_known(type_: str, value: str, rows: int) -> None:
    engine = duckdb.connect()
    engine.execute(f"CREATE TABLE t AS SELECT CASE WHEN i % 7 > 0 THEN {value} END AS c FROM range({rows}) r (i)")
    (taken,) = engine.execute(
        "SELECT memory_usage_bytes FROM duckdb_memory() WHERE tag = 'IN_MEMORY_TABLE'"
    ).fetchone() or (0,)
    expected = size(kept_columns(type_), rows) or 0
    assert taken <= expected * 1.05
    assert expected <= taken + 2 * 262_144


def test_of_texts_it_is_not_known() -> None:
    assert size(kept_columns("int8", "text"), 5) is None


def test_what_is_dropped_while_a_query_goes_on_counts() -> None:
    """DuckDB keeps it until then: one cursor that is left open must not make it keep all that ever was."""
    million = 1_000_000
    weight = size(kept_columns("int8"), million) or 0
    reader = Reader(3 * weight)
    rows = reader.engine.cursor().execute("SELECT i, repeat('x', 20) FROM range(1000000) r (i)").to_arrow_reader(1000)
    rows.read_next_batch()
    for n in range(30):
        for _ in range(2):
            reader.get(f"SELECT i + {n} AS c1 FROM range({million}) r (i)", weight)
    (taken,) = reader.engine.execute(
        "SELECT memory_usage_bytes + temporary_storage_bytes FROM duckdb_memory() WHERE tag = 'IN_MEMORY_TABLE'"
    ).fetchone() or (0,)
    assert taken <= 2 * 3 * weight + 80_000_000
    assert reader.columns.counts()["columns_bytes"] <= 3 * weight
