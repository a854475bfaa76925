"""Rows handed to Postgres inside a statement, as JSON: on a standby there are no temporary tables.

Every value is a string in it, and Postgres gives that to the input function of the column's type, as COPY does. Only
where JSON itself is wanted a string would be taken for JSON's; there it is cast.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain

import pyarrow as pa
from psycopg.pq.abc import PGresult

from frostline.catalog.cold import ColdColumn
from frostline.errors import QueryError
from frostline.gateway.backing import Backing
from frostline.gateway.lexer import identifier, quoted
from frostline.gateway.rows import Batches, Piece, Rows, fields, row_messages

PIECE_BYTES = 4_000_000
MOST_BYTES = 64_000_000  # of all rows of a statement: Postgres has them in memory a few times
_JSON = ("json", "jsonb")


def relation(columns: Sequence[ColdColumn], rows: str) -> str:
    """A table expression with the user's columns: same names, types and collations."""
    defined = ", ".join(f"a{column.number} {_definition(column)}" for column in columns)
    outputs = ", ".join(f"h.a{column.number}{_cast(column)} AS {identifier(column.name)}" for column in columns)
    return f"(SELECT {outputs} FROM pg_catalog.json_to_recordset({quoted(rows)}) AS h ({defined}))"


def pieces(columns: Sequence[ColdColumn], batches: Iterable[pa.RecordBatch]) -> Iterator[str]:
    """The rows as arrays of objects, none of them much larger than one piece."""
    names = [f"a{column.number}" for column in columns]
    found, size = list[str](), 0
    for row in chain.from_iterable(_rows(names, batch) for batch in batches):
        found.append(row)
        size += len(row)
        if size > PIECE_BYTES:
            yield f"[{','.join(found)}]"
            found, size = [], 0
    if found:
        yield f"[{','.join(found)}]"


def whole(columns: Sequence[ColdColumn], batches: Batches) -> str:
    """All of them in one, or why not."""
    found, size = list[str](), 0
    try:
        for piece in pieces(columns, batches.every()):
            found.append(piece[1:-1])
            size += len(piece)
            if size > MOST_BYTES:
                raise QueryError(
                    "too many cold rows for a statement that a standby has to evaluate as a whole",
                    detail=f"the rows it needs are more than {MOST_BYTES // 1_000_000} MB",
                    hint="read them in a sub-select with OFFSET 0, and join, sort or aggregate them outside of it; "
                    "or ask the primary",
                    sqlstate="54000",
                )
    finally:
        batches.close()
    return f"[{','.join(found)}]"


class HandedRows(Rows):
    """The answer to a statement that looks at each row by itself: Postgres gets the rows piece by piece."""

    path = "postgres"

    def __init__(
        self, backing: Backing, columns: Sequence[ColdColumn], batches: Batches, statement: Callable[[str], str]
    ) -> None:
        self._backing = backing
        self._columns = columns
        self._batches = batches
        self._statement = statement
        self._pieces = pieces(columns, batches.every())
        self._failed: Exception | None = None
        self._at = 0
        try:
            first = self._next() or self._asked("[]")
        except BaseException:
            batches.close()
            raise
        self._result: PGresult | None = first
        self.fields = fields(first)

    def take(self, wanted: int | None) -> Iterator[Piece]:
        while wanted is None or wanted > 0:
            if self._result is None or self._at == self._result.ntuples:
                self._result = self._next()
                if self._result is None:
                    return
            start, left = self._at, self._result.ntuples - self._at
            count = left if wanted is None else min(wanted, left)
            self._at += count
            yield row_messages(self._result, range(start, self._at)), count
            wanted = None if wanted is None else wanted - count

    def restart(self) -> None:
        self._batches.restart()
        self._pieces = pieces(self._columns, self._batches.every())
        self._result, self._failed = None, None

    def close(self) -> None:
        self._batches.close()

    def _next(self) -> PGresult | None:
        """After an error there is no going on: a piece would be missing."""
        if self._failed is not None:
            raise self._failed
        self._at = 0
        try:
            piece = next(self._pieces, None)
            return None if piece is None else self._asked(piece)
        except Exception as error:
            self._failed = error
            raise

    def _asked(self, piece: str) -> PGresult:
        return self._backing.batch([self._statement(relation(self._columns, piece))])[-1]


def _rows(names: Sequence[str], batch: pa.RecordBatch) -> Iterator[str]:
    """NULL is what is not there."""
    for values in zip(*(column.to_pylist() for column in batch.columns), strict=True):
        row = {name: value for name, value in zip(names, values, strict=True) if value is not None}
        yield json.dumps(row, ensure_ascii=False)


def _definition(column: ColdColumn) -> str:
    if column.typname in _JSON:
        return "pg_catalog.text"
    if column.collation is None:
        return column.type
    return f"{column.type} COLLATE {'.'.join(map(identifier, column.collation))}"


def _cast(column: ColdColumn) -> str:
    return f"::{column.type}" if column.typname in _JSON else ""
