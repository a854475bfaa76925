"""The record of a period that comes back, and the periods that can."""

from __future__ import annotations

from dataclasses import dataclass, field

from frostline.catalog import describe, queries, registry
from frostline.catalog.database import Connection
from frostline.catalog.names import LOWER_CHECK, UPPER_CHECK
from frostline.catalog.registry import Managed
from frostline.delta.follow import recorded
from frostline.errors import OperationError
from frostline.faults import reached
from frostline.model.bounds import Range, parse_bound
from frostline.model.tables import Leaf
from frostline.tiering.locks import Wanted


@dataclass(frozen=True)
class Period:
    """A foreign partition as the registry has it."""

    oid: int
    schema: str
    name: str
    range: Range
    # It is the same period when a fold has changed its rows.
    rows: int = field(compare=False)
    bytes: int = field(compare=False)

    def __str__(self) -> str:
        return f"{self.schema}.{self.name}"


@dataclass
class Operation:
    """One period on its way back."""

    id: int
    managed: Managed
    period: Period
    locks: Wanted = field(default_factory=Wanted)
    leaf: Leaf | None = None  # made, not yet in its place

    @property
    def schema(self) -> str:
        """Where the leaf waits: under its own name, so that its indexes get the names they will keep."""
        return schema_name(self.id)

    @property
    def pattern(self) -> str:
        """What the leaf is made like, beside it."""
        return "!pattern" if self.period.name != "!pattern" else "!"

    @property
    def trigger(self) -> str:
        return trigger_name(self.id)

    @property
    def function(self) -> str:
        return function_name(self.id)


def schema_name(id_: int) -> str:
    return f"frostline_untier_{id_}"


def trigger_name(id_: int) -> str:
    return f"!frostline follow {id_}"


def function_name(id_: int) -> str:
    return f"follow_{id_}"


def periods(connection: Connection, managed: Managed) -> list[Period]:
    """Every foreign partition, the newest first: in this order they can come back."""
    found = [
        Period(oid, schema, name, Range(None if lower is None else parse_bound(lower), parse_bound(upper)), rows, size)
        for oid, schema, name, lower, upper, rows, size in queries.rows(connection, "cold_periods", table=managed.id)
    ]
    return sorted(found, key=lambda period: period.range.upper.order if period.range.upper else 0, reverse=True)


def begin(connection: Connection, managed: Managed, period: Period, locks: Wanted) -> Operation:
    assert period.range.upper is not None
    reached("untier.begin")
    row = connection.execute(
        "INSERT INTO frostline.operations (table_id, kind, leaf, lower, upper)"
        " VALUES (%s, 'untier', %s, %s, %s) RETURNING id",
        (managed.id, str(period), period.range.lower.text if period.range.lower else None, period.range.upper.text),
    ).fetchone()
    assert row is not None
    reached("untier.begun")
    return Operation(row[0], managed, period, locks)


def check_columns(connection: Connection, before: Managed, period: Period) -> None:
    """By number: a column of the same name and type may be another one, and the leaf has values of before."""
    now = registry.get_by_id(connection, before.id)
    known = [[(c.number, c.name, c.type, c.generated) for c in one.table.columns] for one in (before, now)]
    found = recorded(connection, before.id)  # also of columns that are gone, which nobody computes
    computed = any(found[c.number].computed is not None for c in before.table.stored if c.number in found)
    if known[0] != known[1] or computed:
        raise altered(before, period)


def fits(connection: Connection, managed: Managed, leaf: int) -> bool:
    """Whether a leaf has the columns that the table has, computes what it computes, and forbids no more."""
    found = describe.columns(connection, leaf)
    own = [LOWER_CHECK, UPPER_CHECK]
    row = queries.row(connection, "otherwise", leaf=leaf, table=managed.table.oid, hot=managed.hot_oid, own=own)
    return row == (False,) and {(c.name, c.type, c.generated) for c in found} == {
        (c.name, c.type, c.generated) for c in managed.table.columns
    }


def altered(managed: Managed, period: Period) -> OperationError:
    return OperationError(
        f"{managed.table} or {period} was altered, or many rows were added, meanwhile; the rows stay in the lake",
        hint="run the same command again",
    )
