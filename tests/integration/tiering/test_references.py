"""What cold rows refer to is kept, as Postgres keeps what hot rows refer to."""

from __future__ import annotations

import threading
from typing import Any

import psycopg
import pytest

from fix_tiering import World
from frostline.catalog.database import connect
from frostline.tiering import register
from frostline.tiering.archive import swap

TABLE = """
CREATE TABLE public.dim (k int, r text, note text, PRIMARY KEY (k, r)) PARTITION BY LIST (r);
CREATE TABLE public.dim_a PARTITION OF public.dim FOR VALUES IN ('a');
CREATE TABLE public.dim_b PARTITION OF public.dim FOR VALUES IN ('b', 'c');
CREATE TABLE public.late (k bigint PRIMARY KEY);
CREATE TABLE public.gone (k int PRIMARY KEY);
INSERT INTO public.dim SELECT i, chr(97 + i % 2), 'x' FROM generate_series(0, 19) i;
INSERT INTO public.late SELECT generate_series(0, 19);
INSERT INTO public.gone SELECT generate_series(0, 19);
CREATE TABLE public.events (id bigint, ts timestamptz NOT NULL, k int, r text, late int, gone int,
    PRIMARY KEY (id, ts), CONSTRAINT to_dim FOREIGN KEY (k, r) REFERENCES public.dim,
    CONSTRAINT to_late FOREIGN KEY (late) REFERENCES public.late DEFERRABLE INITIALLY DEFERRED,
    CONSTRAINT to_gone FOREIGN KEY (gone) REFERENCES public.gone ON DELETE CASCADE ON UPDATE CASCADE
) PARTITION BY RANGE (ts);
CREATE TABLE public.events_01 PARTITION OF public.events FOR VALUES FROM ('2020-01-01') TO ('2020-02-01');
CREATE TABLE public.events_now PARTITION OF public.events FOR VALUES FROM ('2020-02-01') TO (MAXVALUE);
-- Cold rows refer to 0..4, hot ones to 5..9, and none to 10 and more.
INSERT INTO public.events SELECT i, '2020-01-05', i, chr(97 + i % 2), i, i FROM generate_series(0, 4) i;
INSERT INTO public.events SELECT i, '2020-02-05', i, chr(97 + i % 2), i, i FROM generate_series(5, 9) i;
INSERT INTO public.events VALUES (100, '2020-01-06', 15, NULL, NULL, NULL);
"""
COLD = "is still referenced from cold rows"


def test_what_cold_rows_refer_to_cannot_be_deleted_or_renamed(any_world: World) -> None:
    world = any_world
    world.run(TABLE)
    world.register("public.events")
    world.run("DELETE FROM public.dim WHERE k = 19")  # nothing is cold yet, and nobody is asked
    world.archive("public.events")
    for statement in (
        "DELETE FROM public.dim WHERE k = 2",
        "DELETE FROM public.dim_a WHERE k = 2",
        "UPDATE public.dim SET k = 52 WHERE k = 2",
        "DELETE FROM public.late WHERE k = 3",
    ):
        with pytest.raises(psycopg.errors.ForeignKeyViolation, match=COLD) as error:
            world.run(statement)
        assert error.value.diag.constraint_name in ("to_dim", "to_late")
    with pytest.raises(psycopg.errors.ForeignKeyViolation, match="is still referenced from table"):
        world.run("DELETE FROM public.dim WHERE k = 7")
    with pytest.raises(psycopg.errors.FeatureNotSupported, match=r"cold rows of public\.events refer to it"):
        world.run("TRUNCATE public.dim CASCADE")
    _what_harms_nobody(world)
    assert world.run("SELECT count(*), sum(k) FROM public.events") == [(10, 52)]


def _what_harms_nobody(world: World) -> None:
    world.run("DELETE FROM public.dim WHERE k = 15")  # a key that is half NULL refers to nothing
    world.run("UPDATE public.dim SET note = 'y' WHERE k = 2")
    world.run("UPDATE public.dim SET r = 'c' WHERE k = 17")  # within a partition
    world.run("UPDATE public.dim SET r = 'a' WHERE k = 17")  # to another one
    world.run("DELETE FROM public.gone WHERE k = 8")  # hot: cascades
    client = world.connect(autocommit=False)
    client.execute("DELETE FROM public.late WHERE k = 3")  # checked at the end, and by then it is back
    client.execute("INSERT INTO public.late VALUES (3)")
    client.commit()


def test_a_transaction_older_than_the_archived_period_overlooks_nothing(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.run(TABLE)
    world.register("public.events")
    client = world.connect(autocommit=False)
    client.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
    client.execute("SELECT count(*) FROM pg_class")
    world.archive("public.events")
    with pytest.raises(psycopg.errors.SerializationFailure):
        client.execute("DELETE FROM public.dim WHERE k = 2")
    client.rollback()
    _raced(world, monkeypatch)


def _raced(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Deletes of every referenced row race with the swap; not one may succeed."""
    world.run(
        "CREATE TABLE public.e2 (id bigint, ts timestamptz, k int REFERENCES public.gone, PRIMARY KEY (id, ts))"
        " PARTITION BY RANGE (ts);"
        "CREATE TABLE public.e2_01 PARTITION OF public.e2 FOR VALUES FROM ('2020-01-01') TO ('2020-02-01');"
        "CREATE TABLE public.e2_now PARTITION OF public.e2 FOR VALUES FROM ('2020-02-01') TO (MAXVALUE);"
        "INSERT INTO public.e2 SELECT i, '2020-01-05', i FROM generate_series(10, 19) i"
    )
    world.register("public.e2")
    stop, tried = threading.Event(), [0]
    wrong: list[object] = []

    def deleter() -> None:
        with psycopg.connect(world.dsn, autocommit=True) as connection:
            while not stop.is_set():
                try:
                    done = connection.execute("DELETE FROM public.gone WHERE k = %s", (10 + tried[0] % 10,))
                    wrong.append(done.rowcount)
                except psycopg.errors.ForeignKeyViolation:
                    tried[0] += 1
                    stop.wait(
                        0.05
                    )  # both want the two tables, in opposite order: without a gap the swap never gets them
                except Exception as error:
                    wrong.append(error)
                    return

    thread = threading.Thread(target=deleter)
    real = swap.swap

    def racing(*arguments: Any) -> None:
        thread.start()
        while tried[0] < 5 and not wrong:
            stop.wait(0.01)
        real(*arguments)
        after = tried[0]
        while tried[0] < after + 5 and not wrong:
            stop.wait(0.01)

    monkeypatch.setattr(swap, "swap", racing)
    try:
        assert len(world.archive("public.e2")) == 1
    finally:
        stop.set()
        thread.join(30)
    assert wrong == []
    assert world.run("SELECT count(*) FROM public.gone WHERE k >= 10") == [(10,)]


def test_without_the_check_cold_rows_keep_nothing(world: World) -> None:
    world.run(TABLE)
    with connect(world.dsn) as connection:
        plan = register.register(connection, "public.events", "3 months", {"cold_fk": "none"})
    assert isinstance(plan, register.Plan)
    assert any("hold for hot rows only" in warning for warning in plan.warnings)
    assert world.run("SELECT cold_fk FROM frostline.tables") == [("none",)]
    world.archive("public.events")
    world.run("DELETE FROM public.dim WHERE k = 2")
    with pytest.raises(psycopg.errors.ForeignKeyViolation):
        world.run("DELETE FROM public.dim WHERE k = 7")


def test_a_branch_of_a_two_level_table_is_tiered_by_itself(any_world: World) -> None:
    world = any_world
    world.run(
        """
        CREATE TABLE public.top (region text NOT NULL, id bigint, ts timestamptz, v int) PARTITION BY LIST (region);
        CREATE TABLE public.eu PARTITION OF public.top FOR VALUES IN ('eu') PARTITION BY RANGE (ts);
        CREATE TABLE public.us PARTITION OF public.top FOR VALUES IN ('us') PARTITION BY RANGE (ts);
        ALTER TABLE public.eu ADD PRIMARY KEY (id, ts);
        CREATE INDEX ON public.top (v);
        CREATE TABLE public.eu_01 PARTITION OF public.eu FOR VALUES FROM ('2020-01-01') TO ('2020-02-01');
        -- Attached with its columns in another order.
        CREATE TABLE public.eu_now (v int, ts timestamptz NOT NULL, x int, id bigint NOT NULL, region text NOT NULL);
        ALTER TABLE public.eu_now DROP COLUMN x;
        ALTER TABLE public.eu ATTACH PARTITION public.eu_now FOR VALUES FROM ('2020-02-01') TO (MAXVALUE);
        CREATE TABLE public.us_01 PARTITION OF public.us FOR VALUES FROM ('2020-01-01') TO (MAXVALUE);
        INSERT INTO public.top SELECT r, i, timestamptz '2020-01-01' + i * interval '1 h', i
        FROM generate_series(0, 999) i, unnest(ARRAY['eu', 'us']) r;
        """
    )
    rows = "SELECT t::text FROM public.top t ORDER BY 1"
    before = world.run(rows)
    world.register("public.eu")
    assert [one.rows for one in world.archive("public.eu")] == [744]
    assert world.run(rows) == before
    assert world.run("SELECT count(*) FROM public.top WHERE v = 17") == [(2,)]
    world.run("INSERT INTO public.top VALUES ('eu', 5000, '2020-03-01', 1), ('us', 5000, '2020-03-01', 1)")
    assert world.run("SELECT region FROM public.top WHERE id = 5000 ORDER BY 1") == [("eu",), ("us",)]
    told = world.run("SELECT relation, tier FROM frostline.explain('SELECT * FROM public.top WHERE id = 17')")
    assert {("public.eu_01", "cold"), ("public.eu_now", "hot"), ("public.us_01", "plain")} <= set(told)
