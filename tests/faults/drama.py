"""One fault after the other: a run meets it, then runs are repeated until one finishes.

A fault counts as met only when it happened: the process was seen dead, a session was ended, the run failed for want of
its disk, somebody was seen waiting for the lock.
"""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psycopg
from psycopg import IsolationLevel

from faults import ledger
from faults.archiver import Ended
from faults.stage import Answer, Stage, alive
from frostline.catalog import registry
from frostline.catalog.database import connect
from frostline.faults import FOLD_POINTS, POINTS
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
COALESCING = [point for point in POINTS if point.startswith("coalesce")]
CLEANING = [point for point in POINTS if point.startswith("clean")]
FOLDING = [*FOLD_POINTS]
ARCHIVING = [point for point in POINTS if point not in COALESCING + CLEANING]
# What a run fails at so that it gives its capture up, and what the run before must die of so that a point is reached.
_GIVES_UP = "export.recorded"
_BEFORE = {"recover.finish": "swap.ended", "recover.failed": "capture.begun", "adopt.begin": "merge.commit"}
# Who is killed at every point, and where Spark is.
_KILLED = ("archiver", "postgres", "gateway", "spark")
_ON_SPARK = ("export.", "merge.")
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
    """What became of some faults in a row and of the runs after them."""

    faults: tuple[Fault, ...]  # as they were planned
    met: tuple[tuple[Fault, str], ...]  # those that happened, and how the run ended that they happened to
    ends: tuple[str, ...]  # of every run
    acknowledged: int = 0  # transactions of the writers meanwhile
    looks: int = 0  # of the readers


@dataclass
class Act:
    """Carries out faults, each in a run of its own."""

    stage: Stage
    table: str
    wrong: list[str]
    _struck: threading.Event = field(default_factory=threading.Event)
    _over: threading.Event = field(default_factory=threading.Event)  # the run has ended
    _waiting: list[threading.Thread] = field(default_factory=list)
    _open: contextlib.ExitStack = field(default_factory=contextlib.ExitStack)

    def answer(self, fault: Fault) -> Answer:
        self._struck.clear()
        done = threading.Event()

        def decide(point: str, pid: int) -> bool:
            if fault.point.startswith("release") and point == _GIVES_UP:
                return False
            if point != fault.point or done.is_set():
                return True
            done.set()
            if fault.after:
                self._begin(threading.Timer(fault.after, self._strike, (fault.victim, pid)))
            else:
                self._strike(fault.victim, pid)
            return fault.victim != "raise"

        return decide

    def over(self) -> None:
        """The run has ended: the disk has room again, the storage is back."""
        self._over.set()
        while self._waiting:
            self._waiting.pop().join(30)
        self._open.close()

    def met(self, fault: Fault, ended: Ended) -> bool:
        """Whether it happened to the run that ended so."""
        if fault.victim == "archiver":
            return ended.killed
        # Nothing may have been written, or read, after it.
        return self._struck.is_set() and (fault.victim not in ("disk", "storage") or ended.error is not None)

    def _begin(self, thread: threading.Thread) -> None:
        self._waiting.append(thread)
        thread.start()

    def _strike(self, victim: str, pid: int) -> None:
        try:
            if alive(pid) and self._do(victim, pid):
                self._struck.set()
        except (ProcessLookupError, AssertionError, psycopg.Error):
            pass  # it was gone already
        except Exception as error:
            self.wrong.append(f"the fault itself failed: {victim}: {error!r}")

    def _do(self, victim: str, pid: int) -> bool:
        """True: it is done. A lock is felt later, or not at all."""
        stage = self.stage
        match victim:
            case "archiver":
                os.kill(pid, signal.SIGKILL)
            case "raise":
                pass
            case "spark":
                stage.kill_spark(pid)
            case "gateway":
                stage.kill_gateway()
            case "postgres":
                stage.kill_postgres()
            case "session":
                return _terminated(stage, "application_name ~ '^frostline (archive|coalesce|clean|fold)$'")
            case "catalog session":
                return _terminated(stage, "query LIKE '%iceberg_tables%' OR application_name = 'frostline export'")
            case "disk":
                self._open.enter_context(stage.small_files(pid, stage.spark.pid))
            case "storage":
                self._open.enter_context(_no_directory(stage.directory(self.table) / "data"))
                self._open.enter_context(_no_directory(stage.directory(self.table) / "metadata"))
            case "lock":
                held = threading.Event()
                self._over.clear()
                asked = (stage, held, self._struck, self._over)
                self._begin(threading.Thread(target=_lock_catalog, args=asked, daemon=True))
                held.wait(30)
                return False
            case _:
                raise LookupError(victim)
        return True


def _terminated(stage: Stage, which: str) -> bool:
    ended = stage.run(
        f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid() AND ({which})"
    )
    return (True,) in ended


def _lock_catalog(stage: Stage, held: threading.Event, felt: threading.Event, over: threading.Event) -> None:
    """Until somebody has waited for a second, or the run has ended without coming by."""
    table = "frostline_lake.iceberg_tables"
    waiting = f"SELECT EXISTS (SELECT FROM pg_locks WHERE relation = '{table}'::regclass AND NOT granted)"
    with contextlib.suppress(psycopg.Error), psycopg.connect(stage.dsn) as connection:
        connection.execute(f"LOCK TABLE {table} IN ACCESS EXCLUSIVE MODE")
        held.set()
        while connection.execute(waiting).fetchone() != (True,):
            if over.wait(0.02):
                return
        felt.set()
        over.wait(1)


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
            ledger.Writer(self.world, 1, seed, level=IsolationLevel.REPEATABLE_READ),
            ledger.Writer(self.world, 2, seed + 1, asynchronous=True),
            ledger.Writer(self.world, 3, seed + 2, replica=True),
        ]
        self.readers = [ledger.Reader(self.world, seed, pinned=pinned) for pinned in (False, True)]
        for thread in (*self.writers, *self.readers):
            thread.start()
        self.period = self.folds = 0
        self.rows = 0

    def close(self) -> None:
        self.world.stop.set()
        for thread in (*self.writers, *self.readers):
            thread.join(30)

    def play(self, faults: tuple[Fault, ...], *, command: bool = False) -> Outcome:
        """One period: a run per fault, then runs without until it is archived; then everything is checked.

        `command`: those with a fault are `frostline archive` itself, started as a person would.
        """
        self._expire()
        outcome = self._until_done("archive", faults, self._archived, command=command)
        self.period += 1
        self.world.first = self.period
        self.rows = ledger.check(self.world, self.writers)
        self._check_leftovers(faults)
        return outcome

    def coalesce(self, faults: tuple[Fault, ...], periods: int) -> Outcome:
        """The cold periods are joined, so many to one; readers look all the time."""
        self.stage.run(
            "UPDATE frostline.tables SET coalesce_to = %s, coalesce_after = '0' WHERE relation = %s::regclass",
            str(periods * ledger.WIDTH),
            f"public.{self.name}",
        )
        partitions = f"SELECT inhrelid FROM pg_inherits WHERE inhparent = 'public.{self.name}'::regclass"
        left = 2 + -(-self.period // periods)  # the hot partition and the one below all
        outcome = self._until_done("coalesce", faults, lambda: len(self.stage.run(partitions)) == left)
        recorded = self.stage.run(f"SELECT upper FROM frostline.periods WHERE foreign_table IN ({partitions})")
        if len(recorded) != left - 1:
            self.world.wrong.append(f"{_all(faults)}: {left - 1} foreign partitions, {len(recorded)} recorded")
        self.rows = ledger.check(self.world, self.writers)
        return outcome

    def fold(self, faults: tuple[Fault, ...]) -> Outcome:
        """Every cold row is changed, in a column that no writer looks at, and the versions are merged into the lake."""
        cold, note = f"k < {self.period * ledger.WIDTH}", f"fold {self.folds}"
        self.folds += 1
        update = f"UPDATE public.{self.name} SET note = %s WHERE {cold} RETURNING id"
        changed = [id_ for (id_,) in self._retried(update, note)]
        outcome = self._until_done("fold", faults, lambda: not self.stage.run(f"SELECT FROM {self._delta()} LIMIT 1"))
        unchanged = f"SELECT id FROM public.{self.name} WHERE {cold} AND id = ANY(%s) AND note IS DISTINCT FROM %s"
        lost = self.stage.run(unchanged, changed, note)
        if lost:
            self.world.wrong.append(f"{_all(faults)}: changes that were lost: {lost[:3]} of {len(changed)}")
        if running := self.stage.run("SELECT id, kind FROM frostline.operations WHERE state = 'running'"):
            self.world.wrong.append(f"{_all(faults)}: unfinished operations are left: {running}")
        self.rows = ledger.check(self.world, self.writers)
        return outcome

    def _retried(self, statement: str, *values: object) -> list[tuple[Any, ...]]:
        while True:
            with contextlib.suppress(psycopg.errors.SerializationFailure):
                return self.stage.run(statement, *values)

    def clean_under(self, faults: tuple[Fault, ...]) -> Outcome:
        """A commit in the lake that nobody will read, and files of nobody, are removed by runs that meet faults."""
        self._expire()
        act = Act(self.stage, self.name, self.world.wrong)
        self._run(act, "archive", act.answer(Fault("raise", _GIVES_UP)))  # before a gateway has pinned it
        stray = self.stage.directory(self.name) / "data" / "stray.parquet"
        stray.write_bytes(b"PAR1")
        outcome = self._until_done("clean", faults, lambda: not stray.exists())
        self.play(())
        return outcome

    def _until_done(
        self, what: str, faults: tuple[Fault, ...], achieved: Callable[[], bool], *, command: bool = False
    ) -> Outcome:
        """A run per fault, then runs without until one finishes and has achieved it."""
        written, looked = self._acknowledged(), self._looks()
        act = Act(self.stage, self.name, self.world.wrong)
        ends: list[str] = []
        met: list[tuple[Fault, str]] = []
        ended = Ended(killed=False, error=None)
        finished = False
        for fault in faults:
            if finished and achieved():
                break
            ended = self._run(act, what, act.answer(fault), command=command)
            ends.append(_short(ended))
            finished = ended.done
            if act.met(fault, ended):
                met.append((fault, ends[-1]))
        while not finished or not achieved():
            if len(ends) > len(faults) + MOST_RUNS:
                self.world.wrong.append(f"{_all(faults)}: not done after {len(ends)} runs: {ends}")
                break
            # On a slow machine two readers of all rows leave no moment between them, which nobody promised to find.
            if "did not get its lock" in (ended.error or ""):
                self.world.quiet.set()
            ended = self._run(act, what, lambda _point, _pid: True)
            ends.append(_short(ended))
            finished = ended.done
        self.world.quiet.clear()
        written, looked = self._acknowledged() - written, self._looks() - looked
        return Outcome(faults, tuple(met), tuple(ends), written, looked)

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

    def _run(self, act: Act, what: str, answer: Answer, *, command: bool = False) -> Ended:
        table = f"public.{self.name}"
        try:
            return self.stage.command(table, answer) if command else self.stage.work(what, table, answer)
        finally:
            act.over()
            self.stage.heal()

    def _expire(self) -> None:
        """Let the clock pass the end of the next period."""
        upper = (self.period + 1) * ledger.WIDTH
        self.stage.run(
            f"INSERT INTO public.{self.name} (id, k, version, amount, writer) VALUES (%s, %s, 1, 0, 0)"
            " ON CONFLICT DO NOTHING",
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


def every_point(points: list[str]) -> list[tuple[Fault, ...]]:
    """Each of those who can be killed, at each of these by itself; Spark while it works."""
    return [
        (*(Fault("archiver", before) for before in (_BEFORE.get(point),) if before), Fault(victim, point))
        for point in points
        for victim in _KILLED
        if victim != "spark" or point.startswith(_ON_SPARK)
    ]


def in_turn(turn: int, points: list[str]) -> tuple[Fault, ...]:
    """Of an operation that meets its points in one order: so many turns kill each at every one of them.

    A run outlives the gateway, so that is killed once in a turn.
    """
    fatal = [tuple(Fault(victim, point) for point in points) for victim in ("archiver", "postgres")]
    turns = [*fatal, *((Fault("gateway", point),) for point in points)]
    return turns[turn % len(turns)]


def at_random(seed: int) -> tuple[Fault, ...]:
    """One fault, or two in a row."""
    dice = random.Random(seed)
    points = [point for point in ARCHIVING if point not in _BEFORE]
    faults = []
    for number in range(dice.choice((1, 1, 2))):
        victim = dice.choices(VICTIMS, (10, 4, 1, 3, 5, 3, 2, 2, 2, 1))[0]
        point = dice.choice(points if number == 0 else ARCHIVING)
        later = point in _LATER and victim in ("archiver", "spark", "gateway", "postgres") and dice.random() < 0.7
        if victim in ("spark", "disk", "catalog session") and not point.startswith("export"):
            point = dice.choice([p for p in points if p.startswith("export")])
        faults.append(Fault(victim, point, round(dice.uniform(0, 1.0), 2) if later else 0.0))
    return tuple(faults)


def of_others(seed: int, points: list[str]) -> tuple[Fault, ...]:
    """Each point of a coalescing or cleaning run in turn, whatever it happens to."""
    dice = random.Random(seed)
    victims = ("archiver", "raise", "gateway", "postgres", "session")
    return tuple(Fault(dice.choices(victims, (10, 3, 2, 3, 3))[0], point) for point in points)
