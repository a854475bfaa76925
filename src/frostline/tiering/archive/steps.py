"""The record of an operation: a row per operation and a row per step, committed as they happen."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Protocol

from psycopg.types.json import Jsonb

from frostline.catalog.database import Connection
from frostline.catalog.registry import Managed
from frostline.faults import reached
from frostline.model.bounds import Range
from frostline.model.tables import Leaf
from frostline.tiering.digest import Digest
from frostline.tiering.locks import Wanted


@dataclass
class Step:
    """What a step did, filled in by it."""

    rows: int | None = None
    bytes: int | None = None


class Recorded(Protocol):
    """Whatever has a row of its own."""

    @property
    def id(self) -> int: ...

    @property
    def locks(self) -> Wanted: ...


@dataclass
class Operation:
    """One leaf on its way to the lake."""

    id: int
    managed: Managed
    leaf: Leaf
    range: Range  # of its foreign partition: from the seam, so that the cold tier has no gaps
    captured: list[object] | None = None  # the leaf's state when its changes began to be captured
    resumed: bool = False  # an earlier run has begun it
    locks: Wanted = field(default_factory=Wanted)  # how long it may keep others waiting, and goes on trying
    digest: Digest | None = None  # of what the lake holds, once it was compared

    @property
    def parked(self) -> str:
        """Where the leaf waits, detached, to be dropped."""
        return f"dropped_{self.id}"


def range_of(managed: Managed, leaf: Leaf) -> Range:
    """What the leaf's foreign partition will hold."""
    assert leaf.range is not None
    assert leaf.range.upper is not None
    return Range(managed.seam if managed.seam is not None else leaf.range.lower, leaf.range.upper)


def begin(connection: Connection, managed: Managed, leaf: Leaf) -> Operation:
    range_ = range_of(managed, leaf)
    assert range_.upper is not None
    reached("operation.begin")
    row = connection.execute(
        "INSERT INTO frostline.operations (table_id, kind, leaf, lower, upper)"
        " VALUES (%s, 'archive', %s, %s, %s) RETURNING id",
        (managed.id, str(leaf), range_.lower.text if range_.lower else None, range_.upper.text),
    ).fetchone()
    assert row is not None
    reached("operation.begun")
    return Operation(row[0], managed, leaf, range_)


def again(connection: Connection, operation: Recorded) -> None:
    """An operation whose run died goes on in this one."""
    connection.execute(
        "UPDATE frostline.operations SET state = 'running', error = NULL, finished_at = NULL, waiting_since = NULL,"
        " waits_for = NULL WHERE id = %s",
        (operation.id,),
    )


@contextmanager
def step(connection: Connection, operation: Recorded, number: int, name: str) -> Iterator[Step]:
    """Record a step's start, and its end or its error."""
    key = (operation.id, number)
    reached(f"{name}.begin")
    connection.execute(
        "INSERT INTO frostline.steps AS s (operation_id, number, name) VALUES (%s, %s, %s)"
        " ON CONFLICT (operation_id, number) DO UPDATE SET started_at = clock_timestamp(), finished_at = NULL,"
        " error = NULL, attempts = s.attempts + 1",
        (*key, name),
    )
    done = Step()
    try:
        reached(f"{name}.begun")
        yield done
        reached(f"{name}.end")
    except BaseException as error:
        # The connection itself may be what failed; the next run finds the step unfinished then.
        if not connection.closed and not connection.broken:
            reason = f"{name}: {error or type(error).__name__}"
            connection.execute(
                "UPDATE frostline.steps SET error = %s WHERE operation_id = %s AND number = %s", (reason, *key)
            )
            fail(connection, operation.id, reason)
        raise
    connection.execute(
        "UPDATE frostline.steps SET finished_at = clock_timestamp(), rows = %s, bytes = %s"
        " WHERE operation_id = %s AND number = %s",
        (done.rows, done.bytes, *key),
    )
    reached(f"{name}.ended")


def finish(connection: Connection, operation: Recorded) -> None:
    reached("operation.end")
    connection.execute(
        "UPDATE frostline.operations SET state = 'done', error = NULL, captured = NULL, waiting_since = NULL,"
        " waits_for = NULL, finished_at = clock_timestamp() WHERE id = %s",
        (operation.id,),
    )
    reached("operation.ended")


def fail(connection: Connection, id_: int, reason: str) -> None:
    connection.execute(
        "UPDATE frostline.operations SET state = 'failed', error = %s, waiting_since = NULL, waits_for = NULL,"
        " finished_at = clock_timestamp() WHERE id = %s",
        (reason, id_),
    )


def alarm(connection: Connection, id_: int, found: str) -> None:
    """Stays until the leaf is archived after all, see frostline.alarms."""
    connection.execute("UPDATE frostline.operations SET alarm = %s WHERE id = %s", (found, id_))


def wanted(
    connection: Connection, operation: Recorded, relations: Sequence[int] = (), *, written: Sequence[int] = ()
) -> Wanted:
    """Locks of an operation; whom it waits for stands in its row, for `frostline status`."""

    def tell(holders: list[dict[str, object]] | None) -> None:
        connection.execute(
            "UPDATE frostline.operations SET waits_for = %s,"
            " waiting_since = CASE WHEN %s THEN coalesce(waiting_since, clock_timestamp()) END WHERE id = %s",
            (Jsonb(holders) if holders is not None else None, holders is not None, operation.id),
        )

    return replace(operation.locks, relations=relations, written=written, tell=tell)
