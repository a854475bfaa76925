"""Trimming: rows of the lake that nobody reads go, and readers get the snapshot without them.

At or above the seam they are there because their periods came back: were these archived once more, they would stand
there twice, so whoever adds to the lake trims first. Others are not kept any more. Rolling forward is always right: a
commit that an earlier run made and did not live to record is recorded by the next.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from frostline.catalog import queries, registry
from frostline.catalog.database import Connection
from frostline.catalog.registry import Managed
from frostline.config import Settings
from frostline.faults import reached
from frostline.lake import catalog as lake
from frostline.lake import durable, layout, merging, surplus
from frostline.lake.merging import Merged
from frostline.pipeline import remove
from frostline.report import Report
from frostline.tiering import commits, retention, staged, statistics, turns
from frostline.tiering.archive import steps
from frostline.tiering.commits import Operation
from frostline.tiering.locks import from_settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def trim(
    connection: Connection, settings: Settings, managed: Managed, report: Report, spark: Callable[[], SparkSession]
) -> None:
    """Trim a table whose lake holds more than its cold rows; the caller holds its lock."""
    if not _is_surplus(connection, managed):
        return
    with report.step(f"trim the lake of {managed.table}") as progress:
        managed = _adopted(connection, settings, managed)
        managed = staged.add(connection, settings, managed, report)
        statistics.refresh(connection, managed)
        kept_from = retention.line(connection, managed)
        whole, reaching = surplus.places(settings, managed, kept_from)
        if reaching:
            _one(connection, settings, managed, lambda id_: remove.unread(spark(), settings, managed, kept_from, id_))
        elif whole:
            _one(connection, settings, managed, lambda id_: surplus.remove(settings, managed, whole, id_))
        # Only here: a commit of an earlier run may be from before the seam moved once more.
        connection.execute("UPDATE frostline.tables SET surplus = false WHERE id = %s", (managed.id,))
        progress.note = f"{len(whole)} files removed, {len(reaching)} rewritten"


def trim_owned(
    connection: Connection, settings: Settings, managed: Managed, report: Report, spark: Callable[[], SparkSession]
) -> None:
    """The same where the lake is ours; a copy of a database leaves to the original what it does not read itself."""
    if _is_surplus(connection, managed) and lake.owned(settings, managed):
        trim(connection, settings, managed, report, spark)


def _is_surplus(connection: Connection, managed: Managed) -> bool:
    found = connection.execute("SELECT surplus FROM frostline.tables WHERE id = %s", (managed.id,)).fetchone()
    return found == (True,)


def _adopted(connection: Connection, settings: Settings, managed: Managed) -> Managed:
    """Record what an earlier run has committed; returns the table as it is then."""
    for (id_,) in queries.rows(connection, "unfinished_trims", table=managed.id):
        left = Operation(id_, managed, from_settings(settings))
        made = commits.committed(connection, settings, left)
        if made is None:
            steps.fail(connection, id_, "the run ended before its commit to the lake; a later one began anew")
        else:
            _record(connection, settings, left, made)
            managed = registry.get_by_id(connection, managed.id)
    return managed


def _one(connection: Connection, settings: Settings, managed: Managed, commit: Callable[[int], None]) -> None:
    """`commit` removes the rows, in one commit with the operation's id."""
    reached("trim.begin")
    operation = commits.begin(connection, settings, managed, "trim")
    ours = commits.ours(connection, managed)
    properties = layout.merge_properties(managed, managed.options.file_size or settings.lake.file_size)
    others = merging.ready(settings, managed, ours, properties, commits.noted(connection, managed))
    if others.snapshots:
        raise commits.in_the_way(managed, "nothing was removed from it")
    commit(operation.id)
    reached("trim.commit")
    made = commits.committed(connection, settings, operation)
    if made is None:
        raise commits.unseen(operation.id, managed, "readers go on as they did")
    _record(connection, settings, operation, made)


def _record(connection: Connection, settings: Settings, operation: Operation, made: Merged) -> None:
    """Cold writers are kept out, as when a fold moves the snapshot; who has read the old one tries again."""
    managed = operation.managed
    durable.flush(settings, managed, made.id)

    def also() -> None:
        connection.execute(
            "UPDATE frostline.operations SET snapshot_id = %s, metadata_location = %s WHERE id = %s",
            (made.id, made.metadata_location, operation.id),
        )

    with turns.shown(connection, settings, operation.managed):
        commits.show(connection, operation, made, also, doing="trimming", instead="readers go on as before")
    reached("trim.recorded")
    steps.finish(connection, operation)
