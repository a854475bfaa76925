"""Tables of other shapes are written as well: branches, odd names, nothing but a key, two at once."""

from __future__ import annotations

import pytest

from fix_tiering import World
from integration.writes.pair import Pair, outcome

# `{o}` tells the tiered one from its twin.
BRANCHES = """
CREATE TABLE root{o} (region char(4), id int, ts date, v text, date date, r real) PARTITION BY LIST (region);
CREATE TABLE eu{o} PARTITION OF root{o} FOR VALUES IN ('eu') PARTITION BY RANGE (ts);
CREATE TABLE us{o} PARTITION OF root{o} FOR VALUES IN ('us') PARTITION BY RANGE (ts);
ALTER TABLE eu{o} ADD PRIMARY KEY (region, id, ts);
ALTER TABLE us{o} ADD PRIMARY KEY (region, id, ts);
CREATE TABLE eu{o}_01 PARTITION OF eu{o} FOR VALUES FROM ('2026-01-01') TO ('2026-02-01');
CREATE TABLE eu{o}_11 PARTITION OF eu{o} FOR VALUES FROM ('2026-11-01') TO ('2026-12-01');
CREATE TABLE us{o}_01 PARTITION OF us{o} FOR VALUES FROM ('2026-01-01') TO ('2026-02-01');
CREATE TABLE us{o}_11 PARTITION OF us{o} FOR VALUES FROM ('2026-11-01') TO ('2026-12-01');
INSERT INTO root{o} SELECT (ARRAY['eu', 'us'])[1 + x % 2], x, date '2026-01-01' + 304 * (x / 40) + x % 20, 'v' || x,
    date '2026-01-01' + 304 * (x / 40) + x % 20
FROM generate_series(1, 79) x;
"""
# Attached with another order of columns, after one was dropped; the key is the partition key and nothing else is.
ODD = """
CREATE SCHEMA "s %{o}";
CREATE TABLE "s %{o}"."odd ""%s"" $1 ü" (gone int, "where" text DEFAULT upper('made'), "no ""%s"" $1" bigint,
    "Returning" int DEFAULT 3 + 4, "ctid " text, "ünï {}" numeric(10, 2), "from" int GENERATED ALWAYS AS IDENTITY,
    held text, x int, PRIMARY KEY ("no ""%s"" $1")) PARTITION BY RANGE ("no ""%s"" $1");
ALTER TABLE "s %{o}"."odd ""%s"" $1 ü" DROP COLUMN gone;
CREATE TABLE "s %{o}"."p %1" (x int, held text, "from" int NOT NULL, junk int, "no ""%s"" $1" bigint NOT NULL,
    "ünï {}" numeric(10, 2), "ctid " text, "Returning" int, "where" text);
ALTER TABLE "s %{o}"."p %1" DROP COLUMN junk;
ALTER TABLE "s %{o}"."odd ""%s"" $1 ü" ATTACH PARTITION "s %{o}"."p %1" FOR VALUES FROM (0) TO (100);
CREATE TABLE "s %{o}"."p 2" PARTITION OF "s %{o}"."odd ""%s"" $1 ü" FOR VALUES FROM (100) TO (200);
CREATE TABLE "s %{o}"."p 3" PARTITION OF "s %{o}"."odd ""%s"" $1 ü" FOR VALUES FROM (200) TO (300);
INSERT INTO "s %{o}"."odd ""%s"" $1 ü" ("no ""%s"" $1", "where", "ctid ", "ünï {}", held)
SELECT x, 'w' || x, 'c' || x, x / 3.0, 'h' FROM generate_series(0, 299) x;
"""
KEY = """
CREATE TABLE key{o} (d date, id numeric(6), PRIMARY KEY (id, d)) PARTITION BY RANGE (d);
CREATE TABLE key{o}_01 PARTITION OF key{o} FOR VALUES FROM ('2026-01-01') TO ('2026-02-01');
CREATE TABLE key{o}_11 PARTITION OF key{o} FOR VALUES FROM ('2026-11-01') TO ('2026-12-01');
INSERT INTO key{o} SELECT date '2026-01-01' + 304 * (x / 40) + x % 20, x FROM generate_series(1, 79) x;
"""
ODD_NAME, ODD_KEY = '"s %{o}"."odd ""%s"" $1 ü"', '"no ""%s"" $1"'
SCRIPTS = {
    "root{o}": [
        ["UPDATE {t} SET v = 'x' WHERE id IN (4, 5, 70, 71) RETURNING *"],
        ["DELETE FROM {t} WHERE id < 8 RETURNING id", "SELECT count(*) FROM {t}"],
        [
            "INSERT INTO {t} VALUES ('eu', 1000, '2026-01-05', 'n'), ('us', 1000, '2026-01-05', 'n')",
            "UPDATE {t} SET v = v || '!' WHERE id = 1000 RETURNING region, v",
        ],
        # One by one: what the delta keeps is the same whichever way it comes there.
        [
            "UPDATE {t} SET v = 'x', r = 0.1 WHERE id = 4 AND ts < '2026-02-01'",
            "UPDATE {t} SET v = v || 'y' WHERE id = 4 RETURNING *",
            "DELETE FROM {t} WHERE id = 6 AND ts < '2026-02-01'",
            "INSERT INTO {t} VALUES ('eu', 6, '2026-01-07', 'again')",
            "UPDATE {t} SET v = 'z' WHERE id = 6 AND ts < '2026-02-01'",
            "SELECT * FROM {t} WHERE id < 8",
        ],
        # A column called like a type.
        ["UPDATE {t} SET date = date + 1 WHERE id = 4", "SELECT id, date FROM {t} WHERE ts = date"],
    ],
    ODD_NAME: [
        [f'UPDATE {{t}} SET "where" = \'a%s$1\', "ctid " = "where" WHERE {ODD_KEY} IN (5, 150, 250) RETURNING *'],
        ['UPDATE {t} SET "ctid " = \'where ctid = $1\' WHERE "where" LIKE \'w1%\' RETURNING "ctid ", "from"'],
        [
            'UPDATE {t} t SET "ünï {}" = "ünï {}" + 1, "Returning" = DEFAULT, held = \'returning\''
            f" FROM generate_series(1, 2) s WHERE s = {ODD_KEY} RETURNING t.*"
        ],
        [
            f"DELETE FROM {{t}} WHERE {ODD_KEY} IN (5, 6, 7, 205)",
            f'INSERT INTO {{t}} ({ODD_KEY}) VALUES (5), (6), (205) RETURNING {ODD_KEY}, "where", "Returning"',
            f"INSERT INTO {{t}} ({ODD_KEY}) VALUES (5), (7) ON CONFLICT DO NOTHING RETURNING {ODD_KEY}",
        ],
        [f"UPDATE {{t}} SET {ODD_KEY} = 7 WHERE {ODD_KEY} = 5"],
        [f"DELETE FROM {{t}} WHERE {ODD_KEY} = 250", f"UPDATE {{t}} SET {ODD_KEY} = 250 WHERE {ODD_KEY} = 5"],
        ['DELETE FROM {t} RETURNING "from"'],
    ],
    "key{o}": [
        ["UPDATE {t} SET d = d + 1 WHERE id = 5 RETURNING *", "UPDATE {t} SET id = 1000 WHERE id = 5"],
        ["DELETE FROM {t} WHERE id IN (5, 6, 70)", "INSERT INTO {t} VALUES ('2026-01-06', 5) RETURNING *"],
        ["INSERT INTO {t} SELECT d, id + 1000 FROM {t}", "INSERT INTO {t} SELECT * FROM {t} ON CONFLICT DO NOTHING"],
        ["DELETE FROM {t}", "INSERT INTO {t} VALUES ('2026-01-06', 5), ('2026-11-06', 5)"],
        # Rows that were loaded for a condition on the key are not all rows.
        [
            "DELETE FROM {t} WHERE id = 5",
            "SELECT id FROM {t} WHERE id > 'Infinity'",
            "SELECT id FROM {t} WHERE id < 'Infinity'",
        ],
    ],
}
TIERED = ("public.eu_t", "public.us_t", ODD_NAME.replace("{o}", "_t"), "public.key_t")


def named(text: str, other: str) -> str:
    return text.replace("{o}", other)


@pytest.fixture(scope="session")
def shapes(pair: Pair) -> World:
    world = pair.world
    for other in ("_t", "_p"):
        for tables in (BRANCHES, ODD, KEY):
            world.run(named(tables, other))
    for table in TIERED:
        world.register(table, hot="100" if "odd" in table else "3 months")
        assert len(world.archive(table, "100" if "odd" in table else "2026-02-01")) == 1
    return world


@pytest.mark.parametrize("table", SCRIPTS)
def test_a_transaction_on_a_table_of_this_shape(shapes: World, table: str) -> None:
    for script in SCRIPTS[table]:
        results = []
        for other in ("_t", "_p"):
            name = named(table, other)
            connection = shapes.connect()
            with connection.transaction(force_rollback=True):
                found = [outcome(connection, statement.replace("{t}", name)) for statement in script]
                # What a sequence gave depends on who asked before.
                rows = f"SELECT to_jsonb(t) - 'from' FROM {name} t"
                results.append([*found, outcome(connection, rows)])
        for statement, tiered, plain in zip([*script, "all rows"], *results, strict=True):
            assert tiered == plain, statement


def test_two_branches_are_written_through_their_root(shapes: World) -> None:
    with shapes.connect() as connection:
        assert connection.execute("UPDATE root_t SET v = 'both' WHERE id IN (10, 11)").rowcount == 2
        assert connection.execute("UPDATE root_t SET v = 'one' WHERE id = 12").rowcount == 1
    assert shapes.run("SELECT id, v FROM root_t WHERE id BETWEEN 10 AND 12 ORDER BY id") == [
        (10, "both"),
        (11, "both"),
        (12, "one"),
    ]
    for table in ("root_t", "root_p"):
        shapes.run(f"UPDATE {table} SET v = 'same' WHERE id BETWEEN 10 AND 12")


def test_two_tables_in_one_statement_and_one_transaction(shapes: World) -> None:
    found = []
    for other in ("_t", "_p"):
        connection = shapes.connect()
        with connection.transaction(force_rollback=True):
            statement = (
                "WITH a AS (UPDATE root{o} SET v = 'moved' WHERE id IN (5, 60) RETURNING id),"
                " b AS (DELETE FROM root{o} WHERE id IN (20, 61) RETURNING id)"
                " INSERT INTO key{o} SELECT date '2026-01-07', id + 1000 FROM a"
                " UNION ALL SELECT '2026-11-07', id + 1000 FROM b RETURNING id"
            )
            seen = [outcome(connection, named(statement, other))]
            connection.execute("SAVEPOINT undone")
            connection.execute(named("DELETE FROM root{o}; DELETE FROM key{o}", other))
            connection.execute("ROLLBACK TO undone")
            connection.execute(named("DELETE FROM key{o} WHERE id = 1005", other))
            seen += [outcome(connection, named(f"SELECT * FROM {name}", other)) for name in ("root{o}", "key{o}")]
        found.append(seen)
    assert found[0] == found[1]
