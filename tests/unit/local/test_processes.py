"""Processes are known by pid and start time, and nothing else is ever signalled."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from frostline.local import processes
from frostline.local.processes import Process

DEAF = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('deaf', flush=True); time.sleep(600)"


def wait_until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.01)


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "log"


def start(code: str, log: Path) -> Process:
    return processes.spawn([sys.executable, "-c", code], env=dict(os.environ), log=log)


def test_a_child_runs_in_a_session_of_its_own_and_writes_to_its_log(log: Path) -> None:
    child = start("import os, sys; print(os.getsid(0) == os.getpid(), file=sys.stderr)", log)
    assert child.wait_gone(60)
    assert log.read_text() == "True\n"
    assert log.stat().st_mode & 0o777 == 0o600


def test_a_polite_stop_is_enough_for_most(log: Path) -> None:
    child = start("import time; time.sleep(600)", log)
    assert child.alive
    child.stop(patience=60)
    assert not child.alive


def test_a_process_that_does_not_listen_is_killed(log: Path) -> None:
    child = start(DEAF, log)
    wait_until(lambda: log.exists() and log.read_text())
    child.stop(patience=0.2)
    assert not child.alive


def test_a_dead_child_is_not_alive_as_a_zombie(log: Path) -> None:
    child = start("pass", log)
    assert child.wait_gone(60)
    assert Process.of(child.pid) is None


def test_a_pid_that_was_given_to_another_is_neither_alive_nor_signalled() -> None:
    us = Process.of(os.getpid())
    assert us is not None
    assert us.alive
    former = Process(us.pid, "an earlier boot/12345")
    assert not former.alive
    # Were it sent, the test run would end here.
    assert former.signal(signal.SIGKILL) is False
    former.stop(patience=1)


def test_a_saved_process_is_found_again_only_while_it_is_the_same(tmp_path: Path) -> None:
    us = Process.of(os.getpid())
    assert us is not None
    file = tmp_path / "run" / "pid.json"
    processes.save(us, file)
    assert file.stat().st_mode & 0o777 == 0o600
    assert processes.saved(file) == us
    processes.save(Process(us.pid, "other"), file)
    assert processes.saved(file) is None


@pytest.mark.parametrize("text", ["", "{", "[]", '{"pid": "1"}', '{"pid": 1}', "\0\0\0"])
def test_a_damaged_pid_file_names_nobody(tmp_path: Path, text: str) -> None:
    (tmp_path / "pid.json").write_text(text)
    assert processes.saved(tmp_path / "pid.json") is None


def test_works_in_finds_a_process_by_its_directory(tmp_path: Path, log: Path) -> None:
    if sys.platform != "linux":
        pytest.skip("needs /proc")
    assert not processes.works_in(tmp_path)
    child = start(f"import os, time; os.chdir({str(tmp_path)!r}); time.sleep(600)", log)
    wait_until(lambda: processes.works_in(tmp_path))
    child.stop(patience=60)
    assert not processes.works_in(tmp_path)
