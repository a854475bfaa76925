"""Options of tables: set, list, export, import."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table
from rich.text import Text

from frostline.catalog import registry
from frostline.catalog.database import connect
from frostline.cli.common import load_settings, output, report, require_dsn
from frostline.errors import ConfigError
from frostline.tiering import options, options_file
from frostline.tiering.options import Change

PANEL = "Your tables"
Names = Annotated[
    list[str] | None,
    typer.Argument(metavar="[SCHEMA.TABLE]...", help="Which tables; none: all that are registered."),
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Say what would change, and change nothing.")]


def add_to(app: typer.Typer) -> None:
    app.command("set", rich_help_panel=PANEL, help=_set_help())(set_options)
    app.command("list", rich_help_panel="Look")(list_options)
    app.command("export", rich_help_panel=PANEL)(export)
    app.command("import", rich_help_panel=PANEL)(import_options)


def _set_help() -> str:
    lines = "\n\n".join(f"{option.name}: {option.help}" for option in options.EVERY.values())
    return f"Change options of a registered table; `key=default` gives one back to its default.\n\n{lines}"


def set_options(
    context: typer.Context,
    table: Annotated[str, typer.Argument(metavar="SCHEMA.TABLE", help="As in SQL; odd names in double quotes.")],
    given: Annotated[list[str], typer.Argument(metavar="KEY=VALUE...", help="One or more options.")],
    dry_run: DryRun = False,
) -> None:
    """Change options of a registered table."""
    wanted = pairs(given)
    settings = load_settings(context)
    with connect(require_dsn(settings), application="frostline set") as connection:
        changes = options.plan(connection, settings, [(registry.get(connection, table), wanted)])
        if not dry_run:
            options.apply(connection, settings, changes)
    _print_changes(changes, would=dry_run)


def pairs(texts: Sequence[str], others: Mapping[str, str] | None = None) -> dict[str, str]:
    """KEY=VALUE taken apart, beside what was given in other ways."""
    found = dict(others or {})
    for text in texts:
        key, equals, value = text.partition("=")
        if not equals or key in found:
            wrong = "is given twice" if equals else f"has no value: {text!r} is not KEY=VALUE"
            raise ConfigError(f"{key} {wrong}; nothing was changed", hint="for example: hot='6 months' premake=4")
        found[key] = value
    return found


def list_options(
    context: typer.Context,
    tables: Names = None,
    as_json: Annotated[bool, typer.Option("--json", help="As JSON, for programs.")] = False,
) -> None:
    """Show registered tables with their options."""
    settings = load_settings(context)
    with connect(require_dsn(settings), application="frostline list") as connection:
        found = [
            (options_file.name(connection, managed), options.shown(connection, settings, managed))
            for managed in options.tables(connection, tables or [])
        ]
    if as_json:
        content = {
            name: {one.option.name: {"value": one.text, "given": one.given} for one in shown} for name, shown in found
        }
        typer.echo(json.dumps(content, indent=2))
        return
    if not found:
        report().line("No table is managed yet; `frostline register SCHEMA.TABLE` makes one")
        return
    shown_table = Table("table", "option", "value", "from", "meaning", box=None, pad_edge=False, header_style="bold")
    for name, shown in found:
        for place, one in enumerate(shown):
            origin = Text("the table") if one.given else Text(one.option.setting, style="dim")
            first = Text(name if place == 0 else "")
            shown_table.add_row(first, one.option.name, Text(one.text), origin, Text(one.option.help))
    output().print(shown_table)


def export(context: typer.Context, tables: Names = None) -> None:
    """Print options of tables as TOML, for `frostline import`."""
    settings = load_settings(context)
    with connect(require_dsn(settings), application="frostline export") as connection:
        typer.echo(options_file.written(connection, settings, options.tables(connection, tables or [])), nl=False)


def import_options(
    context: typer.Context,
    file: Annotated[str, typer.Argument(metavar="FILE", help="As `frostline export` prints it; `-`: standard input.")],
    dry_run: DryRun = False,
) -> None:
    """Give tables the options a TOML file names, all of them or none. Options it does not name stay as they are."""
    content = sys.stdin.buffer.read() if file == "-" else Path(file).read_bytes()
    try:
        text = content.decode()
    except UnicodeDecodeError as error:
        raise ConfigError(f"{file} cannot be read: {error}; nothing was changed") from None
    settings = load_settings(context)
    with connect(require_dsn(settings), application="frostline import") as connection:
        changes = options.plan(connection, settings, options_file.read(connection, text, file))
        if not dry_run:
            options.apply(connection, settings, changes)
    _print_changes(changes, would=dry_run)


def _print_changes(changes: Sequence[Change], *, would: bool) -> None:
    if not changes:
        report().line("Every option is so already; nothing was changed.")
        return
    shown = Table(
        "table", "option", "was", "would be" if would else "is", box=None, pad_edge=False, header_style="bold"
    )
    for change in changes:
        shown.add_row(Text(str(change.managed.table)), change.option.name, Text(change.before), Text(change.after))
    output().print(shown)
