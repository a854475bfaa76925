"""Short locks on busy tables: tried briefly, given up before anyone queues behind us, tried again."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from typing import TypeVar

import psycopg

from frostline.catalog.database import Connection
from frostline.errors import OperationError

Result = TypeVar("Result")

LOCK_TIMEOUT_MS = 100  # how long others may queue behind us
PATIENCE_SECONDS = 300.0
_FIRST_PAUSE, _LONGEST_PAUSE = 0.05, 2.0
# A deadlock with a user's transaction is one more way of not getting the lock.
_BUSY = (psycopg.errors.LockNotAvailable, psycopg.errors.DeadlockDetected)


def with_short_locks(
    connection: Connection, work: Callable[[], Result], what: str, *, patience: float = PATIENCE_SECONDS
) -> Result:
    """Run `work` in a transaction of its own; nothing of a failed try stays."""
    deadline, pause = time.monotonic() + patience, _FIRST_PAUSE
    while True:
        try:
            with connection.transaction():
                connection.execute(f"SET LOCAL lock_timeout = '{LOCK_TIMEOUT_MS}ms'")
                return work()
        except _BUSY as busy:
            if time.monotonic() > deadline:
                raise OperationError(
                    f"{what} did not get its lock within {patience:.0f} s; nothing was changed",
                    detail=_holders(connection),
                    hint="let the long transaction end, then run the same command again",
                    sqlstate="55P03",
                ) from busy
        time.sleep(pause * random.uniform(0.5, 1.5))
        pause = min(pause * 2, _LONGEST_PAUSE)


def _holders(connection: Connection) -> str:
    rows = connection.execute(
        "SELECT pid, state, now() - xact_start, left(query, 80) FROM pg_stat_activity"
        " WHERE xact_start IS NOT NULL AND pid <> pg_backend_pid() AND datname = current_database()"
        " ORDER BY xact_start LIMIT 3"
    ).fetchall()
    return "oldest transactions: " + "; ".join(
        f"pid {pid} ({state}, {age}): {query}" for pid, state, age, query in rows
    )
