"""Cancelling the statement a session is running, from another thread."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from frostline.errors import QueryError

# A request can arrive just before DuckDB starts, which then forgets it; so it is repeated until the statement ends.
REPEAT_SECONDS = 0.05


class Canceller:
    """Knows what is running now and how to interrupt it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._statement = 0
        self._busy = False
        self._requested = False
        self._interrupt: Callable[[], None] | None = None

    def begin(self) -> None:
        """One message is worked on from now on; a cancel request before changes nothing."""
        with self._lock:
            self._statement += 1
            self._busy, self._requested = True, False

    def finish(self) -> None:
        with self._lock:
            self._busy = False

    def interruptible(self, interrupt: Callable[[], None]) -> Interruptible:
        """While a call into DuckDB or Postgres runs."""
        return Interruptible(self, interrupt)

    def exchange(self, interrupt: Callable[[], None] | None) -> Callable[[], None] | None:
        """What a request calls from now on, for what it called so far."""
        with self._lock:
            before, self._interrupt = self._interrupt, interrupt
        return before

    def check(self) -> None:
        if self._requested:
            raise QueryError("canceling statement due to user request", sqlstate="57014")

    def cancel_once(self) -> None:
        """Interrupt what is running without waiting for it to end."""
        with self._lock:
            self._requested = self._busy
            interrupt = self._interrupt
        if interrupt is not None:
            interrupt()

    def cancel(self) -> None:
        """Interrupt the statement that is running, if one is."""
        with self._lock:
            wanted = self._statement
        while True:
            with self._lock:
                if not self._busy or self._statement != wanted:
                    return
                self._requested = True
                interrupt = self._interrupt
            if interrupt is not None:
                interrupt()
            time.sleep(REPEAT_SECONDS)


class Interruptible:
    """One such call. A class of its own, for a statement that changes a row makes eight of them."""

    __slots__ = ("_before", "_canceller", "_interrupt")

    def __init__(self, canceller: Canceller, interrupt: Callable[[], None]) -> None:
        self._canceller, self._interrupt = canceller, interrupt

    def __enter__(self) -> None:
        self._canceller.check()
        self._before = self._canceller.exchange(self._interrupt)

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._canceller.exchange(self._before)
        if kind is not None and issubclass(kind, Exception):
            self._canceller.check()  # that is why it failed
