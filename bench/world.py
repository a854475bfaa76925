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

_COMPLETE, _ARCHIVED = "complete", "archived"


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
    with world.connect() as connection, world.connect(world.peer) as peer:
        _create(connection, "plain", tables.create(world.shapes["events"], "plain"))
        for shape in world.shapes.values():
            if _said(connection, shape.name) == _ARCHIVED:
                continue
            started = time.monotonic()
            _create(peer, shape.name, tables.create(shape))
            _create(connection, shape.name, tables.create(shape))
            _archive(world, shape.name, report)
            connection.execute(f"VACUUM ANALYZE {shape.name}")
            connection.execute(f"COMMENT ON TABLE {shape.name} IS '{_ARCHIVED}'")
            print(f"  {shape.name}: {shape.cold_rows:,} rows, {time.monotonic() - started:.0f} s", flush=True)
        _link(world, connection)


def _archive(world: World, name: str, report: Report) -> None:
    jars = artifacts.fetch(world.settings, report=report).jars
    with connect(world.dsn) as connection:
        register.register(connection, f"public.{name}", f"{tables.HOT_MONTHS} months")
    archive(world.settings, f"public.{name}", report, lambda: session.spark_session(world.settings, jars))


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
    if _said(connection, name) == _COMPLETE:
        return
    connection.execute(f"DROP TABLE IF EXISTS {name}")
    for statement in statements:
        connection.execute(statement)
    connection.execute(f"COMMENT ON TABLE {name} IS '{_COMPLETE}'")


def _said(connection: psycopg.Connection[Any], name: str) -> str | None:
    """What a table's comment says about how far an earlier run has come with it."""
    found = connection.execute("SELECT obj_description(to_regclass(%s), 'pg_class')", [name]).fetchone()
    return found[0] if found else None
