"""`scripts/setup`: what is missing is said in one sentence, and a half-made .venv never counts as one."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from fix_commands import environment

ROOT = Path(__file__).parents[2]


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """What set-up looks at, without a .venv."""
    copy = tmp_path / "checkout"
    copy.mkdir()
    for name in ("pyproject.toml", "README.md", "LICENSE", "requirements.lock", "requirements-build.lock"):
        shutil.copy(ROOT / name, copy)
    shutil.copytree(ROOT / "scripts", copy / "scripts")
    shutil.copytree(ROOT / "src", copy / "src", ignore=shutil.ignore_patterns("__pycache__"))
    return copy


def setup(checkout: Path, **env: str | None) -> subprocess.CompletedProcess[str]:
    """Without a network: pip asks a port where nobody listens, once."""
    dead = {"PIP_INDEX_URL": "http://127.0.0.1:1/", "PIP_RETRIES": "0", "PIP_NO_CACHE_DIR": "1", "PIP_FIND_LINKS": None}
    return subprocess.run(
        ["sh", "scripts/setup"],
        cwd=checkout,
        env=environment({**dead, "PYTHON": sys.executable, **env}),
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def a_python(directory: Path, version: str) -> str:
    """An interpreter that is too old, and says so as they do."""
    script = directory / "old-python"
    script.write_text(f'#!/bin/sh\ncase "$2" in *sys.exit*) exit 1 ;; *) echo {version} ;; esac\n')
    script.chmod(0o755)
    return str(script)


def test_an_old_python_is_named_with_its_version(checkout: Path, tmp_path: Path) -> None:
    old = a_python(tmp_path, "3.9.18")
    done = setup(checkout, PYTHON=old)
    assert done.returncode == 1
    assert done.stderr.splitlines()[0] == f"error: Frostline needs Python 3.11 or newer, and {old} is 3.9.18."
    assert not (checkout / ".venv").exists()


def test_no_java_is_said_before_anything_is_fetched(checkout: Path, tmp_path: Path) -> None:
    tools = tmp_path / "bin"
    tools.mkdir()
    for name in ("sh", "dirname", "rm"):
        found = shutil.which(name)
        assert found is not None
        (tools / name).symlink_to(found)
    done = setup(checkout, PATH=str(tools), JAVA_HOME=None)
    assert done.returncode == 1
    assert done.stderr.startswith("error: Frostline needs Java 17 or newer")
    assert not (checkout / ".venv").exists()


def test_without_a_network_it_says_so_and_the_next_run_goes_on(checkout: Path) -> None:
    done = setup(checkout)
    assert done.returncode == 1
    assert "error: the Python packages could not be installed" in done.stderr
    assert "Traceback" not in done.stderr
    assert not list((checkout / ".venv").glob(".lock-*"))
    assert not (checkout / ".venv" / ".installing").exists()
    made = (checkout / ".venv" / "pyvenv.cfg").stat().st_mtime_ns
    assert setup(checkout).returncode == 1
    assert (checkout / ".venv" / "pyvenv.cfg").stat().st_mtime_ns == made


def test_a_venv_that_was_being_made_when_the_plug_was_pulled_is_made_anew(checkout: Path) -> None:
    (checkout / ".venv" / "bin").mkdir(parents=True)
    (checkout / ".venv" / ".installing").touch()
    (checkout / ".venv" / "half").touch()
    setup(checkout)
    assert not (checkout / ".venv" / "half").exists()
    assert os.access(checkout / ".venv" / "bin" / "python", os.X_OK)


def test_the_lock_holds_hashes_for_everything_and_no_addresses() -> None:
    for name in ("requirements.lock", "requirements-build.lock"):
        lines = (ROOT / name).read_text().splitlines()
        starts = [number for number, line in enumerate(lines) if "==" in line]
        assert starts
        for number in starts:
            assert lines[number].endswith("\\")
            assert lines[number + 1].strip().startswith("--hash=sha256:")
        assert not [line for line in lines if "://" in line or "index" in line or line.startswith(("#", "-"))]
