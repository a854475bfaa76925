"""Lower and upper bounds of a file's columns, as Iceberg writes them into manifests, turned into comparable values.

Every value is one that Python orders as Postgres orders the column's: integers for numbers, days and microseconds,
Decimal, float, bytes for text (in UTF-8), binary and UUIDs.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable
from decimal import Decimal
from typing import Any

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
Decoder = Callable[[bytes], Value]


def decoder(type_: IcebergType) -> Decoder | None:
    """How bounds of a type are read; None: they are not used."""
    if isinstance(type_, DecimalType):
        return lambda raw: Decimal(int.from_bytes(raw, "big", signed=True)).scaleb(-type_.scale, _EXACT)
    return _DECODERS.get(type(type_))


def _integer(raw: bytes) -> int:
    """Four bytes or eight: a file keeps the width its column had when it was written."""
    return int.from_bytes(raw, "little", signed=True)


def _float(raw: bytes) -> float:
    value: float = struct.unpack("<f" if len(raw) == 4 else "<d", raw)[0]
    if math.isnan(value):
        raise ValueError("a bound cannot be NaN")
    return value


def _exact() -> Any:
    from decimal import Context

    return Context(prec=100)


_EXACT = _exact()
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
    UUIDType: bytes,
}
