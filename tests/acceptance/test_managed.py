"""Managed Postgres: the main job from end to end with the privileges of docs/managed.md, and no more, over TLS."""

from __future__ import annotations

import subprocess
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from pyspark.sql import SparkSession

from fix_tiering import World
from frostline import config
from frostline.catalog import registry
from frostline.catalog.database import connect
from frostline.catalog.install import install
from frostline.errors import RefusedError
from frostline.gateway.server import Gateway
from frostline.report import Silent
from frostline.tiering import clean, cycle, options, unregister
from frostline.tiering import verify as verification
from frostline.tiering.archive.run import Warm
from frostline.tiering.assess.run import assess
from frostline.tiering.checks import PROBLEM
from frostline.tiering.doctor import examine
from frostline.tiering.locks import Wanted, only_writer
from frostline.tiering.maintain.run import maintain
from frostline.tiering.partition.plan import Choice
from frostline.tiering.partition.run import partition
from frostline.tiering.untier.run import untier
from frostline.tiering.worker.run import run as work

# A foreign key and an identity column, for what they need.
KINDS = "CREATE TABLE public.kinds (id int PRIMARY KEY); INSERT INTO public.kinds SELECT generate_series(0, 9);"
TABLE = """
CREATE TABLE public.events (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, ts timestamptz NOT NULL,
    kind int REFERENCES public.kinds, note text
);
INSERT INTO public.events (ts, kind, note)
SELECT timestamptz '2024-01-05' + i * interval '20 h', i % 10, 'note ' || i FROM generate_series(1, 800) i;
INSERT INTO public.events (ts, kind, note) VALUES (now(), 1, 'new');
"""


@dataclass(frozen=True)
class Managed:
    """A database in which the admin has run what docs/managed.md says."""

    world: World
    events: str  # the DSN of its owner
    kinds: str
    admin: str
    app: str  # somebody with no more than grants on the table


@pytest.fixture(params=["18", "15"])
def managed(request: pytest.FixtureRequest, spark: SparkSession, tmp_path: Path) -> Iterator[Managed]:
    """On 18 the database's owner owns everything; on 15 nothing, and has what the second block grants."""
    admin = request.getfixturevalue("dsn" if request.param == "18" else "postgres15")
    suffix = uuid.uuid4().hex[:8]
    owner, app, app_owner, other, name = (
        f"{word}_{suffix}" for word in ("owner", "app", "app_owner", "other", "managed")
    )
    with psycopg.connect(admin, autocommit=True) as connection:
        for role in (owner, app, app_owner, other):
            connection.execute(
                f"CREATE ROLE {role} LOGIN NOSUPERUSER NOCREATEDB NOCREATEROLE NOREPLICATION NOBYPASSRLS PASSWORD 'pw'"
            )
        connection.execute(f"CREATE DATABASE {name}" + (f" OWNER {owner}" if request.param == "18" else ""))

    def dsn(role: str) -> str:
        return make_conninfo(admin, dbname=name, user=role, password="pw")

    cert, key = _certificate(tmp_path)
    settings = config.load(
        {
            "dsn": dsn(owner),
            "local.dir": str(tmp_path),
            "lake.warehouse": str(tmp_path / "lake"),
            "gateway.tls_cert": cert,
            "gateway.tls_key": key,
        }
    ).settings
    of_events, of_kinds = (owner, owner) if request.param == "18" else (app_owner, other)
    with psycopg.connect(make_conninfo(admin, dbname=name), autocommit=True) as connection:
        connection.execute("CREATE EXTENSION postgres_fdw")
        connection.execute(f"GRANT USAGE ON FOREIGN DATA WRAPPER postgres_fdw TO {owner}")
        connection.execute(f"GRANT CREATE, TEMPORARY ON DATABASE {name} TO {owner}")
        connection.execute(f"GRANT CREATE ON SCHEMA public TO {of_events}, {of_kinds}")
    made = Managed(World(settings, spark, Gateway(settings)), dsn(of_events), dsn(of_kinds), admin, app)
    run_as(made.kinds, KINDS + (f"GRANT REFERENCES ON public.kinds TO {app_owner}" if request.param == "15" else ""))
    run_as(made.events, TABLE)
    if request.param == "15":
        with psycopg.connect(make_conninfo(admin, dbname=name), autocommit=True) as connection:
            connection.execute(f"GRANT {app_owner} TO {owner}")
            connection.execute(f"GRANT CREATE, USAGE ON SCHEMA public TO {app_owner}")
            connection.execute(f"GRANT REFERENCES, SELECT, TRIGGER ON public.kinds TO {owner}")
    install(settings.dsn.get_secret_value())
    made.world.gateway.start()
    yield made
    made.world.gateway.stop(grace=0)
    with psycopg.connect(admin, autocommit=True) as connection:
        connection.execute(f"DROP DATABASE {name} WITH (FORCE)")
        connection.execute(f"DROP ROLE {owner}; DROP ROLE {app}; DROP ROLE {app_owner}; DROP ROLE {other}")


def run_as(dsn: str, statement: str) -> None:
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute(statement)


def _certificate(directory: Path) -> tuple[str, str]:
    cert, key = str(directory / "cert.pem"), str(directory / "key.pem")
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost"]
    subprocess.run([*command, "-keyout", key, "-out", cert], check=True, capture_output=True)
    return cert, key


def test_everything_runs_as_an_ordinary_role(managed: Managed) -> None:
    world, table = managed.world, "public.events"
    settings = world.settings
    rows = world.run("SELECT * FROM public.events ORDER BY id")
    with connect(world.dsn) as connection:
        (looked_at,) = assess(connection, "3 months", [table], 1, Silent())
        assert looked_at.next == "frostline partition public.events --by ts --period month --key id,ts"
    with connect(world.dsn) as connection:
        partition(connection, table, Choice("ts", "year", ("id", "ts")), Wanted(), Silent(), drop_old=True)
    world.register(table)
    outcomes = cycle.cycle(settings, [], Silent(), world.spark_here)
    assert [one.error for one in outcomes] == [None] * len(outcomes)
    assert sum(one.archived.rows for one in outcomes if one.archived) == 800
    assert world.run("SELECT * FROM public.events ORDER BY id") == rows
    assert world.run("SELECT 'sslmode=require' = ANY (srvoptions) FROM pg_foreign_server") == [(True,)]

    _writes(managed)
    outcomes = cycle.folds(settings, [], Silent(), world.spark_here)
    assert [one.folded.versions for one in outcomes if one.folded] == [3]
    assert [one.problems for one in verification.verify(settings, table, None, Silent()) if one.failed] == []
    assert [one for one in examine(settings) if one.verdict == PROBLEM] == []
    _keeps_house(world, table)
    with connect(world.dsn) as connection:
        with only_writer(connection, registry.get(connection, table)) as current:
            assert clean.clean(connection, settings, current, 0, Silent()) == []
        after = world.run("SELECT * FROM public.events ORDER BY id, ts")
    if managed.kinds != world.dsn:
        _may_drop_triggers(managed, table)
    unregister.unregister(settings, table, Silent(), keep_lake=False)
    assert world.run("SELECT * FROM public.events ORDER BY id, ts") == after


def _may_drop_triggers(managed: Managed, table: str) -> None:
    """Those on a table of another owner: told before anything changes."""
    owner, member = (conninfo_to_dict(dsn)["user"] for dsn in (managed.kinds, managed.world.dsn))
    with pytest.raises(RefusedError, match="nothing was changed") as error:
        unregister.unregister(managed.world.settings, table, Silent(), keep_lake=False)
    assert error.value.hint == f"GRANT {owner} TO {member}; take it back when this is done"
    with connect(managed.world.dsn) as connection:
        given = [(registry.get(connection, table), {"cold_fk": "none"})]
        changes = options.plan(connection, managed.world.settings, given)
        with pytest.raises(RefusedError, match=r"triggers on public\.kinds are to be dropped"):
            options.apply(connection, managed.world.settings, changes)
    run_as(managed.admin, f"GRANT {owner} TO {member}")


def _keeps_house(world: World, table: str) -> None:
    """An option is set, the worker removes what it no longer keeps, files are rewritten, a period comes back."""
    settings = world.settings
    kept = world.run("SELECT * FROM public.events WHERE ts >= '2025-01-01' ORDER BY id, ts")
    since = datetime.now(UTC) - datetime(2025, 6, 1, tzinfo=UTC)
    with connect(world.dsn) as connection:
        given = [(registry.get(connection, table), {"retention": f"{since.days} days"})]
        options.apply(connection, settings, options.plan(connection, settings, given))
    retained = cycle.retains(settings, [table], Silent(), world.spark_here)
    assert [one.state for one in retained] == ["removed"]
    assert world.run("SELECT * FROM public.events ORDER BY id, ts") == kept
    with Warm(world.spark_here) as warm:
        maintained = maintain(settings, table, Silent(), warm, everything=True)
        assert maintained is not None
        assert maintained.changed
        assert work(settings, Silent(), world.spark_here, once=True) == 0
        [returned] = untier(settings, table, "2025-06-15", Silent(), warm)
    assert returned.rows == len(kept) - 1
    assert world.run("SELECT * FROM public.events ORDER BY id, ts") == kept


def _writes(managed: Managed) -> None:
    """Of the one who may, and of a role with no more than the table's own grants."""
    world = managed.world
    world.run(f"GRANT SELECT, INSERT, UPDATE, DELETE ON public.events TO {managed.app}")
    assert world.run("UPDATE public.events SET note = 'old' WHERE id = 5 AND ts < '2026-01-01' RETURNING kind") == [
        (5,)
    ]
    with psycopg.connect(make_conninfo(world.dsn, user=managed.app, password="pw"), autocommit=True) as client:
        client.execute("DELETE FROM public.events WHERE id = 6 AND ts < '2026-01-01'")
        client.execute("INSERT INTO public.events (ts, kind, note) VALUES ('2025-02-02', 7, 'late')")
        assert client.execute("SELECT note FROM public.events WHERE id IN (5, 6)").fetchall() == [("old",)]
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            client.execute("SELECT * FROM frostline.tables")
    with pytest.raises(psycopg.errors.ForeignKeyViolation):
        run_as(managed.kinds, "DELETE FROM public.kinds WHERE id = 3")
