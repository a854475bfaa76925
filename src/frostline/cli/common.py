"""What every command shares: settings, the report, and errors as one clear sentence."""

from __future__ import annotations

import sys
import tempfile
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psycopg
import typer
from rich.console import Console

from frostline import config
from frostline.catalog.database import from_postgres
from frostline.config import Loaded, Settings
from frostline.errors import DatabaseError, FrostlineError
from frostline.local import stack
from frostline.report import Report


@dataclass(frozen=True)
class Options:
    """The global options, kept in the Typer context."""

    overrides: dict[str, str]


def load(context: typer.Context, *, with_stack: bool = True) -> Loaded:
    """Settings with their origins; a running stack contributes its addresses unless it is the stack's own command."""
    options = context.find_root().obj
    overrides = options.overrides if isinstance(options, Options) else {}
    plain = config.load(overrides)
    if not with_stack:
        return plain
    return config.load(overrides, stack=stack.stack_settings(plain.settings.local.dir))


def load_settings(context: typer.Context, *, with_stack: bool = True) -> Settings:
    return load(context, with_stack=with_stack).settings


def require_dsn(settings: Settings) -> str:
    """The Postgres to work on; an error that says how to get one."""
    dsn = settings.dsn.get_secret_value()
    if not dsn:
        raise DatabaseError(
            f"no Postgres is known: the embedded one in {settings.local.dir} is not running, and no DSN is set",
            hint="start it with `frostline up`, or name yours with --dsn, FROSTLINE_DSN or frostline.toml",
        )
    return dsn


def report() -> Report:
    return Report()


def output() -> Console:
    """Where results go. A pipe gets whole lines, not the width of some terminal."""
    return Console() if sys.stdout.isatty() else Console(width=200, highlight=False)


def print_error(error: FrostlineError) -> None:
    """`error: ...` with its detail and hint below, to stderr."""
    console = Console(stderr=True, highlight=False, soft_wrap=True)
    console.print("error:", style="bold red", end=" ")
    console.print(error.message, markup=False)
    for name, text in (("detail", error.detail), ("hint", error.hint)):
        for number, line in enumerate((text or "").splitlines()):
            console.print(f"{name + ':' if number == 0 else '':8}{line}", markup=False)


@contextmanager
def clear_errors() -> Iterator[None]:
    """No command ends in a stack trace: 1 for an error, 130 for Ctrl-C."""
    try:
        yield
    except FrostlineError as error:
        print_error(error)
    except psycopg.Error as error:
        print_error(from_postgres(error))
    except BrokenPipeError:
        # `frostline status | head`: nobody reads on, and there is nobody to tell.
        sys.stderr.close()
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        print_error(FrostlineError(f"{where}{error.strerror or error}"))
    except KeyboardInterrupt:
        print_error(FrostlineError("interrupted; what was finished before is kept"))
        raise typer.Exit(130) from None
    except (typer.Exit, typer.Abort, typer.BadParameter, SystemExit):
        raise
    except Exception as error:
        if type(error).__module__.startswith("typer."):
            raise  # a usage error, which Typer renders itself
        print_error(_unexpected(error))
    else:
        return
    raise typer.Exit(1)


def _unexpected(error: Exception) -> FrostlineError:
    with tempfile.NamedTemporaryFile("w", prefix="frostline-", suffix=".trace", delete=False) as file:
        traceback.print_exception(error, file=file)
    return FrostlineError(
        f"this is a fault in Frostline itself: {type(error).__name__}: {error}",
        hint=f"please report it with {Path(file.name)}",
    )
