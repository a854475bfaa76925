"""Our own child processes: started detached, remembered by pid and start time, signalled only when both still match.

A pid alone proves nothing: after a crash or a reboot it may belong to somebody else's process.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from frostline.errors import StackError

# How often a condition is looked at while waiting for it.
POLL_SECONDS = 0.05


@dataclass(frozen=True)
class Process:
    """One process of ours; `identity` changes when the pid is used again."""

    pid: int
    identity: str

    @staticmethod
    def of(pid: int) -> Process | None:
        """The process that has this pid now; None when there is none, or only its zombie."""
        _reap(pid)
        identity = _identity(pid)
        return None if identity is None else Process(pid, identity)

    @property
    def alive(self) -> bool:
        return Process.of(self.pid) == self

    def signal(self, number: int) -> bool:
        """Send a signal, unless the process is gone or the pid is another's by now."""
        if not self.alive:
            return False
        try:
            os.kill(self.pid, number)
        except ProcessLookupError:
            return False
        except PermissionError:
            raise StackError(
                f"process {self.pid} belongs to another user and was left alone",
                hint="run the same command as the user who started the stack",
            ) from None
        return True

    def stop(self, *, patience: float) -> None:
        """Ask it to end, insist after `patience` seconds, return when it is gone."""
        if self.signal(signal.SIGTERM) and not self.wait_gone(patience):
            self.signal(signal.SIGKILL)
            if not self.wait_gone(patience):
                raise StackError(f"process {self.pid} does not end, not even when killed")

    def wait_gone(self, seconds: float) -> bool:
        deadline = time.monotonic() + seconds
        while self.alive:
            if time.monotonic() > deadline:
                return False
            time.sleep(POLL_SECONDS)
        return True


def spawn(command: Sequence[str], *, env: Mapping[str, str], log: Path) -> Process:
    """Start a program in a session of its own (our Ctrl-C does not reach it), its output appended to `log`."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
    pid = os.posix_spawn(
        command[0],
        list(command),
        dict(env),
        setsid=True,
        file_actions=[
            (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
            (os.POSIX_SPAWN_OPEN, 1, str(log), flags, 0o600),
            (os.POSIX_SPAWN_DUP2, 1, 2),
        ],
    )
    return Process.of(pid) or Process(pid, "gone")


def command_line(pid: int) -> str:
    """The command a process was started with; empty when it is gone."""
    if sys.platform == "linux":
        try:
            return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
        except OSError:
            return ""
    return _ps(pid, "command")


def works_in(directory: Path) -> bool:
    """Whether any process that we may look at has this working directory, as every process of a Postgres has. Linux."""
    for link in Path("/proc").glob("[0-9]*/cwd"):
        with contextlib.suppress(OSError):
            if link.readlink() == directory:
                return True
    return False


def write_json(path: Path, content: Mapping[str, object]) -> None:
    """Replace a small private file in one step: a reader sees the old content or the new, never half."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    with os.fdopen(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
        json.dump(content, file, indent=2)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)


def read_json(path: Path) -> dict[str, object]:
    """What `write_json` wrote; empty when there is nothing, or nothing of use."""
    try:
        content = json.loads(path.read_text())
    except (FileNotFoundError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}


def tail(log: Path, offset: int, lines: int = 8) -> str:
    """The last lines written since `offset`."""
    with log.open("rb") as file:
        file.seek(offset)
        return "\n".join(file.read().decode(errors="replace").splitlines()[-lines:])


def save(process: Process, path: Path) -> None:
    write_json(path, asdict(process))


def saved(path: Path) -> Process | None:
    """The process a pid file names, if it still runs."""
    content = read_json(path)
    pid, identity = content.get("pid"), content.get("identity")
    if not isinstance(pid, int) or not isinstance(identity, str):
        return None
    process = Process(pid, identity)
    return process if process.alive else None


def _identity(pid: int) -> str | None:
    if sys.platform != "linux":
        return _ps(pid, "lstart") or None
    try:
        # The name, field 2, may hold anything, blanks and brackets too: count from its last bracket.
        fields = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return None
    state, start_ticks = fields[0], fields[19]
    return None if state in "ZX" else f"{boot}/{start_ticks}"


def _ps(pid: int, column: str) -> str:
    shown = subprocess.run(
        ["/bin/ps", "-ww", "-o", "stat=", "-o", f"{column}=", "-p", str(pid)],
        capture_output=True,
        text=True,
        check=False,
    ).stdout.split(maxsplit=1)
    return "" if len(shown) < 2 or shown[0].startswith("Z") else shown[1].strip()


def _reap(pid: int) -> None:
    """Collect a dead child of this very process, so that it does not look alive."""
    with contextlib.suppress(ChildProcessError):
        os.waitpid(pid, os.WNOHANG)
