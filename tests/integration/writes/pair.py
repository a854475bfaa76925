"""The tiered table and its plain twin, and the same statements on both."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import psycopg

from fix_tiering import World

COLUMNS = """
    id bigint NOT NULL, ts timestamptz NOT NULL, i int DEFAULT 7, n numeric(12, 4), f float8, t text, v varchar(8),
    c char(4), b bool, d date, u uuid, y bytea, j jsonb, a int[], m mood, p positive, k int,
    g bigint GENERATED ALWAYS AS (id * 10) STORED,
    CONSTRAINT sane CHECK (i > -1000)
"""
PERIODS = ("2026_01", "2026-01-01", "2026-02-01"), ("2026_02", "2026-02-01", "2026-03-01")
HOT = "2026_11", "2026-11-01", "2026-12-01"
FILL = """
INSERT INTO {} (id, ts, i, n, f, t, v, c, b, d, u, y, j, a, m, p, k)
SELECT x, CASE WHEN x <= 200 THEN timestamptz '2026-01-01 00:00Z' + x * interval '1 hour'
               WHEN x <= 400 THEN timestamptz '2026-02-01 00:00Z' + (x - 200) * interval '1 hour'
               ELSE timestamptz '2026-11-01 00:00Z' + (x - 400) * interval '1 hour' END,
       nullif(x % 17, 3), x * 1.5, x / 3.0, 'row ' || x, 'v' || x % 9, 'c' || x % 7, x % 2 = 0,
       date '2026-01-01' + x % 40,
       ('00000000-0000-0000-0000-' || lpad(x::text, 12, '0'))::uuid, decode(lpad(to_hex(x), 4, '0'), 'hex'),
       jsonb_build_object('x', x), ARRAY[x, x + 1], (ARRAY['sad', 'ok', 'happy'])[1 + x % 3]::mood, 1 + x % 5, x % 10
FROM generate_series(1, 500) x
"""
ALL = "SELECT id, ts, i, n, f, t, v, c, b, d, u, y, j, a, m, p, k, g FROM {} ORDER BY id, ts"

Outcome = tuple[str, list[tuple[bytes | None, ...]]]


@dataclass
class Pair:
    """`{t}` in a statement stands for the tiered table, then for its plain twin."""

    world: World
    tables: tuple[str, str] = ("tiered", "plain")
    sessions: dict[str, psycopg.Connection[Any]] = field(default_factory=dict)  # by table

    def same(self, statements: Iterable[str], *, commit: bool = False, fresh: bool = True) -> list[Outcome]:
        """Run the statements in one transaction on each; every result and all rows afterwards must be equal.

        Fresh: in sessions of their own, which take longer than most statements.
        """
        statements = list(statements)
        tiered, plain = (self.run(table, statements, commit=commit, fresh=fresh) for table in self.tables)
        for statement, ours, theirs in zip([*statements, "all rows"], tiered, plain, strict=True):
            assert ours == theirs, statement
        return tiered

    def run(self, table: str, statements: Iterable[str], *, commit: bool = False, fresh: bool = True) -> list[Outcome]:
        if not fresh:
            if table not in self.sessions or self.sessions[table].closed:
                self.sessions[table] = self._session()
            return self._run(self.sessions[table], table, statements, commit)
        with self._session() as connection:
            return self._run(connection, table, statements, commit)

    def _session(self) -> psycopg.Connection[Any]:
        connection = self.world.connect()
        connection.execute("SET timezone = 'UTC'")
        return connection

    def _run(
        self, connection: psycopg.Connection[Any], table: str, statements: Iterable[str], commit: bool
    ) -> list[Outcome]:
        with connection.transaction(force_rollback=not commit):
            outcomes = [outcome(connection, statement.replace("{t}", table)) for statement in statements]
            outcomes.append(outcome(connection, ALL.format(table), ordered=True))
        return outcomes


def outcome(
    connection: psycopg.Connection[Any], statement: str, *, ordered: bool = False, alone: bool = True
) -> Outcome:
    """A statement's tag and rows, or its error's SQLSTATE; alone, a failed one is undone."""
    own = alone and connection.info.transaction_status != psycopg.pq.TransactionStatus.IDLE and not _ends(statement)
    try:
        if own:
            with connection.transaction():
                result = connection.execute(statement).pgresult
        else:
            result = connection.execute(statement).pgresult
    except psycopg.Error as error:
        return str(error.sqlstate), []
    assert result is not None
    found = [tuple(result.get_value(row, c) for c in range(result.nfields)) for row in range(result.ntuples)]
    return (result.command_status or b"").decode(), found if ordered else sorted(found, key=repr)


def _ends(statement: str) -> bool:
    """Savepoints of the script's own, which must not be inside one of ours."""
    return statement.split(maxsplit=1)[0].upper() in ("SAVEPOINT", "ROLLBACK", "RELEASE", "SET")


def build(world: World) -> Pair:
    world.run("CREATE TYPE mood AS ENUM ('sad', 'ok', 'happy'); CREATE DOMAIN positive AS int CHECK (VALUE > 0)")
    world.run(
        "CREATE TABLE other (k int PRIMARY KEY, w text);"
        " INSERT INTO other SELECT x, 'w' || x FROM generate_series(0, 9) x"
    )
    return _archived(Pair(world), f"{COLUMNS}, FOREIGN KEY (k) REFERENCES other")


def build_direct(world: World) -> Pair:
    """Without a generated column: only then does postgres_fdw send an UPDATE or DELETE whole."""
    return _archived(
        Pair(world, ("direct", "direct_twin")), COLUMNS.replace("GENERATED ALWAYS AS (id * 10) STORED", "")
    )


def build_narrow(world: World) -> Pair:
    """Without whatever Postgres has to be asked about when a row gets other values."""
    columns = COLUMNS.replace("c char(4)", "c text").replace(" DEFAULT 7", "")
    for computed in ("GENERATED ALWAYS AS (id * 10) STORED", ",\n    CONSTRAINT sane CHECK (i > -1000)"):
        columns = columns.replace(computed, "")
    return _archived(Pair(world, ("narrow", "narrow_twin")), columns)


def build_bulk(world: World) -> Pair:
    """The same, and fifty new rows are many."""
    found = _archived(Pair(world, ("bulk", "bulk_twin")), COLUMNS.replace("GENERATED ALWAYS AS (id * 10) STORED", ""))
    world.run("UPDATE frostline.tables SET bulk_rows = 50 WHERE relation = 'bulk'::regclass")
    return found


def _archived(pair: Pair, columns: str) -> Pair:
    world, (tiered, plain) = pair.world, pair.tables
    for table in pair.tables:
        world.run(f"CREATE TABLE {table} ({columns}, PRIMARY KEY (id, ts)) PARTITION BY RANGE (ts)")
        for name, lower, upper in (*PERIODS, HOT):
            world.run(f"CREATE TABLE {table}_{name} PARTITION OF {table} FOR VALUES FROM ('{lower}Z') TO ('{upper}Z')")
        world.run(f"CREATE TABLE {table}_later PARTITION OF {table} FOR VALUES FROM ('2026-12-01Z') TO ('2027-01-01Z')")
        world.run(FILL.format(table))
    # The tiered table's oldest partition reaches down to the beginning of time, so its twin's does too.
    world.run(f"CREATE TABLE {plain}_before PARTITION OF {plain} FOR VALUES FROM (MINVALUE) TO ('2026-01-01Z')")
    world.run(f"CREATE TABLE {plain}_between PARTITION OF {plain} FOR VALUES FROM ('2026-03-01Z') TO ('2026-11-01Z')")
    world.register(f"public.{tiered}")
    assert len(world.archive(f"public.{tiered}", f"{PERIODS[-1][2]}Z")) == 2
    return pair
