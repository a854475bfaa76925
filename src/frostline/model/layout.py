"""How a table's rows are arranged in the lake, as a person chooses it: what files are cut by, and sorted by.

A file of the lake is never to hold rows of several partitions of the table: a read of one would open the others' rows,
and removing one would mean rewriting files instead of forgetting them. So steps are never longer than the partitions.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import median

from frostline.model.bounds import Range
from frostline.model.tables import Column, Table

AUTO = "auto"
_DAY = 86_400_000_000  # microseconds
# From the longest; a step of the calendar at its shortest.
STEPS = {"year": 365 * _DAY, "month": 28 * _DAY, "day": _DAY, "hour": _DAY // 24}
_MOST_WIDE = 2**31 - 1  # what Iceberg can truncate by
_MOST_PARTS = 1000  # of one partition: each is a file at least
# Where there is no choice: a month of microseconds is 1247 times as wide as what Iceberg can truncate by.
_MOST_CUTS = 2000
WIDEST = _MOST_WIDE * _MOST_CUTS  # of partitions by an integer
_OTHERS = {
    "none": "files would hold rows of several partitions, and none could be removed without rewriting the others",
    "bucket": "files would hold rows of all times, and none could be removed without rewriting the others",
    "identity": "every value of the key would be a file",
}


class NotAllowed(ValueError):
    """Something that could be meant, and why it is not to be had."""


@dataclass(frozen=True)
class SortKey:
    """One column that rows are sorted by; by its number, which no rename changes."""

    number: int
    descending: bool = False
    nulls_first: bool = False

    def __str__(self) -> str:
        return f"{self.number} {'desc' if self.descending else 'asc'} {'first' if self.nulls_first else 'last'}"


def step(table: Table, chosen: str = AUTO) -> str | int:
    """The unit of the calendar, or the width of an integer key, that files are cut by."""
    if table.key_type.startswith("int"):
        return min(_width(_ranges(table)) or _MOST_WIDE, _MOST_WIDE) if chosen == AUTO else int(chosen)
    if chosen != AUTO:
        return chosen
    # A period that does not match a unit of the calendar only costs a few more files.
    width = _width(_ranges(table)) or 30 * _DAY
    return next((unit for unit in _units(table) if STEPS[unit] <= width), _units(table)[-1])


def check_step(table: Table, text: str) -> None:
    """Whether files of the table may be cut so; ValueError where not, with the reason where there is one."""
    if text == AUTO:
        return
    if (other := re.split(r"\W", text)[0]) in _OTHERS:
        raise NotAllowed(_OTHERS[other])
    integer, width = table.key_type.startswith("int"), _width(_ranges(table))
    if integer and not re.fullmatch(r"[1-9]\d{0,18}", text):
        raise ValueError(text)
    if not integer and text not in _units(table):
        raise NotAllowed("a date has no hours") if text in STEPS else ValueError(text)
    one = int(text) if integer else STEPS[text]
    if integer and one > _MOST_WIDE:
        raise NotAllowed(f"Iceberg cuts by {_MOST_WIDE} at most")
    if width is None:
        return
    if one > width and (integer or text != _units(table)[-1]):
        raise NotAllowed(
            f"partitions of the table are shorter ({step(table)}): files would hold rows of several, and none could be"
            " removed without rewriting the others"
        )
    if width // one > _MOST_PARTS:
        raise NotAllowed(f"a partition of the table would become {width // one:,} files or more")


def cuts(ranges: Iterable[Range]) -> int | None:
    """How many files, at least, partitions of an integer key become; None: not too many."""
    width = _width(ranges)
    return width // _MOST_WIDE if width is not None and width > WIDEST else None


def _units(table: Table) -> list[str]:
    return [unit for unit in STEPS if unit != "hour" or table.key_type != "date"]


def _ranges(table: Table) -> Iterable[Range]:
    return (leaf.range for leaf in table.leaves if leaf.range is not None)


def _width(ranges: Iterable[Range]) -> int | None:
    """Of a usual partition; None where none of them ends."""
    widths = [one.upper.order - one.lower.order for one in ranges if one.lower is not None and one.upper is not None]
    return int(median(widths)) if widths else None


_KEY = re.compile(
    r'\s*(?:"(?P<quoted>(?:[^"]|"")+)"|(?P<plain>[^\W\d][\w$]*))'
    r"(?:\s+(?P<direction>asc|desc))?(?:\s+nulls\s+(?P<nulls>first|last))?\s*",
    re.IGNORECASE,
)


def parse_sort(table: Table, text: str) -> tuple[SortKey, ...]:
    """`device_id, ts desc nulls last`, as in ORDER BY: names as SQL has them, nulls last unless descending."""
    columns = {column.name: column for column in table.columns}
    found: list[SortKey] = []
    at = 0
    while True:
        if (part := _KEY.match(text, at)) is None:
            raise ValueError(text)
        name = part["quoted"].replace('""', '"') if part["quoted"] else part["plain"].lower()
        if name not in columns:
            raise NotAllowed(f"the table has no column {name}")
        _check_sortable(columns[name])
        if columns[name].number in {key.number for key in found}:
            raise NotAllowed(f"column {name} is named twice")
        descending = (part["direction"] or "asc").lower() == "desc"
        nulls_first = (part["nulls"] or ("first" if descending else "last")).lower() == "first"
        found.append(SortKey(columns[name].number, descending, nulls_first))
        if (at := part.end()) == len(text):
            return tuple(found)
        if text[at] != ",":
            raise ValueError(text)
        at += 1


def _check_sortable(column: Column) -> None:
    if column.generated == "v":
        raise NotAllowed(f"column {column.name} is virtual: its values are not kept")
    if not column.storage.native:
        raise NotAllowed(
            f"column {column.name} is kept as text in the lake ({column.type}), whose order is another than Postgres's"
        )


def read_sort(text: str | None) -> tuple[SortKey, ...]:
    """As the registry has it."""
    parts = (part.split() for part in (text or "").split(",") if part)
    return tuple(SortKey(int(number), way == "desc", nulls == "first") for number, way, nulls in parts)


def write_sort(keys: Sequence[SortKey]) -> str | None:
    """For the registry; None: the primary key."""
    return ", ".join(map(str, keys)) or None


def sorted_by(table: Table, chosen: Sequence[SortKey]) -> tuple[SortKey, ...]:
    """What rows are really sorted by: columns that were dropped since are left out; without any, the primary key."""
    numbers = {column.name: column.number for column in table.stored}
    there = tuple(key for key in chosen if key.number in numbers.values())
    return there or tuple(SortKey(numbers[name], nulls_first=True) for name in table.primary_key)


def show_sort(table: Table, keys: Sequence[SortKey]) -> str:
    """As a person would write it."""
    names = {column.number: column.name for column in table.stored}

    def one(key: SortKey) -> str:
        name = names[key.number]
        plain = re.fullmatch(r"[a-z_][a-z0-9_$]*", name) and name != "default"  # which means another thing
        quoted = name if plain else '"' + name.replace('"', '""') + '"'
        nulls = "" if key.nulls_first == key.descending else f" nulls {'first' if key.nulls_first else 'last'}"
        return f"{quoted}{' desc' if key.descending else ''}{nulls}"

    return ", ".join(one(key) for key in keys if key.number in names)
