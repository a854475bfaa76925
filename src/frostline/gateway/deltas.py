"""Versions of cold rows as DuckDB tables, kept for whoever reads the same ones next.

The same: of one Iceberg snapshot, in the same range, as many, and with the same newest. What one snapshot of Postgres
sees another one sees too, or the other way round, and versions are only removed when the Iceberg snapshot changes; so
two that see as many see the same ones.
"""

from __future__ import annotations

import contextlib
import threading
from collections import OrderedDict
from dataclasses import dataclass

import duckdb

_MOST_TABLES = 64
_MOST_ROWS = 2_000_000  # together

Key = tuple[object, ...]


@dataclass
class _Kept:
    name: str
    rows: int
    newest: int
    uses: int
    current: bool = True  # else it goes when nobody uses it any more


class Deltas:
    """Shared by all sessions."""

    def __init__(self, engine: duckdb.DuckDBPyConnection) -> None:
        self._engine = engine
        self._lock = threading.Lock()
        self._kept: OrderedDict[Key, _Kept] = OrderedDict()
        self._named: dict[str, _Kept] = {}

    def take(self, key: Key, rows: int, newest: int) -> str | None:
        """The table with these versions, if it is there; to be given back."""
        with self._lock:
            found = self._kept.get(key)
            if found is None or (found.rows, found.newest) != (rows, newest):
                return None
            self._kept.move_to_end(key)
            found.uses += 1
            return found.name

    def keep(self, key: Key, rows: int, newest: int, name: str) -> None:
        """A table that somebody has made and uses."""
        gone: list[str] = []
        with self._lock:
            if (before := self._kept.pop(key, None)) is not None:
                gone += self._retire(before)
            self._kept[key] = self._named[name] = _Kept(name, rows, newest, uses=1)
            while len(self._kept) > _MOST_TABLES or (
                len(self._kept) > 1 and sum(one.rows for one in self._kept.values()) > _MOST_ROWS
            ):
                gone += self._retire(self._kept.popitem(last=False)[1])
        self._drop(gone)

    def give_back(self, name: str) -> None:
        with self._lock:
            found = self._named[name]
            found.uses -= 1
            gone = [] if found.current or found.uses else [name]
            if gone:
                del self._named[name]
        self._drop(gone)

    def _retire(self, kept: _Kept) -> list[str]:
        kept.current = False
        if kept.uses:
            return []
        del self._named[kept.name]
        return [kept.name]

    def _drop(self, names: list[str]) -> None:
        for name in names:
            with contextlib.suppress(duckdb.Error), self._engine.cursor() as cursor:
                cursor.execute(f"DROP TABLE IF EXISTS {name}")
