"""Whose lake it is, written down in the lake itself.

A database that takes the place of another one says so beside the files. The other one may still live, or come back, and
its worker would go on: the catalog in its own Postgres tells it nothing. There it finds what was written, and stops.
"""

from __future__ import annotations

import os
import uuid
from pathlib import Path

from pyiceberg.io import FileIO
from pyiceberg.table import Table as IcebergTable

from frostline.catalog.registry import Managed
from frostline.errors import RefusedError
from frostline.lake import storage


def marker(table: IcebergTable) -> str:
    return f"{table.location().rstrip('/')}/metadata/frostline-owner"


def turn(location: str) -> str:
    return f"{location.rstrip('/')}/metadata/frostline-turn"


def word(io: FileIO, location: str) -> str | None:
    """What the last operation has left below a table's directory; None: none has, or it ended as it wrote."""
    found = io.new_input(turn(location))
    if not found.exists():
        return None
    with found.open() as stream:
        return stream.read().decode() or None


def leave_word(io: FileIO, location: str, word: str) -> None:
    _put(io, turn(location), word)


def claim(table: IcebergTable, managed: Managed) -> None:
    """From now on nobody else changes it."""
    _put(table.io, marker(table), managed.owner or "")


def _put(io: FileIO, place: str, text: str) -> None:
    """The whole text or the one before, whatever happens; and after a power cut, which Postgres survives, this one."""
    local = storage.local_path(place)
    if local is None:  # stores take an object as a whole
        with io.new_output(place).create(overwrite=True) as stream:
            stream.write(text.encode())
        return
    path, new = Path(local), Path(f"{local}-{uuid.uuid4()}")
    try:
        with new.open("wb") as stream:
            stream.write(text.encode())
            stream.flush()
            os.fsync(stream.fileno())
        new.replace(path)
    except BaseException:
        new.unlink(missing_ok=True)
        raise
    storage.flush(path.parent)


def check(table: IcebergTable, managed: Managed) -> None:
    """Nobody has taken the place of this database. Most never had to: then there is no such file."""
    found = table.io.new_input(marker(table))
    if not found.exists():
        return
    with found.open() as stream:
        owner = stream.read().decode()
    if owner != managed.owner:
        raise RefusedError(
            f"another database has taken the place of this one, and the Iceberg table of {managed.table} with it;"
            " nothing was changed",
            detail=f"the lake belongs to {owner}; this is {managed.owner}",
            hint="if this one is to go on, and the other one is gone: frostline adopt --successor\n"
            "if not: stop the worker here, and everything else of this database",
        )
