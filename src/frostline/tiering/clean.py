"""What dead runs left, found and removed; by `frostline clean`, and by the next archive run for its own table."""

from __future__ import annotations

from dataclasses import dataclass

from frostline.catalog import pins, queries
from frostline.catalog.database import Connection
from frostline.catalog.registry import Managed
from frostline.config import Settings
from frostline.faults import reached
from frostline.lake import leftovers
from frostline.report import Report
from frostline.tiering import commits, staged, turns
from frostline.tiering.archive import capture, default, plan, recover
from frostline.tiering.archive.steps import Operation
from frostline.tiering.locks import from_settings
from frostline.tiering.untier import recover as returning


@dataclass(frozen=True)
class Found:
    """One thing that was left, and what became of it."""

    what: str
    name: str
    note: str
    bytes: int | None = None
    kept: bool = False

    @property
    def in_lake(self) -> bool:
        return self.what in ("snapshot", "file")


def look(connection: Connection, settings: Settings, managed: Managed, older_than: float) -> list[Found]:
    """All that is left, without touching it."""
    resumed, found = _operations(connection, managed)
    going = resumed.leaf.oid if resumed is not None else None
    for oid, schema, name in recover.captured_relations(connection, managed):
        kept = oid == going
        note = "an operation that can go on captures here" if kept else "captures for nobody"
        found.append(Found("triggers", f"{schema}.{name}", note, kept=kept))
    for left in returning.unfinished(connection, managed):
        note = (
            "its rows are back, a trigger is left"
            if left.done
            else "ended before its rows were back; `frostline untier` may go on"
        )
        found.append(Found("untier", left.period, note))
    row = connection.execute(recover.nobodys_rows(managed, resumed, "SELECT count(*)")).fetchone()
    count = (row[0] if row is not None else 0) + (capture.noted(connection, managed) if resumed is None else 0)
    if count:
        found.append(Found("captured rows", ".".join(managed.delta), f"{count:,} rows of periods that are not cold"))
    for schema, name in default.closed(connection, managed):
        found.append(Found("CHECK", f"{schema}.{name}", "for a swap that was not made"))
    live = pins.live_snapshots(connection, managed.id)
    abandoned = leftovers.abandoned(settings, managed, commits.ours(connection, managed))
    found += [_snapshot(snapshot, kept=snapshot.id in live) for snapshot in abandoned]
    files = leftovers.orphans(settings, managed, _known(connection, managed), lambda: staged.paths(connection, managed))
    return found + [_file(file, kept=file.age < older_than or resumed is not None) for file in files]


def clean(
    connection: Connection, settings: Settings, managed: Managed, older_than: float, report: Report
) -> list[Found]:
    """Remove it. The caller holds the table's lock, so nobody is at work on it."""
    found = [one for one in look(connection, settings, managed, older_than) if not one.in_lake]
    locks = from_settings(settings)
    for left in returning.settle(connection, managed, locks, report):
        returning.abandon(connection, managed, left.id, locks, "given up by frostline clean")
    leaves = plan.expired(connection, managed, named=True)
    resumed = recover.settle(connection, settings, managed, leaves[0] if leaves else None, report)
    # Spark may have outlived the run that died, and still be writing what the operation goes on with.
    return found + ([] if resumed is not None else in_lake(connection, settings, managed, older_than))


def in_lake(connection: Connection, settings: Settings, managed: Managed, older_than: float) -> list[Found]:
    """Snapshots and files of operations that never came to their swap."""
    turns.check(connection, settings, managed)
    reached("clean.snapshots")
    candidates = leftovers.abandoned(settings, managed, commits.ours(connection, managed))
    claimed = pins.claim_expired(connection, managed.id, [snapshot.id for snapshot in candidates])
    reached("clean.claimed")
    gone = [snapshot for snapshot in candidates if snapshot.id in claimed]
    expired = leftovers.expire(settings, managed, gone, staged.paths(connection, managed)) if gone else []
    snapshots = [_snapshot(snapshot, kept=snapshot not in expired) for snapshot in candidates]
    reached("clean.files")
    files = leftovers.orphans(settings, managed, _known(connection, managed), lambda: staged.paths(connection, managed))
    removed = [file for file in files if file.age >= older_than]
    with staged.nobodys(connection, managed, removed) as removed:
        leftovers.remove(settings, managed, removed)
    reached("clean.removed")
    connection.execute(
        "UPDATE frostline.operations SET cleaned_at = clock_timestamp() WHERE table_id = %s AND state = 'failed'"
        " AND finished_at < clock_timestamp() - make_interval(secs => %s)",
        (managed.id, older_than),
    )
    return snapshots + [_file(file, kept=file not in removed) for file in files]


def goes_on(connection: Connection, managed: Managed) -> bool:
    """Whether the next archive run goes on with what an earlier one began."""
    return _operations(connection, managed)[0] is not None


def after_failures(connection: Connection, settings: Settings, managed: Managed, report: Report) -> None:
    """For a run that goes on with nothing: look into the lake, once what a failed operation left may be removed."""
    row = connection.execute(
        "SELECT EXISTS (SELECT FROM frostline.operations WHERE table_id = %s AND state = 'failed'"
        " AND cleaned_at IS NULL AND finished_at < clock_timestamp() - make_interval(secs => %s))",
        (managed.id, settings.archive.orphan_age),
    ).fetchone()
    if row != (True,):
        return
    found = [one for one in in_lake(connection, settings, managed, settings.archive.orphan_age) if not one.kept]
    if found:
        size = sum(one.bytes or 0 for one in found)
        report.line(f"removed {len(found)} leftovers of failed runs from the lake ({size / 1e6:.1f} MB)")


def _operations(connection: Connection, managed: Managed) -> tuple[Operation | None, list[Found]]:
    leaves = plan.expired(connection, managed, named=True)
    resumed, found = None, []
    for left in recover.unfinished(connection, managed):
        if left.swapped(managed):
            found.append(Found("detached leaf", left.leaf, "archived, not yet dropped"))
        elif leaves and (going := recover.resumable(connection, managed, left, leaves[0])) is not None:
            resumed = going
            note = f"ended at {left.step}; `frostline archive` goes on with it"
            found.append(Found("operation", left.leaf, note, kept=True))
        else:
            found.append(Found("operation", left.leaf, f"ended at {left.step}"))
    return resumed, found


def _known(connection: Connection, managed: Managed) -> set[str]:
    """Metadata files that the registry, an operation or a reader names."""
    return {path for (path,) in queries.rows(connection, "metadata_in_use", table=managed.id)}


def _snapshot(snapshot: leftovers.Abandoned, *, kept: bool) -> Found:
    note = f"of operation {snapshot.operation}, {len(snapshot.files)} files" + (", in use" if kept else "")
    return Found("snapshot", str(snapshot.id), note, kept=kept)


def _file(file: leftovers.File, *, kept: bool) -> Found:
    note = f"{file.age / 3600:.1f} h old" + (", may still be written" if kept else "")
    return Found("file", file.name, note, file.bytes, kept)
