"""What an earlier version has made, cold rows included, goes on while gateways of both run."""

from __future__ import annotations

import subprocess
import sys
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from pyspark.sql import SparkSession

from fix_cluster import wait_until
from fix_commands import command, environment
from fix_tiering import World
from frostline import config
from frostline.catalog import install
from frostline.catalog.database import connect
from frostline.config import Settings
from frostline.gateway.server import Gateway
from frostline.local import artifacts
from frostline.local.ports import free_port
from frostline.report import Report, Silent
from frostline.tiering import checks, doctor, verify, writing
from frostline.tiering.archive.run import Warm
from frostline.tiering.fold.run import fold
from frostline.tiering.unregister import unregister
from integration.catalog.test_upgrade import BEFORE, DUMP, REFUSED
from integration.tiering.test_archive import SIMPLE

PLAIN = SIMPLE + "CREATE TABLE public.plain AS TABLE public.events;"
# What the earlier version does with its own code, in a process of its own.
ARCHIVE = """
import sys
from contextlib import nullcontext
from pathlib import Path
from frostline import config
from frostline.catalog.database import connect
from frostline.catalog.install import install
from frostline.pipeline import session
from frostline.report import Silent
from frostline.tiering import register
from frostline.tiering.archive.run import archive
settings = config.load().settings
dsn = settings.dsn.get_secret_value()
if sys.argv[1] == "init":
    install(dsn)
else:
    with connect(dsn) as connection:
        register.register(connection, "public.events", "3 months")
    spark = session.start(settings, [Path(jar) for jar in sys.argv[2:]])
    archive(settings, "public.events", Silent(), lambda: nullcontext(session.for_database(spark, settings)))
    session.stop(spark)
"""


@dataclass
class Earlier:
    """A database, its lake and its gateway of an earlier version; `world.gateway` is of this one, not started."""

    world: World
    gateway: subprocess.Popen[bytes]
    port: int


@pytest.fixture
def earlier(dsn: str, spark: SparkSession, settings: Settings, report: Report, tmp_path: Path) -> Iterator[Earlier]:
    source = tmp_path / "older"
    source.mkdir()
    found = subprocess.run(["git", "archive", BEFORE, "src"], cwd=ROOT, capture_output=True, check=False)
    if found.returncode != 0:
        pytest.skip("the sources of an earlier version are only in the history")
    subprocess.run(["tar", "x", "-C", source], input=found.stdout, check=True)
    name = f"earlier_{uuid.uuid4().hex[:8]}"
    with psycopg.connect(dsn, autocommit=True) as server:
        server.execute(f"CREATE DATABASE {name}")
    places = {
        "dsn": make_conninfo(dsn, dbname=name),
        "local.dir": str(tmp_path),
        "lake.warehouse": str(tmp_path / "lake"),
    }
    own = config.load(places).settings
    port, world = free_port(), World(own, spark, Gateway(own))
    env = environment(
        {config.env_name(key): value for key, value in places.items()}
        | {"PYTHONPATH": str(source / "src"), config.env_name("gateway.port"): str(port)}
    )
    jars = [str(jar) for jar in artifacts.fetch(settings, report=report).jars]
    subprocess.run([sys.executable, "-c", ARCHIVE, "init"], env=env, cwd=source, check=True)
    with subprocess.Popen(command("gateway"), env=env, cwd=source) as gateway:
        try:
            wait_until(lambda: ports(world) == [port], 60, "it is known to Postgres")
            world.run(PLAIN)
            subprocess.run([sys.executable, "-c", ARCHIVE, "archive", *jars], env=env, cwd=source, check=True)
            yield Earlier(world, gateway, port)
        finally:
            gateway.kill()
            world.gateway.stop(grace=0)
            for client in world.connections:
                client.close()
    with psycopg.connect(dsn, autocommit=True) as server:
        server.execute(f"DROP DATABASE {name} WITH (FORCE)")


ROOT = DUMP.parents[3]


def ports(world: World) -> list[int]:
    """Of the gateways that Postgres is told, in the order in which it asks them."""
    found = world.run(
        "SELECT option_value FROM pg_foreign_server, pg_options_to_table(srvoptions) WHERE option_name = 'port'"
    )
    return [int(port) for (text,) in found for port in text.split(",")]


def rows(client: psycopg.Connection[Any], table: str) -> list[tuple[Any, ...]]:
    return client.execute(f"SELECT id, ts, v FROM {table} ORDER BY id").fetchall()


def same(world: World) -> None:
    with psycopg.connect(world.dsn) as client:
        assert rows(client, "public.events") == rows(client, "public.plain")


def both(world: World, statement: str) -> None:
    world.run("; ".join(statement.format(t=table) for table in ("public.events", "public.plain")))


def test_cold_rows_of_an_earlier_version_go_on_while_gateways_of_both_run(earlier: Earlier) -> None:
    world = earlier.world
    both(world, "UPDATE {t} SET v = -1 WHERE id IN (3, 800, 1999)")  # by the older one, and not folded
    both(world, "DELETE FROM {t} WHERE id IN (4, 801)")
    both(world, "INSERT INTO {t} VALUES (5000, '2020-01-05', 7)")
    reader = world.connect(autocommit=False)
    reader.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
    before = rows(reader, "public.events")
    reader.commit()
    assert "migration 020_staged.sql" in install.install(world.dsn)
    with connect(world.dsn) as connection:
        assert writing.equip(connection) == ["what writes cold rows of public.events"]
    assert rows(reader, "public.events") == before  # by the older one, which stays its own until the transaction ends
    world.gateway.start()
    assert ports(world) == [world.gateway.port, earlier.port]
    both(world, "UPDATE {t} SET v = v + 1 WHERE id IN (3, 5, 5000, 1998)")  # who comes now comes to the new one
    with Warm(world.spark_here) as warm:
        assert fold(world.settings, "public.events", Silent(), warm)
    assert rows(reader, "public.events") == before
    reader.commit()
    reader.execute("UPDATE public.events SET v = 77 WHERE id = 6")  # and so does the next transaction of who was there
    reader.execute("UPDATE public.plain SET v = 77 WHERE id = 6")
    reader.commit()
    same(world)
    world.gateway.stop(grace=0)  # whoever is left reads, and stores nothing
    same(world)
    with pytest.raises(REFUSED, match="were not stored: the transaction cannot be committed"):
        world.run("UPDATE public.events SET v = 0 WHERE id = 7")
    world.gateway = Gateway(world.settings)
    world.gateway.start()
    earlier.gateway.kill()
    same(world)
    assert {found.state for found in verify.verify(world.settings, "public.events", None, Silent())} == {"good"}
    assert checks.PROBLEM not in {check.verdict for check in doctor.examine(world.settings)}
    unregister(world.settings, "public.events", Silent(), keep_lake=False)
    same(world)
    assert world.run("SELECT relname FROM pg_class WHERE relnamespace = 'frostline_delta'::regnamespace") == []


_SHAPE = {
    "columns": "SELECT c.oid::regclass::text, a.attname, format_type(a.atttypid, a.atttypmod), a.attnotnull,"
    " pg_get_expr(d.adbin, d.adrelid) FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0"
    " AND NOT a.attisdropped LEFT JOIN pg_attrdef d ON d.adrelid = c.oid AND d.adnum = a.attnum"
    " WHERE c.relkind IN ('r', 'v', 'f') AND c.relnamespace = ANY (%s)",
    "constraints": "SELECT conrelid::regclass::text, pg_get_constraintdef(oid) FROM pg_constraint"
    " WHERE contype <> 'n' AND connamespace = ANY (%s)",
    "functions": "SELECT oid::regprocedure::text, prosrc, prosecdef, proconfig, provolatile::text, proacl::text"
    " FROM pg_proc WHERE pronamespace = ANY (%s)",
    "views": "SELECT oid::regclass::text, pg_get_viewdef(oid) FROM pg_class"
    " WHERE relkind = 'v' AND relnamespace = ANY (%s)",
    "indexes": "SELECT pg_get_indexdef(x.indexrelid) FROM pg_index x JOIN pg_class c ON c.oid = x.indrelid"
    " WHERE c.relnamespace = ANY (%s)",
    "grants": "SELECT oid::regclass::text, relacl::text FROM pg_class WHERE relnamespace = ANY (%s)",
}
_OURS = "SELECT array_agg(oid) FROM pg_namespace WHERE nspname LIKE 'frostline%'"


def shape(dsn: str) -> dict[str, set[str]]:
    """The registry as the catalogue has it, without what belongs to a table of a user."""
    with psycopg.connect(dsn) as connection:
        ours = connection.execute(_OURS).fetchone()
        found = {what: connection.execute(query, ours).fetchall() for what, query in _SHAPE.items()}
    return {what: {str(row) for row in rows_ if "_1" not in str(row[0])} for what, rows_ in found.items()}


def test_a_registry_that_was_brought_up_to_date_is_what_a_new_one_is(database: str, dsn: str) -> None:
    name = f"{conninfo_to_dict(database)['dbname']}_upgraded"
    with psycopg.connect(dsn, autocommit=True) as server:
        server.execute(f"CREATE DATABASE {name}")
        upgraded = make_conninfo(dsn, dbname=name)
        with psycopg.connect(upgraded, autocommit=True) as connection:
            connection.execute(DUMP.read_text().encode())
        for one in (upgraded, database):
            install.install(one)
        assert shape(upgraded) == shape(database)
        server.execute(f"DROP DATABASE {name} WITH (FORCE)")
