"""What is known beforehand of the rows a statement wants: by DuckDB, by the lake's statistics, by the delta's index."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import pairwise

from frostline.catalog.cold import ColdTable
from frostline.gateway import lexer, pruning
from frostline.gateway.clauses import Select, cut
from frostline.gateway.expressions.tree import Unknown
from frostline.gateway.lexer import Token
from frostline.gateway.translate import Filter, Parameters, known_part
from frostline.lake.pruning import Condition

_COMPARED = frozenset({"=", "<", ">", "<=", ">="})
# Of a constant: its type, behind a `::`. Anything else might be a column, which may be called date, or a function.
_TYPE_WORDS = frozenset(
    (
        *(
            "bigint",
            "date",
            "double",
            "integer",
            "numeric",
            "precision",
            "real",
            "smallint",
            "time",
            "timestamp",
        ),
        *("uuid", "with", "without", "zone"),
    )
)
_CONSTANT = frozenset({"string", "number", "parameter", "typecast"})


@dataclass(frozen=True)
class Narrowed:
    """What tells which files to read, and which versions of the delta; and what DuckDB filters by."""

    files: tuple[Condition, ...] = ()
    _keys: Callable[[], tuple[str, ...]] = tuple
    _filter: Callable[[], Filter] = Filter

    @cached_property
    def keys(self) -> tuple[str, ...]:
        """The same: not where a whole primary key is known."""
        return self._keys()

    @cached_property
    def filter(self) -> Filter:
        """Worked out when it is asked for: where a row is read without DuckDB, nobody does."""
        return self._filter()


def narrowed(text: str, tokens: Sequence[Token], table: ColdTable, parameters: Parameters) -> Narrowed:
    """All that is known of a SELECT's rows."""
    try:
        select = cut(text, tokens)
    except Unknown:
        return Narrowed()
    return of_clauses(select, table, parameters, partial(known_part, select, table, parameters))


def of_clauses(select: Select, table: ColdTable, parameters: Parameters, filter_: Callable[[], Filter]) -> Narrowed:
    """The same, what DuckDB filters by being known."""
    keys = partial(key_conditions, select, table, parameters)
    return Narrowed(pruning.conditions(select, table, parameters), keys, filter_)


def key_conditions(select: Select, table: ColdTable, parameters: Parameters) -> tuple[str, ...]:
    """Comparisons of key columns with constants, as Postgres reads them.

    A row and its versions have the same key, so versions with other keys matter to no row that is wanted. Only what
    cannot fail is taken, and nothing that depends on a collation.
    """
    try:
        alias, _ = select.source()
    except Unknown:
        return ()
    if alias is not None:
        return ()
    keys = {column.name for column in table.primary_key if column.collation is None and not column.domain}
    found = (_key_condition(select.text, _bare(part), keys, parameters) for part in select.parts())
    return tuple(condition for condition in found if condition is not None)


def _bare(tokens: Sequence[Token]) -> Sequence[Token]:
    """Without parentheses around all of it."""
    while (
        len(tokens) > 2
        and tokens[0].text == "("
        and tokens[-1].text == ")"
        and all(token.depth > tokens[0].depth for token in tokens[1:-1])
    ):
        tokens = tokens[1:-1]
    return tokens


def _key_condition(text: str, tokens: Sequence[Token], keys: set[str], parameters: Parameters) -> str | None:
    if len(tokens) < 3 or tokens[0].text not in keys or tokens[0].kind not in ("word", "quoted"):
        return None
    if tokens[1].kind != "operator" or tokens[1].text not in _COMPARED:
        return None
    if not all(_of_a_constant(before, token) for before, token in pairwise(tokens[1:])):
        return None
    start = tokens[0].start
    changes = [(a - start, b - start, new) for a, b, new in lexer.values(tokens, parameters)]
    return f"({lexer.splice(text[start : tokens[-1].end], changes)})"


def _of_a_constant(before: Token, token: Token) -> bool:
    if token.kind == "word":
        typed = before.kind == "typecast" or (before.kind == "word" and before.text != "any")
        return token.text == "any" or (typed and token.text in _TYPE_WORDS)
    return token.kind in _CONSTANT or token.text in ("(", ")", "[", "]", "-")
