"""The table of operations in docs/writes.md: every example goes the way it says."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import psycopg
import pytest

from frostline.gateway.operations import OPERATIONS, Operation, Way, written
from integration.writes.pair import Pair


def ways(pair: Pair) -> dict[str, int]:
    found = re.findall(r'writes_total\{way="(\w+)"\} (\d+)', pair.world.gateway._metrics.text())
    return {way: int(count) for way, count in found}


def example(pair: Pair, text: str) -> str:
    table = pair.tables[0]
    return text.replace("{t}", table).replace("{hot}", f"{table}_hot")


def do(client: psycopg.Connection[Any], text: str) -> int:
    """Run an example; how many rows its last statement says it changed."""
    if text.startswith("COPY"):
        command, _, data = text.partition("\n")
        cursor = client.cursor()
        with cursor.copy(command) as copy:
            copy.write(data)
        return cursor.rowcount
    return [client.execute(statement).rowcount for statement in text.split("; ")][-1]


def tiers(pair: Pair, client: psycopg.Connection[Any]) -> list[list[tuple[Any, ...]]]:
    query = f"SELECT id, ts, i FROM {pair.tables[0]} WHERE ts {{}} '2026-11-01Z' ORDER BY id, ts"
    return [client.execute(query.format(side)).fetchall() for side in ("<", ">=")]


def refused(client: psycopg.Connection[Any], text: str) -> str | None:
    with pytest.raises(psycopg.Error) as error, client.transaction():
        do(client, text)
    return error.value.sqlstate


@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda one: one.what)
def test_an_operation_goes_its_way(pair: Pair, operation: Operation, request: pytest.FixtureRequest) -> None:
    del pair  # on each Postgres
    fixtures: dict[Way | str, str] = {Way.FILES: "bulk", Way.GIVEN: "narrow"}
    table: Pair = request.getfixturevalue(fixtures.get(operation.way, "direct"))
    client = table.world.connect()
    recent, old, together = (example(table, text) for text in (operation.recent, operation.old, operation.together))
    before, rows = ways(table), tiers(table, client)
    with client.transaction(force_rollback=True):
        assert do(client, recent) != 0
        assert tiers(table, client)[0] == rows[0]
    assert ways(table) == before
    if isinstance(operation.way, Way):
        with client.transaction(force_rollback=True):
            assert do(client, old) > 0
            assert tiers(table, client)[0] != rows[0]
        taken = {way for way, count in ways(table).items() if count > before.get(way, 0)}
        assert taken == {str(operation.way)} | ({"batch"} if operation.way is Way.FILES else set())
    else:
        assert refused(client, old) == operation.way
    if operation.both is not None:
        assert refused(client, together) == operation.both
    else:
        with client.transaction(force_rollback=True):
            assert do(client, together) > 0
            changed = tiers(table, client)
            assert (changed[0] != rows[0], changed[1] != rows[1]) == (True, True)
    assert tiers(table, client) == rows


def test_the_page_has_this_table() -> None:
    page = Path(__file__).parents[3] / "docs" / "writes.md"
    assert written(page.read_text()) == page.read_text(), "run `make docs`"
