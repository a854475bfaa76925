"""Which old periods are joined to larger ones: the option as a person writes it."""

from __future__ import annotations

import re

import psycopg

from frostline.catalog.database import Connection
from frostline.model.layout import NotAllowed

UNITS = ("month", "quarter", "year")
DEFAULT = ("year", "2 years")  # months for two years, years before
_TEXT = re.compile(r"(?P<to>\S+)\s+after\s+(?P<after>.+)", re.S)


def parse(connection: Connection, key_type: str, text: str) -> tuple[str, str] | None:
    """`year after 2 years`, for an integer key `1000000 after 5000000`, `none`; empty: the default. Else ValueError."""
    integer = key_type.startswith("int")
    if text == "none" or (text == "" and integer):
        return None
    if text == "":
        return DEFAULT
    match = _TEXT.fullmatch(text.strip())
    if match is not None and (_width(match["to"]) if integer else match["to"] in UNITS):
        after = match["after"].strip()
        if _positive(connection, after, "bigint" if integer else "interval"):
            if not integer:
                check_reach(connection, after)
            return match["to"], after
    raise ValueError(text)


def check_reach(connection: Connection, interval: str) -> None:
    """Whether there is a moment that long ago; NotAllowed where not: every later look at the table would fail."""
    try:
        row = connection.execute("SELECT isfinite(now() - %s::interval)", (interval,)).fetchone()
    except psycopg.errors.DatetimeFieldOverflow:
        row = None
    if row != (True,):
        raise NotAllowed("that is before 4713 BC, where Postgres's calendar begins")


def _width(text: str) -> bool:
    return text.isdecimal() and int(text) > 0


def _positive(connection: Connection, value: str, type_: str) -> bool:
    try:
        row = connection.execute(f"SELECT %s::{type_} >= '0'::{type_}", (value,)).fetchone()
    except psycopg.DataError:
        return False
    return row == (True,)
