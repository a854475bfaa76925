"""Files rewritten and readers moved to them: rewrite -> compare -> move, as a fold does, but no row may change.

The lake is rewritten by commits that carry the operation's id, on top of the snapshot Postgres reads. What they made is
compared with that snapshot, row by row in sums, before any reader sees it. Then one short transaction that keeps cold
writers out gives readers the new snapshot. Versions in the delta stay where they are and stand before the lake's rows,
in the old files as in the new ones: a row that was deleted meanwhile stays deleted.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from frostline.catalog.database import Connection
from frostline.catalog.registry import Managed
from frostline.config import Settings
from frostline.errors import OperationError
from frostline.faults import reached
from frostline.lake import durable, inspect, layout, merging, storage
from frostline.lake import files as lake
from frostline.lake.catalog import load as lake_table
from frostline.lake.condition import Crowded, Work
from frostline.lake.merging import Merged
from frostline.model.bounds import Range
from frostline.pipeline import compact
from frostline.tiering import commits, turns
from frostline.tiering.commits import Operation

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def rewrite(
    connection: Connection, settings: Settings, operation: Operation, work: Work, spark: SparkSession
) -> Merged | str:
    """Step 1: commits on top of the registry's snapshot, or why there are none."""
    managed = operation.managed
    ours = commits.ours(connection, managed)
    properties = layout.merge_properties(managed, managed.options.file_size or settings.lake.file_size)
    if merging.ready(settings, managed, ours, properties, commits.noted(connection, managed)).snapshots:
        return "another program's commits to the Iceberg table wait for the next fold"
    compact.rewrite(spark, settings, managed, operation.id, work, lambda: commits.note(connection, settings, operation))
    reached("rewrite.commit")
    made = committed(connection, settings, operation)
    if made is None and lake_table(settings, managed).metadata.current_snapshot_id == managed.snapshot_id:
        return "Iceberg found nothing that would be better for it"
    if made is None:
        raise commits.unseen(operation.id, managed, "readers go on as before")
    return made


def committed(connection: Connection, settings: Settings, operation: Operation) -> Merged | None:
    """What the operation has made on top of the registry's snapshot, on the disk and in its row."""
    made = commits.committed(connection, settings, operation)
    if made is None:
        return None
    durable.flush(settings, operation.managed, made.id)
    connection.execute(
        "UPDATE frostline.operations SET snapshot_id = %s, metadata_location = %s WHERE id = %s",
        (made.id, made.metadata_location, operation.id),
    )
    reached("rewrite.flushed")
    return made


def forget(connection: Connection, operation: Operation) -> None:
    """What it has made is not to be shown to anybody."""
    connection.execute(
        "UPDATE frostline.operations SET snapshot_id = NULL, metadata_location = NULL, noted = NULL WHERE id = %s",
        (operation.id,),
    )


def compare(connection: Connection, settings: Settings, operation: Operation, made: Merged, spark: SparkSession) -> int:
    """Step 2: the partitions whose files are others hold the rows they held; returns how many."""
    managed = operation.managed
    assert managed.snapshot_id is not None
    assert managed.metadata_location is not None
    before, after = _snapshots(settings, operation, made)
    kept = {file.path for file in before.files} & {file.path for file in after.files}
    # A file that stays may have lost or got deletes, so whole partitions are compared where there are any.
    deleted = before.deleted | after.deleted
    changed = [file for file in (*before.files, *after.files) if file.path not in kept or file.partition in deleted]
    if not changed:
        return 0
    ends = [inspect.ends(file, managed.field_ids[managed.table.key]) for file in changed]
    known = [Crowded(*found, 0, 0) for found in ends if found is not None]
    parts = _joined(known) if len(known) == len(ends) else []
    # A column that was added since the old snapshot has no values in either; one may have got a wider type.
    old, new = ({field.field_id: field for field in one.fields.values()} for one in (before, after))
    common = [(old[id_], new[id_]) for id_ in sorted(old.keys() & new.keys())]
    then = compact.sums(spark, settings, managed, (managed.metadata_location, managed.snapshot_id), common, parts)
    same = [(field, field) for _, field in common]
    now = compact.sums(spark, settings, managed, (made.metadata_location, made.id), same, parts)
    if then != now:
        forget(connection, operation)
        raise OperationError(
            f"the new files of {managed.table} do not hold the rows that were there; readers go on with the old ones",
            detail=f"{then[0]:,} rows and a sum of {then[1]} before, {now[0]:,} and {now[1]} after",
            hint="please report this; `frostline clean` removes the new files",
        )
    return then[0]


def move(connection: Connection, settings: Settings, operation: Operation, made: Merged) -> None:
    """Step 3: readers get the new snapshot. Rows and their hashes stay what they are; files and bytes do not."""
    managed = operation.managed
    _, after = _snapshots(settings, operation, made)
    sizes = [(upper, _size(managed, after, range_)) for upper, range_ in commits.periods(connection, managed)]

    def also() -> None:
        for upper, (files, size) in sizes:
            connection.execute(
                "UPDATE frostline.periods SET files = %s, bytes = %s WHERE table_id = %s AND upper = %s",
                (files, size, managed.id, upper),
            )
        reached("move.commit")

    with turns.shown(connection, settings, operation.managed):
        commits.show(
            connection, operation, made, also, doing="maintaining", instead="nothing was changed", fenced="move.fenced"
        )


def _snapshots(settings: Settings, operation: Operation, made: Merged) -> tuple[lake.Snapshot, lake.Snapshot]:
    managed, files = operation.managed, storage.of(settings)
    assert managed.metadata_location is not None
    assert managed.snapshot_id is not None
    return (
        lake.snapshot(files, managed.metadata_location, managed.snapshot_id),
        lake.snapshot(files, made.metadata_location, made.id),
    )


def _size(managed: Managed, snapshot: lake.Snapshot, range_: Range) -> tuple[int, int]:
    found = inspect.files_of(snapshot, managed.field_ids[managed.table.key], managed.table.key_type, range_)
    return len(found), sum(file.size for file in found)


def _joined(parts: Sequence[Crowded]) -> list[Crowded]:
    """Ranges that overlap as one: no row is to be counted twice, and the query stays short."""
    found: list[Crowded] = []
    for part in sorted(parts, key=lambda one: one.least):
        if found and part.least <= found[-1].greatest:
            found[-1] = Crowded(found[-1].least, max(found[-1].greatest, part.greatest), 0, 0)
        else:
            found.append(part)
    return found
