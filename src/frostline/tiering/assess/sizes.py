"""What a table takes: heap, indexes and what is kept out of line, of all its partitions."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from psycopg.sql import SQL, Identifier

from frostline.catalog import queries
from frostline.catalog.database import Connection

_SAMPLED_PAGES = 400
_UNKNOWN_WIDTH = 100.0  # bytes of a row, where it cannot be looked up
PAGE = 8192  # bytes; a server may be built with another size, and then our pages are a measure like any other


@dataclass(frozen=True)
class Sizes:
    rows: float  # as ANALYZE and VACUUM left it; guessed where they never were
    heap: int
    indexes: int
    toast: int

    @property
    def total(self) -> int:
        return self.heap + self.indexes + self.toast

    @property
    def pages(self) -> int:
        return self.heap // PAGE

    @property
    def row_bytes(self) -> float:
        """Of heap and what is kept out of line."""
        return (self.heap + self.toast) / max(self.rows, 1)


@dataclass(frozen=True)
class Part:
    """A table, or a direct partition of it with all that is below."""

    oid: int
    bound: str | None
    foreign: bool
    sizes: Sizes


def parts(connection: Connection, oid: int, name: tuple[str, str], *, readable: bool) -> list[Part]:
    """A plain table has one, itself."""
    leaves = [
        (direct, bound, kind == "f", rows, Sizes(max(rows, 0), *bytes_))
        for direct, _, bound, kind, rows, *bytes_ in queries.rows(connection, "sizes", oid=oid)
    ]
    heap = together(sizes for *_, sizes in leaves)
    # -1: neither VACUUM nor ANALYZE has been there.
    width = _UNKNOWN_WIDTH
    if heap.heap and readable and any(rows < 0 and not foreign for _, _, foreign, rows, _ in leaves):
        width = _looked_up_width(connection, name, heap) or width
    grouped: dict[tuple[int, str | None, bool], list[Sizes]] = {}
    for direct, bound, foreign, rows, sizes in leaves:
        known = sizes if rows >= 0 else replace(sizes, rows=(sizes.heap + sizes.toast) / width)
        grouped.setdefault((direct, bound, foreign), []).append(known)
    return [Part(*part, together(sizes)) for part, sizes in grouped.items()]


def _looked_up_width(connection: Connection, name: tuple[str, str], heap: Sizes) -> float | None:
    """Rows on some random pages stand for those on all others."""
    percent = sampled_percent(heap)
    query = SQL("SELECT count(*) FROM {} TABLESAMPLE SYSTEM ({})").format(Identifier(*name), percent)
    row = connection.execute(query).fetchone()
    return (heap.heap + heap.toast) * percent / 100 / row[0] if row is not None and row[0] else None


def sampled_percent(sizes: Sizes) -> float:
    """Of a table's pages, so many as can be read in a moment."""
    return min(100 * _SAMPLED_PAGES / max(sizes.pages, 1), 100)


def together(sizes: Iterable[Sizes]) -> Sizes:
    found = list(sizes)
    return Sizes(
        sum(one.rows for one in found),
        sum(one.heap for one in found),
        sum(one.indexes for one in found),
        sum(one.toast for one in found),
    )
