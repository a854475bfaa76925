"""SELECTs as they come: taken apart once, and known again when only the period or the cursor's name differs."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from frostline.gateway.lexer import Token
from frostline.gateway.names import Reference, Source, parse_source, references

# As postgres_fdw writes it. What stands before a source decides how it is read, and its name is closed by its own
# quotes: two texts that differ in nothing else have the same tokens otherwise.
_DECLARE = re.compile(r'DECLARE (c\d+) CURSOR FOR\s(.*?)"(table \d+)"\."([^"]*)"(.*)', re.S)
_KEPT = 2000
LONGEST = 10_000  # a list of a hundred thousand values is not asked for twice


@dataclass(frozen=True, eq=False)
class Statement:
    """A SELECT: its tokens in the text it came in. Over one source it is the same as another that differs in that."""

    text: str
    tokens: Sequence[Token]
    references: Sequence[Reference]
    key: str

    def __hash__(self) -> int:
        return hash(self.key)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Statement) and other.key == self.key

    @property
    def short(self) -> bool:
        return len(self.key) <= LONGEST


_known: dict[tuple[str, str], Statement] = {}


def statement(text: str, tokens: Sequence[Token]) -> Statement:
    """The SELECT that these tokens of a text are."""
    found = references(tokens)
    key = text
    if len(found) == 1:
        key = f"{text[tokens[0].start : found[0].start]}.{text[found[0].end :]}"
    return Statement(text, tokens, found, key)


def remember(found: Statement) -> None:
    """Know it again when it is declared once more."""
    match = _DECLARE.fullmatch(found.text)
    if match is None or not found.short or len(found.references) != 1:
        return
    (reference,) = found.references
    if (reference.start, reference.end) == (match.start(3) - 1, match.end(4) + 1):
        if len(_known) >= _KEPT:
            _known.clear()
        _known[match[2], match[5]] = found


def declared_again(text: str) -> tuple[str, Source, Statement] | None:
    """The cursor's name and source, and the statement as it was taken apart when it was first declared."""
    match = _DECLARE.fullmatch(text)
    if match is None or (known := _known.get((match[2], match[5]))) is None:
        return None
    source = parse_source(match[3], match[4])
    return None if source is None else (match[1], source, known)
