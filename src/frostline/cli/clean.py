"""`frostline clean`: what dead runs left behind, shown and removed."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.table import Table
from rich.text import Text

from frostline.cli.common import load_settings, output, print_error, report, require_dsn
from frostline.errors import FrostlineError

Name = Annotated[str, typer.Argument(metavar="[SCHEMA.TABLE]", help="One table only; without it all that are managed.")]


def add_to(app: typer.Typer) -> None:
    app.command("clean", rich_help_panel="Your tables")(clean)


def clean(
    context: typer.Context,
    table: Name = "",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what is there, and touch nothing.")] = False,
    older_than: Annotated[
        float | None,
        typer.Option(
            metavar="SECONDS", min=0, help="How old a file must be that nothing refers to. [archive.orphan_age]"
        ),
    ] = None,
) -> None:
    """Find and remove what runs that failed or died have left: files, snapshots, triggers, captured rows, tables."""
    # Here, not above: PyIceberg takes most of a second to import.
    from frostline.catalog import registry
    from frostline.catalog.database import connect
    from frostline.tiering import clean as cleaning
    from frostline.tiering.locks import at_work, only_writer

    settings = load_settings(context)
    age = settings.archive.orphan_age if older_than is None else older_than
    shown = Table("table", "what", "name", "bytes", "", "", box=None, pad_edge=False, header_style="bold")
    shown.columns[3].justify = "right"
    failed = False
    with connect(require_dsn(settings), application="frostline clean") as connection:
        for managed in [registry.get(connection, table)] if table else registry.every(connection):
            try:
                if dry_run:
                    found = cleaning.look(connection, settings, managed, age)
                    if found and at_work(connection, managed):
                        report().line(f"A run is at work on {managed.table}: some of this is its own, and will stay.")
                else:
                    with only_writer(connection, managed) as current:
                        found = cleaning.clean(connection, settings, current, age, report())
            except FrostlineError as error:
                print_error(error)
                failed = True
                continue
            for one in found:
                done = "kept" if one.kept else "would be removed" if dry_run else "removed"
                size = f"{one.bytes:,}" if one.bytes is not None else ""
                shown.add_row(Text(str(managed.table)), one.what, Text(one.name), size, Text(one.note), done)
    if shown.row_count:
        output().print(shown, soft_wrap=True)
    elif not failed:
        report().line("Nothing is left over.")
    if failed:
        raise typer.Exit(1)
