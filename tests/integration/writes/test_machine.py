"""Any history of transactions ends with the rows a plain table has, and every statement of it has the same result.

`make soak` lets it run longer.
"""

from __future__ import annotations

import os
from typing import Any

import psycopg
import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule, run_state_machine_as_test
from psycopg.sql import SQL

from fix_tiering import World
from integration.writes import machine
from integration.writes.machine import BLOCKS, CLASSES, LEVELS, READS, TIERED, WRITES, Session, in_class

SOAK = "SOAK_EXAMPLES" in os.environ
# Histories for each database.
EXAMPLES = int(os.environ.get("SOAK_EXAMPLES", "800")) // 100
STEPS = 25
DEPTH = 3  # of savepoints
NUMBERS, CLASS = st.integers(0, 1), st.integers(0, CLASSES - 1)


class Histories(RuleBasedStateMachine):
    """Two sessions; a class of ids belongs to one of them while it has a transaction open."""

    sessions: tuple[Session, ...]
    reader: psycopg.Connection[Any]

    def __init__(self) -> None:
        super().__init__()
        self.clock = 0
        self.committed = [0] * CLASSES  # when each class was changed last

    @initialize()
    def start(self) -> None:
        for session in self.sessions:
            session.reset()
        machine.reset(self.reader)

    def teardown(self) -> None:
        for session in self.sessions:
            session.reset()

    @rule(number=NUMBERS, level=LEVELS)
    def begin(self, number: int, level: str) -> None:
        session = self.sessions[number]
        if session.began is None:
            session.run(f"BEGIN ISOLATION LEVEL {level}")
            self.clock += 1
            session.began = self.clock

    @rule(number=NUMBERS, cls=CLASS, statement=WRITES)
    def write(self, number: int, cls: int, statement: str) -> None:
        self._run(number, cls, statement)

    @rule(number=NUMBERS, cls=CLASS, statement=WRITES)
    def write_again(self, number: int, cls: int, statement: str) -> None:
        """Rules are chosen with equal chances."""
        self._run(number, cls, statement)

    @rule(number=NUMBERS, cls=CLASS, statement=BLOCKS)
    def write_in_a_block(self, number: int, cls: int, statement: str) -> None:
        self._run(number, cls, statement)

    @rule(number=NUMBERS, cls=CLASS, statement=READS)
    def read(self, number: int, cls: int, statement: str) -> None:
        self._run(number, cls, statement)

    def _run(self, number: int, cls: int, statement: str) -> None:
        session = self.sessions[number]
        if not self._may(session, cls):
            return
        session.classes.add(cls)
        session.run(in_class(statement, cls))
        if session.failed:
            self._undo(session)
        elif session.began is None:
            self._over(session)

    @precondition(lambda self: any(session.began is not None for session in self.sessions))
    @rule(number=NUMBERS)
    def savepoint(self, number: int) -> None:
        session = self.sessions[number]
        if session.began is not None and len(session.savepoints) < DEPTH:
            session.savepoints.append(f"s{len(session.savepoints)}")
            session.run(f"SAVEPOINT {session.savepoints[-1]}")

    @precondition(lambda self: any(session.savepoints for session in self.sessions))
    @rule(number=NUMBERS, back=st.integers(0, 2), release=st.booleans())
    def leave_savepoint(self, number: int, back: int, release: bool) -> None:
        session = self.sessions[number]
        if session.savepoints:
            at = max(len(session.savepoints) - 1 - back, 0)
            session.run(f"{'RELEASE' if release else 'ROLLBACK TO'} {session.savepoints[at]}")
            del session.savepoints[at if release else at + 1 :]

    @precondition(lambda self: any(session.began is not None for session in self.sessions))
    @rule(number=NUMBERS, commit=st.sampled_from([True, True, False]))
    def end(self, number: int, commit: bool) -> None:
        session = self.sessions[number]
        if session.began is not None:
            session.run("COMMIT" if commit else "ROLLBACK")
            self._over(session)

    @precondition(lambda self: any(session.began is not None for session in self.sessions))
    @rule(number=NUMBERS, cls=CLASS, statement=WRITES)
    def come_too_late(self, number: int, cls: int, statement: str) -> None:
        """Others have changed the class since: whether it is refused or not, nothing of a lost race may stay."""
        session = self.sessions[number]
        if session.began is None or self.committed[cls] < session.began or self._taken(session, cls):
            return
        machine.outcome_of(session.connections[0], in_class(statement, cls).replace("{t}", TIERED))
        session.run("ROLLBACK")
        self._over(session)

    def _taken(self, session: Session, cls: int) -> bool:
        return any(other is not session and cls in other.classes for other in self.sessions)

    def _may(self, session: Session, cls: int) -> bool:
        return not self._taken(session, cls) and (session.began is None or self.committed[cls] < session.began)

    def _undo(self, session: Session) -> None:
        if session.savepoints:
            session.run(f"ROLLBACK TO {session.savepoints[-1]}")
        else:
            session.run("ROLLBACK")
            self._over(session)

    def _over(self, session: Session) -> None:
        self.clock += 1
        for cls in session.classes:
            self.committed[cls] = self.clock
        session.forget()
        machine.same_rows(self.reader)


def test_histories(moving: World) -> None:
    class Here(Histories):
        sessions = Session(moving), Session(moving)
        reader = moving.connect()

    run_state_machine_as_test(
        Here,
        settings=settings(
            max_examples=max(EXAMPLES, 1),
            stateful_step_count=STEPS * 2 if SOAK else STEPS,
            deadline=None,
            database=None,
            derandomize=not SOAK,
            suppress_health_check=list(HealthCheck),
            phases=[Phase.explicit, Phase.generate, *([Phase.shrink] if SOAK else [])],
        ),
    )


def test_explain_tells_a_look_up_that_does_without_duckdb(moving: World) -> None:
    client = moving.connect()
    machine.reset(client)
    (id_, moment) = client.execute(f"SELECT id, ts FROM {machine.TIERED} WHERE ts < '2026-02-01Z'").fetchone() or (0, 0)

    def engine(more: str = "") -> str:
        query = f"SELECT id, t FROM {machine.TIERED} WHERE id = {id_} AND ts = '{moment}'{more}"
        (found,) = client.execute(
            "SELECT engine FROM frostline.explain(%s) WHERE tier = 'cold'", [query]
        ).fetchone() or ("",)
        return str(found)

    assert engine() == "a look-up in the data file"
    assert engine(" AND i < 1000000") == "a look-up in the data file"
    assert engine(" AND i + 0 < 1000") == "DuckDB"
    with client.transaction(force_rollback=True):
        client.execute(f"UPDATE {machine.TIERED} SET i = 1 WHERE id = {id_} AND ts = '{moment}'")
        assert engine() == "a look-up in the delta"
        assert engine(" AND i = 1") == "DuckDB"  # whether the version is such a row has to be seen


def test_versions_that_could_not_be_loaded_leave_nothing_in_duckdb(moving: World) -> None:
    def loaded() -> set[tuple[str]]:
        with moving.gateway._engine.cursor() as cursor:
            return set(cursor.execute("SELECT table_name FROM duckdb_tables()").fetchall())

    client, before = moving.connect(), loaded()
    with client.transaction():
        client.execute(f"SELECT count(*) FROM {TIERED} WHERE ts < '2026-02-01Z' AND i > 3")
        views = [found.session.executor.view for found in moving.gateway._current() if found.session is not None]
        (view,) = (view for view in views if view.backing.open)
        (table,) = view._tables.values()
        with pytest.raises(psycopg.errors.DivisionByZero):
            view._load_delta(table, SQL("1 / 0 = 1"))
        assert len(loaded() - before) == 1
    assert client.execute(f"SELECT count(*) FROM {TIERED} WHERE id < 0").fetchone() == (0,)
    assert loaded() <= before
