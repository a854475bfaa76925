"""Parsed and translated statements, kept by their text without the source's name: forty periods are one statement."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from frostline.catalog.cold import ColdTable
from frostline.gateway import pruning
from frostline.gateway.clauses import Select, cut
from frostline.gateway.expressions.parse import parse_list
from frostline.gateway.expressions.tree import Boolean, Column, Node, Null, Number, String
from frostline.gateway.lexer import Token
from frostline.gateway.names import Reference
from frostline.gateway.translate import Parameters, Translated, translate
from frostline.lake.pruning import Condition

# A usual one takes a few kB.
_KEPT = 1000
_LONGEST = 10_000  # a list of a hundred thousand values is not asked for twice


@dataclass(frozen=True)
class Plan:
    """What a SELECT over one source means to DuckDB."""

    translated: Translated
    conditions: tuple[Condition, ...]
    nothing_from_nothing: bool  # over no rows it has none itself


@dataclass(frozen=True, eq=False)
class _Table:
    """A table as a key: by identity, for a description is made anew only when it differs."""

    table: ColdTable

    def __hash__(self) -> int:
        return id(self.table)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Table) and other.table is self.table


@dataclass(frozen=True, eq=False)
class _Statement:
    """A statement as a key: by its text without the source's name."""

    text: str
    tokens: Sequence[Token]
    key: str

    def __hash__(self) -> int:
        return hash(self.key)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Statement) and other.key == self.key


def planned(text: str, tokens: Sequence[Token], reference: Reference, table: ColdTable, parameters: Parameters) -> Plan:
    """The plan of the SELECT over one source that these tokens of a text are; or Unknown."""
    key = f"{text[tokens[0].start : reference.start]}.{text[reference.end :]}"
    statement = _Statement(text, tokens, key)
    if len(key) > _LONGEST or any(value is not None and len(value) > _LONGEST for value in parameters):
        return _plan(statement, _Table(table), parameters)
    return _kept_plan(statement, _Table(table), tuple(parameters))


def _plan(statement: _Statement, found: _Table, parameters: Parameters) -> Plan:
    select, table = cut(statement.text, statement.tokens), found.table
    return Plan(
        translate(select, table, parameters),
        pruning.conditions(select, table, parameters),
        _yields_nothing_from_nothing(select),
    )


_kept_plan = lru_cache(maxsize=_KEPT)(_plan)


def _yields_nothing_from_nothing(select: Select) -> bool:
    """Whether a SELECT over no rows has no rows: one with an aggregate may have one."""
    tokens = select.get("select")
    if select.get("group") or select.get("having") or (tokens and tokens[0].word("distinct")):
        return False
    return all(map(_per_row, parse_list(tokens)))


def _per_row(output: Node) -> bool:
    """Names and constants only: what looks like a function may be an aggregate."""
    return isinstance(output, Column | Number | String | Boolean | Null)
