"""One worker per database works, the others stand by: whoever holds an advisory lock leads.

The lock belongs to a session of its own, which a thread looks at all the time. When the session is gone somebody else
may lead already, so whatever is under way is stopped at once. (Were both to work for a moment, the lock of each table
and the comparison of snapshots before every commit would still keep them apart.)
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

import psycopg

from frostline.catalog import workers
from frostline.catalog.database import Connection, connect, in_recovery
from frostline.catalog.workers import Worker
from frostline.errors import DatabaseError, FrostlineError

LOOK_SECONDS = 1.0  # how long the loss of the session may stay unnoticed, when the network is there
# A server whose network is gone is given up after ten seconds, by us and, as it is told, by the server itself.
_KEEPALIVE = {"idle": 5, "interval": 2, "count": 3}
_SILENCE_MS = 10_000


class OnStandby(DatabaseError):
    """This Postgres is a standby: there is nothing to do until it is promoted."""


@dataclass
class Lead:
    """The session that holds the lock, or stands by for it."""

    connection: Connection
    worker: Worker
    lost: Callable[[str], None]  # called, from a thread of ours, when the lock is gone
    leads: bool = False
    doing: str | None = None
    _end: threading.Event = field(default_factory=threading.Event)

    def take(self) -> bool:
        """Whether we lead; a heartbeat in any case."""
        self.leads = self.leads or workers.lead(self.connection)
        if self.leads:
            workers.alone(self.connection, self.worker)
        workers.beat(self.connection, self.worker, leader=self.leads, doing=self.doing)
        return self.leads

    def watch(self) -> None:
        """Until the end: look at the lock, and show that we are alive."""
        beats = max(int(workers.BEAT_SECONDS / LOOK_SECONDS), 1)
        count, shown = 0, self.doing
        try:
            while not self._end.wait(LOOK_SECONDS):
                if not workers.leads(self.connection):
                    self.leads = False
                    self.lost("its session holds the lock no longer")
                    return
                count += 1
                if count % beats == 0:
                    workers.bury(self.connection)
                if count % beats == 0 or shown != self.doing:
                    shown = self.doing
                    workers.beat(self.connection, self.worker, leader=True, doing=shown)
        except (psycopg.Error, FrostlineError) as error:
            self.leads = False
            if not self._end.is_set():
                self.lost(" ".join(str(error).split()))

    def end(self) -> None:
        self._end.set()


@contextmanager
def session(dsn: str, worker: Worker, lost: Callable[[str], None]) -> Iterator[Lead]:
    """A session that can lead; whoever enters asks it to `take` the lead until it does."""
    with _connected(dsn) as connection:
        if in_recovery(connection):
            raise OnStandby
        workers.bury(connection)
        lead = Lead(connection, worker, lost)
        try:
            yield lead
        finally:
            with suppress(psycopg.Error):
                workers.leave(connection, worker)


@contextmanager
def watched(lead: Lead) -> Iterator[None]:
    """While inside, the loss of the lead is told."""
    thread = threading.Thread(target=lead.watch, name="leader", daemon=True)
    thread.start()
    try:
        yield
    finally:
        lead.end()
        thread.join(_SILENCE_MS / 1000)


def _connected(dsn: str) -> Connection:
    options = {f"keepalives_{name}": str(value) for name, value in _KEEPALIVE.items()}
    here = psycopg.conninfo.make_conninfo(dsn, **options, tcp_user_timeout=str(_SILENCE_MS))
    connection = connect(here, application="frostline worker")
    for name, value in _KEEPALIVE.items():
        connection.execute(f"SET tcp_keepalives_{name} = {value}")
    connection.execute(f"SET tcp_user_timeout = {_SILENCE_MS}")
    return connection
