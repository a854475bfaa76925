"""Lower and upper bounds of a file's columns, as Iceberg writes them into manifests, turned into comparable values.

Every value is one that Python orders as Postgres orders the column's: integers for numbers, days and microseconds,
Decimal, float, bytes for text (in UTF-8), binary and UUIDs.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable
from decimal import Context, Decimal

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
    StringType,
    TimestampType,
    TimestamptzType,
)

Value = int | float | Decimal | bytes
Decoder = Callable[[bytes], Value | None]
_EXACT = Context(prec=100)


def decoders(type_: IcebergType) -> tuple[Decoder, Decoder]:
    """How lower and upper bounds of a type are read; what they give None for is not known. UUIDs: see below."""
    if isinstance(type_, DecimalType):
        decimal = _decimal(type_.scale)
        return decimal, decimal
    found = _DECODERS.get(type(type_), _unused)
    return found, found


def _unused(_: bytes) -> None:
    return None


def uuids(lower: bytes | None, upper: bytes | None) -> tuple[Value | None, Value | None]:
    """A file's bounds of UUIDs in the order of bytes, which is Postgres's, as far as they are known.

    Iceberg's Java writer puts them together from its row groups' in Java's order, which takes both halves for signed
    numbers. Bounds whose first halves have one sign are bounds in both orders: all values between have that sign. A
    least value that is positive, or a greatest that is negative, holds alone too. The lower half may be off.
    """
    signs = {raw[0] >= 0x80 for raw in (lower, upper) if raw is not None}
    one = lower is not None and upper is not None and len(signs) == 1
    return (
        lower[:8] + bytes(8) if lower is not None and (one or lower[0] < 0x80) else None,
        upper[:8] + b"\xff" * 8 if upper is not None and (one or upper[0] >= 0x80) else None,
    )


def _decimal(scale: int) -> Decoder:
    return lambda raw: Decimal(int.from_bytes(raw, "big", signed=True)).scaleb(-scale, _EXACT)


def _integer(raw: bytes) -> int:
    """Four bytes or eight: a file keeps the width its column had when it was written."""
    return int.from_bytes(raw, "little", signed=True)


def _float(raw: bytes) -> float:
    value: float = struct.unpack("<f" if len(raw) == 4 else "<d", raw)[0]
    if math.isnan(value):
        raise ValueError("a bound cannot be NaN")
    return value


_DECODERS: dict[type[IcebergType], Decoder] = {
    BooleanType: _integer,
    IntegerType: _integer,
    LongType: _integer,
    DateType: _integer,
    TimestampType: _integer,
    TimestamptzType: _integer,
    FloatType: _float,
    DoubleType: _float,
    StringType: bytes,
    BinaryType: bytes,
}
