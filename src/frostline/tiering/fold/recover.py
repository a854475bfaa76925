"""What an earlier fold left: a commit to Iceberg is taken as it is, everything else is forgotten.

Whoever holds the table's lock knows that no other run is at work, so whatever is unfinished is left for good.
"""

from __future__ import annotations

from frostline.catalog import queries
from frostline.catalog.database import Connection
from frostline.catalog.registry import Managed
from frostline.config import Settings
from frostline.faults import reached
from frostline.lake.merging import Merged
from frostline.tiering import commits, turns
from frostline.tiering.archive import steps
from frostline.tiering.commits import Operation
from frostline.tiering.fold import merge
from frostline.tiering.locks import from_settings


def settle(connection: Connection, settings: Settings, managed: Managed) -> tuple[Operation, Merged] | None:
    """Clear up; returns the fold whose commit stands on the registry's snapshot, to be recorded."""
    found = None
    for id_, noted, snapshot_id in queries.rows(connection, "unfinished_folds", table=managed.id):
        operation = Operation(id_, managed, from_settings(settings))
        if not noted and snapshot_id is not None and snapshot_id == managed.snapshot_id:
            turns.make_up(connection, settings, managed)
            steps.finish(connection, operation)  # it had come to its end, and did not live to say so
            continue
        made = _committed(connection, settings, operation) if noted else None
        if made is not None:
            found = operation, made
        else:
            _forget(connection, operation)
    return found


def _committed(connection: Connection, settings: Settings, operation: Operation) -> Merged | None:
    # Rows of other engines below it were to be looked at when it died; the next fold does.
    made = commits.committed(connection, settings, operation)
    if made is None:
        return None
    reached("adopt.begin")
    return merge.recorded(connection, settings, operation.managed, operation.id, made)


def _forget(connection: Connection, operation: Operation) -> None:
    connection.execute("UPDATE frostline.operations SET folded = NULL WHERE id = %s", (operation.id,))
    steps.fail(connection, operation.id, "the run ended before its commit to the lake; a later one began anew")
