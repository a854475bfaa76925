"""Ages of rows: cut into bins a person can look at, and what is older than a moment."""

from __future__ import annotations

from datetime import datetime

from frostline.model.ages import Bin, Span, below, profile, suggested_period
from frostline.model.spacing import to_order


def at(text: str) -> int:
    return to_order(datetime.fromisoformat(text), "UTC")


NOW = at("2026-11-16")


def months(first: str, *rows: int) -> list[Span]:
    year, month = int(first[:4]), int(first[5:])
    starts = [at(f"{year + (month - 1 + n) // 12}-{(month - 1 + n) % 12 + 1:02}-01") for n in range(len(rows) + 1)]
    return [Span(lower, upper, n, 10 * n) for lower, upper, n in zip(starts[:-1], starts[1:], rows, strict=True)]


def test_monthly_partitions_are_bins_of_their_own() -> None:
    assert profile(months("2026-08", 5, 7, 9), at("2026-10-01"), NOW) == [
        Bin("2026-08", 5, 50, cold=True),
        Bin("2026-09", 7, 70, cold=True),
        Bin("2026-10", 9, 90, cold=False),
    ]


def test_many_months_become_quarters_and_then_years() -> None:
    assert [(one.label, one.rows) for one in profile(months("2023-01", *[1] * 36), None, NOW)][:2] == [
        ("2023 Q1", 3),
        ("2023 Q2", 3),
    ]
    assert [one.label for one in profile(months("2010-01", *[1] * 120), None, NOW)] == [
        str(2010 + n) for n in range(10)
    ]


def test_a_wide_span_is_spread_over_its_bins() -> None:
    found = profile([Span(at("2026-01-01"), at("2026-03-02"), 60, 600)], None, NOW)
    assert [(one.label, one.rows) for one in found] == [("2026-01", 31), ("2026-02", 28), ("2026-03", 1)]


def test_what_has_no_place_in_time_comes_last_and_odd_years_are_put_together() -> None:
    spans = [
        Span(None, None, 3, 30),
        Span(at("1900-01-01"), at("1900-01-01") + 1, 1, 10),
        Span(2**127, None, 2, 20),
        Span(at("9999-12-31"), at("9999-12-31") + 1, 4, 40),
        *months("2026-10", 8),
    ]
    found = profile(spans, None, NOW)
    assert found[0] == Bin("earlier", 1, 10, cold=False)
    assert [one.label for one in found[-2:]] == ["later", "other"]
    assert [one.rows for one in found[-2:]] == [4, 5]
    assert sum(one.rows for one in found) == 18
    assert len(found) < 110


def test_open_partitions_lie_next_to_the_bound_they_have() -> None:
    spans = [Span(None, at("2026-09-01"), 4, 40), *months("2026-09", 6), Span(at("2026-10-01"), None, 1, 10)]
    found = profile(spans, None, NOW)
    assert [(one.label, one.rows) for one in found] == [("2026-08", 4), ("2026-09", 6), ("2026-10", 1)]


def test_integers_are_cut_in_round_steps() -> None:
    found = profile([Span(n * 1000, (n + 1) * 1000, 1, 10) for n in range(60)], 20_000, None)
    assert [(one.label, one.rows, one.cold) for one in found][:3] == [
        ("0", 5, True),
        ("5,000", 5, True),
        ("10,000", 5, True),
    ]
    assert [one.cold for one in found].count(True) == 4


def test_what_is_older_than_a_moment() -> None:
    older = below([*months("2026-08", 31, 30), Span(None, None, 9, 9)], at("2026-09-11"))
    assert (round(older.rows), round(older.bytes)) == (41, 410)


def test_a_large_young_table_is_cut_in_days_and_an_old_small_one_in_years() -> None:
    assert suggested_period(months("2026-10", 10**10)) == "day"
    assert suggested_period(months("2026-10", 5)) == "month"
    assert suggested_period(months("2026-01", *[5] * 10)) == "month"
    assert suggested_period(months("2010-01", *[5] * 130)) == "year"
    assert suggested_period([]) == "month"
