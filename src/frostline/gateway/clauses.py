"""A SELECT cut at its clauses' keywords.

What each contains is parsed when it is asked for, so that the known part of a WHERE is found next to a select list
that nobody here understands.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain

from frostline.errors import QueryError
from frostline.gateway import lexer
from frostline.gateway.expressions.parse import parse
from frostline.gateway.expressions.tree import Node, Operation, Unknown
from frostline.gateway.lexer import Token

# In the order they may come in; anything else outside parentheses is another shape.
CLAUSES = ("select", "from", "where", "group", "having", "order", "limit", "offset", "for")
_OTHER_SHAPES = ("union", "intersect", "except", "window", "fetch", "into")
_KEYWORDS = frozenset((*CLAUSES, *_OTHER_SHAPES))


@dataclass(frozen=True)
class Select:
    """The clauses of a SELECT, each without its keyword."""

    text: str
    clauses: dict[str, Sequence[Token]]

    def get(self, name: str) -> Sequence[Token]:
        return self.clauses.get(name, ())

    def where(self) -> list[Node]:
        """The conjuncts; all of them must be true. Or Unknown."""
        for found in self._parsed:
            if isinstance(found, Unknown):
                raise found
        return self.known_conjuncts()

    def known_conjuncts(self) -> list[Node]:
        """Those conjuncts that can be parsed."""
        return [found for found in self._parsed if isinstance(found, Node)]

    @cached_property
    def _parsed(self) -> list[Node | Unknown]:
        found: list[Node | Unknown] = []
        for tokens in self.parts():
            try:
                found += _conjuncts(parse(tokens))
            except Unknown as unknown:
                found.append(unknown)
            except RecursionError:
                found.append(Unknown("an expression nested too deeply"))
        return found

    def parts(self) -> list[Sequence[Token]]:
        """The WHERE clause cut at its outermost ANDs, where it is clear that nothing else is between them."""
        found = self.get("where")
        if any(token.depth == 0 and token.word("or", "between", "case") for token in found):
            return [found]
        cuts = [at for at, token in enumerate(found) if token.depth == 0 and token.word("and")]
        starts, ends = [0, *(at + 1 for at in cuts)], [*cuts, len(found)]
        return [found[start:end] for start, end in zip(starts, ends, strict=True) if end > start]

    def source(self) -> tuple[str | None, Sequence[Token]]:
        """The alias of the one plain table it reads, and what follows that; or Unknown."""
        tokens = self.get("from")
        # Unqualified it would be the name of a WITH query.
        if [token.kind for token in tokens[:3]] != ["quoted", "punctuation", "quoted"] or tokens[1].text != ".":
            raise Unknown("not one plain table")
        rest = tokens[3:]
        if not rest or rest[0].word("tablesample"):
            return None, rest
        if rest[0].kind not in ("word", "quoted") or (len(rest) > 1 and not rest[1].word("tablesample")):
            raise Unknown("more than one plain table")
        return rest[0].text, rest[1:]


def clauses(sql: str) -> Select:
    """The clauses of one SELECT, or Unknown."""
    try:
        return cut(sql, lexer.tokens(sql))
    except QueryError:
        raise Unknown("the statement's text") from None


def cut(sql: str, tokens: Sequence[Token]) -> Select:
    """The clauses of the SELECT whose tokens these are, or Unknown."""
    starts: list[tuple[str, int]] = []
    for at, token in enumerate(tokens):
        if token.text not in _KEYWORDS or token.depth or token.kind != "word":
            continue
        if token.text in _OTHER_SHAPES:
            raise Unknown(token.text)
        if token.text != "from" or not tokens[at - 1].word("distinct"):
            starts.append((token.text, at))
    names = [name for name, _ in starts]
    if names != [name for name in CLAUSES if name in names] or names[:2] != ["select", "from"] or starts[0][1] != 0:
        raise Unknown("not a plain SELECT")
    ends = [at for _, at in starts[1:]] + [len(tokens)]
    return Select(sql, {name: tokens[at + 1 : end] for (name, at), end in zip(starts, ends, strict=True)})


def split(tokens: Sequence[Token]) -> Iterator[Sequence[Token]]:
    """The parts between commas."""
    start = 0
    for at, token in enumerate(tokens):
        if token.text == "," and token.kind == "punctuation" and token.depth == 0:
            yield tokens[start:at]
            start = at + 1
    yield tokens[start:]


def _conjuncts(node: Node) -> Iterator[Node]:
    if isinstance(node, Operation) and node.name == "and":
        yield from chain.from_iterable(_conjuncts(operand) for operand in node.operands)
    else:
        yield node
