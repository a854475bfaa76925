"""How a running worker is told to end: the first signal lets the current step go on for a while, the second does not.

A step is ended by an exception in the main thread, wherever that is, as Ctrl-C does it. Whatever it was doing is then
as a run that died leaves it, which the next one makes good.
"""

from __future__ import annotations

import os
import signal
import threading
from types import FrameType

from frostline.errors import Stopped
from frostline.pipeline import session

_ASKED = (signal.SIGTERM, signal.SIGINT)


class Signals:
    """Installed while inside; in the main thread only."""

    def __init__(self, grace: float) -> None:
        self._grace = grace
        self._stop = threading.Event()
        self._working = False
        self._abandon = False
        self._ended = False
        self._before: dict[int, object] = {}

    def __enter__(self) -> Signals:
        self._before = {number: signal.getsignal(number) for number in (*_ASKED, signal.SIGALRM)}
        self.install()
        return self

    def __exit__(self, *_: object) -> None:
        signal.setitimer(signal.ITIMER_REAL, 0)
        for number, handler in self._before.items():
            signal.signal(number, handler)  # type: ignore[arg-type]

    def install(self) -> None:
        """Again when Spark was started: PySpark takes Ctrl-C for itself."""
        for number in _ASKED:
            signal.signal(number, self._asked)
        signal.signal(signal.SIGALRM, self._alarm)

    @property
    def stopping(self) -> bool:
        return self._stop.is_set()

    @property
    def ended(self) -> bool:
        """Whether the last step was ended before its time: what it then says failed has not."""
        return self._ended

    def wait(self, seconds: float) -> bool:
        """Whether we are told to end before the time is over."""
        return self._stop.wait(seconds)

    def abandon(self) -> None:
        """From any thread: the step that is under way ends now."""
        self._abandon = True
        main = threading.main_thread().ident
        assert main is not None
        signal.pthread_kill(main, signal.SIGALRM)  # to that thread: what it waits for is interrupted

    def begin(self) -> bool:
        """From here on a step is under way; False when it is not to begin any more."""
        self._ended = False
        self._working = True
        # Asked after that: a signal that came just before has seen no step.
        self._working = not self._stop.is_set() and not self._abandon
        return self._working

    def end(self) -> None:
        self._working = False

    def forget(self) -> None:
        """What was to be abandoned is; steps may begin again."""
        self._abandon = False

    def _asked(self, number: int, _frame: FrameType | None) -> None:
        if self._stop.is_set():
            os._exit(128 + number)  # as if killed: the next worker goes on from here
        self._stop.set()
        if self._working:
            # Zero would mean never.
            signal.setitimer(signal.ITIMER_REAL, max(self._grace, 0.001))

    def _alarm(self, _number: int, _frame: FrameType | None) -> None:
        if self._working and (self._stop.is_set() or self._abandon):
            self._working = False  # once: what follows is clearing up
            self._ended = True
            session.kill()
            raise Stopped
