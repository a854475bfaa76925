"""`frostline run`: wait for the lead, then round after round until told to end or the lead is lost."""

from __future__ import annotations

import logging
import math
import os
import random
import socket
import uuid
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import TYPE_CHECKING

import psycopg

from frostline.catalog import registry
from frostline.catalog.database import connect
from frostline.catalog.workers import Worker
from frostline.config import Settings
from frostline.errors import DatabaseError, Occupied, Stopped
from frostline.metrics import served
from frostline.report import Report
from frostline.tiering.archive.run import Warm
from frostline.tiering.cycle import Round
from frostline.tiering.worker import leader, rounds
from frostline.tiering.worker.leader import Lead
from frostline.tiering.worker.metrics import Metrics
from frostline.tiering.worker.rounds import Job
from frostline.tiering.worker.signals import Signals

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger(__name__)
STANDBY_SECONDS = 2.0  # how soon another one takes over
_ONCE_SECONDS = 3.0  # as long as the lock of a worker that died may live on
_LONGEST_WAIT = 30.0  # between two tries to reach Postgres


Spark = Callable[[], AbstractContextManager["SparkSession"]]


def run(
    settings: Settings,
    report: Report,
    spark: Spark,
    *,
    once: bool = False,
    ready: Callable[[int], None] = lambda _: None,
) -> int:
    """Work until told to end, or one round; returns how many steps of the last round failed."""
    with connect(settings.dsn.get_secret_value()) as connection:
        registry.require(connection)
    with ExitStack() as stack:
        signals = stack.enter_context(Signals(settings.worker.grace))
        process = _Process(settings, report, spark, signals, once)
        port = settings.worker.metrics_port
        if port:
            port = stack.enter_context(served(process.metrics, settings.worker.listen, port, "worker"))
        ready(port)
        process.work()
    log.info("the worker ends")
    return process.failures


class _Process:
    """One worker from its start to its end."""

    def __init__(self, settings: Settings, report: Report, spark: Spark, signals: Signals, once: bool) -> None:
        self.worker = Worker(str(uuid.uuid4()), socket.gethostname(), os.getpid())
        self.settings, self.report, self.signals, self.once = settings, report, signals, once
        self.spark = spark
        self.lead: Lead | None = None
        self.metrics = Metrics(settings, lambda: self.lead is not None and self.lead.leads)
        self.failures = 0
        self._tries = 0
        self._why = ""

    def work(self) -> None:
        """Session after session: one that breaks is followed by another."""
        told = False
        while not self.signals.stopping:
            try:
                self._session()
            except leader.OnStandby as error:
                if self.once:
                    raise
                if not told:
                    log.info(error.message)
                told = True
                self.signals.wait(STANDBY_SECONDS)
            except (psycopg.Error, DatabaseError) as error:
                if self.once:
                    raise
                self._tries += 1
                pause = min(2.0**self._tries, _LONGEST_WAIT) * random.uniform(0.5, 1)
                said = error.message if isinstance(error, DatabaseError) else " ".join(str(error).split())
                log.warning("nothing can be done for now, tried again in %.0f s: %s", pause, said)
                self.signals.wait(pause)
            if self.once:
                return

    def _session(self) -> None:
        """Stand by, lead, and go when the lead is lost."""
        self.signals.forget()
        with leader.session(self.settings.dsn.get_secret_value(), self.worker, self._lost) as lead:
            self._tries, self.lead = 0, lead
            if not _stand_by(lead, self.signals, once=self.once):
                return
            log.info("leading", extra={"fields": {"worker": self.worker.id}})
            with leader.watched(lead), Warm(self._started) as warm:
                try:
                    turn = math.inf if self.once else self.settings.worker.interval
                    shared = Round(self.settings, self.report, warm)
                    self._rounds(Job(shared, lead, self.signals, self.metrics, turn))
                except Stopped:
                    log.warning("the step that was under way was abandoned; the next worker goes on from there")
            if not lead.leads:
                log.warning("the lead is lost: %s", self._why)

    def _rounds(self, job: Job) -> None:
        while job.goes_on:
            played = rounds.play(job)
            self.failures = played.failures
            if self.once:
                return
            left = 0 if played.left else self.settings.worker.interval
            while left > 0 and job.goes_on:
                self.signals.wait(min(left, leader.LOOK_SECONDS))
                left -= leader.LOOK_SECONDS

    def _lost(self, why: str) -> None:
        self._why = why
        self.signals.abandon()

    @contextmanager
    def _started(self) -> Iterator[SparkSession]:
        """Spark, and afterwards our own answer to signals again: PySpark has one for Ctrl-C."""
        with self.spark() as session:
            self.signals.install()
            yield session


def _stand_by(lead: Lead, signals: Signals, *, once: bool) -> bool:
    """Until we lead; False when told to end before."""
    waited, told = 0.0, False
    while not lead.take():
        if once and waited >= _ONCE_SECONDS:
            raise Occupied(
                "another worker leads; nothing was done",
                hint="`frostline status` shows it; it does all that this one would",
            )
        if not told:
            log.info("another worker leads; standing by")
            told = True
        pause = 0.2 if once else STANDBY_SECONDS
        if signals.wait(pause):
            return False
        waited += pause
    return not signals.stopping
