"""The record of a fold."""

from __future__ import annotations

from dataclasses import dataclass, field

from frostline.catalog.database import Connection
from frostline.catalog.registry import Managed
from frostline.config import Settings
from frostline.faults import reached
from frostline.tiering.locks import Wanted, from_settings


@dataclass
class Operation:
    """One fold of one table."""

    id: int
    managed: Managed
    locks: Wanted = field(default_factory=Wanted)


def begin(connection: Connection, settings: Settings, managed: Managed) -> Operation:
    assert managed.seam is not None
    reached("fold.begin")
    row = connection.execute(
        "INSERT INTO frostline.operations (table_id, kind, leaf, upper) VALUES (%s, 'fold', %s, %s) RETURNING id",
        (managed.id, str(managed.table), managed.seam.text),
    ).fetchone()
    assert row is not None
    reached("fold.begun")
    return Operation(row[0], managed, from_settings(settings))
