"""One fault after the other: a run of the archiver meets it, then runs are repeated until one finishes."""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import psycopg

from faults import ledger
from faults.archiver import Ended
from faults.stage import Answer, Stage
from frostline.catalog import registry
from frostline.catalog.database import connect
from frostline.faults import POINTS
from frostline.lake import catalog as lake
from frostline.lake import leftovers
from frostline.report import Silent
from frostline.tiering import clean, register
from frostline.tiering.clean import Found
from frostline.tiering.locks import only_writer

PERIODS = 8  # per table; a fault takes one of them
MOST_RUNS = 4

# Who is killed, or what fails, at a point.
VICTIMS = ("archiver", "raise", "spark", "gateway", "postgres", "session", "catalog session", "disk", "storage", "lock")
# Points at which the archiver is killed a little later, while Spark goes on without it.
_LATER = ("export.snapshot", "verify.heap", "swap.begun")


@dataclass(frozen=True)
class Fault:
    """At this point, after so many seconds, that happens."""

    victim: str
    point: str
    after: float = 0.0

    def __str__(self) -> str:
        return f"{self.victim} at {self.point}" + (f" + {self.after:.1f} s" if self.after else "")


@dataclass(frozen=True)
class Outcome:
    """What became of one fault (or two in a row) and of the runs after it."""

    faults: tuple[Fault, ...]
    met: bool
    runs: int
    ends: tuple[str, ...]
    seconds: float
    acknowledged: int = 0  # transactions of the writers meanwhile
    looks: int = 0  # of the readers


@dataclass
class Act:
    """Carries out faults, each in a run of its own."""

    stage: Stage
    table: str
    wrong: list[str]
    met: list[Fault] = field(default_factory=list)
    _open: contextlib.ExitStack = field(default_factory=contextlib.ExitStack)

    def answer(self, fault: Fault) -> Answer:
        done = threading.Event()

        def decide(point: str, pid: int) -> bool:
            if point != fault.point or done.is_set():
                return True
            done.set()
            self.met.append(fault)
            if fault.after:
                threading.Timer(fault.after, self._strike, (fault.victim, pid)).start()
                return True
            return self._strike(fault.victim, pid)

        return decide

    def over(self) -> None:
        """The run has ended: the disk has room again, the storage is back."""
        self._open.close()

    def _strike(self, victim: str, pid: int) -> bool:
        try:
            return self._do(victim, pid)
        except (ProcessLookupError, AssertionError, psycopg.Error):
            return True  # it was gone already
        except Exception as error:
            self.wrong.append(f"the fault itself failed: {victim}: {error!r}")
            return True

    def _do(self, victim: str, pid: int) -> bool:
        stage = self.stage
        match victim:
            case "archiver":
                os.kill(pid, signal.SIGKILL)
            case "raise":
                return False
            case "spark":
                stage.kill_spark(pid)
            case "gateway":
                stage.kill_gateway()
            case "postgres":
                stage.kill_postgres()
            case "session":
                _terminate(stage, "application_name = 'frostline archive'")
            case "catalog session":
                _terminate(stage, "query LIKE '%iceberg_tables%' OR application_name = 'frostline export'")
            case "disk":
                self._open.enter_context(stage.small_files(pid, stage.spark.pid))
            case "storage":
                self._open.enter_context(_no_directory(stage.directory(self.table) / "data"))
                self._open.enter_context(_no_directory(stage.directory(self.table) / "metadata"))
            case "lock":
                threading.Thread(target=_lock_catalog, args=(stage, 1.0), daemon=True).start()
            case _:
                raise LookupError(victim)
        return True


def _terminate(stage: Stage, which: str) -> None:
    stage.run(f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid() AND ({which})")


def _lock_catalog(stage: Stage, seconds: float) -> None:
    with contextlib.suppress(psycopg.Error), psycopg.connect(stage.dsn) as connection:
        connection.execute("LOCK TABLE frostline_lake.iceberg_tables IN ACCESS EXCLUSIVE MODE")
        time.sleep(seconds)


@contextmanager
def _no_directory(path: Path) -> Iterator[None]:
    """A file stands where the directory was: nothing below it can be read or written, by root neither."""
    aside = path.with_name(f"{path.name}.aside")
    path.parent.mkdir(parents=True, exist_ok=True)
    existed = path.exists()
    if existed:
        path.rename(aside)
    path.write_text("")
    try:
        yield
    finally:
        path.unlink()
        if existed:
            aside.rename(path)
        else:
            shutil.rmtree(aside, ignore_errors=True)


class Drama:
    """A table with its writers and readers, and the faults that befall its archiving."""

    def __init__(self, stage: Stage, name: str, seed: int) -> None:
        self.stage, self.name = stage, name
        stage.run(ledger.tables(name, PERIODS))
        with connect(stage.dsn) as connection:
            register.register(connection, f"public.{name}", str(ledger.HOT))
        self.world = ledger.World(stage.dsn, name, crashes=lambda: stage.crashes)
        self.writers = [
            ledger.Writer(self.world, 1, seed),
            ledger.Writer(self.world, 2, seed + 1, asynchronous=True),
            ledger.Writer(self.world, 3, seed + 2, replica=True),
        ]
        self.readers = [ledger.Reader(self.world, seed, pinned=pinned) for pinned in (False, True)]
        for thread in (*self.writers, *self.readers):
            thread.start()
        self.period = 0
        self.rows = 0

    def close(self) -> None:
        self.world.stop.set()
        for thread in (*self.writers, *self.readers):
            thread.join(30)

    def play(self, faults: tuple[Fault, ...], *, command: bool = False) -> Outcome:
        """One period: a run per fault, then runs without until it is archived; then everything is checked.

        `command`: those with a fault are `frostline archive` itself, started as a person would.
        """
        began, written, looked = time.monotonic(), self._acknowledged(), self._looks()
        self._expire()
        act = Act(self.stage, self.name, self.world.wrong)
        ends: list[str] = []
        for fault in faults:
            if self._archived():
                break
            ended = self._run(act, act.answer(fault), command=command)
            ends.append(_short(ended))
        while not self._archived() or not ends or not ended.done:
            if len(ends) > len(faults) + MOST_RUNS:
                self.world.wrong.append(f"{_all(faults)}: not archived after {len(ends)} runs: {ends}")
                break
            ended = self._run(act, lambda _point, _pid: True)
            ends.append(_short(ended))
        self.period += 1
        self.world.first = self.period
        self.rows = ledger.check(self.world, self.writers)
        self._check_leftovers(faults)
        met = len(act.met) == len(faults)
        seconds, written, looked = time.monotonic() - began, self._acknowledged() - written, self._looks() - looked
        return Outcome(faults, met, len(ends), tuple(ends), seconds, written, looked)

    def _acknowledged(self) -> int:
        return sum(writer.acknowledged for writer in self.writers)

    def _looks(self) -> int:
        return sum(reader.looks for reader in self.readers)

    def clean(self) -> list[Found]:
        """Nothing is left in the lake either, once what can be removed has been; returns what was."""
        with connect(self.stage.dsn, application="frostline clean") as connection:
            managed = registry.get(connection, f"public.{self.name}")
            with only_writer(connection, managed):
                found = clean.clean(connection, self.stage.settings, managed, 0, Silent())
            left = clean.look(connection, self.stage.settings, managed, 0)
        if any(not one.kept for one in left):
            self.world.wrong.append(f"left after cleaning: {left[:3]}")
        on_disk = {str(path) for path in self.stage.directory(self.name).rglob("*.parquet")}
        with lake.opened(self.stage.settings) as catalog:
            files = leftovers.referenced(catalog.load_table(("public", self.name)))
        named = {path.removeprefix("file:").replace("///", "/") for path in files if path.endswith(".parquet")}
        if on_disk != named:
            self.world.wrong.append(f"files without a snapshot: {on_disk - named}, missing: {named - on_disk}")
        ledger.check(self.world, self.writers)
        return found

    def _run(self, act: Act, answer: Answer, *, command: bool = False) -> Ended:
        run = self.stage.command if command else self.stage.archive
        try:
            return run(f"public.{self.name}", answer)
        finally:
            act.over()
            self.stage.heal()

    def _expire(self) -> None:
        """Let the clock pass the end of the next period."""
        upper = (self.period + 1) * ledger.WIDTH
        self.stage.run(
            f"INSERT INTO public.{self.name} (id, k, version, amount, writer) VALUES (%s, %s, 1, 0, 0)",
            -self.period,
            upper + ledger.HOT,
        )

    def _archived(self) -> bool:
        leaf = f"{self.name}_{self.period:02}"
        kind = self.stage.run("SELECT relkind::text FROM pg_class WHERE relname = %s", leaf)
        return kind == [("f",)]

    def _check_leftovers(self, faults: tuple[Fault, ...]) -> None:
        """A run that finished has left nothing in Postgres, whatever the runs before it left."""
        seam = self.period * ledger.WIDTH
        for what, query in {
            "capture triggers": "SELECT tgrelid::regclass::text FROM pg_trigger WHERE tgname LIKE '!frostline %'",
            "detached leaves": "SELECT relname FROM pg_class WHERE relname LIKE 'dropped_%'",
            "captured rows": f"SELECT id FROM {self._delta()} WHERE k >= {seam}",
            "unfinished operations": "SELECT id, state FROM frostline.operations"
            " WHERE state = 'running' OR captured IS NOT NULL",
            "foreign tables to compare with": "SELECT relname FROM pg_class WHERE relname LIKE 'verify_%'",
        }.items():
            if found := self.stage.run(query):
                self.world.wrong.append(f"{_all(faults)}: {what} are left: {found[:3]}")

    def _delta(self) -> str:
        [(name,)] = self.stage.run(
            f"SELECT delta::text FROM frostline.tables WHERE relation = 'public.{self.name}'::regclass"
        )
        return str(name)


def _short(ended: Ended) -> str:
    if ended.killed:
        return "killed"
    if ended.error is not None:
        return f"failed: {ended.error}"
    if any("going on with" in line for line in ended.said):
        return "went on"
    if any("starts anew" in line for line in ended.said):
        return "began anew"
    if any("had archived" in line for line in ended.said):
        return "finished it"
    return "done"


def _all(faults: tuple[Fault, ...]) -> str:
    return " then ".join(map(str, faults)) or "no fault"


def every_point(victims: tuple[str, ...] = ("archiver",)) -> list[Fault]:
    return [Fault(victim, point) for victim in victims for point in POINTS]


def at_random(seed: int) -> tuple[Fault, ...]:
    """One fault, or two in a row."""
    dice = random.Random(seed)
    points = [point for point in POINTS if not point.startswith(("recover", "release", "clean"))]
    faults = []
    for number in range(dice.choice((1, 1, 2))):
        victim = dice.choices(VICTIMS, (10, 4, 1, 3, 5, 3, 2, 2, 2, 1))[0]
        point = dice.choice(points if number == 0 else list(POINTS))
        later = point in _LATER and victim in ("archiver", "spark", "gateway", "postgres") and dice.random() < 0.7
        if victim in ("spark", "disk", "catalog session") and not point.startswith("export"):
            point = dice.choice([p for p in points if p.startswith("export")])
        faults.append(Fault(victim, point, round(dice.uniform(0, 1.0), 2) if later else 0.0))
    return tuple(faults)
