"""Values of a file's columns as texts, in which Postgres reads the same values."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

_EPOCH = datetime(1970, 1, 1)  # of moments and of local times alike
_DAYS = -719_162, 2_932_896  # since 1970, of the years 1 to 9999: others have no such text
_DAY = 86_400_000_000  # microseconds


@dataclass(frozen=True)
class Texts:
    """How one type is written, value by value or a column at once: OverflowError where there is no such text."""

    one: Callable[[Any], str]  # of the number behind a moment, and of others as Python has them
    all: Callable[[pa.Array], pa.Array]


def texts(type_: pa.DataType) -> Texts | None:
    """None: it is not known here."""
    return next((found for known, found in _TYPES if known(type_)), None)


def moment(micros: int) -> str:
    """Microseconds since 1970 as Postgres reads them; or OverflowError."""
    value = _EPOCH + timedelta(microseconds=micros)
    return value.isoformat(" ").rstrip("0") if value.microsecond else value.isoformat(" ")


def _cast(array: pa.Array) -> pa.Array:
    return array.cast(pa.string())


def _each(write: Callable[[Any], str]) -> Texts:
    def together(array: pa.Array) -> pa.Array:
        return pa.array([None if value is None else write(value) for value in array.to_pylist()], pa.string())

    return Texts(write, together)


def _days(array: pa.Array) -> pa.Array:
    _within(array.view(pa.int32()), *_DAYS)
    return _cast(array)


def _moments(array: pa.Array, zone: str = "") -> pa.Array:
    """Arrow takes 30 times as long for a moment with its zone as for one without."""
    numbers = array.view(pa.int64())
    _within(numbers, _DAYS[0] * _DAY, (_DAYS[1] + 1) * _DAY - 1)
    written = _cast(numbers.view(pa.timestamp("us")))
    return pc.binary_join_element_wise(written, zone, "") if zone else written


def _within(numbers: pa.Array, low: int, high: int) -> None:
    ends = pc.min_max(numbers)
    if ends["min"].is_valid and not low <= ends["min"].as_py() <= ends["max"].as_py() <= high:
        raise OverflowError


def _truth(array: pa.Array) -> pa.Array:
    return pc.if_else(array, "t", "f")


def _uuid(value: bytes) -> str:
    return str(uuid.UUID(bytes=value))


def _of_moments(zone: str | None, type_: pa.DataType) -> bool:
    return bool(pa.types.is_timestamp(type_) and type_.unit == "us" and type_.tz == zone)


def _of_uuids(type_: pa.DataType) -> bool:
    return bool(pa.types.is_fixed_size_binary(type_) and type_.byte_width == 16)


_TYPES: tuple[tuple[Callable[[pa.DataType], bool], Texts], ...] = (
    (pa.types.is_int32, Texts(str, _cast)),
    (pa.types.is_int64, Texts(str, _cast)),
    (pa.types.is_string, Texts(str, lambda array: array)),
    (pa.types.is_boolean, Texts(lambda value: "t" if value else "f", _truth)),
    # A real as a double: it is the same, no other real is nearer, and the column may be one of doubles by now.
    (pa.types.is_float32, Texts(repr, lambda array: _cast(array.cast(pa.float64())))),
    (pa.types.is_float64, Texts(repr, _cast)),
    (pa.types.is_date32, Texts(str, _days)),
    (partial(_of_moments, None), Texts(moment, _moments)),
    (partial(_of_moments, "UTC"), Texts(lambda micros: f"{moment(micros)}+00", partial(_moments, zone="+00"))),
    (pa.types.is_decimal128, Texts(lambda value: format(value, "f"), _cast)),
    (pa.types.is_binary, _each(lambda value: f"\\x{value.hex()}")),
    (_of_uuids, _each(_uuid)),
)
