"""The named queries of sql/queries.sql."""

from __future__ import annotations

import re
from functools import cache
from importlib import resources
from typing import Any

from frostline.catalog.database import Connection


@cache
def _queries() -> dict[str, str]:
    text = (resources.files("frostline.catalog") / "sql" / "queries.sql").read_text(encoding="utf-8")
    parts = re.split(r"^-- name: (\w+)\n", text, flags=re.M)
    return dict(zip(parts[1::2], (body.strip() for body in parts[2::2]), strict=True))


def rows(connection: Connection, name: str, /, **parameters: object) -> list[tuple[Any, ...]]:
    """All rows of one named query."""
    return connection.execute(_queries()[name], parameters).fetchall()


def row(connection: Connection, name: str, /, **parameters: object) -> tuple[Any, ...] | None:
    """The first row of one named query, if any."""
    return connection.execute(_queries()[name], parameters).fetchone()
