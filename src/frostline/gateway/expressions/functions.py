"""Operators, functions and casts other than comparisons, by their entries."""

from __future__ import annotations

from collections.abc import Sequence

from frostline.gateway.expressions import patterns
from frostline.gateway.expressions.tree import Unknown
from frostline.gateway.expressions.types import (
    INTEGERS,
    Type,
    as_numeric,
    common_numeric,
    numeric,
)
from frostline.gateway.expressions.values import Value, decimal
from frostline.gateway.operators import ENTRIES, Entry


def apply(name: str, operands: Sequence[Value]) -> tuple[Value, str]:
    """The result, and the condition under which Postgres would raise an error instead ('': never)."""
    entry = ENTRIES.get((name, tuple(operand.type.key for operand in operands)))
    if entry is None:
        raise Unknown(f"{name}({', '.join(operand.type.key for operand in operands)})")
    _check_constants(entry, operands)
    if entry.operands == "pattern":
        return _pattern(entry, operands), ""
    found, written = _result(entry, operands)
    hazard = "" if _harmless(entry, operands) else entry.hazard
    return Value(entry.sql.format(*written), found), hazard.format(*written)


def _harmless(entry: Entry, operands: Sequence[Value]) -> bool:
    """A division by a constant other than 0 and -1 never fails."""
    divisor = operands[-1]
    return entry.why == "integer division" and divisor.text is not None and int(divisor.text) not in (0, -1)


def _check_constants(entry: Entry, operands: Sequence[Value]) -> None:
    for position, at in enumerate(entry.constants):
        text = operands[at].text
        if not operands[at].constant or text is None:
            raise Unknown(f"{entry.name} with a value that is no constant")
        if entry.least and int(text) < entry.least[position]:
            raise Unknown(f"{entry.name} with {text}")


def _pattern(entry: Entry, operands: Sequence[Value]) -> Value:
    pattern = operands[1].text
    assert pattern is not None
    sql = patterns.like(operands[0].sql, pattern)
    return Value(sql if entry.name == "~~" else f"(NOT {sql})", Type("bool"))


def _result(entry: Entry, operands: Sequence[Value]) -> tuple[Type, list[str]]:
    """The type of the result and the operands as the entry wants them."""
    first = operands[0].type
    if entry.operands == "sum":
        common = as_numeric(first) if len(operands) == 1 else common_numeric(first, operands[1].type)
        carried = common if len(operands) == 1 else numeric(common.precision + 1, common.scale)
        return carried, [decimal(operand, carried) for operand in operands]
    if entry.operands == "product":
        left, right = (as_numeric(operand.type) for operand in operands)
        found = numeric(left.precision + right.precision, left.scale + right.scale)
        # DuckDB computes in the width of the operands, so one of them is given the width of the result.
        wide = numeric(found.precision, left.scale)
        return found, [decimal(operands[0], wide), decimal(operands[1], right)]
    written = [operand.sql for operand in operands]
    if entry.result == "first":
        return first, written
    if entry.result == "text":
        return Type("text", collation=first.collation), written
    if entry.result not in (*INTEGERS, "float8", "bool", "date", "timestamp"):
        raise Unknown(entry.result)
    return Type(entry.result), written
