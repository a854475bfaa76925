"""Questions to Postgres that are sent before they are asked: their answers are taken, by whoever asks next."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest

from frostline.errors import QueryError
from frostline.gateway.backing import Backing
from frostline.gateway.cancel import Canceller

ONE, TWO = "SELECT 1", "SELECT 2"


@pytest.fixture
def canceller() -> Canceller:
    return Canceller()


@pytest.fixture
def backing(dsn: str, canceller: Canceller) -> Iterator[Backing]:
    opened = Backing(dsn, canceller)
    opened.begin()
    yield opened
    opened.close()


def numbers(backing: Backing) -> tuple[bytes | None, list[bytes | None]]:
    """By one way of asking, and by another."""
    return backing.answer(ONE).get_value(0, 0), [result.get_value(0, 0) for result in backing.batch([TWO, ONE])]


def test_what_was_asked_ahead_is_answered_once(backing: Backing) -> None:
    backing.ahead([ONE])
    assert numbers(backing) == (b"1", [b"2", b"1"])
    assert numbers(backing) == (b"1", [b"2", b"1"])


def test_another_question_comes_between(backing: Backing) -> None:
    backing.ahead([TWO])
    assert numbers(backing) == (b"1", [b"2", b"1"])
    backing.ahead([TWO])
    assert backing.connection.execute("SELECT 3").fetchone() == (3,)
    backing.ahead([TWO])
    backing.ahead([ONE])
    assert numbers(backing) == (b"1", [b"2", b"1"])


def test_nobody_asks_and_the_transaction_ends(backing: Backing) -> None:
    for question in (ONE, "SELECT 1 / 0"):
        backing.ahead([question])
        backing.end()
        backing.begin()
        assert numbers(backing) == (b"1", [b"2", b"1"])


def test_what_fails_fails_for_whoever_asks_next(backing: Backing) -> None:
    backing.ahead(["SELECT 1 / 0"])
    with pytest.raises(psycopg.errors.DivisionByZero):
        backing.answer(ONE)
    backing.end()
    backing.begin()
    assert numbers(backing) == (b"1", [b"2", b"1"])


def test_a_cancelled_session_goes_on_afterwards(backing: Backing, canceller: Canceller) -> None:
    """Between the question and its answer, and between an early beginning and the beginning."""
    backing.ahead([ONE])
    canceller.begin()
    canceller.cancel_once()
    with pytest.raises(QueryError, match="canceling statement"):
        backing.answer(ONE)
    canceller.finish()
    canceller.begin()
    assert numbers(backing) == (b"1", [b"2", b"1"])
    backing.end()
    backing.begin_early([ONE])
    canceller.cancel_once()
    with pytest.raises(QueryError, match="canceling statement"):
        backing.begin(questions=[ONE])
    canceller.begin()
    assert [result.get_value(0, 0) for result in backing.begin(questions=[TWO, ONE])] == [b"2", b"1"]
    assert numbers(backing) == (b"1", [b"2", b"1"])


@pytest.mark.parametrize("questions", [[ONE], [TWO], [TWO, ONE], []])
def test_a_transaction_begun_early_answers_what_is_asked(backing: Backing, questions: list[str]) -> None:
    for early in ([ONE], ["SELECT 1 / 0"]):
        backing.end()
        backing.begin_early(early)
        found = backing.begin(questions=questions, asked_at=0)
        assert [f"SELECT {(result.get_value(0, 0) or b'').decode()}" for result in found] == questions
        assert numbers(backing) == (b"1", [b"2", b"1"])


def test_what_goes_along_is_done_once_whatever_fails_behind_it(backing: Backing) -> None:
    backing.batch(["DECLARE gone CURSOR FOR SELECT 1"])
    backing.later("CLOSE gone")
    with pytest.raises(psycopg.errors.DivisionByZero):
        backing.batch(["SELECT 1 / 0"])
    assert backing.answer("SELECT count(*) FROM pg_cursors").get_value(0, 0) == b"0"
    assert numbers(backing) == (b"1", [b"2", b"1"])


def test_a_text_that_is_no_sql_is_what_is_told(backing: Backing) -> None:
    with pytest.raises(psycopg.errors.SyntaxError):
        backing.batch(["no SQL at all"])
    backing.end()
    backing.begin()
    assert numbers(backing) == (b"1", [b"2", b"1"])


def test_several_questions_ahead_are_answered_in_any_order(backing: Backing) -> None:
    backing.ahead([ONE, TWO])
    assert backing.answer(TWO).get_value(0, 0) == b"2"
    assert backing.answer(ONE).get_value(0, 0) == b"1"
    assert numbers(backing) == (b"1", [b"2", b"1"])


def test_what_came_with_the_beginning_is_the_first_statement_s(backing: Backing) -> None:
    """A number for a new version that nobody has used is older than what was written since."""
    clock = "SELECT clock_timestamp()"
    told = []
    for later in (False, True):
        backing.end()
        backing.begin_early([ONE, clock])
        assert [result.get_value(0, 0) for result in backing.begin(questions=[ONE], asked_at=0)] == [b"1"]
        began = backing.connection.execute(clock).fetchone()
        if later:
            backing.went_on()
        backing.ahead([clock])
        told.append(
            backing.connection.execute(
                "SELECT %s::timestamptz > %s",
                [(backing.answer(clock).get_value(0, 0) or b"").decode(), began[0] if began else None],
            ).fetchone()
        )
        backing.ahead([clock, TWO])
        assert numbers(backing) == (b"1", [b"2", b"1"])
    assert told == [(False,), (True,)]
