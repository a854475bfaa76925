"""Columns of old rows that are aggregated again and again, kept in memory as DuckDB tables.

Most of what an aggregate takes is to unpack the columns it reads. Data files never change, so what was unpacked once
stays right. It is known by the text that reads it; whoever reads the same for the second time has it kept.
"""

from __future__ import annotations

import contextlib
import itertools
import threading
import weakref
from collections import OrderedDict
from collections.abc import Collection

import duckdb

from frostline.catalog.cold import ColdColumn
from frostline.gateway.cancel import Canceller
from frostline.gateway.rows import Cursors
from frostline.lake.cache import ByteCache

_WIDTHS = {"boolean": 1, "int": 4, "long": 8, "float": 4, "double": 8, "uuid": 16}
_WIDTHS |= {"date": 4, "timestamp": 8, "timestamptz": 8}
_MOST_ASKED = 1000  # texts that are remembered, a few hundred bytes each
_numbers = itertools.count(1)


class Kept:
    """A table in DuckDB's memory, for as long as somebody holds this."""

    def __init__(self, engine: duckdb.DuckDBPyConnection, name: str, weight: int) -> None:
        self.name, self.weight = name, weight
        weakref.finalize(self, _drop, engine, name).atexit = False


class Columns:
    """Shared by all sessions."""

    def __init__(self, engine: duckdb.DuckDBPyConnection, capacity: int) -> None:
        self._engine = engine
        self._cache: ByteCache[Kept] = ByteCache(capacity)
        self._asked: OrderedDict[str, bool] = OrderedDict()  # whether it is to be kept when it is asked for again
        self._lock = threading.Lock()

    def get(self, text: str, weight: int, cursors: Cursors, canceller: Canceller) -> Kept | None:
        """What a query finds, about so many bytes; None: it is not kept, or not yet."""
        if weight > self._cache.capacity // 2 or (self._cache.peek(text) is None and not self._again(text)):
            return None
        try:
            return self._cache.get(text, lambda: self._load(text, weight, cursors, canceller))
        except duckdb.Error:
            # There is no room for it; or the lake has something to say, and will say it to whoever reads it there.
            with self._lock:
                self._asked[text] = False
            return None

    def counts(self) -> dict[str, int]:
        return {f"columns_{what}": count for what, count in self._cache.counts().items()}

    def _again(self, text: str) -> bool:
        """Whether it was asked for before."""
        with self._lock:
            again = self._asked.pop(text, None)
            self._asked[text] = again is not False
            if len(self._asked) > _MOST_ASKED:
                self._asked.popitem(last=False)
        return again or False

    def _load(self, text: str, weight: int, cursors: Cursors, canceller: Canceller) -> Kept:
        name = f"columns_{next(_numbers)}"
        cursor = cursors.take()
        try:
            with canceller.interruptible(cursor.interrupt):
                cursor.execute(f"CREATE TABLE {name} AS {text}")
        finally:
            cursors.give_back(cursor)
        return Kept(self._engine, name, weight)


def width(columns: Collection[ColdColumn]) -> int | None:
    """How many bytes a row takes in memory; None: that depends on the row."""
    widths = [16 if c.storage.iceberg.startswith("decimal") else _WIDTHS.get(c.storage.iceberg) for c in columns]
    return None if None in widths else sum(width or 0 for width in widths)


def _drop(engine: duckdb.DuckDBPyConnection, name: str) -> None:
    with contextlib.suppress(duckdb.Error), engine.cursor() as cursor:
        cursor.execute(f"DROP TABLE IF EXISTS {name}")
