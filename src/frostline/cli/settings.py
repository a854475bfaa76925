"""`frostline config`: the effective settings and where each came from."""

from __future__ import annotations

from pathlib import Path

import typer
from rich.table import Table
from rich.text import Text

from frostline.cli.common import load, output


def add_to(app: typer.Typer) -> None:
    app.command("config", rich_help_panel="Look")(show)


def show(context: typer.Context) -> None:
    """Show every setting: its value, where it came from, what it means. Secrets are masked."""
    table = Table("setting", box=None, pad_edge=False, header_style="bold")
    for name in ("value", "from", "meaning"):
        table.add_column(name, overflow="fold")
    for value in load(context).values():
        # Text, not markup: a value such as local[*] would be read as a style.
        origin = Text(_near(value.origin), style="dim" if value.origin == "default" else "")
        table.add_row(value.key, Text(value.text), origin, Text(value.description))
    output().print(table)


def _near(origin: str) -> str:
    """A file below this directory goes by its name alone."""
    return origin.removeprefix(f"{Path.cwd()}/")
