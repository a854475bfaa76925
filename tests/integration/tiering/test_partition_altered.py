"""A plain table whose rows are others once the copy was compared with it is not exchanged for that copy."""

from __future__ import annotations

import pytest

from frostline.errors import OperationError
from frostline.tiering.partition import run
from frostline.tiering.partition.plan import Choice
from integration.tiering.test_partition import BY_TS, EVENTS, execute, installed, partition

__all__ = ["installed"]  # a fixture

ROWS = "SELECT * FROM public.events ORDER BY id"
CHANGES = {
    "a column of the same name": "ALTER TABLE public.events DROP v, ADD v text",
    "other values of the same type": "ALTER TABLE public.events ALTER v TYPE text USING 'new ' || v",
}


def once_compared(monkeypatch: pytest.MonkeyPatch, dsn: str, statement: str) -> None:
    """Run a statement when the first run has found the copy to be what the table is."""
    statements = [statement]

    def reached(here: str) -> None:
        if here == "partition.verified" and statements:
            execute(dsn, statements.pop())

    monkeypatch.setattr(run, "reached", reached)


@pytest.mark.parametrize("change", sorted(CHANGES))
def test_what_no_trigger_sees_stops_the_exchange(installed: str, monkeypatch: pytest.MonkeyPatch, change: str) -> None:
    execute(installed, EVENTS)
    once_compared(monkeypatch, installed, CHANGES[change])
    with pytest.raises(OperationError, match=r"altered meanwhile \(its rows\)"):
        partition(installed, "public.events", BY_TS)
    wanted = execute(installed, ROWS)
    with pytest.raises(OperationError, match="is not what the table is"):
        partition(installed, "public.events", Choice(""))
    assert execute(installed, ROWS) == wanted


def test_a_table_that_was_only_rewritten_is_exchanged_by_the_next_run(
    installed: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    execute(installed, EVENTS)
    wanted = execute(installed, ROWS)
    once_compared(monkeypatch, installed, "VACUUM FULL public.events")
    with pytest.raises(OperationError, match=r"altered meanwhile \(its rows\)"):
        partition(installed, "public.events", BY_TS)
    partition(installed, "public.events", Choice(""))
    assert execute(installed, ROWS) == wanted
