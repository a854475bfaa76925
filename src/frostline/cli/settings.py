"""`frostline config`: the effective settings and where each came from."""

from __future__ import annotations

import typer
from rich.table import Table
from rich.text import Text

from frostline.cli.common import load, output


def add_to(app: typer.Typer) -> None:
    app.command("config", rich_help_panel="Look")(show)


def show(context: typer.Context) -> None:
    """Show every setting: its value, where it came from, what it means. Secrets are masked."""
    table = Table("setting", "value", "from", "meaning", box=None, pad_edge=False, header_style="bold")
    for value in load(context).values():
        # Text, not markup: a value such as local[*] would be read as a style.
        origin = Text(value.origin, style="dim" if value.origin == "default" else "")
        table.add_row(value.key, Text(value.text), origin, Text(value.description))
    output().print(table)
