"""A plain table given the same statements ends with the same rows and has returned the same results."""

from __future__ import annotations

import pytest

from integration.writes.pair import Pair
from integration.writes.scripts import OLD_AND_NEW, SCRIPTS, SINGLE


def test_one_statement(pair: Pair) -> None:
    for statement in SINGLE:
        pair.same([statement], fresh=False)


def test_statements_that_are_sent_whole(direct: Pair) -> None:
    """A table with a generated column has none of them."""
    plan = direct.world.run("EXPLAIN UPDATE direct SET i = 0 WHERE id = 5")
    assert any("Foreign Update on direct_2026_01" in line for (line,) in plan)
    for statement in SINGLE:
        if statement.startswith(("UPDATE", "DELETE", "WITH")):
            direct.same([statement], fresh=False)


def test_rows_as_they_were_and_as_they_are(pair: Pair, direct: Pair) -> None:
    if pair.world.run("SELECT current_setting('server_version_num')::int >= 180000") == [(False,)]:
        pytest.skip("since Postgres 18")
    for statement in OLD_AND_NEW:
        for one in (pair, direct):
            (tag, _), _ = one.same([statement], fresh=False)
            assert tag.startswith(("UPDATE", "DELETE", "INSERT", "SELECT")), statement


def test_transactions_of_statements_that_are_sent_whole(direct: Pair) -> None:
    for script in SCRIPTS:
        direct.same(script)


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script[0][:40])
def test_a_transaction(pair: Pair, script: list[str]) -> None:
    pair.same(script)
