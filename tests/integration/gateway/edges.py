"""Values at the edges of every type: rows of the tables that are compared, and constants of what they are asked."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence

SEED = 20260301
ROWS = 400

TEXTS = (
    *("", " ", "a", "A", "b", "B", "ab", "aB", "ab ", "ab  ", " ab", "abc", "abd", "a b", "a-b", "a_b", "a%b", "axb"),
    *("a\\b", "\\", "\\%", "%", "_", "__", "a\nb", "a\tb", "'", '"', "it's", "row 5", "row 50", "Row 5", "z", "Z", "~"),
    *(
        "é",
        "e\u0301",
        "É",
        "ß",
        "ss",
        "SS",
        "straße",
        "ı",
        "İ",
        "i",
        "I",
        "ﬁ",
        "😀",
        "👍🏽",
        "中",
        "中文",
        "\u200b",
        "0",
    ),
    *("10", "9", "-1", "null", "NULL", "{}", "ä", "z\u00ff", "\ufffd", "\U0010ffff", "aaaaaaaaaaaaaaaa", "a" * 20),
)
_TIMES = ("00:00:00", "00:00:00.000001", "12:34:56.789", "23:59:59.999999")
_DAYS = (
    *("4713-01-01 BC", "0044-03-15 BC", "0001-12-31 BC", "0001-01-01", "0099-02-03", "1582-10-10", "1900-02-28"),
    *("1969-12-31", "1970-01-01", "1999-12-31", "2000-02-29", "2024-02-29", "2025-03-30", "2025-10-26", "2026-01-31"),
    *("2026-02-28", "2026-03-01", "9999-12-31", "12026-05-06"),
)


def _moments(zone: str) -> tuple[str, ...]:
    found = []
    for number, day in enumerate((*_DAYS, "294246-12-31")):
        date, _, era = day.partition(" ")
        found.append(f"{date} {_TIMES[number % len(_TIMES)]}{zone}{' BC' if era else ''}")
    return (*found, f"2026-01-01 00:00:00{zone}", f"2025-12-31 23:59:59.999999{zone}", f"2025-03-30 02:30:00{zone}")


EDGES: dict[str, tuple[str, ...]] = {
    "int2": ("-32768", "-32767", "-7", "-2", "-1", "0", "1", "2", "3", "7", "100", "181", "182", "32766", "32767"),
    "int4": (
        *("-2147483648", "-2147483647", "-32769", "-100", "-7", "-1", "0", "1", "2", "3", "7", "10", "100", "46340"),
        *("46341", "65536", "2147483646", "2147483647"),
    ),
    "int8": (
        *("-9223372036854775808", "-9223372036854775807", "-2147483649", "-7", "-1", "0", "1", "2", "7", "100"),
        *("2147483648", "3037000499", "3037000500", "9007199254740993", "9223372036854775806", "9223372036854775807"),
    ),
    "float4": (
        "NaN",
        "Infinity",
        "-Infinity",
        "0",
        "-0",
        "0.1",
        "-1.5",
        "1.5",
        "2",
        "100",
        "16777216",
        "1e30",
        "3.4e38",
    ),
    "float8": (
        *("NaN", "Infinity", "-Infinity", "0", "-0", "0.1", "0.3", "-1.5", "0.5", "2", "2.5", "100", "1e-300"),
        *("9007199254740992", "1e300", "-1e300", "0.10000000149011612", "1.7976931348623157e308"),
    ),
    "numeric(12,4)": (
        *("0", "0.0001", "-0.0001", "0.5", "-0.5", "1", "1.5", "2.5", "-2.5", "7", "100", "12.3456", "12.3450"),
        *("99999999.9999", "-99999999.9999", "2147483647.5"),
    )[:-1],
    "numeric(20,10)": ("0", "0.0000000001", "-0.0000000001", "0.5", "1.5", "9999999999.9999999999", "-7", "12.3456"),
    "numeric(38,6)": ("0", "0.000001", "-1", "99999999999999999999999999999999.999999", "-0.5", "12.345600"),
    "numeric": ("0", "0.00", "1.10", "1.1", "-1e30", "1e40", "0.000000000000000000000000000000000000001", "NaN"),
    "bool": ("t", "f"),
    "text": TEXTS,
    "varchar(20)": tuple(dict.fromkeys(text[:20] for text in TEXTS)),
    "char(8)": tuple(dict.fromkeys(text[:8] for text in TEXTS)),
    "date": (*_DAYS, "5874897-12-31"),
    "timestamp": _moments(""),
    "timestamptz": _moments("+00"),
    "time": ("00:00:00", "12:34:56.789", "23:59:59.999999", "24:00:00"),
    "interval": (
        "00:00:00",
        "1 day",
        "24:00:00",
        "1 mon",
        "30 days",
        "-1 years",
        "1 day -00:00:01",
        "-00:00:00.000001",
    ),
    "uuid": (
        *("00000000-0000-0000-0000-000000000000", "00000000-0000-0000-7fff-ffffffffffff"),
        *("00000000-0000-0000-8000-000000000000", "7fffffff-ffff-ffff-ffff-ffffffffffff"),
        *("80000000-0000-0000-0000-000000000000", "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"),
        "ffffffff-ffff-ffff-ffff-ffffffffffff",
    ),
    "bytea": ("\\x", "\\x00", "\\x0000", "\\x01", "\\x5c", "\\x7f", "\\x80", "\\xff", "\\xff00", "\\x00ff", "\\x61"),
    "mood": ("sad", "ok", "happy"),
    "jsonb": ("{}", "[]", "null", '"a"', "1", "1.0", '{"a": 1, "b": 2}', '{"a": 1.00}', '{"k": 3}'),
    "int[]": ("{}", "{1}", "{1,NULL}", "{NULL}", "{1,2,3}", "{{1,2},{3,4}}"),
    "text[]": ("{}", "{a}", '{NULL,"NULL",""}', '{"a b","\\"","\\\\",","}'),
}


def rows(columns: Mapping[str, Sequence[str]]) -> Iterator[list[str | None]]:
    """Rows for columns with these edges: every edge occurs, next to changing neighbours, one in eight is NULL."""
    chance = random.Random(SEED)
    for number in range(ROWS):
        row: list[str | None] = []
        for edges in columns.values():
            null = chance.random() < 0.125
            row.append(None if null else edges[number % len(edges)] if number < 40 else chance.choice(edges))
        yield row
