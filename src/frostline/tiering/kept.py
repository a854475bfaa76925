"""Types that the lake cannot keep exactly, wherever in a table's columns they are."""

from __future__ import annotations

from collections.abc import Iterator

from frostline.catalog import queries
from frostline.catalog.database import Connection
from frostline.model import types


def unkept(connection: Connection, oid: int) -> Iterator[tuple[str, str]]:
    """Columns that stand in the way of registration, and why."""
    for column, typname, inside in queries.rows(connection, "types_within", oid=oid):
        reason = types.refused(typname, inside=inside)
        if reason is not None:
            yield f"column {column} {'holds' if inside else 'is of type'} {typname}", reason
