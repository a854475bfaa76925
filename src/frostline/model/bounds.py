"""Range bounds of partitions: parsed from the catalog's text, compared exactly, written back.

A bound keeps the text Postgres prints under `timezone = UTC, datestyle = ISO` and an integer that orders it.
`None` stands for MINVALUE on the lower side and MAXVALUE on the upper.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import total_ordering

# Postgres names of the key types a period can be cut by.
KEY_TYPES = ("timestamptz", "timestamp", "date", "int2", "int4", "int8")

_MICROS_PER_DAY = 86_400_000_000
_MOMENT = re.compile(
    r"(?P<year>\d{4,})-(?P<month>\d\d)-(?P<day>\d\d)"
    r"(?: (?P<hour>\d\d):(?P<minute>\d\d):(?P<second>\d\d)(?:\.(?P<fraction>\d{1,6}))?)?"
    r"(?P<zone>\+00)?(?P<bc> BC)?"
)
_INFINITE = {"-infinity": -(2**127), "infinity": 2**127}  # beyond any year Postgres knows
_PARTITION = re.compile(r"FOR VALUES FROM \((?P<lower>.+)\) TO \((?P<upper>.+)\)", re.S)
_RANGE = re.compile(r"from (?P<lower>.+) to (?P<upper>.+)", re.S)


@total_ordering
@dataclass(frozen=True)
class Bound:
    """One end of a period."""

    text: str = field(compare=False)
    order: int

    def __lt__(self, other: Bound) -> bool:
        return self.order < other.order

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True)
class Range:
    """Half-open: lower <= key < upper."""

    lower: Bound | None
    upper: Bound | None

    def __str__(self) -> str:
        """The form foreign tables carry in their options, which the gateway parses back."""
        return f"from {self.lower or 'MINVALUE'} to {self.upper or 'MAXVALUE'}"

    def holds(self, point: Bound) -> bool:
        return (self.lower is None or self.lower <= point) and (self.upper is None or point < self.upper)

    def overlaps(self, other: Range) -> bool:
        """Whether a key can be in both."""
        return all(
            lower is None or upper is None or lower < upper
            for lower, upper in ((self.lower, other.upper), (other.lower, self.upper))
        )

    def below(self, seam: Bound | None) -> bool:
        """Wholly under the seam (None: nothing is)."""
        return seam is not None and self.upper is not None and self.upper <= seam


def parse_bound(text: str) -> Bound | None:
    """A bound as printed by Postgres, quoted or not; MINVALUE and MAXVALUE are None."""
    if text in ("MINVALUE", "MAXVALUE"):
        return None
    bare = text[1:-1].replace("''", "'") if text.startswith("'") else text
    return Bound(bare, _order(bare))


def parse_partition(text: str) -> Range | None:
    """The range in `pg_get_expr(relpartbound)`, or None for DEFAULT and other kinds of partition."""
    match = _PARTITION.fullmatch(text)
    return Range(parse_bound(match["lower"]), parse_bound(match["upper"])) if match else None


def parse_range(text: str) -> Range:
    """The inverse of `str(Range)`."""
    match = _RANGE.fullmatch(text)
    if match is None:
        raise ValueError(f"not a range: {text!r}")
    return Range(parse_bound(match["lower"]), parse_bound(match["upper"]))


def _order(text: str) -> int:
    if text in _INFINITE:
        return _INFINITE[text]
    if re.fullmatch(r"-?\d+", text):
        return int(text)
    match = _MOMENT.fullmatch(text)
    if match is None:
        raise ValueError(f"not a bound Postgres prints under UTC and ISO: {text!r}")
    year = int(match["year"])
    days = _days(1 - year if match["bc"] else year, int(match["month"]), int(match["day"]))
    seconds = int(match["hour"] or 0) * 3600 + int(match["minute"] or 0) * 60 + int(match["second"] or 0)
    return days * _MICROS_PER_DAY + seconds * 1_000_000 + int((match["fraction"] or "").ljust(6, "0"))


def _days(year: int, month: int, day: int) -> int:
    """Days since 1970-01-01 in the proleptic Gregorian calendar, any year (datetime ends at 9999)."""
    year -= month <= 2
    era, of_era = divmod(year, 400)
    of_year = (153 * (month + (-3 if month > 2 else 9)) + 2) // 5 + day - 1
    return era * 146_097 + of_era * 365 + of_era // 4 - of_era // 100 + of_year - 719_468
