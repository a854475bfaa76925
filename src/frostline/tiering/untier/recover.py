"""What earlier runs left: finished where the leaf is attached, continued where it follows, dropped elsewhere.

Whoever holds the table's lock knows that no other run is at work, so whatever is unfinished is left for good.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from psycopg.sql import SQL, Identifier

from frostline.catalog import queries
from frostline.catalog.database import Connection
from frostline.catalog.registry import Managed
from frostline.errors import Interrupted
from frostline.faults import reached
from frostline.model.bounds import Range, parse_bound
from frostline.model.tables import Leaf
from frostline.report import Report
from frostline.tiering.archive import recover as archiving
from frostline.tiering.archive import steps
from frostline.tiering.locks import Wanted, lock, referents, with_short_locks
from frostline.tiering.untier import follow
from frostline.tiering.untier.operation import Operation, Period, fits, periods, schema_name

_TIDY_SECONDS = 3.0  # for a trigger that does nothing any more the periods after this one need not wait


@dataclass(frozen=True)
class Unfinished:
    """An operation whose run ended before it did, or that has left a trigger."""

    id: int
    period: str
    lower: str | None
    upper: str
    leaf: int | None
    leaf_schema: str | None
    leaf_name: str | None
    followed: bool
    current: bool  # the leaf is loaded, and the lake as it was then
    done: bool  # its rows are back; all that is left is the trigger, or its function

    @property
    def range(self) -> Range:
        return Range(parse_bound(self.lower) if self.lower is not None else None, parse_bound(self.upper))


def unfinished(connection: Connection, managed: Managed) -> list[Unfinished]:
    return [Unfinished(*row) for row in queries.rows(connection, "unfinished_untiers", table=managed.id)]


def settle(connection: Connection, managed: Managed, locks: Wanted, report: Report) -> list[Operation]:
    """Clear up; returns the operations that can go on, whose leaves wait."""
    going = []
    cold = periods(connection, managed)
    for left in unfinished(connection, managed):
        period = _same(left, cold)
        if left.done:
            _drop_trigger(connection, managed, left.id, locks)
        elif _attached(left, managed):
            _drop_trigger(connection, managed, left.id, locks)
            steps.finish(connection, Operation(left.id, managed, _gone(left), locks))
            report.line(f"{left.period} had come back in an earlier run")
        elif left.leaf is not None and not fits(connection, managed, left.leaf):
            abandon(connection, managed, left.id, locks, f"the table was altered after {left.period} was loaded")
        elif period is not None and left.leaf is not None and (left.followed or left.current):
            leaf = Leaf(left.leaf, schema_name(left.id), period.name, period.range)
            going.append(Operation(left.id, managed, period, locks, leaf))
        else:
            abandon(connection, managed, left.id, locks, f"the run ended before {left.period} was loaded")
    return going


def tidy(connection: Connection, managed: Managed, id_: int, locks: Wanted) -> None:
    """What nobody needs once the leaf is attached: the versions of rows that are hot, and the trigger on the delta."""
    connection.execute(archiving.nobodys_rows(managed, None))
    _drop_trigger(connection, managed, id_, locks)


def _drop_trigger(connection: Connection, managed: Managed, id_: int, locks: Wanted) -> None:
    """If a transaction that has read cold rows is still open, it is left to a later run: its function is empty."""

    def work() -> None:
        for statement in follow.end(managed, id_):
            connection.execute(statement)

    wanted = replace(_on_delta(managed, locks), patience=min(locks.patience, _TIDY_SECONDS))
    with suppress(Interrupted):
        with_short_locks(connection, work, f"tidying {managed.table}", wanted)


def abandon(connection: Connection, managed: Managed, id_: int, locks: Wanted, reason: str) -> None:
    """Nothing of the leaf stays; the rows are where they were."""
    reached("abandon.begin")
    row = queries.row(connection, "leaf_of_untier", schema=schema_name(id_))
    oids = [row[0]] if row is not None else []

    def work() -> None:
        # Who deletes from a referenced table comes to the leaf second, to look for rows there; so do we.
        lock(connection, [(name, "ACCESS EXCLUSIVE") for name, _ in referents(connection, oids)], locks.timeout_ms)
        for statement in follow.end(managed, id_):
            connection.execute(statement)
        connection.execute(SQL("DROP SCHEMA IF EXISTS {} CASCADE").format(Identifier(schema_name(id_))))

    with_short_locks(connection, work, f"dropping a leaf of {managed.table}", _on_delta(managed, locks))
    connection.execute("UPDATE frostline.operations SET loaded = NULL, overtook = NULL WHERE id = %s", (id_,))
    steps.fail(connection, id_, reason)
    reached("abandon.end")


def _on_delta(managed: Managed, locks: Wanted) -> Wanted:
    return Wanted([managed.delta_oid], timeout_ms=locks.timeout_ms, patience=locks.patience)


def _attached(left: Unfinished, managed: Managed) -> bool:
    """The seam is below it, and its leaf no longer waits: only its own attach can have done that."""
    lower, seam = left.range.lower, managed.seam
    return left.leaf is None and (seam is None or (lower is not None and seam <= lower))


def _same(left: Unfinished, cold: Sequence[Period]) -> Period | None:
    return next((p for p in cold if p.range == left.range and str(p) == left.period), None)


def _gone(left: Unfinished) -> Period:
    schema, _, name = left.period.partition(".")
    return Period(0, schema, name, left.range, 0, 0)
