"""Results in pieces: what fails stays failed, and what is closed reads nothing more."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import duckdb
import pytest

from frostline.errors import LakeError, QueryError
from frostline.gateway.cancel import Canceller
from frostline.gateway.rows import Batches, Cursors, FixedRows, LakeRows, ToldRows
from frostline.gateway.wire.messages import Field
from frostline.lake.storage import Local

NUMBERS = "SELECT i::VARCHAR AS n FROM range(40000) t(i)"
FAILS = "SELECT CASE WHEN i = 600000 THEN error('no') ELSE i::VARCHAR END AS n FROM range(1000000) t(i)"


@pytest.fixture
def cursors(tmp_path: Path) -> Iterator[Cursors]:
    with duckdb.connect(config={"threads": 1}) as engine:
        yield Cursors(engine, Local(str(tmp_path)))


def taken(rows: LakeRows, wanted: int) -> int:
    return sum(count for _, count in rows.take(wanted))


@pytest.mark.parametrize("ahead", [False, True])
def test_after_an_error_no_row_is_passed_over(cursors: Cursors, ahead: bool) -> None:
    """A savepoint may bring the client back to the cursor, but not the rows that were on their way."""
    rows = LakeRows([], Batches(cursors, Canceller(), FAILS))
    assert taken(rows, 10_000) == 10_000
    if ahead:
        rows.prepare(900_000)
    for _ in range(2):
        with pytest.raises(LakeError):
            taken(rows, 900_000)


def test_after_a_cancelled_look_ahead_no_row_is_passed_over(cursors: Cursors) -> None:
    canceller = Canceller()
    rows = LakeRows([], Batches(cursors, canceller, NUMBERS))
    assert taken(rows, 10_000) == 10_000
    canceller.begin()
    canceller.cancel_once()
    rows.prepare(10_000)
    canceller.finish()
    canceller.begin()
    for _ in range(2):
        with pytest.raises(QueryError, match="cancel"):
            taken(rows, 10_000)


def test_what_was_closed_does_not_read_over_a_connection_it_gave_back(cursors: Cursors) -> None:
    closed = LakeRows([], Batches(cursors, Canceller(), NUMBERS))
    closed.close()
    other = LakeRows([], Batches(cursors, Canceller(), NUMBERS))
    assert taken(other, 15_000) == 15_000
    closed.prepare(10_000)
    assert taken(other, 40_000) == 25_000


def test_of_rows_is_told_before_the_first_of_them_is_given() -> None:
    told: list[int] = []
    none = ToldRows(FixedRows([Field("n")]), lambda: told.append(1))
    assert (list(none.take(None)), told) == ([], [])
    some = ToldRows(FixedRows([Field("n")], [["1"], ["2"]]), lambda: told.append(1))
    pieces = some.take(None)
    next(pieces)
    assert told == [1]
    some.restart()
    assert len(list(some.take(1))) == 1


def test_rows_that_nobody_has_read_to_their_end_keep_no_table_that_is_dropped(tmp_path: Path) -> None:
    """DuckDB frees it when whatever began before is over: an idle session would hold on to it."""
    with duckdb.connect() as engine:
        cursors = Cursors(engine, Local(str(tmp_path)))
        rows = LakeRows([], Batches(cursors, Canceller(), FAILS))
        assert taken(rows, 10) == 10
        rows.close()
        engine.execute("CREATE TABLE dropped AS SELECT random() AS r FROM range(1000000)")
        memory = "SELECT memory_usage_bytes FROM duckdb_memory() WHERE tag = 'IN_MEMORY_TABLE'"
        (before,) = engine.execute(memory).fetchone() or (0,)
        engine.execute("DROP TABLE dropped")
        (after,) = engine.execute(memory).fetchone() or (0,)
        assert before > 4_000_000 > after
