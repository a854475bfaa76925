"""Comparisons: both sides brought to one form, then asked."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from decimal import Decimal

from frostline.gateway import constants
from frostline.gateway.expressions import floats
from frostline.gateway.expressions.tree import Unknown
from frostline.gateway.expressions.types import (
    FLOATS,
    INT8,
    INTEGERS,
    LIMITS,
    UNTYPED,
    common_numeric,
    same_collation,
)
from frostline.gateway.expressions.values import Value, decimal, double, micros
from frostline.gateway.operators import ENTRIES, MIRRORED, Entry

MOST_ITEMS = 1000  # of a list that is written out item by item


def same_type(left: Value, right: Value) -> tuple[Value, Value]:
    """A constant without a type gets the other side's; both get the collation that decides."""
    if left.type is UNTYPED and right.type is UNTYPED:
        raise Unknown("constants of no type")
    if left.type is UNTYPED:
        left = constants.constant(right.type, left.text)
    elif right.type is UNTYPED:
        right = constants.constant(left.type, right.text)
    types = same_collation(left.type, right.type)
    return replace(left, type=types[0]), replace(right, type=types[1])


def compare(name: str, left: Value, right: Value) -> str:
    """`left name right`, both of known types."""
    if left.constant and not right.constant:
        left, right, name = right, left, MIRRORED[name]
    left, right = _whole(left, right)
    entry = ENTRIES.get((name, (left.type.key, right.type.key)))
    padded = "bpchar" in (left.type.name, right.type.name) and (left.type.varchar or right.type.varchar)
    if entry is None or left.type.oid != right.type.oid or padded:
        raise Unknown(f"{left.type.key} {name} {right.type.key}")
    if entry.operands in ("float", "double"):
        return _floats(entry, left, right)
    return entry.sql.format(*_operands(entry.operands, left, right))


def distinct(left: Value, right: Value, *, negated: bool) -> str:
    """IS [NOT] DISTINCT FROM, by the very comparison that `<>` or `=` is."""
    compared = compare("=" if negated else "<>", left, right)
    if right.null or left.null:
        return f"({(left if right.null else right).sql} IS {'' if negated else 'NOT '}NULL)"
    same = "=" if negated else "<>"
    return f"coalesce({compared}, ({left.sql} IS NULL) {same} ({right.sql} IS NULL))"


def quantified(
    name: str, left: Value, items: Sequence[Value], compared: Callable[[str, Value, Value], str], *, every: bool
) -> str:
    """Operator ANY or ALL over a list: OR or AND of its items, decided even for NULL where there are none."""
    if not items:
        return "true" if every else "false"
    short = (name, every) in (("=", False), ("<>", True)) and all(item.constant for item in items)
    if short and left.type is not UNTYPED and left.type.name not in FLOATS:
        fitted = [_fitted(left, item) for item in items]
        if None not in fitted:
            listed = ", ".join(str(item) for item in fitted)
            return f"({left.sql} {'NOT IN' if every else 'IN'} ({listed}))"
    if len(items) > MOST_ITEMS:
        raise Unknown(f"a list of {len(items)}")
    return f"({(' AND ' if every else ' OR ').join(compared(name, left, item) for item in items)})"


def _fitted(left: Value, item: Value) -> str | None:
    """An item as DuckDB may compare it with the operand as it is, or None."""
    left, item = same_type(left, item)
    compare("=", left, item)
    left, item = _whole(left, item)
    if item.null:
        return "NULL"
    if left.type.name == "numeric" or item.type.name == "numeric":
        item = constants.shortened(item)
        return decimal(item, left.type) if common_numeric(left.type, item.type) == left.type else None
    both_integers = left.type.name in INTEGERS and item.type.name in INTEGERS
    return item.sql if both_integers or left.type == item.type else None


def _whole(left: Value, right: Value) -> tuple[Value, Value]:
    """A numeric constant without a fraction is an integer next to one: files can then be skipped by it."""
    if left.type.name in INTEGERS and right.constant and right.type.name == "numeric" and right.text is not None:
        value = Decimal(right.text)
        if value == value.to_integral_value() and LIMITS["int8"][0] <= value <= LIMITS["int8"][1]:
            return left, constants.constant(INT8, str(int(value)))
    return left, right


def _operands(form: str, left: Value, right: Value) -> tuple[str, str]:
    if form == "decimal":
        right = constants.shortened(right)
        common = common_numeric(left.type, right.type)
        return decimal(left, common), decimal(right, common)
    if form == "micros":
        return micros(left), micros(right)
    return left.sql, right.sql


def _floats(entry: Entry, left: Value, right: Value) -> str:
    x, y = (left.sql, right.sql) if entry.operands == "float" else (double(left), double(right))
    if right.null or left.constant:
        return f"({x} {entry.name} {y})"
    if right.constant:
        return floats.to_constant(entry.name, x, y, nan=right.text == "NaN")
    return floats.to_float(entry.name, x, y)
