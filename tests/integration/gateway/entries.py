"""Expressions for every entry of the allow-list, over the columns that have every type's edges.

Where an entry can fail there are two kinds: one over the edges as they are, which must fail alike, and some
whose operands are kept just inside what the result can hold, so that DuckDB has something to answer.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain, product

from frostline.gateway.expressions.types import BYTE_ORDERED_CHAR, BYTE_ORDERED_TEXT, LIMITS
from frostline.gateway.operators import COMPARISONS, Entry
from integration.gateway.edges import EDGES
from integration.gateway.generator import label, quoted

COLUMNS = {
    **{"int2": ("i2",), "int4": ("i4", '"A"'), "int8": ("i8",), "float4": ("f4",), "float8": ("f8",)},
    **{"numeric": ("n", "n2", "n3"), "bool": ("b",), "date": ("d", "date2"), "timestamp": ("tm",)},
    **{"timestamptz": ("tz", "ts"), "uuid": ("u",), "bytea": ("by",), "enum": ("mood",)},
    # Which of the two kinds of text these are is the database's to say; cc is always in byte order.
    **{
        "text": ("t", "v", '"user"'),
        BYTE_ORDERED_TEXT: ("cc", "t", "v"),
        "bpchar": ("ch",),
        BYTE_ORDERED_CHAR: ("ch",),
    },
}
_EDGES = {
    **{"numeric": "numeric(12,4)", "enum": "mood", BYTE_ORDERED_TEXT: "text"},
    **{"bpchar": "char(8)", BYTE_ORDERED_CHAR: "char(8)"},
}
_PATTERNS = ("%", "_", "a%", "%b", "a\\_%", "\\%", "%\\\\%", "_b_", "", "é%", "a\\%b")
_SPANS = ("1 day", "-1 days", "00:00:00.000001", "-23:59:59", "100 days 01:02:03")
_CUTS = {1: ("1", "2", "9"), 2: ("0", "1", "30")}  # by the argument's place
_MODERN = "(CASE WHEN (({0} > '4000-01-01{2} BC'::{1}) AND ({0} < '290000-01-01{2}'::{1})) THEN {0} END)"
_WORDS = {"^@", "~~", "!~~", "||", "+", "-", "*", "/", "%", "&", "|", "#", "@", *COMPARISONS}


def written(entry: Entry, operands: tuple[str, ...]) -> str:
    """As postgres_fdw writes it."""
    if entry.name.startswith("::"):
        return f"({operands[0]})::{label(entry.name[2:])}"
    if entry.name in _WORDS:
        return f"({operands[0]} {entry.name} {operands[1]})" if len(operands) == 2 else f"({entry.name} {operands[0]})"
    name = '"left"' if entry.name == "left" else f'"{entry.name}"' if entry.name == "substring" else entry.name
    return f"{name}({', '.join(operands)})"


def safe(entry: Entry) -> Iterator[str]:
    """Expressions that fail for no row."""
    if entry.hazard:
        return (written(entry, operands) for operands in _inside(entry))
    choices = [_plain(entry, at) for at in range(len(entry.arguments))]
    found = chain(_compared_with_edges(entry), product(*choices))
    return (written(entry, operands) for operands in found)


def failing(entry: Entry) -> Iterator[str]:
    """Expressions over the edges as they are: some row makes Postgres raise an error."""
    operands = [COLUMNS.get(name, ("'110000000 days'::interval",))[-1] for name in entry.arguments]
    if entry.name == "-" and entry.arguments[-1] in LIMITS and len(operands) == 2:
        operands[1] = _number(LIMITS[entry.arguments[1]][1], entry.arguments[1])  # the same column would give 0
    yield written(entry, tuple(operands))


def _plain(entry: Entry, at: int) -> tuple[str, ...]:
    """Operands for one place."""
    name = entry.arguments[at]
    if entry.operands == "pattern" and at == 1:
        return tuple(f"{quoted(pattern)}::text" for pattern in _PATTERNS)
    if at in entry.constants:
        return _CUTS[at] if name == "int4" and entry.why == "characters" else _constants(name)
    return COLUMNS[name]


def _compared_with_edges(entry: Entry) -> Iterator[tuple[str, ...]]:
    """A column with constants: postgres_fdw ships few others."""
    if entry.name in COMPARISONS and not entry.constants:
        some = 1 if entry.arguments == ("float8", "float4") else 7  # of two widths every rounding counts
        yield from product(COLUMNS[entry.arguments[0]][:1], _constants(entry.arguments[1])[::some])
    if entry.why == "prefixes":
        yield from product(COLUMNS[entry.arguments[0]][:1], _constants(entry.arguments[1])[:6])


def _constants(name: str) -> tuple[str, ...]:
    known = _EDGES.get(name, name)
    return tuple(f"{quoted(text)}::{label(known)}" for text in EDGES[known])


def _inside(entry: Entry) -> Iterator[tuple[str, ...]]:
    types = entry.arguments
    if entry.why == "integer arithmetic" and len(types) == 1:
        yield (f"({COLUMNS[types[0]][0]} | {_number(1, types[0])})",)  # all but the least
    elif entry.why == "integer arithmetic":
        yield tuple(_part(entry, name, other) for name, other in zip(types, reversed(types), strict=True))
    elif entry.why == "integer division":
        left, (first, second) = COLUMNS[types[0]][0], types
        yield left, f"(({COLUMNS[second][-1]} & {_number(7, second)}) | {_number(1, second)})"
        for divisor in (-7, -2, 3, LIMITS[second][1], LIMITS[second][0]):
            yield left, _number(divisor, second)
        yield f"({left} | {_number(1, first)})", _number(-1, second)
    elif entry.why == "day arithmetic":
        days = {"date": "(CASE WHEN (d < '5874897-01-01'::date) THEN d END)", "int2": "(i2 & '31'::smallint)"}
        yield tuple(days.get(name, "(i4 & 31)") for name in types)
    elif entry.why == "moment arithmetic":
        moment = _MODERN.format("tm", label("timestamp"), " 00:00:00")
        for span in _SPANS:
            yield tuple(moment if name == "timestamp" else f"'{span}'::interval" for name in types)
    elif entry.name == "::timestamp":
        yield (_MODERN.format("d", "date", ""),)
    else:
        yield from _narrowed(entry)


def _part(entry: Entry, name: str, other: str) -> str:
    """An integer column, divided so that the result just fits."""
    column = COLUMNS[name][0]
    if name != entry.result:
        return column
    if entry.name != "*":
        return f"({column} / {_number(2, name)})"
    least = -LIMITS[name][0]
    divisor = {"int2": 182, "int4": 46341, "int8": 3037000500}[name] if other == name else -2 * LIMITS[other][0]
    return f"({column} / {_number(min(divisor, least - 1), name)})"


def _narrowed(entry: Entry) -> Iterator[tuple[str, ...]]:
    low, high = LIMITS[entry.result]
    (name,) = entry.arguments
    bounds = (_number(low, name), _number(high, name))
    for column in COLUMNS[name]:
        yield (f"(CASE WHEN (({column} >= {bounds[0]}) AND ({column} <= {bounds[1]})) THEN {column} END)",)


def _number(value: int, name: str) -> str:
    return f"'{value}'::{label(name)}"
