"""The conditions of a WHERE clause that tell which files to read, taken from the parsed statement itself.

They hold whoever evaluates the statement, DuckDB or Postgres: they are read with Postgres's own meaning. What is not
understood here prunes nothing.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal

from sqlglot import exp

from frostline.catalog.cold import ColdColumn, ColdTable
from frostline.gateway.constants import Unknown, array_items
from frostline.lake.bounds import Value
from frostline.lake.pruning import ALWAYS, AllOf, Among, AnyOf, Column, Compare, Condition, IsNull
from frostline.model.bounds import Range, parse_bound

_MICROS_PER_DAY = 86_400_000_000
_MIRRORED = {"=": "=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
_OPERATORS: dict[type[exp.Expression], str] = {exp.EQ: "=", exp.LT: "<", exp.LTE: "<=", exp.GT: ">", exp.GTE: ">="}
_ZONE = re.compile(r"(?P<moment>.+:.+?)(?P<sign>[+-])(?P<h>\d\d)(?::(?P<m>\d\d))?(?::(?P<s>\d\d))?(?P<bc> BC)?")
_DAY = re.compile(r"\d{4,}-\d\d-\d\d(?: BC)?")
_STAMP = re.compile(r"\d{4,}-\d\d-\d\d \d\d:\d\d:\d\d(?:\.\d{1,6})?(?: BC)?")
_UUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_NUMBER = re.compile(r"-?\d+(?:\.\d*)?(?:[eE][+-]?\d{1,3})?")
_INTEGER = re.compile(r"-?\d+")
_REAL = re.compile(r"-?(?:\d+(?:\.\d*)?(?:[eE][+-]?\d{1,3})?|Infinity)")

_INTEGERS = {exp.DType.SMALLINT, exp.DType.INT, exp.DType.BIGINT}
_TEXTS = {exp.DType.TEXT, exp.DType.VARCHAR}
_FLOATS = {exp.DType.FLOAT, exp.DType.DOUBLE}
Parameters = Sequence[str | None]


class _Unclear(Exception):
    """Not a condition we use."""


@dataclass(frozen=True)
class _Kind:
    """How constants next to a column of one type are read, and under which labels; whether < and > go by the bounds."""

    read: Callable[[str], Value]
    labels: frozenset[exp.DType]
    ordered: bool = True


def conditions(tree: exp.Expression, table: ColdTable, parameters: Parameters = ()) -> tuple[Condition, ...]:
    """What the rows a single-table SELECT looks at satisfy; nothing for any other statement."""
    where = tree.args.get("where") if isinstance(tree, exp.Select) else None
    if where is None or not _one_table(tree):
        return ()
    found = _Reader(table, parameters).condition(where.this)
    return () if found == ALWAYS else (found,)


def in_range(table: ColdTable, found: Range) -> tuple[Compare, ...]:
    """The period itself: its bounds are exact moments, days or numbers."""
    key = table.key
    if key.lake_name is None:
        return ()
    unit = _MICROS_PER_DAY if key.typname == "date" else 1
    column = Column(key.lake_name, key.storage.iceberg)
    return tuple(
        Compare(column, operator, bound.order // unit)
        for operator, bound in ((">=", found.lower), ("<", found.upper))
        if bound is not None
    )


def _one_table(select: exp.Expression) -> bool:
    """Whether a bare name in the WHERE clause can only be the table's own column."""
    source = select.args.get("from_")
    table = source.this if isinstance(source, exp.From) else None
    if not isinstance(table, exp.Table) or not table.args.get("db") or select.args.get("with_"):
        return False
    if any(node.args.get(name) for node in (select, table) for name in ("joins", "laterals", "pivots")):
        return False
    alias = table.args.get("alias")
    return alias is None or not alias.args.get("columns")


class _Reader:
    """Reads one statement's conditions."""

    def __init__(self, table: ColdTable, parameters: Parameters) -> None:
        self._columns = table.columns
        self._parameters = parameters

    def condition(self, node: exp.Expression) -> Condition:
        try:
            return self._read(_bare(node))
        except (_Unclear, Unknown, ValueError, ArithmeticError):
            return ALWAYS

    def _read(self, node: exp.Expression) -> Condition:
        readers: dict[type[exp.Expression], Callable[..., Condition]] = {
            exp.And: self._and,
            exp.Or: self._or,
            exp.Is: self._is,
            exp.Not: self._not,
            exp.Between: self._between,
            exp.In: self._in,
        }
        return readers.get(type(node), self._comparison)(node)

    def _and(self, node: exp.And) -> Condition:
        parts = (self.condition(node.this), self.condition(node.expression))
        return AllOf(tuple(part for part in parts if part != ALWAYS))

    def _or(self, node: exp.Or) -> Condition:
        parts = (self.condition(node.this), self.condition(node.expression))
        return ALWAYS if ALWAYS in parts else AnyOf(parts)

    def _is(self, node: exp.Is) -> IsNull:
        if not isinstance(node.expression, exp.Null):
            raise _Unclear
        return IsNull(self._lake(self._column(node.this)), negated=bool(node.args.get("negate")))

    def _not(self, node: exp.Not) -> Condition:
        """Only IS NOT NULL: what is not true may be unknown, so nothing else turns around."""
        inner = _bare(node.this)
        if not isinstance(inner, exp.Is):
            raise _Unclear
        found = self._is(inner)
        return IsNull(found.column, not found.negated)

    def _between(self, node: exp.Between) -> Condition:
        if node.args.get("symmetric"):
            raise _Unclear
        column = self._column(node.this)
        return AllOf((self._compare(column, ">=", node.args["low"]), self._compare(column, "<=", node.args["high"])))

    def _in(self, node: exp.In) -> Condition:
        if any(value for name, value in node.args.items() if name not in ("this", "expressions")):
            raise _Unclear
        column = self._column(node.this)
        return self._among(column, [self._constant(item) for item in node.expressions])

    def _comparison(self, node: exp.Expression) -> Condition:
        operator = _OPERATORS.get(type(node))
        if operator is None:
            raise _Unclear
        left, right = _bare(node.this), _bare(node.args["expression"])
        if operator == "=" and isinstance(right, exp.Any):
            return self._among(self._column(left), self._items(right.this))
        if not isinstance(left, exp.Column):
            left, right, operator = right, left, _MIRRORED[operator]
        return self._compare(self._column(left), operator, right)

    def _compare(self, column: ColdColumn, operator: str, node: exp.Expression) -> Condition:
        if operator == "=":
            return self._among(column, [self._constant(node)])
        kind = _kind(column)
        text, label = self._constant(node)
        if text is None:
            return Among(self._lake(column), ())
        if not kind.ordered:
            raise _Unclear
        return Compare(self._lake(column), operator, _value(column, kind, text, label))

    def _among(self, column: ColdColumn, items: list[tuple[str | None, exp.DType | None]]) -> Condition:
        kind = _kind(column)
        values = {_value(column, kind, text, label) for text, label in items if text is not None}
        return Among(self._lake(column), tuple(sorted(values)))

    def _items(self, node: exp.Expression) -> list[tuple[str | None, exp.DType | None]]:
        node = _bare(node)
        if isinstance(node, exp.Array):
            return [self._constant(item) for item in node.expressions]
        if not isinstance(node, exp.Cast) or type(node) is not exp.Cast or node.to.this != exp.DType.ARRAY:
            raise _Unclear
        text, label = self._constant(node.this)
        inner = node.to.expressions
        if text is None or label is not None or len(inner) != 1 or not isinstance(inner[0], exp.DataType):
            raise _Unclear
        return [(item, inner[0].this) for item in array_items(text)]

    def _column(self, node: exp.Expression) -> ColdColumn:
        node = _bare(node)
        if not isinstance(node, exp.Column) or not isinstance(node.this, exp.Identifier) or node.args.get("table"):
            raise _Unclear
        found = self._columns.get(node.this.name if node.this.args.get("quoted") else node.this.name.lower())
        if found is None:
            raise _Unclear
        return found

    def _lake(self, column: ColdColumn) -> Column:
        if column.lake_name is None:
            raise _Unclear
        return Column(column.lake_name, column.storage.iceberg)

    def _constant(self, node: exp.Expression) -> tuple[str | None, exp.DType | None]:
        """A constant's text and the type it is labelled with."""
        node = _bare(node)
        if type(node) is exp.Cast:
            text, label = self._constant(node.this)
            if label is not None or node.to.expressions or not isinstance(node.to.this, exp.DType):
                raise _Unclear
            return text, node.to.this
        if isinstance(node, exp.Literal):
            return str(node.this), None
        if isinstance(node, exp.Neg) and isinstance(node.this, exp.Literal) and not node.this.args.get("is_string"):
            return f"-{node.this.this}", None
        if isinstance(node, exp.Boolean):
            return ("t" if node.this else "f"), exp.DType.BOOLEAN
        if isinstance(node, exp.Null):
            return None, None
        if isinstance(node, exp.Parameter) and isinstance(node.this, exp.Literal):
            return self._parameters[int(node.this.this) - 1], None
        raise _Unclear


def _bare(node: exp.Expression) -> exp.Expression:
    while isinstance(node, exp.Paren):
        node = node.this
    return node


def _value(column: ColdColumn, kind: _Kind, text: str, label: exp.DType | None) -> Value:
    if label is not None and label not in kind.labels:
        raise _Unclear
    if label in _INTEGERS and not _INTEGER.fullmatch(text):
        raise _Unclear  # the cast would round it
    if column.typname == "float4" and label is not exp.DType.DOUBLE:
        if label is None:
            raise _Unclear  # a bare number is a double to Postgres, a bare string is a real
        # The constant is rounded as the column's values were.
        return float(struct.unpack("<f", struct.pack("<f", kind.read(text)))[0])
    return kind.read(text)


def _kind(column: ColdColumn) -> _Kind:
    found = _KINDS.get(column.typname)
    if found is None or not column.storage.native or not column.deterministic or column.lake_name is None:
        raise _Unclear
    if column.typname in ("text", "varchar") and not column.byte_ordered:
        return _Kind(found.read, found.labels, ordered=False)
    return found


def _number(text: str) -> Value:
    if not _NUMBER.fullmatch(text):
        raise _Unclear
    return int(text) if text.lstrip("-").isdecimal() else Decimal(text)


def _real(text: str) -> Value:
    if not _REAL.fullmatch(text):
        raise _Unclear
    return float(text)


def _moment(pattern: re.Pattern[str], text: str) -> int:
    if text not in ("infinity", "-infinity") and not pattern.fullmatch(text):
        raise _Unclear
    bound = parse_bound(text)
    if bound is None:
        raise _Unclear
    return bound.order


def _timestamptz(text: str) -> Value:
    if text in ("infinity", "-infinity"):
        return _moment(_STAMP, text)
    match = _ZONE.fullmatch(text)
    if match is None:
        raise _Unclear
    offset = int(match["h"]) * 3600 + int(match["m"] or 0) * 60 + int(match["s"] or 0)
    local = _moment(_STAMP, match["moment"] + (match["bc"] or ""))
    return local - (offset if match["sign"] == "+" else -offset) * 1_000_000


def _boolean(text: str) -> Value:
    if text not in ("t", "f", "true", "false"):
        raise _Unclear
    return int(text[0] == "t")


def _uuid(text: str) -> Value:
    if not _UUID.fullmatch(text):
        raise _Unclear
    return bytes.fromhex(text.replace("-", ""))


def _bytea(text: str) -> Value:
    if not text.startswith("\\x"):
        raise _Unclear
    return bytes.fromhex(text[2:])


_NUMERIC = frozenset({*_INTEGERS, exp.DType.DECIMAL})
_KINDS: dict[str, _Kind] = {
    "int2": _Kind(_number, _NUMERIC),
    "int4": _Kind(_number, _NUMERIC),
    "int8": _Kind(_number, _NUMERIC),
    "numeric": _Kind(_number, _NUMERIC),
    "float4": _Kind(_real, frozenset(_FLOATS)),
    "float8": _Kind(_real, frozenset({exp.DType.DOUBLE})),
    "date": _Kind(lambda text: _moment(_DAY, text) // _MICROS_PER_DAY, frozenset({exp.DType.DATE})),
    "timestamp": _Kind(lambda text: _moment(_STAMP, text), frozenset({exp.DType.TIMESTAMP})),
    "timestamptz": _Kind(_timestamptz, frozenset({exp.DType.TIMESTAMPTZ})),
    "bool": _Kind(_boolean, frozenset({exp.DType.BOOLEAN})),
    "uuid": _Kind(_uuid, frozenset({exp.DType.UUID})),
    "bytea": _Kind(_bytea, frozenset({exp.DType.VARBINARY})),
    "text": _Kind(str.encode, frozenset(_TEXTS)),
    "varchar": _Kind(str.encode, frozenset(_TEXTS)),
}
