"""Batches become the same messages row-wise code would build."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from frostline.gateway import encode
from frostline.gateway.wire import messages

VALUES = st.one_of(st.none(), st.text(st.characters(exclude_categories=["Cs"]), max_size=20))
ROWS = st.lists(st.tuples(VALUES, VALUES, VALUES), min_size=1, max_size=30)


def batch(rows: list[tuple[str | None, ...]]) -> pa.RecordBatch:
    columns = [pa.array(values, pa.string()) for values in zip(*rows, strict=True)]
    return pa.RecordBatch.from_arrays(columns, names=[f"c{i}" for i in range(len(columns))])


@given(ROWS, st.integers(0, 30), st.sampled_from([0, 20, 300]))
def test_data_rows_equal_the_plain_encoding(rows: list[tuple[str | None, ...]], start: int, few: int) -> None:
    """By the value or by the column, whichever the batch's size calls for."""
    expected = b"".join(
        messages.data_row([None if value is None else value.encode() for value in row]) for row in rows[start:]
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(encode, "FEW_VALUES", few)
        assert b"".join(encode.data_rows(batch(rows).slice(start))) == expected


@pytest.mark.parametrize(
    ("value", "written"),
    [(None, "\\N"), ("", ""), ("\\N", "\\\\N"), ("a\tb\nc\rd\\", "a\\tb\\nc\\rd\\\\"), ("\\.", "\\\\.")],
)
def test_copy_lines_escape_what_copy_reads(value: str | None, written: str) -> None:
    lines = b"".join(encode.copy_lines(batch([(value, "x", None)])))
    assert lines.decode() == f"{written}\tx\t\\N\n"


def test_a_batch_too_large_for_one_buffer_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(encode, "MAX_BUFFER", 100)
    monkeypatch.setattr(encode, "FEW_VALUES", 0)
    rows: list[tuple[str | None, ...]] = [(str(number) * 10, None) for number in range(50)]
    pieces = list(encode.data_rows(batch(rows)))
    assert len(pieces) > 5
    assert b"".join(pieces) == b"".join(messages.data_row([str(row[0]).encode(), None]) for row in rows)
