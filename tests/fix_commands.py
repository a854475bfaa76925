"""The `frostline` command as a person runs it: a process of its own, with exit code and output."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pytest

from frostline.report import Report

Run = Callable[..., subprocess.CompletedProcess[str]]


class Lines(Report):
    """Keeps what was said."""

    def __init__(self) -> None:
        super().__init__()
        self.said: list[str] = []

    def line(self, text: str) -> None:
        self.said.append(text)


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "frostline", *arguments]


def environment(extra: Mapping[str, str | None]) -> dict[str, str]:
    """Ours, changed; None removes a variable."""
    merged: dict[str, str | None] = {**os.environ, **extra}
    return {name: value for name, value in merged.items() if value is not None}


@pytest.fixture
def frostline(tmp_path: Path) -> Run:
    """Run one command in an empty directory and return what it said."""

    def run(*arguments: str, env: Mapping[str, str | None] | None = None) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            command(*arguments),
            env=environment(env or {}),
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )

    return run


def failed_clearly(done: subprocess.CompletedProcess[str], *words: str) -> None:
    """Exit code 1 and one sentence with these words; no stack trace."""
    lines: Sequence[str] = done.stderr.splitlines()
    errors = [line for line in lines if line.startswith("error: ")]
    assert done.returncode == 1, done.stderr
    assert len(errors) == 1, done.stderr
    assert "Traceback" not in done.stderr + done.stdout
    for word in words:
        assert word in errors[0]
