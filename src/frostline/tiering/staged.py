"""Files with new cold rows that were staged by writers become files of the Iceberg table, as they are.

One commit to the lake that adds them, then one short transaction in which readers get the new snapshot and the registry
forgets the files. Whoever changes rows of the lake by their keys does this first: it would not find these otherwise.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from frostline.catalog import queries, registry
from frostline.catalog.database import Connection
from frostline.catalog.names import FENCE
from frostline.catalog.registry import Managed
from frostline.config import Settings
from frostline.errors import LakeError
from frostline.faults import reached
from frostline.lake import catalog as lake
from frostline.lake import durable, files, leftovers, merging, staged, storage
from frostline.lake.layout import OPERATION
from frostline.lake.merging import Merged, Others
from frostline.report import Report
from frostline.tiering import commits, turns
from frostline.tiering.archive import steps
from frostline.tiering.commits import Operation
from frostline.tiering.fold import record
from frostline.tiering.locks import from_settings

# What other engines have added holds no key twice, in the snapshot that is given, or the head.
Examine = Callable[[Others, int | None], None]


@dataclass(frozen=True)
class Waiting:
    """What waits to be added."""

    files: int
    rows: int
    bytes: int
    age: float  # seconds, of the oldest


def waiting(connection: Connection, managed: Managed) -> Waiting:
    row = connection.execute(
        "SELECT count(*), coalesce(sum(rows), 0)::bigint, coalesce(sum(bytes), 0)::bigint,"
        " coalesce(extract(epoch FROM clock_timestamp() - min(staged_at)), 0)::float8"
        " FROM frostline.staged_files WHERE table_id = %s",
        (managed.id,),
    ).fetchone()
    assert row is not None
    return Waiting(*row)


def due(connection: Connection, settings: Settings, managed: Managed) -> bool:
    """Whether there are enough of them, or they are old enough; the limits are those of changes in the delta."""
    now, own, limits = waiting(connection, managed), managed.options, settings.fold
    return now.files > 0 and bool(
        now.bytes >= (own.fold_bytes or limits.bytes)
        or now.age >= (limits.age if own.fold_age is None else own.fold_age)
    )


def paths(connection: Connection, managed: Managed) -> set[str]:
    """Files that are read though no snapshot has them."""
    rows = connection.execute("SELECT path FROM frostline.staged_files WHERE table_id = %s", (managed.id,))
    return {path for (path,) in rows}


def is_named(name: str) -> bool:
    """Whether a file may be one that a writer has staged, by its name below the table's directory."""
    return _name(name).startswith(f"{staged.PREFIX}-")


@contextmanager
def nobodys(
    connection: Connection, managed: Managed, found: Sequence[leftovers.File]
) -> Iterator[list[leftovers.File]]:
    """Those of these files that no transaction has stored: it may have done so since they were found, or be about to.

    One that was written and is not stored yet is missed by its writer when it is gone, and nothing is lost.
    """
    with connection.transaction():
        row = connection.execute("SELECT pg_try_advisory_xact_lock_shared(%s, %s)", (FENCE, managed.id)).fetchone()
        known = {_name(path) for path in paths(connection, managed)}
        alone = row == (True,)  # as long as this lasts
        yield [file for file in found if not is_named(file.name) or (alone and _name(file.name) not in known)]


def _name(path: str) -> str:
    return path.rpartition("/")[2]


def add(
    connection: Connection, settings: Settings, managed: Managed, report: Report, examine: Examine | None = None
) -> Managed:
    """Add what is staged to the lake; returns the table as it is then. The caller holds its lock.

    What an earlier run has committed and did not live to record is recorded first.
    """
    managed = _settled(connection, settings, managed)
    while (current := _one(connection, settings, managed, report, examine)) is not None:
        managed = current
    return managed


def _one(
    connection: Connection, settings: Settings, managed: Managed, report: Report, examine: Examine | None
) -> Managed | None:
    """Files of one partition spec: how the table is cut may have been changed since. None: there is nothing to add."""
    # Before the operation's row is committed, which flushes what was staged with `synchronous_commit = off`.
    found = [
        staged.of_entry(entry)
        for (entry,) in connection.execute(
            "SELECT entry FROM frostline.staged_files WHERE table_id = %s ORDER BY id", (managed.id,)
        )
    ]
    found = [file for file in found if file.spec_id == found[0].spec_id]
    if not found:
        return None
    lake.load(settings, managed)  # refused where it is somebody else's
    with report.step(f"add what was staged of {managed.table} to the lake") as progress:
        reached("append.begin")
        operation = commits.begin(connection, settings, managed, "append")
        reached("append.begun")
        ours, noted = commits.ours(connection, managed), commits.noted(connection, managed)
        others = merging.ready(settings, managed, ours, {}, noted)
        if others.snapshots and examine is None:
            raise commits.in_the_way(managed, "nothing was changed")
        lake.add(settings, managed, found, {OPERATION: str(operation.id)})
        reached("append.commit")
        made = merging.found(settings, managed, operation.id, ours, noted)
        if made is None:
            raise commits.unseen(operation.id, managed, "readers go on as they did")
        if made.others.snapshots:
            assert examine is not None
            try:
                examine(made.others, made.id)
            except LakeError:
                merging.ready(settings, managed, ours, {}, noted)  # what they repair must not stand on ours
                raise
        _record(connection, settings, operation, made)
        progress.note = f"{sum(file.written.rows for file in found):,} rows in {len(found)} files"
    return registry.get_by_id(connection, managed.id)


def add_owned(connection: Connection, settings: Settings, managed: Managed, report: Report) -> Managed:
    """The same where the lake is ours; a copy of a database goes on reading the files where they are."""
    return add(connection, settings, managed, report) if lake.owned(settings, managed) else managed


def _settled(connection: Connection, settings: Settings, managed: Managed) -> Managed:
    for id_, snapshot_id in queries.rows(connection, "unfinished_appends", table=managed.id):
        operation = Operation(id_, managed, from_settings(settings))
        if snapshot_id is not None and snapshot_id == managed.snapshot_id:
            turns.make_up(connection, settings, managed)
            steps.finish(connection, operation)  # it had come to its end, and did not live to say so
            continue
        # With rows of another engine below it nobody has looked at them yet: it is begun anew.
        made = commits.committed(connection, settings, operation)
        if made is None:
            steps.fail(connection, id_, "the run ended before its commit to the lake; a later one began anew")
            reached("append.anew")
        else:
            reached("append.adopt")
            _record(connection, settings, operation, made)
            managed = registry.get_by_id(connection, managed.id)
    return managed


def _record(connection: Connection, settings: Settings, operation: Operation, made: Merged) -> None:
    """Cold writers are kept out, as when a fold moves the snapshot; who has read the old one tries again."""
    managed = operation.managed
    reached("append.flush")
    durable.flush(settings, managed, made.id)
    connection.execute(
        "UPDATE frostline.operations SET snapshot_id = %s, metadata_location = %s, rows = %s, bytes = %s WHERE id = %s",
        (made.id, made.metadata_location, made.count("added-records"), made.count("added-files-size"), operation.id),
    )
    reached("append.recorded")
    periods = list(record.changed(connection, settings, operation, made))
    added = [file.path for file in files.snapshot(storage.of(settings), made.metadata_location, made.id).files]

    def also() -> None:
        connection.execute(
            "DELETE FROM frostline.staged_files WHERE table_id = %s AND path = ANY (%s)", (managed.id, added)
        )
        record.update(connection, managed, periods)
        # A row that was staged while its period came back, or was let go, is nobody's.
        connection.execute(
            "UPDATE frostline.tables SET surplus = surplus OR retained_from IS NOT NULL WHERE id = %s", (managed.id,)
        )
        reached("append.show")

    with turns.shown(connection, settings, operation.managed):
        commits.show(connection, operation, made, also, doing="adding to", instead="readers go on as before")
    reached("append.shown")
    steps.finish(connection, operation)
