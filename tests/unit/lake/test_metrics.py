"""Bounds of a file's columns hold for every value in it, whoever reads them."""

from __future__ import annotations

import math
import struct
import uuid
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyiceberg.conversions import from_bytes
from pyiceberg.types import (
    BinaryType,
    DateType,
    DecimalType,
    DoubleType,
    LongType,
    PrimitiveType,
    StringType,
    TimestamptzType,
    UUIDType,
)

from frostline.lake.metrics import Column, upper_bytes, upper_text


def column(type_: PrimitiveType, *arrays: Any) -> Column:
    made = Column(type_)
    for array in arrays:
        made.add(array)
    return made


def between(type_: PrimitiveType, array: Any) -> tuple[Any, Any]:
    lower, upper = column(type_, array).bounds()
    return (lower and from_bytes(type_, lower)), (upper and from_bytes(type_, upper))


@settings(deadline=None)
@given(st.lists(st.text(min_size=0, max_size=20), min_size=1, max_size=5))
def test_no_text_is_outside_its_bounds(texts: list[str]) -> None:
    lower, upper = column(StringType(), pa.array(texts)).bounds()
    assert lower is not None
    assert all(lower <= text.encode() for text in texts)
    assert upper is None or all(text.encode() <= upper for text in texts)


@pytest.mark.parametrize(
    ("text", "upper"),
    [
        ("a" * 16, "a" * 16),
        ("a" * 17, "a" * 15 + "b"),
        ("\ud7ff" * 17, "\ud7ff" * 15 + "\ue000"),  # what follows U+D7FF is no character
        ("a" + chr(0x10FFFF) * 16, "b"),
        (chr(0x10FFFF) * 17, None),
    ],
)
def test_a_long_text_gets_a_short_upper_bound(text: str, upper: str | None) -> None:
    assert upper_text(text) == upper


@settings(deadline=None)
@given(st.lists(st.binary(min_size=0, max_size=20), min_size=1, max_size=5))
def test_no_bytes_are_outside_their_bounds(values: list[bytes]) -> None:
    lower, upper = column(BinaryType(), pa.array(values, pa.binary())).bounds()
    assert lower is not None
    assert all(lower <= value for value in values)
    assert upper is None or all(value <= upper for value in values)
    assert upper_bytes(b"\xff" * 17) is None


def java(raw: bytes) -> tuple[int, ...]:
    return struct.unpack(">qq", raw)


@settings(deadline=None)
@given(st.lists(st.uuids().map(lambda u: u.bytes), min_size=1, max_size=4))
def test_no_uuid_is_outside_its_bounds_in_the_order_of_bytes_or_of_java(values: list[bytes]) -> None:
    lower, upper = column(UUIDType(), pa.array(values, pa.binary(16))).bounds()
    assert (lower is None) == (upper is None)
    if lower is not None and upper is not None:
        assert all(lower <= value <= upper for value in values)
        assert all(java(lower) <= java(value) <= java(upper) for value in values)


def test_uuids_in_the_order_of_time_have_bounds_and_random_ones_none() -> None:
    ordered = [uuid.UUID(f"0190a1b2-c3d4-7{n:03x}-bfff-ffffffffffff").bytes for n in range(4)]
    assert None not in column(UUIDType(), pa.array(ordered, pa.binary(16))).bounds()
    both = [bytes([first]) + bytes(15) for first in (0x10, 0x90)]
    assert column(UUIDType(), pa.array(both, pa.binary(16))).bounds() == (None, None)


def test_nan_is_counted_and_in_no_bound_and_zero_has_both_signs() -> None:
    values = column(DoubleType(), pa.array([math.nan, 0.0, None]), pa.array([-0.0, math.nan]))
    assert (values.values, values.nulls, values.nans) == (5, 1, 2)
    lower, upper = values.bounds()
    assert (lower, upper) == (struct.pack("<d", -0.0), struct.pack("<d", 0.0))
    only = column(DoubleType(), pa.array([math.nan]))
    assert (only.nans, only.bounds()) == (1, (None, None))


def test_far_years_and_large_decimals_are_exact() -> None:
    micros = [-210_866_803_200_000_000, 9_223_371_244_799_999_999]
    assert between(TimestamptzType(), pa.array(micros).view(pa.timestamp("us", "UTC"))) == tuple(micros)
    days = [-2_440_588, 2_145_042_541]
    assert between(DateType(), pa.array(days, pa.int32()).view(pa.date32())) == tuple(days)
    money = [Decimal("-9999999999999999999999999999.9999999999"), Decimal("0.0000000001")]
    assert between(DecimalType(38, 10), pa.array(money, pa.decimal128(38, 10))) == tuple(money)
    assert between(LongType(), pa.array([2**63 - 1, -(2**63)])) == (-(2**63), 2**63 - 1)


def test_nulls_alone_have_no_bounds() -> None:
    empty = column(StringType(), pa.array([None, None], pa.string()))
    assert (empty.values, empty.nulls, empty.bounds()) == (2, 2, (None, None))
