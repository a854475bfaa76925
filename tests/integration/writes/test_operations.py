"""The table of operations in docs/writes.md: every example goes the way it says."""

from __future__ import annotations

import re
from pathlib import Path

import psycopg
import pytest

from frostline.gateway.operations import OPERATIONS, Operation, Way, written
from integration.writes.pair import Pair


def ways(pair: Pair) -> dict[str, int]:
    found = re.findall(r'writes_total\{way="(\w+)"\} (\d+)', pair.world.gateway._metrics.text())
    return {way: int(count) for way, count in found}


@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda one: one.what)
def test_an_operation_goes_its_way(direct: Pair, operation: Operation) -> None:
    client = direct.world.connect()
    names = {"{t}": "direct", "{hot}": "direct_hot"}
    recent, old = (
        re.sub(r"\{\w+\}", lambda found: names[found[0]], text) for text in (operation.recent, operation.old)
    )
    before = ways(direct)
    with client.transaction(force_rollback=True):
        client.execute(recent)
    assert ways(direct) == before
    if isinstance(operation.way, Way):
        with client.transaction(force_rollback=True):
            assert client.execute(old).rowcount > 0 or "NOTHING" in old
        assert {way for way, count in ways(direct).items() if count > before.get(way, 0)} == {str(operation.way)}
        return
    with pytest.raises(psycopg.Error) as error:
        client.execute(old)
    assert error.value.sqlstate == operation.way


def test_the_page_has_this_table() -> None:
    page = Path(__file__).parents[3] / "docs" / "writes.md"
    assert written(page.read_text()) == page.read_text(), "run `make docs`"
