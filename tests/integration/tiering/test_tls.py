"""Postgres that is believed by its certificate alone: everybody who connects to it is told whose to believe."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import psycopg
import pytest
from psycopg.conninfo import make_conninfo
from psycopg.sql import SQL, Identifier, Literal
from pyspark.sql import SparkSession

from fix_tiering import World
from frostline import config
from frostline.catalog.install import install
from frostline.gateway.server import Gateway
from frostline.lake import catalog
from frostline.local.user import server_account
from frostline.report import Silent
from frostline.tiering import cycle
from frostline.tiering import verify as verification

TABLE = """
CREATE TABLE public.events (id int, ts date, v text, PRIMARY KEY (id, ts)) PARTITION BY RANGE (ts);
CREATE TABLE public.e1 PARTITION OF public.events FOR VALUES FROM ('2020-01-01') TO ('2020-02-01');
CREATE TABLE public.e2 PARTITION OF public.events FOR VALUES FROM ('2020-02-01') TO (MAXVALUE);
INSERT INTO public.events SELECT i, date '2020-01-01' + i, 'x' FROM generate_series(0, 49) i;
"""
PASSWORD = "p@s:s/w'o\"r\\d %s {x}?&=#+"
DATABASE = "odd +%20 db's"


def openssl(directory: Path, *arguments: str) -> None:
    subprocess.run(["openssl", *arguments], check=True, capture_output=True, cwd=directory)


@pytest.fixture
def certified(dsn: str, tmp_path: Path) -> Iterator[str]:
    """The server with a certificate of an authority that nobody else knows."""
    new = ("req", "-newkey", "rsa:2048", "-nodes")
    openssl(tmp_path, *new, "-x509", "-days", "2", "-subj", "/CN=authority", "-keyout", "ca.key", "-out", "ca.pem")
    openssl(tmp_path, *new, "-subj", "/CN=localhost", "-keyout", "server.key", "-out", "server.csr")
    (tmp_path / "names").write_text("subjectAltName=DNS:localhost,IP:127.0.0.1\n")
    signed = ("-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial", "-days", "2", "-extfile", "names")
    openssl(tmp_path, "x509", "-req", "-in", "server.csr", *signed, "-out", "server.pem")
    settings = {"ssl_cert_file": "server.pem", "ssl_key_file": "server.key", "ssl": "on"}
    with closing(psycopg.connect(dsn, autocommit=True)) as connection:
        row = connection.execute("SHOW data_directory").fetchone()
        assert row is not None
        account = server_account()
        for name in ("server.pem", "server.key"):
            copy = Path(row[0]) / name
            copy.write_bytes((tmp_path / name).read_bytes())
            copy.chmod(0o600)
            if account is not None:
                os.chown(copy, account.pw_uid, account.pw_gid)
        for name, value in settings.items():
            connection.execute(SQL("ALTER SYSTEM SET {} = {}").format(Identifier(name), Literal(value)))
        connection.execute("SELECT pg_reload_conf()")
        yield make_conninfo(dsn, sslmode="verify-full", sslrootcert=str(tmp_path / "ca.pem"))
        for name in settings:
            connection.execute(SQL("ALTER SYSTEM RESET {}").format(Identifier(name)))
        connection.execute("SELECT pg_reload_conf()")


@pytest.fixture
def somebody(certified: str) -> Iterator[str]:
    """A role and a database of names, and a password, with letters that mean something in addresses."""
    with closing(psycopg.connect(certified, autocommit=True)) as connection:
        role, database = Identifier('ro"le @x'), Identifier(DATABASE)
        connection.execute(SQL("CREATE ROLE {} SUPERUSER LOGIN PASSWORD {}").format(role, Literal(PASSWORD)))
        connection.execute(SQL("CREATE DATABASE {}").format(database))
        yield make_conninfo(certified, user='ro"le @x', password=PASSWORD, dbname=DATABASE)
        connection.execute(SQL("DROP DATABASE {} WITH (FORCE)").format(database))
        connection.execute(SQL("DROP ROLE {}").format(role))


def test_archiving_and_folding_believe_the_certificate_that_the_dsn_names(
    somebody: str, spark: SparkSession, tmp_path: Path
) -> None:
    settings = config.load(
        {"dsn": somebody, "local.dir": str(tmp_path), "lake.warehouse": str(tmp_path / "lake")}
    ).settings
    install(somebody)
    world = World(settings, spark, Gateway(settings))
    world.gateway.start()
    try:
        assert world.run("SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()") == [(True,)]
        world.run(TABLE)
        world.register("public.events")
        assert [one.rows for one in world.archive("public.events")] == [31]
        world.run("UPDATE public.events SET v = 'y' WHERE id = 5")
        folded = cycle.folds(settings, [], Silent(), world.spark_here)
        assert [one.folded.versions for one in folded if one.folded] == [1]
        assert world.run("SELECT v, count(*) FROM public.events GROUP BY 1 ORDER BY 2") == [("y", 1), ("x", 49)]
        assert [
            one.problems for one in verification.verify(settings, "public.events", None, Silent()) if one.failed
        ] == []
    finally:
        world.gateway.stop(grace=0)


def test_java_is_told_the_same_as_libpq() -> None:
    """In its own words: an address is taken apart at other letters."""
    found = catalog.address("host=::1 dbname='a/b ?' user=u sslmode=verify-full sslrootcert='/c a/x.pem'").jdbc
    assert found.startswith("jdbc:postgresql://[::1]:5432/a%2Fb%20%3F?currentSchema=frostline_lake&")
    assert "&sslmode=verify-full&sslrootcert=%2Fc%20a%2Fx.pem&" in found
    system = catalog.address("host=db.example.com sslmode=verify-full sslrootcert=system").jdbc
    assert "sslrootcert" not in system
    assert "&sslmode=verify-full&sslfactory=org.postgresql.ssl.DefaultJavaSSLFactory&" in system
