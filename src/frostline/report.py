"""Progress of long operations: Rich bars on a terminal, one plain line per step elsewhere."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn


@dataclass
class Task:
    """One running step; `advance` moves its bar, `note` is shown behind it when it is done."""

    done: int = 0
    total: int | None = None
    note: str = ""
    _bar: tuple[Progress, TaskID] | None = field(default=None, repr=False)

    def advance(self, n: int = 1) -> None:
        self.done += n
        if self._bar is not None:
            self._bar[0].update(self._bar[1], completed=self.done)


class Report:
    """Tells the person at the keyboard, or the log, what is being done and how far it is."""

    def __init__(self, console: Console | None = None) -> None:
        # Progress goes to stderr, so that what a command prints can be piped.
        self.console = console or Console(stderr=True)

    def line(self, text: str) -> None:
        self.console.print(text, markup=False, highlight=False, soft_wrap=True)

    @contextmanager
    def step(self, title: str, total: int | None = None) -> Iterator[Task]:
        """One step: a bar (a spinner without `total`) while it runs, one line with its time when it is done."""
        started = time.monotonic()
        if self.console.is_terminal:
            columns = [SpinnerColumn(), TextColumn(escape(title)), BarColumn(), TimeElapsedColumn()]
            if total is not None:
                columns.insert(3, MofNCompleteColumn())
            with Progress(*columns, console=self.console, transient=True) as progress:
                task = Task(total=total, _bar=(progress, progress.add_task(title, total=total)))
                yield task
        else:
            task = Task(total=total)
            yield task
        note = f" ({task.note})" if task.note else ""
        self.line(f"{title}{note}: {time.monotonic() - started:.1f} s")


class Silent(Report):
    """Says nothing: for tests, and for calls from a program."""

    def __init__(self) -> None:
        super().__init__(Console(quiet=True, stderr=True))
