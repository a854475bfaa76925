"""Folding a table: versions -> merge -> record, each a recorded step.

The versions of cold rows that one snapshot of Postgres sees are merged into the Iceberg table, and then, in one short
transaction that keeps cold writers out, readers are given the new Iceberg snapshot and the versions are removed.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from functools import partial

from frostline.catalog import queries, registry
from frostline.catalog.database import Connection, connect
from frostline.catalog.registry import Managed
from frostline.config import Settings
from frostline.delta import fold as delta
from frostline.errors import RefusedError
from frostline.faults import reached
from frostline.lake import catalog as lake
from frostline.lake.merging import Merged, Others
from frostline.report import Report
from frostline.tiering import shape, staged, statistics
from frostline.tiering.archive import steps
from frostline.tiering.archive.run import Warm
from frostline.tiering.commits import Operation, begin
from frostline.tiering.fold import merge, record, recover
from frostline.tiering.locks import only_writer

# Rows, in the summary of a MERGE's snapshot.
_CHANGED = "spark.merge-into.num-target-rows-"


@dataclass(frozen=True)
class Folded:
    """What a fold did."""

    table: str
    versions: int
    updated: int
    deleted: int
    inserted: int
    files: int  # rewritten
    seconds: float


def fold(settings: Settings, text: str, report: Report, warm: Warm, *, always: bool = True) -> list[Folded]:
    """Fold a table whose delta has versions of cold rows; with `always` off, only when the settings say it is time.

    What an earlier run has committed to Iceberg and did not live to record is recorded first.
    """
    with connect(settings.dsn.get_secret_value(), application="frostline fold") as connection:
        managed = registry.get(connection, text)
        with only_writer(connection, managed) as locked:
            connection.execute("SELECT frostline.forget_references(%s)", (locked.id,))
            done = adopted(connection, settings, locked, report)
            current = registry.get(connection, text) if done else locked  # its snapshot has moved
            waiting = delta.waiting(connection, current)
            folds = waiting.versions > 0 and (always or due(connection, settings, current, waiting))
            if folds or always or staged.due(connection, settings, current):
                # A change of a row that was staged is merged into the file it is in.
                current = staged.add(connection, settings, current, report, partial(_examine, settings, current, warm))
            if folds:
                done.append(_one(connection, settings, current, report, warm))
            else:
                statistics.refresh(connection, current)  # of files that were added
            return done


def _examine(settings: Settings, managed: Managed, warm: Warm, others: Others, snapshot_id: int | None) -> None:
    merge.examine(warm.session(), settings, managed, others, snapshot_id)


def adopted(connection: Connection, settings: Settings, managed: Managed, report: Report) -> list[Folded]:
    """Record what an earlier run has committed to Iceberg; the caller holds the table's lock."""
    found = recover.settle(connection, settings, managed)
    if found is None:
        return []
    with report.step(f"fold {managed.table}, as far as an earlier run came") as progress:
        done = _record(connection, settings, *found, time.monotonic())
        progress.note = _note(done)
    return [done]


def due(connection: Connection, settings: Settings, managed: Managed, waiting: delta.Waiting) -> bool:
    """Whether the delta is large enough, or the last fold long enough ago."""
    ((age,),) = queries.rows(connection, "last_fold", table=managed.id)
    own, limits = managed.options, settings.fold
    return bool(
        waiting.versions >= (own.fold_rows or limits.rows)
        or waiting.bytes >= (own.fold_bytes or limits.bytes)
        or age >= (limits.age if own.fold_age is None else own.fold_age)
    )


def _one(connection: Connection, settings: Settings, managed: Managed, report: Report, warm: Warm) -> Folded:
    started = time.monotonic()
    lake.load(settings, managed)  # refused where it is somebody else's, before versions are noted
    managed = shape.followed(connection, settings, managed)
    _check(managed)
    with report.step(f"fold {managed.table}", total=3) as progress:
        reached("fold.begin")
        operation = begin(connection, settings, managed, "fold")
        reached("fold.begun")
        with merge.snapshot(connection, settings, operation) as versions:
            progress.advance()
            with steps.step(connection, operation, 2, "merge") as step:
                made = merge.merge(connection, settings, operation, versions, warm.session())
                step.rows, step.bytes = made.count("added-records"), made.count("added-files-size")
            progress.advance()
        done = _record(connection, settings, operation, made, started)
        progress.advance()
        progress.note = _note(done)
    return done


def _check(managed: Managed) -> None:
    columns = {column.name: column for column in managed.table.columns}
    # Registration refuses such a key; its type may have been altered since.
    odd = [name for name in managed.table.primary_key if not columns[name].exact_equality]
    if odd:
        raise RefusedError(
            f"{managed.table} cannot be folded: the lake cannot decide when values of {', '.join(odd)} are equal",
            hint="use a key of integers, text with an ordinary collation, uuid, dates, times, numeric(p,s) or an enum",
        )


def _record(connection: Connection, settings: Settings, operation: Operation, made: Merged, started: float) -> Folded:
    managed = operation.managed
    with steps.step(connection, operation, 3, "record") as step:
        step.rows = versions = record.record(connection, settings, operation, made)
    reached("fold.end")
    steps.finish(connection, operation)
    record.tidy(connection, managed)
    updated, deleted, inserted = (made.count(f"{_CHANGED}{what}") for what in ("updated", "deleted", "inserted"))
    files, seconds = made.count("deleted-data-files"), time.monotonic() - started
    return Folded(str(managed.table), versions, updated, deleted, inserted, files, seconds)


def _note(done: Folded) -> str:
    return f"{done.versions:,} versions, {done.files} files rewritten"
