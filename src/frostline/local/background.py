"""A server of ours as a background process of the stack, told everything by FROSTLINE_* variables."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from pydantic import SecretStr

from frostline import config, faults
from frostline.config import Settings
from frostline.errors import StackError
from frostline.local import processes
from frostline.local.processes import Process

# DuckDB and PyArrow take seconds to import on a cold disk.
START_SECONDS = 90


@dataclass(frozen=True)
class Listening:
    """One that has said that it is there, and where it listens."""

    process: Process
    host: str
    port: int
    since: datetime


@dataclass(frozen=True)
class Background:
    """One kind of them: `frostline <command>`, known by its name in files and messages."""

    name: str
    command: str

    def log_file(self, directory: Path) -> Path:
        return directory / "logs" / f"{self.name}.log"

    def running(self, directory: Path) -> Listening | None:
        """That of this directory, if it is alive and ready."""
        process = processes.saved(self._pid_file(directory))
        return None if process is None else self._ready(directory, process)

    def start(self, settings: Settings, directory: Path, given: dict[str, str]) -> Listening:
        """Start it, with these settings before all others, and wait until it is ready."""
        # One that was started but never got ready: an interrupted `up` left it.
        self.stop(directory, patience=1)
        ready = self.ready_file(directory)
        ready.unlink(missing_ok=True)
        log = self.log_file(directory)
        log.parent.mkdir(parents=True, exist_ok=True)
        offset = log.stat().st_size if log.exists() else 0
        command = [sys.executable, "-m", "frostline", self.command, "--ready-file", str(ready)]
        try:
            process = processes.spawn(command, env=environment(settings, directory, given), log=log)
            processes.save(process, self._pid_file(directory))
            return self._wait_ready(directory, process, offset)
        except BaseException:
            self.stop(directory, patience=1)
            raise

    def stop(self, directory: Path, *, patience: float) -> bool:
        """False when it was not running."""
        process = processes.saved(self._pid_file(directory))
        if process is not None:
            process.stop(patience=patience)
        self._pid_file(directory).unlink(missing_ok=True)
        self.ready_file(directory).unlink(missing_ok=True)
        return process is not None

    def ready_file(self, directory: Path) -> Path:
        return directory / "run" / f"{self.name}.ready"

    def _pid_file(self, directory: Path) -> Path:
        return directory / "run" / f"{self.name}.json"

    def _ready(self, directory: Path, process: Process) -> Listening | None:
        path = self.ready_file(directory)
        content = processes.read_json(path)
        host, port = content.get("host"), content.get("port")
        if content.get("pid") != process.pid or not isinstance(host, str) or not isinstance(port, int):
            return None
        return Listening(process, host, port, datetime.fromtimestamp(path.stat().st_mtime, UTC))

    def _wait_ready(self, directory: Path, process: Process, offset: int) -> Listening:
        deadline = time.monotonic() + START_SECONDS
        while process.alive and time.monotonic() < deadline:
            listening = self._ready(directory, process)
            if listening is not None:
                return listening
            time.sleep(processes.POLL_SECONDS)
        log = self.log_file(directory)
        what = f"is still not ready after {START_SECONDS} seconds" if process.alive else "ended while starting"
        raise StackError(
            f"the {self.name} {what}",
            detail=processes.tail(log, offset) or None,
            hint=f"its whole log is {log}",
        )


def write_ready(path: Path, host: str, port: int) -> None:
    """Called by the process itself once it is ready."""
    processes.write_json(path, {"host": host, "port": port, "pid": os.getpid()})


def environment(settings: Settings, directory: Path, given: dict[str, str]) -> dict[str, str]:
    """Ours, with every setting spelled out: the process must not read another frostline.toml than we did."""
    kept = faults.VARIABLE  # a test's
    inherited = {k: v for k, v in os.environ.items() if not k.startswith(config.ENV_PREFIX) or k == kept}
    ours = dict(_values(settings)) | {"local.dir": str(directory), "lake.warehouse": settings.warehouse} | given
    return inherited | {config.env_name(key): value for key, value in ours.items() if value}


def _values(settings: Settings) -> Iterator[tuple[str, str]]:
    for key in config.keys():  # noqa: SIM118 (a module, not a mapping)
        section, _, name = key.rpartition(".")
        value = getattr(getattr(settings, section) if section else settings, name)
        if key != "dsn" and value is not None:
            yield key, value.get_secret_value() if isinstance(value, SecretStr) else str(value)
