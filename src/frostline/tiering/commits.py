"""What operations have in common that commit to the lake and then give readers what they made: fold, trim, maintain.

A commit carries the operation's id, so that a later run finds it. Readers get it in one short transaction that keeps
cold writers out (the fence): each of them has read the registry's snapshot, and tries again when that has moved.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TypeVar

from frostline.catalog import queries
from frostline.catalog.database import Connection
from frostline.catalog.registry import Managed
from frostline.config import Settings
from frostline.errors import Interrupted, OperationError, UnknownOutcome
from frostline.faults import reached
from frostline.lake import catalog as lake
from frostline.lake import merging
from frostline.lake.merging import Merged
from frostline.model.bounds import Range, parse_bound
from frostline.tiering import turns
from frostline.tiering.archive import steps
from frostline.tiering.locks import Wanted, fence, from_settings, with_short_locks

Result = TypeVar("Result")


@dataclass
class Operation:
    """One operation on one table."""

    id: int
    managed: Managed
    locks: Wanted = field(default_factory=Wanted)


def begin(connection: Connection, settings: Settings, managed: Managed, kind: str) -> Operation:
    turns.take(connection, settings, managed)
    row = connection.execute(
        "INSERT INTO frostline.operations (table_id, kind, leaf, upper) VALUES (%s, %s, %s, %s) RETURNING id",
        (managed.id, kind, str(managed.table), managed.seam.text if managed.seam is not None else "MINVALUE"),
    ).fetchone()
    assert row is not None
    return Operation(row[0], managed, from_settings(settings))


def ours(connection: Connection, managed: Managed) -> set[str]:
    """The ids that commits of ours carry."""
    return {id_ for (id_,) in queries.rows(connection, "operations", table=managed.id)}


def noted(connection: Connection, managed: Managed) -> set[int]:
    """Iceberg snapshots that operations of ours have made below the last one of each."""
    return {snapshot for (snapshot,) in queries.rows(connection, "noted", table=managed.id)}


def note(connection: Connection, settings: Settings, operation: Operation) -> None:
    """Before an operation commits once more: a catalog without a history will have forgotten whose the last one was."""
    managed = operation.managed
    if (made := merging.on_the_way(settings, managed, operation.id)) is not None:
        connection.execute("UPDATE frostline.operations SET noted = noted || %s WHERE id = %s", ([made], operation.id))


def committed(connection: Connection, settings: Settings, operation: Operation) -> Merged | None:
    """What the operation has made on top of the registry's snapshot; None also with another engine's rows below it."""
    managed = operation.managed
    known = ours(connection, managed), noted(connection, managed)
    return merging.found(settings, managed, operation.id, *known, alone=True)


def unseen(id_: int, managed: Managed, kept: str) -> UnknownOutcome:
    """An operation has committed, and its commit is not found; `kept` is what was not changed for it."""
    return UnknownOutcome(
        f"the lake shows no commit of operation {id_} on {managed.table}; {kept}",
        hint=f"does another program write to {'.'.join(lake.identifier(managed))}? run the command again",
    )


def in_the_way(managed: Managed, kept: str) -> Interrupted:
    """Another engine's commits stand above the registry's snapshot, and only a fold takes them over."""
    return Interrupted(
        f"another program has committed to the Iceberg table of {managed.table}; {kept}",
        hint="run frostline fold, which takes that over, then the same command again",
    )


def periods(connection: Connection, managed: Managed) -> list[tuple[str, Range]]:
    """The foreign partitions, by the name of their upper bound."""
    return [
        (upper, Range(parse_bound(lower) if lower is not None else None, parse_bound(upper)))
        for _, _, lower, upper, *_ in queries.rows(connection, "periods", table=managed.id)
    ]


def show(
    connection: Connection,
    operation: Operation,
    made: Merged,
    also: Callable[[], Result],
    *,
    doing: str,
    instead: str,
    fenced: str | None = None,
) -> Result:
    """Give readers the new snapshot, and do what belongs to it in the same transaction.

    `instead` is what happened if somebody else has moved the snapshot, `fenced` the point reached behind the fence.
    """
    managed = operation.managed

    def work() -> Result:
        fence(connection, managed.id)
        if fenced is not None:
            reached(fenced)
        moved = connection.execute(
            "UPDATE frostline.tables SET snapshot_id = %s, metadata_location = %s WHERE id = %s AND snapshot_id = %s",
            (made.id, made.metadata_location, managed.id, managed.snapshot_id),
        )
        if moved.rowcount != 1:
            raise OperationError(f"the snapshot of {managed.table} was moved by someone else; {instead}")
        return also()

    locks = replace(steps.wanted(connection, operation, []), fence=managed.id)
    return with_short_locks(connection, work, f"{doing} {managed.table}", locks)
