"""Constants as postgres_fdw writes them, read strictly and emitted so that DuckDB has exactly the same value."""

from __future__ import annotations

import calendar
import math
import re
import struct
from collections.abc import Callable
from decimal import Decimal

from frostline.catalog.cold import ColdColumn
from frostline.gateway.expressions.tree import Unknown
from frostline.gateway.expressions.types import DUCKDB, LIMITS, Type, numeric
from frostline.gateway.expressions.values import Value
from frostline.lake.duck import quote
from frostline.model.bounds import Bound, Range, parse_bound

__all__ = ["Unknown", "array_items", "constant", "number", "range_condition", "shortened"]

MICROS_PER_DAY = 86_400_000_000
_INT8 = range(-(2**63), 2**63)
# What both engines' calendars surely hold; DuckDB reserves the ends for its infinities.
_MICROS = range(-(2**63) + 2**53, 2**63 - 2**53)
_DAYS = range(-(2**31) + 2**20, 2**31 - 2**20)
_ZONE = re.compile(r"(?P<moment>.+?)(?P<sign>[+-])(?P<h>\d\d)(?::(?P<m>\d\d))?(?::(?P<s>\d\d))?(?P<bc> BC)?")
_MOMENT = re.compile(
    r"(?P<year>\d{4,7})-(?P<month>\d\d)-(?P<day>\d\d)"
    r"(?: (?P<hour>\d\d):(?P<minute>\d\d):(?P<second>\d\d)(?:\.\d{1,6})?)?(?P<bc> BC)?"
)
_DAY = re.compile(r"\d{4,7}-\d\d-\d\d(?: BC)?")
_UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
_NUMBER = re.compile(r"-?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d{1,3})?")
_INTERVAL = re.compile(
    r"(?:(?P<days>-?\d{1,9}) days?)? ?"
    r"(?:(?P<sign>-?)(?P<h>\d{2,9}):(?P<m>\d\d):(?P<s>\d\d)(?:\.(?P<f>\d{1,6}))?)?"
)
_DAYS_IN = (31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)
_FLOATS = {"float4": "<f", "float8": "<d"}


def constant(found: Type, text: str | None) -> Value:
    """A constant of a type; strings are strict, as what Postgres prints always fits."""
    if text is None:
        known = Type("numeric", 1) if found.name == "numeric" else found
        return Value(f"CAST(NULL AS {known.duckdb})", known, constant=True)
    if found.name == "numeric":
        return number(text)
    writer = _WRITERS.get(found.name)
    if writer is None:
        raise Unknown(f"a constant of type {found.name}")
    return Value(writer(text), found, constant=True, text=text)


def number(text: str) -> Value:
    """A numeric of just the digits it has: 1.50 is not 1.5 to an expression that prints its result."""
    if not _NUMBER.fullmatch(text):
        raise Unknown(f"{text} is not a finite number")
    value = Decimal(text)
    _, digits, exponent = value.as_tuple()
    if not isinstance(exponent, int) or abs(exponent) > 100:
        raise Unknown(f"{text} is out of DuckDB's range")
    scale = max(0, -exponent)
    found = numeric(max(len(digits) + max(exponent, 0), scale + 1), scale)
    plain = format(value.copy_abs() if value.is_zero() else value, "f")
    return Value(f"CAST('{plain}' AS {found.duckdb})", found, constant=True, text=plain)


def shortened(value: Value) -> Value:
    """The same numeric constant without needless zeros, for comparisons."""
    if value.text is None or value.type.name != "numeric":
        return value
    return number(value.text.rstrip("0").rstrip(".") if "." in value.text else value.text)


def range_condition(key: ColdColumn, found: Range, name: str) -> str:
    """True for keys in a range; NULL bounds are open."""
    parts = [
        f"{name} {operator} {_bound(key, bound)}"
        for operator, bound in ((">=", found.lower), ("<", found.upper))
        if bound is not None and not _beyond(bound, operator)
    ]
    return " AND ".join(parts) or "true"


def _beyond(bound: Bound, operator: str) -> bool:
    """An infinite end that every key in the lake is inside of, as the lake holds finite keys only."""
    return bound.text == ("-infinity" if operator == ">=" else "infinity")


def _bound(key: ColdColumn, bound: Bound) -> str:
    if bound.text.endswith("infinity"):
        # `from infinity` or `to -infinity`: no finite key is inside.
        return "NULL"
    return _emit(key.typname, bound.order)


def _emit(typname: str, order: int) -> str:
    if typname == "timestamptz":
        return f"make_timestamptz({_within(order, _MICROS)})"
    if typname == "timestamp":
        return f"make_timestamp({_within(order, _MICROS)})"
    if typname == "date":
        return f"(DATE '1970-01-01' + ({_within(order // MICROS_PER_DAY, _DAYS)}))"
    return f"({_within(order, _INT8)})"


def _within(value: int, allowed: range) -> int:
    if value not in allowed:
        raise Unknown(f"{value} is out of DuckDB's range")
    return value


def _moment(text: str) -> int:
    match = _MOMENT.fullmatch(text)
    if match is None or not _on_the_calendar(match):
        raise Unknown(f"{text} is not a moment as Postgres prints it")
    bound = parse_bound(text)
    assert bound is not None
    return bound.order


def _on_the_calendar(match: re.Match[str]) -> bool:
    """Postgres refuses other days; a second 60 or an hour 24 it would print in another way."""
    year, month, day = int(match["year"]), int(match["month"]), int(match["day"])
    if year == 0 or not 1 <= month <= 12:
        return False
    leap = calendar.isleap(1 - year if match["bc"] else year)
    clock = [int(match[part] or 0) for part in ("hour", "minute", "second")]
    return 1 <= day <= _DAYS_IN[month - 1] + (leap and month == 2) and clock[0] < 24 and max(clock[1:]) < 60


def _date(text: str) -> str:
    if not _DAY.fullmatch(text):
        raise Unknown(f"{text} is not a day")
    return _emit("date", _moment(text))


def _timestamp(text: str) -> str:
    if "+" in text or _DAY.fullmatch(text):
        raise Unknown(f"{text} is not a timestamp as Postgres prints it")
    return _emit("timestamp", _moment(text))


def _timestamptz(text: str) -> str:
    """The zone is the client's: postgres_fdw prints constants under the local session's TimeZone."""
    match = _ZONE.fullmatch(text)
    if match is None or _DAY.fullmatch(match["moment"]) or ":" not in match["moment"]:
        raise Unknown(f"{text} is not a timestamp with time zone as Postgres prints it")
    offset = int(match["h"]) * 3600 + int(match["m"] or 0) * 60 + int(match["s"] or 0)
    local = _moment(match["moment"] + (match["bc"] or ""))
    return _emit("timestamptz", local - (offset if match["sign"] == "+" else -offset) * 1_000_000)


def _boolean(text: str) -> str:
    if text not in ("t", "f", "true", "false"):
        raise Unknown(f"{text} is not a boolean as Postgres prints it")
    return "true" if text[0] == "t" else "false"


def _uuid(text: str) -> str:
    if not _UUID.fullmatch(text):
        raise Unknown(f"{text} is not a UUID as Postgres prints it")
    return f"CAST({quote(text)} AS UUID)"


def _integer(name: str) -> Callable[[str], str]:
    low, high = LIMITS[name]

    def write(text: str) -> str:
        if not re.fullmatch(r"-?\d{1,19}", text) or not low <= int(text) <= high:
            raise Unknown(f"{text} is no {name}")
        return f"({int(text)})"

    return write


def _float(name: str) -> Callable[[str], str]:
    """Both engines read decimal text to the nearest float."""

    def write(text: str) -> str:
        if text not in ("NaN", "Infinity", "-Infinity") and not _NUMBER.fullmatch(text):
            raise Unknown(f"{text} is not a number as Postgres prints it")
        if not _in_range(text, _FLOATS[name]):
            raise Unknown(f"{text} is out of {name}'s range")
        return f"CAST('{text}' AS {DUCKDB[name]})"

    return write


def _in_range(text: str, form: str) -> bool:
    """Postgres refuses what would become infinite or zero."""
    try:
        (kept,) = struct.unpack(form, struct.pack(form, float(text)))
    except OverflowError:
        return False
    return math.isinf(kept) == text.endswith("Infinity") and (kept != 0 or Decimal(text) == 0)


def _bytea(text: str) -> str:
    if not re.fullmatch(r"\\x(?:[0-9a-f]{2})*", text):
        raise Unknown("bytea not in hex")
    return f"unhex('{text[2:]}')"


def _char(text: str) -> str:
    """The lake keeps char(n) without its padding, and comparisons do not see it."""
    return quote(text.rstrip(" "))


def _interval(text: str) -> str:
    """In microseconds. Months have no length, and zones' days are not all of 24 hours: timestamps' are."""
    match = _INTERVAL.fullmatch(text)
    if match is None or not text.strip() or text.strip() != text:
        raise Unknown(f"interval {text}")
    clock = 0
    if match["h"] is not None:
        seconds = (int(match["h"]) * 60 + int(match["m"])) * 60 + int(match["s"])
        clock = seconds * 1_000_000 + int((match["f"] or "").ljust(6, "0"))
    return f"({int(match['days'] or 0) * MICROS_PER_DAY + (-clock if match['sign'] else clock)})"


_WRITERS: dict[str, Callable[[str], str]] = {
    **{name: _integer(name) for name in LIMITS},
    **{name: _float(name) for name in _FLOATS},
    "date": _date,
    "timestamp": _timestamp,
    "timestamptz": _timestamptz,
    "bool": _boolean,
    "uuid": _uuid,
    "bytea": _bytea,
    "text": quote,
    "bpchar": _char,
    "interval": _interval,
}


def array_items(text: str) -> list[str | None]:
    """The items of a one-dimensional array as Postgres prints it."""
    match = re.fullmatch(r"\{(.*)\}", text, re.S)
    if match is None:
        raise Unknown(f"{text} is not a one-dimensional array")
    if not match[1]:
        return []
    items: list[str | None] = []
    at, body = 0, match[1]
    pattern = re.compile(r'"((?:[^"\\]++|\\.)*+)"(?:,|$)|([^"{},\\]+)(?:,|$)', re.S)
    while at < len(body):
        item = pattern.match(body, at)
        if item is None:
            raise Unknown(f"{text} is not a plain array")
        if item[1] is not None:
            items.append(re.sub(r"\\(.)", r"\1", item[1], flags=re.S))
        else:
            items.append(None if item[2].upper() == "NULL" else item[2])
        at = item.end()
    if body.endswith(","):
        raise Unknown(f"{text} is not a plain array")
    return items
