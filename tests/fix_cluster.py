"""A Postgres of its own whose log is archived: it can be copied while it runs, restored, and followed by a standby."""

from __future__ import annotations

import os
import shutil
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from fix_stack import FORESEEABLE, older_home
from frostline.config import Settings
from frostline.local import artifacts, user
from frostline.local.ports import free_port
from frostline.local.postgres import CONFIGURATION, SUPERUSER, Server
from frostline.report import Report

PASSWORD = "restore"
NEWEST = "18"
VERSION = os.environ.get("CLUSTER_VERSION", NEWEST)  # of servers that are restored, followed and promoted
# A standby that waits for nobody would cancel what it reads whenever the primary cleans up.
_STANDBY = """
archive_mode = off
hot_standby_feedback = on
wal_receiver_status_interval = 1
primary_conninfo = 'host=127.0.0.1 port={port} user=postgres password={password} application_name=standby'
"""


class Plain(Server):
    """A server as every version initialises one: before 17 there are no locales of Postgres's own."""

    def initialise(self, password: str) -> None:
        self.data.parent.mkdir(parents=True)
        secret = self.data.parent / "password"
        secret.write_text(password)
        self._own(self.data.parent, secret)
        self._run(
            *("initdb", "--pgdata", str(self.data), "--username", SUPERUSER, "--encoding", "UTF8", "--locale", "C"),
            *("--auth", "scram-sha-256", "--pwfile", str(secret), "--data-checksums"),
            what="the data directory could not be created",
        )
        with (self.data / "postgresql.auto.conf").open("a") as settings:
            settings.writelines(f"{name} = '{value}'\n" for name, value in CONFIGURATION.items())


class Cluster:
    """A server of its own that archives its log, and can be copied while it runs."""

    def __init__(self, home: Path, directory: Path) -> None:
        self.server: Server = Plain(home, directory / "original")
        self.port = free_port()
        self.log, self.directory = directory / "wal", directory
        self.log.mkdir()
        _own(directory)
        self.server.base.mkdir(exist_ok=True)
        self.server.initialise(PASSWORD)
        with (self.server.data / "postgresql.auto.conf").open("a") as settings:
            settings.write(f"archive_mode = on\narchive_command = 'cp %p {self.log}/%f'\n")
            settings.writelines(f"{name} = {value}\n" for name, value in FORESEEABLE.items())
        self.server.start(self.port)

    @property
    def dsn(self) -> str:
        return f"postgresql://postgres:{PASSWORD}@127.0.0.1:{self.port}/postgres"

    def copy(self, name: str) -> Server:
        """A base backup, as any tool takes one."""
        made = Server(self.server.home, self.directory / name)
        with psycopg.connect(self.dsn, autocommit=True) as connection:
            connection.execute("SELECT pg_backup_start('test', fast => true)")
            made.data.parent.mkdir(parents=True)
            shutil.copytree(self.server.data, made.data, ignore=_not_in_backups)
            row = connection.execute("SELECT labelfile FROM pg_backup_stop(wait_for_archive => true)").fetchone()
        assert row is not None
        (made.data / "backup_label").write_text(row[0])
        (made.data / "recovery.signal").touch()
        return made

    def disk(self, name: str) -> Server:
        """A snapshot of the disk, started: nothing of it was recovered, so it has the original's timeline too."""
        made = Server(self.server.home, self.directory / name)
        self.server.stop()
        made.data.parent.mkdir(parents=True)
        shutil.copytree(self.server.data, made.data)
        with (made.data / "postgresql.auto.conf").open("a") as settings:
            settings.write("archive_mode = off\n")
        _own(self.directory)
        made.data.chmod(0o700)
        self.server.start(self.port)
        return made

    def standby(self, name: str) -> Standby:
        """A copy that streams the log from here."""
        made, port = self.copy(name), free_port()
        (made.data / "recovery.signal").rename(made.data / "standby.signal")
        with (made.data / "postgresql.auto.conf").open("a") as settings:
            settings.write(_STANDBY.format(port=self.port, password=PASSWORD))
        _own(made.base)
        made.data.chmod(0o700)
        made.start(port)
        return Standby(made, self.dsn, make_conninfo(self.dsn, port=port))

    def succeeded_by(self, standby: Standby) -> None:
        """Another server takes its place."""
        self.server = standby.server
        self.port = int(conninfo_to_dict(standby.dsn)["port"] or 0)

    def kill(self) -> None:
        """As when its machine loses power."""
        running = self.server.running()
        assert running is not None
        running.process.signal(signal.SIGSTOP)  # it starts no more children
        for pid in self._children(running.process.pid):
            with suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        running.process.signal(signal.SIGKILL)
        assert running.process.wait_gone(60)

    def frozen(self, name: str) -> Server:
        """A snapshot of the disk while the server is at work: nothing moves as it is taken."""
        made, running = Server(self.server.home, self.directory / name), self.server.running()
        assert running is not None
        running.process.signal(signal.SIGSTOP)
        stopped = self._children(running.process.pid)
        for pid in stopped:
            os.kill(pid, signal.SIGSTOP)
        made.data.parent.mkdir(parents=True)
        shutil.copytree(self.server.data, made.data)
        for pid in (*stopped, running.process.pid):
            os.kill(pid, signal.SIGCONT)
        for path in made.data.glob("postmaster.*"):
            path.unlink()
        with (made.data / "postgresql.auto.conf").open("a") as settings:
            settings.write("archive_mode = off\n")
        _own(made.base)
        made.data.chmod(0o700)
        return made

    def _children(self, server: int) -> list[int]:
        found = []
        for link in Path("/proc").glob("[0-9]*/cwd"):
            with suppress(OSError):
                if link.readlink() == self.server.data and link.parent.name != str(server):
                    found.append(int(link.parent.name))
        return found

    def start(self, copy: Server, port: int, target: str) -> None:
        """Recover it up to a target, and let it be written."""
        with (copy.data / "postgresql.auto.conf").open("a") as settings:
            settings.write(
                f"archive_mode = off\nrestore_command = 'cp {self.log}/%f %p'\n{target}\n"
                "recovery_target_action = 'promote'\n"
            )
        _own(self.directory)
        copy.data.chmod(0o700)
        copy.start(port)
        dsn = f"postgresql://postgres:{PASSWORD}@127.0.0.1:{port}/postgres"
        with psycopg.connect(dsn, autocommit=True) as connection:
            recovering = "SELECT pg_is_in_recovery()"
            wait_until(lambda: connection.execute(recovering).fetchone() == (False,), 120, "it is recovered")


@dataclass(frozen=True)
class Standby:
    """A server that follows another one."""

    server: Server
    primary: str
    dsn: str

    def catch_up(self) -> None:
        """Until all that the primary has committed is seen here."""
        with psycopg.connect(self.primary, autocommit=True) as primary:
            row = primary.execute("SELECT pg_current_wal_lsn()").fetchone()
        assert row is not None
        query = "SELECT pg_last_wal_replay_lsn() >= %s::pg_lsn"
        with psycopg.connect(self.dsn, autocommit=True) as here:
            wait_until(lambda: here.execute(query, row).fetchone() == (True,), 120, "the standby catches up")

    @contextmanager
    def hurried(self) -> Iterator[None]:
        """For a while nothing that is read there keeps it from following, or the primary from cleaning up."""
        changes = ("hot_standby_feedback = off", "max_standby_streaming_delay = 0")
        with psycopg.connect(self.dsn, autocommit=True) as here:
            for change in changes:
                here.execute(f"ALTER SYSTEM SET {change}")
            here.execute("SELECT pg_reload_conf()")
            self._nothing_held_back()
            yield
            here.execute("ALTER SYSTEM SET hot_standby_feedback = on")
            here.execute("ALTER SYSTEM RESET max_standby_streaming_delay")
            here.execute("SELECT pg_reload_conf()")

    def _nothing_held_back(self) -> None:
        with psycopg.connect(self.primary, autocommit=True) as primary:
            query = "SELECT FROM pg_stat_replication WHERE backend_xmin IS NOT NULL"
            wait_until(lambda: primary.execute(query).fetchone() is None, 120, "the primary may clean up")

    def promote(self) -> None:
        with psycopg.connect(self.dsn, autocommit=True) as here:
            assert here.execute("SELECT pg_promote(wait => true)").fetchone() == (True,)


def wait_until(condition: Callable[[], bool], seconds: float, what: str) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, f"in vain: {what}"
        time.sleep(0.02)


def _not_in_backups(directory: str, names: list[str]) -> list[str]:
    """The log comes from its archive, which notes there what it has, and takes the notes away again."""
    in_log = Path(directory).name in ("pg_wal", "archive_status")
    return [name for name in names if name.startswith("postmaster.") or (in_log and name.startswith("0000"))]


def _own(directory: Path) -> None:
    account = user.server_account()
    if account is not None:
        for path in (directory, *directory.rglob("*")):
            os.chown(path, account.pw_uid, account.pw_gid)


@contextmanager
def new_cluster(settings: Settings, report: Report, directory: Path, version: str = VERSION) -> Iterator[Cluster]:
    newest = version == NEWEST
    home = artifacts.fetch(settings, report=report).postgres if newest else older_home(version, settings, report)
    with made_in(directory, home) as made:
        yield made


@contextmanager
def made_in(directory: Path, home: Path) -> Iterator[Cluster]:
    """With the programs that are there."""
    directory.mkdir()
    made = Cluster(home, directory)
    try:
        yield made
    finally:
        for base in sorted(directory.iterdir(), key=lambda base: base == made.server.base):
            Server(home, base).stop()  # the primary last: it waits until those that follow have everything
        shutil.rmtree(directory)


@pytest.fixture
def cluster(settings: Settings, report: Report, open_directory: Path) -> Iterator[Cluster]:
    with new_cluster(settings, report, open_directory / "restore") as made:
        yield made


@pytest.fixture
def older_cluster(settings: Settings, report: Report, open_directory: Path) -> Iterator[Cluster]:
    """The same on 15."""
    version = VERSION if VERSION != NEWEST else "15"
    with new_cluster(settings, report, open_directory / "older", version) as made:
        yield made
