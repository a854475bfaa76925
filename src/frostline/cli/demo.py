"""`frostline demo`."""

from __future__ import annotations

from typing import Annotated

import typer

from frostline.cli.common import load_settings, output, report


def add_to(app: typer.Typer) -> None:
    app.command("demo", rich_help_panel="Start here")(demo)


def demo(
    context: typer.Context,
    keep: Annotated[bool, typer.Option("--keep", help="Leave Postgres and the gateway running at the end.")] = False,
    rows: Annotated[int, typer.Option(min=10_000, help="How many rows the table gets.")] = 2_000_000,
) -> None:
    """Watch a table hand nine of its twelve months to a lake, and every query answer the same."""
    from frostline.local.demo import run_demo

    run_demo(load_settings(context, with_stack=False), output(), report(), rows=rows, keep=keep)
