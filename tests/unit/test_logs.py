"""The worker's log, as programs read it."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator

import pytest

from frostline import logs


@pytest.fixture
def loggers() -> Iterator[None]:
    """As they were before."""
    found = [logging.getLogger(name) for name in ("", "frostline")]
    before = [(one, one.handlers[:], one.level, one.propagate) for one in found]
    yield
    for one, handlers, level, propagate in before:
        one.handlers[:], one.propagate = handlers, propagate
        one.setLevel(level)


@pytest.mark.usefixtures("loggers")
def test_every_line_is_an_object_whoever_logs_it(capsys: pytest.CaptureFixture[str]) -> None:
    logs.install("json")
    logging.getLogger("frostline.tiering").info("leading")
    logging.getLogger("psycopg").warning("error ignored:\nanother command is in progress")
    logging.getLogger("psycopg").info("of no concern")
    told = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    assert [(one["level"], one["message"]) for one in told] == [
        ("info", "leading"),
        ("warning", "error ignored:\nanother command is in progress"),
    ]
