"""A ledger under constant writes, and what everybody was told about it.

Each writer owns its rows, so it knows their last acknowledged state. All amounts sum to zero after every transaction.
What was acknowledged must be there, exactly once, with its last value. Where the answer to COMMIT was lost, all of that
transaction or nothing of it is. With `synchronous_commit = off` a killed Postgres may forget the last transactions of a
writer, never one before another that is kept, and none that was acknowledged before a synchronous commit began.
"""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import psycopg
from psycopg import IsolationLevel

WIDTH = 1000  # of a period
HOT = 4 * WIDTH
_PAUSE = 0.015
_FEWEST, _MOST = 40, 160  # hot rows of a writer

Row = tuple[int, int, int]  # key, version, amount
Rows = dict[int, Row | None]  # by id; None: not there
Connection = psycopg.Connection[Any]


def tables(name: str, periods: int) -> str:
    leaves = "".join(
        f"CREATE TABLE public.{name}_{n:02} PARTITION OF public.{name}"
        f" FOR VALUES FROM ({n * WIDTH}) TO ({(n + 1) * WIDTH});"
        for n in range(periods + HOT // WIDTH + 3)
    )
    return (
        f"CREATE TABLE public.{name} (id bigint, k bigint, version int NOT NULL, amount bigint NOT NULL,"
        f" writer int NOT NULL, note text, PRIMARY KEY (id, k)) PARTITION BY RANGE (k);{leaves}"
    )


@dataclass
class Durable:
    """What a killed Postgres cannot forget: what was acknowledged before a synchronous commit began that was too."""

    _ticks: int = 0
    _floors: Counter[int] = field(default_factory=Counter)  # by how often Postgres had been killed
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def tick(self) -> int:
        with self._lock:
            self._ticks += 1
            return self._ticks

    def flushed(self, crashes: int, began: int) -> None:
        with self._lock:
            self._floors[crashes] = max(self._floors[crashes], began)

    def floor(self, crashes: int) -> int:
        """A synchronous commit after the crash says nothing about what was lost in it."""
        return self._floors[crashes]


@dataclass(frozen=True)
class Done:
    """An acknowledged transaction that a crash may yet undo."""

    acknowledged: int
    before: Rows


@dataclass
class World:
    """What writers and readers share."""

    dsn: str
    table: str
    first: int = 0  # the oldest period that may still be hot
    crashes: Callable[[], int] = lambda: 0
    durable: Durable = field(default_factory=Durable)
    wrong: list[str] = field(default_factory=list)
    stop: threading.Event = field(default_factory=threading.Event)
    quiet: threading.Event = field(default_factory=threading.Event)  # readers are to pause
    errors: Counter[str] = field(default_factory=Counter)

    def connect(self, **options: Any) -> Connection:
        return psycopg.connect(self.dsn, connect_timeout=5, prepare_threshold=None, **options)


class Writer(threading.Thread):
    """Writes its own rows, one transaction after the other, and remembers."""

    def __init__(
        self,
        world: World,
        number: int,
        seed: int,
        *,
        asynchronous: bool = False,
        replica: bool = False,
        level: IsolationLevel = IsolationLevel.READ_COMMITTED,
    ):
        super().__init__(name=f"writer {number}", daemon=True)
        self.world, self.number = world, number
        self.asynchronous, self.replica, self.level = asynchronous, replica, level
        self.rows: dict[int, Row] = {}
        self.gate = threading.Lock()  # held while a transaction is under way
        self.acknowledged = 0
        self._random = random.Random(seed)
        self._next = number * 10_000_000
        self._unflushed: list[Done] = []
        self._pending: tuple[Rows, Rows] | None = None
        self._crashes = world.crashes()
        self._connection: Connection | None = None

    def run(self) -> None:
        while not self.world.stop.is_set():
            with self.gate:
                try:
                    if self.settled():
                        self._one()
                except psycopg.Error as error:
                    self._note(error)
                except Exception as error:
                    self.world.wrong.append(f"{self.name}: {error!r}")
                    self._drop_connection()
                    return
            time.sleep(_PAUSE)
        if self._connection is not None:
            self._connection.close()

    def settled(self) -> bool:
        """Nothing is in doubt: what a lost answer or a crash left open has been looked up."""
        if self._pending is None and self._crashes == self.world.crashes():
            return True
        self._drop_connection()
        crashes = self.world.crashes()
        crashed = crashes != self._crashes
        ids = set(self._pending[0]) if self._pending else set()
        if crashed:
            ids |= {id_ for done in self._unflushed for id_ in done.before}
        if ids:
            found = self._look(ids)
            self._decide(found, crashed)
        self._pending, self._crashes, self._unflushed = None, crashes, []
        return True

    def _decide(self, found: Rows, crashed: bool) -> None:
        """Which of the states that may be is the one that is; it becomes what we remember."""
        now: Rows = {id_: self.rows.get(id_) for id_ in found}
        candidates = [now | (self._pending[1] if self._pending else {}), dict(now)]
        if crashed:
            past = dict(now)
            for done in reversed(self._unflushed):
                if done.acknowledged < self.world.durable.floor(self._crashes):
                    break
                past = past | done.before
                candidates.append(dict(past))
        for candidate in candidates:
            if candidate == found:
                self._remember(candidate)
                return
        self.world.wrong.append(f"{self.name}: found {found}, possible were {candidates}")

    def _remember(self, changes: Rows) -> None:
        for id_, row in changes.items():
            if row is None:
                self.rows.pop(id_, None)
            else:
                self.rows[id_] = row

    def _look(self, ids: set[int]) -> Rows:
        query = f"SELECT id, k, version, amount FROM public.{self.world.table} WHERE id = ANY (%s)"
        with self.world.connect() as connection:
            rows = connection.execute(query, (sorted(ids),)).fetchall()
        if len({row[0] for row in rows}) != len(rows):
            self.world.wrong.append(f"{self.name}: rows twice: {rows}")
        found: Rows = dict.fromkeys(ids)
        return found | {id_: (k, version, amount) for id_, k, version, amount in rows}

    def _one(self) -> None:
        connection = self._connected()
        kind = self._random.choice(self._kinds())
        began = self.world.durable.tick()
        committing = False
        changes: Rows = {}
        try:
            if self.replica:
                connection.execute("SET LOCAL session_replication_role = replica")
            changes = kind(self, connection)
            committing = True
            connection.commit()
        except psycopg.Error:
            if connection.broken or connection.closed:
                # Postgres may have committed and died before it could say so.
                if committing:
                    self._pending = ({id_: self.rows.get(id_) for id_ in changes}, changes)
                self._drop_connection()
            else:
                connection.rollback()
            raise
        before: Rows = {id_: self.rows.get(id_) for id_ in changes}
        self._remember(changes)
        self.acknowledged += 1
        if self.asynchronous:
            floor = self.world.durable.floor(self._crashes)
            self._unflushed = [done for done in self._unflushed if done.acknowledged >= floor]
            self._unflushed.append(Done(self.world.durable.tick(), before))
        else:
            self.world.durable.flushed(self._crashes, began)

    def _kinds(self) -> list[Kind]:
        """As many rows come as go."""
        hot = len(self._hot())
        return _ADDING if hot < _FEWEST else _REMOVING if hot > _MOST else _ADDING + _CHANGING + _REMOVING

    def _connected(self) -> Connection:
        if self._connection is None or self._connection.closed:
            self._connection = self.world.connect()
            self._connection.isolation_level = self.level
            if self.asynchronous:
                self._connection.execute("SET synchronous_commit = off")
                self._connection.commit()
        return self._connection

    def _drop_connection(self) -> None:
        if self._connection is not None:
            self._connection.close()
        self._connection = None

    def _note(self, error: psycopg.Error) -> None:
        """What may happen to a writer: a cold row, a killed server, a lock it lost."""
        state = error.sqlstate or "lost"
        self.world.errors[f"write {state}"] += 1
        if state not in _MAY_HAPPEN:
            self.world.wrong.append(f"{self.name}: {state} {error}")
        time.sleep(0.02)

    def _key(self) -> int:
        """Most of the time in the period that is being archived, or next to it."""
        period = self.world.first + self._random.choice((0, 0, 0, 1, 1, 2, 3))
        return period * WIDTH + self._random.randrange(WIDTH)

    def _new(self) -> int:
        self._next += 1
        return self._next

    def _some(self, count: int) -> list[int]:
        """Rows of ours that should be hot."""
        hot = self._hot()
        return self._random.sample(hot, min(count, len(hot)))

    def _hot(self) -> list[int]:
        return [id_ for id_, (k, _, _) in self.rows.items() if k >= self.world.first * WIDTH]

    def _insert(self, connection: Connection) -> Rows:
        amount = self._random.randrange(1, 1000)
        new = {self._new(): (self._key(), 1, sign * amount) for sign in (1, -1)}
        values = [(id_, *row, self.number) for id_, row in new.items()]
        connection.execute(
            f"INSERT INTO public.{self.world.table} (id, k, version, amount, writer)"
            " VALUES (%s, %s, %s, %s, %s), (%s, %s, %s, %s, %s)",
            [value for row in values for value in row],
        )
        return dict(new)

    def _copy(self, connection: Connection) -> Rows:
        new: Rows = {}
        for _ in range(5):
            amount = self._random.randrange(1, 1000)
            new |= {self._new(): (self._key(), 1, sign * amount) for sign in (1, -1)}
        columns = "id, k, version, amount, writer"
        with connection.cursor().copy(f"COPY public.{self.world.table} ({columns}) FROM STDIN") as copy:
            for id_, row in new.items():
                assert row is not None
                copy.write_row((id_, *row, self.number))
        return new

    def _transfer(self, connection: Connection) -> Rows:
        ids, amount = self._some(2), self._random.randrange(1, 100)
        changes: Rows = {}
        for id_, change in zip(ids, (amount, -amount), strict=False):
            if len(ids) == 2:
                k, version, old = self.rows[id_]
                changes[id_] = (k, version + 1, old + change)
        self._update(connection, changes)
        return changes

    def _touch(self, connection: Connection) -> Rows:
        """Several rows by one statement."""
        ids = self._some(8)
        low = self.world.first * WIDTH
        connection.execute(
            f"UPDATE public.{self.world.table} SET version = version + 1, note = md5(id::text)"
            f" WHERE id = ANY (%s) AND k >= {low}",
            (ids,),
        )
        return {id_: (k, version + 1, amount) for id_ in ids for k, version, amount in (self.rows[id_],)}

    def _move(self, connection: Connection) -> Rows:
        """Into the period that is archived, out of it, or somewhere else."""
        changes: Rows = {id_: (self._key(), self.rows[id_][1] + 1, self.rows[id_][2]) for id_ in self._some(2)}
        self._update(connection, changes)
        return changes

    def _rename(self, connection: Connection) -> Rows:
        changes: Rows = {}
        for id_ in self._some(2):
            k, version, amount = self.rows[id_]
            new = self._new()
            self._exactly_one(
                connection.execute(
                    f"UPDATE public.{self.world.table} SET id = %s, version = version + 1 WHERE id = %s AND k = {k}",
                    (new, id_),
                ),
                id_,
            )
            changes |= {id_: None, new: (k, version + 1, amount)}
        return changes

    def _remove(self, connection: Connection) -> Rows:
        """Their amounts go to another row."""
        heir, *going = self._some(6)
        k, version, amount = self.rows[heir]
        for id_ in going:
            where = f"WHERE id = %s AND k = {self.rows[id_][0]}"
            self._exactly_one(connection.execute(f"DELETE FROM public.{self.world.table} {where}", (id_,)), id_)
            amount += self.rows[id_][2]
        changes: Rows = {heir: (k, version + 1, amount)}
        self._update(connection, changes)
        return changes | dict.fromkeys(going)

    def _update(self, connection: Connection, changes: Rows) -> None:
        for id_, row in changes.items():
            assert row is not None
            # Constants, so that only the partitions concerned take part.
            done = connection.execute(
                f"UPDATE public.{self.world.table} SET k = {row[0]}, version = %s, amount = %s"
                f" WHERE id = %s AND k = {self.rows[id_][0]}"
                if row[0] != self.rows[id_][0]
                else f"UPDATE public.{self.world.table} SET version = %s, amount = %s WHERE id = %s AND k = {row[0]}",
                (row[1], row[2], id_),
            )
            self._exactly_one(done, id_)

    def _exactly_one(self, done: psycopg.Cursor[Any], id_: int) -> None:
        if done.rowcount != 1:
            raise AssertionError(f"a statement on {id_} {self.rows.get(id_)} changed {done.rowcount} rows")


Kind = Callable[[Writer, Connection], Rows]
_ADDING: list[Kind] = [Writer._insert, Writer._copy]
_CHANGING: list[Kind] = [Writer._transfer, Writer._transfer, Writer._touch, Writer._touch, Writer._move, Writer._move]
_REMOVING: list[Kind] = [Writer._remove, Writer._remove, Writer._rename]
# What clients are told while servers are killed under them, or the lake's files are away (58030).
_GONE = {"lost", "58030", "57P01", "57P02", "57P03", "08000", "08001", "08003", "08006", "HV00N"}
_MAY_HAPPEN = _GONE | {"0A000", "40001", "55000"}


class Reader(threading.Thread):
    """Looks all the time: every row once, no version going back, and with one snapshot all amounts together zero.

    Without `frostline.pin()` hot and cold rows are read at two moments. Between them a transaction may take from a row
    of one tier and give to one of the other.
    """

    def __init__(self, world: World, seed: int, *, pinned: bool) -> None:
        super().__init__(name="pinned reader" if pinned else "reader", daemon=True)
        self.world, self.pinned = world, pinned
        self.looks = 0
        self._random = random.Random(seed)
        self._versions: dict[int, int] = {}
        self._crashes = world.crashes()

    def run(self) -> None:
        connection: Connection | None = None
        while not self.world.stop.is_set():
            if self.world.quiet.is_set():
                time.sleep(0.05)
                continue
            crashes = self.world.crashes()
            try:
                connection = connection or self.world.connect(autocommit=True)
                if self.pinned:
                    with connection.transaction():
                        connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
                        connection.execute("SELECT frostline.pin()")
                        self._look(connection, crashes)
                else:
                    self._look(connection, crashes)
                self.looks += 1
            except psycopg.Error as error:
                state = error.sqlstate or "lost"
                self.world.errors[f"read {state}"] += 1
                if state not in _GONE | {"40001"}:
                    self.world.wrong.append(f"{self.name}: {state} {error}")
                if connection is not None and (connection.broken or connection.closed or state in _GONE):
                    connection.close()
                    connection = None
                time.sleep(0.05)
            time.sleep(self._random.uniform(0.05, 0.25))
        if connection is not None:
            connection.close()

    def _look(self, connection: Connection, crashes: int) -> None:
        rows = connection.execute(f"SELECT id, version, amount, k FROM public.{self.world.table}").fetchall()
        keys = Counter(row[0] if self.pinned else (row[0], row[3]) for row in rows)
        if len(keys) != len(rows):
            twice = [key for key, count in keys.items() if count > 1]
            self.world.wrong.append(f"{self.name}: rows twice: {twice[:5]}")
        if self.pinned and (total := sum(row[2] for row in rows)) != 0:
            self.world.wrong.append(f"{self.name}: the sum is {total} over {len(rows)} rows")
        if crashes != self._crashes:
            self._versions, self._crashes = {}, crashes  # asynchronous commits may have been forgotten
        back = [(id_, self._versions[id_], v) for id_, v, *_ in rows if self._versions.get(id_, 0) > v]
        if back and self.world.crashes() == crashes:
            self.world.wrong.append(f"{self.name}: versions went back: {back[:5]}")
        self._versions = {id_: version for id_, version, *_ in sorted(rows)}


@contextmanager
def at_rest(writers: list[Writer], seconds: float = 120) -> Iterator[None]:
    """Nobody writes, and nothing is in doubt."""
    for writer in writers:
        writer.gate.acquire()
    try:
        deadline = time.monotonic() + seconds
        for writer in writers:
            while True:
                try:
                    if writer.settled():
                        break
                except psycopg.Error as error:
                    if time.monotonic() > deadline:
                        raise AssertionError(f"{writer.name} cannot look up its rows: {error}") from error
                    time.sleep(0.1)
        yield
    finally:
        for writer in writers:
            writer.gate.release()


def check(world: World, writers: list[Writer]) -> int:
    """Every acknowledged row is there exactly once with its last value, and no other is."""
    with at_rest(writers), world.connect() as connection:
        rows = connection.execute(
            f"SELECT id, k, version, amount FROM public.{world.table} WHERE id > 0 ORDER BY id"
        ).fetchall()
        expected = sorted((id_, *row) for writer in writers for id_, row in writer.rows.items())
        found = [tuple(row) for row in rows]
        if found != expected:
            missing, strange = set(expected) - set(found), set(found) - set(expected)
            world.wrong.append(
                f"{len(missing)} rows are missing, {len(strange)} are strange, {len(found) - len(set(found))} twice:"
                f" {sorted(missing)[:5]} / {sorted(strange)[:5]}"
            )
    return len(rows)
