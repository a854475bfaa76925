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
    UUIDType,
)

Value = int | float | Decimal | bytes
Decoder = Callable[[bytes], Value | None]
_EXACT = Context(prec=100)


def decoders(type_: IcebergType) -> tuple[Decoder, Decoder]:
    """How lower and upper bounds of a type are read; what they give None for is not known."""
    if isinstance(type_, UUIDType):
        return _lower_uuid, _upper_uuid
    if isinstance(type_, DecimalType):
        decimal = _decimal(type_.scale)
        return decimal, decimal
    found = _DECODERS.get(type(type_), _unused)
    return found, found


def _unused(_: bytes) -> None:
    return None


def _lower_uuid(raw: bytes) -> Value | None:
    """Iceberg's Java writer puts a file's bounds together from its row groups' in Java's order of UUIDs.

    That order takes both halves for signed numbers; Postgres and Parquet take them for bytes. A least value in Java's
    order is the least for us only when it is positive: then so are all the others. The lower half may be off.
    """
    return raw[:8] + bytes(8) if raw[0] < 0x80 else None


def _upper_uuid(raw: bytes) -> Value | None:
    """And a greatest value is the greatest for us only when it is negative."""
    return raw[:8] + b"\xff" * 8 if raw[0] >= 0x80 else None


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
