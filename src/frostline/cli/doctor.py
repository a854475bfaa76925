"""`frostline doctor`: is everything as it must be, and if not, what to do."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from frostline.cli.common import load_settings

_MARKS = {"ok": ("ok", "green"), "warning": ("warning", "yellow"), "problem": ("problem", "bold red")}


def add_to(app: typer.Typer) -> None:
    app.command("doctor", rich_help_panel="Look")(doctor)


def doctor(
    context: typer.Context,
    as_json: Annotated[bool, typer.Option("--json", help="Every check, as JSON.")] = False,
) -> None:
    """Check versions, grants, settings, the gateway, the lake and every table. Exit code 1 when there is a problem."""
    from frostline.local.doctor import diagnose

    found = list(diagnose(load_settings(context)))
    counts = {verdict: sum(check.verdict == verdict for check in found) for verdict in _MARKS}
    if as_json:
        typer.echo(json.dumps({"checks": [asdict(check) for check in found], "counts": counts}, indent=2))
    else:
        console = Console(width=100, highlight=False)
        grid = Table.grid(padding=(0, 2, 0, 0))
        for width in (16, 19, 7, None):
            grid.add_column(width=width)
        area = ""
        for check in found:
            text, style = _MARKS[check.verdict]
            line = Text(check.found)
            if check.remedy:
                line.append(f"\n-> {check.remedy}", style="bold")
            grid.add_row(Text(check.area if check.area != area else ""), check.name, Text(text, style=style), line)
            area = check.area
        console.print(grid)
        console.print(f"\n{counts['ok']} ok, {counts['warning']} warnings, {counts['problem']} problems")
    if counts["problem"]:
        raise typer.Exit(1)
