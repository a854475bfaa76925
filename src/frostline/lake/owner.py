"""Whose lake it is, written down in the lake itself.

A database that takes the place of another one says so beside the files. The other one may still live, or come back, and
its worker would go on: the catalog in its own Postgres tells it nothing. There it finds what was written, and stops.
"""

from __future__ import annotations

from pyiceberg.table import Table as IcebergTable

from frostline.catalog.registry import Managed
from frostline.errors import RefusedError


def marker(table: IcebergTable) -> str:
    return f"{table.location().rstrip('/')}/metadata/frostline-owner"


def turn(table: IcebergTable) -> str:
    return f"{table.location().rstrip('/')}/metadata/frostline-turn"


def word(table: IcebergTable) -> str | None:
    """What the last operation has left here; None: none has."""
    found = table.io.new_input(turn(table))
    if not found.exists():
        return None
    with found.open() as stream:
        return stream.read().decode()


def leave_word(table: IcebergTable, word: str) -> None:
    with table.io.new_output(turn(table)).create(overwrite=True) as stream:
        stream.write(word.encode())


def claim(table: IcebergTable, managed: Managed) -> None:
    """From now on nobody else changes it."""
    with table.io.new_output(marker(table)).create(overwrite=True) as stream:
        stream.write((managed.owner or "").encode())


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
