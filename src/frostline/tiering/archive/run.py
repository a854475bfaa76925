"""Archiving every expired leaf of a table, oldest first."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING

from frostline.catalog import registry
from frostline.catalog.database import Connection, connect
from frostline.catalog.registry import Managed
from frostline.config import Settings
from frostline.errors import Differs, FrostlineError, Interrupted, Stopped
from frostline.faults import reached
from frostline.lake import catalog as lake
from frostline.model.tables import Leaf
from frostline.pipeline.session import alive
from frostline.report import Report
from frostline.tiering import clean, constraints, ddl, partitions, shape, statistics, turns
from frostline.tiering.archive import capture, export, plan, recover, steps, swap, verify
from frostline.tiering.archive.steps import Operation
from frostline.tiering.locks import from_settings, only_writer
from frostline.tiering.register import ensure_bound_checks
from frostline.tiering.trim import trim

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True)
class Archived:
    """A leaf that now lives in the lake."""

    leaf: Leaf
    rows: int
    bytes: int
    files: int


class Warm:
    """One Spark for any number of tables, started when the first of them needs it."""

    def __init__(self, start: Callable[[], AbstractContextManager[SparkSession]]) -> None:
        self._start = start
        self._stack = ExitStack()
        self._session: SparkSession | None = None

    def __enter__(self) -> Warm:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def session(self) -> SparkSession:
        if self._session is None:
            self._session = self._stack.enter_context(self._start())
        return self._session

    def check(self) -> None:
        """Let go of a Spark that has died: the next who needs one gets another."""
        if self._session is not None and not alive(self._session):
            self.stop()

    def stop(self) -> None:
        self._session = None
        self._stack.close()


def archive(
    settings: Settings, text: str, report: Report, spark: Callable[[], AbstractContextManager[SparkSession]]
) -> list[Archived]:
    """Move every expired leaf of a table; Spark is only started when there is one."""
    with Warm(spark) as warm:
        return list(periods(settings, text, report, warm, named=True))


def periods(
    settings: Settings, text: str, report: Report, warm: Warm, before: str | None = None, *, named: bool = False
) -> Iterator[Archived]:
    """Move a table's expired leaves one after the other; `before` stands in for the hot period."""
    with connect(settings.dsn.get_secret_value(), application="frostline archive") as connection:
        managed = registry.get(connection, text)
        with only_writer(connection, managed) as managed:
            leaves = plan.expired(connection, managed, before, named=named)
            unfinished = recover.settle(connection, settings, managed, leaves[0] if leaves else None, report)
            if unfinished is None:
                _clean_lake(connection, settings, managed, report)
            if not leaves:
                return
            partitions.check_plain(connection, managed)
            lake.check(settings)
            trim(connection, settings, managed, report, warm.session)
            upper = ddl.leaves_move(connection, managed.table)
            for leaf in managed.table.leaves:
                ensure_bound_checks(connection, managed.table, leaf, upper=upper)
            for leaf in leaves:
                yield _one(connection, warm.session(), settings, text, leaf, report, unfinished)
                unfinished = None


def _one(
    connection: Connection,
    spark: SparkSession,
    settings: Settings,
    text: str,
    leaf: Leaf,
    report: Report,
    unfinished: Operation | None = None,
) -> Archived:
    managed = registry.get(connection, text)  # the seam moved with the leaf before
    if unfinished is None:
        managed = shape.followed(connection, settings, managed)
    else:
        turns.take(connection, settings, managed)
    constraints.check_movable(connection, managed)
    swap.keep_sequences(connection, leaf, from_settings(settings))
    plan.check_dependents(connection, leaf)
    plan.check_default(connection, managed, leaf)
    operation = unfinished or steps.begin(connection, managed, leaf)
    operation.locks = from_settings(settings)
    with report.step(f"archive {leaf}", total=5) as progress:
        try:
            if unfinished is not None:
                steps.again(connection, operation)
            else:
                with steps.step(connection, operation, 1, "capture"):
                    capture.start(connection, operation)
            progress.advance()
            with steps.step(connection, operation, 2, "export") as step:
                snapshot = export.export(connection, spark, settings, operation)
                step.rows, step.bytes = snapshot.rows, snapshot.bytes
            progress.advance()
            with steps.step(connection, operation, 3, "verify") as step:
                capture.catch_up(connection, operation)
                step.rows = verify.verify(settings, operation)
            progress.advance()
            turns.check(connection, settings, managed)  # it was long at work: a copy may have taken its turn meanwhile
            with steps.step(connection, operation, 4, "swap"):
                swap.swap(connection, operation, snapshot)
            progress.advance()
        except (Interrupted, Stopped):
            raise  # capture and copy are kept: the next run goes on with them
        except (Exception, KeyboardInterrupt) as error:
            # Before the swap the leaf is still the truth. (After a crash the next run does the same.)
            if not connection.broken:
                if isinstance(error, Differs):
                    steps.alarm(connection, operation.id, f"not archived, its copy in the lake differs: {error.detail}")
                recover.give_up(connection, operation)
            raise
        # Who was copied from us on the way knows the word of the beginning, and nothing of what was archived: it is
        # told before the leaf goes.
        turns.leave_word(connection, settings, managed)
        reached("statistics.begin")
        statistics.carry_over(connection, operation)
        with steps.step(connection, operation, 5, "drop"):
            swap.drop(connection, operation)
            capture.forget(connection, managed)
        steps.finish(connection, operation)
        progress.advance()
        progress.note = f"{snapshot.rows:,} rows, {snapshot.bytes / 1e6:.1f} MB in {snapshot.files} files"
    return Archived(leaf, snapshot.rows, snapshot.bytes, snapshot.files)


def _clean_lake(connection: Connection, settings: Settings, managed: Managed, report: Report) -> None:
    try:
        clean.after_failures(connection, settings, managed, report)
    except (FrostlineError, OSError) as error:
        report.line(f"what failed runs left in the lake could not be removed and stays for now: {error}")
