"""One step after the other, from wherever an earlier run ended."""

from __future__ import annotations

import shlex
from dataclasses import dataclass, replace

from psycopg.sql import SQL, Composed, Identifier

from frostline.catalog import describe, queries, registry
from frostline.catalog.database import Connection
from frostline.errors import ConfigError, OperationError, RefusedError
from frostline.faults import reached
from frostline.model.tables import Table
from frostline.report import Report, Silent
from frostline.tiering.checks import shell_list
from frostline.tiering.locks import Wanted, with_short_locks
from frostline.tiering.partition import copying, plan, shape, state, swap
from frostline.tiering.partition.plan import Choice, Plan
from frostline.tiering.partition.state import Work, only_run

_NEARLY = 500  # rows of the log that are left for the swap


@dataclass(frozen=True)
class Partitioned:
    plan: Plan
    rows: int
    in_default: int
    dropped: bool


def dry_run(connection: Connection, text: str, choice: Choice) -> tuple[Plan, list[Composed]]:
    """The plan and its statements; changes nothing."""
    registry.require(connection)
    oid, *name = describe.resolve(connection, text)
    made, table, now = plan.make(connection, oid, (name[0], name[1]), choice)
    work = Work(oid, 0, made, now.json(), "made")
    statements = [*plan.create(connection, made, now), *copying.log_table(work, table)]
    return made, [*statements, *(create for _, create in swap.made_indexes(work))]


def partition(
    connection: Connection, text: str, choice: Choice, wanted: Wanted, report: Report, *, drop_old: bool = False
) -> Partitioned:
    """Partition a table, or go on with it."""
    registry.require(connection)
    oid, *name = describe.resolve(connection, text)
    with only_run(connection, oid, text) as begun:
        if begun is None:
            if not choice.by:
                raise ConfigError(f"no partitioning of {text} is under way", hint="begin one: --by COLUMN")
        elif not plan.same_choice(begun.plan, choice):
            raise OperationError(
                f"{begun.plan} is being partitioned otherwise: {_spelled(begun.plan.choice)}",
                hint=f"frostline partition {begun.plan.pasted} goes on with that; --abandon gives it up",
            )
        else:
            _check_version(connection, begun)
        work = begun or _make(connection, oid, (name[0], name[1]), choice)
        wanted = replace(wanted, relations=[work.source])
        if work.state != "swapped":
            _until_swap(connection, work, wanted, report)
        return _afterwards(connection, work, wanted, report, drop_old=drop_old)


def _check_version(connection: Connection, work: Work) -> None:
    """What is recorded of a table is more than it was once, and all of it is needed."""
    if work.state != "swapped" and len(work.shape["primary_key"]) != len(
        shape.read(connection, work.source).primary_key
    ):
        raise OperationError(
            f"{work.plan} began to be partitioned by another version of Frostline; it is as it was",
            hint=f"begin anew: frostline partition {work.plan.pasted} --abandon, then the same command again",
        )


def _spelled(choice: Choice) -> str:
    key = f" --key {shell_list(choice.key)}" if choice.key else ""
    return f"--by {shlex.quote(choice.by)} --period {choice.period}{key}"


def _make(connection: Connection, oid: int, name: tuple[str, str], choice: Choice) -> Work:
    """The empty copy and the log."""
    made, table, now = plan.make(connection, oid, name, choice)
    with connection.transaction():
        for statement in plan.create(connection, made, now):
            connection.execute(statement)
        work = state.begin(connection, oid, made, now)
        for statement in copying.log_table(work, table):
            connection.execute(statement)
        reached("partition.made")
    return work


def _rehearse(connection: Connection, work: Work, wanted: Wanted) -> None:
    """Nothing stays if the exchange would fail."""
    try:
        _indexes(connection, work, Silent())
        swap.rehearse(connection, work, shape.read(connection, work.source), wanted)
        # It is quicker to build them when the rows are there.
        for statement in swap.dropped_indexes(work):
            connection.execute(statement)
    except BaseException:
        if not connection.broken:
            _remove(connection, work)
        raise
    reached("partition.rehearsed")


def _until_swap(connection: Connection, work: Work, wanted: Wanted, report: Report) -> None:
    table = plan.described(connection, work.source, (work.plan.schema, work.plan.name), work.plan.by)
    if work.state == "made":
        with report.step(f"rehearse the swap of {work.plan}"):
            _rehearse(connection, work, wanted)
        copying.start(connection, work, replace(wanted, relations=[], written=[work.source]))
        reached("partition.started")
    copying.check_triggers(connection, work)
    if work.state == "copying":
        with report.step(f"copy {work.plan} (pages)", total=work.pages) as task:
            copying.copy(connection, work, table, task)
        _indexes(connection, work, report)
        work.state = "copied"
        state.record(connection, work)
        reached("partition.indexed")
    with report.step(f"analyze {work.plan}"):
        copying.apply(connection, work, table)
        connection.execute(SQL("VACUUM (ANALYZE) {}").format(work.plan.target))
    with report.step(f"verify {work.plan}") as task:
        found = copying.verify(connection, work, table)
        task.note = f"{found.rows:,} rows"
        reached("partition.verified")
    with report.step(f"swap {work.plan}"):
        _swap(connection, work, table, wanted)


def _indexes(connection: Connection, work: Work, report: Report) -> None:
    there = {name for name, *_ in queries.rows(connection, "plain_indexes", oid=work.target)}
    for name, create in swap.made_indexes(work):
        if name not in there:
            with report.step(f"index {name}"):
                connection.execute(create)
                reached("partition.index")


def _swap(connection: Connection, work: Work, table: Table, wanted: Wanted) -> None:
    while True:
        while copying.apply(connection, work, table) > _NEARLY:
            pass
        try:
            swap.swap(connection, work, table, wanted)
        except swap.Behind:
            continue
        return


def _afterwards(connection: Connection, work: Work, wanted: Wanted, report: Report, *, drop_old: bool) -> Partitioned:
    reached("partition.swapped")
    with report.step(f"foreign keys of {work.plan}"):
        swap.prove_foreign_keys(connection, work, replace(wanted, relations=[work.target]))
    if work.shape["statistics"]:
        connection.execute(SQL("ANALYZE {}").format(work.plan.table))  # extended ones are as new as their objects
    old = Identifier(work.plan.schema, work.plan.kept)
    if drop_old:
        drop = SQL("DROP TABLE IF EXISTS {}").format(old)
        with_short_locks(connection, lambda: connection.execute(drop), f"dropping {work.plan.kept}", wanted)
    reached("partition.end")
    with connection.transaction():
        state.end(connection, work)
    default = Identifier(work.plan.schema, work.plan.partitions[-1][0])
    counted = connection.execute(
        "SELECT coalesce(sum(greatest(c.reltuples, 0)), 0)::bigint FROM pg_inherits i"
        " JOIN pg_class c ON c.oid = i.inhrelid WHERE i.inhparent = %s",
        (work.target,),
    ).fetchone()
    strays = connection.execute(SQL("SELECT count(*) FROM {}").format(default)).fetchone()
    return Partitioned(work.plan, counted[0] if counted else 0, strays[0] if strays else 0, drop_old)


def abandon(connection: Connection, text: str, wanted: Wanted) -> Plan:
    """The table as if nothing had been begun."""
    registry.require(connection)
    oid, *_ = describe.resolve(connection, text)
    with only_run(connection, oid, text) as work:
        if work is None:
            raise RefusedError(f"no partitioning of {text} is under way; nothing was changed")
        if work.state == "swapped":
            raise RefusedError(
                f"{work.plan} is partitioned already, and only its foreign keys are still to be proven",
                hint=f"frostline partition {work.plan.pasted} ends it",
            )

        def release() -> None:
            found = queries.row(connection, "relation", oid=work.source)  # by whatever name it goes by now
            for statement in copying.drop_triggers(Identifier(*found)) if found is not None else ():
                connection.execute(statement)

        with_short_locks(connection, release, f"releasing {work.plan}", replace(wanted, relations=[work.source]))
        _remove(connection, work)
        return work.plan


def _remove(connection: Connection, work: Work) -> None:
    with connection.transaction():
        connection.execute(SQL("DROP TABLE IF EXISTS {}").format(work.plan.target))
        state.end(connection, work)
