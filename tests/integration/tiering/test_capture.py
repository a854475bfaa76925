"""What is written to a leaf on its way to the lake is captured, or the leaf stays: whoever writes, however he does."""

from __future__ import annotations

import psycopg
import pytest

from fix_tiering import World
from frostline.errors import OperationError
from frostline.pipeline import export as pipeline
from frostline.tiering.archive import capture, swap
from integration.tiering.test_hostile import SIMPLE, before


def test_triggers_that_were_switched_off_and_on_as_they_were_are_noticed(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.run(SIMPLE)
    world.register("public.events")
    switch = 'ALTER TABLE public.events_01 {} TRIGGER "!frostline capture"'

    def act() -> None:
        world.run(switch.format("DISABLE"))
        world.run("UPDATE public.events SET v = -1 WHERE id = 5; DELETE FROM public.events WHERE id = 6")
        world.run(switch.format("ENABLE ALWAYS"))

    before(monkeypatch, swap, "swap", act)
    with pytest.raises(OperationError, match="had its triggers switched off meanwhile"):
        world.archive("public.events")
    assert world.run("SELECT id, v FROM public.events WHERE id IN (5, 6)") == [(5, -1)]
    assert len(world.archive("public.events")) == 1
    assert world.run("SELECT id, v FROM public.events WHERE id IN (5, 6)") == [(5, -1)]


def test_a_row_that_a_policy_hides_from_the_capture_is_not_taken_for_deleted(
    keeper: World, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.run("GRANT CREATE ON SCHEMA public TO PUBLIC")
    keeper.run(
        SIMPLE + "ALTER TABLE public.events_01 ENABLE ROW LEVEL SECURITY;"
        "CREATE POLICY half ON public.events_01 USING (id < 100)"
    )
    keeper.register("public.events")

    def act() -> None:
        keeper.run("ALTER TABLE public.events_01 FORCE ROW LEVEL SECURITY")
        world.run("UPDATE public.events SET v = -1 WHERE id = 500")
        keeper.run("ALTER TABLE public.events_01 NO FORCE ROW LEVEL SECURITY")

    before(monkeypatch, swap, "swap", act)
    with pytest.raises(OperationError, match="it stays in Postgres"):
        keeper.archive("public.events")
    assert world.run("SELECT v FROM public.events WHERE id = 500") == [(-1,)]
    assert len(keeper.archive("public.events")) == 1
    assert world.run("SELECT v FROM public.events WHERE id = 500") == [(-1,)]


@pytest.mark.parametrize("level", ["REPEATABLE READ", "SERIALIZABLE"])
def test_a_key_that_was_deleted_since_a_transaction_s_snapshot_can_be_inserted_there(
    world: World, monkeypatch: pytest.MonkeyPatch, level: str
) -> None:
    """It sees the old row and its own; the capture must take its own."""
    world.run(SIMPLE)
    world.register("public.events")
    client = world.connect(autocommit=False)

    def look() -> None:
        client.execute(f"SET TRANSACTION ISOLATION LEVEL {level}")
        client.execute("SELECT count(*) FROM pg_class")
        world.run("DELETE FROM public.events WHERE id IN (5, 6)")

    def write() -> None:
        client.execute("INSERT INTO public.events VALUES (5, timestamptz '2020-01-01' + interval '5 h', -5)")
        client.execute("UPDATE public.events SET id = 6, ts = ts - interval '1 h' WHERE id = 7 AND ts < '2020-02-01'")
        client.commit()

    before(monkeypatch, capture, "start", look)
    before(monkeypatch, pipeline, "export", write)
    assert len(world.archive("public.events")) == 1
    assert world.run("SELECT id, v FROM public.events WHERE id < 9 AND id > 3 ORDER BY id") == [
        (4, 4),
        (5, -5),
        (6, 7),
        (8, 8),
    ]


def test_a_row_that_somebody_deleted_does_not_come_back_with_one_that_took_its_key_for_a_moment(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The transaction's snapshot still has the first one, and the capture would see it again."""
    world.run(SIMPLE)
    world.register("public.events")
    client = world.connect(autocommit=False)

    def look() -> None:
        client.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        client.execute("SELECT count(*) FROM pg_class")
        world.run("DELETE FROM public.events WHERE id = 5")

    def write() -> None:
        client.execute("INSERT INTO public.events VALUES (5, timestamptz '2020-01-01' + interval '5 h', -5)")
        with pytest.raises(psycopg.errors.SerializationFailure):
            client.execute("DELETE FROM public.events WHERE id = 5 AND v = -5")
        client.rollback()

    before(monkeypatch, capture, "start", look)
    before(monkeypatch, pipeline, "export", write)
    assert len(world.archive("public.events")) == 1
    assert world.run("SELECT id FROM public.events WHERE id BETWEEN 4 AND 6 ORDER BY id") == [(4,), (6,)]
