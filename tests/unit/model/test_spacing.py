"""Partitions are carried on as they were: months, weeks, hours, numbers, across summer time, and never guessed."""

from __future__ import annotations

from datetime import UTC, datetime
from itertools import pairwise
from zoneinfo import ZoneInfo

import pytest

from frostline.model import spacing
from frostline.model.bounds import Range, parse_bound
from frostline.model.spacing import Step


def ranges(*bounds: str) -> list[Range]:
    return [Range(parse_bound(a), parse_bound(b)) for a, b in pairwise(bounds)]


def local_days(zone: str, *days: str) -> list[Range]:
    """Bounds at local midnight, as Postgres prints them under UTC."""
    moments = [datetime.fromisoformat(day).replace(tzinfo=ZoneInfo(zone)).astimezone(UTC) for day in days]
    return ranges(*(f"{moment:%Y-%m-%d %H:%M:%S}+00" for moment in moments))


@pytest.mark.parametrize(
    ("bounds", "key_type", "step"),
    [
        (("2026-01-01", "2026-02-01", "2026-03-01"), "date", Step("month", 1)),
        (("2026-02-01", "2026-03-01"), "date", Step("month", 1)),
        (("2026-01-04", "2026-02-01", "2026-03-01"), "date", Step("day", 28)),
        (("2026-01-15", "2026-02-15"), "date", Step("month", 1)),
        (("2026-01-01", "2026-04-01", "2026-07-01"), "date", Step("month", 3)),
        (("2024-01-01", "2025-01-01"), "date", Step("month", 12)),
        (("2026-01-05", "2026-01-12", "2026-01-19"), "date", Step("day", 7)),
        (("2026-01-01 00:00:00", "2026-01-01 06:00:00"), "timestamp", Step("fixed", 6 * 3_600_000_000)),
        (("2026-01-01 00:00:00+00", "2026-01-02 00:00:00+00"), "timestamptz", Step("day", 1)),
        (("100", "200", "300"), "int4", Step("fixed", 100)),
        (("0", "100"), "int8", Step("fixed", 100)),
        (("0", "100", "150"), "int8", None),  # which of the two?
        (("2026-01-01 00:00:00", "2026-01-01 06:00:00", "2026-01-01 07:30:00"), "timestamp", None),
        # Quarters until last year, months since.
        (("2025-07-01", "2025-10-01", "2026-01-01", "2026-02-01"), "date", Step("month", 1)),
        (("MINVALUE", "2026-01-01", "2026-02-01", "MAXVALUE"), "date", Step("month", 1)),
        (("MINVALUE", "2026-01-01"), "date", None),
        (("-infinity", "2026-01-01"), "date", None),
    ],
)
def test_the_step_is_recognised(bounds: tuple[str, ...], key_type: str, step: Step | None) -> None:
    assert spacing.recognise(ranges(*bounds), key_type) == step


@pytest.mark.parametrize("home", ["UTC", "Europe/Berlin"])
def test_months_of_a_zone_with_summer_time(home: str) -> None:
    """Told by the database's own time zone, or found because every zone that fits agrees on what comes."""
    found = local_days("Europe/Berlin", *(f"2026-{month:02d}-01" for month in range(1, 11)))
    step = spacing.recognise(found, "timestamptz", home)
    assert step is not None
    assert (step.kind, step.count) == ("month", 1)
    # Winter time begins on 25 October.
    made = spacing.missing(found, step, _at("2026-10-05 12:00"), 1, "timestamptz")
    assert [str(r) for r in made] == [
        "from 2026-09-30 22:00:00+00 to 2026-10-31 23:00:00+00",
        "from 2026-10-31 23:00:00+00 to 2026-11-30 23:00:00+00",
    ]


def test_days_of_a_zone_with_summer_time() -> None:
    found = local_days("America/New_York", *(f"2026-10-{day}" for day in range(26, 32)))
    step = spacing.recognise(found, "timestamptz", "America/New_York")
    assert step == Step("day", 1, "America/New_York")
    made = spacing.missing(found, step, _at("2026-11-01 12:00"), 1, "timestamptz")
    assert [str(r) for r in made] == [
        "from 2026-10-31 04:00:00+00 to 2026-11-01 04:00:00+00",
        "from 2026-11-01 04:00:00+00 to 2026-11-02 05:00:00+00",
        "from 2026-11-02 05:00:00+00 to 2026-11-03 05:00:00+00",
    ]


def test_a_day_without_midnight_is_followed_by_one_that_begins_there() -> None:
    """In Egypt clocks are put forward at midnight of 24 April, a Friday."""
    found = local_days("Africa/Cairo", *(f"2026-04-{day}" for day in range(22, 26)))
    step = spacing.recognise(found, "timestamptz", "Africa/Cairo")
    assert step == Step("day", 1, "Africa/Cairo")
    assert spacing.missing(found, step, _at("2026-04-24 12:00"), 2, "timestamptz") == local_days(
        "Africa/Cairo", "2026-04-25", "2026-04-26", "2026-04-27"
    )
    named = found[2].lower
    assert named is not None
    assert spacing.label(spacing.local(named.order, step.zone), step) == "2026_04_24"


def test_a_day_that_begins_at_six_stays_so() -> None:
    found = ranges("2026-01-01 06:00:00+00", "2026-01-02 06:00:00+00", "2026-01-03 06:00:00+00")
    assert spacing.recognise(found, "timestamptz") == Step("day", 1)


def _at(moment: str) -> int:
    return spacing.to_order(datetime.fromisoformat(moment), "UTC")


def _made(bounds: list[Range], now: str, premake: int = 2) -> list[str]:
    step = spacing.recognise(bounds, "date")
    assert step is not None
    return [f"{r.lower}" for r in spacing.missing(bounds, step, _at(now), premake, "date")]


def test_what_is_ready_is_not_made_again() -> None:
    months = [f"2026-{month:02d}-01" for month in range(1, 7)]
    assert _made(ranges(*months), "2026-05-20") == ["2026-06-01", "2026-07-01"]
    assert _made(ranges(*months), "2026-03-20") == []
    assert _made(ranges(*months), "2026-03-20", 3) == ["2026-06-01"]
    assert _made(ranges(*months, "MAXVALUE"), "2026-05-20") == []
    assert _made(ranges(*months), "2026-07-20", 0) == ["2026-06-01", "2026-07-01"]


def test_a_missing_current_partition_is_made_and_the_past_left_alone() -> None:
    with_hole = ranges("2026-01-01", "2026-02-01") + ranges("2026-07-01", "2026-08-01")
    assert _made(with_hole, "2026-05-20", 1) == ["2026-05-01", "2026-06-01"]
    assert _made(with_hole, "2026-09-10", 1) == ["2026-08-01", "2026-09-01", "2026-10-01"]


def test_years_of_nothing_are_skipped_but_the_calendar_is_kept() -> None:
    assert _made(ranges("2010-01-01", "2010-02-01"), "2026-11-16", 1) == ["2026-11-01", "2026-12-01"]


def test_a_hole_too_narrow_for_a_step_is_filled() -> None:
    found = ranges("2026-01-01", "2026-02-01") + ranges("2026-02-20", "2026-03-20")
    assert [str(r) for r in spacing.missing(found, Step("month", 1), _at("2026-02-10"), 0, "date")] == [
        "from 2026-02-01 to 2026-02-20"
    ]


def test_numbers_end_where_the_type_ends() -> None:
    found = ranges("31000", "32000")
    assert [str(r) for r in spacing.missing(found, Step("fixed", 500), 31500, 5, "int2")] == ["from 32000 to 32500"]


@pytest.mark.parametrize(
    ("example", "lower", "new", "step", "name"),
    [
        ("events_2026_10", "2026-10-01", "2026-11-01", Step("month", 1), "events_2026_11"),
        ("events_p202610", "2026-10-01", "2027-01-01", Step("month", 1), "events_p202701"),
        ("y2026m10", "2026-10-01", "2026-11-01", Step("month", 1), "y2026m11"),
        ("e_2026_q4", "2026-10-01", "2027-01-01", Step("month", 3), "e_2027_q1"),
        ("e_2025", "2025-01-01", "2026-01-01", Step("month", 12), "e_2026"),
        ("e2026w02", "2026-01-05", "2026-01-12", Step("day", 7), "e2026w03"),
        ("e_20261031", "2026-10-31", "2026-11-01", Step("day", 1), "e_20261101"),
        ("current", "2026-10-01", "2026-11-01", Step("month", 1), "events_2026_11"),
        ("events_2026", "2026-10-01", "2026-11-01", Step("month", 1), "events_2026_11"),
    ],
)
def test_names_go_on_as_they_were(example: str, lower: str, new: str, step: Step, name: str) -> None:
    was, will = parse_bound(lower), parse_bound(new)
    assert was is not None
    assert will is not None
    assert spacing.name_of("events", (example, was), will, step, "date") == name


def test_names_of_numbers() -> None:
    was, will = parse_bound("100"), parse_bound("200")
    assert was is not None
    assert will is not None
    assert spacing.name_of("t", ("t_p100", was), will, Step("fixed", 100), "int4") == "t_p200"
    assert spacing.name_of("t", ("first", was), will, Step("fixed", 100), "int4") == "t_200"
