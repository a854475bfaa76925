"""The `frostline` command: global options, and every command from its own module."""

from __future__ import annotations

from typing import Annotated, Any

import typer
from typer.core import TyperGroup

import frostline
from frostline.cli import (
    assess,
    clean,
    demo,
    doctor,
    explain,
    leaving,
    maintain,
    options,
    partition,
    retention,
    settings,
    stack,
    sync,
    tables,
    worker,
)
from frostline.cli.common import Options, clear_errors


class Commands(TyperGroup):
    """Every command of ours, under one error handler."""

    def invoke(self, ctx: Any) -> Any:
        with clear_errors():
            return super().invoke(ctx)


app = typer.Typer(
    cls=Commands,
    help="A Postgres table whose old rows live in an Apache Iceberg lake.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"frostline {frostline.__version__}")
        raise typer.Exit


@app.callback()
def global_options(
    context: typer.Context,
    dsn: Annotated[str, typer.Option(metavar="DSN", help="The Postgres to work on (default: the embedded one).")] = "",
    directory: Annotated[
        str, typer.Option("--dir", metavar="DIR", help="The embedded stack's directory (default: .frostline).")
    ] = "",
    version: Annotated[  # noqa: ARG001
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    context.obj = Options({"dsn": dsn, "local.dir": directory})


# In the order of the help.
demo.add_to(app)
assess.add_to(app)
partition.add_to(app)
tables.add_to(app)
options.add_to(app)
retention.add_to(app)
worker.add_to(app)
maintain.add_to(app)
clean.add_to(app)
leaving.add_to(app)
sync.add_to(app)
stack.add_to(app)
explain.add_to(app)
doctor.add_to(app)
settings.add_to(app)
