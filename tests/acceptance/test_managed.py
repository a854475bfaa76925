"""Managed Postgres: the main job from end to end with the privileges of docs/managed.md, and no more, over TLS."""

from __future__ import annotations

import subprocess
import uuid
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from psycopg.conninfo import make_conninfo
from pyspark.sql import SparkSession

from fix_tiering import World
from frostline import config
from frostline.catalog import registry
from frostline.catalog.database import connect
from frostline.catalog.install import install
from frostline.gateway.server import Gateway
from frostline.report import Silent
from frostline.tiering import clean, cycle, unregister
from frostline.tiering import verify as verification
from frostline.tiering.assess.run import assess
from frostline.tiering.checks import PROBLEM
from frostline.tiering.doctor import examine
from frostline.tiering.locks import Wanted, only_writer
from frostline.tiering.partition.plan import Choice
from frostline.tiering.partition.run import partition

# A foreign key and an identity column, for what they need.
TABLE = """
CREATE TABLE public.kinds (id int PRIMARY KEY);
INSERT INTO public.kinds SELECT generate_series(0, 9);
CREATE TABLE public.events (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, ts timestamptz NOT NULL,
    kind int REFERENCES public.kinds, note text
);
INSERT INTO public.events (ts, kind, note)
SELECT timestamptz '2025-01-05' + i * interval '10 h', i % 10, 'note ' || i FROM generate_series(1, 800) i;
INSERT INTO public.events (ts, kind, note) VALUES (now(), 1, 'new');
"""


@pytest.fixture(params=["18", "15"])
def managed(request: pytest.FixtureRequest, spark: SparkSession, tmp_path: Path) -> Iterator[World]:
    """A database whose owner is nobody special; the admin has done two things in it."""
    admin = request.getfixturevalue("dsn" if request.param == "18" else "postgres15")
    suffix = uuid.uuid4().hex[:8]
    owner, app, name = f"owner_{suffix}", f"app_{suffix}", f"managed_{suffix}"
    with psycopg.connect(admin, autocommit=True) as connection:
        for role in (owner, app):
            connection.execute(
                f"CREATE ROLE {role} LOGIN NOSUPERUSER NOCREATEDB NOCREATEROLE NOREPLICATION NOBYPASSRLS PASSWORD 'pw'"
            )
        connection.execute(f"CREATE DATABASE {name} OWNER {owner}")
    with psycopg.connect(make_conninfo(admin, dbname=name), autocommit=True) as connection:
        connection.execute("CREATE EXTENSION postgres_fdw")
        connection.execute(f"GRANT USAGE ON FOREIGN DATA WRAPPER postgres_fdw TO {owner}")
    cert, key = _certificate(tmp_path)
    settings = config.load(
        {
            "dsn": make_conninfo(admin, dbname=name, user=owner, password="pw"),
            "local.dir": str(tmp_path),
            "lake.warehouse": str(tmp_path / "lake"),
            "gateway.tls_cert": cert,
            "gateway.tls_key": key,
        }
    ).settings
    install(settings.dsn.get_secret_value())
    world = World(settings, spark, Gateway(settings))
    world.gateway.start()
    yield world
    world.gateway.stop(grace=0)
    with psycopg.connect(admin, autocommit=True) as connection:
        connection.execute(f"DROP DATABASE {name} WITH (FORCE)")
        connection.execute(f"DROP ROLE {owner}; DROP ROLE {app}")


def _certificate(directory: Path) -> tuple[str, str]:
    cert, key = str(directory / "cert.pem"), str(directory / "key.pem")
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost"]
    subprocess.run([*command, "-keyout", key, "-out", cert], check=True, capture_output=True)
    return cert, key


def test_everything_runs_as_an_ordinary_role(managed: World) -> None:
    settings, table = managed.settings, "public.events"
    managed.run(TABLE)
    rows = managed.run("SELECT * FROM public.events ORDER BY id")
    with connect(managed.dsn) as connection:
        (looked_at,) = assess(connection, "3 months", [table], 1, Silent())
        assert looked_at.next == "frostline partition public.events --by ts --period month --key id,ts"
    with connect(managed.dsn) as connection:
        partition(connection, table, Choice("ts", "year", ("id", "ts")), Wanted(), Silent(), drop_old=True)
    managed.register(table)
    outcomes = cycle.cycle(settings, [], Silent(), managed.spark_here)
    assert [one.error for one in outcomes] == [None] * len(outcomes)
    assert sum(one.archived.rows for one in outcomes if one.archived) == 800
    assert managed.run("SELECT * FROM public.events ORDER BY id") == rows
    assert managed.run("SELECT 'sslmode=require' = ANY (srvoptions) FROM pg_foreign_server") == [(True,)]

    _writes(managed)
    outcomes = cycle.folds(settings, [], Silent(), managed.spark_here)
    assert [one.folded.versions for one in outcomes if one.folded] == [3]
    assert [one.problems for one in verification.verify(settings, table, None, Silent()) if one.failed] == []
    assert [one for one in examine(settings) if one.verdict == PROBLEM] == []
    with connect(managed.dsn) as connection:
        with only_writer(connection, registry.get(connection, table)) as current:
            assert clean.clean(connection, settings, current, 0, Silent()) == []
        after = managed.run("SELECT * FROM public.events ORDER BY id, ts")
    unregister.unregister(settings, table, Silent(), keep_lake=False)
    assert managed.run("SELECT * FROM public.events ORDER BY id, ts") == after


def _writes(managed: World) -> None:
    """Of the owner, and of a role with no more than the table's own grants."""
    app = managed.run("SELECT rolname FROM pg_roles WHERE rolname LIKE 'app\\_%' ORDER BY oid DESC")[0][0]
    managed.run(f"GRANT SELECT, INSERT, UPDATE, DELETE ON public.events TO {app}")
    assert managed.run("UPDATE public.events SET note = 'old' WHERE id = 5 AND ts < '2026-01-01' RETURNING kind") == [
        (5,)
    ]
    with psycopg.connect(make_conninfo(managed.dsn, user=app, password="pw"), autocommit=True) as client:
        client.execute("DELETE FROM public.events WHERE id = 6 AND ts < '2026-01-01'")
        client.execute("INSERT INTO public.events (ts, kind, note) VALUES ('2025-02-02', 7, 'late')")
        assert client.execute("SELECT note FROM public.events WHERE id IN (5, 6)").fetchall() == [("old",)]
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            client.execute("SELECT * FROM frostline.tables")
    with pytest.raises(psycopg.errors.ForeignKeyViolation):
        managed.run("DELETE FROM public.kinds WHERE id = 3")
