"""The embedded Postgres: one data directory, started and stopped by the build's own pg_ctl, never as root."""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from frostline.errors import StackError
from frostline.local import processes, user

SUPERUSER = "postgres"
# Fixed for the life of the data directory; the port is given at each start.
CONFIGURATION = {
    "listen_addresses": "127.0.0.1",
    "unix_socket_directories": "",
    "wal_level": "logical",
    "timezone": "UTC",
    "log_timezone": "UTC",
}
START_SECONDS = 60
STOP_SECONDS = 60
# After the postmaster was killed its backends need a moment to notice.
ORPHANS_SECONDS = 10
ORPHANED_START_SECONDS = 1


@dataclass(frozen=True)
class Running:
    """A postmaster at work in our data directory."""

    process: processes.Process
    port: int
    since: datetime


@dataclass(frozen=True)
class Server:
    """One embedded server: the build it runs on, and the directory its data and log live under."""

    home: Path
    base: Path

    @property
    def data(self) -> Path:
        return self.base / "postgres" / "data"

    @property
    def log(self) -> Path:
        return self.base / "logs" / "postgres.log"

    @property
    def account(self) -> pwd.struct_passwd | None:
        return user.server_account()

    def initialised(self) -> bool:
        return (self.data / "PG_VERSION").exists()

    def initialise(self, password: str) -> None:
        """Create the data directory under another name first: a killed initdb leaves nothing that looks complete."""
        parent = self.data.parent
        parent.mkdir(parents=True, exist_ok=True)
        for left in (*parent.glob("new-*"), *([self.data] if self.data.exists() else [])):
            shutil.rmtree(left)
        new = parent / f"new-{os.getpid()}"
        new.mkdir(mode=0o700)
        secret = new / "password"
        secret.write_text(password)
        secret.chmod(0o600)
        self._own(parent, new, secret)
        self._run(
            *("initdb", "--pgdata", str(new / "data"), "--username", SUPERUSER, "--encoding", "UTF8"),
            *("--locale-provider", "builtin", "--builtin-locale", "C.UTF-8", "--locale", "C"),
            *("--auth", "scram-sha-256", "--pwfile", str(secret)),
            *(argument for name, value in CONFIGURATION.items() for argument in ("--set", f"{name}={value}")),
            what="the data directory could not be created",
        )
        (new / "data").replace(self.data)
        shutil.rmtree(new)

    def running(self) -> Running | None:
        """The postmaster of this data directory, also one that an interrupted run of ours left behind."""
        pid, port, since = self._pid_file()
        process = processes.Process.of(pid) if pid else None
        # A recycled pid is somebody else's: only a postgres that was given this directory is ours.
        if process is None or str(self.data) not in processes.command_line(pid):
            return None
        return Running(process, port, since)

    def start(self, port: int) -> Running:
        """Start on this port and wait until it answers."""
        self._forget_stale_pid()
        self.log.parent.mkdir(parents=True, exist_ok=True)
        self.log.touch(mode=0o600)
        self._own(self.log)
        before = self.log.stat().st_size
        said = self._try_start(port)
        running = self.running()
        if running is not None and said is None:
            return running
        self.stop()
        raise StackError(
            f"Postgres did not start on port {port}; its data in {self.data} is kept",
            detail=processes.tail(self.log, before) or said,
            hint=f"the whole log is {self.log}",
        )

    def _try_start(self, port: int) -> str | None:
        """None when it answers; else what pg_ctl said."""
        try:
            started = self._call(
                *("pg_ctl", "start", "--pgdata", str(self.data), "--log", str(self.log)),
                *("--wait", "--timeout", str(START_SECONDS), "--options", f"-p {port}"),
            )
        except BaseException:
            # Interrupted: pg_ctl is gone, but the postmaster it was starting may just be about to write its pid.
            deadline = time.monotonic() + ORPHANED_START_SECONDS
            while not self.stop() and time.monotonic() < deadline:
                time.sleep(processes.POLL_SECONDS)
            raise
        return None if started.returncode == 0 else started.stdout.strip()

    def stop(self) -> bool:
        """Fast shutdown: clients are disconnected, everything committed is kept. False when it was not running."""
        running = self.running()
        if running is None:
            return False
        # SIGINT is Postgres's fast shutdown. Not pg_ctl: it may be gone with the cache.
        running.process.signal(signal.SIGINT)
        if not running.process.wait_gone(STOP_SECONDS):
            raise StackError(
                f"Postgres (process {running.process.pid}) did not stop within {STOP_SECONDS} seconds",
                hint=f"its log is {self.log}; run `frostline down` again",
            )
        return True

    def _pid_file(self) -> tuple[int, int, datetime]:
        """pid, port and start time from postmaster.pid; zeros when there is none or it is half-written."""
        try:
            lines = (self.data / "postmaster.pid").read_text().splitlines()
            return int(lines[0]), int(lines[3]), datetime.fromtimestamp(int(lines[2]), UTC)
        except (OSError, ValueError, IndexError):
            return 0, 0, datetime.fromtimestamp(0, UTC)

    def _forget_stale_pid(self) -> None:
        """Postgres refuses to start while the pid in its stale pid file is anybody's, or a zombie's.

        The file guards the data against two servers at once, so it goes only when nobody works there.
        """
        file = self.data / "postmaster.pid"
        if not file.exists() or self.running() is not None:
            return
        if sys.platform == "linux":
            deadline = time.monotonic() + ORPHANS_SECONDS
            while processes.works_in(self.data):
                if time.monotonic() > deadline:
                    return
                time.sleep(processes.POLL_SECONDS)
            file.unlink()
        elif "postgres" not in processes.command_line(self._pid_file()[0]):
            file.unlink()

    def _run(self, *command: str, what: str) -> None:
        done = self._call(*command)
        if done.returncode != 0:
            raise StackError(f"{what} in {self.data.parent}", detail=done.stdout.strip())

    def _call(self, program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run one of the build's programs as the unprivileged user, out of reach of our Ctrl-C."""
        environment = {k: v for k, v in os.environ.items() if not k.startswith("PG")}
        with tempfile.TemporaryFile("w+") as output:
            # Not a pipe: the postmaster inherits it, and reading it to its end would wait for the postmaster's.
            with subprocess.Popen(
                [self.home / "bin" / program, *arguments],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                cwd=self.data.parent,
                env=environment,
                start_new_session=True,
                **user.run_as(self.account),
            ) as child:
                try:
                    code = child.wait()
                except BaseException:
                    # Its whole group: an initdb killed alone leaves a bootstrapping server that goes on writing.
                    if child.poll() is None:
                        os.killpg(child.pid, signal.SIGKILL)
                    raise
            output.seek(0)
            return subprocess.CompletedProcess(child.args, code, output.read())

    def _own(self, *paths: Path) -> None:
        if self.account is not None:
            for path in paths:
                os.chown(path, self.account.pw_uid, self.account.pw_gid)
