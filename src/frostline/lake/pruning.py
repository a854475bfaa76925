"""Which files of a snapshot can hold a row that satisfies a condition.

A file dropped wrongly is a lost row, so every rule answers "may hold" wherever anything is not known: a bound that is
missing, a type that is not the one expected, an operator that is not listed here.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass

from frostline.lake.bounds import Value
from frostline.lake.files import ColumnStatistics, Snapshot


@dataclass(frozen=True)
class Column:
    """A lake column by its field id, and the Iceberg type the condition takes it for."""

    id: int
    type: str


@dataclass(frozen=True)
class Compare:
    """`column operator value`, one of < <= > >=."""

    column: Column
    operator: str
    value: Value


@dataclass(frozen=True)
class Among:
    """`column = any of values`, in ascending order; with none of them it is never true."""

    column: Column
    values: tuple[Value, ...]


@dataclass(frozen=True)
class IsNull:
    """`column IS [NOT] NULL`."""

    column: Column
    negated: bool = False


@dataclass(frozen=True)
class AllOf:
    """True when every part is; without parts always."""

    parts: tuple[Condition, ...] = ()


@dataclass(frozen=True)
class AnyOf:
    """True when some part is."""

    parts: tuple[Condition, ...]


Condition = Compare | Among | IsNull | AllOf | AnyOf
ALWAYS = AllOf()
_PERIODS = 1000  # remembered per snapshot


def chosen(snapshot: Snapshot, conditions: Iterable[Condition]) -> list[int]:
    """The places of the files in which all the conditions may hold for one row."""
    return _all(snapshot, conditions, list(range(len(snapshot.files))))


def chosen_of(
    snapshot: Snapshot, name: Hashable, period: Callable[[], Iterable[Condition]], conditions: Iterable[Condition]
) -> list[int]:
    """The same within a period. Few periods are asked for again and again: the snapshot knows their files by name."""
    found = snapshot.periods.get(name)
    if found is None:
        found = chosen(snapshot, period())
        if len(snapshot.periods) < _PERIODS:
            snapshot.periods[name] = found
    return _all(snapshot, conditions, found)


def wholly(snapshot: Snapshot, places: Iterable[int], period: Iterable[Compare]) -> bool:
    """Whether every row of these files satisfies all the comparisons: their bounds do, and nothing is NULL."""
    places = list(places)
    return all(_surely(snapshot, comparison, at) for comparison in period for at in places)


def _surely(snapshot: Snapshot, condition: Compare, at: int) -> bool:
    known = _statistics(snapshot, condition.column)
    if known is None or known.nulls[at] != 0:
        return False
    lower, upper = known.lower[at], known.upper[at]
    if lower is None or upper is None:
        return False
    return _may_be(condition, lower, lower) and _may_be(condition, upper, upper)


def _all(snapshot: Snapshot, conditions: Iterable[Condition], among: list[int]) -> list[int]:
    for condition in conditions:
        among = _filtered(snapshot, condition, among)
    return among


def _filtered(snapshot: Snapshot, condition: Condition, among: list[int]) -> list[int]:
    if isinstance(condition, AllOf):
        return _all(snapshot, condition.parts, among)
    if isinstance(condition, AnyOf):
        kept = {at for part in condition.parts for at in _filtered(snapshot, part, among)}
        return [at for at in among if at in kept]
    known = _statistics(snapshot, condition.column)
    if known is None:
        return among
    if isinstance(condition, IsNull):
        return [at for at in among if _null_may_be(snapshot.files[at].rows, known.nulls[at], condition.negated)]
    # No comparison is true for NULL.
    return _compared(condition, known, [at for at in among if known.nulls[at] != snapshot.files[at].rows])


def _compared(condition: Compare | Among, known: ColumnStatistics, among: list[int]) -> list[int]:
    try:
        if isinstance(condition, Among):
            return [at for at in among if _any_between(condition.values, known.lower[at], known.upper[at])]
        return [at for at in among if _may_be(condition, known.lower[at], known.upper[at])]
    except TypeError:
        return among


def _statistics(snapshot: Snapshot, column: Column) -> ColumnStatistics | None:
    found = snapshot.fields.get(column.id)
    if found is None or str(found.field_type) != column.type:
        return None
    return snapshot.column(column.id)


def _null_may_be(rows: int, nulls: int | None, negated: bool) -> bool:
    if nulls is None:
        return True
    return nulls != rows if negated else nulls != 0


def _any_between(values: tuple[Value, ...], lower: Value | None, upper: Value | None) -> bool:
    at = 0 if lower is None else bisect_left(values, lower)
    if at == len(values):
        return False
    return upper is None or values[at] <= upper  # type: ignore[operator]


def _may_be(condition: Compare, lower: Value | None, upper: Value | None) -> bool:
    value = condition.value
    match condition.operator:
        case "<":
            return lower is None or lower < value  # type: ignore[operator]
        case "<=":
            return lower is None or lower <= value  # type: ignore[operator]
        case ">":
            return upper is None or upper > value  # type: ignore[operator]
        case ">=":
            return upper is None or upper >= value  # type: ignore[operator]
    return True
