"""One round over all tables: every step of every table in its turn, but for those that failed and are to wait."""

from __future__ import annotations

import logging
import math
import random
import time
from contextlib import closing
from dataclasses import asdict, dataclass

from frostline.catalog import registry, workers
from frostline.catalog.database import Connection, connect
from frostline.catalog.workers import State
from frostline.config import Settings
from frostline.errors import FrostlineError, Occupied, Stopped
from frostline.tiering import cycle
from frostline.tiering.cycle import Outcome, Round
from frostline.tiering.worker.leader import Lead
from frostline.tiering.worker.metrics import Metrics
from frostline.tiering.worker.signals import Signals

log = logging.getLogger(__name__)
_NEVER = State(0, waits=False, age=None)


@dataclass(frozen=True)
class Job:
    """What every round needs."""

    shared: Round
    lead: Lead
    signals: Signals
    metrics: Metrics
    turn: float = math.inf  # seconds after which a table leaves its next partition to the next round

    @property
    def settings(self) -> Settings:
        return self.shared.settings

    @property
    def goes_on(self) -> bool:
        return self.lead.leads and not self.signals.stopping


@dataclass(frozen=True)
class Played:
    """What came of a round."""

    failures: int  # steps that failed
    left: bool = False  # partitions were left to the next one, which is to come at once


def play(job: Job) -> Played:
    """One round."""
    failures, left = 0, False
    with connect(job.settings.dsn.get_secret_value(), application="frostline worker") as connection:
        registry.require(connection)  # somebody may have brought it to a newer version, which we do not know
        tables = connection.execute(
            "SELECT t.id, t.relation::text FROM frostline.tables t JOIN pg_class c ON c.oid = t.relation ORDER BY t.id"
        ).fetchall()
        for id_, name in tables:
            known = workers.states(connection)
            for step in cycle.STEPS:
                state = known.get((id_, step), _NEVER)
                if state.waits or not _due(job.settings, step, state):
                    continue
                if not job.goes_on:
                    return Played(failures)
                error, more = _step(job, step, name)
                left = left or more
                if not job.lead.leads:
                    return Played(failures)  # whatever it says, somebody else is to judge
                if isinstance(error, Occupied):
                    log.info("%s is at work elsewhere: the next round is soon enough", name)
                    break
                failures += error is not None
                _remember(connection, job, (id_, name, step), state, error)
    job.metrics.round()
    return Played(failures, left)


def _due(settings: Settings, step: str, state: State) -> bool:
    """Steps that look at many files take their time."""
    return step not in cycle.SLOW or state.age is None or state.age >= settings.maintenance.every


def _step(job: Job, step: str, name: str) -> tuple[FrostlineError | None, bool]:
    """Run one step to the end of its turn; what failed, if anything did, and whether it was cut short."""
    job.lead.doing = f"{step} of {name}"
    started, outcomes, left = time.monotonic(), list[Outcome](), False
    try:
        if job.signals.begin():
            with job.metrics.timed(step), closing(cycle.STEPS[step](job.shared, name)) as steps:
                for outcome in steps:
                    outcomes.append(outcome)
                    _tell(job, step, name, outcome)
                    # Between two periods. Other tables want their partitions of tomorrow, however much there is here.
                    left = outcome.archived is not None and time.monotonic() - started > job.turn
                    if left or not job.goes_on:
                        break
    finally:
        job.signals.end()
        job.lead.doing = None
    if outcomes:
        took = round(time.monotonic() - started, 3)
        log.info("%s of %s ended", step, name, extra={"fields": {"table": name, "step": step, "seconds": took}})
    if job.signals.ended:
        # A session that was interrupted in a statement can do no more, and its complaint takes the place of ours.
        raise Stopped
    return next((outcome.error for outcome in outcomes if outcome.error is not None), None), left


def _tell(job: Job, step: str, name: str, outcome: Outcome) -> None:
    if outcome.error is None and outcome.state != "waits":
        job.metrics.add("steps_total", table=name, step=step)
        log.info("%s: %s %s", name, outcome.what, outcome.state, extra={"fields": _fields(outcome, name, step)})


def _fields(outcome: Outcome, table: str, step: str) -> dict[str, object]:
    done = outcome.archived or outcome.folded
    figures = asdict(done) if done is not None else {}
    kept = {key: value for key, value in figures.items() if isinstance(value, int | float)}
    return {"table": table, "step": step, "what": outcome.what, "state": outcome.state, **kept}


def _remember(
    connection: Connection, job: Job, what: tuple[int, str, str], state: State, error: FrostlineError | None
) -> None:
    """Failures, so that the next worker waits as long; that a step is well again; when a slow one was done."""
    id_, name, step = what
    if error is None:
        if state.failures or step in cycle.SLOW:
            workers.done(connection, id_, step)
        return
    job.shared.warm.check()
    job.metrics.add("failures_total", table=name, step=step)
    limits = job.settings.worker
    count, pause = workers.failed(
        connection,
        id_,
        step,
        str(error),
        first=min(limits.interval, limits.longest_pause),
        longest=limits.longest_pause,
        jitter=random.uniform(0.75, 1.25),
    )
    fields = {"table": name, "step": step, "failures": count, "retry_in": round(pause, 1), "detail": error.detail}
    log.error("%s of %s failed: %s", step, name, error.message, extra={"fields": fields})
