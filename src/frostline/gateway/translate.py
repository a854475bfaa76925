"""From the statements postgres_fdw sends to DuckDB: the shape of a SELECT over one source, allow-list only."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import chain

from frostline.catalog.cold import ColdColumn, ColdTable
from frostline.gateway.aggregates import NAMES as AGGREGATE_NAMES
from frostline.gateway.clauses import Select, split
from frostline.gateway.expressions import output
from frostline.gateway.expressions.emitter import Emitter, Parameters, column_name
from frostline.gateway.expressions.grouped import Grouped
from frostline.gateway.expressions.parse import parse as parse_expression
from frostline.gateway.expressions.parse import parse_list
from frostline.gateway.expressions.tree import Call, Column, Node, Null, Number, Unknown
from frostline.gateway.expressions.types import BOOLEAN
from frostline.gateway.expressions.values import Value
from frostline.gateway.lexer import Token
from frostline.gateway.operators import GROUPED, SORTED
from frostline.gateway.wire.messages import Field

__all__ = ["Filter", "Parameters", "Translated", "column_name", "known_part", "translate"]

_ALL_COUNTED = "CAST(count(*) AS VARCHAR)"


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
    recent: tuple[str, ...]  # the same where no moment is before the year 1
    tail: str  # WHERE, GROUP BY, HAVING, ORDER BY, LIMIT
    columns: frozenset[ColdColumn]
    grouped: bool  # over no rows it may have one
    averages: dict[int, int]  # outputs that are still to be divided, and their scale
    hazards: tuple[str, ...] = ()
    computed: tuple[str, ...] = ()  # expressions that rows are grouped by, called k0, k1, ...

    def sql(self, source: str, *, recent: bool = False) -> str:
        written = self.recent if recent else self.outputs
        outputs = ", ".join(f"{output} AS o{number}" for number, output in enumerate(written))
        if self.computed:
            # As columns: DuckDB rewrites expressions and then may not recognise one it was told to group by.
            keys = ", ".join(f"{key} AS k{number}" for number, key in enumerate(self.computed))
            source = f"(SELECT *, {keys} FROM {source}) AS g"
        return f"SELECT {outputs} FROM {source}{self.tail}"

    @property
    def counts(self) -> bool:
        """Whether all it asks for is how many rows there are."""
        return self.grouped and not self.tail and all(written == _ALL_COUNTED for written in self.outputs)

    def check(self, source: str) -> str | None:
        """Finds a row for which Postgres would raise an error, evaluated in whatever order; None: there is none."""
        if not self.hazards:
            return None
        return f"SELECT 1 FROM {source} WHERE {' OR '.join(self.hazards)} LIMIT 1"


def translate(select: Select, table: ColdTable, parameters: Parameters = ()) -> Translated:
    """A SELECT over one source, whole, or Unknown."""
    try:
        return _translate(select, table, parameters)
    except RecursionError:
        raise Unknown("an expression nested too deeply") from None


def known_part(select: Select, table: ColdTable, parameters: Parameters = ()) -> Filter:
    """Those conjuncts of a single-source WHERE that DuckDB answers exactly: they narrow what Postgres is given."""
    found = Filter()
    try:
        alias, _ = select.source()
    except Unknown:
        return found
    for conjunct in select.known_conjuncts():
        emitter = Emitter(table, parameters, alias)
        try:
            condition = emitter.condition(conjunct)
        except (Unknown, RecursionError):
            continue
        # A row that Postgres fails on has to get there.
        found.conditions.append(f"({' OR '.join([condition, *emitter.hazards])})" if emitter.hazards else condition)
        found.columns |= emitter.columns
    return found


def _translate(select: Select, table: ColdTable, parameters: Parameters) -> Translated:
    sampled = _sampled(select)
    rows = Emitter(table, parameters)
    conditions = [rows.condition(conjunct) for conjunct in select.where()] + ([sampled] if sampled else [])
    distinct, items = _items(select)
    computed, keys = _computed(_keys(select, items, rows, distinct=distinct))
    grouped = keys is not None or any(_aggregates(item) for item in items)
    emitter = Grouped(rows, keys or {}) if grouped else rows
    outputs = [_output(item, emitter) for item in items]
    tail = f" WHERE {' AND '.join(conditions)}" if conditions else ""
    if keys:
        tail += f" GROUP BY {', '.join(key.sql for key in keys.values())}"
    tail += _having(select, emitter) + _order(select, items, emitter)
    tail += _limit(select, "limit", parameters, table) + _limit(select, "offset", parameters, table)
    return Translated(
        tuple(found.field for found in outputs),
        tuple(found.text for found in outputs),
        tuple(found.recent for found in outputs),
        tail,
        frozenset(rows.columns),
        grouped,
        {at: found.average for at, found in enumerate(outputs) if found.average is not None},
        tuple(rows.hazards),
        computed,
    )


def _aggregates(node: Node) -> bool:
    """Whether an aggregate's name is called anywhere: then everything is about groups."""
    if isinstance(node, Call) and node.name in AGGREGATE_NAMES:
        return True
    parts = chain.from_iterable(_flat(value) for value in vars(node).values())
    return any(_aggregates(part) for part in parts)


def _flat(value: object) -> Iterator[Node]:
    if isinstance(value, Node):
        yield value
    elif isinstance(value, tuple):
        for item in value:
            yield from _flat(item)


def _sampled(select: Select) -> str | None:
    """The condition that samples the one table, if it is sampled."""
    alias, rest = select.source()
    if alias is not None:
        raise Unknown("an alias")
    return _sample(rest) if rest else None


def _sample(tokens: Sequence[Token]) -> str:
    """ANALYZE samples with TABLESAMPLE; both methods promise no more than a share of the rows at random."""
    if len(tokens) != 5 or not tokens[0].word("tablesample") or not tokens[1].word("system", "bernoulli"):
        raise Unknown("more than one plain table")
    if tokens[3].kind != "number" or tokens[2].text != "(":
        raise Unknown("TABLESAMPLE")
    return f"(random() < {float(tokens[3].text)!r} / 100)"


def _items(select: Select) -> tuple[bool, Sequence[Node]]:
    """The select list: the same again and again, where the conditions differ."""
    tokens = select.get("select")
    distinct = bool(tokens) and tokens[0].word("distinct")
    return distinct, _parsed_list(tuple((token.kind, token.text) for token in tokens[distinct:]))


@lru_cache(maxsize=1000)
def _parsed_list(tokens: tuple[tuple[str, str], ...]) -> tuple[Node, ...]:
    return tuple(parse_list([Token(kind, text, 0, 0, 0) for kind, text in tokens]))


def _keys(select: Select, items: Sequence[Node], rows: Emitter, *, distinct: bool) -> dict[Node, Value] | None:
    """What rows are grouped by; DISTINCT is a grouping by the whole select list. None: there are no groups."""
    tokens = select.get("group")
    if not tokens and not distinct:
        return None if not select.get("having") else {}
    if tokens and (distinct or not tokens[0].word("by")):
        raise Unknown("DISTINCT of groups")
    nodes = [_ordinal(node, items) for node in parse_list(tokens[1:])] if tokens else list(items)
    keys = {node: rows.value(node) for node in nodes}
    for key in keys.values():
        if key.constant or key.type.key not in GROUPED:
            raise Unknown(f"GROUP BY {key.type.key}")
    return keys


def _computed(keys: dict[Node, Value] | None) -> tuple[tuple[str, ...], dict[Node, Value] | None]:
    """The keys that are more than a column, and all keys by the names they have then."""
    if keys is None:
        return (), None
    computed = {node: key.sql for node, key in keys.items() if not isinstance(node, Column)}
    places = {node: f"k{number}" for number, node in enumerate(computed)}
    return tuple(computed.values()), {node: replace(key, sql=places.get(node, key.sql)) for node, key in keys.items()}


def _ordinal(node: Node, items: Sequence[Node]) -> Node:
    """A bare number in GROUP BY or ORDER BY is a place in the select list."""
    if not isinstance(node, Number):
        return node
    if not node.text.isdecimal() or not 1 <= int(node.text) <= len(items):
        raise Unknown(f"place {node.text}")
    return items[int(node.text) - 1]


@dataclass(frozen=True)
class Output:
    """One item of the select list: its description and its text."""

    field: Field
    text: str
    recent: str  # the text where no moment is before the year 1
    average: int | None = None  # the scale, if it is still to be divided


def _output(node: Node, emitter: Emitter) -> Output:
    if isinstance(node, Null):
        return _same(Field("?column?"), "CAST(NULL AS VARCHAR)")
    if not isinstance(node, Column):
        value = emitter.value(node)
        if value.constant:
            raise Unknown("a constant in the select list")
        average = value.type.scale if value.type.name == "average" else None
        return replace(_same(output.field(node, value), output.text(value)), average=average)
    column = emitter.column(node)
    name, storage = column_name(column.number), column.storage
    text = output.text(Value(name, BOOLEAN)) if column.typname == "bool" else storage.text.replace("{c}", name)
    recent = text if storage.recent is None else storage.recent.replace("{c}", name)
    return Output(Field(column.name, column.oid, column.typmod), text, recent)


def _same(found: Field, text: str) -> Output:
    return Output(found, text, text)


def _having(select: Select, emitter: Emitter) -> str:
    tokens = select.get("having")
    return f" HAVING {emitter.condition(parse_expression(tokens))}" if tokens else ""


def _order(select: Select, items: Sequence[Node], emitter: Emitter) -> str:
    tokens = select.get("order")
    if not tokens:
        return ""
    if not tokens[0].word("by"):
        raise Unknown("ORDER")
    return " ORDER BY " + ", ".join(_ordered(part, items, emitter) for part in split(tokens[1:]))


def _ordered(tokens: Sequence[Token], items: Sequence[Node], emitter: Emitter) -> str:
    """NULLS LAST going up and FIRST going down, unless said otherwise."""
    words: list[str] = []
    while tokens and tokens[-1].word("asc", "desc", "nulls", "first", "last"):
        words.insert(0, tokens[-1].text)
        tokens = tokens[:-1]
    direction = words.pop(0) if words and words[0] in ("asc", "desc") else "asc"
    nulls = words or ["nulls", "first" if direction == "desc" else "last"]
    if len(nulls) != 2 or nulls[0] != "nulls":
        raise Unknown("ORDER BY")
    value = emitter.value(_ordinal(parse_expression(tokens), items))
    if value.constant or value.type.key not in SORTED:
        raise Unknown(f"ORDER BY {value.type.key}")
    return f"{value.sql} {direction.upper()} NULLS {nulls[1].upper()}"


def _limit(select: Select, name: str, parameters: Parameters, table: ColdTable) -> str:
    tokens = select.get(name)
    if not tokens:
        return ""
    found = Emitter(table, parameters).value(parse_expression(tokens))
    if not found.constant or found.text is None or not found.text.isdecimal():
        raise Unknown(name)
    return f" {name.upper()} {int(found.text)}"
