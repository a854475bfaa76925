"""The servers and tables all benchmarks share: a stack with archived tables, and another real Postgres beside it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict

from bench import tables
from bench.tables import Shape
from frostline import config
from frostline.catalog.database import connect
from frostline.config import Settings
from frostline.local import artifacts
from frostline.local import stack as local_stack
from frostline.local.ports import free_port
from frostline.local.postgres import Server
from frostline.pipeline import session
from frostline.report import Report, Silent
from frostline.tiering import register
from frostline.tiering.archive.run import archive

_PASSWORD = "bench"  # noqa: S105  of a server that listens on this machine for an hour


@dataclass
class World:
    """Where to connect, and what the tables look like."""

    settings: Settings
    dsn: str
    peer: str
    shapes: dict[str, Shape]

    def connect(self, dsn: str | None = None) -> psycopg.Connection[Any]:
        connection: psycopg.Connection[Any] = psycopg.connect(dsn or self.dsn, autocommit=True)
        connection.execute("SET timezone = 'UTC'")
        return connection


@contextmanager
def opened(directory: Path, rows: int, *, filled: bool = True) -> Iterator[World]:
    """Build everything under `directory`, or take what an earlier run with as many rows has left there."""
    report = Silent()
    settings = config.load({"local.dir": str(directory / "stack")}, directory=directory, environ={}).settings
    stack = local_stack.up(settings, report)
    settings = config.load(
        {"local.dir": str(stack.directory)},
        directory=directory,
        environ={},
        stack=local_stack.stack_settings(stack.directory),
    ).settings
    server, peer = _peer(settings, directory, report)
    world = World(settings, stack.dsn, peer, tables.shapes(rows))
    try:
        if filled:
            _build(world, report)
        yield world
    finally:
        server.stop()
        local_stack.down(settings, report)


def _peer(settings: Settings, directory: Path, report: Report) -> tuple[Server, str]:
    home = artifacts.fetch(settings, report=report).postgres
    server = Server(home, directory / "peer")
    if not server.initialised():
        server.initialise(_PASSWORD)
    running = server.running() or server.start(free_port())
    return server, f"postgresql://postgres:{_PASSWORD}@127.0.0.1:{running.port}/postgres"


def _build(world: World, report: Report) -> None:
    with world.connect() as connection:
        if connection.execute("SELECT to_regclass('built')").fetchone() == (None,):
            started = time.monotonic()
            for shape in world.shapes.values():
                with world.connect(world.peer) as peer:
                    _create(peer, shape.name, tables.create(shape))
                _create(connection, shape.name, tables.create(shape))
                print(f"  {shape.name}: {shape.cold_rows:,} rows, {time.monotonic() - started:.0f} s", flush=True)
            _create(connection, "plain", tables.create(world.shapes["events"], "plain", cold_rows=False))
            _archive(world, report)
            print(f"  archived, {time.monotonic() - started:.0f} s", flush=True)
            connection.execute("CREATE TABLE built AS SELECT now()")
        _link(world, connection)


def _archive(world: World, report: Report) -> None:
    jars = artifacts.fetch(world.settings, report=report).jars
    with connect(world.dsn) as connection:
        for name in world.shapes:
            register.register(connection, f"public.{name}", f"{tables.HOT_MONTHS} months")
    for name in world.shapes:
        archive(world.settings, f"public.{name}", report, lambda: session.spark_session(world.settings, jars))
    with world.connect() as connection:
        connection.execute("VACUUM ANALYZE")


def _link(world: World, connection: psycopg.Connection[Any]) -> None:
    """The peer's leaves as foreign partitions here: the same plan, only the server behind it differs."""
    at = conninfo_to_dict(world.peer)
    connection.execute("DROP SERVER IF EXISTS peer CASCADE")
    for name in world.shapes:
        connection.execute(sql.SQL("DROP TABLE IF EXISTS {}").format(sql.Identifier(f"peer_{name}")))
    connection.execute(
        sql.SQL(
            "CREATE SERVER peer FOREIGN DATA WRAPPER postgres_fdw"
            " OPTIONS (host '127.0.0.1', port {}, dbname 'postgres', fetch_size '10000')"
        ).format(sql.Literal(str(at["port"])))
    )
    connection.execute(
        sql.SQL("CREATE USER MAPPING FOR PUBLIC SERVER peer OPTIONS (user 'postgres', password {})").format(
            sql.Literal(_PASSWORD)
        )
    )
    for shape in world.shapes.values():
        connection.execute(f"CREATE TABLE peer_{shape.name} ({shape.columns}) PARTITION BY RANGE (ts)")
        for month in list(tables.months(shape))[: shape.periods]:
            connection.execute(
                f"CREATE FOREIGN TABLE peer_{month.name} PARTITION OF peer_{shape.name}"
                f" FOR VALUES FROM ('{month.lower}') TO ('{month.upper}')"
                f" SERVER peer OPTIONS (table_name '{month.name}')"
            )


def _create(connection: psycopg.Connection[Any], name: str, statements: Iterator[str]) -> None:
    """Make a table, unless an earlier run got to its end."""
    found = connection.execute("SELECT obj_description(to_regclass(%s), 'pg_class')", [name]).fetchone()
    if found == ("complete",):
        return
    connection.execute(f"DROP TABLE IF EXISTS {name}")
    for statement in statements:
        connection.execute(statement)
    connection.execute(f"COMMENT ON TABLE {name} IS 'complete'")
