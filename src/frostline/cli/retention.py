"""`frostline retain`: rows that are not kept any longer."""

from __future__ import annotations

import typer
from rich.table import Table

from frostline.catalog.database import connect
from frostline.cli.common import load_settings, output, print_error, report, require_dsn
from frostline.cli.tables import PANEL, DryRun, Names
from frostline.local import artifacts


def add_to(app: typer.Typer) -> None:
    app.command("retain", rich_help_panel=PANEL)(retain)


def retain(context: typer.Context, tables: Names = None, dry_run: DryRun = False) -> None:
    """Remove whole periods older than a table's retention. There is no way back but a backup.

    Only tables that have a retention: frostline set public.events retention='7 years'
    """
    from frostline.pipeline.session import spark_session
    from frostline.tiering import cycle, options, retention

    settings = load_settings(context)
    require_dsn(settings)
    if dry_run:
        shown = Table("table", "kept from", "rows that would go", "periods", box=None, header_style="bold")
        with connect(require_dsn(settings)) as connection:
            for managed in options.tables(connection, tables or []):
                found = retention.expired(connection, managed)
                if found is not None:
                    shown.add_row(
                        str(managed.table), found.line.text, f"{found.rows:,}", ", ".join(p.name for p in found.parts)
                    )
        output().print(shown if shown.row_count else "Nothing is older than its table's retention.")
        return
    jars = artifacts.fetch(settings, report=report()).jars
    done = cycle.retains(settings, tables or [], report(), lambda: spark_session(settings, jars))
    for outcome in done:
        if outcome.error is not None:
            print_error(outcome.error)
    if not done:
        report().line("Nothing is older than its table's retention.")
    if any(outcome.error is not None for outcome in done):
        raise typer.Exit(1)
