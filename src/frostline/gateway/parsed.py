"""Parsed statements, kept by their text without the source's name: a query over forty periods is parsed once."""

from __future__ import annotations

from functools import lru_cache

from sqlglot import exp

from frostline.gateway.names import Reference
from frostline.gateway.translate import parse

# A tree of a usual statement takes about 20 kB.
_KEPT = 1000
_LONGEST = 10_000  # a list of a hundred thousand values is not asked for twice


def parsed(text: str, reference: Reference) -> exp.Expression:
    """The tree of a statement over one source, to be read only; or Unknown."""
    plain = f'{text[: reference.start]}"a"."source"{text[reference.end :]}'
    return _parsed(plain) if len(plain) <= _LONGEST else parse(plain)


@lru_cache(maxsize=_KEPT)
def _parsed(text: str) -> exp.Expression:
    return parse(text)


def yields_nothing_from_nothing(tree: exp.Expression) -> bool:
    """Whether a SELECT over no rows has no rows: one with an aggregate may have one."""
    grouped = any(tree.args.get(name) for name in ("group", "having", "with_"))
    return isinstance(tree, exp.Select) and not grouped and all(map(_per_row, tree.expressions))


def _per_row(output: exp.Expression) -> bool:
    """Names and constants only: what looks like a function may be an aggregate."""
    while isinstance(output, exp.Paren | exp.Alias):
        output = output.this
    return isinstance(output, exp.Column | exp.Literal | exp.Null | exp.Boolean | exp.Star)
