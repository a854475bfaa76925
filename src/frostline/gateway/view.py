"""The cold tier as one remote transaction sees it: one Postgres snapshot, one Iceberg snapshot per table.

The snapshot is taken at the first use. A REPEATABLE READ or SERIALIZABLE transaction keeps it. In READ COMMITTED a new
one is taken for each statement whose own snapshot is surely later, so that what others commit is seen; until cold rows
were written, or read FOR UPDATE.

Postgres's partitions are always the current ones: a period archived since the snapshot is foreign to the client and
still hot here, its rows in neither. So the range of every source is compared with the seam; where it does not fit and
no new snapshot may be taken, the answer is 40001.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any

import duckdb
import psycopg
import pyarrow as pa
from psycopg import sql
from psycopg.pq.abc import PGresult

from frostline.catalog.cold import ColdColumn, ColdTable, NotRegistered, cold_table, described, question
from frostline.catalog.pins import Snapshot
from frostline.errors import LakeError, QueryError
from frostline.gateway.backing import Backing
from frostline.gateway.bench import Bench, Write, Written
from frostline.gateway.cancel import Canceller
from frostline.gateway.columns import Columns, Kept
from frostline.gateway.deltas import Deltas
from frostline.gateway.follower import Follower
from frostline.gateway.lexer import identifier, quoted
from frostline.gateway.metrics import Metrics
from frostline.gateway.names import Source
from frostline.gateway.origin import Origin
from frostline.gateway.pins import Pin, Pins, SnapshotGone
from frostline.gateway.rows import Cursors, Rows
from frostline.gateway.translate import column_name
from frostline.lake import staged
from frostline.lake.files import DataFile
from frostline.lake.storage import Storage
from frostline.model.bounds import Range
from frostline.model.types import delta_type

_numbers = itertools.count(1)
_LOAD_ROWS = 10_000
_NOTHING = Written()
_TOO_LATE = "a standby reads what its primary keeps for maintenance.backup_window: retry, once it has caught up"
_CONFLICT = "retry the transaction; hot_standby_feedback = on keeps on the primary what is read here"
_writers: set[int] = set()  # backends whose transactions have changed cold rows
_pinned: dict[int, str] = {}  # backends whose transactions have chosen their snapshot, and which


@dataclass(frozen=True)
class TempTable:
    """Rows of a source that were handed to Postgres in this transaction."""

    name: str
    columns: frozenset[ColdColumn]
    conditions: tuple[str, ...]


@dataclass(frozen=True)
class Version:
    """A row as it is since it was written, its values in text, or that it was removed."""

    number: str
    values: list[str | None]
    removed: bool = False


@dataclass(frozen=True)
class Bulk:
    """When new rows are written to files of their own."""

    rows: int  # one statement has at least so many
    file_bytes: int


@dataclass
class View:
    """Opened by the first statement that needs it, ended with the remote transaction."""

    engine: duckdb.DuckDBPyConnection
    storage: Storage
    cursors: Cursors
    backing: Backing
    canceller: Canceller
    pins: Pins
    origin: Origin
    metrics: Metrics
    deltas: Deltas
    columns: Columns
    follower: Follower
    bulk: Bulk
    temp_tables: dict[Source, list[TempTable]] = field(default_factory=dict)
    benches: dict[int, Bench] = field(default_factory=dict)  # by table
    written: dict[int, Written] = field(default_factory=dict)  # by table
    touched: set[int] = field(default_factory=set)  # tables that writes came to
    opened: Mapping[str, Rows] = field(default_factory=dict)  # cursors
    doubted: set[int] = field(default_factory=set)  # tables whose held writes were met by what may be another statement
    beyond: set[int] = field(default_factory=set)  # tables that were changed as by a statement that goes on
    reading: bool = False  # cursors are open
    locked: bool = False  # cold rows were read FOR UPDATE: who changes them since is noticed when they are written
    scan: int | None = None  # the number of the scan that is being answered
    _tables: dict[tuple[int, int | None], ColdTable] = field(default_factory=dict)
    _deltas: dict[tuple[Source, tuple[str, ...]], str | None] = field(default_factory=dict)
    _changed: dict[int, bool] = field(default_factory=dict)  # by table: its delta has rows
    _held: list[Pin] = field(default_factory=list)
    _read: bool = False  # a statement was answered from this snapshot
    asked_at: float = 0.0  # when the statement being worked on arrived
    _known: dict[tuple[int, int | None], ColdTable] = field(default_factory=dict)  # also from transactions before
    _last: tuple[int, int | None] | None = None  # the first table that the last transaction read
    _writes: bool = False  # this transaction begins with a write by a key
    _last_wrote: bool = False  # and so did the last one
    _had_versions: dict[int, bool] = field(default_factory=dict)  # by table: its delta, when a transaction began
    _fixed: bool = False  # the client chose the snapshot: frostline.pin()
    _own: list[str] = field(default_factory=list)  # DuckDB tables with versions that only this transaction reads
    _shared: list[str] = field(default_factory=list)  # and others
    _kept: dict[str, Kept] = field(default_factory=dict)  # columns in memory that its cursors may read
    _going_on: dict[int, Write] = field(default_factory=dict)  # by table: a write that may not be over
    _number: int = 0
    _met: bool = False  # we know whose session this is
    _made: list[str] = field(default_factory=list)  # files that were written, and may not be wanted in the end
    _known_there: dict[int, Callable[[], bool]] = field(default_factory=dict)  # leaves a word beside those of a table
    _behind: int | None = None  # a table that has to follow when nothing of it is read any more

    def pin_to_write(self, sources: Sequence[Source], *, may_restart: bool) -> dict[Source, ColdTable]:
        """The same for a statement that changes rows: what belongs to an altered table has to follow it first."""
        fresh = may_restart and not self.backing.open
        found = self.pin(sources, may_restart=may_restart)
        if self.backing.standby:
            raise QueryError(
                f"cold rows of {found[sources[0]]} can only be read on a standby, and have no ctid there",
                hint="nothing was changed; ask the primary",
                sqlstate="25006",
            )
        behind = next((table for table in found.values() if not table.followed), None)
        if behind is None:
            return found
        if not fresh:
            self._behind = behind.id
            self.follower.check(behind.id)
            raise QueryError(
                f"{behind} was altered; its cold rows can be changed once this transaction is over",
                hint="retry the transaction",
                sqlstate="40001",
            )
        self.end()
        self.follower.follow(behind.id)
        return self.pin(sources, may_restart=False)

    def pin(self, sources: Sequence[Source], *, may_restart: bool, rescan: bool = False) -> dict[Source, ColdTable]:
        """Each source's table in this snapshot; a range that is not wholly cold in it means look again or 40001."""
        changed = any(written.writes for written in self.written.values())
        may_restart = may_restart and not changed and not self.locked
        if self.backing.failed:
            self._begin_anew(may_restart)
        if may_restart and not rescan and self._read and not self._fixed and self._client_moved_on():
            self.end()
        try:
            self._open(sources, may_restart)
            found = {source: self._table(source) for source in sources}
            moved = next((f"{table} {source.range}" for source, table in found.items() if _hot(source, table)), None)
            if any(pin.lost for pin in self._held):
                raise SnapshotGone
        except SnapshotGone:
            found, moved = {}, f"table {sources[0].table} in the lake"
        if moved is None:
            self._read = True
            return found
        if may_restart and not self._read and not self._fixed:
            self.end()
            return self.pin(sources, may_restart=False)
        raise QueryError(
            f"rows of {moved} moved between tiers while this transaction was open",
            hint="retry the transaction",
            sqlstate="40001",
        )

    def _begin_anew(self, may_restart: bool) -> None:
        """A statement was cancelled, and the client went on from a savepoint; the snapshot is lost."""
        if not may_restart or self._read or self._fixed:
            raise QueryError(
                "cold rows cannot be read any further: a statement of this transaction was cancelled while they were",
                hint="retry the transaction",
                sqlstate="40001",
            )
        self.end()

    def fix(self, snapshot: str) -> None:
        """Read at a snapshot the client exported, from the first cold row on; asking again changes nothing."""
        if self._fixed:
            return
        if self._read:
            raise QueryError(
                "frostline.pin() comes too late: this transaction has read cold rows at another snapshot",
                hint="make it the transaction's first statement",
                sqlstate="25001",
            )
        self.end()
        try:
            self.backing.begin(snapshot)
        except BaseException:
            self.end()  # a savepoint may bring the client back; nothing may be read in what is left
            raise
        self._fixed = True
        if self.origin.pid is not None:
            _pinned[self.origin.pid] = snapshot

    def judged(self, error: Exception) -> Exception:
        """What an error means on a standby, where neither the lake's files nor a transaction are ours to keep."""
        if not self.backing.standby:
            return error
        if isinstance(error, LakeError):
            gone = any(map(self.pins.expiring, self._held))
            return QueryError(
                error.message,
                detail=error.detail,
                hint=_TOO_LATE if gone else f"{error.hint}\n{_TOO_LATE}",
                sqlstate="40001" if gone else error.sqlstate,
            )
        if isinstance(error, psycopg.OperationalError) and error.diag.sqlstate is None:
            return QueryError("the standby has ended the transaction", hint=_CONFLICT, sqlstate="40001")
        return error

    def bench(self, table: ColdTable) -> Bench:
        """Where writes of a table are worked out."""
        if table.id not in self.benches:
            self.benches[table.id] = Bench(table)
        return self.benches[table.id]

    def at_bench(self, bench: Bench, statements: Sequence[str]) -> list[PGresult]:
        """Results of statements that may use the bench's tables."""
        if bench.made and not statements and not bench.deferred:
            return []
        lacking = itertools.chain.from_iterable(later() for later in bench.deferred)
        creation = [*bench.creation(), *lacking, *map(bench.index, indexed := bench.to_index())]
        found = self.backing.batch([*creation, *statements])
        bench.made, bench.indexed = True, bench.indexed | set(indexed)
        bench.settled()
        return found[len(creation) :]

    def next_number(self) -> int:
        self._number += 1
        return self._number

    def written_of(self, table_id: int) -> Written:
        return self.written.get(table_id, _NOTHING)

    @contextmanager
    def when_begun(self, sources: Iterable[Source]) -> Iterator[None]:
        """See what was written as it was when the scan that is being answered began.

        postgres_fdw asks for a partition's rows when it comes to it; a loop may have changed them by then.
        """
        scan = self.scan
        with self._seeing({} if scan is None else {s.table: self.written_of(s.table).as_of(scan) for s in sources}):
            yield

    def as_outside(self, source: Source) -> AbstractContextManager[None]:
        """See what a statement does that is sent whole, after those that were called by an earlier part of it."""
        written = self.written_of(source.table)
        seen = written.outside()
        if seen is written:
            return nullcontext()
        if (seen.batches, seen.files) != (written.batches, written.files):
            self.beyond.add(source.table)
        return self._seeing({source.table: seen})

    def meet(self, sources: Iterable[Source], verb: str | None = None) -> None:
        """Rows of these are read, or inserted, updated or deleted.

        Where what is held may concern the same rows it matters whether that is of the same statement; only whoever
        stores it can tell.
        """
        for source in sources:
            if any(_may_meet(write, source, verb) for write in self.written_of(source.table).held):
                self.doubted.add(source.table)

    @contextmanager
    def _seeing(self, earlier: dict[int, Written]) -> Iterator[None]:
        if all(written is self.written_of(id_) for id_, written in earlier.items()):
            yield
            return
        now = self.written, self._deltas, self.temp_tables
        self.written, self._deltas, self.temp_tables = {**self.written, **earlier}, {}, {}
        try:
            yield
        finally:
            self.written, self._deltas, self.temp_tables = now

    def note(
        self, table: ColdTable, verb: str, source: Source, *, new_keys: bool = False, alone: bool = False
    ) -> Write:
        """A write begins, or goes on; one that stands alone does neither with others."""
        last = self._going_on.get(table.id)
        if last is not None and not alone and (last.verb, last.source, last.new_keys) == (verb, source, new_keys):
            self.bench(table).quick = None  # there is more to it
            return last
        if self.origin.pid is not None:
            _writers.add(self.origin.pid)
        made = Write(self.next_number(), verb, source, new_keys)
        before = self.written_of(table.id)
        self.written[table.id] = replace(before, writes=(*before.writes, made), held=(*before.held, made))
        self._going_on.pop(table.id, None)
        if not alone:
            self._going_on[table.id] = made
        return made

    def mark(self) -> None:
        """What is written from now on may be undone without what was written before."""
        self._going_on.clear()

    def store(self, table_id: int, written: Written) -> None:
        """A batch is the client's."""
        self.written[table_id] = written
        self._look_again()

    def lock(self) -> None:
        """Nothing can be locked in the lake, so from here on others' changes of what was read are conflicts."""
        self.locked = True

    def restore(self, written: dict[int, Written]) -> None:
        """Only this was written, and whoever was about to store more has given up."""
        for bench in self.benches.values():
            bench.begins = None
        if written != self.written:
            self.written = written
            self._look_again()
        for doubts in (self.doubted, self.beyond):
            doubts.intersection_update(id_ for id_, found in written.items() if found.held)
        self.mark()

    def _look_again(self) -> None:
        """What this transaction sees of cold rows is not what it was."""
        self.mark()
        for kept in (self._deltas, self.temp_tables):
            kept.clear()

    def version_rows(self, table: ColdTable) -> sql.Composable:
        """Versions of the delta and of this transaction, as a table expression."""
        delta = sql.Identifier(*table.delta)
        batches = self.written_of(table.id).batches
        if not batches:
            return delta if table.followed else _as_followed(table)
        outputs = sql.SQL(", ").join([*(sql.Identifier(c.name) for c in table.stored), sql.SQL("_op, _seq")])
        self.at_bench(self.benches[table.id], [])
        return sql.SQL("(SELECT {o} FROM {} UNION ALL SELECT {o} FROM {} WHERE _batch = ANY ({}::int[]))").format(
            delta, self.benches[table.id].versions, sql.Literal(list(batches)), o=outputs
        )

    def in_memory(self, text: str, weight: int) -> str | None:
        """The table with what a query of lake rows finds, if it is kept; it stays until the transaction ends."""
        kept = self.columns.get(text, weight, self.cursors, self.canceller)
        if kept is None:
            return None
        self._kept[kept.name] = kept
        return kept.name

    def staged_files(self, source: Source, table: ColdTable) -> tuple[DataFile, ...]:
        """Files that no Iceberg snapshot has yet: those the snapshot of Postgres sees, and this transaction's own."""
        if source.operation is not None:
            return ()
        own = tuple(file.data_file for file in self.written_of(table.id).files)
        return (*staged.read(table.staged_files), *own)

    def delta(self, source: Source, table: ColdTable, keys: tuple[str, ...] = ()) -> str | None:
        """The DuckDB table with the newest version of the keys the delta has in the range; None: it has none.

        Only of keys that satisfy the conditions, if there are any.
        """
        if source.lake_only:
            return None
        if (source, ()) in self._deltas:
            keys = ()
        if (source, keys) not in self._deltas:
            self._deltas[source, keys] = self._versions(source, table, keys) if self.has_versions(table) else None
        return self._deltas[source, keys]

    def newest(
        self, source: Source, table: ColdTable, key: tuple[str, ...], columns: Sequence[ColdColumn]
    ) -> Version | None:
        """The newest version of the row that has this whole primary key; None: there is none, the lake knows."""
        if source.lake_only or not self.has_versions(table):
            return None
        found = self.backing.answer(self._newest_of(source, table, key, columns))
        if not found.ntuples:
            return None
        *values, operation, number = (found.get_value(0, at) for at in range(found.nfields))
        texts = [None if value is None else value.decode() for value in values]
        return Version((number or b"").decode(), texts, removed=operation == b"T")

    def delta_rows(self, source: Source, table: ColdTable) -> int:
        """How many versions the delta has in the range."""
        return self._counted(table, in_range(source, table))[0]

    def _counted(self, table: ColdTable, within: sql.Composable) -> tuple[int, int]:
        """How many versions there are, and the newest."""
        query = sql.SQL("SELECT count(*), coalesce(max(_seq), 0) FROM {} v WHERE {}")
        with self.backing.running():
            row = self.backing.connection.execute(query.format(self.version_rows(table), within)).fetchone()
        return (int(row[0]), int(row[1])) if row else (0, 0)

    def end(self) -> None:
        """Forget everything read so far and end the transaction it was read in."""
        self.forget()
        self.backing.end()
        if self._behind is not None:
            behind, self._behind = self._behind, None
            self.follower.attempt(behind, "")

    def forget(self) -> None:
        """Give back all but the transaction."""
        for name in self._own:
            with self.engine.cursor() as cursor:
                cursor.execute(f"DROP TABLE IF EXISTS {name}")
        while self._shared:
            self.deltas.give_back(self._shared.pop())
        for kept in (self.temp_tables, self._tables, self._deltas, self._changed, self.benches, self.written):
            kept.clear()
        self._kept.clear()
        for gone in (self._own, self._going_on, self.touched, self.doubted, self.beyond):
            gone.clear()
        if self.origin.pid is not None:
            _writers.discard(self.origin.pid)
            _pinned.pop(self.origin.pid, None)
        self._remove_files()
        self._read = self._fixed = self.locked = False
        while self._held:
            self.pins.release(self._held.pop())

    def leave_words(self) -> None:
        """Before that, once more: who was copied from us since they were written would take them for leftovers."""
        for table_id, known_there in self._known_there.items():
            if table_id in self.written and self.written[table_id].files and not known_there():
                raise QueryError(
                    "another database has changed the lake meanwhile under the name of this one; nothing was stored",
                    sqlstate="40001",
                )

    def keep_files(self) -> None:
        """The transaction is about to commit: what it has stored is not ours any more."""
        kept = {path for written in self.written.values() for path in staged.paths(written.files)}
        self._made = [path for path in self._made if path not in kept]

    def made(self, table_id: int, paths: Iterable[str], known_there: Callable[[], bool]) -> None:
        """Files that go again, unless this transaction commits with them."""
        self._made += paths
        self._known_there[table_id] = known_there

    def _remove_files(self) -> None:
        made, self._made, self._known_there = self._made, [], {}
        if made:
            # A client that has gone cannot commit any more: it would have said so to us first.
            self.storage.remove(made)

    def _open(self, sources: Sequence[Source], may_restart: bool) -> None:
        snapshots = {source.snapshot for source in sources}
        if len(snapshots) > 1:
            raise QueryError("one statement cannot read at two snapshots", sqlstate="0A000")
        snapshot = next(iter(snapshots), None)
        if self._fixed and snapshot is None:
            return
        if self.backing.open and self.backing.snapshot != snapshot:
            if not may_restart or self._fixed:
                raise QueryError("the transaction reads at another snapshot already", sqlstate="25001")
            self.end()
        if not self.backing.open:
            self._begin(snapshot, sources[0])

    def anticipate(self) -> None:
        """A transaction has begun; most likely it reads what the last one read first.

        Where that was a write by a key all its questions together wait for the key.
        """
        if self._last is not None and not self._last_wrote:
            self.backing.begin_early(self._questions(*self._last))

    def begin_to_write(
        self, source: Source, table: ColdTable, key: tuple[str, ...], columns: Sequence[ColdColumn], more: Sequence[str]
    ) -> bool:
        """Begin the transaction of a write by a whole key, with all it asks; whether Postgres is at work on it.

        The table is as it was when this session last looked: if it is not any more the questions are asked again.
        """
        self._writes = True
        questions = [*self._questions(source.table, None), *more]
        if self._had_versions.get(table.id):
            name = self.backing.known_as(_newest_by_key_of(source, table, columns))
            if name is None:
                return False
            questions.append(_executed(name, source, table, key))
        return self.backing.begin_early(questions)

    def last_known(self, source: Source) -> ColdTable | None:
        """The source's table as it was when this session last looked."""
        return self._known.get((source.table, source.operation))

    def _questions(self, table: int, operation: int | None) -> list[str]:
        """What nearly every statement wants to know first."""
        probe = _probe_name(table)
        return [question(table, operation), *([f"EXECUTE {probe}"] if self.backing.prepared(probe) else [])]

    def _begin(self, snapshot: str | None, source: Source, *, again: bool = False) -> None:
        key = (source.table, source.operation)
        self._last_wrote, self._writes = self._writes, False
        try:
            answers = self.backing.begin(snapshot, self._questions(*key), asked_at=self.asked_at)
        except (psycopg.errors.UndefinedTable, psycopg.errors.InvalidSqlStatementName):
            # The delta went away with its table; then that is the thing to say.
            self.backing.forget(_probe_name(source.table))
            answers = self.backing.begin(snapshot, self._questions(*key))
        chosen = self._meet()
        if chosen is not None:
            self.fix(chosen)
            return
        with self.backing.running():
            table = described(self.backing.connection, answers[0], *key)
        if not table.followed and snapshot is None and not again and not self.backing.standby:
            self.backing.end()  # it may have looked at the delta
            self.follower.attempt(table.id, table.shape)
            self._begin(None, source, again=True)
            return
        self._know(source, table)
        self._last = key if snapshot is None else None
        if len(answers) > 1:
            self._changed[table.id] = self._had_versions[table.id] = answers[1].get_value(0, 0) == b"t"

    def _meet(self) -> str | None:
        """A parallel worker has a session of its own; returns the snapshot that its leader has chosen.

        Nothing is seen in it of what the leader has changed: that is in the backing transaction of another session.
        """
        if self._met:
            return None
        leader = None
        if _writers or _pinned:
            with self.backing.running():
                leader = self.origin.leader(self.backing.connection)
        if leader in _writers:
            raise QueryError(
                "a parallel worker cannot read cold rows in a transaction that has changed cold rows",
                hint="mark the function that reads them PARALLEL RESTRICTED, or"
                " SET LOCAL max_parallel_workers_per_gather = 0",
                sqlstate="0A000",
            )
        self._met = True
        return None if leader is None else _pinned.get(leader)

    def _table(self, source: Source) -> ColdTable:
        key = (source.table, source.operation)
        if key not in self._tables:
            try:
                with self.backing.running():
                    table = cold_table(self.backing.connection, *key)
            except NotRegistered:
                if self.follower.shape(source.table) is None:
                    raise
                raise SnapshotGone from None  # registered since this snapshot
            if source.snapshot is None and self.follower.shape(table.id) != table.shape:
                raise SnapshotGone  # altered since this snapshot, and the client goes by what it is like now
            self._know(source, table)
        return self._tables[key]

    def _know(self, source: Source, table: ColdTable) -> None:
        if table.snapshot_id is not None and table.metadata_location is not None:
            snapshot = Snapshot(table.id, table.snapshot_id, table.metadata_location)
            self._held.append(self.pins.acquire(snapshot))
        self._tables[source.table, source.operation] = table
        if source.operation is None:
            self._known[source.table, None] = table

    def _client_moved_on(self) -> bool:
        with self.backing.running():
            return self.origin.reads_later(self.backing.connection)

    def has_versions(self, table: ColdTable) -> bool:
        """Whether the delta has any, or this transaction."""
        # Mostly the delta is empty: then a query over forty periods asks once, not forty times.
        if table.id not in self._changed:
            self._changed[table.id] = self._probe(table)
        return self._changed[table.id] or bool(self.written_of(table.id).batches)

    def _versions(self, source: Source, table: ColdTable, keys: tuple[str, ...]) -> str | None:
        within = sql.SQL(_within(source, table, keys))
        # Of a range that is not cold yet versions are still changed in their places.
        mutable = source.operation is not None or source.snapshot is not None
        if keys or mutable or self.written_of(table.id).batches:
            if self.backing.answer(self._exists(source, table, keys)).get_value(0, 0) != b"t":
                return None
            return self._load_delta(table, within)
        rows, newest = self._counted(table, within)
        if not rows:
            return None
        columns = ((c.number, c.type, c.delta_name, c.missing, c.unreadable) for c in table.columns.values())
        shape = (*columns, tuple(c.number for c in table.primary_key))
        # A server that was restored counts versions from where it stood then: the same numbers, other rows.
        key = (self.backing.server, table.id, table.snapshot_id, source.range, shape)
        found = self.deltas.take(key, rows, newest)
        if found is None:
            found = self._load_delta(table, within)
            self._own.remove(found)
            self.deltas.keep(key, rows, newest, found)
        self._shared.append(found)
        return found

    def _probe(self, table: ColdTable) -> bool:
        """Whether the delta has any rows; from now on that is asked along with the first question."""
        name = _probe_name(table.id)
        statement = sql.SQL("AS SELECT EXISTS (SELECT FROM {})").format(sql.Identifier(*table.delta))
        with self.backing.running():
            if not self.backing.prepared(name):
                self.backing.prepare(name, statement.as_string(self.backing.connection))
            row = self.backing.connection.execute(f"EXECUTE {name}").fetchone()
        return bool(row and row[0])

    def expect(self, source: Source, table: ColdTable, keys: tuple[str, ...], more: Sequence[str] = ()) -> None:
        """The versions of these keys will be asked for, and other questions: Postgres can look meanwhile."""
        known = not {(source, ()), (source, keys)}.isdisjoint(self._deltas)
        ask = bool(keys) and not known and self._may_ask(source, table)
        self._ahead([*more, self._exists(source, table, keys)] if ask else more)

    def expect_newest(
        self,
        source: Source,
        table: ColdTable,
        key: tuple[str, ...],
        columns: Sequence[ColdColumn],
        more: Sequence[str] = (),
    ) -> None:
        """The same of the newest version of a whole key."""
        ask = self._may_ask(source, table)
        self._ahead([*more, self._newest_of(source, table, key, columns)] if ask else more)

    def _may_ask(self, source: Source, table: ColdTable) -> bool:
        return not source.lake_only and not self.written_of(table.id).batches and self.has_versions(table)

    def _ahead(self, questions: Sequence[str]) -> None:
        if questions:
            self.backing.ahead(questions)

    def _exists(self, source: Source, table: ColdTable, keys: tuple[str, ...]) -> str:
        """The question whether there are versions."""
        return f"SELECT EXISTS (SELECT FROM {self._all_versions(table)} v WHERE {_within(source, table, keys)})"

    def _newest_of(self, source: Source, table: ColdTable, key: tuple[str, ...], columns: Sequence[ColdColumn]) -> str:
        """The question for a key's newest version, with values as the table has them."""
        if self._all_in_delta(table):
            name = self.backing.named(_newest_by_key_of(source, table, columns))
            if name is not None:
                return _executed(name, source, table, key)
        keys = tuple(f"{identifier(c.name)} = {value}" for c, value in zip(table.primary_key, key, strict=True))
        return _newest_text(tuple(columns), self._all_versions(table), _within(source, table, keys))

    def _all_versions(self, table: ColdTable) -> str:
        return _quoted(table.delta) if self._all_in_delta(table) else self.version_rows(table).as_string(None)

    def _all_in_delta(self, table: ColdTable) -> bool:
        """Whether versions are read from there as they are: none is held, and its columns are the table's."""
        return table.followed and not self.written_of(table.id).batches

    def _load_delta(self, table: ColdTable, within: sql.Composable) -> str:
        inexact = next((column for column in table.primary_key if not column.exact_equality), None)
        if inexact is not None or not table.primary_key:
            what = f"its column {inexact.name} is of type {inexact.type}" if inexact else "it has none"
            raise QueryError(f"changed cold rows of {table} cannot be matched by primary key: {what}", sqlstate="0A000")
        columns = [column for column in table.stored if column.unreadable is None]
        name = f"delta_{next(_numbers)}"
        with self.engine.cursor() as target:
            loads = [f"{c.storage.load.replace('{c}', 'NULL::VARCHAR')} AS {column_name(c.number)}" for c in columns]
            loads += ["NULL::VARCHAR AS op", "NULL::BIGINT AS seq"]
            target.execute(f"CREATE TABLE {name} AS SELECT {', '.join(loads)} WHERE false")
            self._own.append(name)  # whatever becomes of it
            self._copy_delta(target, name, columns, _newest(table, columns, self.version_rows(table), within))
        return name

    def _copy_delta(
        self, target: duckdb.DuckDBPyConnection, name: str, columns: Sequence[ColdColumn], query: sql.Composed
    ) -> None:
        """Every value crosses as text and is turned into the lake's type, so nothing is lost on the way."""
        names = [*(column_name(column.number) for column in columns), "op", "seq"]
        loads = [*(c.storage.load.replace("{c}", column_name(c.number)) for c in columns), "op", "CAST(seq AS BIGINT)"]
        schema = pa.schema([(n, pa.string()) for n in names])
        with self.backing.running(), _cursor(self.backing.connection, name) as rows:
            rows.execute(query)
            while found := rows.fetchmany(_LOAD_ROWS):
                arrays: list[Any] = [pa.array(values, pa.string()) for values in zip(*found, strict=True)]
                target.register("versions", pa.Table.from_arrays(arrays, schema=schema))
                target.execute(f"INSERT INTO {name} SELECT {', '.join(loads)} FROM versions")
                target.unregister("versions")


@contextmanager
def _cursor(connection: psycopg.Connection[Any], name: str) -> Iterator[psycopg.ServerCursor[Any]]:
    """Closed in any case: one that Postgres went away from while it was being closed has to be told again."""
    with closing(psycopg.ServerCursor(connection, name)) as rows, rows:
        yield rows


def _probe_name(table_id: int) -> str:
    return f"frostline_delta_{int(table_id)}"


def _may_meet(held: Write, source: Source, verb: str | None) -> bool:
    if held.verb == verb == "INSERT":
        return False  # a key that is there is one that is there
    return held.source.range.overlaps(source.range) or (held.verb == "UPDATE" and held.new_keys)


def _hot(source: Source, table: ColdTable) -> bool:
    """An export is read before its range is cold, so only the visible form is checked."""
    return source.operation is None and not source.range.below(table.seam)


@lru_cache(maxsize=1000)
def _quoted(name: tuple[str, str]) -> str:
    return sql.Identifier(*name).as_string(None)


def _within(source: Source, table: ColdTable, keys: tuple[str, ...]) -> str:
    return " AND ".join([_range_text(table.key, source.range), *keys])


def _newest_text(columns: tuple[ColdColumn, ...], versions: str, within: str) -> str:
    values = _as_in_table(columns)
    return f"SELECT {values}, _op, _seq FROM {versions} v WHERE {within} ORDER BY _seq DESC LIMIT 1"


def _newest_by_key_of(source: Source, table: ColdTable, columns: Sequence[ColdColumn]) -> str:
    bounds = source.range.lower is not None, source.range.upper is not None
    return _newest_by_key(table.delta, tuple(columns), table.primary_key, table.key, bounds)


def _executed(name: str, source: Source, table: ColdTable, key: tuple[str, ...]) -> str:
    return f"EXECUTE {name} ({', '.join([*key, *_bounds(table.key, source.range)])})"


@lru_cache(maxsize=1000)
def _newest_by_key(
    delta: tuple[str, str],
    columns: tuple[ColdColumn, ...],
    key: tuple[ColdColumn, ...],
    range_key: ColdColumn,
    bounds: tuple[bool, bool],
) -> str:
    """The question for the newest version of any key, within a range that has these ends."""
    operators = [operator for operator, there in zip((">=", "<"), bounds, strict=True) if there]
    compared = [*((column, "=") for column in key), *((range_key, operator) for operator in operators)]
    types = ", ".join(delta_type(column.base_type) for column, _ in compared)
    conditions = [f"{identifier(c.name)} {operator} ${at}" for at, (c, operator) in enumerate(compared, 1)]
    return f"({types}) AS {_newest_text(columns, _quoted(delta), ' AND '.join(conditions))}"


@lru_cache(maxsize=1000)
def _bounds(key: ColdColumn, found: Range) -> tuple[str, ...]:
    return tuple(f"{quoted(bound.text)}::{key.type}" for bound in (found.lower, found.upper) if bound is not None)


@lru_cache(maxsize=1000)
def _as_in_table(columns: tuple[ColdColumn, ...]) -> str:
    return ", ".join(f"v.{identifier(column.name)}::{column.base_type}" for column in columns)


def in_range(source: Source, table: ColdTable) -> sql.Composable:
    return sql.SQL(_range_text(table.key, source.range))


@lru_cache(maxsize=1000)
def _range_text(column: ColdColumn, found: Range) -> str:
    key, typename = sql.Identifier(column.name), sql.SQL(column.type)
    parts = [
        sql.SQL("{} {} {}::{}").format(key, sql.SQL(operator), sql.Literal(bound.text), typename)
        for operator, bound in ((">=", found.lower), ("<", found.upper))
        if bound is not None
    ]
    return sql.SQL(" AND ").join(parts).as_string(None) if parts else "true"


def exported(column: ColdColumn, relation: str) -> sql.Composed:
    """A column's value in the form that the lake's is made from; the delta has it in a wider type."""
    before, _, after = column.storage.export.partition("{c}")
    value = sql.SQL("({}::{})").format(sql.Identifier(relation, column.name), sql.SQL(column.base_type))
    return sql.SQL("({}{}{})::text").format(sql.SQL(before), value, sql.SQL(after))


def _as_followed(table: ColdTable) -> sql.Composed:
    """The delta with the table's columns of today, though it has not followed yet; what it lacks no version has."""

    def value(column: ColdColumn) -> sql.Composed:
        kept = sql.Literal(column.missing_text) if column.delta_name is None else sql.Identifier(column.delta_name)
        return sql.SQL("{}::{} AS {}").format(kept, sql.SQL(column.base_type), sql.Identifier(column.name))

    columns = sql.SQL(", ").join(value(column) for column in table.stored if column.unreadable is None)
    return sql.SQL("(SELECT {}, _op, _seq FROM {})").format(columns, sql.Identifier(*table.delta))


def _newest(
    table: ColdTable, columns: Sequence[ColdColumn], versions: sql.Composable, within: sql.Composable
) -> sql.Composed:
    key = sql.SQL(", ").join(sql.Identifier(column.name) for column in table.primary_key)
    exports = sql.SQL(", ").join(exported(column, "v") for column in columns)
    return sql.SQL(
        "SELECT DISTINCT ON ({}) {}, v._op::text, v._seq::text FROM {} v WHERE {} ORDER BY {}, v._seq DESC"
    ).format(key, exports, versions, within, key)
