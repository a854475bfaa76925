"""A plain table given the same statements ends with the same rows and has returned the same results."""

from __future__ import annotations

import pytest

from integration.writes.pair import Pair
from integration.writes.scripts import SCRIPTS, SINGLE


@pytest.mark.parametrize("statement", SINGLE)
def test_one_statement(pair: Pair, statement: str) -> None:
    pair.same([statement])


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script[0][:40])
def test_a_transaction(pair: Pair, script: list[str]) -> None:
    pair.same(script)
