"""Results that can be taken in pieces, from DuckDB, from Postgres, or known beforehand."""

from __future__ import annotations

import contextlib
import itertools
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import duckdb
import pyarrow as pa
from psycopg.pq.abc import PGresult

from frostline.gateway import encode
from frostline.gateway.backing import Backing
from frostline.gateway.cancel import Canceller
from frostline.gateway.expressions import average
from frostline.gateway.wire import messages
from frostline.gateway.wire.messages import Field
from frostline.lake.storage import Storage

BATCH_ROWS = 10_000  # the fetch_size our foreign server is created with
_SPARE = 4
_FIRST_ROWS = 100  # of a cursor on Postgres: mostly all there are
_numbers = itertools.count(1)

Piece = tuple[bytes | memoryview, int]


class Rows(ABC):
    """A result set: DataRow messages on demand."""

    fields: Sequence[Field]
    path = "known"  # who answers: known without reading, file, delta, duckdb, postgres
    to_change: frozenset[int] = frozenset()  # tables whose rows the client may change as it reads them

    @abstractmethod
    def take(self, wanted: int | None) -> Iterator[Piece]:
        """The next rows as messages with their number: exactly `wanted` unless the end comes first; None: all."""

    def prepare(self, wanted: int) -> None:  # noqa: B027  optional
        """The client is busy with what it got: get the next rows ready meanwhile."""

    @abstractmethod
    def restart(self) -> None:
        """Go back before the first row."""

    def close(self) -> None:  # noqa: B027  nothing to give back by default
        """Give back what the result holds."""


class FixedRows(Rows):
    """A few rows known beforehand."""

    def __init__(self, fields: Sequence[Field], rows: Sequence[Sequence[str | None]] = ()) -> None:
        self.fields = fields
        self._rows = rows
        self._at = 0

    def take(self, wanted: int | None) -> Iterator[Piece]:
        end = len(self._rows) if wanted is None else self._at + wanted
        taken = self._rows[self._at : end]
        self._at += len(taken)
        if taken:
            yield b"".join(_message(row) for row in taken), len(taken)

    def restart(self) -> None:
        self._at = 0


def _message(row: Sequence[str | None]) -> bytes:
    return messages.data_row([None if value is None else value.encode() for value in row])


class BatchRows(Rows):
    """Rows known beforehand, of which there may be many."""

    def __init__(self, fields: Sequence[Field], batch: pa.RecordBatch) -> None:
        self.fields = fields
        self._batch = batch
        self._at = 0

    def take(self, wanted: int | None) -> Iterator[Piece]:
        part = self._batch.slice(self._at, wanted)
        self._at += part.num_rows
        yield from _pieces(part)

    def restart(self) -> None:
        self._at = 0


class ToldRows(Rows):
    """Rows of another result, of which is told before the first of them goes to the client."""

    def __init__(self, rows: Rows, tell: Callable[[], None], to_change: frozenset[int] = frozenset()) -> None:
        self.fields, self.path, self.to_change = rows.fields, rows.path, to_change
        self._rows, self._tell = rows, tell

    def take(self, wanted: int | None) -> Iterator[Piece]:
        for piece in self._rows.take(wanted):
            if piece[1]:
                self._tell()
            yield piece

    def prepare(self, wanted: int) -> None:
        self._rows.prepare(wanted)

    def restart(self) -> None:
        self._rows.restart()

    def close(self) -> None:
        self._rows.close()


class Cursors:
    """A session's connections to DuckDB, one per open result; those given back are used again."""

    def __init__(self, engine: duckdb.DuckDBPyConnection, storage: Storage) -> None:
        self._engine = engine
        self.storage = storage  # what they read
        self._spare: list[duckdb.DuckDBPyConnection] = []

    def take(self) -> duckdb.DuckDBPyConnection:
        return self._spare.pop() if self._spare else self._engine.cursor()

    def give_back(self, cursor: duckdb.DuckDBPyConnection) -> None:
        if len(self._spare) < _SPARE:
            self._spare.append(cursor)
        else:
            with contextlib.suppress(duckdb.Error):
                cursor.close()


class Batches:
    """Record batches of one DuckDB query, streamed; its own connection, so that results do not disturb each other."""

    def __init__(
        self, cursors: Cursors, canceller: Canceller, query: str, given: Mapping[str, pa.Table] | None = None
    ) -> None:
        self._cursors = cursors
        self._cursor = cursors.take()
        self._given = given or {}  # tables the query reads, by name
        for name, table in self._given.items():
            self._cursor.register(name, table)
        self._canceller = canceller
        self._query = query
        self._reader: pa.RecordBatchReader | None = None
        self._failed: Exception | None = None
        self._running = False  # a query is not read to its end: DuckDB keeps whatever was dropped since it began
        self._closed = False

    def next(self) -> pa.RecordBatch | None:
        """After an error there is no going on: rows that were on their way are lost."""
        if self._failed is not None:
            raise self._failed
        if self._closed:
            return None  # its connection may be somebody else's by now
        try:
            with self._canceller.interruptible(self._cursor.interrupt):
                if self._reader is None:
                    self._running = True
                    self._reader = self._cursor.execute(self._query).to_arrow_reader(BATCH_ROWS)
                return self._reader.read_next_batch()
        except StopIteration:
            self._running = False
            return None
        except (duckdb.Error, pa.ArrowException, OSError) as error:
            self._failed = self._cursors.storage.unreadable(error)
            raise self._failed from error
        except Exception as error:
            self._failed = error
            raise

    def every(self) -> Iterator[pa.RecordBatch]:
        return iter(self.next, None)

    def restart(self) -> None:
        self._reader = self._failed = None

    def close(self) -> None:
        if not self._closed:
            self._closed, self._reader = True, None
            for name in self._given:
                self._cursor.unregister(name)
            if self._running:
                with contextlib.suppress(duckdb.Error):
                    self._cursor.close()
            else:
                self._cursors.give_back(self._cursor)


@dataclass
class Prepared:
    """The answer to the next FETCH, made while the client works on the last one."""

    wanted: int
    parts: list[pa.RecordBatch]
    pieces: list[Piece]
    error: Exception | None = None


class LakeRows(Rows):
    """Rows streamed from DuckDB, all columns already text."""

    path = "duckdb"

    def __init__(self, fields: Sequence[Field], batches: Batches, averages: Mapping[int, int] | None = None) -> None:
        self.fields = fields
        self._batches = batches
        self._averages = averages or {}
        self._pending: deque[pa.RecordBatch] = deque()
        self._prepared: Prepared | None = None

    def take(self, wanted: int | None) -> Iterator[Piece]:
        prepared, self._prepared = self._prepared, None
        if prepared is not None and prepared.error is not None:
            raise prepared.error
        if prepared is not None and prepared.wanted == wanted:
            yield from prepared.pieces
            return
        if prepared is not None:
            self._pending.extendleft(reversed(prepared.parts))
        for part in self._parts(wanted):
            yield from _pieces(part)

    def prepare(self, wanted: int) -> None:
        if self._prepared is None:
            prepared = Prepared(wanted, [], [])
            try:
                for part in self._parts(wanted):
                    prepared.parts.append(part)
                    prepared.pieces += _pieces(part)
            except Exception as error:
                prepared.error = error  # for whoever asks for the rows
            self._prepared = prepared

    def restart(self) -> None:
        self._forget()
        self._batches.restart()

    def close(self) -> None:
        self._forget()
        self._batches.close()

    def _divided(self, batch: pa.RecordBatch | None) -> pa.RecordBatch | None:
        if batch is not None:
            for at, scale in self._averages.items():
                batch = batch.set_column(at, batch.schema.field(at).name, _quotients(batch.column(at), scale))
        return batch

    def _forget(self) -> None:
        self._pending.clear()
        self._prepared = None

    def _parts(self, wanted: int | None) -> Iterator[pa.RecordBatch]:
        """The next batches, the last one cut to measure."""
        while wanted is None or wanted > 0:
            batch = self._pending.popleft() if self._pending else self._divided(self._batches.next())
            if batch is None:
                return
            size = batch.num_rows if wanted is None else min(wanted, batch.num_rows)
            if size < batch.num_rows:
                self._pending.appendleft(batch.slice(size))
            yield batch.slice(0, size)
            wanted = None if wanted is None else wanted - size


def _quotients(column: pa.Array, scale: int) -> pa.Array:
    texts = column.to_pylist()
    return pa.array([None if text is None else average.quotient(text, scale) for text in texts], pa.string())


def _pieces(part: pa.RecordBatch) -> Iterator[Piece]:
    for piece in encode.data_rows(part):
        yield piece, 0
    yield b"", part.num_rows


class TakenRows(Rows):
    """A result Postgres has given whole; None: nothing."""

    path = "postgres"

    def __init__(self, fields: Sequence[Field], result: PGresult | None) -> None:
        self.fields = fields
        self._result = result
        self._at = 0

    def take(self, wanted: int | None) -> Iterator[Piece]:
        total = 0 if self._result is None else self._result.ntuples
        end = total if wanted is None else min(self._at + wanted, total)
        while self._at < end and self._result is not None:
            stop = min(self._at + BATCH_ROWS, end)
            yield row_messages(self._result, range(self._at, stop)), stop - self._at
            self._at = stop

    def restart(self) -> None:
        self._at = 0


def fields(result: PGresult) -> list[Field]:
    """The columns of a result of Postgres."""
    return [Field((result.fname(i) or b"").decode(), result.ftype(i), result.fmod(i)) for i in range(result.nfields)]


def row_messages(result: PGresult, rows: Iterable[int]) -> bytes:
    columns = range(result.nfields)
    return b"".join(messages.data_row([result.get_value(row, c) for c in columns]) for row in rows)


class PostgresRows(Rows):
    """Rows of a statement Postgres evaluates on the backing connection, through a cursor there.

    The first rows come along with its opening. It sees what was there then, also when it is read from its start again:
    a statement can change the very rows it reads.
    """

    path = "postgres"

    def __init__(self, backing: Backing, statement: str, *, before: Sequence[str] = (), again: bool = False) -> None:
        self._backing = backing
        self._name = f"frostline_{next(_numbers)}"
        declare = f"DECLARE {self._name} {'' if again else 'NO '}SCROLL CURSOR FOR {statement}"
        self._declare = [*before, declare]
        self._again = again  # the rows may change under it
        self._open()
        self.fields = fields(self._first)

    def _open(self) -> None:
        self._first, self._at = self._backing.batch([*self._declare, self._fetch(_FIRST_ROWS)])[-1], 0

    def take(self, wanted: int | None) -> Iterator[Piece]:
        end = self._first.ntuples if wanted is None else min(self._at + wanted, self._first.ntuples)
        if end > self._at:
            yield row_messages(self._first, range(self._at, end)), end - self._at
            wanted = None if wanted is None else wanted - (end - self._at)
            self._at = end
        if self._first.ntuples < _FIRST_ROWS:
            return
        while wanted is None or wanted > 0:
            size = BATCH_ROWS if wanted is None else min(wanted, BATCH_ROWS)
            (result,) = self._backing.batch([self._fetch(size)])
            yield row_messages(result, range(result.ntuples)), result.ntuples
            if result.ntuples < size:
                return
            wanted = None if wanted is None else wanted - result.ntuples

    def restart(self) -> None:
        if self._first.ntuples < _FIRST_ROWS:
            self._at = 0
        elif self._again:
            self._backing.batch([f"MOVE ABSOLUTE {_FIRST_ROWS} FROM {self._name}"])
            self._at = 0
        else:
            self.close()
            self._open()

    def close(self) -> None:
        if self._backing.open:
            self._backing.later(f"CLOSE {self._name}")

    def _fetch(self, size: int) -> str:
        return f"FETCH FORWARD {size} FROM {self._name}"
