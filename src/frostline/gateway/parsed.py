"""Translated statements, kept: forty periods are one statement."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, lru_cache, partial

from frostline.catalog.cold import ColdColumn, ColdTable
from frostline.gateway import points, pruning
from frostline.gateway.clauses import cut
from frostline.gateway.narrowed import key_conditions
from frostline.gateway.points import Point
from frostline.gateway.statements import LONGEST, Statement
from frostline.gateway.translate import Parameters, Translated, translate
from frostline.lake.pruning import Condition

_KEPT = 1000  # a usual one takes a few kB


@dataclass(frozen=True)
class Plan:
    """What a SELECT over one source means to DuckDB."""

    conditions: tuple[Condition, ...]
    keys: tuple[str, ...]
    point: Point | None  # it can perhaps do without DuckDB
    _translate: Callable[[], Translated]

    @cached_property
    def translated(self) -> Translated:
        """Or Unknown."""
        return self._translate()

    @property
    def columns(self) -> frozenset[ColdColumn]:
        """Those it reads."""
        return self.translated.columns if self.point is None else self.point.read


@dataclass(frozen=True, eq=False)
class _Table:
    """A table as a key: by identity, for a description is made anew only when it differs."""

    table: ColdTable

    def __hash__(self) -> int:
        return id(self.table)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Table) and other.table is self.table


def planned(statement: Statement, table: ColdTable, parameters: Parameters) -> Plan:
    """The plan of a SELECT over one source; or Unknown, perhaps when it is asked what that means to DuckDB."""
    if not statement.short or any(value is not None and len(value) > LONGEST for value in parameters):
        return _plan(statement, _Table(table), parameters)
    return _kept_plan(statement, _Table(table), tuple(parameters))


def _plan(statement: Statement, found: _Table, parameters: Parameters) -> Plan:
    select = cut(statement.text, statement.tokens)
    conditions = pruning.conditions(select, found.table, parameters)
    return Plan(
        conditions,
        key_conditions(select, found.table, parameters),
        points.asked(select, found.table, conditions),
        partial(translate, select, found.table, parameters),
    )


_kept_plan = lru_cache(maxsize=_KEPT)(_plan)
