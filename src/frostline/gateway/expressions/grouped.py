"""What stands above GROUP BY: aggregates, the grouped expressions themselves, and expressions over both."""

from __future__ import annotations

from collections.abc import Mapping

from frostline.catalog.cold import ColdColumn
from frostline.gateway.aggregates import AGGREGATES, ANYTHING, MOST_SUMMED_DIGITS, NAMES, Aggregate
from frostline.gateway.expressions import average
from frostline.gateway.expressions.emitter import Emitter, column_name
from frostline.gateway.expressions.tree import Call, Column, Node, Unknown
from frostline.gateway.expressions.types import UNTYPED, Type, numeric
from frostline.gateway.expressions.values import Value


class Grouped(Emitter):
    """Writes expressions over groups; the arguments of aggregates are written by the emitter of the rows."""

    def __init__(self, rows: Emitter, keys: Mapping[Node, Value]) -> None:
        super().__init__(rows.table, rows.parameters, rows.alias)
        self.rows = rows
        self.keys = keys

    def value(self, node: Node) -> Value:
        found = self.keys.get(node)
        if found is not None:
            return found
        if isinstance(node, Call) and node.name in NAMES:
            return self._aggregate(node)
        found = super().value(node)
        if self.hazards:
            raise Unknown("an error that depends on an aggregate")
        return found

    def column(self, node: Column) -> ColdColumn:
        if node not in self.keys:
            raise Unknown(f"column {node.name} outside of GROUP BY")
        return super().column(node)

    def _aggregate(self, node: Call) -> Value:
        where = f" FILTER (WHERE {self.rows.condition(node.where)})" if node.where is not None else ""
        if node.star:
            return self._written(AGGREGATES.get((node.name, "*", False)), Value("", UNTYPED), where)
        if len(node.arguments) != 1:
            raise Unknown(node.name)
        (argument,) = node.arguments
        if node.name == "count" and not node.distinct and isinstance(argument, Column):
            counted = Value(column_name(self.rows.column(argument).number), UNTYPED)
            return self._written(AGGREGATES["count", ANYTHING, False], counted, where)
        found = self.rows.value(argument)
        return self._written(AGGREGATES.get((node.name, found.type.key, node.distinct)), found, where)

    def _written(self, entry: Aggregate | None, argument: Value, where: str) -> Value:
        if entry is None:
            raise Unknown(f"an aggregate of {argument.type.key}")
        sql = entry.sql.format(argument.sql, w=where)
        if entry.result == "average":
            return _average(sql, f"count({argument.sql}){where}", argument.type)
        if entry.result == "numeric":
            return _sum(sql, argument.type)
        return Value(sql, argument.type if entry.result == "first" else Type(entry.result))


def _sum(sql: str, argument: Type) -> Value:
    if argument.name == "numeric" and argument.precision > MOST_SUMMED_DIGITS:
        raise Unknown(f"the sum of a numeric of {argument.precision} digits")
    found = numeric(38, argument.scale)
    return Value(f"CAST({sql} AS {found.duckdb})", found)


def _average(total: str, count: str, argument: Type) -> Value:
    if argument.name == "numeric" and argument.precision > average.DIGITS:
        raise Unknown(f"the average of a numeric of {argument.precision} digits")
    return Value(average.dividend(total, count), Type("average", scale=argument.scale))
