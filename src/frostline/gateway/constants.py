"""Constants as postgres_fdw writes them, read strictly and emitted so that DuckDB has exactly the same value."""

from __future__ import annotations

import re
from collections.abc import Callable

from frostline.catalog.cold import ColdColumn
from frostline.gateway.operators import BYTE_ORDERED_TEXT
from frostline.lake.engine import quote
from frostline.model.bounds import Bound, Range, parse_bound

MICROS_PER_DAY = 86_400_000_000
_INT8 = range(-(2**63), 2**63)
# What both engines' calendars surely hold; DuckDB reserves the ends for its infinities.
_MICROS = range(-(2**63) + 2**53, 2**63 - 2**53)
_DAYS = range(-(2**31) + 2**20, 2**31 - 2**20)
_ZONE = re.compile(r"(?P<moment>.+?)(?P<sign>[+-])(?P<h>\d\d)(?::(?P<m>\d\d))?(?::(?P<s>\d\d))?(?P<bc> BC)?")
_DAY = re.compile(r"\d{4,}-\d\d-\d\d(?: BC)?")
_UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
_NUMBER = re.compile(r"(?P<sign>-?)(?P<whole>\d+)(?:\.(?P<fraction>\d+))?")


class Unknown(Exception):
    """DuckDB is not known to answer this exactly as Postgres; Postgres evaluates it."""


def constant(kind: str, text: str, column: ColdColumn) -> str:
    """The DuckDB expression of a constant compared with a column of a kind."""
    return _WRITERS[kind](text, column)


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


def _integer(text: str, _: ColdColumn) -> str:
    if not re.fullmatch(r"-?\d{1,19}", text):
        raise Unknown(f"{text} is not an integer")
    return _emit("int8", int(text))


def _moment(text: str) -> int:
    try:
        bound = parse_bound(text)
    except ValueError:
        raise Unknown(f"{text} is not a moment as Postgres prints it") from None
    if bound is None or not text[:1].isdigit() or "-" not in text:
        raise Unknown(f"{text} is not a finite moment")
    return bound.order


def _date(text: str, _: ColdColumn) -> str:
    if not _DAY.fullmatch(text):
        raise Unknown(f"{text} is not a day")
    return _emit("date", _moment(text))


def _timestamp(text: str, _: ColdColumn) -> str:
    if "+" in text or _DAY.fullmatch(text):
        raise Unknown(f"{text} is not a timestamp as Postgres prints it")
    return _emit("timestamp", _moment(text))


def _timestamptz(text: str, _: ColdColumn) -> str:
    """The zone is the client's: postgres_fdw prints constants under the local session's TimeZone."""
    match = _ZONE.fullmatch(text)
    if match is None or _DAY.fullmatch(match["moment"]) or ":" not in match["moment"]:
        raise Unknown(f"{text} is not a timestamp with time zone as Postgres prints it")
    offset = int(match["h"]) * 3600 + int(match["m"] or 0) * 60 + int(match["s"] or 0)
    local = _moment(match["moment"] + (match["bc"] or ""))
    return _emit("timestamptz", local - (offset if match["sign"] == "+" else -offset) * 1_000_000)


def _boolean(text: str, _: ColdColumn) -> str:
    if text not in ("t", "f", "true", "false"):
        raise Unknown(f"{text} is not a boolean as Postgres prints it")
    return "true" if text[0] == "t" else "false"


def _uuid(text: str, _: ColdColumn) -> str:
    if not _UUID.fullmatch(text):
        raise Unknown(f"{text} is not a UUID as Postgres prints it")
    return f"CAST({quote(text)} AS UUID)"


def _numeric(text: str, column: ColdColumn) -> str:
    """Only values the column could hold: then both sides have one type and nothing is rounded."""
    match = _NUMBER.fullmatch(text)
    if match is None:
        raise Unknown(f"{text} is not a finite number")
    precision, scale = (int(part) for part in re.findall(r"\d+", column.storage.iceberg))
    whole, fraction = match["whole"].lstrip("0"), (match["fraction"] or "").rstrip("0")
    if len(fraction) > scale or len(whole) > precision - scale:
        raise Unknown(f"{text} does not fit numeric({precision}, {scale})")
    return f"CAST('{match['sign']}{whole or '0'}.{fraction or '0'}' AS DECIMAL({precision}, {scale}))"


def _text(text: str, _: ColdColumn) -> str:
    return quote(text)


_WRITERS: dict[str, Callable[[str, ColdColumn], str]] = {
    "integer": _integer,
    "date": _date,
    "timestamp": _timestamp,
    "timestamptz": _timestamptz,
    "boolean": _boolean,
    "uuid": _uuid,
    "numeric": _numeric,
    "text": _text,
    BYTE_ORDERED_TEXT: _text,
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
    pattern = re.compile(r'"((?:[^"\\]|\\.)*)"(?:,|$)|([^"{},\\]+)(?:,|$)', re.S)
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
