"""One task: a range of pages is read by binary COPY at the exported snapshot; of an export, it becomes data files."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import closing
from dataclasses import dataclass

import psycopg2
import pyarrow as pa

from frostline.catalog.database import session_sql
from frostline.lake.decode import TRAILER, BadCopy, Wire, batch, without_header
from frostline.lake.writer import Target, Writer, Written

# Small enough for a processor's cache, large enough that Python's part of the work does not show.
_BLOCK_BYTES = 2 * 1024 * 1024


class TaskFailed(Exception):
    """Why a task failed, on one line that is found again in what Spark makes of it."""


@dataclass(frozen=True)
class Reading:
    """What is read by all tasks together."""

    dsn: str
    snapshot: str
    query: str  # of the whole relation; `ctid` can be asked for
    columns: tuple[Wire, ...]


@dataclass(frozen=True)
class Job(Reading):
    """And where an export writes it."""

    target: Target


@dataclass(frozen=True)
class Slice:
    """Pages from `start` up to `end`, or to the last one there is."""

    start: int
    end: int | None

    @property
    def condition(self) -> str:
        end = "" if self.end is None else f" AND ctid < '({self.end},0)'::tid"
        return f"ctid >= '({self.start},0)'::tid{end}"


def copy(job: Job, part: Slice) -> list[Written]:
    """Files of the slice's rows; none is left behind if it fails."""
    writer = Writer(job.target)
    try:
        read(job, part, writer.add)
        writer.flush()
    except BaseException as error:
        writer.discard()
        if isinstance(error, Exception):
            raise TaskFailed(f"{type(error).__name__}: {' '.join(str(error).split())}") from error
        raise
    return writer.written


def read(job: Reading, part: Slice, take: Callable[[pa.RecordBatch], None]) -> None:
    """Hand over the slice's rows, a batch at a time."""
    # psycopg2, for it gives the rows of a COPY to a callback: psycopg takes fifteen times as long per row.
    connection = psycopg2.connect(
        job.dsn, application_name="frostline export", client_encoding="UTF8", connect_timeout=10
    )
    rows = _Rows(job.columns, take)
    with closing(connection), connection.cursor() as cursor:
        cursor.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
        cursor.execute("SET TRANSACTION SNAPSHOT %s", (job.snapshot,))
        cursor.execute(session_sql(local=True))
        cursor.copy_expert(f"COPY ({job.query} WHERE {part.condition}) TO STDOUT (FORMAT binary)", rows)
        rows.end()


class _Rows:
    """What COPY writes to: the server sends one message per row, and each comes here by itself."""

    def __init__(self, columns: tuple[Wire, ...], take: Callable[[pa.RecordBatch], None]) -> None:
        self._columns = columns
        self._take = take
        self._block: list[bytes] = []
        self._begun = False
        collector = self._collect()
        next(collector)
        self.write = collector.send

    def end(self) -> None:
        """All has come: the last message says that there is nothing more."""
        self._flush()
        if self._block != [TRAILER]:
            raise BadCopy("the copy ended early")

    def _collect(self) -> Generator[None, bytes, None]:
        """A generator, for sending it a value is half the price of a call, and this is done for every row."""
        while True:
            append, room = self._block.append, _BLOCK_BYTES
            while room > 0:
                message = yield
                append(message)
                room -= len(message)
            self._flush()

    def _flush(self) -> None:
        rows, self._block = self._block, []
        if not self._begun and rows:
            rows[:1] = [row for row in (without_header(rows[0]),) if row]
            self._begun = True
        if rows and rows[-1] == TRAILER:
            self._block.append(rows.pop())
        if rows:
            self._take(batch(rows, self._columns))
