"""Types that change under the columns of cold rows: labels of enums, attributes of composites, however deep inside."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from fix_tiering import World
from frostline.errors import FrostlineError
from integration.tiering.twins import Twins

TYPES = """
CREATE TYPE mood AS ENUM ('sad', 'ok');
CREATE TYPE place AS (x int, y int);
CREATE DOMAIN feeling AS mood;
CREATE TYPE moods AS RANGE (subtype = mood);
CREATE TABLE visit (at place, felt feeling[]);
"""
TABLE = """
CREATE TABLE {t} (id int, ts timestamptz, v int, m mood, f feeling, a mood[], r moods, p place, ps place[], w visit,
    PRIMARY KEY (id, ts)) PARTITION BY RANGE (ts);
CREATE TABLE {t}_01 PARTITION OF {t} FOR VALUES FROM ('2020-01-01Z') TO ('2020-02-01Z');
CREATE TABLE {t}_02 PARTITION OF {t} FOR VALUES FROM ('2020-02-01Z') TO ('2020-03-01Z');
CREATE TABLE {t}_now PARTITION OF {t} FOR VALUES FROM ('2020-03-01Z') TO (MAXVALUE);
INSERT INTO {t} SELECT i, ts, i, o, o, ARRAY[o, o], moods(o, o, '[]'), ROW(i, i * 10)::place,
    ARRAY[ROW(i, i * 10)::place], ROW(ROW(i, i * 10)::place, ARRAY[o]::feeling[])::visit
FROM (SELECT i, (ARRAY['2020-01-05Z', '2020-02-05Z', '2020-03-05Z'])[1 + i % 3]::timestamptz,
      (ARRAY['sad', 'ok']::mood[])[1 + i % 2] FROM generate_series(1, 9) i) AS made (i, ts, o);
"""
ALL = "SELECT r::text FROM {t} r"
WITH_LABELS = ("m", "f", "a", "r", "w")
WITH_ATTRIBUTES = ("p", "ps", "w")


@pytest.fixture
def cold(any_world: World) -> Iterator[Twins]:
    """January is cold, February next."""
    any_world.run(TYPES)
    for table in ("tiered", "plain"):
        any_world.run(TABLE.format(t=table))
    any_world.register("public.tiered")
    with psycopg.connect(any_world.dsn, autocommit=True) as client:
        twins = Twins(any_world, "tiered", "plain", client)
        assert twins.archive("2020-02-01Z") == 1
        twins.both(ALL)
        yield twins


def only_that_is_refused(twins: Twins, columns: tuple[str, ...], said: str) -> None:
    """Whatever needs one of the columns of cold rows; the rest is as ever."""
    for column in columns:
        reason = f"{column} that could be known: its type was changed: .*{said}"
        twins.refused(f"SELECT id, {column} FROM {{t}} WHERE ts < '2020-02-01Z'", "0A000", reason)
    for statement in (
        f"SELECT id FROM {{t}} WHERE {columns[0]}::text <> ''",
        f"DELETE FROM {{t}} WHERE {columns[0]}::text <> '' RETURNING id",
        "DELETE FROM {t} WHERE id = 3",
        "UPDATE {t} SET v = 0 WHERE id = 3",
        "INSERT INTO {t} (id, ts) VALUES (10, '2020-01-05Z')",
    ):
        twins.refused(statement, "0A000", f"type .*was changed: .*{said}")
    with pytest.raises(FrostlineError, match=said):
        twins.archive("2020-03-01Z")
    twins.both("SELECT id, v FROM {t}")
    twins.both("SELECT count(*) FROM {t} WHERE v > 3")
    twins.both(f"{ALL} WHERE ts >= '2020-02-01Z'")
    twins.both("UPDATE {t} SET v = v + 1 WHERE ts >= '2020-02-01Z' AND id = 4 RETURNING *")


def test_labels_that_change_places_are_noticed(cold: Twins) -> None:
    """Old rows would be taken for the others."""
    there = ("sad' TO 'x", "ok' TO 'sad", "x' TO 'ok")
    for step in there:
        cold.client.execute(f"ALTER TYPE mood RENAME VALUE '{step}'")
    only_that_is_refused(cold, WITH_LABELS, "'sad' of public.mood is called 'ok' now")
    cold.both("SELECT id, p, ps FROM {t}")
    for step in there:
        cold.client.execute(f"ALTER TYPE mood RENAME VALUE '{step}'")
    cold.both(ALL)
    cold.both("DELETE FROM {t} WHERE m = 'sad' AND id < 7 RETURNING id")
    cold.both(ALL)
    assert cold.archive("2020-03-01Z") == 1
    cold.both(ALL)


def test_a_label_that_came_later_is_known_as_well(cold: Twins) -> None:
    """New ones can be used at once, in old rows too, and are in the lake from then on."""
    cold.client.execute("ALTER TYPE mood ADD VALUE 'so so' BEFORE 'ok'")
    cold.both(ALL)
    cold.both("UPDATE {t} SET m = 'so so', a = a || 'so so'::mood WHERE id IN (3, 4, 5) RETURNING *")
    cold.both(ALL)
    assert cold.fold()
    assert cold.archive("2020-03-01Z") == 1
    cold.both(ALL)
    cold.both("SELECT id FROM {t} WHERE m < 'ok'")
    cold.client.execute("ALTER TYPE mood RENAME VALUE 'so so' TO 'middling'")
    cold.refused("SELECT m FROM {t}", "0A000", "'so so' of public.mood is called 'middling' now")
    # The name alone is not the label.
    cold.client.execute("ALTER TYPE mood ADD VALUE 'so so' BEFORE 'middling'")
    cold.refused("SELECT m FROM {t}", "0A000", "'so so' of public.mood is called 'middling' now")


def test_attributes_that_come_and_go_are_noticed(cold: Twins) -> None:
    """Text has attributes by their places: others would have their values."""
    cold.client.execute("ALTER TYPE place RENAME ATTRIBUTE x TO longitude; ALTER TABLE visit RENAME COLUMN at TO here")
    cold.both(ALL)
    cold.both("SELECT id, (p).longitude, (w).here FROM {t}")
    cold.both("UPDATE {t} SET p.y = 0 WHERE id = 3 RETURNING *")
    cold.client.execute("ALTER TYPE place ADD ATTRIBUTE z int")
    only_that_is_refused(cold, WITH_ATTRIBUTES, "attributes of public.place were added or dropped")
    cold.client.execute("ALTER TYPE place DROP ATTRIBUTE z")
    cold.both(ALL)
    cold.both("UPDATE {t} SET v = 7 WHERE id = 3 RETURNING *")
    cold.client.execute("ALTER TYPE place ADD ATTRIBUTE z int; ALTER TYPE place DROP ATTRIBUTE longitude")
    only_that_is_refused(cold, WITH_ATTRIBUTES, "attributes of public.place were added or dropped")
    cold.both("SELECT id, m, r FROM {t}")


def test_columns_of_a_table_whose_rows_are_values(cold: Twins) -> None:
    cold.client.execute("ALTER TABLE visit ADD COLUMN note text; ALTER TABLE visit DROP COLUMN at")
    only_that_is_refused(cold, ("w",), "attributes of public.visit were added or dropped")


def test_the_next_statement_of_a_session_notices(cold: Twins) -> None:
    """Of a prepared statement, of a transaction."""
    cold.client.execute("PREPARE q AS SELECT count(m) FROM tiered WHERE id < 9")
    cold.client.execute("EXECUTE q")
    with cold.client.transaction(), psycopg.connect(cold.world.dsn, autocommit=True) as other:
        cold.client.execute("EXECUTE q")
        other.execute("ALTER TYPE mood RENAME VALUE 'sad' TO 'blue'")
        cold.refused("EXECUTE q", "0A000", "'sad' of public.mood is called 'blue' now")


def test_types_made_anew_by_a_dump_are_compared_by_name(cold: Twins) -> None:
    """There all have other numbers."""
    known = "(SELECT sense FROM frostline.columns WHERE attnum = {} AND sense IS NOT NULL)"
    client = cold.client
    numbers = dict(
        client.execute("SELECT attname, attnum FROM pg_attribute WHERE attrelid = 'tiered'::regclass").fetchall()
    )

    def changed(column: str, now: str) -> Any:
        query = f"SELECT frostline.sense_changed({known.format(numbers[column])}, frostline.sense('{now}'::regtype))"
        return client.execute(query).fetchone()[0]  # type: ignore[index]

    client.execute("CREATE TYPE mood2 AS ENUM ('new', 'sad', 'newer', 'ok')")
    client.execute("CREATE TYPE mood3 AS ENUM ('ok', 'sad')")
    client.execute("CREATE TYPE mood4 AS ENUM ('sad', 'well')")
    assert changed("m", "mood") is None
    assert changed("m", "mood2") is None
    assert changed("a", "mood2[]") is None
    assert changed("m", "mood3") == "labels of public.mood3 were renamed"
    assert changed("m", "mood4") == "labels of public.mood4 were renamed"
    assert changed("m", "place") == "it is made of other types"
    client.execute("CREATE TYPE place2 AS (o int, x int, y int); ALTER TYPE place2 DROP ATTRIBUTE o")
    client.execute("CREATE TYPE place3 AS (y int, x int); CREATE TYPE place4 AS (x int)")
    assert changed("ps", "place2[]") is None
    assert changed("p", "place3") == "attributes of public.place3 were added or dropped"
    assert changed("p", "place4") == "attributes of public.place4 were added or dropped"
