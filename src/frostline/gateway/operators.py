"""The allow-list, as data: what DuckDB answers exactly as Postgres, for which types, and how it is asked.

postgres_fdw does not check again what it has shipped, so whatever is not listed here is evaluated by Postgres. In an
entry's SQL `{0}` and `{1}` stand for the operands. It must not fail for any row: where Postgres raises an error the
entry has a hazard, and a statement is answered by DuckDB only once no row of its source is found to meet one.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import product

from frostline.gateway.expressions.types import (
    BYTE_ORDERED_CHAR,
    BYTE_ORDERED_TEXT,
    DUCKDB,
    FLOATS,
    INTEGERS,
    LIMITS,
    wider,
)

EQUALITY = ("=", "<>")
ORDER = ("<", "<=", ">", ">=")
COMPARISONS = (*EQUALITY, *ORDER)
MIRRORED = {"=": "=", "<>": "<>", "<": ">", "<=": ">=", ">": "<", ">=": "<="}

# Unix days of the first and the last date Postgres has, and microseconds of what both engines surely hold.
FIRST_DAY, LAST_DAY = -2_440_588, 2_145_042_905
FIRST_MICRO, LAST_MICRO = -210_866_803_200_000_000, 2**63 - 2**53


@dataclass(frozen=True)
class Entry:
    """One operator, function or cast on exact argument types."""

    name: str
    arguments: tuple[str, ...]
    result: str  # 'first': the type of the first argument, its digits or collation included
    sql: str
    why: str  # a key of WHY
    operands: str = "as they are"  # or brought to: 'decimal', 'double', 'float', 'micros', 'sum', 'product'
    hazard: str = ""  # DuckDB SQL, true for a row that makes Postgres raise an error
    constants: tuple[int, ...] = ()  # arguments that must be constants
    least: tuple[int, ...] = ()  # and not smaller than this, each


WHY = {
    "integers": "Whole numbers compare alike; unequal widths meet in the wider one.",
    "numerics": "Both sides become DECIMALs that hold every value of either; above 38 digits Postgres compares.",
    "floats": "NaN is the greatest value and equal to itself, -0 equals 0. Asked so that file statistics, which leave "
    "NaN out, can not drop a file that has one.",
    "booleans": "false is less than true.",
    "days and moments": "The lake holds finite values only, as counts of days or microseconds in one calendar; a "
    "constant's zone is resolved before DuckDB sees it.",
    "a day with a moment": "A day is its first microsecond, counted in an integer that holds every day's.",
    "uuids": "Both order them by their bytes.",
    "bytes": "Both order them by their bytes, a prefix first.",
    "text equality": "Deterministic collations call two texts equal exactly when their bytes are.",
    "text order": "Under C, POSIX, C.UTF-8 and the builtin provider the order is that of the bytes.",
    "padded equality": "The lake keeps char(n) without its padding, which comparisons do not see. With a varchar, of "
    "which Postgres then sees no blanks at the end either, it compares itself.",
    "padded order": "As text in byte order, without the padding.",
    "labels": "Labels are unique, so their texts are equal when they are. Their order is Postgres's to know.",
    "integer arithmetic": "Computed in a wider integer; a row whose result does not fit is an error and Postgres's.",
    "integer division": "Both cut towards zero. A row that divides by zero, or the least integer by -1, is Postgres's.",
    "integer bits": "Two's complement in both.",
    "numeric arithmetic": "Sums keep the larger scale, products add them, as in Postgres; above 38 digits Postgres "
    "computes.",
    "characters": "Both count and cut code points.",
    "bytes counted": "Both count bytes.",
    "prefixes": "Both compare bytes.",
    "patterns": "% and _ mean the same; a constant pattern's escapes are resolved beforehand. _ is one code point.",
    "concatenation": "Bytes after bytes; NULL if either is.",
    "day arithmetic": "Days are counted; a row that leaves Postgres's calendar is an error and Postgres's.",
    "moment arithmetic": "Days and hours of a timestamp without time zone are microseconds. Months are Postgres's.",
    "casts": "Every value has its equal in the other type; a moment's date is its day.",
    "narrowing casts": "A row whose value does not fit is an error and Postgres's; halves are rounded away from zero.",
}


def _comparisons(
    names: tuple[str, ...], left: str, right: str, why: str, operands: str = "as they are"
) -> Iterator[Entry]:
    for name in names:
        yield Entry(name, (left, right), "bool", f"({{0}} {name} {{1}})", why, operands)


def _all_comparisons() -> Iterator[Entry]:
    for left, right in product(INTEGERS, repeat=2):
        yield from _comparisons(COMPARISONS, left, right, "integers")
    for left, right in product((*INTEGERS, "numeric"), repeat=2):
        if "numeric" in (left, right):
            yield from _comparisons(COMPARISONS, left, right, "numerics", "decimal")
    for left, right in product((*INTEGERS, "numeric", *FLOATS), repeat=2):
        if left in FLOATS or right in FLOATS:
            # A numeric that is no constant could be rounded twice on its way.
            constants = tuple(at for at, name in enumerate((left, right)) if name == "numeric")
            for found in _comparisons(COMPARISONS, left, right, "floats", "float" if left == right else "double"):
                yield replace(found, constants=constants)
    for name, why in (
        *(("bool", "booleans"), ("date", "days and moments"), ("timestamp", "days and moments")),
        *(("timestamptz", "days and moments"), ("uuid", "uuids"), ("bytea", "bytes")),
        *((BYTE_ORDERED_TEXT, "text order"), (BYTE_ORDERED_CHAR, "padded order")),
    ):
        yield from _comparisons(COMPARISONS, name, name, why)
    for left, right in (("date", "timestamp"), ("timestamp", "date")):
        yield from _comparisons(COMPARISONS, left, right, "a day with a moment", "micros")
    for name, why in (("text", "text equality"), ("bpchar", "padded equality"), ("enum", "labels")):
        yield from _comparisons(EQUALITY, name, name, why)
    for left, right in (("text", "bpchar"), ("bpchar", "text")):
        yield from _comparisons(EQUALITY, left, right, "padded equality")
    for left, right in ((BYTE_ORDERED_TEXT, BYTE_ORDERED_CHAR), (BYTE_ORDERED_CHAR, BYTE_ORDERED_TEXT)):
        yield from _comparisons(COMPARISONS, left, right, "padded order")


def _checked(name: str, types: tuple[str, ...], result: str, exact: str, why: str, also: str = "") -> Entry:
    """Computed exactly in `exact`; NULL instead of an error where the result does not fit."""
    low, high = LIMITS[result]
    hazard = f"({exact} NOT BETWEEN {low} AND {high}{also})"
    return Entry(name, types, result, f"TRY_CAST({exact} AS {DUCKDB[result]})", why, hazard=hazard)


def _integer_arithmetic() -> Iterator[Entry]:
    for left, right in product(INTEGERS, repeat=2):
        types, result = (left, right), wider(left, right)
        wide = "HUGEINT" if result == "int8" else "BIGINT"
        a, b = f"CAST({{0}} AS {wide})", f"CAST({{1}} AS {wide})"
        for name in "+-*":
            yield _checked(name, types, result, f"({a} {name} {b})", "integer arithmetic")
        # DuckDB answers NULL for a division by zero.
        yield _checked("/", types, result, f"({a} // {b})", "integer division", " OR {1} = 0")
        for name in ("%", "mod"):
            yield _checked(name, types, result, f"({a} % {b})", "integer division", " OR {1} = 0")
        for name, asked in (("&", "({} & {})"), ("|", "({} | {})"), ("#", "xor({}, {})")):
            sql = asked.format(*(f"CAST({{{n}}} AS {DUCKDB[result]})" for n in (0, 1)))
            yield Entry(name, types, result, sql, "integer bits")
    for name in INTEGERS:
        wide = "HUGEINT" if name == "int8" else "BIGINT"
        yield _checked("-", (name,), name, f"(- CAST({{0}} AS {wide}))", "integer arithmetic")
        yield _checked("abs", (name,), name, f"abs(CAST({{0}} AS {wide}))", "integer arithmetic")
        yield _checked("@", (name,), name, f"abs(CAST({{0}} AS {wide}))", "integer arithmetic")
        yield Entry("+", (name,), name, "{0}", "integer arithmetic")


def _numeric_arithmetic() -> Iterator[Entry]:
    for left, right in product((*INTEGERS, "numeric"), repeat=2):
        if "numeric" in (left, right):
            for name, operands in (("+", "sum"), ("-", "sum"), ("*", "product")):
                yield Entry(name, (left, right), "numeric", f"({{0}} {name} {{1}})", "numeric arithmetic", operands)
    for name, sql in (("-", "(- {0})"), ("+", "{0}"), ("abs", "abs({0})"), ("@", "abs({0})")):
        yield Entry(name, ("numeric",), "first", sql, "numeric arithmetic")


def _strings() -> Iterator[Entry]:
    for text, char in (("text", "bpchar"), (BYTE_ORDERED_TEXT, BYTE_ORDERED_CHAR)):
        for name in ("length", "char_length", "character_length"):
            yield Entry(name, (text,), "int4", "length({0})", "characters")
            yield Entry(name, (char,), "int4", "length({0})", "characters")
        yield Entry("octet_length", (text,), "int4", "strlen({0})", "bytes counted")
        for name in ("substr", "substring"):
            yield Entry(
                name, (text, "int4", "int4"), "first", "substring({0}, {1}, {2})", "characters",
                constants=(1, 2), least=(1, 0),
            )  # fmt: skip
            yield Entry(name, (text, "int4"), "first", "substring({0}, {1})", "characters", constants=(1,), least=(1,))
        yield Entry("left", (text, "int4"), "first", "left({0}, {1})", "characters", constants=(1,), least=(0,))
        for name in ("starts_with", "^@"):
            yield Entry(name, (text, text), "bool", "starts_with({0}, {1})", "prefixes")
        for name in ("~~", "!~~"):
            yield Entry(name, (text, text), "bool", "({0} LIKE {1})", "patterns", "pattern", constants=(1,))
        yield Entry("||", (text, text), "first", "({0} || {1})", "concatenation")
    for name in ("length", "octet_length"):
        yield Entry(name, ("bytea",), "int4", "octet_length({0})", "bytes counted")


def _calendar() -> Iterator[Entry]:
    day = "CAST({%d} - DATE '1970-01-01' AS BIGINT)"
    for types, days in (
        *((("date", name), f"{day % 0} + {{1}}") for name in ("int2", "int4")),
        *(((name, "date"), f"{day % 1} + {{0}}") for name in ("int2", "int4")),
    ):
        yield _day("+", types, f"({days})")
    for name in ("int2", "int4"):
        yield _day("-", ("date", name), f"({day % 0} - {{1}})")
    yield Entry("-", ("date", "date"), "int4", "({0} - {1})", "day arithmetic")
    for name, types, micros in (
        ("+", ("timestamp", "interval"), "(CAST(epoch_us({0}) AS HUGEINT) + {1})"),
        ("+", ("interval", "timestamp"), "(CAST(epoch_us({1}) AS HUGEINT) + {0})"),
        ("-", ("timestamp", "interval"), "(CAST(epoch_us({0}) AS HUGEINT) - {1})"),
    ):
        yield _moment(name, types, micros, "moment arithmetic")
    yield Entry("::date", ("timestamp",), "date", "CAST({0} AS DATE)", "casts")
    yield _moment(
        "::timestamp", ("date",), "(CAST({0} - DATE '1970-01-01' AS HUGEINT) * 86400000000)", "narrowing casts"
    )


def _day(name: str, types: tuple[str, ...], days: str) -> Entry:
    sql = f"(DATE '1970-01-01' + CAST(CASE WHEN {days} BETWEEN {FIRST_DAY} AND {LAST_DAY} THEN {days} END AS INTEGER))"
    hazard = f"({days} NOT BETWEEN {FIRST_DAY} AND {LAST_DAY})"
    return Entry(name, types, "date", sql, "day arithmetic", hazard=hazard)


def _moment(name: str, types: tuple[str, ...], micros: str, why: str) -> Entry:
    inside = f"{micros} BETWEEN {FIRST_MICRO} AND {LAST_MICRO}"
    sql = f"make_timestamp(CAST(CASE WHEN {inside} THEN {micros} END AS BIGINT))"
    return Entry(name, types, "timestamp", sql, why, hazard=f"(NOT ({inside}))")


def _casts() -> Iterator[Entry]:
    for source, target in product(INTEGERS, repeat=2):
        if INTEGERS.index(source) <= INTEGERS.index(target):
            yield Entry(f"::{target}", (source,), target, f"CAST({{0}} AS {DUCKDB[target]})", "casts")
        else:
            yield _checked(f"::{target}", (source,), target, "{0}", "narrowing casts")
    for name in INTEGERS:
        yield Entry("::numeric", (name,), "numeric", "{0}", "casts", "sum")
        yield Entry("::float8", (name,), "float8", "CAST({0} AS DOUBLE)", "casts")
        yield _checked(f"::{name}", ("numeric",), name, "round({0})", "narrowing casts")
    yield Entry("::numeric", ("numeric",), "first", "{0}", "casts")
    yield Entry("::float8", ("float4",), "float8", "CAST({0} AS DOUBLE)", "casts")
    for name in (*FLOATS, "bool", "date", "timestamp", "timestamptz", "uuid", "bytea"):
        yield Entry(f"::{name}", (name,), "first", "{0}", "casts")
    for text, char in (("text", "bpchar"), (BYTE_ORDERED_TEXT, BYTE_ORDERED_CHAR)):
        for name in ("text", "varchar"):
            yield Entry(f"::{name}", (text,), "first", "{0}", "casts")
        yield Entry("::text", (char,), "text", "{0}", "casts")


ENTRIES: dict[tuple[str, tuple[str, ...]], Entry] = {
    (entry.name, entry.arguments): entry
    for entry in (
        *_all_comparisons(),
        *_integer_arithmetic(),
        *_numeric_arithmetic(),
        *_strings(),
        *_calendar(),
        *_casts(),
    )
}

# Types whose values are the same row of a GROUP BY, DISTINCT or count(DISTINCT) in both engines, and print alike.
# Floats are not: which of 0 and -0 stands for both is for the one that groups to choose.
GROUPED = frozenset({
    *INTEGERS, "numeric", "bool", "date", "timestamp", "timestamptz", "uuid", "bytea", "text", "bpchar", "enum",
    BYTE_ORDERED_TEXT, BYTE_ORDERED_CHAR,
})  # fmt: skip

# Types with the same order in both engines, NULLs placed explicitly.
SORTED = frozenset({
    *INTEGERS, *FLOATS, "numeric", "bool", "date", "timestamp", "timestamptz", "uuid", "bytea",
    BYTE_ORDERED_TEXT, BYTE_ORDERED_CHAR,
})  # fmt: skip

# What is syntax rather than an operator, and where it is exact.
FORMS = (
    ("`AND` `OR` `NOT`, parentheses", "Three-valued alike."),
    ("`IS [NOT] NULL`", "For every column: the lake has NULL where Postgres has it. Not of a composite type: a row of "
     "NULLs is NULL too."),
    ("`IS [NOT] TRUE`, `FALSE`, `UNKNOWN`", "For every condition that is listed itself."),
    ("`IS [NOT] DISTINCT FROM`", "Wherever `=` and `<>` are listed."),
    ("`BETWEEN`", "Wherever `<=` and `>=` are listed; `SYMMETRIC` is not."),
    ("`IN`, operator `ANY`, operator `ALL`", "Wherever the operator is listed, for a list or a constant array; an "
     "empty one decides even for NULL, a NULL in it leaves it open, as in Postgres."),
    ("`CASE`, `coalesce`, `nullif`", "Where all results have one type; numerics one scale."),
    ("constants and parameters", "As Postgres prints them: a day that does not exist, another notation or an infinite "
     "moment is Postgres's to read."),
)  # fmt: skip

# What is not listed, and why it is not.
LEFT_TO_POSTGRES = (
    ("Rows that make an expression fail", "Postgres raises the error, and knows whether the row is evaluated at all."),
    ("`+ - * /` and functions of floats; `sum`, `avg`, `min`, `max` of floats; grouping by a float",
     "Rounding depends on the order of the rows; which of 0 and -0 stands for both depends on it too."),
    ("`numeric` without precision, or above 38 digits; its `/ % ^`, `round`, `trunc`",
     "DuckDB has no number as long, and divides to another scale."),
    ("`< > <= >=`, `ORDER BY`, `min`, `max` of text under a collation that is not in byte order",
     "A language's order is the collation's to know."),
    ("Any comparison under a collation that is not deterministic", "Equal texts may have different bytes."),
    ("`lower`, `upper`, `initcap`, `ILIKE`, `~`, `SIMILAR TO`", "Tables of letters and regular expressions differ."),
    ("`LIKE` with a pattern that is no constant, or on `char(n)`",
     "A pattern may end with its escape, which fails for some texts only; LIKE sees padding, which the lake drops."),
    ("`substr` and `left` with positions that are negative or no constants", "They mean something else in DuckDB."),
    ("Arithmetic, casts, `extract` and `date_trunc` of `timestamptz`",
     "The session's time zone decides, so `postgres_fdw` does not ship them either."),
    ("`extract`, `date_part`, `date_trunc`, `age` of dates and timestamps", "`postgres_fdw` does not ship them."),
    ("Intervals with months, `time`, `interval`, `json`, `jsonb`, arrays, ranges, `inet`, `xml`, composites, the order "
     "of enums", "The lake keeps their exact text; what equal and less mean is Postgres's to know."),
    ("Joins, sub-selects, windows, set operations", "The rows of the periods concerned are loaded there."),
    ("Functions, operators and types of users and extensions", "Only Postgres has them."),
)  # fmt: skip
