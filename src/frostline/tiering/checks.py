"""What a check of the doctor says. It needs nothing, so that it can also say that something is missing."""

from __future__ import annotations

import csv
import io
import shlex
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import psycopg

from frostline.errors import FrostlineError
from frostline.model.tables import as_sql

OK, WARNING, PROBLEM = "ok", "warning", "problem"


@dataclass(frozen=True)
class Check:
    area: str
    name: str
    verdict: str
    found: str
    remedy: str = ""


Checks = Iterator[Check]


def guarded(area: str, name: str, look: Callable[[], Checks]) -> Checks:
    """A check that cannot be made is a problem of its own; the others go on."""
    try:
        yield from look()
    except FrostlineError as error:
        yield Check(area, name, PROBLEM, line(error.message, error.detail), line(error.hint))
    except psycopg.Error as error:
        said = error.diag
        yield Check(area, name, PROBLEM, line(said.message_primary or str(error)), line(said.message_hint))
    except OSError as error:
        yield Check(area, name, PROBLEM, line(str(error)))


def shell_name(schema: str, name: str) -> str:
    """A table as our commands take it, to be pasted into a shell."""
    return shlex.quote(as_sql(schema, name))


def shell_list(names: Iterable[str]) -> str:
    """Columns as `frostline partition --key` takes them, to be pasted into a shell."""
    text = io.StringIO()
    csv.writer(text, lineterminator="").writerow(names)
    return shlex.quote(text.getvalue())


def line(*parts: str | None) -> str:
    return "; ".join(" ".join(part.split()) for part in parts if part)
