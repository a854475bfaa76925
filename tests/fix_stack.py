"""One real embedded stack for the whole session, databases of its own for every test, and Debian's Postgres 15."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import uuid
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import make_conninfo

from frostline import config
from frostline.config import Settings
from frostline.local import stack as local_stack
from frostline.local import user
from frostline.local.ports import free_port
from frostline.local.stack import Stack
from frostline.report import Report, Silent

POSTGRES_15 = Path("/usr/lib/postgresql/15/bin")


@pytest.fixture(autouse=True, scope="session")
def _no_settings_of_the_developer() -> Iterator[None]:
    """The suite reads no FROSTLINE_* variables of whoever runs it, but for the cache it may fill."""
    with pytest.MonkeyPatch.context() as patch:
        for name in [name for name in os.environ if name.startswith(config.ENV_PREFIX)]:
            if name != config.env_name("local.cache"):
                patch.delenv(name)
        yield


@pytest.fixture(scope="session")
def report() -> Report:
    return Silent()


@pytest.fixture(scope="session")
def open_directory() -> Iterator[Path]:
    """A temporary directory that other users can enter (pytest's own are closed to the server's user)."""
    with tempfile.TemporaryDirectory(prefix="frostline-test-") as name:
        path = Path(name)
        path.chmod(0o755)
        yield path


@pytest.fixture(scope="session")
def stack_settings(open_directory: Path) -> Settings:
    """The session stack's settings, as a user would have them before it runs."""
    return config.load({"local.dir": str(open_directory / "stack")}).settings


@pytest.fixture(scope="session")
def stack(stack_settings: Settings, report: Report) -> Iterator[Stack]:
    """Postgres and gateway, started once."""
    started = local_stack.up(stack_settings, report)
    yield started
    local_stack.down(stack_settings, report)


@pytest.fixture(scope="session")
def settings(stack: Stack) -> Settings:
    """Settings as a later command sees them: with the running stack's addresses."""
    found = local_stack.stack_settings(stack.directory)
    return config.load({"local.dir": str(stack.directory)}, stack=found).settings


@pytest.fixture(scope="session")
def dsn(stack: Stack) -> str:
    """The database the stack's gateway serves, shared by the whole session."""
    return stack.dsn


@pytest.fixture
def database(stack: Stack) -> Iterator[str]:
    """DSN of an empty database for one test; no gateway serves it."""
    name = f"test_{uuid.uuid4().hex[:12]}"
    with psycopg.connect(stack.dsn, autocommit=True) as connection:
        connection.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
        yield make_conninfo(stack.dsn, dbname=name)
        connection.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(name)))


@pytest.fixture(scope="session")
def postgres15() -> Iterator[str]:
    """DSN of a Postgres 15 in a temporary directory; skipped where Debian's is not installed."""
    if not (POSTGRES_15 / "initdb").exists():
        pytest.skip("Debian's Postgres 15 is not installed")
    account = user.server_account()
    with tempfile.TemporaryDirectory(prefix="frostline-pg15-") as name:
        base, port = Path(name), free_port()
        if account is not None:
            os.chown(base, account.pw_uid, account.pw_gid)
        (base / "password").write_text("fifteen")
        (base / "password").chmod(0o644)
        options = f"-p {port} -c listen_addresses=127.0.0.1 -c unix_socket_directories='' -c wal_level=logical"

        def run(program: str, *arguments: str) -> None:
            command = [str(POSTGRES_15 / program), "-D", str(base / "data"), *arguments]
            null = subprocess.DEVNULL
            subprocess.run(command, cwd=base, check=True, stdin=null, stdout=null, **user.run_as(account))

        run(
            "initdb",
            "-U",
            "postgres",
            "-A",
            "scram-sha-256",
            f"--pwfile={base / 'password'}",
            "-E",
            "UTF8",
            "--locale=C",
        )
        run("pg_ctl", "start", "-w", "-l", str(base / "log"), "-o", options)
        try:
            yield f"postgresql://postgres:fifteen@127.0.0.1:{port}/postgres"
        finally:
            run("pg_ctl", "stop", "-w", "-m", "fast")
            shutil.rmtree(base / "data", ignore_errors=True)
