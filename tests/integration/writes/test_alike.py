"""Row triggers that are called for old rows, and what is said of a row that belongs nowhere: as with any table."""

from __future__ import annotations

import psycopg
import pytest

from fix_tiering import World
from integration.writes.test_words import ALL, same, twins


def trigger(world: World, when: str, body: str, called: str = "pg_trigger_depth() = 0") -> None:
    for table in ("tiered", "plain"):
        world.run(
            f"CREATE OR REPLACE FUNCTION {table}_does() RETURNS trigger LANGUAGE plpgsql AS"
            f" $$ BEGIN {body}; RETURN coalesce(NEW, OLD); END $$;"
            f" CREATE OR REPLACE TRIGGER does {when} ON {table}"
            f" FOR EACH ROW WHEN ({called}) EXECUTE FUNCTION {table}_does()".replace("{t}", table)
        )


def test_what_a_foreign_key_fires_has_the_session_s_search_path(any_world: World) -> None:
    """Where Postgres would call them as the role that we are: as somebody who may do more they have none."""
    world = any_world
    world.run("CREATE SCHEMA app")
    for table in ("tiered", "plain"):
        world.run(f"CREATE TABLE {table}_dim (k int PRIMARY KEY); INSERT INTO {table}_dim SELECT generate_series(1, 9)")
        world.run(f"CREATE TABLE app.{table}_log (what text, id int, k int)")
    twins(world, "k int REFERENCES {t}_dim ON DELETE CASCADE ON UPDATE CASCADE", "i")
    logged = "INSERT INTO {t}_log VALUES (tg_op, OLD.id, OLD.k)"
    trigger(world, "AFTER UPDATE OR DELETE", logged, "true")
    for statement in ("DELETE FROM {t}_dim WHERE k IN (2, 5)", "UPDATE {t}_dim SET k = 53 WHERE k = 3"):
        same(world, f"SET search_path = app, public; {statement}")
    same(world, "SELECT * FROM app.{t}_log", ALL, "DELETE FROM {t}_dim WHERE k = 4")
    assert world.run("SELECT count(*) FROM app.tiered_log") == [(3,)]
    world.run("ALTER TABLE tiered OWNER TO pg_database_owner")
    with pytest.raises(psycopg.errors.UndefinedTable):
        world.run("SET search_path = app, public; DELETE FROM tiered_dim WHERE k = 4")
    with world.connect(autocommit=False) as client, client.transaction():
        client.execute("SET LOCAL search_path = app, public")
        client.execute("DELETE FROM tiered_dim WHERE k = 9")
        assert client.execute("SHOW search_path").fetchall() == [("app, public",)]


def test_a_trigger_may_write_other_cold_rows_of_the_table(any_world: World) -> None:
    """postgres_fdw sends every column where there is such a trigger, those of the key as they are."""
    world = any_world
    twins(world, "v int", "i")
    update = "UPDATE {t} SET v = v * 10 WHERE id IN (1, 2, 5)"
    trigger(world, "BEFORE UPDATE", "UPDATE {t} SET v = v + 1 WHERE id IN (3, 6)")
    same(world, update, ALL, f"{update} RETURNING *", ALL)
    trigger(world, "BEFORE UPDATE", "INSERT INTO {t} VALUES (OLD.id + OLD.v, '2020-01-06Z', 0); NEW.v = 7")
    same(world, update, ALL)
    trigger(world, "BEFORE UPDATE", "DELETE FROM {t} WHERE id = 3")
    same(world, update, ALL)
    with pytest.raises(psycopg.errors.FeatureNotSupported, match="cannot change primary keys of cold rows"):
        world.run("UPDATE tiered SET id = id + 50 WHERE id IN (1, 2)")


def test_a_row_without_a_partition_key_belongs_nowhere(world: World) -> None:
    twins(world, "v int", "i")
    for statement in (
        "UPDATE {t} SET ts = NULL WHERE id = 1",
        "UPDATE {t} SET ts = NULL FROM {t}_now n WHERE {t}.v = n.id - 4",
    ):
        same(world, statement, f"{statement} RETURNING {{t}}.id", ALL)
        with pytest.raises(psycopg.errors.CheckViolation, match='no partition of relation "tiered" found for row'):
            world.run(statement.replace("{t}", "tiered"))
    same(world, "UPDATE {t} SET id = NULL WHERE id = 1")
