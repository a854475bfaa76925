"""The snapshots this gateway's sessions read: counted here, one committed row each, so that a query costs no commit."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

import psycopg

from frostline.catalog import pins as rows
from frostline.catalog.pins import Snapshot
from frostline.gateway.link import Link

# Readers of the newest snapshot come and go; its row stays for the next one.
KEEP_SECONDS = 60.0


class SnapshotGone(Exception):
    """Maintenance removes this snapshot; it must not be read."""


@dataclass
class Pin:
    """A snapshot that some sessions read, or did a moment ago."""

    snapshot: Snapshot
    count: int = 0
    unused_since: float = 0.0
    lost: bool = False  # its row was removed by others and the snapshot perhaps with it


class Pins:
    """Shared by all sessions. `_lock` guards the counts and is never held while Postgres works."""

    def __init__(self, link: Link, gateway: str, rejoin: Callable[[], None]) -> None:
        self._link = link
        self._gateway = gateway
        self._rejoin = rejoin
        self._lock = threading.Lock()
        self._changing = threading.RLock()  # one row is added or removed at a time
        self._pins: dict[Snapshot, Pin] = {}

    @property
    def count(self) -> int:
        return len(self._pins)

    def acquire(self, snapshot: Snapshot) -> Pin:
        """Keep a snapshot from being removed until `release`; commits a row if none of this gateway is there."""
        return self._counted(snapshot) or self._added(snapshot)

    def release(self, pin: Pin) -> None:
        with self._lock:
            pin.count -= 1
            pin.unused_since = time.monotonic()

    def expiring(self, pin: Pin) -> bool:
        """Whether it could not be kept: on a standby nothing holds it but the backup window."""
        return self._link.run(lambda c: rows.expiring(c, pin.snapshot))

    def drop_unused(self, older_than: float = KEEP_SECONDS) -> None:
        """Remove the rows nobody has needed for a while."""
        with self._changing:
            limit = time.monotonic() - older_than
            with self._lock:
                unused = [pin for pin in self._pins.values() if pin.count == 0 and pin.unused_since <= limit]
                for pin in unused:
                    del self._pins[pin.snapshot]
            for pin in unused:
                self._remove(pin.snapshot)

    def restore(self) -> None:
        """Commit every row again after this gateway was taken for dead; a snapshot removed meanwhile is lost."""
        with self._changing:
            self._rejoin()
            with self._lock:
                current = list(self._pins.values())
            for pin in current:
                if not self._commit(pin.snapshot):
                    with self._lock:
                        pin.lost = True
                        del self._pins[pin.snapshot]

    def _counted(self, snapshot: Snapshot) -> Pin | None:
        with self._lock:
            pin = self._pins.get(snapshot)
            if pin is not None:
                pin.count += 1
            return pin

    def _added(self, snapshot: Snapshot) -> Pin:
        with self._changing:
            if (pin := self._counted(snapshot)) is not None:  # somebody else was faster
                return pin
            try:
                committed = self._commit(snapshot)
            except psycopg.errors.ForeignKeyViolation:  # others have just removed our row, with all its pins
                self.restore()
                committed = self._commit(snapshot)
            if not committed:
                raise SnapshotGone
            pin = Pin(snapshot, count=1)
            with self._lock:
                self._pins[snapshot] = pin
            return pin

    def _commit(self, snapshot: Snapshot) -> bool:
        return self._link.run(lambda c: rows.add(c, self._gateway, snapshot))

    def _remove(self, snapshot: Snapshot) -> None:
        self._link.run(lambda c: rows.remove(c, self._gateway, snapshot))
