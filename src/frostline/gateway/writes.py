"""INSERT, UPDATE and DELETE as postgres_fdw writes them, taken apart."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache

from frostline.errors import QueryError
from frostline.gateway import lexer
from frostline.gateway.clauses import Select, split
from frostline.gateway.lexer import Literals, Token
from frostline.gateway.names import Reference, references
from frostline.gateway.wire.messages import Field

_LONGEST = 2000  # characters of a statement that is worth keeping
_CLAUSES = ("set", "from", "using", "where", "returning")


@dataclass(frozen=True)
class Modify:
    """An UPDATE or DELETE: the spans of its text that matter."""

    text: str
    verb: str
    target: Reference
    alias: str | None
    others: tuple[Reference, ...]  # it reads
    assignments: tuple[tuple[str, int, int], ...]  # columns, and where the expressions are
    where: tuple[int, int] | None  # the condition, without its keyword
    end: int  # of all but RETURNING
    returning: tuple[str, ...] | None
    by_ctid: bool  # it names one row that an earlier SELECT returned, by the first parameter
    tokens: Sequence[Token]
    plans: dict[int, object] = field(default_factory=dict, compare=False, repr=False)  # by table, of whoever wants one

    @cached_property
    def given(self) -> tuple[tuple[str, int], ...] | None:
        """Columns that are set to parameters, and to which; None: something else is set. DEFAULT is computed later."""
        texts = [(name, self.text[start:end].strip()) for name, start, end in self.assignments]
        set_ = [(name, text) for name, text in texts if text != "DEFAULT"]
        plain = all(text[0] == "$" and text[1:].isdecimal() for _, text in set_)
        return tuple((name, int(text[1:]) - 1) for name, text in set_) if plain else None

    @property
    def select(self) -> str:
        """A SELECT of the rows concerned, when the target is all it reads."""
        named = f" {self.alias}" if self.alias is not None else ""
        condition = "" if self.where is None else f" WHERE {self.text[slice(*self.where)]}"
        return f"SELECT * FROM {self.text[self.target.start : self.target.end]}{named}{condition}"

    @cached_property
    def clauses(self) -> Select:
        """The same, taken apart."""
        named = [t for t in self.tokens if self.target.start <= t.start and not t.word(*_CLAUSES)]
        read = named[: 3 if self.alias is None else 4]
        start, end = self.where or (0, 0)
        condition = [t for t in self.tokens if start <= t.start < min(end, self.end)]
        return Select(self.text, {"from": read, "where": condition})


@dataclass(frozen=True)
class Insert:
    """An INSERT of rows of parameters; a column without one is computed by whoever stores the row."""

    target: Reference
    columns: tuple[str, ...]
    parameters: tuple[int | None, ...]  # of the first row, by column: 0 is the first
    skips_duplicates: bool
    returning: tuple[str, ...] | None

    @property
    def width(self) -> int:
        """Parameters of one row."""
        return sum(place is not None for place in self.parameters)


def modify(text: str, tokens: Sequence[Token]) -> Modify:
    verb = tokens[0].text.upper()
    found = references(tokens)
    if not found:
        raise _not_ours()
    target = found[0]
    marks = [token for token in tokens[2:] if token.depth == 0 and token.word(*_CLAUSES)]
    # SET is no reserved word: a column may be called so, and postgres_fdw does not quote it.
    marks = [mark for at, mark in enumerate(marks) if mark.text != "set" or (verb == "UPDATE" and at == 0)]
    ends = [*(token.start for token in marks), len(text)][1:]
    spans = {mark.text: (mark.end, end) for mark, end in zip(marks, ends, strict=True)}
    where = spans.get("where")
    return Modify(
        text,
        verb,
        target,
        _alias(tokens, target),
        tuple(found[1:]),
        _assignments([token for token in tokens if "set" in spans and _inside(token, spans["set"])]),
        where,
        spans["returning"][0] - len("returning") if "returning" in spans else len(text),
        returned(text, tokens),
        where is not None and text[slice(*where)].strip() == "ctid = $1",
        tokens,
    )


def modify_again(text: str) -> tuple[Modify, Literals] | None:
    """One that differs from others in its constants only, and these; None: it has to be looked at by itself."""
    if len(text) > _LONGEST or "\\" in text or "ctid" in text or "(-0)" in text or "$" in text:
        return None
    common, literals = lexer.without_literals(text)
    found = _without_literals(common, len(literals))
    return None if found is None else (found, literals)


@lru_cache(maxsize=1000)
def _without_literals(text: str, count: int) -> Modify | None:
    """None, too, where a parameter would be read as a part of something else: then a constant would be as well."""
    try:
        tokens = lexer.tokens(text)
    except QueryError:
        return None
    placed = [token.text for token in tokens if token.kind == "parameter"]
    if placed != [f"${number}" for number in range(1, count + 1)] or not references(tokens):
        return None
    found = modify(text, tokens)
    return None if found.others or found.returning is not None else found


def as_written(statement: Modify, parameters: Sequence[str | None]) -> tuple[Select, Sequence[str | None]]:
    """The clauses with constants in them, for whoever wants to know more than their values."""
    if not isinstance(parameters, Literals):
        return statement.clauses, parameters
    return modify(parameters.text, lexer.tokens(parameters.text)).clauses, ()


@lru_cache(maxsize=64)
def modify_row(text: str) -> Modify:
    """One that names a row: it comes again for every row of a join."""
    return modify(text, lexer.tokens(text))


def _inside(token: Token, span: tuple[int, int]) -> bool:
    return span[0] <= token.start < span[1]


def _alias(tokens: Sequence[Token], target: Reference) -> str | None:
    following = next((token for token in tokens if token.start >= target.end), None)
    if following is None or following.kind != "word" or following.word(*_CLAUSES):
        return None
    return following.text


def _assignments(tokens: Sequence[Token]) -> tuple[tuple[str, int, int], ...]:
    return tuple((part[0].text, part[1].end, part[-1].end) for part in split(tokens) if part)


@lru_cache(maxsize=64)
def insert(text: str) -> Insert:
    """The same statement comes again and again, with one row or with a thousand."""
    tokens = lexer.tokens(text)
    found = references(tokens)
    if not found:
        raise _not_ours()
    values = lexer.clause(tokens, "values")
    lists = _parentheses(tokens)
    if values is None or len(lists) < 2 or len(lists[0]) != len(lists[1]):
        raise QueryError("the gateway does not know this form of INSERT", sqlstate="0A000")
    places = tuple(int(token.text[1:]) - 1 if token.kind == "parameter" else None for token in lists[1])
    # Nor is CONFLICT; ON is.
    skips = lexer.clause(tokens, "on") is not None
    return Insert(found[0], tuple(token.text for token in lists[0]), places, skips, returned(text, tokens))


def _parentheses(tokens: Sequence[Token]) -> list[list[Token]]:
    """What stands in each outermost pair of parentheses."""
    found: list[list[Token]] = []
    for token in tokens:
        if token.depth == 0 and token.text == "(" and token.kind == "punctuation":
            found.append([])
        elif token.depth == 1 and found and (token.text != "," or token.kind != "punctuation"):
            found[-1].append(token)
    return found


def returned(text: str, tokens: Sequence[Token]) -> tuple[str, ...] | None:
    """The items of a RETURNING clause, None without one."""
    at = lexer.clause(tokens, "returning")
    if at is None:
        return None
    return tuple(text[part[0].start : part[-1].end] for part in split(tokens[at + 1 :]) if part)


def reads_to_write(tokens: Sequence[Token]) -> bool:
    """Whether a SELECT begins an UPDATE or DELETE row by row, or could: a user's FOR UPDATE may ask for ctid too."""
    at = lexer.clause(tokens, "for")
    return at is not None and tokens[at + 1].word("update") and any(token.word("ctid") for token in tokens[:at])


def locks(tokens: Sequence[Token]) -> bool:
    """Whether a SELECT is FOR UPDATE or FOR SHARE: a user's own, or what an UPDATE or DELETE row by row begins with."""
    return lexer.clause(tokens, "for") is not None


def fields(items: Sequence[str]) -> tuple[Field, ...]:
    """A description for whoever reads the values by their place."""
    return tuple(Field(f"column{number}") for number in range(1, len(items) + 1))


@lru_cache(maxsize=64)
def _described(text: str) -> tuple[Field, ...] | None:
    return described(returned(text, lexer.tokens(text)))


def description(text: str) -> tuple[Field, ...] | None:
    """The columns that an UPDATE or DELETE returns; the one that takes what is held comes again and again."""
    return _described(text) if len(text) <= _LONGEST else described(returned(text, lexer.tokens(text)))


def described(returning: Sequence[str] | None) -> tuple[Field, ...] | None:
    """The columns a write returns."""
    return None if returning is None else fields(returning)


def _not_ours() -> QueryError:
    return QueryError("the gateway only answers about cold tables", sqlstate="0A000")
