"""Postgres's lexical rules: enough to find names, keywords and statement ends in a text without changing it.

The text postgres_fdw sends is handed to Postgres as it is wherever Postgres evaluates it; only spans found here are
replaced in it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

from frostline.errors import QueryError

_LONGEST = 10_000  # characters of a text worth keeping

# Possessive, or a text of many megabytes would take a hundred times as much to remember where else it could have ended.
_TOKEN = re.compile(
    r"""
    (?P<space>\s+|--[^\n]*)
  | (?P<string>(?:[eE]'(?:[^'\\]++|\\.|'')*+'|(?:[bBxXnN]|[uU]&)?'(?:[^']++|'')*+'))
  | (?P<quoted>(?:[uU]&)?"(?:[^"]++|"")++")
  | (?P<number>(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)
  | (?P<parameter>\$\d+)
  | (?P<word>[A-Za-z_\u0080-\U0010ffff][\w$\u0080-\U0010ffff]*)
  | (?P<typecast>::)
  | (?P<punctuation>[()\[\],;.:])
  | (?P<operator>[+\-*/<>=~!@\#%^&|`?]+)
    """,
    re.X | re.S,
)


# Names are passed over. Nothing may stand before a constant that would make something else of it, as in E'' or a1.
_LITERAL = re.compile(
    r"""
    "(?:[^"]++|"")*+"
  | (?<![\w$&.]) ('(?:[^']++|'')*+' | \d++(?:\.\d++)?(?![\w$.]) | (?<=\()-\d++(?:\.\d++)?(?=\)))
    """,
    re.X,
)


class Literals(tuple[str, ...]):
    """Constants of a text, in which parameters stand for them; unlike those of parameters, values may have a type."""

    text: str  # as it came
    written: tuple[str, ...]  # each of them


class Token(NamedTuple):
    kind: str
    text: str  # a quoted name's text is its name; a word's is lower-case
    start: int
    end: int
    depth: int  # of parentheses and brackets

    def word(self, *words: str) -> bool:
        return self.kind == "word" and self.text in words


def tokens(sql: str) -> tuple[Token, ...]:
    """Every token but white space."""
    return _tokens(sql) if len(sql) < _LONGEST else _scanned(sql)


def _scanned(sql: str) -> tuple[Token, ...]:
    found: list[Token] = []
    at = depth = 0
    for match in _TOKEN.finditer(sql):
        kind, text = match.lastgroup, match.group()
        start, at = at, at + len(text)
        # Between two matches is what no rule knows.
        if match.start() != start or (kind in _CUT_SHORT and _cut_short(kind, text, sql[at : at + 1])):
            raise _syntax(start)
        if kind == "space":
            continue
        if kind == "word":
            text = text.lower()
        elif kind == "quoted" and text[0] == '"':
            text = text[1:-1].replace('""', '"')
        elif kind == "punctuation":
            if text in ")]":
                depth -= 1
            elif text in "([":
                found.append(Token(kind, text, start, at, depth))
                depth += 1
                continue
        found.append(Token(str(kind), text, start, at, depth))
    if at < len(sql):
        raise _syntax(at)
    return tuple(found)


# A statement is looked at several times on its way, and many are sent again word for word.
_tokens = lru_cache(maxsize=2000)(_scanned)
_CUT_SHORT = ("operator", "word")


def _cut_short(kind: str, text: str, following: str) -> bool:
    """Block comments nest in Postgres and postgres_fdw sends none: refused rather than half understood.

    A word right before a quote is the prefix of a string that has no end.
    """
    return "/*" in text if kind == "operator" else following == "'"


def _syntax(at: int) -> QueryError:
    return QueryError(f"syntax error at or near character {at + 1}", sqlstate="42601")


def split(sql: str) -> list[str]:
    """The statements of a simple query."""
    pieces: list[str] = []
    start = 0
    for token in [*tokens(sql), Token("punctuation", ";", len(sql), len(sql), 0)]:
        if token.text == ";" and token.kind == "punctuation" and token.depth == 0:
            piece = sql[start : token.start].strip()
            start = token.end
            if piece:
                pieces.append(piece)
    return pieces


def splice(sql: str, changes: Sequence[tuple[int, int, str]]) -> str:
    """The text with each (start, end) span replaced."""
    parts: list[str] = []
    at = 0
    for start, end, new in sorted(changes):
        parts += [sql[at:start], new]
        at = end
    return "".join([*parts, sql[at:]])


def keep_signs(sql: str) -> str:
    """postgres_fdw writes a negative zero as (-0)::real, which Postgres reads as the integer 0; as a string it stays.

    No other constant comes as -0.
    """
    if "(-0)::" not in sql:
        return sql
    found = tokens(sql)
    shapes = zip(found, found[1:], found[2:], found[3:], strict=False)
    return splice(
        sql,
        [
            (minus.start, zero.end, "'-0'")
            for minus, zero, closed, cast in shapes
            if (minus.text, zero.text, closed.text, cast.kind) == ("-", "0", ")", "typecast")
        ],
    )


def without_literals(sql: str) -> tuple[str, Literals]:
    """The text with parameters in the place of its constants: the same for many."""
    parts, written, at = list[str](), list[str](), 0
    for match in _LITERAL.finditer(sql):
        if match[1] is not None:
            written.append(match[1])
            parts += (sql[at : match.start()], f"${len(written)}")
            at = match.end()
    found = Literals(text[1:-1].replace("''", "'") if text[0] == "'" else text for text in written)
    found.text, found.written = sql, tuple(written)
    return "".join([*parts, sql[at:]]), found


def quoted(text: str | None) -> str:
    """A value as a literal."""
    return "NULL" if text is None else "'" + text.replace("'", "''") + "'"


def identifier(name: str) -> str:
    """A name as Postgres reads it."""
    return '"' + name.replace('"', '""') + '"'


def values(found: Sequence[Token], parameters: Sequence[str | None]) -> list[tuple[int, int, str]]:
    """Changes that put values in the place of parameters. As strings without a type they mean the same."""
    changes = []
    for token in found:
        if token.kind == "parameter":
            at = int(token.text[1:]) - 1
            new = parameters.written[at] if isinstance(parameters, Literals) else quoted(parameters[at])
            changes.append((token.start, token.end, new))
    return changes


def clause(found: Sequence[Token], *words: str, after: int = 0) -> int | None:
    """Where a keyword stands outside all parentheses, as an index into the tokens."""
    for index in range(after, len(found)):
        if found[index].depth == 0 and found[index].word(*words):
            return index
    return None
