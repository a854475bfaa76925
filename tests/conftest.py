"""Fixtures are plugins, one file per subject."""

from __future__ import annotations

pytest_plugins = ["fix_stack", "fix_cluster", "fix_commands", "fix_tiering", "fix_lake"]
