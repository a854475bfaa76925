"""The aggregates on the allow-list, as data, in the form of the operators."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from frostline.gateway.expressions.types import BYTE_ORDERED_TEXT, INTEGERS
from frostline.gateway.operators import GROUPED

ANYTHING = "any column"
MOST_SUMMED_DIGITS = 28  # ten thousand million rows of such numerics still fit a DECIMAL of 38


@dataclass(frozen=True)
class Aggregate:
    """One aggregate on one argument type; `{0}` is the argument, `{w}` a FILTER clause or nothing."""

    name: str
    argument: str  # '*': no argument
    result: str  # 'first': the argument's type
    sql: str
    why: str  # a key of WHY
    distinct: bool = False


WHY = {
    "counts": "A row is counted or not.",
    "distinct counts": "Values are told apart as GROUP BY does.",
    "integer sums": "Summed in 128 bits; printed as Postgres prints its bigint or numeric.",
    "numeric sums": "Summed as DECIMAL(38, s), which keeps the scale, as Postgres does; above 28 digits Postgres sums.",
    "averages": "The exact sum over the count, with numeric division's own number of digits; above 28 digits "
    "Postgres divides.",
    "extremes": "The order is the same, and equal values print alike. Text only in byte order.",
    "truths": "Three-valued alike: NULLs are passed over.",
}


def _all() -> Iterator[Aggregate]:
    yield Aggregate("count", "*", "int8", "count(*){w}", "counts")
    yield Aggregate("count", ANYTHING, "int8", "count({0}){w}", "counts")
    for name in sorted(GROUPED):
        yield Aggregate("count", name, "int8", "count(DISTINCT {0}){w}", "distinct counts", distinct=True)
    yield Aggregate("sum", "int2", "int8", "sum({0}){w}", "integer sums")
    yield Aggregate("sum", "int4", "int8", "sum({0}){w}", "integer sums")
    yield Aggregate("sum", "int8", "numeric", "sum({0}){w}", "integer sums")
    yield Aggregate("sum", "numeric", "numeric", "sum({0}){w}", "numeric sums")
    for name in (*INTEGERS, "numeric"):
        yield Aggregate("avg", name, "average", "sum({0}){w}", "averages")
    for name in (*INTEGERS, "numeric", "date", "timestamp", "timestamptz", "bytea", BYTE_ORDERED_TEXT):
        for function in ("min", "max"):
            yield Aggregate(function, name, "first", f"{function}({{0}}){{w}}", "extremes")
    for name, function in (("bool_and", "bool_and"), ("every", "bool_and"), ("bool_or", "bool_or")):
        yield Aggregate(name, "bool", "bool", f"{function}({{0}}){{w}}", "truths")


AGGREGATES: dict[tuple[str, str, bool], Aggregate] = {
    (found.name, found.argument, found.distinct): found for found in _all()
}
NAMES = frozenset(found.name for found in AGGREGATES.values())
