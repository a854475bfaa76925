"""Which workers are alive, which of them leads, and which steps keep failing."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from frostline.catalog.database import Connection
from frostline.catalog.names import WORKER

BEAT_SECONDS = 5.0
DEAD_SECONDS = 60
_BEAT = """
INSERT INTO frostline.workers (id, host, pid, leader, doing) VALUES (%s, %s, %s, %s, %s)
ON CONFLICT (id) DO UPDATE
SET leader = EXCLUDED.leader, doing = EXCLUDED.doing, heartbeat = clock_timestamp()
"""
_BURY = f"""
DELETE FROM frostline.workers w WHERE w.heartbeat < clock_timestamp() - interval '{DEAD_SECONDS} seconds'
"""
_HOLDS = """
SELECT EXISTS (SELECT FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid() AND granted
               AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
               AND classid = %s AND objid = 0 AND objsubid = 2)
"""
_FAILED = """
INSERT INTO frostline.upkeep AS u (table_id, step, failures, retry_at, error)
VALUES (%(table)s, %(step)s, 1, clock_timestamp() + make_interval(secs => %(first)s), %(error)s)
ON CONFLICT (table_id, step) DO UPDATE
SET failures = u.failures + 1, error = EXCLUDED.error,
    retry_at = clock_timestamp() + make_interval(
        secs => least(%(first)s * 2 ^ least(u.failures, 30), %(longest)s) * %(jitter)s)
RETURNING failures, extract(epoch FROM retry_at - clock_timestamp())::float8
"""
_DONE = """
INSERT INTO frostline.upkeep (table_id, step, done_at) VALUES (%s, %s, clock_timestamp())
ON CONFLICT (table_id, step) DO UPDATE SET done_at = clock_timestamp(), failures = 0, retry_at = NULL, error = NULL
"""
_STATES = """
SELECT table_id, step, failures, retry_at > clock_timestamp(), extract(epoch FROM clock_timestamp() - done_at)::float8
FROM frostline.upkeep
"""


@dataclass(frozen=True)
class Worker:
    """One worker process."""

    id: str
    host: str
    pid: int


@dataclass(frozen=True)
class State:
    """What is remembered of one step of one table."""

    failures: int
    waits: bool  # it failed, and is not to be tried yet
    age: float | None  # seconds since it was done


@dataclass(frozen=True)
class Seen:
    """A worker as its row shows it."""

    host: str
    pid: int
    leader: bool
    doing: str | None
    since: datetime
    silent: float  # seconds since its last heartbeat


def lead(connection: Connection) -> bool:
    """Whether the session is the one that leads from now on, until it ends."""
    row = connection.execute("SELECT pg_try_advisory_lock(%s, 0)", (WORKER,)).fetchone()
    return row == (True,)


def alone(connection: Connection, worker: Worker) -> None:
    """Who holds the lock leads, whatever a row says that was left behind."""
    connection.execute(
        "UPDATE frostline.workers SET leader = false, doing = NULL WHERE leader AND id <> %s", (worker.id,)
    )


def leads(connection: Connection) -> bool:
    """Whether it still does: a pooler in between may have given it another server's session."""
    return connection.execute(_HOLDS, (WORKER,)).fetchone() == (True,)


def beat(connection: Connection, worker: Worker, *, leader: bool, doing: str | None) -> None:
    connection.execute(_BEAT, (worker.id, worker.host, worker.pid, leader, doing))


def bury(connection: Connection) -> None:
    connection.execute(_BURY)


def leave(connection: Connection, worker: Worker) -> None:
    connection.execute("DELETE FROM frostline.workers WHERE id = %s", (worker.id,))


def every(connection: Connection) -> list[Seen]:
    rows = connection.execute(
        "SELECT host, pid, leader, doing, started_at, extract(epoch FROM clock_timestamp() - heartbeat)::float8"
        " FROM frostline.workers ORDER BY leader DESC, started_at"
    )
    return [Seen(*row) for row in rows]


def states(connection: Connection) -> dict[tuple[int, str], State]:
    """By table and step."""
    found = connection.execute(_STATES)
    return {(table, step): State(failures, bool(waits), age) for table, step, failures, waits, age in found}


def failed(
    connection: Connection, table: int, step: str, error: str, *, first: float, longest: float, jitter: float
) -> tuple[int, float]:
    """One more failure; returns how many in a row, and the seconds until the next try."""
    values = {"table": table, "step": step, "error": error, "first": first, "longest": longest, "jitter": jitter}
    row = connection.execute(_FAILED, values).fetchone()
    assert row is not None
    return row[0], row[1]


def forget(connection: Connection) -> None:
    """Nothing has failed: what did is to be tried again at once."""
    connection.execute("UPDATE frostline.upkeep SET failures = 0, retry_at = NULL, error = NULL WHERE failures > 0")


def done(connection: Connection, table: int, step: str) -> None:
    connection.execute(_DONE, (table, step))
