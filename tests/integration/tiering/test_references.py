"""What cold rows refer to is kept, as Postgres keeps what hot rows refer to."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from itertools import cycle
from typing import Any

import psycopg
import pytest

from fix_cluster import wait_until
from fix_tiering import World
from frostline.catalog.database import connect
from frostline.report import Silent
from frostline.tiering import register, writing
from frostline.tiering.archive import swap
from frostline.tiering.archive.run import Warm
from frostline.tiering.fold.run import fold

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


ACTIONS = ("NO ACTION", "RESTRICT", "CASCADE", "SET NULL", "SET DEFAULT")
MODES = ("", " DEFERRABLE INITIALLY DEFERRED")
PARENTS = [(action, mode) for action in ACTIONS for mode in MODES]


def _twin(name: str) -> str:
    """A table with a foreign key of every kind: rows 0 to 4 will be cold, 5 to 9 hot."""
    parents, columns, made = [], [], []
    for number, (action, mode) in enumerate(PARENTS):
        parents.append(f"CREATE TABLE {name}_p{number} (k int PRIMARY KEY)")
        parents.append(f"INSERT INTO {name}_p{number} SELECT generate_series(-1, 9)")
        columns.append(
            f"c{number} int DEFAULT -1 REFERENCES {name}_p{number} ON DELETE {action} ON UPDATE {action}{mode}"
        )
        made.append("i")
    return f"""
        {"; ".join(parents)};
        CREATE TABLE {name}_two (a int, b int, PRIMARY KEY (a, b)) PARTITION BY LIST (b);
        CREATE TABLE {name}_two_1 PARTITION OF {name}_two FOR VALUES IN (1);
        CREATE TABLE {name}_two_2 PARTITION OF {name}_two FOR VALUES IN (2, 3);
        INSERT INTO {name}_two SELECT i, 1 + i % 2 FROM generate_series(0, 9) i;
        CREATE TABLE {name} (id bigint, ts timestamptz, {", ".join(columns)}, a int, b int, PRIMARY KEY (id, ts),
            FOREIGN KEY (a, b) REFERENCES {name}_two ON DELETE SET NULL (a) ON UPDATE CASCADE) PARTITION BY RANGE (ts);
        CREATE TABLE {name}_01 PARTITION OF {name} FOR VALUES FROM ('2020-01-01') TO ('2020-02-01');
        CREATE TABLE {name}_now PARTITION OF {name} FOR VALUES FROM ('2020-02-01') TO (MAXVALUE);
        INSERT INTO {name}
        SELECT i, timestamptz '2020-01-05' + i / 5 * interval '1 month', {", ".join(made)}, i, 1 + i % 2
        FROM generate_series(0, 9) i;
    """


def _scripts() -> Iterator[list[str]]:
    for number, (_, mode) in enumerate(PARENTS):
        parent = f"{{t}}_p{number}"
        yield [f"DELETE FROM {parent} WHERE k = 2"]
        yield [f"DELETE FROM {parent} WHERE k IN (3, 7)"]
        yield [f"UPDATE {parent} SET k = 53 WHERE k = 3"]
        yield [f"DELETE FROM {parent} WHERE k = 2", "SELECT count(*) FROM {t}", f"INSERT INTO {parent} VALUES (2)"]
        yield [f"WITH gone AS (DELETE FROM {parent} WHERE k = 2 RETURNING k) INSERT INTO {parent} SELECT k FROM gone"]
        if not mode:
            yield from ([statement] for statement in _together(parent, f"c{number}"))
            yield [f"WITH gone AS (DELETE FROM {parent} WHERE k = 9) UPDATE {{t}} SET c{number} = 9 WHERE id = 3"]
    yield ["SET frostline.strict = on", "DELETE FROM {t}_p4 WHERE k IN (3, 7)"]
    yield ["DELETE FROM {t}_two WHERE a IN (2, 7)"]
    yield ["UPDATE {t}_two SET b = 3 WHERE a = 3"]  # within its partition
    yield ["UPDATE {t}_two SET a = 53 WHERE a IN (2, 7)"]
    yield ["UPDATE {t}_two SET b = 1 WHERE a = 7"]  # to another one, and only a hot row refers to it


def _together(parent: str, c: str) -> Iterator[str]:
    """Both tables in one statement, at whose end Postgres looks: cold rows refer to 2 and 3, a hot one to 7."""
    delete = f"DELETE FROM {parent} WHERE k"
    yield f"WITH gone AS (DELETE FROM {{t}} WHERE {c} = 2) {delete} = 2"
    yield f"WITH gone AS ({delete} = 2) DELETE FROM {{t}} WHERE {c} = 2"
    gone = f"DELETE FROM {{t}} WHERE {c} IN (2, 3, 7) RETURNING {c}"
    yield f"WITH gone AS ({gone}) DELETE FROM {parent} USING gone WHERE k = {c}"
    yield f"WITH gone AS (DELETE FROM {{t}} WHERE {c} = 2) {delete} IN (2, 3)"
    yield f"WITH kept AS (UPDATE {{t}} SET {c} = 4 WHERE {c} IN (2, 7)) {delete} IN (2, 7)"
    yield f"WITH kept AS (UPDATE {{t}} SET {c} = 52 WHERE {c} = 2) UPDATE {parent} SET k = 52 WHERE k = 2"
    yield f"WITH hot AS (UPDATE {{t}} SET {c} = 4, ts = '2020-02-09' WHERE {c} = 2) {delete} = 2"
    gone = f"DELETE FROM {{t}} WHERE id = 1; WITH gone AS (DELETE FROM {{t}} WHERE {c} = 2) {delete} = 2"
    yield f"DO $$ BEGIN {gone}; END $$"


def test_what_a_key_does_to_rows_that_refer_to_it_is_done_to_cold_ones_alike(any_world: World) -> None:
    world = any_world
    for name in ("kept", "kept_twin"):
        world.run(_twin(name))
    world.register("public.kept")
    assert len(world.archive("public.kept")) == 1
    clients = {name: world.connect(autocommit=False) for name in ("kept", "kept_twin")}
    for script in _scripts():
        tiered, plain = (_outcomes(clients[name], name, script) for name in clients)
        assert tiered == plain, script
    with pytest.raises(psycopg.errors.FeatureNotSupported, match="belongs into another partition"):
        world.run("UPDATE kept_two SET b = 2 WHERE a = 4")
    assert world.run("SELECT count(*) FROM kept WHERE (a, b) = (4, 1)") == [(1,)]
    _older_guards_are_renewed(world)


def _outcomes(client: psycopg.Connection[Any], name: str, script: list[str]) -> list[object]:
    """What each statement says, and what is there in the end, when deferred keys have been checked."""
    found: list[object] = []
    client.execute("SELECT")  # else each of them would be committed
    for statement in [*script, "SET CONSTRAINTS ALL IMMEDIATE", "SELECT r::text FROM {t} r ORDER BY 1"]:
        try:
            with client.transaction():
                cursor = client.execute(statement.replace("{t}", name))
                found.append(cursor.fetchall() if cursor.description is not None else cursor.statusmessage)
        except psycopg.Error as error:
            found.append(error.sqlstate)
    client.rollback()
    return found


def _older_guards_are_renewed(world: World) -> None:
    """A version before this deferred whatever a deferrable key does."""
    guards = "SELECT tgname, tgdeferrable FROM pg_trigger WHERE tgname LIKE 'frostline_%' AND tgparentid = 0 ORDER BY 1"
    before = world.run(guards)
    name = next(trigger for trigger, _ in before if trigger.endswith("c5_fkey_delete"))
    ((definition,),) = world.run(f"SELECT pg_get_triggerdef(oid) FROM pg_trigger WHERE tgname = '{name}'")
    deferrable = definition.replace("NOT DEFERRABLE INITIALLY IMMEDIATE", "DEFERRABLE")
    world.run(f"DROP TRIGGER {name} ON kept_p5; {deferrable}")
    world.run("DROP TRIGGER frostline_1_1_kept_a_b_fkey_move ON kept_two")
    assert world.run(guards) != before
    world.run("COMMENT ON FUNCTION frostline.store_1(oid, bool) IS 'an older one'")
    with connect(world.dsn) as connection:
        assert writing.equip(connection) == ["what writes cold rows of public.kept"]
    assert world.run(guards) == before


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
        wait_until(lambda: bool(wrong) or tried[0] >= 5, 120, "it tries")
        real(*arguments)
        after = tried[0]
        wait_until(lambda: bool(wrong) or tried[0] >= after + 5, 120, "it goes on trying")

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


LOOKS = ("SELECT count(*) FROM public.events", "UPDATE public.events SET late = late WHERE id = 1")
CHANGES = (
    "DELETE FROM public.dim WHERE k = 12",
    "UPDATE public.dim SET k = 52 WHERE k = 12",
    "DELETE FROM public.late WHERE k = 12",
    "DELETE FROM public.gone WHERE k = 12",
    "UPDATE public.gone SET k = 52 WHERE k = 12",
)
LEVELS = ("READ COMMITTED", "REPEATABLE READ")
CASES = [*zip(cycle(LOOKS), CHANGES, strict=False), (LOOKS[1], CHANGES[0])]
OVERLOOKED = [*((level, *case) for level in LEVELS for case in CASES), ("SERIALIZABLE", LOOKS[0], CHANGES[0])]


def test_a_row_that_was_committed_since_is_not_overlooked(world: World) -> None:
    """Neither the transaction nor the gateway sees it, but it refers to what is to go away."""
    world.run(TABLE)
    world.register("public.events")
    world.archive("public.events")
    client = world.connect(autocommit=False)

    def looks(level: str, look: str) -> None:
        client.execute(f"SET TRANSACTION ISOLATION LEVEL {level}")
        client.execute(look)

    for level, look, change in OVERLOOKED:
        looks(level, look)
        world.run("INSERT INTO public.events VALUES (200, '2020-01-09', 12, 'a', 12, 12)")
        if (look, change) == (LOOKS[0], CHANGES[0]):
            _fold(world)  # the next looks in vain for its version
        with pytest.raises(psycopg.errors.SerializationFailure):
            client.execute(change)
        client.rollback()
        world.run("DELETE FROM public.events WHERE id = 200")
        looks(level, look)
        client.execute(change)
        client.rollback()


def test_a_row_that_was_deleted_since_still_refers_for_who_has_read_it(world: World) -> None:
    world.run(TABLE)
    world.register("public.events")
    world.archive("public.events")
    client = world.connect(autocommit=False)
    client.execute("UPDATE public.events SET late = late WHERE id = 1")
    world.run("DELETE FROM public.events WHERE id = 2")
    with pytest.raises(psycopg.errors.ForeignKeyViolation):
        client.execute("DELETE FROM public.dim WHERE k = 2")
    client.rollback()
    client.execute("DELETE FROM public.dim WHERE k = 2")


def _fold(world: World) -> None:
    with Warm(world.spark_here) as warm:
        fold(world.settings, "public.events", Silent(), warm)


def test_what_new_cold_rows_refer_to_is_forgotten_when_every_snapshot_has_it(any_world: World) -> None:
    world = any_world
    world.run(TABLE)
    world.register("public.events")
    world.archive("public.events")
    kept = "SELECT count(*) FROM frostline_delta.references_1_1"
    older, client = world.connect(autocommit=False), world.connect(autocommit=False)
    older.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
    older.execute("SELECT 1")
    world.run("INSERT INTO public.events SELECT i, '2020-01-09', 12, 'a' FROM generate_series(200, 209) i")
    _fold(world)
    assert world.run(kept) == [(10,)]
    older.rollback()
    world.run("DELETE FROM public.events WHERE id >= 200")
    client.execute("DELETE FROM public.dim WHERE k = 12")  # it has them locked: nobody waits for that
    _fold(world)
    client.commit()
    assert world.run("SELECT count(*) FROM public.dim WHERE k = 12") == [(0,)]
    _fold(world)
    assert world.run(kept) == [(0,)]
