"""The gateway as a background process of the stack: `frostline gateway`, told everything by FROSTLINE_* variables."""

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
# It may have open sessions to close.
STOP_SECONDS = 15


@dataclass(frozen=True)
class Listening:
    """A gateway that has said where it listens."""

    process: Process
    host: str
    port: int
    since: datetime


def log_file(directory: Path) -> Path:
    return directory / "logs" / "gateway.log"


def running(directory: Path) -> Listening | None:
    """The gateway of this directory, if it is alive and listening."""
    process = processes.saved(_pid_file(directory))
    return None if process is None else _ready(directory, process)


def start(settings: Settings, dsn: str, port: int, directory: Path) -> Listening:
    """Start it and wait until it listens."""
    # One that was started but never got ready: an interrupted `up` left it.
    stop(directory)
    ready_file(directory).unlink(missing_ok=True)
    log = log_file(directory)
    log.parent.mkdir(parents=True, exist_ok=True)
    offset = log.stat().st_size if log.exists() else 0
    command = [sys.executable, "-m", "frostline", "gateway", "--ready-file", str(ready_file(directory))]
    try:
        process = processes.spawn(command, env=_environment(settings, dsn, port, directory), log=log)
        processes.save(process, _pid_file(directory))
        return _wait_ready(directory, process, offset)
    except BaseException:
        stop(directory)
        raise


def stop(directory: Path) -> bool:
    """False when it was not running."""
    process = processes.saved(_pid_file(directory))
    if process is not None:
        process.stop(patience=STOP_SECONDS)
    _pid_file(directory).unlink(missing_ok=True)
    ready_file(directory).unlink(missing_ok=True)
    return process is not None


def ready_file(directory: Path) -> Path:
    return directory / "run" / "gateway.ready"


def write_ready(path: Path, host: str, port: int) -> None:
    """Called by the gateway itself once it listens."""
    processes.write_json(path, {"host": host, "port": port, "pid": os.getpid()})


def _pid_file(directory: Path) -> Path:
    return directory / "run" / "gateway.json"


def _ready(directory: Path, process: Process) -> Listening | None:
    path = ready_file(directory)
    content = processes.read_json(path)
    host, port = content.get("host"), content.get("port")
    if content.get("pid") != process.pid or not isinstance(host, str) or not isinstance(port, int):
        return None
    return Listening(process, host, port, datetime.fromtimestamp(path.stat().st_mtime, UTC))


def _wait_ready(directory: Path, process: Process, offset: int) -> Listening:
    deadline = time.monotonic() + START_SECONDS
    while process.alive and time.monotonic() < deadline:
        listening = _ready(directory, process)
        if listening is not None:
            return listening
        time.sleep(processes.POLL_SECONDS)
    log = log_file(directory)
    what = f"is still not listening after {START_SECONDS} seconds" if process.alive else "ended while starting"
    raise StackError(
        f"the gateway {what}",
        detail=processes.tail(log, offset) or None,
        hint=f"its whole log is {log}",
    )


def _environment(settings: Settings, dsn: str, port: int, directory: Path) -> dict[str, str]:
    """Ours, with every setting spelled out: the gateway must not read another frostline.toml than we did."""
    kept = faults.VARIABLE  # a test's
    inherited = {k: v for k, v in os.environ.items() if not k.startswith(config.ENV_PREFIX) or k == kept}
    ours = dict(_values(settings)) | {
        "dsn": dsn,
        "gateway.port": str(port),
        "local.dir": str(directory),
        "lake.warehouse": settings.warehouse,
    }
    return inherited | {config.env_name(key): value for key, value in ours.items() if value}


def _values(settings: Settings) -> Iterator[tuple[str, str]]:
    for key in config.keys():  # noqa: SIM118 (a module, not a mapping)
        section, _, name = key.rpartition(".")
        value = getattr(getattr(settings, section) if section else settings, name)
        if key != "dsn" and value is not None:
            yield key, value.get_secret_value() if isinstance(value, SecretStr) else str(value)
