"""Translated statements, kept: forty periods are one statement."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from frostline.catalog.cold import ColdTable
from frostline.gateway import pruning
from frostline.gateway.clauses import cut
from frostline.gateway.narrowed import key_conditions
from frostline.gateway.statements import LONGEST, Statement
from frostline.gateway.translate import Parameters, Translated, translate
from frostline.lake.pruning import Condition

_KEPT = 1000  # a usual one takes a few kB


@dataclass(frozen=True)
class Plan:
    """What a SELECT over one source means to DuckDB."""

    translated: Translated
    conditions: tuple[Condition, ...]
    keys: tuple[str, ...]


@dataclass(frozen=True, eq=False)
class _Table:
    """A table as a key: by identity, for a description is made anew only when it differs."""

    table: ColdTable

    def __hash__(self) -> int:
        return id(self.table)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Table) and other.table is self.table


def planned(statement: Statement, table: ColdTable, parameters: Parameters) -> Plan:
    """The plan of a SELECT over one source; or Unknown."""
    if not statement.short or any(value is not None and len(value) > LONGEST for value in parameters):
        return _plan(statement, _Table(table), parameters)
    return _kept_plan(statement, _Table(table), tuple(parameters))


def _plan(statement: Statement, found: _Table, parameters: Parameters) -> Plan:
    select = cut(statement.text, statement.tokens)
    return Plan(
        translate(select, found.table, parameters),
        pruning.conditions(select, found.table, parameters),
        key_conditions(select, found.table, parameters),
    )


_kept_plan = lru_cache(maxsize=_KEPT)(_plan)
