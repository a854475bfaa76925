"""What earlier runs left: finished where the swap was made, continued where the capture is whole, undone elsewhere.

Whoever holds the table's lock knows that no other run is at work, so whatever is unfinished is left for good.
"""

from __future__ import annotations

from dataclasses import dataclass

import psycopg
from psycopg.sql import SQL, Composed, Identifier

from frostline.catalog import queries
from frostline.catalog.database import Connection
from frostline.catalog.registry import Managed
from frostline.config import Settings
from frostline.delta import tables as delta
from frostline.faults import reached
from frostline.model.bounds import Range, parse_bound
from frostline.model.tables import Leaf
from frostline.report import Report
from frostline.tiering import ddl, statistics, turns
from frostline.tiering.archive import capture, default, steps, swap
from frostline.tiering.archive.steps import Operation

_MOST_TRIES = 3  # then something is wrong with the copy, and a new one is made


@dataclass(frozen=True)
class Unfinished:
    """An operation whose run ended before it did."""

    id: int
    leaf: str
    lower: str | None
    upper: str
    state: str
    captured: list[object] | None
    snapshot_id: int | None
    step: str
    foreign_table: int | None
    parked: bool
    tries: int  # at a comparison that never came to its end

    def swapped(self, managed: Managed) -> bool:
        """The seam is behind it: only its own swap can have moved it there, for runs settle what they find first."""
        seam, upper = managed.seam, parse_bound(self.upper)
        return self.parked or (seam is not None and upper is not None and upper.order <= seam.order)

    @property
    def range(self) -> Range:
        return Range(parse_bound(self.lower) if self.lower is not None else None, parse_bound(self.upper))


def unfinished(connection: Connection, managed: Managed) -> list[Unfinished]:
    return [Unfinished(*row) for row in queries.rows(connection, "unfinished", table=managed.id)]


def settle(
    connection: Connection, settings: Settings, managed: Managed, leaf: Leaf | None, report: Report
) -> Operation | None:
    """Clear up; returns the operation that can go on with this leaf, the next one to be archived."""
    reached("recover.begin")
    resumed = None
    for left in unfinished(connection, managed):
        if left.swapped(managed):
            _finish(connection, settings, managed, left, report)
        elif (found := resumable(connection, managed, left, leaf)) is not None:
            resumed = found
            report.line(f"going on with {left.leaf}, which a run that ended at {left.step} had begun")
        else:
            _fail(connection, left)
            report.line(f"{left.leaf} starts anew: a run ended at {left.step}")
    _release_others(connection, managed, resumed)
    default.open_again(connection, managed)
    if resumed is None:
        capture.forget(connection, managed)
    reached("recover.rows")
    connection.execute(nobodys_rows(managed, resumed))
    reached("recover.end")
    return resumed


def captured_relations(connection: Connection, managed: Managed) -> list[tuple[int, str, str]]:
    functions = [delta.capture_name(managed.id), delta.no_truncate_name(managed.id)]
    return [(oid, s, n) for oid, s, n in queries.rows(connection, "captured_relations", functions=functions)]


def nobodys_rows(managed: Managed, resumed: Operation | None, verb: str = "DELETE") -> Composed:
    """Captured rows at or above the seam, but for those of a capture that goes on."""
    kept = SQL(" AND NOT ({})").format(ddl.within(managed.table, resumed.range)) if resumed is not None else SQL("")
    return SQL("{} FROM {} WHERE {}{}").format(SQL(verb), Identifier(*managed.delta), capture.hot(managed), kept)


def resumable(connection: Connection, managed: Managed, left: Unfinished, leaf: Leaf | None) -> Operation | None:
    """While the capture has missed nothing, the copy and the captured rows together are the leaf."""
    if leaf is None or left.captured is None or left.leaf != str(leaf) or left.tries >= _MOST_TRIES:
        return None
    range_ = steps.range_of(managed, leaf)
    if left.range != range_ or capture.state(connection, managed, leaf) != left.captured:
        return None
    return Operation(left.id, managed, leaf, range_, left.captured, resumed=True)


def _finish(connection: Connection, settings: Settings, managed: Managed, left: Unfinished, report: Report) -> None:
    """The lake is the truth already; what is left to do is to drop the leaf."""
    reached("recover.finish")
    name = queries.row(connection, "relation", oid=left.foreign_table) if left.foreign_table is not None else None
    schema, table = name if name is not None else (delta.SCHEMA, f"dropped_{left.id}")
    operation = Operation(left.id, managed, Leaf(0, schema, table, left.range), left.range)
    if left.parked:
        turns.make_up(connection, settings, managed)
        if name is not None:
            statistics.carry_over(connection, operation)
        try:
            swap.drop(connection, operation)
        except psycopg.errors.DependentObjectsStillExist:
            return  # something came to depend on it since; it is in nobody's way
        report.line(f"dropped {left.leaf}, which an earlier run had archived")
    steps.finish(connection, operation)


def _fail(connection: Connection, left: Unfinished) -> None:
    reason = f"the run ended at {left.step}; a later one began anew"
    connection.execute("UPDATE frostline.operations SET captured = NULL WHERE id = %s", (left.id,))
    if left.state == "running":
        steps.fail(connection, left.id, reason)
    reached("recover.failed")


def _release_others(connection: Connection, managed: Managed, resumed: Operation | None) -> None:
    """Triggers go by their function, so that a leaf renamed, moved or detached meanwhile is found too."""
    ranges = {leaf.oid: leaf.range for leaf in managed.table.leaves}
    for oid, _, _ in captured_relations(connection, managed):
        if resumed is None or oid != resumed.leaf.oid:
            capture.release(connection, managed, oid, ranges.get(oid))


def give_up(connection: Connection, operation: Operation) -> None:
    """The leaf stays hot: nothing of the capture is left. If the swap was made after all, all that is cold stays."""
    connection.execute("UPDATE frostline.operations SET captured = NULL WHERE id = %s", (operation.id,))
    capture.release(connection, operation.managed, operation.leaf.oid, operation.range)
    default.open_again(connection, operation.managed)
    capture.forget(connection, operation.managed)
