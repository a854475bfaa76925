"""Hot and cold rows of one transaction are committed together or not at all, whoever is killed and whenever.

`SOAK_FAULTS=1000` (make soak) plays as many, from a seed that is printed.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from faults import money
from faults.money import Bank, Teller
from faults.stage import Stage, wait_until
from frostline import faults
from frostline.catalog.database import connect
from frostline.faults import APPEND_POINTS, FOLD_POINTS, WRITE_POINTS
from frostline.lake import catalog as lake
from frostline.lake import leftovers
from frostline.tiering import register

SOAK = int(os.environ.get("SOAK_FAULTS", "0"))
SEED = int(os.environ.get("SOAK_SEED", "1"))
VICTIMS = ("postgres", "gateway", "client", "cancel", "terminate", "backing")
ANY_TIME, AFTER_COMMIT = "any time", "after commit"
ANSWERED = "write.answered"
# What a run must have been killed at for the next one to come to a point.
BEFORE = {"append.adopt": "append.commit", "append.anew": "append.begun", "adopt.begin": "merge.commit"}
TABLES = ("accounts", "entries")
Fault = tuple[str, str]


@pytest.fixture(scope="module")
def stage() -> Iterator[Stage]:
    with tempfile.TemporaryDirectory(prefix="frostline-money-") as name, pytest.MonkeyPatch.context() as patch:
        Path(name).chmod(0o755)  # the server's user comes here too
        patch.setenv(faults.VARIABLE, str(Path(name) / "points"))  # the gateway's, whenever it is started
        patch.setenv("FROSTLINE_GATEWAY_BULK_ROWS", str(money.MANY))
        made = Stage(Path(name))
        yield made
        made.close()


@pytest.fixture(scope="module")
def tables(stage: Stage) -> None:
    stage.run(money.TABLES)
    stage.run("ALTER SYSTEM SET deadlock_timeout = '100ms'")
    stage.run("SELECT pg_reload_conf()")
    with connect(stage.dsn) as connection:
        for table in TABLES:
            register.register(connection, f"public.{table}", "3 months")
    for table in TABLES:
        assert stage.work("archive", f"public.{table}", lambda _point, _pid: True).error is None


def plan() -> list[Fault]:
    """Each victim at some point, each point with some victim; the soak has all of them in any order."""
    points = [*WRITE_POINTS, ANY_TIME]
    adding = [("folder", point) for point in APPEND_POINTS]
    if not SOAK:
        around = ("write.stored", "write.commit", ANSWERED)
        killed = [(victim, point) for victim in ("postgres", "gateway") for point in around]
        files = [("gateway", "write.flushed"), ("postgres", AFTER_COMMIT), ("postgres", "append.commit")]
        others = [(VICTIMS[2 + at % 4], points[at % len(points)]) for at in range(8)]
        return [*killed, *files, ("gateway", "write.held"), *others, *adding]
    folding = [*APPEND_POINTS, *FOLD_POINTS]
    every = [(victim, point) for victim in VICTIMS for point in points]
    every += [(victim, point) for victim in ("folder", "postgres", "gateway") for point in folding]
    every += [("postgres", AFTER_COMMIT)] * 10
    every *= 1 + SOAK // len(every)
    random.Random(SEED).shuffle(every)
    return every[:SOAK]


def strike(stage: Stage, victim: str, tellers: list[Teller]) -> None:
    ours = [t.connection.info.backend_pid for t in tellers if t.connection is not None and not t.connection.closed]
    match victim:
        case "postgres":
            stage.kill_postgres()
        case "gateway":
            stage.kill_gateway()
        case "client":
            random.choice(tellers).disconnect()
        case "cancel":
            stage.run("SELECT pg_cancel_backend(pid) FROM unnest(%s::int[]) pid", ours)
        case "terminate":
            stage.run("SELECT pg_terminate_backend(pid) FROM unnest(%s::int[]) pid", ours)
        case "backing":
            query = (
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'frostline gateway'"
            )
            stage.run(query)


def play(stage: Stage, fault: Fault, tellers: list[Teller]) -> None:
    """The fault happens when somebody comes to its point; who announced it waits meanwhile."""
    victim, point = fault
    if point in WRITE_POINTS:
        at_a_write(stage, fault, tellers)
    elif point == ANY_TIME:
        time.sleep(random.random() / 2)
        strike(stage, victim, tellers)
    elif point == AFTER_COMMIT:
        wait_until(lambda: tellers[1].has_just_stored_many, 120, "entries in a file that are perhaps not on the disk")
        strike(stage, victim, tellers)
    else:
        at_a_fold(stage, fault, tellers)
    if victim in ("postgres", "gateway"):
        stage.heal()


def at_a_write(stage: Stage, fault: Fault, tellers: list[Teller]) -> None:
    victim, point = fault
    met, stopped = threading.Event(), list[int]()

    def answer(reached: str, _pid: int) -> bool:
        if point == ANSWERED and reached == "write.commit" and not stopped:
            stopped.extend(stop_committing(stage))
        if reached == point and not met.is_set() and (stopped or point != ANSWERED):
            strike(stage, victim, tellers)
            met.set()
        return True

    stage.points.answer = answer
    try:
        wait_until(met.is_set, 120, f"{victim} at {point}")
    finally:
        stage.points.answer = lambda _point, _pid: True
        for pid in stopped:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)


def stop_committing(stage: Stage) -> list[int]:
    """Sessions that wait for the gateway before they commit do not go on when they have its answer, until told to."""
    query = (
        "SELECT pid FROM pg_stat_activity WHERE query = 'COMMIT' AND state = 'active' AND wait_event_type = 'Extension'"
    )
    found = [pid for (pid,) in stage.run(query)]
    for pid in found:
        os.kill(pid, signal.SIGSTOP)
    return found


def at_a_fold(stage: Stage, fault: Fault, tellers: list[Teller]) -> None:
    """A fold of the entries, or what it begins with, meets the fault; the next one finishes what it left."""
    victim, point = fault
    what = "append" if point in APPEND_POINTS else "fold"
    for struck, at in ((victim, point),) if point not in BEFORE else (("folder", BEFORE[point]), (victim, point)):
        wait_until(lambda: waiting(stage), 120, "entries in files")
        met = threading.Event()

        def answer(reached: str, pid: int, struck: str = struck, at: str = at, met: threading.Event = met) -> bool:
            if reached == at and not met.is_set():
                met.set()
                if struck == "folder":
                    os.kill(pid, signal.SIGKILL)
                else:
                    strike(stage, struck, tellers)
            return True

        ended = stage.work(what, "public.entries", answer)
        assert met.is_set(), (fault, at, ended)
        assert ended.killed == (struck == "folder"), (fault, ended)


def waiting(stage: Stage) -> bool:
    return stage.run("SELECT EXISTS (SELECT FROM frostline.staged_files)") == [(True,)]


def nothing_is_left(stage: Stage, bank: Bank) -> None:
    """All is added and what nobody refers to removed: no file of a transaction that never was is there."""
    for what in ("fold" if SOAK else "append", "clean"):
        assert stage.work(what, "public.entries", lambda _point, _pid: True).error is None
    assert not waiting(stage)
    with lake.opened(stage.settings) as catalog:
        named = leftovers.referenced(catalog.load_table(("public", "entries")))
    names = {path.rpartition("/")[2] for path in named}
    left = {path.name for path in stage.directory("entries").rglob("*.parquet")} - names
    assert not left
    bank.look()
    assert stage.run("SELECT id, kind FROM frostline.operations WHERE state = 'running'") == []


def settled(bank: Bank, tellers: list[Teller]) -> None:
    """Everybody goes on, and what they know is so."""
    before = [teller.done for teller in tellers]
    wait_until(
        lambda: bool(bank.wrong) or all(t.done > was for t, was in zip(tellers, before, strict=True)),
        120,
        f"everybody goes on ({bank.errors})",
    )
    crashes = bank.crashes()
    known = [list(teller.moves) for teller in tellers]
    found = bank.look()
    for teller, moves in zip(tellers, known, strict=True):
        bank.wrong += teller.check(moves, found, crashes)


@pytest.mark.usefixtures("tables")
def test_money_is_neither_made_nor_lost(stage: Stage) -> None:
    random.seed(SEED)
    bank = Bank(stage.dsn, crashes=lambda: stage.crashes)
    tellers = [Teller(bank, n, SEED + n, pinned=n == 2, asynchronous=n == 1) for n in range(3)]
    watching = threading.Thread(target=watch, args=(bank,), daemon=True)
    for thread in (*tellers, watching):
        thread.start()
    try:
        settled(bank, tellers)
        for number, fault in enumerate(plan(), 1):
            play(stage, fault, tellers)
            if fault[0] != "folder":  # nobody else has to begin anew
                settled(bank, tellers)
            assert not bank.wrong, f"seed {SEED}, fault {number}, {fault}: {bank.wrong}"
            if SOAK:
                print(f"seed {SEED}: {number} of {SOAK}, {bank.errors}", file=sys.stderr)  # noqa: T201
    finally:
        bank.stop.set()
        for thread in (*tellers, watching):
            thread.join(30)
    found = bank.look()
    for teller in tellers:
        bank.wrong += teller.check(teller.moves, found, bank.crashes())
    nothing_is_left(stage, bank)
    assert bank.look() == found
    assert not bank.wrong
    assert {*WRITE_POINTS, *APPEND_POINTS} <= set(stage.points.seen)


def watch(bank: Bank) -> None:
    """Looks all the time; only what is there must be right."""
    while not bank.stop.is_set():
        try:
            bank.look()
        except psycopg.Error:
            time.sleep(0.05)
