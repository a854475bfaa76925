"""`frostline assess` tells what there is to gain, from samples, as any role, and nobody notices."""

from __future__ import annotations

import json
import shlex
import uuid
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from fix_cluster import wait_until
from fix_commands import Run, failed_clearly
from fix_tiering import World
from frostline.catalog import describe
from frostline.catalog.database import connect
from frostline.report import Silent
from frostline.tiering.assess.run import Assessed, assess

# Two partitions are old whatever the date, and one is to come.
EVENTS = """
CREATE TABLE public.events (
    id bigint GENERATED ALWAYS AS IDENTITY, ts timestamptz NOT NULL, kind text, v float8, doc jsonb,
    PRIMARY KEY (id, ts)
) PARTITION BY RANGE (ts);
CREATE TABLE public.events_1 PARTITION OF public.events FOR VALUES FROM ('2024-01-01') TO ('2024-02-01');
CREATE TABLE public.events_2 PARTITION OF public.events FOR VALUES FROM ('2024-02-01') TO ('2024-03-01');
CREATE TABLE public.events_3 PARTITION OF public.events FOR VALUES FROM ('2024-03-01') TO (MAXVALUE);
INSERT INTO public.events (ts, kind, v, doc)
SELECT timestamptz '2024-01-01' + i * interval '2 min', 'kind ' || i % 20, i / 7.0,
       jsonb_build_object('n', i, 'hash', md5(i::text))
FROM generate_series(0, 43199) i;
ANALYZE public.events;
"""
LOGS = """
CREATE TABLE public.logs (
    id bigint PRIMARY KEY, line text, created_at timestamp NOT NULL, updated_at timestamp, seen date
);
INSERT INTO public.logs SELECT i, 'line ' || i % 100, timestamp '2023-01-01' + i * interval '3 min', now(), now()
FROM generate_series(1, 130000) i;
"""
# So many that a sample is clearly less than the whole.
MANY = """
CREATE TABLE public.many (id bigint PRIMARY KEY, line text, created_at timestamp NOT NULL)
WITH (autovacuum_enabled = off);  -- what it reads is counted below
INSERT INTO public.many SELECT i, 'line ' || i % 100, timestamp '2023-01-01' + i * interval '1 min'
FROM generate_series(1, 300000) i;
CREATE TABLE public.notes (id int PRIMARY KEY, log bigint REFERENCES public.many, price money);
"""


def look(dsn: str, *names: str, hot: str = "3 months") -> dict[str, Assessed]:
    with connect(dsn) as connection:
        return {one.name: one for one in assess(connection, hot, names, 20, Silent())}


def execute(dsn: str, text: str) -> list[tuple[Any, ...]]:
    with psycopg.connect(dsn, autocommit=True) as connection:
        cursor = connection.execute(text)
        return cursor.fetchall() if cursor.description is not None else []


def pages_read(dsn: str) -> int:
    """Of public.many, by all who have been here: what a session has read is known when it is gone at the latest."""
    others = "SELECT FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
    wait_until(lambda: execute(dsn, others) == [], 60, "nobody else is here")
    count = "SELECT heap_blks_read + heap_blks_hit FROM pg_statio_user_tables WHERE relname = 'many'"
    [(found,)] = execute(dsn, count)
    return int(found)


@pytest.fixture(params=["18", "15"])
def server(request: pytest.FixtureRequest) -> Iterator[str]:
    """DSN of a database without a registry."""
    if request.param == "18":
        yield request.getfixturevalue("database")
        return
    dsn, name = request.getfixturevalue("postgres15"), f"test_{uuid.uuid4().hex[:12]}"
    execute(dsn, f"CREATE DATABASE {name}")
    yield make_conninfo(dsn, dbname=name)
    execute(dsn, f"DROP DATABASE {name} WITH (FORCE)")


def test_the_estimate_is_what_archiving_then_finds(world: World) -> None:
    world.run(EVENTS)
    world.run("VACUUM events_1, events_2")  # one that came by in between would leave its maps
    events = look(world.dsn)["events"]
    assert events.obstacles == []
    assert events.next == "frostline register public.events --hot '3 months'"
    assert events.cold is not None
    assert (events.cold.partitions, events.cold.rows) == (2, 43200)
    freed = world.run("SELECT sum(pg_total_relation_size(c)) FROM unnest('{events_1, events_2}'::regclass[]) c")[0][0]
    assert events.cold.bytes == freed
    assert [(one.label, one.rows, one.cold) for one in events.profile] == [
        ("2024-01", 22320, True),
        ("2024-02", 20880, True),
        ("2024-03", 0, False),
    ]
    world.register("public.events")
    real = sum(one.bytes for one in world.archive("public.events"))
    assert events.cold.lake_bytes is not None
    assert real * 0.85 < events.cold.lake_bytes < real * 1.15
    registered = look(world.dsn, "events")["events"]
    assert registered.kind == "registered"
    assert registered.next is None


def test_a_plain_table_is_sampled_and_shown_how_it_can_be_cut(server: str) -> None:
    execute(server, MANY)
    before = pages_read(server)
    found = look(server, "many", "notes")
    pages = execute(server, "SELECT pg_relation_size('many') / 8192")[0][0]
    assert 0 < pages_read(server) - before < pages

    many = found["many"]
    assert (many.kind, many.key, many.key_type) == ("plain", "created_at", "timestamp")
    assert many.sizes is not None
    # Of a sample of n pages the deviation is a root of n: five of them.
    assert many.sizes.rows == pytest.approx(300_000, rel=0.25)
    assert many.next == "frostline partition public.many --by created_at --period month --key id,created_at"
    assert [one.reason for one in many.obstacles] == [
        "it is not a partitioned table",
        "foreign keys of other tables point at it (public.notes.notes_log_fkey)",
    ]
    assert many.cold is not None
    assert many.cold.rows == pytest.approx(300_000, rel=0.25)
    assert many.sampled is not None
    assert 1 < many.sampled.row_bytes < many.sizes.row_bytes / 3
    assert [(lock.step, lock.mode) for lock in many.locks] == [
        ("partition", "SHARE ROW EXCLUSIVE"),
        ("partition", "ACCESS SHARE"),
        ("partition", "ACCESS EXCLUSIVE"),
    ]
    assert found["notes"].locks == []  # nor is there anything to be done
    assert found["notes"].notes == ["it has no column of a time or date by which it could be cut"]
    assert any("money" in one.reason for one in found["notes"].obstacles)


def test_a_histogram_tells_the_ages_of_a_plain_table(database: str) -> None:
    execute(database, LOGS + "ANALYZE public.logs")
    profile = look(database, "logs")["logs"].profile
    months = execute(database, "SELECT to_char(created_at, 'YYYY-MM'), count(*) FROM public.logs GROUP BY 1 ORDER BY 1")
    assert [one.label for one in profile] == [label for label, _ in months]
    # Of each month some 3,000 rows are in the sample, with a deviation of 2 %: five of them.
    assert [one.rows for one in profile] == pytest.approx([rows for _, rows in months], rel=0.1)


def test_a_role_that_may_read_one_table_is_told_which_it_may_not(server: str, request: pytest.FixtureRequest) -> None:
    execute(server, EVENTS + LOGS)
    role = f"reader_{uuid.uuid4().hex[:8]}"
    execute(server, f"CREATE ROLE {role} LOGIN PASSWORD 'reader'; GRANT SELECT ON public.events TO {role}")
    request.addfinalizer(lambda: execute(server, f"DROP OWNED BY {role}; DROP ROLE {role}"))
    found = look(make_conninfo(server, user=role, password="reader"))
    events, logs = found["events"], found["logs"]
    assert events.readable
    assert events.sampled is not None  # by way of the table: the partitions are not granted
    assert events.notes == []
    assert events.next == "frostline register public.events --hot '3 months'   # as postgres"
    assert not logs.readable
    assert logs.sizes is not None
    assert logs.sizes.heap > 5_000_000
    assert logs.notes == [f"not readable by this role: GRANT SELECT ON public.logs TO {role}"]
    assert logs.cold is None


def test_the_command_prints_the_grant_that_is_missing(
    database: str, frostline: Run, request: pytest.FixtureRequest
) -> None:
    role = f"Reader {uuid.uuid4().hex[:8]}"
    execute(database, f'CREATE ROLE "{role}" LOGIN PASSWORD \'reader\'; CREATE SCHEMA "S.x"')
    request.addfinalizer(lambda: execute(database, f'DROP OWNED BY "{role}"; DROP ROLE "{role}"'))
    execute(database, 'CREATE TABLE "S.x".t (id int, at date NOT NULL, PRIMARY KEY (id))')
    command = ("assess", "--dsn", make_conninfo(database, user=role, password="reader"), '"S.x".t')
    told = frostline(*command).stdout
    assert told.count(f'TO "{role}"') == 2, told
    execute(database, told.partition("not readable by this role: ")[2])
    told = frostline(*command).stdout
    assert "not readable" not in told
    assert "next       frostline partition '\"S.x\".t' --by at --period month --key id,at" in told
    assert "  locks      partition SHARE ROW EXCLUSIVE" in told.replace("  SHARE ROW", " SHARE ROW")


def test_what_it_says_to_run_can_be_pasted_whatever_the_names(server: str, request: pytest.FixtureRequest) -> None:
    role = f"Odd {uuid.uuid4().hex[:6]}"
    execute(
        server,
        f'CREATE ROLE "{role}" LOGIN PASSWORD \'reader\'; CREATE SCHEMA "order"; CREATE SCHEMA "It\'s";'
        'CREATE TABLE "order"."My.Table" ("a,b" int, id int, "T s" timestamptz NOT NULL, PRIMARY KEY (id, "a,b"));'
        'CREATE TABLE "It\'s"."events" ("T s" timestamptz PRIMARY KEY) PARTITION BY RANGE ("T s");'
        "CREATE TABLE \"It's\".old PARTITION OF \"It's\".events FOR VALUES FROM ('2024-01-01') TO ('2024-02-01');"
        f'GRANT USAGE ON SCHEMA "It\'s" TO "{role}"',
    )
    request.addfinalizer(lambda: execute(server, f'DROP OWNED BY "{role}"; DROP ROLE "{role}"'))
    reader = make_conninfo(server, user=role, password="reader")
    notes = {name: one.notes[0].removeprefix("not readable by this role: ") for name, one in look(reader).items()}
    assert notes == {
        "events": f'GRANT SELECT ON "It\'s".events TO "{role}"',
        "My.Table": f'GRANT USAGE ON SCHEMA "order" TO "{role}"; GRANT SELECT ON "order"."My.Table" TO "{role}"',
    }
    for statements in notes.values():
        execute(server, statements)
    found = look(reader, '"It\'s".events', '"order"."My.Table"', hot="90 days")
    assert all(one.readable for one in found.values())

    register, partition = (shlex.split(found[name].next or "", comments=True)[1:] for name in ("events", "My.Table"))
    assert register == ["register", '"It\'s".events', "--hot", "90 days"]
    key = 'id,"a,b",T s'  # as CSV
    assert partition == ["partition", 'order."My.Table"', "--by", "T s", "--period", "month", "--key", key]
    with connect(server) as connection:
        for command in (register, partition):
            assert describe.resolve(connection, command[1])[1:] in {("It's", "events"), ("order", "My.Table")}


def test_nobody_has_to_wait_and_it_waits_for_nobody(database: str) -> None:
    execute(database, EVENTS + LOGS)
    with psycopg.connect(database) as writer, psycopg.connect(database) as owner:
        # Conflicts with every lock but ACCESS SHARE.
        writer.execute("LOCK TABLE public.events IN EXCLUSIVE MODE")
        owner.execute("LOCK TABLE public.logs IN ACCESS EXCLUSIVE MODE")
        found = look(database)
    assert found["events"].sampled is not None
    assert found["events"].notes == []
    assert found["logs"].notes == ["its size is not known: somebody has locked the table"]


def test_integer_keys_take_a_width(database: str) -> None:
    execute(
        database,
        "CREATE TABLE public.numbers (n bigint PRIMARY KEY, v text) PARTITION BY RANGE (n);"
        "CREATE TABLE public.numbers_0 PARTITION OF public.numbers FOR VALUES FROM (0) TO (1000);"
        "CREATE TABLE public.numbers_1 PARTITION OF public.numbers FOR VALUES FROM (1000) TO (2000);"
        "CREATE TABLE public.numbers_2 PARTITION OF public.numbers FOR VALUES FROM (2000) TO (3000);"
        "INSERT INTO public.numbers SELECT n, n FROM generate_series(0, 2499) n; ANALYZE public.numbers",
    )
    wide = look(database, "numbers", hot="1200")["numbers"]
    assert wide.cold is not None
    assert (wide.cold.partitions, wide.cold.rows) == (1, 1000)
    by_time = look(database, "numbers")["numbers"]
    assert by_time.cold is None
    assert "its key is an integer, so give --hot as WIDTH" in by_time.notes[0]


def test_odd_shapes_are_listed_and_never_fail(database: str) -> None:
    execute(
        database,
        'CREATE SCHEMA "a b"; CREATE TABLE "a b"."T"".x" (id int, at date);'
        "INSERT INTO \"a b\".\"T\"\".x\" VALUES (1, 'infinity'), (2, NULL), (3, '-infinity'), (4, '2020-01-01');"
        "CREATE TABLE public.hashed (id int) PARTITION BY HASH (id);"
        "CREATE TABLE public.hashed_0 PARTITION OF public.hashed FOR VALUES WITH (MODULUS 1, REMAINDER 0);"
        "CREATE TABLE public.tree (r text, ts date, PRIMARY KEY (r, ts)) PARTITION BY LIST (r);"
        "CREATE TABLE public.tree_a PARTITION OF public.tree FOR VALUES IN ('a') PARTITION BY RANGE (ts);"
        "CREATE TABLE public.tree_a1 PARTITION OF public.tree_a FOR VALUES FROM ('2020-01-01') TO ('2021-01-01');"
        "CREATE TABLE public.bare (); CREATE UNLOGGED TABLE public.quick (id int PRIMARY KEY, at timestamptz);"
        "CREATE TABLE public.empty (id int, ts timestamptz, PRIMARY KEY (id, ts)) PARTITION BY RANGE (ts)",
    )
    found = look(database, '"a b"."T"".x"', "hashed", "tree", "bare", "quick", "empty")
    odd = found['T".x']
    assert odd.next == """frostline partition '"a b"."T"".x"' --by at --period month"""
    assert odd.sampled is not None
    assert odd.sampled.rows == 1
    assert found["tree"].partitions == 1
    assert any("RANGE" in one.reason for one in found["hashed"].obstacles)
    assert any("UNLOGGED" in one.reason for one in found["quick"].obstacles)
    assert "it has no partitions" in [one.reason for one in found["empty"].obstacles]
    for one in found.values():
        assert not any("syntax" in note or "not known" in note for note in one.notes), (one.name, one.notes)


def test_the_command_needs_no_java_and_fits_100_columns(database: str, frostline: Run) -> None:
    execute(database, EVENTS + LOGS)
    no_java = {"PATH": "", "JAVA_HOME": None}
    done = frostline("assess", "--dsn", database, "--hot", "90d", env=no_java)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert max(map(len, lines)) <= 100
    assert lines[0].endswith("2 tables, " + lines[0].split(", ")[-1])
    assert any(line.startswith("  2024-01") and "█" in line and line.rstrip().endswith("cold") for line in lines)
    assert any("SHARE UPDATE EXCLUSIVE" in line for line in lines)
    done = frostline("--dsn", database, "assess", "--json", "public.events", env=no_java)
    (events,) = json.loads(done.stdout)["tables"]
    assert events["table"] == "public.events"
    assert events["cold"]["rows"] == 43200
    assert events["sizes"]["total"] == sum(events["sizes"][part] for part in ("heap", "indexes", "toast"))
    failed_clearly(frostline("assess", "--dsn", database, "--hot", "soon"), "--hot 'soon' is no positive interval")
    assert execute(database, "SELECT count(*) FROM pg_namespace WHERE nspname LIKE 'frostline%'") == [(0,)]
