"""The demonstration, as a stranger runs it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

FROSTLINE = str(Path(sys.executable).with_name("frostline"))


def frostline(directory: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [FROSTLINE, "--dir", str(directory), *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=900, check=False, cwd=directory.parent)


@pytest.fixture(scope="module")
def shown(open_directory: Path) -> Iterator[tuple[Path, str]]:
    """A small demo that stays up, and what it printed."""
    directory = open_directory / "demo stack"
    done = frostline(directory, "demo", "--keep", "--rows", "60000")
    assert done.returncode == 0, done.stdout + done.stderr
    yield directory, done.stdout
    frostline(directory, "down")


def test_the_content_hash_is_the_same_before_and_after(shown: tuple[Path, str]) -> None:
    _, output = shown
    hashes = re.findall(r"^60000\s+(-?\d+)\s*$", output, flags=re.M)
    assert len(hashes) == 2
    assert hashes[0] == hashes[1]
    assert f"is the same before and after: {hashes[0]}" in output
    assert output.count("the same answer as before archiving") == 4
    assert "Foreign Scan" not in output
    assert "Subplans Removed" in output


def test_what_it_promises_to_try_next_works(shown: tuple[Path, str]) -> None:
    directory, output = shown
    assert re.search(r"frostline .*psql -c 'EXPLAIN SELECT", output)
    described = frostline(directory, "psql", "-c", r"\d+ demo.readings")
    assert described.returncode == 0, described.stderr
    assert "readings_before" in described.stdout
    explained = frostline(directory, "psql", "-c", "EXPLAIN SELECT * FROM demo.readings WHERE id = 1000")
    assert explained.stdout.count("Foreign Scan") == 10
    status = frostline(directory, "status")
    assert status.returncode == 0
    assert "demo.readings" in status.stdout
    again = frostline(directory, "archive", "demo.readings")
    assert again.returncode == 0, again.stderr
    assert "nothing to archive" in again.stderr


def test_with_the_gateway_killed_the_last_day_still_answers(shown: tuple[Path, str]) -> None:
    directory, _ = shown
    status = frostline(directory, "status").stdout
    found = re.search(r"^gateway\s+(\d+)", status, flags=re.M)
    assert found is not None, status
    os.kill(int(found[1]), 9)
    hot = frostline(
        directory, "psql", "-Atc", "SELECT count(*) > 0 FROM demo.readings WHERE taken_at > now() - interval '1 day'"
    )
    assert hot.stdout.strip() == "t", hot.stderr
    cold = frostline(directory, "psql", "-Atc", "SELECT count(*) FROM demo.readings")
    assert cold.returncode != 0
    assert "frostline gateway (frostline up starts it)" in cold.stderr
    assert frostline(directory, "up").returncode == 0
    cold = frostline(directory, "psql", "-Atc", "SELECT count(*) FROM demo.readings")
    assert cold.stdout.strip() == "60000", cold.stderr


def test_it_does_not_touch_a_stack_that_is_not_its_own(tmp_path: Path) -> None:
    directory = tmp_path / "mine"
    directory.mkdir()
    (directory / "stack.json").write_text("{}")
    refused = frostline(directory, "demo")
    assert refused.returncode == 1
    assert "will not touch" in refused.stderr
    assert [path.name for path in directory.iterdir()] == ["stack.json"]
