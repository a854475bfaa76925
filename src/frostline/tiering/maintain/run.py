"""Maintaining a table: files rewritten where there are too many, snapshots expired, leftovers removed."""

from __future__ import annotations

from dataclasses import dataclass

from frostline.catalog import pins, queries, registry
from frostline.catalog.database import Connection, connect
from frostline.catalog.registry import Managed
from frostline.config import Settings
from frostline.faults import reached
from frostline.lake import arrange, leftovers, merging
from frostline.lake import condition as lake
from frostline.lake.condition import Condition, Limits, Work
from frostline.lake.merging import Merged
from frostline.report import Report
from frostline.tiering import clean, shape, staged, turns
from frostline.tiering.archive import steps
from frostline.tiering.archive.run import Warm
from frostline.tiering.commits import Operation, begin
from frostline.tiering.fold.run import adopted
from frostline.tiering.locks import from_settings, only_writer
from frostline.tiering.maintain import rewrite


@dataclass(frozen=True)
class Maintained:
    """A table's files before and after; with `--dry-run` the same, and what would be done."""

    table: str
    before: Condition
    after: Condition
    notes: tuple[str, ...]

    @property
    def changed(self) -> bool:
        return bool(self.notes)


def maintain(
    settings: Settings, text: str, report: Report, warm: Warm, *, everything: bool = False
) -> Maintained | None:
    """Whatever the table's limits ask for, or every file; None when nothing of it is in the lake."""
    with connect(settings.dsn.get_secret_value(), application="frostline maintain") as connection:
        managed = registry.get(connection, text)
        with only_writer(connection, managed) as locked:
            if locked.snapshot_id is None:
                return None
            notes = _settled(connection, settings, locked, warm)
            if _follows(connection, settings, registry.get(connection, text)):
                # First what an earlier fold has committed, which was made for the columns of its time.
                adopted(connection, settings, registry.get(connection, text), report)
                shape.followed(connection, settings, registry.get(connection, text))
            managed = registry.get(connection, text)  # its snapshot may have moved
            before = lake.condition(settings, managed, limits(settings, managed))
            work = lake.work(before, limits(settings, managed), everything=everything)
            notes += _rewritten(connection, settings, managed, work, report, warm)
            managed = registry.get(connection, text)
            notes += _expired(connection, settings, managed, report)
            after = lake.condition(settings, managed, limits(settings, managed))
            return Maintained(str(managed.table), before, after, tuple(notes))


def _follows(connection: Connection, settings: Settings, managed: Managed) -> bool:
    """Whether the lake has to follow the table's columns or options first."""
    return shape.pending(connection, managed) or arrange.pending(settings, managed)


def look(settings: Settings, text: str, *, everything: bool = False) -> Maintained | None:
    """What `maintain` would do; nothing is changed."""
    with connect(settings.dsn.get_secret_value(), application="frostline maintain") as connection:
        managed = registry.get(connection, text)
        if managed.snapshot_id is None:
            return None
        now = lake.condition(settings, managed, limits(settings, managed))
        notes = _told(lake.work(now, limits(settings, managed), everything=everything), "would be")
        ids = {snapshot.id for snapshot in _outlived(connection, settings, managed)}
        if gone := ids - pins.live_snapshots(connection, managed.id):
            notes.append(f"{len(gone)} snapshots would be expired")
        age = settings.archive.orphan_age
        left = [one for one in clean.look(connection, settings, managed, age) if one.in_lake and not one.kept]
        if left:
            notes.append(f"{len(left)} leftovers would be removed")
        return Maintained(str(managed.table), now, now, tuple(notes))


def limits(settings: Settings, managed: Managed) -> Limits:
    own, general = managed.options, settings.maintenance
    size = (own.file_size or settings.lake.file_size) // 4  # as folds write them, see layout.merge_properties
    return Limits(own.compact_files or general.files, general.deleted_rows, general.manifests, max(size, 1))


def _settled(connection: Connection, settings: Settings, managed: Managed, warm: Warm) -> list[str]:
    """Commits of a run that died are compared and recorded as they are, or forgotten."""
    notes = []
    for id_, surely in queries.rows(connection, "unfinished_maintenance", table=managed.id):
        operation = Operation(id_, managed, from_settings(settings))
        # What failed half-way is put aside and begun anew; a catalog without a history has nothing to put it aside for.
        if not surely and merging.on_the_way(settings, managed, id_) is None:
            rewrite.forget(connection, operation)
            continue
        if _moved(connection, operation):
            turns.make_up(connection, settings, managed)
            steps.finish(connection, operation)  # it had come to its end, and did not live to say so
            continue
        made = rewrite.committed(connection, settings, operation)
        if made is None:
            rewrite.forget(connection, operation)
            steps.fail(connection, id_, "the run ended before its commit to the lake; a later one began anew")
            continue
        reached("maintain.adopt")
        _shown(connection, settings, operation, made, warm)
        steps.finish(connection, operation)
        managed = registry.get_by_id(connection, managed.id)
        notes.append("files that an earlier run rewrote are shown to readers")
    return notes


def _moved(connection: Connection, operation: Operation) -> bool:
    row = connection.execute(
        "SELECT snapshot_id IS NOT NULL AND snapshot_id = %s FROM frostline.operations WHERE id = %s",
        (operation.managed.snapshot_id, operation.id),
    ).fetchone()
    return row == (True,)


def _rewritten(
    connection: Connection, settings: Settings, managed: Managed, work: Work, report: Report, warm: Warm
) -> list[str]:
    if not work:
        return []
    reached("maintain.begin")
    operation = begin(connection, settings, managed, "maintain")
    reached("maintain.begun")
    with report.step(f"maintain {managed.table}", total=3) as progress:
        with steps.step(connection, operation, 1, "rewrite"):
            made = rewrite.rewrite(connection, settings, operation, work, warm.session())
        progress.advance()
        if isinstance(made, str):
            steps.finish(connection, operation)
            return [f"nothing was rewritten: {made}"]
        _shown(connection, settings, operation, made, warm)
        progress.advance(2)
        steps.finish(connection, operation)
    return _told(work, "were")


def _shown(connection: Connection, settings: Settings, operation: Operation, made: Merged, warm: Warm) -> None:
    with steps.step(connection, operation, 2, "compare") as step:
        step.rows = rewrite.compare(connection, settings, operation, made, warm.session())
    with steps.step(connection, operation, 3, "move"):
        rewrite.move(connection, settings, operation, made)


def _told(work: Work, were: str) -> list[str]:
    notes = [f"every file {'was' if were == 'were' else were} rewritten"] if work.everything else []
    if work.deleted:
        count = sum(part.deletes for part in work.deleted)
        notes.append(f"{len(work.deleted)} partitions with {count} files of deletes {were} rewritten")
    if work.small:
        count = sum(part.files for part in work.small)
        notes.append(f"small files of {len(work.small)} partitions ({count} files) {were} joined")
    if work.manifests:
        notes.append(f"manifests {were} rewritten")
    return notes


def _outlived(connection: Connection, settings: Settings, managed: Managed) -> list[leftovers.Abandoned]:
    own = managed.options.backup_window
    window = settings.maintenance.backup_window if own is None else own
    found = leftovers.outlived(settings, managed, dict(queries.rows(connection, "ages", table=managed.id)), window)
    # Who reads an old one may have read files beside it that were staged then, and came with a newer one.
    live = pins.live_snapshots(connection, managed.id)
    oldest = max((place for place, snapshot in enumerate(found) if snapshot.id in live), default=-1)
    return [
        snapshot
        for place, snapshot in enumerate(found)
        if place > oldest or not any(map(staged.is_named, snapshot.files))
    ]


def _expired(connection: Connection, settings: Settings, managed: Managed, report: Report) -> list[str]:
    """Snapshots that nobody reads and no restored Postgres can want, then files that nothing refers to."""
    notes = []
    turns.check(connection, settings, managed)
    if candidates := _outlived(connection, settings, managed):
        claimed = pins.claim_expired(connection, managed.id, [snapshot.id for snapshot in candidates])
        if claimed:
            with report.step(f"expire snapshots of {managed.table}"):
                expiring = [snapshot for snapshot in candidates if snapshot.id in claimed]
                gone = leftovers.expire(settings, managed, expiring, staged.paths(connection, managed))
            notes.append(f"{len(gone)} snapshots were expired")
    if clean.goes_on(connection, managed):
        return notes  # a Spark that outlived its run may still be writing for it
    age = settings.archive.orphan_age
    removed = [one for one in clean.in_lake(connection, settings, managed, age) if not one.kept]
    if removed:
        notes.append(f"{len(removed)} leftovers ({sum(one.bytes or 0 for one in removed) / 1e6:.1f} MB) were removed")
    return notes
