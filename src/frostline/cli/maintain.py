"""`frostline maintain`: the files in the lake kept few and large, and what nobody needs any more removed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table
from rich.text import Text

from frostline.cli.common import load_settings, output, print_error, report, require_dsn
from frostline.errors import FrostlineError
from frostline.local import artifacts

if TYPE_CHECKING:
    from frostline.tiering.maintain.run import Maintained

Names = Annotated[
    list[str] | None,
    typer.Argument(metavar="[SCHEMA.TABLE]...", help="Which tables; none: all that are registered."),
]


def add_to(app: typer.Typer) -> None:
    app.command("maintain", rich_help_panel="Your tables")(maintain)


def maintain(
    context: typer.Context,
    tables: Names = None,
    everything: Annotated[
        bool, typer.Option("--all", help="Rewrite every file, by the table's options as they are now.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would be done, and touch nothing.")] = False,
) -> None:
    """Rewrite small files and files with deletes, join manifests, expire snapshots, remove leftovers."""
    # Here, not above: Spark and PyIceberg take most of a second to import.
    from frostline.catalog.database import connect
    from frostline.pipeline.session import spark_session
    from frostline.tiering import options, options_file
    from frostline.tiering.archive.run import Warm
    from frostline.tiering.maintain import run

    settings = load_settings(context)
    with connect(require_dsn(settings)) as connection:
        names = [options_file.name(connection, managed) for managed in options.tables(connection, tables or [])]
    found: list[Maintained] = []
    failed = False
    with Warm(lambda: spark_session(settings, artifacts.fetch(settings, report=report()).jars)) as warm:
        for name in names:
            try:
                one = (
                    run.look(settings, name, everything=everything)
                    if dry_run
                    else run.maintain(settings, name, report(), warm, everything=everything)
                )
            except FrostlineError as error:
                print_error(error)
                failed = True
            else:
                found += [one] if one is not None else []
    if found:
        _print(found, dry_run=dry_run)
    elif not failed:
        report().line("Nothing is in the lake yet.")
    if failed:
        raise typer.Exit(1)


def _print(found: list[Maintained], *, dry_run: bool) -> None:
    heads = ("table", "", "files", "files of deletes", "bytes", "manifests", "snapshots")
    shown = Table(*heads, box=None, pad_edge=False, header_style="bold")
    for column in shown.columns[2:]:
        column.justify = "right"
    for one in found:
        for name, state in (("now", one.before),) if dry_run else (("before", one.before), ("after", one.after)):
            figures = (state.files, state.delete_files, state.bytes, state.manifests, state.snapshots)
            shown.add_row(Text(one.table), name, *(f"{figure:,}" for figure in figures))
    console = output()
    console.print(shown)
    for one in found:
        for note in one.notes or ("there was nothing to do",):
            console.print(Text(f"{one.table}: {note}"), soft_wrap=True)
