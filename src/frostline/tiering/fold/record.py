"""Step 3, record: readers get the new Iceberg snapshot, and the versions it holds leave the delta, in one transaction.

It keeps cold writers out (the fence): each of them has read the registry's snapshot and versions of the delta, and must
not commit a change of a version that is gone. Whoever comes after it finds another snapshot and tries again.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import psycopg
from psycopg.sql import SQL, Identifier

from frostline.catalog.database import Connection, connect
from frostline.catalog.registry import Managed
from frostline.config import Settings
from frostline.delta import fold as delta
from frostline.errors import Interrupted
from frostline.faults import reached
from frostline.lake import files as lake
from frostline.lake import inspect, storage
from frostline.lake.merging import Merged
from frostline.model.bounds import Range
from frostline.tiering import commits, retention, statistics, turns
from frostline.tiering.commits import Operation
from frostline.tiering.digest import exported_snapshot, foreign_table

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Period:
    """A foreign partition, and what the lake holds of it now."""

    upper: str
    range: Range
    rows: int
    bytes: int
    files: int
    changed: int  # rows, at least: as many keys as were folded


def record(connection: Connection, settings: Settings, operation: Operation, made: Merged) -> int:
    """Returns how many versions were removed."""
    managed = operation.managed
    periods = list(changed(connection, settings, operation, made))
    reached("record.counted")

    def also() -> int:
        removed = delta.remove(connection, managed, operation.id)
        update(connection, managed, periods)
        reached("record.commit")
        return removed

    with turns.shown(connection, settings, operation.managed):
        return commits.show(
            connection, operation, made, also, doing="folding", instead="nothing was folded", fenced="record.fenced"
        )


def update(connection: Connection, managed: Managed, periods: Iterable[Period]) -> None:
    """What is known of periods whose rows have changed."""
    for period in periods:
        # The hashes were those of other rows; `frostline verify` records them anew.
        connection.execute(
            "UPDATE frostline.periods SET rows = %(rows)s, bytes = %(bytes)s, files = %(files)s, digest = NULL,"
            " changed = changed + greatest(%(changed)s, abs(rows - %(rows)s))"
            " WHERE table_id = %(table)s AND upper = %(upper)s",
            {**vars(period), "table": managed.id},
        )


def tidy(connection: Connection, managed: Managed) -> None:
    """What the planner believes, and the room of the removed versions. Without it plans suffer, rows do not."""
    statistics.refresh(connection, managed)
    try:
        connection.execute(SQL("VACUUM (SKIP_LOCKED, TRUNCATE false) {}").format(Identifier(*managed.delta)))
    except psycopg.Error as error:
        log.warning("after folding %s: %s", managed.table, str(error).strip())


def changed(connection: Connection, settings: Settings, operation: Operation, made: Merged) -> Iterator[Period]:
    """The periods whose rows in the lake have changed; not what is below the line, where nobody reads any."""
    managed, files = operation.managed, storage.of(settings)
    key = managed.field_ids[managed.table.key]
    assert managed.snapshot_id is not None
    assert managed.metadata_location is not None
    before = lake.snapshot(files, managed.metadata_location, managed.snapshot_id)
    after = lake.snapshot(files, made.metadata_location, made.id)
    kept_from = retention.line(connection, managed)
    known = _known(connection, managed)
    touched = delta.touched(connection, managed, operation.id, [upper for upper, _ in known])
    for number, (upper, range_) in enumerate(known):
        if kept_from is not None and range_.below(kept_from):
            continue
        then, now = (inspect.places_of(s, key, managed.table.key_type, range_) for s in (before, after))
        paths = [{s.files[at].path for at in places} for s, places in ((before, then), (after, now))]
        if number not in touched and paths[0] == paths[1]:
            continue
        rows = _rows(settings, operation, after, now, range_)
        size = sum(after.files[at].size for at in now)
        yield Period(upper, range_, rows, size, len(now), touched.get(number, 0))


def _known(connection: Connection, managed: Managed) -> list[tuple[str, Range]]:
    found = commits.periods(connection, managed)
    return sorted(found, key=lambda one: one[1].upper.order if one[1].upper is not None else 0)


def _rows(
    settings: Settings, operation: Operation, snapshot: lake.Snapshot, places: Sequence[int], range_: Range
) -> int:
    """From the files where they say it; where one reaches over the period's end, or has deletes, the gateway counts."""
    managed = operation.managed
    key = managed.field_ids[managed.table.key]
    inside = all(inspect.inside(snapshot.files[at], key, managed.table.key_type, range_) for at in places)
    if inside and snapshot.readable(list(places)):
        return sum(snapshot.files[at].rows for at in places)
    name = Identifier("frostline", f"fold_{operation.id}")
    try:
        with connect(settings.dsn.get_secret_value(), application="frostline fold", autocommit=False) as asking:
            scope = f" operation {operation.id} lake snapshot {exported_snapshot(asking)}"
            asking.execute(foreign_table(managed, name, range_, scope))
            row = asking.execute(SQL("SELECT count(*) FROM {}").format(name)).fetchone()
            asking.rollback()
    except psycopg.OperationalError as error:
        raise Interrupted(
            f"the folded rows of {managed.table} could not be counted; readers go on with what they had",
            detail=" ".join(str(error).split()),
            hint="is the gateway running? `frostline status` shows it; the next run goes on from here",
        ) from error
    assert row is not None
    return int(row[0])
