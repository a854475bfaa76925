"""A plain table whose key or name is altered while it is being partitioned."""

from __future__ import annotations

import pytest

from frostline.catalog.database import connect
from frostline.errors import OperationError
from frostline.tiering.locks import Wanted
from frostline.tiering.partition import run
from frostline.tiering.partition.plan import Choice
from integration.tiering.test_partition import (
    BY_TS,
    EVENTS,
    execute,
    installed,
    nothing_left,
    partition,
    while_it_copies,
)

__all__ = ["installed"]


def die() -> None:
    raise RuntimeError("enough")


@pytest.mark.parametrize(
    ("alter", "back"),
    [
        ("ALTER TABLE public.events RENAME id TO nr", "ALTER TABLE public.events RENAME nr TO id"),
        (
            "ALTER TABLE public.events ALTER id TYPE bigint",
            "DELETE FROM public.events WHERE id > 2000000000;ALTER TABLE public.events ALTER id TYPE int",
        ),
    ],
)
def test_nobodys_write_fails(installed: str, monkeypatch: pytest.MonkeyPatch, alter: str, back: str) -> None:
    execute(installed, EVENTS)
    while_it_copies(monkeypatch, "partition.batch", die)
    with pytest.raises(RuntimeError, match="enough"):
        partition(installed, "public.events", BY_TS)
    execute(installed, alter)
    execute(installed, "INSERT INTO public.events VALUES (3000000, '2024-01-01', 'x')")
    if "bigint" in alter:
        execute(installed, "INSERT INTO public.events VALUES (3000000000, '2024-01-01', 'x')")
    execute(installed, back)
    wanted = execute(installed, "SELECT * FROM public.events ORDER BY id")
    if "RENAME" in alter:  # a row was not logged
        with pytest.raises(OperationError, match="is not what the table is"):
            partition(installed, "public.events", Choice(""))
        with connect(installed) as connection:
            run.abandon(connection, "public.events", Wanted())
        partition(installed, "public.events", BY_TS)
    else:
        partition(installed, "public.events", Choice(""))
    assert execute(installed, "SELECT * FROM public.events ORDER BY id") == wanted


def test_unlogged_between_compare_and_swap(installed: str, monkeypatch: pytest.MonkeyPatch) -> None:
    execute(installed, EVENTS)
    todo = [
        "ALTER TABLE public.events RENAME id TO nr; INSERT INTO public.events VALUES (3000000, '2024-01-01', 'x');"
        "ALTER TABLE public.events RENAME nr TO id"
    ]

    def reached(here: str) -> None:
        if here == "partition.verified" and todo:
            execute(installed, todo.pop())

    monkeypatch.setattr(run, "reached", reached)
    with pytest.raises(OperationError, match=r"altered meanwhile \(its rows\)"):
        partition(installed, "public.events", BY_TS)


def test_renamed_and_abandoned(installed: str, monkeypatch: pytest.MonkeyPatch) -> None:
    execute(installed, EVENTS)
    while_it_copies(monkeypatch, "partition.batch", die)
    with pytest.raises(RuntimeError, match="enough"):
        partition(installed, "public.events", BY_TS)
    execute(installed, "ALTER TABLE public.events RENAME TO happenings")
    with connect(installed) as connection:
        run.abandon(connection, "public.happenings", Wanted())
    assert nothing_left(installed)
    assert execute(installed, "SELECT count(*) FROM pg_trigger WHERE NOT tgisinternal") == [(0,)]
