"""From the statements postgres_fdw sends to DuckDB: our own emitter over the parsed tree, allow-list only.

Every node is checked for parts we do not know (`_only`); anything not understood raises Unknown, never a guess.
Columns are called c<attribute number> in DuckDB, which folds the case of names.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from frostline.catalog.cold import ColdColumn, ColdTable
from frostline.gateway import constants
from frostline.gateway.constants import Unknown
from frostline.gateway.operators import COMPARISONS, LABELS, MIRRORED, SORTABLE, kind_of
from frostline.gateway.wire.messages import Field

CTID = "'(0,1)'"
BIGINT_OID, TID_OID = 20, 27
Parameters = Sequence[str | None]


@dataclass
class Filter:
    """Conditions in DuckDB's SQL and the columns they read."""

    conditions: list[str] = field(default_factory=list)
    columns: set[ColdColumn] = field(default_factory=set)


@dataclass(frozen=True)
class Translated:
    """A whole SELECT over one source: everything is text by the time it leaves DuckDB."""

    fields: tuple[Field, ...]
    outputs: tuple[str, ...]
    tail: str  # WHERE, ORDER BY, LIMIT
    columns: frozenset[ColdColumn]

    def sql(self, source: str) -> str:
        outputs = ", ".join(f"{output} AS o{number}" for number, output in enumerate(self.outputs))
        return f"SELECT {outputs} FROM {source}{self.tail}"


def parse(sql: str) -> exp.Expression:
    """The tree of one statement, or Unknown."""
    try:
        tree = sqlglot.parse_one(sql, read="postgres")
    except (SqlglotError, RecursionError) as error:
        raise Unknown("the statement's text") from error
    if not isinstance(tree, exp.Expression):
        raise Unknown("the statement's text")
    return tree


def column_name(number: int) -> str:
    return f"c{number}"


def translate(tree: exp.Expression, table: ColdTable, parameters: Parameters = ()) -> Translated:
    """A SELECT over one source, whole, or Unknown."""
    if not isinstance(tree, exp.Select):
        raise Unknown("not a SELECT")
    _only(tree, "expressions", "from_", "where", "order", "limit", "offset", "locks")
    sampled = _sample(_plain_table(tree, "sample"))
    emitter = Emitter(table, parameters)
    outputs = [emitter.output(item) for item in tree.expressions]
    counted = any(isinstance(item, exp.Count) for item in tree.expressions)
    if counted and (len(outputs) > 1 or tree.args.get("order") is not None):
        raise Unknown("an aggregate next to other columns")
    where = tree.args.get("where")
    conditions = [emitter.condition(where.this)] if where is not None else []
    conditions += [sampled] if sampled else []
    tail = f" WHERE {' AND '.join(conditions)}" if conditions else ""
    tail += emitter.order(tree.args.get("order")) + emitter.limit(tree, "limit") + emitter.limit(tree, "offset")
    return Translated(
        tuple(found for found, _ in outputs), tuple(text for _, text in outputs), tail, frozenset(emitter.columns)
    )


def known_part(tree: exp.Expression, table: ColdTable, parameters: Parameters = ()) -> Filter:
    """Those conjuncts of a single-source WHERE that DuckDB answers exactly: they narrow what Postgres is given."""
    found = Filter()
    if not isinstance(tree, exp.Select) or tree.args.get("joins") or tree.args.get("laterals"):
        return found
    try:
        _plain_table(tree, "alias", "sample")
    except Unknown:
        return found
    where = tree.args.get("where")
    for conjunct in _conjuncts(where.this) if where is not None else ():
        emitter = Emitter(table, parameters)
        try:
            found.conditions.append(emitter.condition(conjunct))
            found.columns |= emitter.columns
        except Unknown:
            continue
    return found


def _conjuncts(node: exp.Expression) -> list[exp.Expression]:
    bare = _bare(node)
    if isinstance(bare, exp.And):
        return [*_conjuncts(bare.this), *_conjuncts(bare.expression)]
    return [bare]


def _sample(table: exp.Table) -> str | None:
    """ANALYZE samples with TABLESAMPLE; both methods promise no more than a share of the rows at random."""
    node = table.args.get("sample")
    if node is None:
        return None
    _only(node, "method", "percent")
    method, percent = str(node.args.get("method")).upper(), _bare(node.args.get("percent"))
    if method not in ("SYSTEM", "BERNOULLI") or not isinstance(percent, exp.Literal) or percent.args.get("is_string"):
        raise Unknown("TABLESAMPLE")
    return f"(random() < {float(percent.this)!r} / 100)"


def _plain_table(select: exp.Select, *more: str) -> exp.Table:
    source = select.args.get("from_")
    # Unqualified it would be the name of a WITH query.
    if not isinstance(source, exp.From) or not isinstance(source.this, exp.Table) or not source.this.args.get("db"):
        raise Unknown("not one plain table")
    _only(source, "this")
    _only(source.this, "this", "db", *more)
    return source.this


def _only(node: exp.Expression, *names: str) -> None:
    """Raise unless everything the parser found in this node is something we look at."""
    for name, value in node.args.items():
        if name not in names and value not in (None, False, []):
            raise Unknown(f"{type(node).__name__}.{name}")


def _bare(node: exp.Expression) -> exp.Expression:
    while isinstance(node, exp.Paren):
        _only(node, "this")
        node = node.this
    return node


@dataclass(frozen=True)
class Constant:
    """A constant's text and the type it is labelled with; a bare number or boolean is no string."""

    text: str | None
    label: exp.DType | None = None
    string: bool = True
    array: bool = False


class Emitter:
    """Writes DuckDB SQL for one table's expressions and remembers the columns used."""

    def __init__(self, table: ColdTable, parameters: Parameters) -> None:
        self.table = table
        self.parameters = parameters
        self.columns: set[ColdColumn] = set()

    def output(self, node: exp.Expression) -> tuple[Field, str]:
        """One item of the select list: its description and its text."""
        node = _bare(node)
        if isinstance(node, exp.Null):
            return Field("?column?"), "CAST(NULL AS VARCHAR)"
        if isinstance(node, exp.Count):
            _only(node, "this", "big_int")
            if not isinstance(node.this, exp.Star) or any(node.this.args.values()):
                raise Unknown("count of something")
            return Field("count", BIGINT_OID), "CAST(count(*) AS VARCHAR)"
        if isinstance(node, exp.Column) and node.name == "ctid" and "ctid" not in self.table.columns:
            _only(node, "this")
            return Field("ctid", TID_OID), CTID
        column = self.column(node)
        text = column.storage.text.replace("{c}", column_name(column.number))
        return Field(column.name, column.oid, column.typmod), text

    def order(self, node: exp.Expression | None) -> str:
        if node is None:
            return ""
        _only(node, "expressions")
        return " ORDER BY " + ", ".join(self._ordered(item) for item in node.expressions)

    def _ordered(self, node: exp.Expression) -> str:
        if not isinstance(node, exp.Ordered):
            raise Unknown("ORDER BY")
        _only(node, "this", "desc", "nulls_first")
        column = self.column(_bare(node.this))
        if kind_of(column) not in SORTABLE:
            raise Unknown(f"ORDER BY a column of type {column.type}")
        direction = "DESC" if node.args.get("desc") else "ASC"
        nulls = "FIRST" if node.args.get("nulls_first") else "LAST"
        return f"{column_name(column.number)} {direction} NULLS {nulls}"

    def limit(self, select: exp.Select, name: str) -> str:
        node = select.args.get(name)
        if node is None:
            return ""
        _only(node, "expression")
        found = self.constant(node.expression)
        if found.text is None or found.label not in LABELS["integer"] or not found.text.isdecimal():
            raise Unknown(name)
        return f" {name.upper()} {int(found.text)}"

    def condition(self, node: exp.Expression) -> str:
        """A boolean expression; three-valued exactly as in Postgres."""
        node = _bare(node)
        emit = self._conditions().get(type(node))
        if emit is not None:
            return emit(node)
        column = self.column(node)
        if kind_of(column) != "boolean":
            raise Unknown(f"a column of type {column.type} as a condition")
        return column_name(column.number)

    def _conditions(self) -> dict[type[exp.Expression], Callable[[Any], str]]:
        return {
            exp.And: lambda node: self._junction(node, "AND"),
            exp.Or: lambda node: self._junction(node, "OR"),
            exp.Not: self._not,
            exp.Boolean: lambda node: "true" if node.this else "false",
            exp.Is: self._is_null,
            exp.Between: self._between,
            exp.In: self._in,
            **dict.fromkeys(COMPARISONS, self._comparison),
        }

    def _junction(self, node: exp.Expression, word: str) -> str:
        _only(node, "this", "expression")
        return f"({self.condition(node.this)} {word} {self.condition(node.args['expression'])})"

    def _not(self, node: exp.Not) -> str:
        _only(node, "this")
        return f"(NOT {self.condition(node.this)})"

    def _is_null(self, node: exp.Is) -> str:
        _only(node, "this", "expression", "negate")
        if not isinstance(node.expression, exp.Null):
            raise Unknown("IS something else than NULL")
        column = self.column(_bare(node.this))
        return f"({column_name(column.number)} IS {'NOT ' if node.args.get('negate') else ''}NULL)"

    def _between(self, node: exp.Between) -> str:
        _only(node, "this", "low", "high")
        column = self.column(_bare(node.this))
        kind = self._comparable(column, ">=")
        low, high = (self._value(kind, self.constant(node.args[side]), column) for side in ("low", "high"))
        name = column_name(column.number)
        return f"({name} >= {low} AND {name} <= {high})"

    def _in(self, node: exp.In) -> str:
        _only(node, "this", "expressions")
        column = self.column(_bare(node.this))
        return self._among(column, [self.constant(item) for item in node.expressions], "=")

    def _comparison(self, node: exp.Expression) -> str:
        _only(node, "this", "expression")
        operator, _ = COMPARISONS[type(node)]
        left, right = _bare(node.this), _bare(node.args["expression"])
        if isinstance(right, exp.Any):
            return self._any(left, right, operator)
        if isinstance(right, exp.Anonymous):
            return self._all(left, right, operator)
        if not isinstance(left, exp.Column):
            left, right, operator = right, left, MIRRORED[operator]
        column = self.column(left)
        kind = self._comparable(column, operator)
        if isinstance(right, exp.Column):
            value = self._same_kind(column, self.column(right))
        else:
            value = self._value(kind, self.constant(right), column)
        return f"({column_name(column.number)} {operator} {value})"

    def _any(self, left: exp.Expression, right: exp.Any, operator: str) -> str:
        _only(right, "this")
        if operator != "=":
            raise Unknown(f"{operator} ANY")
        return self._among(self.column(left), self._items(right.this), "=")

    def _all(self, left: exp.Expression, right: exp.Anonymous, operator: str) -> str:
        """`<> ALL (...)`: the parser takes ALL for a function."""
        _only(right, "this", "expressions")
        if operator != "<>" or str(right.this).upper() != "ALL" or len(right.expressions) != 1:
            raise Unknown("a function")
        return self._among(self.column(left), self._items(right.expressions[0]), "<>")

    def _among(self, column: ColdColumn, items: list[Constant], operator: str) -> str:
        kind = self._comparable(column, operator)
        if not items:  # decided even for NULL
            return "false" if operator == "=" else "true"
        values = ", ".join(self._value(kind, item, column) for item in items)
        return f"({column_name(column.number)} {'IN' if operator == '=' else 'NOT IN'} ({values}))"

    def _items(self, node: exp.Expression) -> list[Constant]:
        node = _bare(node)
        if isinstance(node, exp.Array):
            _only(node, "expressions")
            return [self.constant(item) for item in node.expressions]
        found = self.constant(node)
        if found.text is None or not found.array:
            raise Unknown("an array")
        return [Constant(text, found.label) for text in constants.array_items(found.text)]

    def _comparable(self, column: ColdColumn, operator: str) -> str:
        kind = kind_of(column)
        for emitted, kinds in COMPARISONS.values():
            if emitted == operator and kind is not None and kind in kinds:
                return kind
        raise Unknown(f"{operator} on a column of type {column.type}")

    def _same_kind(self, column: ColdColumn, other: ColdColumn) -> str:
        same = kind_of(other) == kind_of(column) and other.collation == column.collation
        if not same or (column.typname == "numeric" and other.storage.iceberg != column.storage.iceberg):
            raise Unknown(f"{column.type} next to {other.type}")
        return column_name(other.number)

    def _value(self, kind: str, found: Constant, column: ColdColumn) -> str:
        if found.array or found.label not in LABELS[kind]:
            raise Unknown(f"a constant of type {found.label} next to {column.type}")
        if not found.string and kind not in ("integer", "numeric", "boolean"):
            raise Unknown(f"a bare number next to {column.type}")
        if found.text is None:
            return "NULL"
        return constants.constant(kind, found.text, column)

    def column(self, node: exp.Expression) -> ColdColumn:
        if not isinstance(node, exp.Column) or not isinstance(node.this, exp.Identifier):
            raise Unknown(type(node).__name__)
        _only(node, "this")
        name = node.this.name if node.this.args.get("quoted") else node.this.name.lower()
        column = self.table.columns.get(name)
        if column is None or column.lake_name is None:
            raise Unknown(f"column {name}")
        self.columns.add(column)
        return column

    def constant(self, node: exp.Expression) -> Constant:
        node = _bare(node)
        if isinstance(node, exp.Cast) and type(node) is exp.Cast:
            return self._labelled(node)
        if isinstance(node, exp.Literal):
            return Constant(str(node.this), string=bool(node.args.get("is_string")))
        if isinstance(node, exp.Neg) and isinstance(node.this, exp.Literal) and not node.this.args.get("is_string"):
            return Constant(f"-{node.this.this}", string=False)
        if isinstance(node, exp.Boolean):
            return Constant("true" if node.this else "false", exp.DType.BOOLEAN, string=False)
        if isinstance(node, exp.Null):
            return Constant(None)
        if isinstance(node, exp.Parameter):
            return self._parameter(node)
        raise Unknown(type(node).__name__)

    def _parameter(self, node: exp.Parameter) -> Constant:
        _only(node, "this")
        number = str(node.this.this) if isinstance(node.this, exp.Literal) else ""
        if not number.isdecimal() or not 1 <= int(number) <= len(self.parameters):
            raise Unknown("a parameter")
        return Constant(self.parameters[int(number) - 1])

    def _labelled(self, node: exp.Cast) -> Constant:
        _only(node, "this", "to")
        inner, to = self.constant(node.this), node.to
        if inner.label is not None or inner.array:
            raise Unknown("a cast of a cast")
        if to.this == exp.DType.ARRAY and len(to.expressions) == 1:
            _only(to, "this", "expressions", "nested")
            to = to.expressions[0]
            _only(to, "this")
            return Constant(inner.text, to.this, inner.string, array=True)
        _only(to, "this")
        return Constant(inner.text, to.this, inner.string)
