"""One round over any number of tables: future partitions, folding, every expired period, the oldest first, coalescing.

What fails in one table is told at the end and stops no other. Within a table the periods after a failed one have to
wait, for the cold tier has no holes.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import psycopg
from psycopg.sql import Identifier

from frostline.catalog import registry
from frostline.catalog.database import connect, from_postgres
from frostline.catalog.registry import Managed
from frostline.config import Settings
from frostline.errors import FrostlineError, OperationError
from frostline.report import Report
from frostline.tiering import constraints, retention, shape, writing
from frostline.tiering.archive import plan, run
from frostline.tiering.archive.run import Archived
from frostline.tiering.coalesce import joined
from frostline.tiering.fold.run import Folded, fold
from frostline.tiering.locks import from_settings, only_writer
from frostline.tiering.maintain.run import maintain
from frostline.tiering.premake import premake
from frostline.tiering.trim import trim_owned

BUSY = "55P03"

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True)
class Outcome:
    """What became of one partition, or of one task."""

    table: str
    what: str
    state: str  # created, folded, followed, renewed, archived, joined, removed, maintained, failed, waits
    archived: Archived | None = None
    folded: Folded | None = None
    error: FrostlineError | None = None


@dataclass(frozen=True)
class Round:
    """What all tables of one round share."""

    settings: Settings
    report: Report
    warm: run.Warm
    before: str | None = None
    named: bool = False  # by a person: what came back on purpose may go again


Outcomes = Generator[Outcome, None, None]


def cycle(
    settings: Settings,
    names: Sequence[str],
    report: Report,
    spark: Callable[[], AbstractContextManager[SparkSession]],
    before: str | None = None,
) -> list[Outcome]:
    """Work on these tables, or on all that are registered."""
    found = _named(settings, names)
    with run.Warm(spark) as warm:
        shared = Round(settings, report, warm, before, named=bool(names))
        return [outcome for managed in found for outcome in _table(shared, managed)]


def _named(settings: Settings, names: Sequence[str]) -> list[Managed]:
    with connect(settings.dsn.get_secret_value()) as connection:
        return [registry.get(connection, name) for name in names] if names else registry.every(connection)


def _table(shared: Round, managed: Managed) -> Outcomes:
    name = Identifier(managed.table.schema, managed.table.name).as_string(None)
    for step in _COMMAND:
        for outcome in STEPS[step](shared, name):
            yield replace(outcome, table=str(managed.table))
            if outcome.error is not None and outcome.error.sqlstate == BUSY:
                return  # somebody else is at it, or in the way: the next round is soon enough


def _premake(shared: Round, name: str) -> Outcomes:
    made: list[str] = []
    try:
        with connect(shared.settings.dsn.get_secret_value(), application="frostline premake") as connection:
            managed = registry.get(connection, name)
            with only_writer(connection, managed) as managed:
                for leaf in premake(connection, managed):
                    made.append(leaf)
                    shared.report.line(f"created {leaf}")
    except Exception as error:
        yield Outcome(name, "future partitions", "failed", error=told(error))
    yield from (Outcome(name, leaf, "created") for leaf in made)


def _fold(shared: Round, name: str) -> Outcomes:
    """Before archiving, which would put a commit that an earlier fold did not live to record aside."""
    try:
        for one in fold(shared.settings, name, shared.report, shared.warm, always=False):
            yield Outcome(name, f"{one.versions:,} changes", "folded", folded=one)
    except Exception as error:
        yield Outcome(name, "folding", "failed", error=told(error))


def folds(
    settings: Settings,
    names: Sequence[str],
    report: Report,
    spark: Callable[[], AbstractContextManager[SparkSession]],
) -> list[Outcome]:
    """Fold these tables, or all that are registered, however little there is to fold."""
    found: list[Outcome] = []
    with run.Warm(spark) as warm:
        for managed in _named(settings, names):
            name = Identifier(managed.table.schema, managed.table.name).as_string(None)
            try:
                done = fold(settings, name, report, warm)
            except Exception as error:
                found.append(Outcome(str(managed.table), "folding", "failed", error=told(error)))
            else:
                found += [Outcome(one.table, f"{one.versions:,} changes", "folded", folded=one) for one in done]
    return found


def retains(
    settings: Settings,
    names: Sequence[str],
    report: Report,
    spark: Callable[[], AbstractContextManager[SparkSession]],
) -> list[Outcome]:
    """Remove what these tables, or all that are registered, do not keep any longer."""
    with run.Warm(spark) as warm:
        shared = Round(settings, report, warm)
        return [
            replace(outcome, table=str(managed.table))
            for managed in _named(settings, names)
            for outcome in _retention(shared, Identifier(managed.table.schema, managed.table.name).as_string(None))
        ]


def _columns(shared: Round, name: str) -> Outcomes:
    """After folding: a commit of an earlier fold was made for the columns of its time."""
    try:
        with connect(shared.settings.dsn.get_secret_value(), application="frostline sync") as connection:
            managed = registry.get(connection, name)
            with only_writer(connection, managed) as managed:
                if shape.pending(connection, managed):
                    shape.followed(connection, shared.settings, managed)
                    yield Outcome(name, "columns", "followed")
                yield from (Outcome(name, done, "renewed") for done in writing.equip(connection, managed.id))
                if proven := constraints.prove(connection, managed):
                    yield Outcome(name, ", ".join(proven), "proven")
    except Exception as error:
        yield Outcome(name, "columns", "failed", error=told(error))


def _archive(shared: Round, name: str) -> Outcomes:
    try:
        for one in run.periods(shared.settings, name, shared.report, shared.warm, shared.before, named=shared.named):
            yield Outcome(name, str(one.leaf), "archived", one)
    except Exception as error:
        first, *others = _left(shared, name) or ["archive"]
        yield Outcome(name, first, "failed", error=told(error))
        yield from (Outcome(name, leaf, "waits") for leaf in others)


def _coalesce(shared: Round, name: str) -> Outcomes:
    try:
        with connect(shared.settings.dsn.get_secret_value(), application="frostline coalesce") as connection:
            managed = registry.get(connection, name)
            with only_writer(connection, managed) as managed:
                for group in joined(connection, managed, from_settings(shared.settings)):
                    shared.report.line(f"joined {len(group.parts)} periods to {managed.table.schema}.{group.name}")
                    yield Outcome(name, f"{managed.table.schema}.{group.name}", "joined")
    except Exception as error:
        yield Outcome(name, "coalescing", "failed", error=told(error))


def _retention(shared: Round, name: str) -> Outcomes:
    try:
        with connect(shared.settings.dsn.get_secret_value(), application="frostline retention") as connection:
            managed = registry.get(connection, name)
            with only_writer(connection, managed) as managed:
                found = retention.expired(connection, managed)
                if found is not None:
                    retention.retain(connection, managed, found, from_settings(shared.settings))
                    shared.report.line(f"removed {found.rows:,} rows of {managed.table} before {found.line.text}")
                    yield Outcome(name, f"{found.rows:,} rows before {found.line.text}", "removed")
                # Also what an earlier run has left there.
                trim_owned(connection, shared.settings, managed, shared.report, shared.warm.session)
    except Exception as error:
        yield Outcome(name, "retention", "failed", error=told(error))


def _left(shared: Round, name: str) -> list[str]:
    """The expired partitions that are still there, if that can be found out."""
    try:
        with connect(shared.settings.dsn.get_secret_value()) as connection:
            managed = registry.get(connection, name)
            return [str(leaf) for leaf in plan.expired(connection, managed, shared.before, named=shared.named)]
    except (FrostlineError, psycopg.Error):
        return []


def told(error: Exception) -> FrostlineError:
    if isinstance(error, FrostlineError):
        return error
    if isinstance(error, psycopg.Error):
        return from_postgres(error)
    told = OperationError(f"this is a fault in Frostline itself: {type(error).__name__}: {error}")
    told.__cause__ = error
    return told


def _maintain(shared: Round, name: str) -> Outcomes:
    try:
        with connect(shared.settings.dsn.get_secret_value()) as connection:
            if registry.get(connection, name).options.maintenance == "none":
                return
        done = maintain(shared.settings, name, shared.report, shared.warm)
        for note in done.notes if done is not None else ():
            yield Outcome(name, note, "maintained")
    except Exception as error:
        yield Outcome(name, "maintenance", "failed", error=told(error))


# In this order for every table; `frostline archive` does the first, the worker all of them.
STEPS: dict[str, Callable[[Round, str], Outcomes]] = {
    "premake": _premake,
    "fold": _fold,
    "columns": _columns,
    "archive": _archive,
    "coalesce": _coalesce,
    "retention": _retention,
    "maintain": _maintain,
}
_COMMAND = ("premake", "fold", "archive", "coalesce")
SLOW = frozenset({"maintain"})  # looked at every `maintenance.every` seconds
