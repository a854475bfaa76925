"""Writes DuckDB SQL for one table's expressions, by the allow-list, typed as Postgres would type them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from frostline.catalog.cold import ColdColumn, ColdTable
from frostline.gateway import constants
from frostline.gateway.expressions import comparisons
from frostline.gateway.expressions.functions import apply
from frostline.gateway.expressions.tree import (
    Boolean,
    Call,
    Case,
    Cast,
    Column,
    Items,
    Node,
    Null,
    Number,
    Operation,
    Parameter,
    Quantified,
    String,
    Test,
    TypeName,
    Unknown,
)
from frostline.gateway.expressions.types import (
    BOOLEAN,
    INTEGERS,
    LIMITS,
    TEXT,
    UNTYPED,
    Type,
    of_column,
    same_collation,
    wider,
)
from frostline.gateway.expressions.values import Value
from frostline.gateway.operators import COMPARISONS

Parameters = Sequence[str | None]


def column_name(number: int) -> str:
    """What a column is called in DuckDB, which folds the case of names."""
    return f"c{number}"


class Emitter:
    """Remembers the columns it met and the hazards: conditions for rows that make Postgres raise an error."""

    def __init__(self, table: ColdTable, parameters: Parameters, alias: str | None = None) -> None:
        self.table = table
        self.parameters = parameters
        self.alias = alias
        self.columns: set[ColdColumn] = set()
        self.hazards: list[str] = []

    def condition(self, node: Node) -> str:
        """A boolean expression; three-valued exactly as in Postgres."""
        found = self.typed(node, BOOLEAN)
        if found.type.name != "bool":
            raise Unknown(f"{found.type.name} as a condition")
        return found.sql

    def typed(self, node: Node, wanted: Type) -> Value:
        """An expression, where a constant without a type would get this one."""
        found = self.value(node)
        return constants.constant(wanted, found.text) if found.type is UNTYPED else found

    def value(self, node: Node) -> Value:
        """What DuckDB is given for an expression, or Unknown."""
        writer = _WRITERS.get(type(node))
        if writer is None:
            raise Unknown(type(node).__name__)
        return writer(self, node)

    def _column(self, node: Column) -> Value:
        column = self.column(node)
        return Value(column_name(column.number), of_column(column))

    def _string(self, node: String) -> Value:
        return Value("", UNTYPED, constant=True, text=node.text)

    def _null(self, _node: Null) -> Value:
        return Value("NULL", UNTYPED, constant=True)

    def _parameter(self, node: Parameter) -> Value:
        if not 1 <= node.number <= len(self.parameters):
            raise Unknown("a parameter")
        return Value("", UNTYPED, constant=True, text=self.parameters[node.number - 1])

    def _boolean(self, node: Boolean) -> Value:
        return constants.constant(BOOLEAN, "true" if node.value else "false")

    def _number(self, node: Number) -> Value:
        """The narrowest of int4, int8 and numeric, as Postgres reads it."""
        if node.text.removeprefix("-").isdecimal():
            for name in INTEGERS[1:]:
                if LIMITS[name][0] <= int(node.text) <= LIMITS[name][1]:
                    return constants.constant(Type(name), node.text)
        return constants.number(node.text)

    def _cast(self, node: Cast) -> Value:
        to = node.to
        if to.modifiers or to.array:
            raise Unknown(f"a cast to {to.name}")
        if isinstance(node.operand, Number):  # 1e+300 is a double precision, but no DECIMAL
            return constants.constant(_named(to), node.operand.text)
        inner = self.value(node.operand)
        if inner.type is UNTYPED:
            return constants.constant(_named(to), inner.text)
        return self._apply(f"::{to.name}", [inner])

    def _operation(self, node: Operation) -> Value:
        if node.name in ("and", "or"):
            return Value(f"({f' {node.name.upper()} '.join(map(self.condition, node.operands))})", BOOLEAN)
        if node.name == "not":
            return Value(f"(NOT {self.condition(node.operands[0])})", BOOLEAN)
        return self._operated(node.name, [self.value(operand) for operand in node.operands])

    def _operated(self, name: str, operands: list[Value]) -> Value:
        if len(operands) == 2:
            operands = list(comparisons.same_type(*operands))
        if name in COMPARISONS:
            return Value(comparisons.compare(name, *operands), BOOLEAN)
        if name.endswith("distinct from"):
            return Value(comparisons.distinct(*operands, negated="not" in name), BOOLEAN)
        return self._apply(name, operands)

    def _apply(self, name: str, operands: Sequence[Value]) -> Value:
        found, hazard = apply(name, operands)
        if hazard:
            self.hazards.append(hazard)
        return found

    def _test(self, node: Test) -> Value:
        negated = "NOT " if node.negated else ""
        if node.value is not None:
            tested = self.condition(node.operand)
            return Value(f"({tested} IS {negated}{'TRUE' if node.value else 'FALSE'})", BOOLEAN)
        if isinstance(node.operand, Column):  # nearly whatever its type: the lake has NULL where Postgres has it
            column = self.column(node.operand)
            if not column.null_is_null:
                raise Unknown(f"a {column.type} that may have NULLs")
            return Value(f"({column_name(column.number)} IS {negated}NULL)", BOOLEAN)
        return Value(f"({self.typed(node.operand, BOOLEAN).sql} IS {negated}NULL)", BOOLEAN)

    def _quantified(self, node: Quantified) -> Value:
        left, items = self.value(node.left), self._items(node.right)
        return Value(comparisons.quantified(node.name, left, items, self._compared, every=node.every), BOOLEAN)

    def _compared(self, name: str, left: Value, right: Value) -> str:
        return self._operated(name, [left, right]).sql

    def _items(self, node: Node) -> list[Value]:
        """The elements of an array: one type, as in Postgres."""
        if isinstance(node, Items):
            return one_type([self.value(item) for item in node.items])
        if not isinstance(node, Cast) or not node.to.array or node.to.modifiers:
            raise Unknown("an array")
        found = self.value(node.operand)
        if found.type is not UNTYPED or found.text is None:
            raise Unknown("an array")
        element = _named(node.to)
        return [constants.constant(element, item) for item in constants.array_items(found.text)]

    def _case(self, node: Case) -> Value:
        conditions = [self._when(node.subject, condition) for condition, _ in node.branches]
        results = one_type([*(self.value(result) for _, result in node.branches), self.value(node.default or Null())])
        branches = " ".join(
            f"WHEN {condition} THEN {result.sql}" for condition, result in zip(conditions, results, strict=False)
        )
        return Value(f"(CASE {branches} ELSE {results[-1].sql} END)", results[0].type)

    def _when(self, subject: Node | None, condition: Node) -> str:
        if subject is None:
            return self.condition(condition)
        return self._compared("=", self.value(subject), self.value(condition))

    def _call(self, node: Call) -> Value:
        if node.star or node.distinct or node.where is not None:
            raise Unknown(node.name)
        operands = [self.value(argument) for argument in node.arguments]
        if node.name == "coalesce" and operands:
            found = one_type(operands)
            return Value(f"coalesce({', '.join(value.sql for value in found)})", found[0].type)
        if node.name == "nullif" and len(operands) == 2:
            left, right = one_type(operands)
            equal = comparisons.compare("=", left, right)
            return Value(f"(CASE WHEN {equal} THEN NULL ELSE {left.sql} END)", left.type)
        return self._apply(node.name, _one_collation(operands))

    def column(self, node: Column) -> ColdColumn:
        column = self.table.columns.get(node.name)
        if column is None or column.generated == "v" or node.table not in (None, self.alias):
            raise Unknown(f"column {node.name}")
        self.columns.add(column)
        return column


# functools.singledispatchmethod would take longer than most of these.
_WRITERS: dict[type[Node], Callable[[Emitter, Any], Value]] = {
    Column: Emitter._column,
    String: Emitter._string,
    Null: Emitter._null,
    Parameter: Emitter._parameter,
    Boolean: Emitter._boolean,
    Number: Emitter._number,
    Cast: Emitter._cast,
    Operation: Emitter._operation,
    Test: Emitter._test,
    Quantified: Emitter._quantified,
    Case: Emitter._case,
    Call: Emitter._call,
}


def one_type(values: Sequence[Value]) -> list[Value]:
    """The results of CASE or COALESCE and the elements of an array: all of one type, constants fitted to the rest."""
    known = [value.type for value in values if value.type is not UNTYPED]
    if not known:
        raise Unknown("constants of no type")
    found = known[0]
    for other in known[1:]:
        if found.name in INTEGERS and other.name in INTEGERS:
            found = Type(wider(found.name, other.name))
            continue
        found, same = same_collation(found, other)
        if found != same:
            # Numerics of several scales would be printed with several scales.
            raise Unknown(f"{found.name} next to {other.name}")
    return [
        constants.constant(found, value.text) if value.type is UNTYPED else replace(value, type=found)
        for value in values
    ]


def _one_collation(operands: Sequence[Value]) -> list[Value]:
    """Text arguments of a function share the collation; a constant without a type is text."""
    found = list(operands)
    for at in range(1, len(found)):
        if found[at].type is UNTYPED:
            found[at] = constants.constant(TEXT, found[at].text)
        found[0], found[at] = comparisons.same_type(found[0], found[at])
    return found


def _named(to: TypeName) -> Type:
    return Type("text", varchar=True) if to.name == "varchar" else Type(to.name)
