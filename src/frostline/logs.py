"""The log of a process that runs for years: one line per event, for people or, as JSON, for programs."""

from __future__ import annotations

import json
import logging
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime

from frostline.report import Report, Silent, Task

log = logging.getLogger(__name__)


class Json(logging.Formatter):
    """One object a line: time, level, message, and what belongs to the event."""

    def format(self, record: logging.LogRecord) -> str:
        content: dict[str, object] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "message": record.getMessage(),
            **_fields(record),
        }
        if record.exc_info:
            content["trace"] = self.formatException(record.exc_info)
        return json.dumps(content, default=str)


class Human(logging.Formatter):
    """Time, level, message, then what is not in it."""

    def format(self, record: logging.LogRecord) -> str:
        moment = datetime.fromtimestamp(record.created, UTC).strftime("%Y-%m-%d %H:%M:%S")
        message = record.getMessage()
        rest = " ".join(f"{name}={value}" for name, value in _fields(record).items() if str(value) not in message)
        trace = f"\n{self.formatException(record.exc_info)}" if record.exc_info else ""
        return f"{moment} {record.levelname.lower():7} {message}{f' ({rest})' if rest else ''}{trace}"


def _fields(record: logging.LogRecord) -> Mapping[str, object]:
    found = getattr(record, "fields", {})
    return {name: value for name, value in found.items() if value is not None}


def install(form: str) -> None:
    """From now on all that is logged goes to stderr in this form: `json`, else for people. Of libraries, warnings."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(Json() if form == "json" else Human())
    ours = logging.getLogger("frostline")
    ours.handlers[:] = [handler]
    ours.setLevel(logging.INFO)
    ours.propagate = False
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.WARNING)


class Logged(Report):
    """What is said on the way, as events of the log; what came of a step is for whoever runs it to log."""

    def __init__(self) -> None:
        super().__init__(Silent().console)

    def line(self, text: str) -> None:
        # What was made is logged as what came of the step.
        log.log(logging.DEBUG if text.startswith(("created ", "joined ")) else logging.INFO, text)

    @contextmanager
    def step(self, title: str, total: int | None = None) -> Iterator[Task]:
        started, task = time.monotonic(), Task(total=total)
        yield task
        took = round(time.monotonic() - started, 3)
        log.debug(title, extra={"fields": {"note": task.note or None, "seconds": took}})
