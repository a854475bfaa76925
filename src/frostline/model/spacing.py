"""How a table's partitions follow each other: recognised from their bounds, and carried on.

Bounds are compared by their `order`: microseconds since 1970 for a time, the number itself for an integer. Calendar
steps are counted on the wall clock of one time zone, for months and days that begin at a local midnight are not equally
long in UTC.
"""

from __future__ import annotations

import calendar
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError, available_timezones

from frostline.model.bounds import Bound, Range, parse_bound

_EPOCH = datetime(1970, 1, 1)
_DAY = 86_400_000_000  # microseconds
_LONGEST_LEAP = timedelta(hours=2)  # in summer
_LAST_DAY_OF_EVERY_MONTH = 28
_LOOKED_AT = 24  # partitions back from the newest
_AGREED_ON = 800 * _DAY  # time zones that agree for so long are interchangeable
MOST_AT_ONCE = 60  # more missing partitions than this are a hole to be left alone
_LIMITS = {"int2": 2**15, "int4": 2**31, "int8": 2**63}
_KINDS = ("month", "day", "fixed")  # a later one only if it explains more partitions


@dataclass(frozen=True)
class Step:
    """From one bound to the next: `count` months or days of a zone's calendar, or a fixed width."""

    kind: str  # month, day, fixed
    count: int
    zone: str = "UTC"

    def after(self, order: int, limit: int) -> int | None:
        """The bound one step later; None beyond what the key can hold."""
        if self.kind == "fixed":
            found = order + self.count
            return found if found < limit else None
        try:
            return to_order(self._add(local(order, self.zone)), self.zone)
        except (OverflowError, ValueError):
            return None

    def _add(self, moment: datetime) -> datetime:
        if self.kind == "day":
            return moment + timedelta(days=self.count)
        months = moment.year * 12 + moment.month - 1 + self.count
        return moment.replace(year=months // 12, month=months % 12 + 1)


def local(order: int, zone: str) -> datetime:
    """The wall clock of a zone at a bound."""
    moment = _EPOCH + timedelta(microseconds=order)
    if zone == "UTC":
        return moment
    wall = moment.replace(tzinfo=UTC).astimezone(ZoneInfo(zone)).replace(tzinfo=None)
    midnight = datetime(wall.year, wall.month, wall.day)
    if midnight < wall <= midnight + _LONGEST_LEAP and to_order(midnight, zone) == order:
        return midnight  # clocks were put forward at that very moment, and the next day begins at midnight again
    return wall


def to_order(moment: datetime, zone: str) -> int:
    if zone != "UTC":
        moment = moment.replace(tzinfo=ZoneInfo(zone)).astimezone(UTC).replace(tzinfo=None)
    return (moment - _EPOCH) // timedelta(microseconds=1)


def limit(key_type: str) -> int:
    """The first integer that a key cannot hold; its negative is the least it can."""
    return _LIMITS.get(key_type, 2**63)


def bound(order: int, key_type: str) -> Bound:
    """An order as Postgres prints it under UTC and ISO."""
    if key_type in _LIMITS:
        return Bound(str(order), order)
    moment = _EPOCH + timedelta(microseconds=order)
    text = moment.isoformat(sep=" ")
    found = parse_bound(text[:10] if key_type == "date" else text + ("+00" if key_type == "timestamptz" else ""))
    assert found is not None
    return found


def recognise(ranges: Sequence[Range], key_type: str, home: str = "UTC") -> Step | None:
    """The step that explains most partitions back from the newest; `home` is the database's own time zone."""
    spans = [
        (r.lower.order, r.upper.order) for r in ranges if _finite(r) and r.lower is not None and r.upper is not None
    ]
    if not spans:
        return None
    run = [spans[-1]]
    for one, other in pairwise(reversed(spans[-_LOOKED_AT:])):
        if other[1] != one[0]:
            break
        run.append(other)
    if key_type in _LIMITS:
        widths = {upper - lower for lower, upper in run[:2]}
        return Step("fixed", widths.pop()) if len(widths) == 1 else None
    zones = ["UTC"] + [home] * (key_type == "timestamptz" and home != "UTC" and known(home))
    found = _best(run, zones)
    if key_type == "timestamptz" and (found is None or not _at_midnight(run, found)):
        found = _elsewhere(run, found)
    # One partition of an odd width says nothing about the next.
    return found if found is None or found.kind != "fixed" or len(run) == 1 or _explained(run, found) > 1 else None


def _best(run: Sequence[tuple[int, int]], zones: Iterable[str]) -> Step | None:
    candidates = [step for zone in zones for step in _candidates(run[0], zone)]
    if not candidates:
        return None
    return max(candidates, key=lambda step: _score(run, step))


def _score(run: Sequence[tuple[int, int]], step: Step) -> tuple[int, int, bool]:
    return _explained(run, step), -_KINDS.index(step.kind), _at_midnight(run, step)


def _elsewhere(run: Sequence[tuple[int, int]], found: Step | None) -> Step | None:
    """Partitions may follow the calendar of a zone that nobody told us: taken when all zones that fit agree."""
    steps = [step for zone in sorted(available_timezones()) for step in _candidates(run[0], zone)]
    better = [s for s in steps if _at_midnight(run, s) and (found is None or _score(run, s) > _score(run, found))]
    if not better:
        return found
    top = max(_score(run, step) for step in better)
    best = [step for step in better if _score(run, step) == top]
    futures = {tuple(_walk(run[0][1], step)) for step in best}
    return best[0] if len(futures) == 1 else found


def _walk(order: int, step: Step) -> Iterator[int | None]:
    at: int | None = order
    while at is not None and at < order + _AGREED_ON:
        at = step.after(at, 2**63)
        yield at


def _candidates(span: tuple[int, int], zone: str) -> Iterator[Step]:
    try:
        lower, upper = (local(order, zone) for order in span)
    except (OverflowError, ValueError):
        return
    same_time = lower.time() == upper.time()
    if same_time and lower.day == upper.day <= _LAST_DAY_OF_EVERY_MONTH:
        yield Step("month", (upper.year - lower.year) * 12 + upper.month - lower.month, zone)
    if same_time:
        yield Step("day", (upper - lower).days, zone)
    if zone == "UTC":
        yield Step("fixed", span[1] - span[0])


def _explained(run: Sequence[tuple[int, int]], step: Step) -> int:
    for number, (lower, upper) in enumerate(run):
        if step.after(lower, 2**63) != upper:
            return number
    return len(run)


def _at_midnight(run: Sequence[tuple[int, int]], step: Step) -> bool:
    return step.kind != "fixed" and local(run[0][0], step.zone).time() == datetime.min.time()


def known(zone: str) -> bool:
    """Whether a calendar can be had for a time zone."""
    try:
        ZoneInfo(zone)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        return zone == "UTC"
    return True


def _finite(range_: Range) -> bool:
    return all(side is not None and abs(side.order) < 2**100 for side in (range_.lower, range_.upper))


def missing(ranges: Sequence[Range], step: Step, now: int, premake: int, key_type: str) -> list[Range]:
    """The partitions to create so that the current one exists and `premake` after it; none below the current gap."""
    made: list[Range] = []
    ahead = sum(r.lower is not None and r.lower.order > now for r in ranges)
    for start, end in _gaps(ranges):
        if end is not None and end <= now:
            continue
        for lower, upper in _cut(start, end, step, now, limit(key_type)):
            if end is None and lower > now and ahead >= premake:
                break
            ahead += lower > now
            made.append(Range(bound(lower, key_type), bound(upper, key_type)))
    return made


def _gaps(ranges: Sequence[Range]) -> Iterator[tuple[int, int | None]]:
    """Holes between partitions, and the room after the last one."""
    for one, other in pairwise(ranges):
        if one.upper is not None and other.lower is not None and one.upper < other.lower:
            yield one.upper.order, other.lower.order
    if ranges and ranges[-1].upper is not None and ranges[-1].upper.order < 2**100:
        yield ranges[-1].upper.order, None


def _cut(start: int, end: int | None, step: Step, now: int, limit: int) -> Iterator[tuple[int, int]]:
    """A gap cut into steps. A hole that is much too wide, or has another partition behind it, is cut from now on."""
    lower, behind = start, 0
    spans = []
    while lower <= now and (end is None or lower < end):
        upper = step.after(lower, limit)
        if upper is None:
            return
        spans.append((lower, upper if end is None else min(upper, end)))
        lower, behind = upper, behind + 1
    yield from spans[-1:] if end is not None or behind > MOST_AT_ONCE else spans
    while end is None or lower < end:
        upper = step.after(lower, limit)
        if upper is None:
            return
        yield lower, upper if end is None else min(upper, end)
        lower = upper


# From the most exact: as strftime writes the lower bound of a partition into its name.
_IN_NAMES = (
    "%Y_%m_%d_%H%M",
    "%Y%m%d_%H%M",
    "%Y%m%d%H%M",
    "%Y_%m_%d_%H",
    "%Y%m%d_%H",
    "%Y%m%d%H",
    "%Y_%m_%d",
    "%Y-%m-%d",
    "%Y%m%d",
    "%G_w%V",
    "%Gw%V",
    "%Ym%m",
    "%Y_%m",
    "%Y-%m",
    "%Y%m",
    "%G_%V",
    "%y%m%d",
    "%y_%m",
    "%Y_q%q",
    "%Yq%q",
    "%Y",
)


def name_of(table: str, like: tuple[str, Bound], lower: Bound, step: Step, key_type: str) -> str:
    """A name in the manner of an existing partition, or one of our own making."""
    example, its = like
    if key_type in _LIMITS:
        number = str(lower.order).replace("-", "n")
        return _replaced(example, str(its.order).replace("-", "n"), number) or f"{table}_{number}"
    old, new = local(its.order, step.zone), local(lower.order, step.zone)
    for form in _IN_NAMES:
        was, will = _written(old, form), _written(new, form)
        if was != will and (name := _replaced(example, was, will)) is not None:
            return name
    return f"{table}_{label(new, step)}"


def _replaced(name: str, was: str, will: str) -> str | None:
    """Its last occurrence that is no part of a longer number."""
    found = list(re.finditer(rf"(?<!\d){re.escape(was)}(?!\d)", name))
    return f"{name[: found[-1].start()]}{will}{name[found[-1].end() :]}" if found else None


def _written(moment: datetime, form: str) -> str:
    return moment.strftime(form.replace("%q", str((moment.month + 2) // 3)))


def label(moment: datetime, step: Step) -> str:
    """What tells a partition from the others in its name."""
    if step.kind == "month":
        return moment.strftime("%Y" if step.count % 12 == 0 else "%Y_%m")
    return moment.strftime("%Y_%m_%d" if step.kind == "day" else "%Y_%m_%d_%H%M%S")


def calendar_unit(moment: datetime, unit: str) -> tuple[datetime, datetime]:
    """The calendar month, quarter or year that a moment lies in."""
    months = {"month": 1, "quarter": 3, "year": 12}[unit]
    first = (moment.month - 1) // months * months + 1
    start = datetime(moment.year, first, 1)
    days = sum(calendar.monthrange(start.year, first + n)[1] for n in range(months))
    return start, start + timedelta(days=days)
