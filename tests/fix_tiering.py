"""A database with the registry, a gateway of its own and Spark: everything a tiered table needs, on 18 and on 15."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from pydantic import SecretStr
from pyspark.sql import SparkSession

from frostline import config
from frostline.catalog import registry
from frostline.catalog.database import Connection, connect
from frostline.catalog.install import install
from frostline.config import Settings
from frostline.gateway.server import Gateway
from frostline.local import artifacts
from frostline.pipeline import session
from frostline.report import Report, Silent
from frostline.tiering import clean, register
from frostline.tiering.archive import run
from frostline.tiering.archive.run import Archived, Warm, archive
from frostline.tiering.locks import only_writer


def lake_directory(dsn: str, warehouse: str | Path, table: str) -> Path:
    """Where the files of a table of the schema public are, in a local warehouse."""
    with psycopg.connect(dsn) as connection:
        row = connection.execute("SELECT left(id::text, 8) FROM frostline.installation").fetchone()
    assert row is not None
    return Path(warehouse) / "public" / f"{table}-{row[0]}"


@dataclass
class World:
    """One database, its gateway and its lake."""

    settings: Settings
    spark: SparkSession
    gateway: Gateway
    connections: list[psycopg.Connection[Any]] = field(default_factory=list)

    @property
    def dsn(self) -> str:
        return self.settings.dsn.get_secret_value()

    def connect(self, **options: Any) -> psycopg.Connection[Any]:
        """A plain client's connection, closed with the world."""
        connection: psycopg.Connection[Any] = psycopg.connect(self.dsn, **{"autocommit": True, **options})
        self.connections.append(connection)
        return connection

    def run(self, query: str | sql.Composed, *parameters: object) -> list[tuple[Any, ...]]:
        with psycopg.connect(self.dsn, autocommit=True) as connection:
            cursor = connection.execute(query, parameters or None)
            return cursor.fetchall() if cursor.description is not None else []

    def register(self, table: str, hot: str = "3 months") -> None:
        with connect(self.dsn) as connection:
            register.register(connection, table, hot)

    def archive(self, table: str, before: str | None = None) -> list[Archived]:
        """What has expired, or what is older than a date: then it is the same whenever the test runs."""
        if before is None:
            return archive(self.settings, table, Silent(), self.spark_here)
        with Warm(self.spark_here) as warm:
            return list(run.periods(self.settings, table, Silent(), warm, before, named=True))

    def archive_aloud(self, table: str) -> list[str]:
        """Archive, and what Postgres says of each constraint: proven by others, or verified by reading a table."""
        said: list[str] = []

        def listening(*arguments: Any, **options: Any) -> Connection:
            connection = connect(*arguments, **options)
            connection.execute("SET client_min_messages = debug1")
            connection.add_notice_handler(lambda notice: said.append(notice.message_primary or ""))
            return connection

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(run, "connect", listening)
            self.archive(table)
        return [text for text in said if text.startswith("verifying") or "implied by existing" in text]

    def clean(self, table: str) -> None:
        """Whatever nobody refers to is removed, however young it is."""
        with connect(self.dsn) as connection, only_writer(connection, registry.get(connection, table)) as managed:
            clean.clean(connection, self.settings, managed, 0, Silent())

    def directory(self, table: str) -> Path:
        return lake_directory(self.dsn, self.settings.warehouse, table)

    def spark_here(self) -> AbstractContextManager[SparkSession]:
        return nullcontext(session.for_database(self.spark, self.settings))

    def restart_gateway(self) -> None:
        self.gateway.stop(grace=0)
        self.gateway = Gateway(self.settings)
        self.gateway.start()


@pytest.fixture(scope="session")
def spark(settings: Settings, report: Report) -> Iterator[SparkSession]:
    """One JVM for the whole run."""
    jars = artifacts.fetch(settings, report=report).jars
    started = session.start(settings, [*jars, artifacts.fetch_jar(artifacts.S3_JAR, settings, report=report)])
    yield started
    session.stop(started)


@contextmanager
def new_world(
    server: str,
    spark: SparkSession,
    directory: Path,
    options: Mapping[str, str] | None = None,
    *,
    dump: str = "",
    keep: bool = False,
) -> Iterator[World]:
    """A database of its own, or of a dump, with a gateway; in a directory unless the options say otherwise.

    `keep`: it goes with its server.
    """
    name = f"world_{uuid.uuid4().hex[:12]}"
    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
    dsn = make_conninfo(server, dbname=name)
    if dump:
        with psycopg.connect(dsn, autocommit=True) as connection:
            connection.execute(dump)
    install(dsn)
    places = {"dsn": dsn, "local.dir": str(directory), "lake.warehouse": str(directory / "lake")}
    loaded = config.load({**places, **(options or {})}).settings
    world = World(loaded, spark, Gateway(loaded))
    world.gateway.start()
    yield world
    for client in world.connections:
        client.close()
    world.gateway.stop(grace=0)
    if not keep:
        with psycopg.connect(server, autocommit=True) as connection:
            connection.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(name)))


@pytest.fixture
def world(dsn: str, spark: SparkSession, tmp_path: Path) -> Iterator[World]:
    """A fresh database on the embedded Postgres 18."""
    with new_world(dsn, spark, tmp_path) as made:
        yield made


@pytest.fixture(params=["18", "15"])
def any_world(request: pytest.FixtureRequest, spark: SparkSession, tmp_path: Path) -> Iterator[World]:
    """The same on 18 and on 15."""
    server = request.getfixturevalue("dsn" if request.param == "18" else "postgres15")
    with new_world(server, spark, tmp_path) as made:
        yield made


@pytest.fixture
def as_role(world: World) -> Iterator[World]:
    """`world`, but everything of ours runs as a role with no more than the documented grants."""
    name = f"keeper_{uuid.uuid4().hex[:8]}"
    with psycopg.connect(world.dsn, autocommit=True) as connection:
        connection.execute(sql.SQL("CREATE ROLE {} LOGIN PASSWORD 'keeper'").format(sql.Identifier(name)))
    settings = world.settings.model_copy(
        update={"dsn": SecretStr(make_conninfo(world.dsn, user=name, password="keeper"))}
    )
    yield World(settings, world.spark, world.gateway)
    with psycopg.connect(world.dsn, autocommit=True) as connection:
        connection.execute(sql.SQL("DROP OWNED BY {} CASCADE").format(sql.Identifier(name)))
        connection.execute(sql.SQL("DROP ROLE {}").format(sql.Identifier(name)))


@pytest.fixture
def keeper(as_role: World, world: World) -> Iterator[World]:
    """`as_role`, which has installed all of ours itself and runs a gateway: as on managed Postgres."""
    role, name = (conninfo_to_dict(one.dsn)[part] for one, part in ((as_role, "user"), (world, "dbname")))
    world.gateway.stop(grace=0)
    world.run("DROP EXTENSION postgres_fdw CASCADE; DROP SCHEMA frostline, frostline_delta, frostline_lake CASCADE")
    world.run(
        f'CREATE EXTENSION postgres_fdw; GRANT CREATE ON DATABASE "{name}" TO {role};'
        f"GRANT USAGE ON FOREIGN DATA WRAPPER postgres_fdw TO {role}"
    )
    install(as_role.dsn)
    as_role.gateway = Gateway(as_role.settings)
    as_role.gateway.start()
    yield as_role
    as_role.gateway.stop(grace=0)
