"""The record of an operation: a row per operation and a row per step, committed as they happen."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from frostline.catalog.database import Connection
from frostline.catalog.registry import Managed
from frostline.model.bounds import Range
from frostline.model.tables import Leaf


@dataclass
class Step:
    """What a step did, filled in by it."""

    rows: int | None = None
    bytes: int | None = None


@dataclass
class Operation:
    """One leaf on its way to the lake."""

    id: int
    managed: Managed
    leaf: Leaf
    range: Range  # of its foreign partition: from the seam, so that the cold tier has no gaps
    captured: tuple[object, ...] | None = None  # the leaf's state when its changes began to be captured

    @property
    def parked(self) -> str:
        """Where the leaf waits, detached, to be dropped."""
        return f"dropped_{self.id}"


def begin(connection: Connection, managed: Managed, leaf: Leaf) -> Operation:
    assert leaf.range is not None
    assert leaf.range.upper is not None
    range_ = Range(managed.seam if managed.seam is not None else leaf.range.lower, leaf.range.upper)
    row = connection.execute(
        "INSERT INTO frostline.operations (table_id, kind, leaf, lower, upper)"
        " VALUES (%s, 'archive', %s, %s, %s) RETURNING id",
        (managed.id, str(leaf), range_.lower.text if range_.lower else None, leaf.range.upper.text),
    ).fetchone()
    assert row is not None
    return Operation(row[0], managed, leaf, range_)


@contextmanager
def step(connection: Connection, operation: Operation, number: int, name: str) -> Iterator[Step]:
    """Record a step's start, and its end or its error."""
    key = (operation.id, number)
    connection.execute("INSERT INTO frostline.steps (operation_id, number, name) VALUES (%s, %s, %s)", (*key, name))
    done = Step()
    try:
        yield done
    except BaseException as error:
        # The connection itself may be what failed; the next run finds the step unfinished then.
        if not connection.closed and not connection.broken:
            reason = f"{name}: {error or type(error).__name__}"
            connection.execute(
                "UPDATE frostline.steps SET error = %s WHERE operation_id = %s AND number = %s", (reason, *key)
            )
            connection.execute(
                "UPDATE frostline.operations SET state = 'failed', error = %s, finished_at = clock_timestamp()"
                " WHERE id = %s",
                (reason, operation.id),
            )
        raise
    connection.execute(
        "UPDATE frostline.steps SET finished_at = clock_timestamp(), rows = %s, bytes = %s"
        " WHERE operation_id = %s AND number = %s",
        (done.rows, done.bytes, *key),
    )


def finish(connection: Connection, operation: Operation) -> None:
    connection.execute(
        "UPDATE frostline.operations SET state = 'done', finished_at = clock_timestamp() WHERE id = %s", (operation.id,)
    )
