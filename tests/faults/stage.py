"""What the faults happen to: a Postgres, a gateway and a Spark of their own; each can be killed and comes back."""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psycopg
from pydantic import SecretStr

from faults.archiver import Ended, Forks, SparkHost
from fix_commands import command, environment
from fix_tiering import lake_directory
from frostline import config
from frostline.config import Settings
from frostline.local import processes
from frostline.local import stack as local_stack
from frostline.report import Silent

Answer = Callable[[str, int], bool]  # a point and the run's process id; False: fail there


@dataclass
class Points:
    """Where runs announce the points they reach, and wait."""

    path: Path
    seen: dict[str, int] = field(default_factory=dict)
    answer: Answer = lambda _point, _pid: True

    def __post_init__(self) -> None:
        self._server = socket.socket(socket.AF_UNIX)
        self._server.bind(str(self.path))
        self._server.listen()
        threading.Thread(target=self._serve, daemon=True).start()

    def close(self) -> None:
        self._server.close()

    def _serve(self) -> None:
        while True:
            try:
                client, _ = self._server.accept()
            except OSError:
                return
            with client, contextlib.suppress(OSError):
                pid, _, point = client.recv(1024).decode().strip().partition(" ")
                if not point:
                    continue
                self.seen[point] = self.seen.get(point, 0) + 1
                client.sendall(b"go" if self.answer(point, int(pid)) else b"no")


class Stage:
    """All of it. `crashes` counts how often Postgres was killed."""

    def __init__(self, directory: Path) -> None:
        self._own = config.load({"local.dir": str(directory / "stack")}).settings
        self.crashes = 0
        self.up()
        found = local_stack.stack_settings(self._own.local.dir)
        self.settings: Settings = config.load(
            {"local.dir": str(self._own.local.dir), "archive.lock_patience": "60", "archive.orphan_age": "1"},
            stack=found,
        ).settings
        # A killed process loses nothing that it gave to the kernel, so nothing is lost by not waiting for the disk.
        self.run("ALTER SYSTEM SET fsync = off")
        self.run("SELECT pg_reload_conf()")
        self.spark = SparkHost(self.settings)
        self.spark.begin()
        self.forks = Forks(self.settings)
        self.points = Points(directory / "points")

    @property
    def dsn(self) -> str:
        return self.settings.dsn.get_secret_value()

    @property
    def warehouse(self) -> Path:
        return Path(self.settings.warehouse)

    def directory(self, table: str) -> Path:
        """Where its files are."""
        return lake_directory(self.dsn, self.warehouse, table)

    def with_dsn(self, dsn: str) -> Settings:
        return self.settings.model_copy(update={"dsn": SecretStr(dsn)})

    def run(self, query: str, *parameters: object) -> list[tuple[Any, ...]]:
        with psycopg.connect(self.dsn, autocommit=True) as connection:
            cursor = connection.execute(query, parameters or None)
            return cursor.fetchall() if cursor.description is not None else []

    def up(self) -> None:
        """Start what is down."""
        local_stack.up(self._own, Silent())

    def close(self) -> None:
        self.forks.end()
        self.spark.end()
        self.points.close()
        local_stack.down(self._own, Silent())

    def work(self, what: str, table: str, answer: Answer) -> Ended:
        """One run in its own process: archive, coalesce or clean; `answer` decides at every point it reaches."""
        where = self.spark.where()
        self.points.answer = answer
        self.forks.start(what, table, where, self.points.path)
        try:
            return self.forks.wait()
        finally:
            self.points.answer = lambda _point, _pid: True

    def command(self, table: str, answer: Answer) -> Ended:
        """One run as a person starts it: `frostline archive`, with a Spark of its own."""
        self.points.answer = answer
        given = {"FROSTLINE_FAULTS": str(self.points.path), "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
        with subprocess.Popen(
            command("--dir", str(self._own.local.dir), "archive", table),
            env=environment(given),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            cwd=self._own.local.dir,
        ) as run:
            try:
                _, said = run.communicate(timeout=600)
            finally:
                self.points.answer = lambda _point, _pid: True
        assert "Traceback" not in said, said
        error = next((line for line in said.splitlines() if line.startswith("error: ")), None)
        assert run.returncode in (0, 1, -signal.SIGKILL), said
        return Ended(run.returncode < 0, error, said=tuple(said.splitlines()))

    def kill_postgres(self) -> None:
        """The postmaster first, so that it does not restart what dies under it; then every process of its own."""
        postmaster = self._service("Postgres")
        children = _children(postmaster)
        for pid in (postmaster, *children):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        wait_until(lambda: not any(map(processes.Process.of, (postmaster, *children))), 60, "Postgres is killed")
        self.crashes += 1  # counted when nobody can be told anything any more

    def kill_gateway(self) -> None:
        _kill(self._service("gateway"))

    def kill_spark(self, run: int) -> None:
        """The run's own, if it has one."""
        own = [pid for pid in _children(run) if "java" in processes.command_line(pid)]
        for pid in own or [self.spark.pid]:
            _kill(pid)

    def heal(self) -> None:
        """Whatever was killed is there again."""
        self.up()
        if processes.Process.of(self.spark.pid) is None:
            self.spark.end()
            self.spark.begin()
        if not local_stack.GATEWAY.running(self._own.local.dir):
            raise AssertionError("the gateway does not come back")

    @contextmanager
    def small_files(self, *pids: int) -> Iterator[None]:
        """As on a full disk: no file of these processes can grow beyond a few bytes."""
        before = {pid: resource.prlimit(pid, resource.RLIMIT_FSIZE) for pid in pids}
        for pid, (_, hard) in before.items():
            resource.prlimit(pid, resource.RLIMIT_FSIZE, (64, hard))
        try:
            yield
        finally:
            for pid, limits in before.items():
                with contextlib.suppress(ProcessLookupError):
                    resource.prlimit(pid, resource.RLIMIT_FSIZE, limits)

    def _service(self, name: str) -> int:
        running = local_stack.state(self._own)
        service = running.service(name) if running is not None else None
        assert service is not None, f"{name} is not running"
        return service.pid


def alive(pid: int) -> bool:
    """Neither gone nor only waiting for somebody to take note of its end."""
    try:
        return Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def _kill(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: not alive(pid), 60, f"process {pid} is killed")


def _children(pid: int) -> list[int]:
    found = []
    for entry in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            fields = entry.read_text(errors="replace").rpartition(")")[2].split()
            if int(fields[1]) == pid:
                found.append(int(entry.parent.name))
    return found


def wait_until(condition: Callable[[], bool], seconds: float, what: str) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise AssertionError(f"{what}: not within {seconds} s")
        time.sleep(0.02)
