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

_WIDTHS = {"boolean": 1, "int": 4, "long": 8, "float": 4, "double": 8, "uuid": 16}
_WIDTHS |= {"date": 4, "timestamp": 8, "timestamptz": 8}
# DuckDB keeps a column in blocks, those of every so many rows by themselves, and beside them which are NULL.
_BLOCK_BYTES, _ROWS_TOGETHER = 262_144, 122_880
# What was dropped stays for as long as a query goes on that began before; changed rows are there too.
_TABLES = "SELECT sum(memory_usage_bytes + temporary_storage_bytes) FROM duckdb_memory() WHERE tag = 'IN_MEMORY_TABLE'"
_BESIDE = 64 * 1024 * 1024
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
        self._capacity = capacity
        self._kept: OrderedDict[str, Kept] = OrderedDict()  # the least recently used first
        self._alive: weakref.WeakSet[Kept] = weakref.WeakSet()  # these, and others that somebody still reads
        self._loading: dict[str, int] = {}  # how many bytes
        self._asked: OrderedDict[str, int] = OrderedDict()  # when, in questions; 0: it is not to be kept
        self._questions = self._hits = self._misses = 0
        self._lock = threading.Lock()

    def get(self, text: str, weight: int, cursors: Cursors, canceller: Canceller) -> Kept | None:
        """What a query finds, about so many bytes; None: it is not kept, or not yet."""
        if weight > self._capacity // 2:
            return None
        with self._lock:
            before = self._note(text)
            found = self._kept.get(text)
            if found is not None:
                self._hits += 1
                self._kept.move_to_end(text)
                return found
            # Whoever comes while another one loads it reads the files: so many copies there is no room for.
            if not before or text in self._loading or not self._room(weight, before):
                return None
            self._misses += 1
            self._loading[text] = weight
        made = None
        try:
            made = self._load(text, weight, cursors, canceller)
        except duckdb.Error:
            # There is no room for it; or the lake has something to say, and will say it to whoever reads it there.
            with self._lock:
                self._asked[text] = 0
        finally:
            gone = self._loaded(text, made)
        del gone  # dropped without the lock
        return made

    def counts(self) -> dict[str, int]:
        with self._lock:
            found = {"hits": self._hits, "misses": self._misses, "entries": len(self._kept), "bytes": self._bytes()}
        return {f"columns_{what}": count for what, count in found.items()}

    def _note(self, text: str) -> int:
        """When it was asked for before."""
        self._questions += 1
        before = self._asked.pop(text, None)
        self._asked[text] = 0 if before == 0 else self._questions
        if len(self._asked) > _MOST_ASKED:
            self._asked.popitem(last=False)
        return before or 0

    def _room(self, weight: int, before: int) -> bool:
        """Whether there is some without what was used since then: of more than fits, read in turn, a part stays."""
        loading = sum(self._loading.values())
        if sum(kept.weight for kept in self._alive) + loading + weight > self._capacity * 3 // 2:
            return False
        lacking = self._bytes() + loading + weight - self._capacity
        for text, kept in self._kept.items():
            if lacking <= 0:
                break
            if self._asked.get(text, 0) > before:
                return False
            lacking -= kept.weight
        return True

    def _loaded(self, text: str, made: Kept | None) -> list[Kept]:
        """What has to go for it."""
        gone: list[Kept] = []
        with self._lock:
            del self._loading[text]
            if made is not None:
                self._kept[text] = made
                self._alive.add(made)
                while self._bytes() > self._capacity:
                    gone.append(self._kept.popitem(last=False)[1])
        return gone

    def _bytes(self) -> int:
        return sum(kept.weight for kept in self._kept.values())

    def _load(self, text: str, weight: int, cursors: Cursors, canceller: Canceller) -> Kept | None:
        name = f"columns_{next(_numbers)}"
        cursor = cursors.take()
        try:
            with canceller.interruptible(cursor.interrupt):
                there = cursor.execute(_TABLES).fetchone()
                if there is not None and (there[0] or 0) + weight > 2 * self._capacity + _BESIDE:
                    return None
                cursor.execute(f"CREATE TABLE {name} AS {text}")
        finally:
            cursors.give_back(cursor)
        return Kept(self._engine, name, weight)


def size(columns: Collection[ColdColumn], rows: int) -> int | None:
    """How many bytes they take in memory; None: that depends on the rows."""
    widths = [16 if c.storage.iceberg.startswith("decimal") else _WIDTHS.get(c.storage.iceberg) for c in columns]
    if None in widths:
        return None
    whole, rest = divmod(rows, _ROWS_TOGETHER)
    return sum(whole * _blocks(width or 0, _ROWS_TOGETHER) + _blocks(width or 0, rest) for width in widths)


def _blocks(width: int, rows: int) -> int:
    return (-(-width * rows // _BLOCK_BYTES) + 1) * _BLOCK_BYTES


def _drop(engine: duckdb.DuckDBPyConnection, name: str) -> None:
    with contextlib.suppress(duckdb.Error), engine.cursor() as cursor:
        cursor.execute(f"DROP TABLE IF EXISTS {name}")
