"""What a manifest says about the columns of one data file: counts, and bounds that readers leave files out by.

A bound may be loose but never wrong, for every reader there is. Where engines order values differently (UUIDs), the
bounds hold in every order or are left out.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.conversions import to_bytes
from pyiceberg.types import (
    BinaryType,
    DateType,
    DoubleType,
    FloatType,
    PrimitiveType,
    StringType,
    TimestampType,
    TimestamptzType,
    UUIDType,
)

BOUND_LENGTH = 16  # characters or bytes: what Iceberg's own writers keep
_SURROGATES = range(0xD800, 0xE000)  # no characters, and not to be written in UTF-8
_HALF = 2**64


@dataclass
class Column:
    """One column of a file while it is being written."""

    type: PrimitiveType
    values: int = 0
    nulls: int = 0
    nans: int | None = None
    least: Any = None
    greatest: Any = None

    def add(self, array: pa.Array) -> None:
        self.values += len(array)
        self.nulls += array.null_count
        if isinstance(self.type, FloatType | DoubleType):
            nan = pc.is_nan(array)
            self.nans = (self.nans or 0) + (pc.sum(nan).as_py() or 0)
            array = array.filter(pc.invert(nan))
        found = pc.min_max(_comparable(array, self.type))
        self.least = _other(min, self.least, found["min"].as_py())
        self.greatest = _other(max, self.greatest, found["max"].as_py())

    def bounds(self) -> tuple[bytes | None, bytes | None]:
        """As the manifest keeps them; None: nothing is known."""
        if self.least is None:
            return None, None
        if isinstance(self.type, UUIDType):
            return _uuid_bounds(self.least, self.greatest)
        least, greatest = _shortened(self.type, self.least, self.greatest)
        return to_bytes(self.type, least), None if greatest is None else to_bytes(self.type, greatest)


@dataclass
class Metrics:
    """All columns of a file, by field id."""

    columns: Mapping[int, Column]
    sizes: dict[int, int] = field(default_factory=dict)

    def add(self, table: pa.Table) -> None:
        for column, chunks in zip(self.columns.values(), table.columns, strict=True):
            for chunk in chunks.chunks:
                column.add(chunk)

    def entries(self) -> dict[str, Any]:
        """The fields of a manifest's entry."""
        bounds = {number: column.bounds() for number, column in self.columns.items()}
        return {
            "column_sizes": self.sizes,
            "value_counts": {number: column.values for number, column in self.columns.items()},
            "null_value_counts": {number: column.nulls for number, column in self.columns.items()},
            "nan_value_counts": {number: c.nans for number, c in self.columns.items() if c.nans is not None},
            "lower_bounds": {number: lower for number, (lower, _) in bounds.items() if lower is not None},
            "upper_bounds": {number: upper for number, (_, upper) in bounds.items() if upper is not None},
        }


def upper_text(value: str) -> str | None:
    """A short text that is not below this one; None if there is none."""
    if len(value) <= BOUND_LENGTH:
        return value
    for end in range(BOUND_LENGTH, 0, -1):
        following = ord(value[end - 1]) + 1
        if following in _SURROGATES:
            following = _SURROGATES.stop
        if following <= 0x10FFFF:
            return value[: end - 1] + chr(following)
    return None


def upper_bytes(value: bytes) -> bytes | None:
    if len(value) <= BOUND_LENGTH:
        return value
    kept = value[:BOUND_LENGTH].rstrip(b"\xff")
    return kept[:-1] + bytes([kept[-1] + 1]) if kept else None


def _comparable(array: pa.Array, type_: PrimitiveType) -> pa.Array:
    """Days and microseconds as numbers: Python's dates end in the year 9999."""
    if isinstance(type_, DateType):
        return array.view(pa.int32())
    if isinstance(type_, TimestampType | TimestamptzType):
        return array.view(pa.int64())
    return array


def _other(choose: Any, known: Any, found: Any) -> Any:
    return found if known is None else known if found is None else choose(known, found)


def _shortened(type_: PrimitiveType, least: Any, greatest: Any) -> tuple[Any, Any]:
    if isinstance(type_, StringType):
        return least[:BOUND_LENGTH], upper_text(greatest)
    if isinstance(type_, BinaryType):
        return least[:BOUND_LENGTH], upper_bytes(greatest)
    if isinstance(type_, FloatType | DoubleType):
        # Some readers take -0 for less than 0, some for the same.
        return (-0.0 if least == 0 else least), (0.0 if greatest == 0 else greatest)
    return least, greatest


def _uuid_bounds(least: bytes, greatest: bytes) -> tuple[bytes | None, bytes | None]:
    """Bounds in the order of bytes and also in Java's, which takes both halves for signed numbers.

    The orders agree on first halves of one sign. One below the least and one above the greatest, no second half
    matters.
    """
    first, last = int.from_bytes(least[:8], "big") - 1, int.from_bytes(greatest[:8], "big") + 1
    if first < 0 or last >= _HALF or (first >= _HALF // 2) != (last >= _HALF // 2):
        return None, None
    return first.to_bytes(8, "big") + bytes(8), last.to_bytes(8, "big") + bytes(8)
