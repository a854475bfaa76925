"""The names foreign tables carry in their options, taken apart."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache

from frostline.catalog.names import HELD_SCHEMA
from frostline.errors import QueryError
from frostline.gateway.lexer import Token
from frostline.model.bounds import Range, parse_range

_SCHEMA = re.compile(
    r"table (?P<table>[1-9]\d{0,17})(?:(?: operation (?P<operation>[1-9]\d{0,17}))?(?P<lake> lake)?"
    r" snapshot (?P<snapshot>[0-9A-F]{8}-[0-9A-F]{8}-[0-9]{1,10}))?"
)


@dataclass(frozen=True)
class Source:
    """What a foreign table stands for: a managed table's rows in one range.

    With an operation it is the range as that operation exported it. `lake_only` leaves out what the delta says, and a
    snapshot is one of Postgres that somebody exported.
    """

    table: int
    range: Range
    operation: int | None = None
    snapshot: str | None = None
    lake_only: bool = False

    @cached_property
    def _hash(self) -> int:
        return hash((self.table, self.range, self.operation, self.snapshot))

    def __hash__(self) -> int:
        """Looked up a dozen times a statement."""
        return self._hash


@dataclass(frozen=True)
class Reference:
    """One mention of a source in a statement's text."""

    source: Source
    start: int
    end: int


@lru_cache(maxsize=1000)
def parse_source(schema: str, table: str) -> Source | None:
    """The source a qualified name stands for, or None when it is no name of ours."""
    match = _SCHEMA.fullmatch(schema)
    if match is None:
        return None
    try:
        found = parse_range(table)
    except ValueError:
        raise QueryError(f'relation "{schema}"."{table}" does not exist', sqlstate="42P01") from None
    operation = int(match["operation"]) if match["operation"] else None
    return Source(int(match["table"]), found, operation, match["snapshot"], match["lake"] is not None)


def held_table(tokens: Sequence[Token]) -> tuple[int, tuple[int, int]] | None:
    """The table whose held versions a statement asks for, and where in the text it says so."""
    for first, dot, second in zip(tokens, tokens[1:], tokens[2:], strict=False):
        if first.kind == "quoted" and first.text == HELD_SCHEMA and dot.text == "." and second.text.isdecimal():
            return int(second.text), (first.start, second.end)
    return None


def references(tokens: Sequence[Token]) -> list[Reference]:
    """Every source named in a statement, in order."""
    found: list[Reference] = []
    for first, dot, second in zip(tokens, tokens[1:], tokens[2:], strict=False):
        if first.kind == second.kind == "quoted" and dot.text == ".":
            source = parse_source(first.text, second.text)
            if source is not None:
                found.append(Reference(source, first.start, second.end))
    return found
