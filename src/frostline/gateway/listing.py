"""The allow-list as a page for readers: `python -m frostline.gateway.listing` writes docs/operators.md."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

from frostline.gateway import aggregates, operators
from frostline.gateway.constants import constant
from frostline.gateway.expressions.comparisons import compare
from frostline.gateway.expressions.functions import apply
from frostline.gateway.expressions.types import (
    BYTE_ORDERED_CHAR,
    BYTE_ORDERED_TEXT,
    FLOATS,
    INTEGERS,
    Collation,
    Type,
    numeric,
)
from frostline.gateway.expressions.values import Value
from frostline.gateway.operators import Entry

_HEAD = """\
<!-- Written by `make docs` from src/frostline/gateway/operators.py and aggregates.py: change those. -->
# What DuckDB answers, and what Postgres does

Every answer about cold rows is the one Postgres would give. The gateway hands DuckDB only what is listed here, for just
these types, each entry compared with Postgres at the edges of its types by the tests. Everything else is evaluated by
Postgres itself, over the rows that pass the listed part of the WHERE clause: the same answer, more slowly.

Some operators fail for some rows (an overflow, a division by zero). DuckDB is never asked to fail: the gateway first
lets it look for such a row, and if there is one Postgres evaluates the statement and raises its own error, or does not,
where a CASE or another condition keeps it from that row.
"""
_FORMS = """
## Syntax

| form | exact where |
|---|---|
"""
_OPERATORS = """
## Operators, functions and casts

`a`, `b` and `c` are the operands. Integer stands for smallint, integer and bigint in every combination; numeric for
`numeric(p, s)` of at most 38 digits.

| Postgres | on | DuckDB is asked | exact because |
|---|---|---|---|
"""
_AGGREGATES = """
## Aggregates

Of one cold partition, with FILTER, GROUP BY, HAVING, DISTINCT, ORDER BY and LIMIT. An aggregate over several partitions
is pushed to each with `enable_partitionwise_aggregate = on`.

| Postgres | of | DuckDB is asked | exact because |
|---|---|---|---|
"""
_ELSE = """
## What Postgres evaluates

| what | why |
|---|---|
"""
_FAMILIES = {
    **dict.fromkeys(INTEGERS, "integer"),
    **dict.fromkeys(FLOATS, "float"),
    "bool": "boolean",
    "bpchar": "char(n)",
}

_KEYWORDS = {"~~": " (LIKE)", "!~~": " (NOT LIKE)"}


def page() -> str:
    """The whole page."""
    parts = [
        _HEAD,
        _FORMS,
        *(_row(form, why) for form, why in operators.FORMS),
        _OPERATORS,
        *_operators(),
        _AGGREGATES,
        *_aggregates(),
        f"\nRows are grouped and told apart by: {_kinds(operators.GROUPED)}.\n",
        f"\nRows are ordered by: {_kinds(operators.SORTED)}.\n",
        _ELSE,
        *(_row(what, why) for what, why in operators.LEFT_TO_POSTGRES),
    ]
    return "".join(parts)


def _operators() -> Iterator[str]:
    for why, sentence in operators.WHY.items():
        entries = [entry for entry in operators.ENTRIES.values() if entry.why == why and not _no_cast(entry)]
        names = _distinct(f"`{_name(entry)}`{_KEYWORDS.get(entry.name, '')}" for entry in entries)
        types = _distinct(_types(entry) for entry in entries)
        asked = min((_asked(entry) for entry in entries if entry.sql != "{0}"), key=len)
        yield _row(" ".join(names), "; ".join(types), f"`{asked}`", sentence)


def _aggregates() -> Iterator[str]:
    for why, sentence in aggregates.WHY.items():
        entries = [entry for entry in aggregates.AGGREGATES.values() if entry.why == why]
        names = _distinct(f"`{entry.name}{'(DISTINCT)' if entry.distinct else ''}`" for entry in entries)
        types = _distinct(_kind(entry.argument) for entry in entries)
        asked = f"`{entries[0].sql.format('a', w='')}`" if why != "averages" else "the sum and the count"
        yield _row(" ".join(names), ", ".join(types).replace("*", "`*`"), asked, sentence)


def _row(*cells: str) -> str:
    """A pipe inside a cell would end it."""
    escaped = (cell.replace("|", "\\|") for cell in cells)
    return f"| {' | '.join(escaped)} |\n"


def _name(entry: Entry) -> str:
    return f"{_kind(entry.arguments[0])}{entry.name}" if entry.name.startswith("::") else entry.name


def _no_cast(entry: Entry) -> bool:
    """To the type it has."""
    return entry.name.startswith("::") and entry.sql == "{0}" and entry.result == "first"


def _types(entry: Entry) -> str:
    constant = ("constant " if at in entry.constants else "" for at in range(len(entry.arguments)))
    return ", ".join(prefix + _kind(name) for prefix, name in zip(constant, entry.arguments, strict=True))


def _asked(entry: Entry) -> str:
    """What is really written for operands a, b and c."""
    operands = [Value(name, _example(found)) for name, found in zip("abc", entry.arguments, strict=False)]
    for at in entry.constants:
        operands[at] = constant(operands[at].type, "b%" if entry.operands == "pattern" else "3")
    if entry.name in operators.COMPARISONS:
        return compare(entry.name, operands[0], operands[1])
    return apply(entry.name, operands)[0].sql


def _example(name: str) -> Type:
    in_order = {BYTE_ORDERED_TEXT: "text", BYTE_ORDERED_CHAR: "bpchar"}
    if name in in_order:
        return Type(in_order[name], collation=Collation(("pg_catalog", "C"), byte_ordered=True))
    return numeric(12, 4) if name == "numeric" else Type(name)


def _kind(name: str) -> str:
    return _FAMILIES.get(name, name)


def _kinds(names: Iterable[str]) -> str:
    return ", ".join(sorted(set(map(_kind, names))))


def _distinct(found: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(found))


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(page())
