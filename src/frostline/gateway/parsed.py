"""Parsed and translated statements, kept by their text without the source's name: forty periods are one statement."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from sqlglot import exp

from frostline.catalog.cold import ColdTable
from frostline.gateway import pruning
from frostline.gateway.names import Reference
from frostline.gateway.translate import Parameters, Translated, parse, translate
from frostline.lake.pruning import Condition

# A tree of a usual statement takes about 20 kB.
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


def parsed(text: str, reference: Reference) -> exp.Expression:
    """The tree of a statement over one source, to be read only; or Unknown."""
    plain = _plain(text, reference)
    return _kept_tree(plain) if len(plain) <= _LONGEST else parse(plain)


def planned(text: str, reference: Reference, table: ColdTable, parameters: Parameters) -> Plan:
    """The plan of a statement over one source; or Unknown."""
    plain = _plain(text, reference)
    if len(plain) > _LONGEST or any(value is not None and len(value) > _LONGEST for value in parameters):
        return _plan(parse(plain), table, parameters)
    return _kept_plan(plain, _Table(table), tuple(parameters))


def _plain(text: str, reference: Reference) -> str:
    return f'{text[: reference.start]}"a"."source"{text[reference.end :]}'


@lru_cache(maxsize=_KEPT)
def _kept_plan(plain: str, table: _Table, parameters: tuple[str | None, ...]) -> Plan:
    return _plan(_kept_tree(plain), table.table, parameters)


@lru_cache(maxsize=_KEPT)
def _kept_tree(plain: str) -> exp.Expression:
    return parse(plain)


def _plan(tree: exp.Expression, table: ColdTable, parameters: Parameters) -> Plan:
    return Plan(
        translate(tree, table, parameters),
        pruning.conditions(tree, table, parameters),
        _yields_nothing_from_nothing(tree),
    )


def _yields_nothing_from_nothing(tree: exp.Expression) -> bool:
    """Whether a SELECT over no rows has no rows: one with an aggregate may have one."""
    grouped = any(tree.args.get(name) for name in ("group", "having", "with_"))
    return isinstance(tree, exp.Select) and not grouped and all(map(_per_row, tree.expressions))


def _per_row(output: exp.Expression) -> bool:
    """Names and constants only: what looks like a function may be an aggregate."""
    while isinstance(output, exp.Paren | exp.Alias):
        output = output.this
    return isinstance(output, exp.Column | exp.Literal | exp.Null | exp.Boolean | exp.Star)
