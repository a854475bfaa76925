"""Cancelling the statement a session is running, from another thread."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

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

    @contextmanager
    def interruptible(self, interrupt: Callable[[], None]) -> Iterator[None]:
        """While a call into DuckDB or Postgres runs."""
        self.check()
        with self._lock:
            before, self._interrupt = self._interrupt, interrupt
        try:
            yield
        except Exception:
            self.check()
            raise
        finally:
            with self._lock:
                self._interrupt = before

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
