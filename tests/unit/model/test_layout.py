"""What may be chosen for a table's files, and how it is written."""

from __future__ import annotations

from itertools import pairwise

import pytest

from frostline.model.bounds import Bound, Range
from frostline.model.layout import (
    NotAllowed,
    SortKey,
    check_step,
    parse_sort,
    read_sort,
    show_sort,
    sorted_by,
    step,
    write_sort,
)
from frostline.model.tables import Column, Leaf, Table
from frostline.model.types import storage

HOUR = 3_600_000_000
DAY = 24 * HOUR


def table(key_type: str, *widths: int) -> Table:
    bounds = [Bound(str(at), at) for at in (sum(widths[:n]) for n in range(len(widths) + 1))]
    columns = (
        Column(1, "id", "bigint", "bigint", storage("int8")),
        Column(2, "ts", key_type, key_type, storage(key_type)),
        Column(4, 'Odd "one"', "text", "text", storage("text")),
        Column(5, "j", "jsonb", "jsonb", storage("jsonb")),
        Column(6, "v", "bigint", "bigint", storage("int8"), generated="v"),
    )
    leaves = tuple(
        Leaf(n, "public", f"t_{n}", Range(lower, upper)) for n, (lower, upper) in enumerate(pairwise(bounds))
    )
    return Table(1, "public", "t", "me", columns, "ts", key_type, ("id", "ts"), leaves)


@pytest.mark.parametrize(
    ("key_type", "width", "chosen"),
    [
        ("timestamptz", 366 * DAY, "year"),
        ("timestamptz", 92 * DAY, "month"),
        ("timestamptz", 28 * DAY, "month"),
        ("timestamp", 7 * DAY, "day"),
        ("timestamp", 6 * HOUR, "hour"),
        ("timestamp", HOUR // 4, "hour"),
        ("date", 6 * HOUR, "day"),
        ("int4", 1000, 1000),
        ("int8", 2**40, 2**31 - 1),
    ],
)
def test_by_itself_a_step_is_not_longer_than_a_partition(key_type: str, width: int, chosen: str | int) -> None:
    assert step(table(key_type, width, width, 3 * width)) == chosen


@pytest.mark.parametrize(
    ("key_type", "width", "allowed", "refused"),
    [
        ("timestamptz", 31 * DAY, ["auto", "month", "day", "hour"], ["year", "identity", "bucket(3)", "none"]),
        ("timestamptz", 365 * DAY, ["auto", "year", "month", "day"], ["hour"]),
        ("timestamptz", HOUR // 4, ["auto", "hour"], ["day"]),
        ("date", 31 * DAY, ["month", "day"], ["hour"]),
        ("int8", 10_000, ["auto", "10000", "10", "11"], ["10001", "9"]),
        ("int8", 2**40, ["2147483647"], ["2147483648"]),
    ],
)
def test_steps_that_would_spoil_the_lake_are_refused(
    key_type: str, width: int, allowed: list[str], refused: list[str]
) -> None:
    for text in allowed:
        check_step(table(key_type, width), text)
    for text in refused:
        with pytest.raises(NotAllowed):
            check_step(table(key_type, width), text)


@pytest.mark.parametrize(("key_type", "allowed"), [("int8", ["1", "1000"]), ("date", ["year", "day"])])
def test_without_a_partition_that_ends_nothing_is_too_long_or_too_short(key_type: str, allowed: list[str]) -> None:
    for text in allowed:
        check_step(table(key_type), text)


@pytest.mark.parametrize(("key_type", "text"), [("int8", "day"), ("int8", "0"), ("int8", "-5"), ("date", "12")])
def test_what_means_nothing_is_refused_without_a_reason(key_type: str, text: str) -> None:
    with pytest.raises(ValueError, match=text) as refused:
        check_step(table(key_type, 1000 if key_type == "int8" else 31 * DAY), text)
    assert not isinstance(refused.value, NotAllowed)


def test_a_sort_order_is_read_as_sql_and_kept_by_number() -> None:
    found = parse_sort(table("date", DAY), ' "Odd ""one""" DESC, ID nulls First,ts desc nulls last ')
    assert found == (SortKey(4, True, True), SortKey(1, False, True), SortKey(2, True, False))
    assert read_sort(write_sort(found)) == found
    shown = show_sort(table("date", DAY), found)
    assert shown == '"Odd ""one""" desc, id nulls first, ts desc nulls last'
    assert parse_sort(table("date", DAY), shown) == found
    assert read_sort(None) == ()
    assert write_sort(()) is None


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("id, nope", "no column nope"),
        ("Odd", "no column odd"),
        ("id, id desc", "named twice"),
        ("j", "kept as text in the lake"),
        ("v", "virtual"),
    ],
)
def test_what_cannot_be_sorted_by_is_told(text: str, reason: str) -> None:
    with pytest.raises(NotAllowed, match=reason):
        parse_sort(table("date", DAY), text)


@pytest.mark.parametrize("text", ["", "id,", ",id", "id desc desc", "id up", "id nulls", "(id)", '"id', "id; ts"])
def test_what_is_no_order_is_refused(text: str) -> None:
    with pytest.raises(ValueError):  # noqa: PT011  what was given
        parse_sort(table("date", DAY), text)


def test_columns_that_are_gone_are_left_out_and_the_key_stands_in() -> None:
    chosen = (SortKey(3, True), SortKey(4))
    assert sorted_by(table("date", DAY), chosen) == (SortKey(4),)
    assert [key.number for key in sorted_by(table("date", DAY), chosen[:1])] == [1, 2]
    assert show_sort(table("date", DAY), chosen) == '"Odd ""one"""'
