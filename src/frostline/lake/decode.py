"""Rows of a binary COPY as Arrow columns, without a step in Python per value.

A block is some rows joined into one buffer. Where each row begins is known, so a column is read from all rows at once:
its length word at every row's position, its value behind it, and the positions move on. Rows of one length whose
columns have one length each are read with a stride, which is many times faster than by position.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

_SIGNATURE = b"PGCOPY\n\xff\r\n\0"
TRAILER = b"\xff\xff"  # the last message
_HEADER_BYTES = len(_SIGNATURE) + 8  # flags and the length of an extension that nobody has written yet
_PADDING = bytes(16)  # the value of a NULL in the last row is read past its end, and thrown away
_DAYS_TO_2000 = 10_957
_MICROS_TO_2000 = _DAYS_TO_2000 * 86_400_000_000
_INT4, _INT8 = np.iinfo(np.int32), np.iinfo(np.int64)
# What Postgres writes for -infinity and infinity.
_INFINITE = {np.dtype(np.int32): (_INT4.min, _INT4.max), np.dtype(np.int64): (_INT8.min, _INT8.max)}


class BadCopy(ValueError):
    """The server sent what a binary COPY of these columns is not."""


@dataclass(frozen=True)
class Wire:
    """A column as COPY writes it, and the Arrow type it becomes."""

    name: str
    wire: str
    arrow: pa.DataType


def without_header(message: bytes) -> bytes:
    """The header comes with the first row."""
    if not message.startswith(_SIGNATURE) or any(message[len(_SIGNATURE) : _HEADER_BYTES]):
        raise BadCopy("this is no binary COPY")
    return message[_HEADER_BYTES:]


def batch(rows: Sequence[bytes], columns: Sequence[Wire]) -> pa.RecordBatch:
    """The rows, one message of the server each, as one record batch."""
    block = _Block(rows)
    if (block.field_counts() != len(columns)).any():
        raise BadCopy(f"a row has not {len(columns)} columns")
    arrays = [_column(block, column) for column in columns]
    if not block.at_end():
        raise BadCopy("a row is longer than its columns")
    return pa.RecordBatch.from_arrays(arrays, names=[column.name for column in columns])


class _Block:
    """Rows in one buffer, and in each of them the position of the next column."""

    def __init__(self, rows: Sequence[bytes]) -> None:
        self.count = len(rows)
        lengths = np.fromiter(map(len, rows), dtype=np.int64, count=self.count)
        self.buffer = b"".join((*rows, _PADDING))
        self._ends = np.cumsum(lengths)
        self._even = int(lengths[0]) if (lengths == lengths[0]).all() else 0  # every row's length, if it is one
        self._offset = 2  # of the next column, where it is the same in all rows
        self._positions = None if self._even else self._ends - lengths + 2

    def field_counts(self) -> Any:
        return self._read(">i2", -2)

    def lengths(self) -> Any:
        """The next column's length words: -1 for NULL."""
        return self._read(">i4", 0)

    def values(self, dtype: str, nulls: Any) -> Any:
        """The next column's values, of any content where it is NULL."""
        if nulls is not None and self._positions is not None:
            return self._gather(dtype, np.where(nulls, 0, self._positions + 4))
        return self._read(dtype, 4)

    def starts(self) -> Any:
        """Where the next column's values begin."""
        return self._by_position() + 4

    def skip(self, lengths: Any) -> None:
        """Go on to the column after."""
        if self._positions is None and (lengths == lengths[0]).all():
            self._offset += 4 + max(int(lengths[0]), 0)
        else:
            self._positions = self._by_position() + 4 + np.maximum(lengths, 0)

    def at_end(self) -> bool:
        return bool((self._by_position() == self._ends).all())

    def _by_position(self) -> Any:
        if self._positions is None:
            self._positions = np.arange(self.count, dtype=np.int64) * self._even + self._offset
        return self._positions

    def _read(self, dtype: str, ahead: int) -> Any:
        if self._positions is not None:
            return self._gather(dtype, self._positions + ahead)
        start = self._offset + ahead
        return np.ndarray((self.count,), dtype, self.buffer, offset=start, strides=(self._even,))

    def _gather(self, dtype: str, positions: Any) -> Any:
        everywhere = len(self.buffer) - np.dtype(dtype).itemsize + 1
        return np.ndarray((everywhere,), dtype, self.buffer, strides=(1,))[positions]


def _column(block: _Block, column: Wire) -> pa.Array:
    lengths = block.lengths()
    nulls = lengths < 0
    some = nulls if nulls.any() else None
    if column.wire in _VARYING:
        made = _VARYING[column.wire](_pieces(block, lengths, some), column.arrow)
    else:
        dtype, read = _FIXED[column.wire]
        width = np.dtype(dtype).itemsize
        if (lengths != width).any() and (lengths[~nulls] != width).any():
            raise BadCopy(f"{column.name}: a value of type {column.wire} has not {width} bytes")
        made = read(block.values(dtype, some), some, column.arrow)
    block.skip(lengths)
    return made


def _pieces(block: _Block, lengths: Any, nulls: Any) -> pa.Array:
    """Values of different length, copied out of the rows by Arrow.

    The whole buffer is taken for an array of values and the gaps between them; every second one is a value.
    """
    starts = block.starts()
    borders = np.empty(2 * block.count + 1, dtype=np.int32)
    borders[0:-1:2] = starts
    borders[1::2] = starts + np.maximum(lengths, 0)
    borders[-1] = borders[-2]
    buffers = [None, pa.py_buffer(borders), pa.py_buffer(block.buffer)]
    both = pa.Array.from_buffers(pa.binary(), 2 * block.count, buffers)
    places = pa.array(np.arange(0, 2 * block.count, 2, dtype=np.int32), mask=nulls)
    return both.take(places)


def _plain(values: Any, nulls: Any, arrow: pa.DataType) -> pa.Array:
    native = values.astype(values.dtype.newbyteorder("="))
    return pa.array(native, mask=nulls, from_pandas=False).cast(arrow)  # NaN is a value, no NULL


def _boolean(values: Any, nulls: Any, _: pa.DataType) -> pa.Array:
    return pa.array(values != 0, mask=nulls)


def _since_1970(shift: int) -> Callable[[Any, Any, pa.DataType], pa.Array]:
    """Days or microseconds, which Postgres counts from 2000."""

    def read(values: Any, nulls: Any, arrow: pa.DataType) -> pa.Array:
        native = values.astype(values.dtype.newbyteorder("="))
        least, greatest = _INFINITE[native.dtype]
        known = native if nulls is None else native[~nulls]
        if known.size and (known.min() == least or known.max() > greatest - shift):
            raise BadCopy(f"a value that {arrow} cannot hold")
        return pa.array(native + native.dtype.type(shift), mask=nulls).view(arrow)

    return read


def _fixed_bytes(values: Any, nulls: Any, arrow: pa.DataType) -> pa.Array:
    data = pa.py_buffer(np.ascontiguousarray(values).tobytes())
    valid = None if nulls is None else pa.py_buffer(np.packbits(~nulls, bitorder="little"))
    return pa.Array.from_buffers(arrow, len(values), [valid, data])


_FIXED: dict[str, tuple[str, Callable[[Any, Any, pa.DataType], pa.Array]]] = {
    "bool": ("u1", _boolean),
    "int2": (">i2", _plain),
    "int4": (">i4", _plain),
    "int8": (">i8", _plain),
    "oid": (">u4", _plain),
    "float4": (">f4", _plain),
    "float8": (">f8", _plain),
    "date": (">i4", _since_1970(_DAYS_TO_2000)),
    "timestamp": (">i8", _since_1970(_MICROS_TO_2000)),
    "uuid": ("V16", _fixed_bytes),
}


def _as_is(values: pa.Array, _: pa.DataType) -> pa.Array:
    return values


def _text(values: pa.Array, arrow: pa.DataType) -> pa.Array:
    """A cast checks that it is UTF-8; a decimal is read from its text."""
    text = values.cast(pa.string())
    return text if arrow == pa.string() else text.cast(arrow)


_VARYING: dict[str, Callable[[pa.Array, pa.DataType], pa.Array]] = {"bytes": _as_is, "text": _text}
