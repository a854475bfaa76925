"""Partition values of a column are those Iceberg defines for each value."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyiceberg.transforms import (
    DayTransform,
    HourTransform,
    MonthTransform,
    Transform,
    TruncateTransform,
    YearTransform,
)
from pyiceberg.types import DateType, IcebergType, IntegerType, LongType, TimestamptzType

from frostline.lake.partitions import values

_MOMENTS = st.integers(-62_135_596_800_000_000, 253_402_300_799_999_999)  # years 1 to 9999: Python's own dates


def found(transform: Transform[Any, Any], type_: IcebergType, array: Any) -> list[int]:
    return [int(value) for value in values(transform, type_, pa.chunked_array([array]))]


@pytest.mark.parametrize("transform", [YearTransform(), MonthTransform(), DayTransform(), HourTransform()])
@settings(deadline=None)
@given(moments=st.lists(_MOMENTS, min_size=1, max_size=5))
def test_moments(transform: Transform[Any, Any], moments: list[int]) -> None:
    one = transform.transform(TimestamptzType())
    column = pa.array(moments).view(pa.timestamp("us", "UTC"))
    assert found(transform, TimestamptzType(), column) == [one(moment) for moment in moments]


@pytest.mark.parametrize("transform", [YearTransform(), MonthTransform(), DayTransform()])
@settings(deadline=None)
@given(days=st.lists(st.integers(-719_162, 2_932_896), min_size=1, max_size=5))
def test_dates(transform: Transform[Any, Any], days: list[int]) -> None:
    one = transform.transform(DateType())
    assert found(transform, DateType(), pa.array(days, pa.int32()).view(pa.date32())) == [one(day) for day in days]


@settings(deadline=None)
@given(st.lists(st.integers(-(2**62), 2**62), min_size=1, max_size=5), st.integers(1, 2**31 - 1))
def test_widths(numbers: list[int], width: int) -> None:
    one: Callable[[int], int] = TruncateTransform(width).transform(LongType())  # type: ignore[assignment]
    assert found(TruncateTransform(width), LongType(), pa.array(numbers)) == [one(number) for number in numbers]


def test_years_before_the_first_and_after_the_9999th() -> None:
    # 44 BC is the year -43, 2013 before 1970; 294246 is 292276 after it.
    moments = pa.array([-63_549_403_200_000_000, 9_223_371_244_799_999_999]).view(pa.timestamp("us", "UTC"))
    assert found(YearTransform(), TimestamptzType(), moments) == [-2014, 292_276]


def test_below_the_least_number_the_value_turns_over_as_in_java() -> None:
    assert found(TruncateTransform(100), IntegerType(), pa.array([-(2**31)], pa.int32())) == [2_147_483_596]
