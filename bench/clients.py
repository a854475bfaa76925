"""Clients of a table's hot rows, whose every statement is timed."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field

import psycopg


@dataclass
class Clients:
    """As pgbench does it: each reads or writes one row by its key, over and over."""

    dsn: str
    table: str
    statements: list[tuple[float, float]] = field(default_factory=list)  # when it began, when it ended
    errors: list[str] = field(default_factory=list)
    _stop: threading.Event = field(default_factory=threading.Event)
    _threads: list[threading.Thread] = field(default_factory=list)

    def start(self, count: int, moment: str) -> None:
        self._threads = [threading.Thread(target=self._work, args=(number, moment)) for number in range(count)]
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()

    def longest(self, windows: list[tuple[float, float]]) -> float:
        """Seconds of the longest statement that overlaps with one of these windows."""
        return max((end - start for start, end in self.statements if _overlaps(start, end, windows)), default=0.0)

    def _work(self, number: int, moment: str) -> None:
        with psycopg.connect(self.dsn, autocommit=True) as connection:
            at = f"id = {-1 - number} AND ts = '{moment}'"
            while not self._stop.is_set():
                for statement in (
                    f"SELECT value FROM {self.table} WHERE {at}",
                    f"UPDATE {self.table} SET value = value + 1 WHERE {at}",
                ):
                    started = time.time()
                    try:
                        connection.execute(statement)
                    except psycopg.Error as error:
                        self.errors.append(str(error))
                    self.statements.append((started, time.time()))


def _overlaps(start: float, end: float, windows: list[tuple[float, float]]) -> bool:
    return any(start < last and end > first for first, last in windows)
