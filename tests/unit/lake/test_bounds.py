"""Bounds of UUIDs: whoever wrote them, no value of the file is outside."""

from __future__ import annotations

import struct

from hypothesis import given, settings
from hypothesis import strategies as st

from frostline.lake.bounds import uuids


def java(raw: bytes) -> tuple[int, ...]:
    return struct.unpack(">qq", raw)


@settings(deadline=None)
@given(st.lists(st.uuids().map(lambda u: u.bytes), min_size=1, max_size=4), st.booleans())
def test_no_value_is_outside_the_bounds_of_either_order(values: list[bytes], signed: bool) -> None:
    order = java if signed else bytes
    lower, upper = uuids(min(values, key=order), max(values, key=order))
    assert lower is None or all(lower <= value for value in values)  # type: ignore[operator]
    assert upper is None or all(value <= upper for value in values)  # type: ignore[operator]


def test_uuids_in_the_order_of_time_have_both_bounds() -> None:
    first, last = bytes.fromhex("0190a1b2c3d470008000000000000000"), bytes.fromhex("0190a1b2c3d57fffbfffffffffffffff")
    assert uuids(first, last) == (first[:8] + bytes(8), last[:8] + b"\xff" * 8)
    assert uuids(bytes([0x90] * 16), bytes([0x10] * 16)) == (None, None)  # Java's, of both signs
    assert uuids(None, None) == (None, None)
