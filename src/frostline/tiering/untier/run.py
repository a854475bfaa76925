"""Bringing periods of a table back, the newest first: what stands between a period and the seam comes with it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

import psycopg
from psycopg.sql import SQL, Identifier

from frostline.catalog import registry
from frostline.catalog.database import Connection, connect
from frostline.catalog.registry import Managed
from frostline.config import Settings
from frostline.delta import follow as following
from frostline.errors import Interrupted, OperationError, RefusedError
from frostline.faults import reached
from frostline.report import Report
from frostline.tiering import constraints, ddl, partitions, staged, writing
from frostline.tiering.archive import plan, steps
from frostline.tiering.archive import recover as archiving
from frostline.tiering.archive.run import Warm
from frostline.tiering.fold.run import adopted
from frostline.tiering.locks import from_settings, only_writer
from frostline.tiering.meant import meant
from frostline.tiering.register import ensure_bound_checks
from frostline.tiering.trim import trim_owned
from frostline.tiering.untier import attach, compare, follow, load, recover
from frostline.tiering.untier.operation import Operation, Period, begin, periods


@dataclass(frozen=True)
class Returned:
    """A period that is hot again, or would be."""

    period: Period
    rows: int
    changed: int = 0  # versions in the delta


def planned(connection: Connection, managed: Managed, text: str | None) -> list[Returned]:
    """What would come back, the newest first; text None: everything."""
    return [
        Returned(period, period.rows, _changes(connection, managed, period))
        for period in chosen(connection, managed, text)
    ]


def expired_again(connection: Connection, managed: Managed, returned: Sequence[Returned]) -> list[Returned]:
    """What is older than the hot period, and would go to the lake again were the table named to an archive run."""
    names = {str(leaf) for leaf in plan.expired(connection, managed, named=True)}
    return [one for one in returned if str(one.period) in names]


def untier(settings: Settings, text: str, period: str, report: Report, warm: Warm) -> list[Returned]:
    """Bring a period back, and whatever is newer and cold; what an earlier run has begun goes on."""
    with connect(settings.dsn.get_secret_value(), application="frostline untier") as connection:
        managed = registry.get(connection, text)
        with only_writer(connection, managed) as locked:
            managed = staged.add_owned(connection, settings, locked, report)
            wanted = chosen(connection, managed, period)
            with under_its_name(managed):
                done = list(bring_back(connection, settings, managed, wanted, report))
            trim_owned(connection, settings, registry.get_by_id(connection, managed.id), report, warm.session)
    return done


@contextmanager
def under_its_name(managed: Managed) -> Iterator[None]:
    """Names are looked up before the locks are there: somebody may rename, or move, what they belong to."""
    try:
        yield
    except (psycopg.errors.UndefinedTable, psycopg.errors.InvalidSchemaName, psycopg.errors.WrongObjectType) as error:
        raise OperationError(
            f"{managed.table} or a partition of it was renamed meanwhile; "
            "what came back stays hot, the other rows stay in the lake",
            detail=error.diag.message_primary,
            hint="run the same command again, with the new name",
        ) from error


def bring_back(
    connection: Connection, settings: Settings, managed: Managed, wanted: list[Period], report: Report
) -> Iterator[Returned]:
    """The caller holds the table's lock, and trims the lake afterwards or means to keep it."""
    locks = from_settings(settings)
    _check_equipped(connection, managed)
    partitions.check_plain(connection, managed)
    partitions.check_attached(connection, managed, [period.oid for period in wanted])
    constraints.check_attachable(connection, managed)
    archiving.settle(connection, settings, managed, None, report)
    if adopted(connection, settings, managed, report):
        managed = registry.get_by_id(connection, managed.id)  # its snapshot has moved
    # The delta only: the lake may be somebody else's, and nothing is added to it here.
    if wanted:  # what is given up need not be able to follow
        managed = following.follow(connection, managed.id, patience=settings.archive.lock_patience)
    going = recover.settle(connection, managed, locks, report)
    for operation in going:
        if operation.period not in wanted:
            recover.abandon(connection, managed, operation.id, locks, "another run brought others back instead")
    upper = ddl.leaves_move(connection, managed.table)
    for leaf in managed.table.leaves:
        ensure_bound_checks(connection, managed.table, leaf, upper=upper)
    for named in wanted:
        managed = registry.get_by_id(connection, managed.id)  # the seam moved with the period before
        # While that was loaded this one may have got another name.
        period = next((now for now in periods(connection, managed) if now.oid == named.oid), named)
        resumed = next((found for found in going if found.period == period), None)
        if resumed is not None:
            resumed.managed = managed
            steps.again(connection, resumed)
        operation = resumed or begin(connection, managed, period, locks)
        yield _one(connection, settings, operation, report)


def _one(connection: Connection, settings: Settings, operation: Operation, report: Report) -> Returned:
    managed, period = operation.managed, operation.period
    total = period.rows + _changes(connection, managed, period)
    with report.step(f"bring back {period}", total=total) as progress:
        try:
            if operation.leaf is None:
                with steps.step(connection, operation, 1, "load") as step:
                    step.rows = load.load(connection, settings, operation, progress)
            else:
                load.refer(connection, operation)
            if not _follows(connection, operation):
                with steps.step(connection, operation, 2, "follow") as step:
                    step.rows = follow.follow(connection, operation)
            with steps.step(connection, operation, 3, "compare") as step:
                step.rows = rows = compare.compare(settings, operation)
            with steps.step(connection, operation, 4, "attach"):
                attach.attach(connection, operation)
        except (Exception, KeyboardInterrupt) as error:
            if isinstance(error, Interrupted) and operation.leaf is not None:
                raise  # the leaf is kept, and goes on following: the next run goes on with it
            if not connection.broken and not _attached(connection, operation):
                with suppress(Interrupted):  # somebody reads cold rows: the next run drops the leaf, or goes on with it
                    recover.abandon(connection, managed, operation.id, operation.locks, str(error))
            raise
        reached("attach.committed")
        recover.tidy(connection, managed, operation.id, operation.locks)
        reached("untier.tidied")
        connection.execute("UPDATE frostline.operations SET rows = %s WHERE id = %s", (rows, operation.id))
        steps.finish(connection, operation)
        progress.note = f"{rows:,} rows"
    return Returned(period, rows)


def chosen(connection: Connection, managed: Managed, text: str | None) -> list[Period]:
    """The periods from the seam down to the one that is meant."""
    cold = periods(connection, managed)
    if text is None:
        return cold
    wanted = meant(connection, managed, text)
    found = [at for at, period in enumerate(cold) if wanted.is_(str(period), period.range)]
    if not found:
        raise RefusedError(
            f"{managed.table} has no cold period {text}; nothing was changed",
            detail="cold: " + (", ".join(str(period) for period in cold) or "nothing"),
            hint="name a foreign partition, or a value of the partition key",
        )
    return cold[: found[0] + 1]


def _changes(connection: Connection, managed: Managed, period: Period) -> int:
    query = SQL("SELECT count(*) FROM {} WHERE {}").format(
        Identifier(*managed.delta), ddl.within(managed.table, period.range)
    )
    row: Any = connection.execute(query).fetchone()
    return int(row[0])


def _follows(connection: Connection, operation: Operation) -> bool:
    left = next((one for one in recover.unfinished(connection, operation.managed) if one.id == operation.id), None)
    return left is not None and left.followed


def _attached(connection: Connection, operation: Operation) -> bool:
    """The commit may have happened although its answer was lost."""
    return all(period.oid != operation.period.oid for period in periods(connection, operation.managed))


def _check_equipped(connection: Connection, managed: Managed) -> None:
    if writing.unequipped(connection).get(managed.id, False):
        raise RefusedError(
            f"{managed.table} was registered by an older version, whose writers would not notice; nothing was changed",
            hint="run frostline init, then the same command again",
        )
