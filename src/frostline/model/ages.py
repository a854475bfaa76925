"""How old a table's rows are: spans of the key with what lies in them, cut into a few bins that a person can look at.

A span is a partition, or a part of a histogram. Where it covers several bins its rows are taken to be spread evenly.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from frostline.model.spacing import calendar_unit, local, to_order

MOST_BINS = 24
_DAY = 86_400_000_000  # microseconds
_FAR = 2**61  # beyond it no calendar of ours goes
_PAST, _FUTURE = 100 * 365 * _DAY, 366 * _DAY  # looked at, from now
_UNITS = ("day", "month", "quarter", "year")


@dataclass(frozen=True)
class Span:
    """Rows and bytes whose keys are from `lower` on, below `upper`; None: whatever the key (no bound on that side)."""

    lower: int | None
    upper: int | None
    rows: float
    bytes: float


@dataclass(frozen=True)
class Bin:
    label: str
    rows: int
    bytes: int
    cold: bool  # wholly older than the hot period


def profile(spans: Sequence[Span], cutoff: int | None, now: int | None) -> list[Bin]:
    """At most about MOST_BINS bins, oldest first; what has no place there comes last. `now` is None for integers."""
    placed = [span for span in spans if _finite(span)]
    ends = [end for span in placed for end in _ends(span)]
    start, end = (min(ends), max(ends)) if ends else (0, 0)
    if now is not None:  # years like 1900 and 9999 mean something else
        start, end = max(start, now - _PAST), min(end, now + _FUTURE)
    cells = _cells(start, end, integer=now is None) if start < end else []
    made = [_bin(placed, *cell, cutoff) for cell in cells]
    if cells:
        made.insert(0, _bin(placed, "earlier", -_FAR, cells[0][1], cutoff))
        made.append(_bin(placed, "later", cells[-1][2], _FAR, cutoff))
    rest = [span for span in spans if not _finite(span)] if cells else list(spans)
    made.append(Bin("other", round(sum(s.rows for s in rest)), round(sum(s.bytes for s in rest)), cold=False))
    # Empty ones show a gap, unless there is no end of them.
    inside = {label for label, *_ in cells} if len(cells) <= 2 * MOST_BINS else set()
    return [one for one in made if one.label in inside or one.rows or one.bytes]


def below(spans: Sequence[Span], cutoff: int) -> Span:
    """What is older, in spans that are cut where they have to be."""
    shares = [(span, _share(span, -_FAR, cutoff)) for span in spans if _finite(span)]
    return Span(None, cutoff, sum(s.rows * share for s, share in shares), sum(s.bytes * share for s, share in shares))


def _finite(span: Span) -> bool:
    """Not one that lies nowhere: DEFAULT, or without any bound of an ordinary size."""
    return any(end is not None and abs(end) < _FAR for end in (span.lower, span.upper))


def _ends(span: Span) -> tuple[int, int]:
    """Both ends; an open span is taken to lie next to the bound it has."""
    lower = span.lower if span.lower is not None and abs(span.lower) < _FAR else None
    upper = span.upper if span.upper is not None and abs(span.upper) < _FAR else None
    if lower is None:
        assert upper is not None
        return upper - 1, upper
    return lower, upper if upper is not None and upper > lower else lower + 1


def _share(span: Span, lower: int, upper: int) -> float:
    start, end = _ends(span)
    return max(min(end, upper) - max(start, lower), 0) / (end - start)


def _bin(spans: Sequence[Span], label: str, lower: int, upper: int, cutoff: int | None) -> Bin:
    shares = [(span, _share(span, lower, upper)) for span in spans]
    return Bin(
        label,
        round(sum(span.rows * share for span, share in shares)),
        round(sum(span.bytes * share for span, share in shares)),
        cold=cutoff is not None and upper <= cutoff,
    )


def _cells(start: int, end: int, *, integer: bool) -> list[tuple[str, int, int]]:
    if integer:
        width = _round_up(max((end - start) // MOST_BINS, 1))
        first = start // width * width
        return [(f"{lower:,}", lower, lower + width) for lower in range(first, end, width)]
    first_moment, last_moment = local(start, "UTC"), local(end - 1, "UTC")
    unit = next((unit for unit in _UNITS if _count(first_moment, last_moment, unit) <= MOST_BINS), "year")
    found = []
    moment = first_moment
    while moment <= last_moment:
        lower, upper = _day(moment) if unit == "day" else calendar_unit(moment, unit)
        found.append((_label(lower, unit), to_order(lower, "UTC"), to_order(upper, "UTC")))
        moment = upper
    return found


def _count(first: datetime, last: datetime, unit: str) -> float:
    days = (last - first).days + 1
    return days / {"day": 1, "month": 30.44, "quarter": 91.3, "year": 365.25}[unit]


def _day(moment: datetime) -> tuple[datetime, datetime]:
    start = datetime(moment.year, moment.month, moment.day)
    return start, start + timedelta(days=1)


def _label(moment: datetime, unit: str) -> str:
    if unit == "quarter":
        return f"{moment:%Y} Q{(moment.month + 2) // 3}"
    return moment.strftime({"day": "%Y-%m-%d", "month": "%Y-%m", "year": "%Y"}[unit])


def _round_up(width: int) -> int:
    """The next of 1, 2, 5, 10, 20, ..."""
    step = int(10 ** (len(str(width)) - 1))
    return next(step * factor for factor in (1, 2, 5, 10) if step * factor >= width)


def suggested_period(spans: Sequence[Span]) -> str:
    """How a table would best be cut: in months, unless it is large and young, or old and small."""
    ends = [end for span in spans if _finite(span) for end in _ends(span)]
    if not ends:
        return "month"
    days = (max(ends) - min(ends)) / _DAY
    large = sum(span.bytes for span in spans) > 10**10
    if days < 60 and large:
        return "day"
    return "year" if days > 3650 and not large else "month"
