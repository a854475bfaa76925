"""The named queries of sql/: queries.sql, and a file for each command that has many of its own."""

from __future__ import annotations

import re
from functools import cache
from importlib import resources
from typing import Any

from frostline.catalog.database import Connection


@cache
def _queries() -> dict[str, str]:
    found: dict[str, str] = {}
    for file in (resources.files("frostline.catalog") / "sql").iterdir():
        if not file.name[:3].isdigit():  # those are migrations
            parts = re.split(r"^-- name: (\w+)\n", file.read_text(encoding="utf-8"), flags=re.M)
            found |= dict(zip(parts[1::2], (body.strip() for body in parts[2::2]), strict=True))
    return found


def rows(connection: Connection, name: str, /, **parameters: object) -> list[tuple[Any, ...]]:
    """All rows of one named query."""
    return connection.execute(_queries()[name], parameters).fetchall()


def row(connection: Connection, name: str, /, **parameters: object) -> tuple[Any, ...] | None:
    """The first row of one named query, if any."""
    return connection.execute(_queries()[name], parameters).fetchone()
