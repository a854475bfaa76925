"""Fixtures are plugins, one file per subject."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

pytest_plugins = ["fix_stack", "fix_cluster", "fix_commands", "fix_tiering", "fix_lake"]


@pytest.fixture(scope="session", autouse=True)
def nothing_is_left_here() -> Iterator[None]:
    """`make demo` after `make test` would take it for somebody's stack."""
    place = Path(".frostline").absolute()
    before = place.exists()
    yield
    assert before or not place.exists()
