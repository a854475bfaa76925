"""Statements known again by all but their period and their cursor's name."""

from __future__ import annotations

import pytest

from frostline.gateway import lexer, statements
from frostline.gateway.names import parse_source
from frostline.gateway.statements import declared_again, remember, statement

JANUARY = '"table 1"."from 2026-01-01 00:00:00+00 to 2026-02-01 00:00:00+00"'
MAY = '"table 1"."from 2026-05-01 00:00:00+00 to 2026-06-01 00:00:00+00"'


@pytest.fixture(autouse=True)
def nothing_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(statements, "_known", {})


def declared(text: str) -> statements.Statement:
    """As the executor takes it apart."""
    tokens = lexer.tokens(text)
    at = lexer.clause(tokens, "for")
    assert at is not None
    return statement(text, tokens[at + 1 :])


def known_again(first: str, second: str) -> tuple[str, object, statements.Statement] | None:
    remember(declared(first))
    return declared_again(second)


def test_another_period_under_another_name() -> None:
    text = "DECLARE c{} CURSOR FOR\nSELECT id FROM {} WHERE ((t = 'a\"b'))"
    found = known_again(text.format(1, JANUARY), text.format(27, MAY))
    assert found is not None
    name, source, first = found
    assert (name, source) == ("c27", parse_source("table 1", MAY.split('"')[3]))
    # What is kept is what taking the second apart would give.
    assert first == declared(text.format(27, MAY))
    assert [token[:2] for token in first.tokens if token.kind != "quoted"] == [
        token[:2] for token in declared(text.format(27, MAY)).tokens if token.kind != "quoted"
    ]


@pytest.mark.parametrize(
    ("first", "second"),
    [
        # Another constant, another column, another source beside it.
        (f"SELECT id FROM {JANUARY} WHERE ((id = 1))", f"SELECT id FROM {MAY} WHERE ((id = 2))"),
        (f"SELECT id FROM {JANUARY}", f"SELECT ts FROM {MAY}"),
        (f"SELECT 1 FROM {JANUARY} r1 INNER JOIN {JANUARY} r2 ON (true)", f"SELECT 1 FROM {MAY} r1"),
        # No source at all: a name inside a constant, and one of an operation.
        (f"SELECT '{JANUARY}' FROM {JANUARY}", f"SELECT '{MAY}' FROM {JANUARY}"),
        (
            'SELECT 1 FROM "table 1 operation 2 snapshot 00000003-0000001B-1"."from MINVALUE to 2026-01-01"',
            'SELECT 1 FROM "table 1 operation 2 snapshot 00000003-0000001B-1"."from MINVALUE to 2026-02-01"',
        ),
    ],
)
def test_whatever_else_differs_is_taken_apart(first: str, second: str) -> None:
    assert known_again(f"DECLARE c1 CURSOR FOR\n{first}", f"DECLARE c2 CURSOR FOR\n{second}") is None


def test_a_join_is_not_kept() -> None:
    text = f"DECLARE c1 CURSOR FOR\nSELECT 1 FROM {JANUARY} r1 INNER JOIN {MAY} r2 ON (true)"
    assert known_again(text, text) is None
