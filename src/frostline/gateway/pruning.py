"""The conditions of a WHERE clause that tell which files to read.

They hold whoever evaluates the statement, DuckDB or Postgres: they are read with Postgres's own meaning. What is not
understood here prunes nothing.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from functools import lru_cache

from frostline.catalog.cold import ColdColumn, ColdTable
from frostline.gateway.clauses import Select
from frostline.gateway.constants import array_items
from frostline.gateway.expressions.tree import (
    Boolean,
    Cast,
    Items,
    Node,
    Null,
    Number,
    Operation,
    Parameter,
    Quantified,
    String,
    Test,
    Unknown,
)
from frostline.gateway.expressions.tree import Column as Name
from frostline.lake.bounds import Value
from frostline.lake.pruning import ALWAYS, AllOf, Among, AnyOf, Column, Compare, Condition, IsNull
from frostline.model.bounds import Range, parse_bound

_MICROS_PER_DAY = 86_400_000_000
_MIRRORED = {"=": "=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
_ZONE = re.compile(r"(?P<moment>.+:.+?)(?P<sign>[+-])(?P<h>\d\d)(?::(?P<m>\d\d))?(?::(?P<s>\d\d))?(?P<bc> BC)?")
_USUAL = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(?:\.\d{1,6})?[+-]\d\d(?::\d\d)?")
_EPOCH, _MICROSECOND = datetime(1970, 1, 1, tzinfo=UTC), timedelta(microseconds=1)
_DAY = re.compile(r"\d{4,}-\d\d-\d\d(?: BC)?")
_STAMP = re.compile(r"\d{4,}-\d\d-\d\d \d\d:\d\d:\d\d(?:\.\d{1,6})?(?: BC)?")
_UUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_NUMBER = re.compile(r"-?\d+(?:\.\d*)?(?:[eE][+-]?\d{1,3})?")
_INTEGER = re.compile(r"-?\d+")
_REAL = re.compile(r"-?(?:\d+(?:\.\d*)?(?:[eE][+-]?\d{1,3})?|Infinity)")

_INTEGERS = frozenset({"int2", "int4", "int8"})
_TEXTS = frozenset({"text", "varchar"})
Parameters = Sequence[str | None]
Constant = tuple[str | None, str | None]  # its text, and the type it is labelled with


class _Unclear(Exception):
    """Not a condition we use."""


@dataclass(frozen=True)
class _Kind:
    """How constants next to a column of one type are read, and under which labels; whether < and > go by the bounds."""

    read: Callable[[str], Value]
    labels: frozenset[str]
    ordered: bool = True


def conditions(select: Select, table: ColdTable, parameters: Parameters = ()) -> tuple[Condition, ...]:
    """What the rows a single-table SELECT looks at satisfy; nothing for any other statement."""
    try:
        alias, _ = select.source()
    except Unknown:
        return ()
    reader = _Reader(table, parameters, alias)
    found = (reader.condition(conjunct) for conjunct in select.known_conjuncts())
    return tuple(condition for condition in found if condition != ALWAYS)


def in_range(table: ColdTable, found: Range) -> tuple[Compare, ...]:
    """The period itself: its bounds are exact moments, days or numbers."""
    return _in_range(table.key, found)


@lru_cache(maxsize=1000)
def _in_range(key: ColdColumn, found: Range) -> tuple[Compare, ...]:
    if key.field_id is None:
        return ()
    unit = _MICROS_PER_DAY if key.typname == "date" else 1
    column = Column(key.field_id, key.storage.iceberg)
    return tuple(
        Compare(column, operator, bound.order // unit)
        for operator, bound in ((">=", found.lower), ("<", found.upper))
        if bound is not None
    )


@dataclass(frozen=True, eq=False)
class Equality:
    """A column that is compared with a parameter, of which the value is not known yet."""

    column: ColdColumn
    _lake: Column
    _kind: _Kind
    _label: str | None
    _place: int  # of the parameter

    def value(self, parameters: Parameters) -> Value | None:
        """None: what the parameter means is Postgres's to say."""
        text = parameters[self._place]
        try:
            return None if text is None else _value(self.column, self._kind, text, self._label)
        except (_Unclear, ValueError, ArithmeticError):
            return None

    def condition(self, value: Value) -> Among:
        return Among(self._lake, (value,))


def equality(node: Node, table: ColdTable) -> Equality | None:
    """What a conjunct compares with a parameter, if it is as plain as that."""
    match node:
        case Operation("=", (Name(name, None), Parameter(number))):
            label = None
        case Operation("=", (Name(name, None), Cast(Parameter(number), to))) if not (to.modifiers or to.array):
            label = to.name
        case _:
            return None
    column = table.columns.get(name)
    try:
        if column is not None and column.field_id is not None and column.missing is None:
            lake = Column(column.field_id, column.storage.iceberg)
            return Equality(column, lake, _kind(column), label, number - 1)
    except _Unclear:
        pass
    return None


class _Reader:
    """Reads one statement's conditions."""

    def __init__(self, table: ColdTable, parameters: Parameters, alias: str | None) -> None:
        self._columns = table.columns
        self._parameters = parameters
        self._alias = alias

    def condition(self, node: Node) -> Condition:
        try:
            return self._read(node)
        except (_Unclear, Unknown, ValueError, ArithmeticError, RecursionError):
            return ALWAYS

    def _read(self, node: Node) -> Condition:
        match node:
            case Operation("and", parts):
                return AllOf(tuple(found for found in map(self.condition, parts) if found != ALWAYS))
            case Operation("or", parts):
                either = tuple(map(self.condition, parts))
                return ALWAYS if ALWAYS in either else AnyOf(either)
            # Only this turns around: what else is not true may be unknown.
            case Operation("not", (Test(operand, None, negated),)):
                return self._null(self._column(operand), not negated)
            case Test(operand, None, negated):
                return self._null(self._column(operand), negated)
            case Quantified("=", left, right, every=False):
                return self._among(self._column(left), self._items(right))
            case Operation(operator, (left, right)) if operator in _MIRRORED:
                if not isinstance(left, Name):
                    left, right, operator = right, left, _MIRRORED[operator]
                return self._compare(self._column(left), operator, right)
        raise _Unclear

    def _null(self, column: ColdColumn, negated: bool) -> Condition:
        if not column.null_is_null:
            raise _Unclear
        return IsNull(self._lake(column), negated)

    def _compare(self, column: ColdColumn, operator: str, node: Node) -> Condition:
        if operator == "=":
            return self._among(column, [self._constant(node)])
        kind = _kind(column)
        text, label = self._constant(node)
        if text is None:
            return Among(self._lake(column), ())
        if not kind.ordered:
            raise _Unclear
        return Compare(self._lake(column), operator, _value(column, kind, text, label))

    def _among(self, column: ColdColumn, items: list[Constant]) -> Condition:
        kind = _kind(column)
        values = {_value(column, kind, text, label) for text, label in items if text is not None}
        return Among(self._lake(column), tuple(sorted(values)))

    def _items(self, node: Node) -> list[Constant]:
        if isinstance(node, Items):
            return [self._constant(item) for item in node.items]
        if not isinstance(node, Cast) or not node.to.array or node.to.modifiers:
            raise _Unclear
        text, label = self._constant(node.operand)
        if text is None or label is not None:
            raise _Unclear
        return [(item, node.to.name) for item in array_items(text)]

    def _column(self, node: Node) -> ColdColumn:
        if not isinstance(node, Name) or node.table not in (None, self._alias):
            raise _Unclear
        found = self._columns.get(node.name)
        if found is None:
            raise _Unclear
        return found

    def _lake(self, column: ColdColumn) -> Column:
        # Files say nothing of a value that their rows have for want of their own.
        if column.field_id is None or column.missing is not None:
            raise _Unclear
        return Column(column.field_id, column.storage.iceberg)

    def _constant(self, node: Node) -> Constant:
        match node:
            case Cast(operand, to):
                text, label = self._constant(operand)
                if label is not None or to.modifiers or to.array:
                    raise _Unclear
                return text, to.name
            case String(text) | Number(text):
                return text, None
            case Boolean(value):
                return ("t" if value else "f"), "bool"
            case Null():
                return None, None
            case Parameter(number) if 1 <= number <= len(self._parameters):
                return self._parameters[number - 1], None
        raise _Unclear


def _value(column: ColdColumn, kind: _Kind, text: str, label: str | None) -> Value:
    if label is not None and label not in kind.labels:
        raise _Unclear
    if label in _INTEGERS and not _INTEGER.fullmatch(text):
        raise _Unclear  # the cast would round it
    if column.typname == "float4" and label != "float8":
        if label is None:
            raise _Unclear  # a bare number is a double to Postgres, a bare string is a real
        # The constant is rounded as the column's values were.
        return float(struct.unpack("<f", struct.pack("<f", kind.read(text)))[0])
    return kind.read(text)


def _kind(column: ColdColumn) -> _Kind:
    found = _KINDS.get(column.typname)
    if found is None or not column.storage.native or not column.deterministic:
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
    if _USUAL.fullmatch(text):  # most of them, in a quarter of the time
        return (datetime.fromisoformat(text) - _EPOCH) // _MICROSECOND
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


_NUMERIC = _INTEGERS | {"numeric"}
_KINDS: dict[str, _Kind] = {
    "int2": _Kind(_number, _NUMERIC),
    "int4": _Kind(_number, _NUMERIC),
    "int8": _Kind(_number, _NUMERIC),
    "numeric": _Kind(_number, _NUMERIC),
    "float4": _Kind(_real, frozenset({"float4", "float8"})),
    "float8": _Kind(_real, frozenset({"float8"})),
    "date": _Kind(lambda text: _moment(_DAY, text) // _MICROS_PER_DAY, frozenset({"date"})),
    "timestamp": _Kind(lambda text: _moment(_STAMP, text), frozenset({"timestamp"})),
    "timestamptz": _Kind(_timestamptz, frozenset({"timestamptz"})),
    "bool": _Kind(_boolean, frozenset({"bool"})),
    "uuid": _Kind(_uuid, frozenset({"uuid"})),
    "bytea": _Kind(_bytea, frozenset({"bytea"})),
    "text": _Kind(str.encode, _TEXTS),
    "varchar": _Kind(str.encode, _TEXTS),
}
