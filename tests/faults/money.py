"""Money that moves between hot and cold accounts, every move with its two entries in a ledger.

Both are tiered tables. A transaction is there when its entries are, and then the balances must say so too.
"""

from __future__ import annotations

import contextlib
import random
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import psycopg

ACCOUNTS, OPENING = 24, 1000
MANY = 40  # entries of nobody's, which go into a file
_HOW_OFTEN = (0.3, 0.3, 0.1)  # by teller
COLD, HOT = "2026-01-10Z", "2026-11-10Z"
TABLES = f"""
CREATE TABLE accounts (id int, ts timestamptz, balance int NOT NULL, PRIMARY KEY (id, ts)) PARTITION BY RANGE (ts);
CREATE TABLE accounts_01 PARTITION OF accounts FOR VALUES FROM ('2026-01-01Z') TO ('2026-02-01Z');
CREATE TABLE accounts_11 PARTITION OF accounts FOR VALUES FROM ('2026-11-01Z') TO (MAXVALUE);
INSERT INTO accounts SELECT x, CASE x % 2 WHEN 0 THEN '{COLD}' ELSE '{HOT}' END::timestamptz, {OPENING}
FROM generate_series(1, {ACCOUNTS}) x;
CREATE TABLE entries (move bigint, account int, ts timestamptz, amount int NOT NULL, PRIMARY KEY (move, account, ts))
PARTITION BY RANGE (ts);
CREATE TABLE entries_01 PARTITION OF entries FOR VALUES FROM ('2026-01-01Z') TO ('2026-02-01Z');
CREATE TABLE entries_11 PARTITION OF entries FOR VALUES FROM ('2026-11-01Z') TO (MAXVALUE);
INSERT INTO entries VALUES (0, 0, '{COLD}', 0);
"""
_WRONG_BALANCES = f"""
SELECT a.id, a.balance - {OPENING} - coalesce(e.amount, 0) FROM accounts a
LEFT JOIN (SELECT account, sum(amount) AS amount FROM entries GROUP BY account) e ON e.account = a.id
WHERE a.balance <> {OPENING} + coalesce(e.amount, 0)
"""
_RETRIED = (psycopg.errors.SerializationFailure, psycopg.errors.DeadlockDetected)
_SIDES = {True: COLD, False: HOT}


class Missed(Exception):
    """Without frostline.pin() a statement may miss a row that changes tiers meanwhile: it is tried again."""


@dataclass(frozen=True)
class Move:
    """One transaction, and what its client knows of it."""

    number: int
    known: str  # done, undone, unknown
    crashes: int  # of Postgres when it was known


@dataclass
class Bank:
    """What all know."""

    dsn: str
    crashes: Callable[[], int]
    stop: threading.Event = field(default_factory=threading.Event)
    wrong: list[str] = field(default_factory=list)
    errors: Counter[str] = field(default_factory=Counter)

    def look(self) -> dict[int, int]:
        """Every move with its number of entries, at one snapshot at which every balance is right."""
        # A commit that fails would leave it open, were it left to the connection's own `with`.
        with contextlib.closing(psycopg.connect(self.dsn)) as connection:
            connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
            connection.execute("SELECT frostline.pin()")
            (accounts, total) = connection.execute("SELECT count(*), sum(balance) FROM accounts").fetchone() or (0, 0)
            if (accounts, total) != (ACCOUNTS, ACCOUNTS * OPENING):
                self.wrong.append(f"{accounts} accounts hold {total}")
            differing = connection.execute(_WRONG_BALANCES).fetchall()
            if differing:
                self.wrong.append(f"balances and ledger differ: {differing}")
            return dict(connection.execute("SELECT move, count(*) FROM entries GROUP BY move").fetchall())


class Teller(threading.Thread):
    """Moves money until told to stop, and remembers."""

    def __init__(self, bank: Bank, number: int, seed: int, *, pinned: bool = False, asynchronous: bool = False) -> None:
        super().__init__(daemon=True)
        self.bank, self.number, self.pinned, self.asynchronous = bank, number, pinned, asynchronous
        self.random = random.Random(seed)
        self.moves: list[Move] = []
        self.connection: psycopg.Connection[Any] | None = None
        self.with_many: set[int] = set()  # moves
        self._count = 0

    @property
    def done(self) -> int:
        return sum(move.known == "done" for move in self.moves)

    @property
    def has_just_stored_many(self) -> bool:
        """Its last transaction is committed, with entries in a file."""
        return bool(self.moves) and self.moves[-1].known == "done" and self.moves[-1].number in self.with_many

    def disconnect(self) -> None:
        """As if its process were killed: the server finds nobody at the other end."""
        with contextlib.suppress(psycopg.Error, OSError, AttributeError):
            assert self.connection is not None
            theirs = socket.socket(fileno=self.connection.fileno())
            try:
                theirs.shutdown(socket.SHUT_RDWR)
            finally:
                theirs.detach()

    def run(self) -> None:
        try:
            self._until_told()
        finally:
            self._leave()

    def _leave(self) -> None:
        if self.connection is not None:
            self.connection.close()
        self.connection = None

    def _until_told(self) -> None:
        while not self.bank.stop.is_set():
            try:
                self._move()
            except (*_RETRIED, Missed):
                pass
            except psycopg.Error as error:
                self.bank.errors[error.sqlstate or type(error).__name__] += 1
                time.sleep(0.05)
            except Exception as error:
                self.bank.wrong.append(f"teller {self.number}: {error!r}")
                return

    def _move(self) -> None:
        self._count += 1
        number = self._count * 10 + self.number
        known = "undone"
        if self.random.random() < _HOW_OFTEN[self.number]:
            self.with_many.add(number)
        try:
            connection = self._connected()
            if self.pinned:
                connection.execute("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT frostline.pin()")
            else:
                connection.execute("BEGIN")
            self._statements(connection, number)
            known = "unknown"
            connection.execute("COMMIT")
            known = "done"
        except psycopg.Error as error:
            if known == "unknown" and error.sqlstate is not None and not error.sqlstate.startswith(("57P", "08")):
                known = "undone"  # refused, and told so
            raise
        finally:
            self.moves.append(Move(number, known, self.bank.crashes()))
            if known != "done" and self.connection is not None:
                with contextlib.suppress(psycopg.Error):
                    self.connection.execute("ROLLBACK")

    def _connected(self) -> psycopg.Connection[Any]:
        if self.connection is None or self.connection.closed or self.connection.broken:
            self._leave()
            self.connection = psycopg.connect(self.bank.dsn, autocommit=True, connect_timeout=5)
            if self.asynchronous:
                self.connection.execute("SET synchronous_commit = off")
        return self.connection

    def _statements(self, connection: psycopg.Connection[Any], number: int) -> None:
        """In one statement or in several, with detours that are taken back."""
        giver, taker = self.random.sample(range(1, ACCOUNTS + 1), 2)
        amount = self.random.randint(1, 50)
        if self.random.random() < 0.3:
            connection.execute("SAVEPOINT detour")
            connection.execute("UPDATE accounts SET balance = balance - 7 WHERE id IN (%s, %s)", [giver, taker])
            connection.execute("ROLLBACK TO detour")
        if self.random.random() < 0.5:
            change = "UPDATE accounts SET balance = balance + CASE id WHEN %s THEN -%s ELSE %s END WHERE id IN (%s, %s)"
            changed = connection.execute(change, [giver, amount, amount, giver, taker]).rowcount
        else:
            change = "UPDATE accounts SET balance = balance + %s WHERE id = %s"
            changed = connection.execute(change, [-amount, giver]).rowcount
            changed += connection.execute(change, [amount, taker]).rowcount
        if changed != 2:
            if self.pinned:
                self.bank.wrong.append(f"accounts {giver} and {taker} were {changed}")
            raise Missed
        if self.random.random() < 0.2:
            self._change_tiers(connection, giver)
        entry = "INSERT INTO entries VALUES (%s, %s, %s, %s), (%s, %s, %s, %s)"
        places = [_SIDES[self.random.random() < 0.6] for _ in range(2)]
        connection.execute(entry, [number, giver, places[0], -amount, number, taker, places[1], amount])
        if number in self.with_many:
            many = f"INSERT INTO entries SELECT %s, -x, '{COLD}', 0 FROM generate_series(1, {MANY}) x"
            connection.execute(many, [number])

    def _change_tiers(self, connection: psycopg.Connection[Any], account: int) -> None:
        """The account goes over to the other tier."""
        move = "UPDATE accounts SET ts = %s WHERE id = %s AND ts = %s"
        if connection.execute(move, [HOT, account, COLD]).rowcount == 0:
            connection.execute(move, [COLD, account, HOT])

    def check(self, moves: list[Move], found: dict[int, int], crashes: int) -> list[str]:
        """What this one was told, against what is there."""
        wanted = {m.number: 2 + (MANY if m.number in self.with_many else 0) for m in moves}
        wrong = [
            f"move {number} is {found[number]} entries"
            for number, entries in wanted.items()
            if found.get(number, entries) != entries
        ]
        wrong += [
            f"move {m.number} was refused and is there" for m in moves if m.known == "undone" and m.number in found
        ]
        lost = [m for m in moves if m.known == "done" and m.number not in found]
        if self.asynchronous:
            # A crash may take the last ones before it with it, never one before another that is kept.
            kept = {m.crashes: m.number for m in moves if m.known == "done" and m.number in found}
            lost = [m for m in lost if m.crashes == crashes or m.number < kept.get(m.crashes, 0)]
        return wrong + [f"move {m.number} was acknowledged and is gone" for m in lost]
