"""A binary COPY becomes Arrow columns that hold exactly its values."""

from __future__ import annotations

import math
import struct
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from frostline.lake.decode import BadCopy, Wire, batch

DAYS_TO_2000 = 10_957
MICROS_TO_2000 = DAYS_TO_2000 * 86_400_000_000

Kind = tuple[Wire, st.SearchStrategy[Any], Callable[[Any], bytes]]


def packed(format_: str, shift: int = 0) -> Callable[[Any], bytes]:
    return lambda value: struct.pack(format_, value - shift if shift else value)


def number(bits: int) -> st.SearchStrategy[int]:
    return st.integers(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)


# The values are those Arrow is asked for afterwards: days and microseconds since 1970.
KINDS: list[Kind] = [
    (Wire("b", "bool", pa.bool_()), st.booleans(), packed("?")),
    (Wire("i2", "int2", pa.int32()), number(16), packed(">h")),
    (Wire("i4", "int4", pa.int32()), number(32), packed(">i")),
    (Wire("i8", "int8", pa.int64()), number(64), packed(">q")),
    (Wire("o", "oid", pa.int64()), st.integers(0, 2**32 - 1), packed(">I")),
    (Wire("f4", "float4", pa.float32()), st.floats(width=32), packed(">f")),
    (Wire("f8", "float8", pa.float64()), st.floats(), packed(">d")),
    (Wire("d", "date", pa.date32()), st.integers(-2_440_588, 2_145_042_541), packed(">i", DAYS_TO_2000)),
    (
        Wire("t", "timestamp", pa.timestamp("us")),
        st.integers(-210_866_803_200_000_000, 2**63 - 1),
        packed(">q", MICROS_TO_2000),
    ),
    (Wire("u", "uuid", pa.binary(16)), st.uuids().map(lambda u: u.bytes), bytes),
    (Wire("x", "bytes", pa.binary()), st.binary(), bytes),
    (Wire("s", "text", pa.string()), st.text(), str.encode),
    (
        Wire("n", "text", pa.decimal128(38, 10)),
        st.decimals(-(10**27), 10**27, places=10),
        lambda value: format(value, "f").encode(),
    ),
]


def message(values: list[bytes | None]) -> bytes:
    fields = (struct.pack(">i", -1) if v is None else struct.pack(">i", len(v)) + v for v in values)
    return struct.pack(">h", len(values)) + b"".join(fields)


def plain(column: Any, wire: Wire) -> list[Any]:
    """Python's dates end in the year 9999."""
    if wire.wire in ("date", "timestamp"):
        column = column.view(pa.int32() if wire.wire == "date" else pa.int64())
    return list(column.to_pylist())


def same(found: Any, wanted: Any) -> bool:
    if isinstance(wanted, float):
        return struct.pack(">d", found) == struct.pack(">d", wanted) or (math.isnan(found) and math.isnan(wanted))
    return type(found) is type(wanted) and found == wanted


@settings(deadline=None)
@given(st.data())
def test_every_value_comes_out_as_it_went_in(data: st.DataObject) -> None:
    kinds = data.draw(st.lists(st.sampled_from(KINDS), min_size=1, max_size=6))
    row = st.tuples(*(st.none() | values for _, values, _ in kinds))
    rows = data.draw(st.lists(row, min_size=1, max_size=8))
    messages = [
        message([None if v is None else write(v) for v, (_, _, write) in zip(r, kinds, strict=True)]) for r in rows
    ]
    wires = [Wire(f"c{at}", wire.wire, wire.arrow) for at, (wire, _, _) in enumerate(kinds)]
    found = batch(messages, wires)
    found.validate(full=True)
    for at, wire in enumerate(wires):
        wanted = [row[at] for row in rows]
        values = plain(found.column(at), wire)
        assert all(map(same, values, wanted)), (wire, values, wanted)
        assert found.column(at).type == wire.arrow


@pytest.mark.parametrize(("wire", "raw"), [("date", 2**31 - 1), ("date", -(2**31)), ("timestamp", 2**63 - 1)])
def test_infinity_is_no_date(wire: str, raw: int) -> None:
    arrow, format_ = (pa.date32(), ">i") if wire == "date" else (pa.timestamp("us"), ">q")
    with pytest.raises(BadCopy):
        batch([message([struct.pack(format_, 0)]), message([struct.pack(format_, raw)])], [Wire("d", wire, arrow)])


def test_the_latest_moment_since_1970_is_exact_and_the_one_after_it_refused() -> None:
    wire, latest = Wire("t", "timestamp", pa.timestamp("us")), 2**63 - 1 - MICROS_TO_2000
    assert plain(batch([message([struct.pack(">q", latest)])], [wire]).column(0), wire) == [2**63 - 1]
    with pytest.raises(BadCopy):
        batch([message([struct.pack(">q", latest + 1)])], [wire])


@pytest.mark.parametrize(
    "rows",
    [
        [message([b"1234", b"5678"])],  # a column too many
        [message([b"1234"]), message([b"12"])],  # a value of another width
        [message([b"1234"]) + b"x"],  # something behind the row
    ],
)
def test_rows_of_another_shape_are_refused(rows: list[bytes]) -> None:
    with pytest.raises(BadCopy):
        batch(rows, [Wire("i", "int4", pa.int32())])


def test_text_that_is_no_utf8_is_refused() -> None:
    with pytest.raises(pa.ArrowInvalid):
        batch([message([b"\xff\xfe"])], [Wire("s", "text", pa.string())])


def test_a_decimal_keeps_its_scale() -> None:
    wire = Wire("n", "text", pa.decimal128(12, 3))
    found = batch([message([b"-123456789.120"]), message([b"0.000"])], [wire]).column(0)
    assert found.to_pylist() == [Decimal("-123456789.120"), Decimal("0.000")]
