"""Writes that reach cold rows: refused for now, before anything is changed; one that finds no row passes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from frostline.catalog.cold import ColdTable
from frostline.errors import QueryError
from frostline.gateway import lexer
from frostline.gateway.lexer import Token
from frostline.gateway.names import Source
from frostline.gateway.wire.messages import Field

_CLAUSES = ("set", "from", "using", "where", "returning")


@dataclass(frozen=True)
class Write:
    """An UPDATE or DELETE pushed whole: the SELECT that counts its rows, and what it would return."""

    verb: str
    count: str
    returning: tuple[Field, ...] | None


def pushed(text: str, tokens: Sequence[Token]) -> Write | None:
    """Take an UPDATE or DELETE apart; None when it names single rows by ctid, which only exist if rows do."""
    verb = tokens[0].text.upper()
    spans = _clauses(text, tokens)
    target = spans["update" if verb == "UPDATE" else "from"]
    others = spans.get("from") if verb == "UPDATE" else spans.get("using")
    where = spans.get("where", "")
    if any(token.word("ctid") for token in lexer.tokens(where)):
        return None
    sources = f"{target}, {others}" if others else target
    count = f"SELECT count(*) FROM {sources}" + (f" WHERE {where}" if where else "")
    return Write(verb, count, returned(text, tokens))


def _clauses(text: str, tokens: Sequence[Token]) -> dict[str, str]:
    """The text after each keyword that stands outside all parentheses."""
    words = ("update", *_CLAUSES) if tokens[0].word("update") else _CLAUSES
    marks = [token for token in tokens if token.depth == 0 and token.word(*words)]
    ends = [*(token.start for token in marks[1:]), len(text)]
    return {mark.text: text[mark.end : end].strip() for mark, end in zip(marks, ends, strict=True)}


def returned(text: str, tokens: Sequence[Token]) -> tuple[Field, ...] | None:
    """The columns of a RETURNING clause, None without one."""
    at = lexer.clause(tokens, "returning")
    return None if at is None else _outputs(text[tokens[at].end :])


def _outputs(returning: str) -> tuple[Field, ...]:
    commas = sum(token.text == "," and token.depth == 0 for token in lexer.tokens(returning))
    return tuple(Field(f"column{number + 1}") for number in range(commas + 1))


def refusal(table: ColdTable, source: Source, what: str) -> QueryError:
    """The one answer to a write that would change a cold row."""
    return QueryError(
        f"cold rows of {table} cannot be changed yet: {what} {_between(source)}",
        hint=f"nothing was changed; restrict the statement to rows from {table.seam} on",
        sqlstate="0A000",
    )


def _between(source: Source) -> str:
    if source.range.lower is None:
        return f"before {source.range.upper}"
    return f"between {source.range.lower} and {source.range.upper}"
