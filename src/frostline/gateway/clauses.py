"""A SELECT cut at its clauses' keywords.

What each contains is parsed when it is asked for, so that the known part of a WHERE is found next to a select list
that nobody here understands.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain

from frostline.errors import QueryError
from frostline.gateway import lexer
from frostline.gateway.expressions.parse import parse
from frostline.gateway.expressions.tree import Node, Operation, Unknown
from frostline.gateway.lexer import Token

# In the order they may come in; anything else outside parentheses is another shape.
CLAUSES = ("select", "from", "where", "group", "having", "order", "limit", "offset", "for")
_OTHER_SHAPES = ("union", "intersect", "except", "window", "fetch", "into")


@dataclass(frozen=True)
class Select:
    """The clauses of a SELECT, each without its keyword."""

    clauses: dict[str, Sequence[Token]]

    def get(self, name: str) -> Sequence[Token]:
        return self.clauses.get(name, ())

    def where(self) -> list[Node]:
        """The conjuncts; all of them must be true."""
        found = self.get("where")
        return list(_conjuncts(parse(found))) if found else []


def clauses(sql: str) -> Select:
    """The clauses of one SELECT, or Unknown."""
    try:
        tokens = lexer.tokens(sql)
    except QueryError:
        raise Unknown("the statement's text") from None
    starts: list[tuple[str, int]] = []
    for at, token in enumerate(tokens):
        if token.depth or token.kind != "word" or (token.text == "from" and tokens[at - 1].word("distinct")):
            continue
        if token.text in _OTHER_SHAPES:
            raise Unknown(token.text)
        if token.text in CLAUSES:
            starts.append((token.text, at))
    names = [name for name, _ in starts]
    if names != [name for name in CLAUSES if name in names] or names[:2] != ["select", "from"] or starts[0][1] != 0:
        raise Unknown("not a plain SELECT")
    ends = [at for _, at in starts[1:]] + [len(tokens)]
    return Select({name: tokens[at + 1 : end] for (name, at), end in zip(starts, ends, strict=True)})


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
