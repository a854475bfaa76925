"""Arrow batches of text columns turned into wire messages or COPY lines, a column at a time."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from frostline.gateway.wire import messages

# Arrow's binary arrays have 32-bit offsets; one message buffer stays far below that.
MAX_BUFFER = 256 * 1024 * 1024
# Below this Arrow's cost per call is more than Python's per value: a row of a point look-up takes 10 us, not 500.
FEW_VALUES = 300
_NULL = b"\\N"
_ESCAPES = (("\\", "\\\\"), ("\t", "\\t"), ("\n", "\\n"), ("\r", "\\r"))
_HEAD = np.dtype([("kind", "S1"), ("length", ">i4"), ("columns", ">i2")])


def data_rows(batch: pa.RecordBatch) -> Iterator[memoryview]:
    """All DataRow messages of a batch."""
    if batch.num_rows * batch.num_columns <= FEW_VALUES:
        yield memoryview(_one_by_one(batch))
        return
    for piece in _pieces(batch):
        yield _data_rows(piece)


def _one_by_one(batch: pa.RecordBatch) -> bytes:
    columns = [column.to_pylist() for column in batch.columns]
    rows = zip(*columns, strict=True) if columns else [()] * batch.num_rows
    return b"".join(messages.data_row([None if value is None else value.encode() for value in row]) for row in rows)


def copy_lines(batch: pa.RecordBatch) -> Iterator[memoryview]:
    """The rows of a batch in COPY's text format."""
    for piece in _pieces(batch):
        columns = [_copy_text(column) for column in piece.columns]
        line = pc.binary_join_element_wise(*columns, "\t")
        yield _buffer(pc.binary_join_element_wise(line, "", "\n").cast(pa.binary()))


def lines(values: Sequence[bytes | None], width: int, last: int) -> bytes:
    """Rows of so many values, and a number behind each, in COPY's text format."""
    some = iter([_NULL if value is None else value for value in values])
    found = _joined(some, width, last)
    # Mostly there is nothing in a value that would have to be escaped: then all such bytes are ours.
    rows, nulls = len(values) // width, values.count(None)
    expected = {b"\t": rows * width, b"\n": rows, b"\\": nulls, b"\r": 0}
    if all(found.count(byte) == number for byte, number in expected.items()):
        return found
    return _joined(map(_copy_value, values), width, last)


def _joined(values: Iterator[bytes], width: int, last: int) -> bytes:
    rows = zip(*[values] * width, itertools.repeat(b"%d\n" % last))
    return b"".join(map(b"\t".join, rows))


def _copy_value(value: bytes | None) -> bytes:
    """One value in COPY's text format."""
    if value is None:
        return _NULL
    for raw, written in _ESCAPES:
        value = value.replace(raw.encode(), written.encode())
    return value


def _pieces(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """The batch in parts small enough for one buffer."""
    if batch.num_rows == 0:
        return
    if batch.num_rows == 1 or batch.get_total_buffer_size() < MAX_BUFFER or batch.nbytes < MAX_BUFFER:
        yield batch
        return
    half = batch.num_rows // 2
    yield from _pieces(batch.slice(0, half))
    yield from _pieces(batch.slice(half))


def _data_rows(batch: pa.RecordBatch) -> memoryview:
    rows = batch.num_rows
    total = np.full(rows, 6, dtype=np.int64)
    pieces: list[Any] = []
    for column in batch.columns:
        text = column.cast(pa.binary())
        length = pc.fill_null(pc.binary_length(text), -1).to_numpy(zero_copy_only=False)
        total += 4 + np.maximum(length, 0)
        pieces += [_fixed(length.astype(">i4")), pc.fill_null(text, b"")]
    head = np.zeros(rows, dtype=_HEAD)
    head["kind"], head["length"], head["columns"] = b"D", total, batch.num_columns
    return _buffer(pc.binary_join_element_wise(_fixed(head), *pieces, b""))


def _fixed(values: Any) -> Any:
    """An array of fixed-width binary values from a numpy array of the same bytes."""
    width = values.dtype.itemsize
    data = pa.py_buffer(values.tobytes())
    return pa.FixedSizeBinaryArray.from_buffers(pa.binary(width), len(values), [None, data]).cast(pa.binary())


def _copy_text(column: Any) -> Any:
    for raw, written in _ESCAPES:
        column = pc.replace_substring(column, raw, written)
    return pc.fill_null(column, "\\N")


def _buffer(joined: Any) -> memoryview:
    offsets = np.frombuffer(joined.buffers()[1], dtype=np.int32)
    return memoryview(joined.buffers()[2])[: offsets[len(joined)]]
