"""Short locks on busy tables: tried briefly, given up before anyone queues behind us for long, tried again.

Whoever asks for a lock while we wait for ours waits behind us, so every wait is bounded, and all the waits of one try
together are. After a failed try comes a pause that grows, in which the holders are watched: as soon as hardly anybody
is left who could be in the way, the next try is made. Where transactions of many sessions overlap without end and none
is short, no bounded wait ever sees them all gone: then patience ends, and the error says who they are.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import TypeVar

from psycopg.sql import SQL, Composable, Identifier, Literal

from frostline.catalog import identity, queries, registry
from frostline.catalog.database import BUSY, LOCK_TIMEOUT_MS, Connection
from frostline.catalog.names import FENCE, LAKE_WRITER
from frostline.catalog.registry import Managed
from frostline.config import Settings
from frostline.errors import Interrupted, Occupied

Result = TypeVar("Result")

PATIENCE_SECONDS = 300.0
_FIRST_PAUSE, _LONGEST_PAUSE = 0.05, 0.4  # a try in five tenths of a second, of which it takes one at most
_LONG_PAUSE = 2.0  # while somebody is there who stays
_LOOK_SECONDS = 0.05
_STAYS_SECONDS = 1.0  # a transaction older than this will not end within the next tenth of a second
_SHOWN = 5
_DYING_SECONDS = 3.0


@dataclass(frozen=True)
class Holder:
    """A session whose lock stands in the way of ours."""

    pid: int | None  # None: a prepared transaction
    since: str | None  # its transaction's start; None: it is not shown to us, or over
    age: float
    state: str
    relation: str
    mode: str
    query: str

    def __str__(self) -> str:
        since = f"{self.state}, since {self.since or '?'}"
        return f"pid {self.pid or '-'} ({since}) holds {self.mode} on {self.relation}: {self.query}"


# One round trip: whoever waits behind us waits for every one of them.
_LOCK = """
DECLARE
  statement text;
  until timestamptz := clock_timestamp() + {timeout} * interval '1 ms';
BEGIN
  FOREACH statement IN ARRAY {statements}::text[] LOOP
    PERFORM set_config('lock_timeout',
                       greatest(ceil(extract(epoch FROM until - clock_timestamp()) * 1000), 1)::text, true);
    EXECUTE statement;
  END LOOP;
END"""


@dataclass(frozen=True)
class Wanted:
    """What is to be locked, so that it can be said who holds it."""

    relations: Sequence[int] = ()
    written: Sequence[int] = ()  # of these only who writes is in the way: readers may go on
    timeout_ms: int = LOCK_TIMEOUT_MS
    patience: float = PATIENCE_SECONDS
    tell: Callable[[list[dict[str, object]] | None], None] | None = None  # told whom we wait for; None: no longer
    fence: int | None = None  # the table whose cold writers are to be kept out


def from_settings(settings: Settings) -> Wanted:
    """How long others may wait, and how long we try."""
    return Wanted(timeout_ms=settings.archive.lock_timeout, patience=settings.archive.lock_patience)


def with_short_locks(
    connection: Connection, work: Callable[[], Result], what: str, wanted: Wanted | None = None
) -> Result:
    """Run `work` in a transaction of its own; nothing of a failed try stays."""
    wanted = wanted or Wanted()
    tell = wanted.tell or (lambda _: None)
    deadline, pause, waited = time.monotonic() + wanted.patience, _FIRST_PAUSE, False
    while True:
        try:
            with connection.transaction():
                connection.execute(f"SET LOCAL lock_timeout = '{wanted.timeout_ms}ms'")
                result = work()
        except BUSY as busy:
            if isinstance(busy.__context__, KeyboardInterrupt):
                raise busy.__context__ from None  # told to end, and the lock timed out before the cancel had come
            found = holders(connection, wanted)
            if time.monotonic() > deadline:
                raise _no_patience(connection, what, wanted, found) from busy
        else:
            if waited:
                tell(None)
            return result
        tell([asdict(holder) for holder in found[:_SHOWN]])
        waited = True
        longest = _LONG_PAUSE if any(map(_stays, found)) else _LONGEST_PAUSE
        _watch(connection, wanted, pause * random.uniform(0.5, 1.5))
        pause = min(pause * 2, longest)


def lock(connection: Connection, tables: Sequence[tuple[Composable, str]], timeout_ms: int = LOCK_TIMEOUT_MS) -> None:
    """Lock tables one after the other, all within the timeout: who waits for the first waits for them all."""
    statements = [SQL(f"LOCK TABLE ONLY {{}} IN {mode} MODE").format(table) for table, mode in tables]
    texts = Literal([statement.as_string(connection) for statement in statements])
    body = SQL(_LOCK).format(timeout=Literal(timeout_ms), statements=texts).as_string(connection)
    connection.execute(SQL("DO {}").format(Literal(body)))


def referents(connection: Connection, relations: Sequence[int]) -> list[tuple[Identifier, int]]:
    """Tables that foreign keys of these refer to, by name and OID, as far as we may lock them."""
    found = queries.rows(connection, "lockable_referents", relations=list(relations))
    return [(Identifier(schema, name), oid) for schema, name, oid in found]


@contextmanager
def only_writer(connection: Connection, managed: Managed) -> Iterator[Managed]:
    """One lake writer per table at a time. The lock of a run that was killed goes with its session, in a moment.

    Gives the table as it is once the lock is held: whoever held it before may have moved the seam.
    """
    with lake_writer(connection, managed):
        identity.check(connection)
        yield registry.get_by_id(connection, managed.id)


@contextmanager
def lake_writer(connection: Connection, managed: Managed) -> Iterator[None]:
    """The lock alone."""
    key = (LAKE_WRITER, managed.id)
    deadline = time.monotonic() + _DYING_SECONDS
    while connection.execute("SELECT pg_try_advisory_lock(%s, %s)", key).fetchone() != (True,):
        if time.monotonic() > deadline:
            raise Occupied(
                f"another run is archiving or folding {managed.table}; nothing was changed",
                hint="is it the worker? `frostline status` shows how far it is",
            )
        time.sleep(0.05)
    try:
        yield
    finally:
        if not connection.broken:
            connection.execute("SELECT pg_advisory_unlock(%s, %s)", key)


def at_work(connection: Connection, managed: Managed) -> bool:
    """Whether a run has that lock now: what it has begun and not ended is no leftover."""
    return bool(queries.rows(connection, "at_work", writer=LAKE_WRITER, table=managed.id))


def fence(connection: Connection, table: int) -> None:
    """Until the transaction ends, no cold writer of the table is between its reads and its commit."""
    connection.execute("SELECT pg_advisory_xact_lock(%s, %s)", (FENCE, table))


def holders(connection: Connection, wanted: Wanted) -> list[Holder]:
    """Who holds what stands in our way, the oldest first."""
    found = queries.rows(
        connection,
        "holders",
        relations=list(wanted.relations),
        written=list(wanted.written),
        fence=FENCE,
        fenced=wanted.fence,
    )
    return [Holder(*row) for row in found]


def _stays(holder: Holder) -> bool:
    return holder.age > _STAYS_SECONDS


def _watch(connection: Connection, wanted: Wanted, seconds: float) -> None:
    """Until the time is over, or at most one session holds a lock, and not for long."""
    until = time.monotonic() + seconds
    while (left := until - time.monotonic()) > 0:
        time.sleep(min(_LOOK_SECONDS, left))
        if not (wanted.relations or wanted.written) and wanted.fence is None:
            continue
        found = holders(connection, wanted)
        if len({holder.pid for holder in found}) <= 1 and not any(map(_stays, found)):
            return


def _no_patience(connection: Connection, what: str, wanted: Wanted, found: list[Holder]) -> Interrupted:
    return Interrupted(
        f"{what} did not get its lock within {wanted.patience:.0f} s; nothing was changed",
        detail="\n".join(map(str, found[:_SHOWN])) or _oldest(connection),
        hint="let these transactions end, then run the same command again: it goes on from here;"
        " archive.lock_patience is how long it tries, archive.lock_timeout how long others may wait behind it",
        sqlstate="55P03",
    )


def _oldest(connection: Connection) -> str:
    rows = connection.execute(
        "SELECT pid, state, now() - xact_start, left(query, 80) FROM pg_stat_activity"
        " WHERE xact_start IS NOT NULL AND pid <> pg_backend_pid() AND datname = current_database()"
        " ORDER BY xact_start LIMIT 3"
    ).fetchall()
    return "oldest transactions: " + "; ".join(
        f"pid {pid} ({state}, {age}): {query}" for pid, state, age, query in rows
    )
