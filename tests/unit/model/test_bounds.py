"""Bounds order as Postgres orders them and survive the trip through a foreign table's options."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from frostline.model.bounds import Bound, Range, parse_bound, parse_partition, parse_range

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@given(st.datetimes(timezones=st.just(UTC)), st.datetimes(timezones=st.just(UTC)))
def test_timestamps_order_as_datetimes_do(one: datetime, other: datetime) -> None:
    first, second = (parse_bound(_text(value)) for value in (one, other))
    assert first is not None
    assert second is not None
    assert (first < second) == (one < other)
    assert first.order == (one - EPOCH) // timedelta(microseconds=1)


@given(st.dates())
def test_dates_count_in_whole_days(day: date) -> None:
    bound = parse_bound(f"'{day.year:04d}-{day:%m-%d}'")
    assert bound is not None
    assert bound.order == (day - date(1970, 1, 1)).days * 86_400_000_000


def _text(value: datetime) -> str:
    """As Postgres prints a timestamptz under UTC: four digits of year, no trailing zeros."""
    fraction = f".{value.microsecond:06d}".rstrip("0") if value.microsecond else ""
    return f"{value.year:04d}-{value:%m-%d %H:%M:%S}{fraction}+00"


def test_odd_years_and_infinities_keep_their_order() -> None:
    texts = [
        "-infinity",
        "4713-01-01 00:00:00+00 BC",
        "0044-03-15 12:00:00+00 BC",
        "0001-12-31 23:59:59.999999+00 BC",
        "0001-01-01 00:00:00+00",
        "1582-10-10 00:00:00+00",
        "9999-12-31 23:59:59.999999+00",
        "10000-01-01 00:00:00+00",
        "294276-12-31 00:00:00+00",
        "infinity",
    ]
    orders = [bound.order for text in texts if (bound := parse_bound(text)) is not None]
    assert orders == sorted(orders)
    assert len(set(orders)) == len(texts)
    assert orders[4] - orders[3] == 1


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("FOR VALUES FROM ('2026-01-01 00:00:00+00') TO (MAXVALUE)", "from 2026-01-01 00:00:00+00 to MAXVALUE"),
        ("FOR VALUES FROM (MINVALUE) TO ('2026-01-01')", "from MINVALUE to 2026-01-01"),
        ("FOR VALUES FROM ('-5') TO (100)", "from -5 to 100"),
    ],
)
def test_a_partition_s_bounds_survive_the_foreign_table_s_options(text: str, expected: str) -> None:
    found = parse_partition(text)
    assert found is not None
    assert str(found) == expected
    assert parse_range(expected) == found


def test_default_and_other_strategies_have_no_range() -> None:
    assert parse_partition("DEFAULT") is None
    assert parse_partition("FOR VALUES IN ('a')") is None


def test_a_range_is_cold_only_when_wholly_below_the_seam() -> None:
    five, ten = Bound("5", 5), Bound("10", 10)
    assert Range(None, five).below(five)
    assert Range(None, five).below(ten)
    assert not Range(five, ten).below(five)
    assert not Range(five, None).below(ten)
    assert not Range(None, five).below(None)


def test_text_postgres_would_not_print_is_refused() -> None:
    with pytest.raises(ValueError, match="not a bound"):
        parse_bound("'2026-01-01 00:00:00+02'")
