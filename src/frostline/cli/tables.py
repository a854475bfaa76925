"""Commands that work on the user's tables: init, register, archive."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.table import Table

from frostline.catalog import install
from frostline.catalog.database import connect
from frostline.catalog.registry import Managed
from frostline.cli.common import load_settings, output, report, require_dsn
from frostline.local import artifacts
from frostline.tiering import register as registration

PANEL = "Your tables"
Name = Annotated[str, typer.Argument(metavar="SCHEMA.TABLE", help="As in SQL; odd names in double quotes.")]
Hot = Annotated[
    str, typer.Option("--hot", help="How long rows stay in Postgres: an interval, or a width for an integer key.")
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Say what would change, and change nothing.")]
PrintSql = Annotated[bool, typer.Option("--print-sql", help="Print the SQL and change nothing.")]


def add_to(app: typer.Typer) -> None:
    app.command("init", rich_help_panel=PANEL)(init)
    app.command("register", rich_help_panel=PANEL)(register)
    app.command("archive", rich_help_panel=PANEL)(archive)


def init(
    context: typer.Context,
    dsn: Annotated[str, typer.Option(metavar="DSN", help="The Postgres to install into.")] = "",
    print_sql: PrintSql = False,
) -> None:
    """Install or upgrade Frostline's registry in a Postgres 15 to 18. Repeating it changes nothing."""
    if dsn:
        context.find_root().obj.overrides["dsn"] = dsn
    settings = load_settings(context)
    postgres = require_dsn(settings)
    if print_sql:
        with connect(postgres) as connection:
            typer.echo(install.print_sql(connection))
        return
    if settings.lake.warehouse:
        from frostline.lake import catalog

        catalog.check(settings)
    done = install.install(postgres)
    for line in done:
        report().line(f"installed {line}")
    report().line("The registry is up to date." if done else "The registry was up to date already.")


def register(  # noqa: PLR0913, PLR0917 - one per option of the command
    context: typer.Context,
    table: Name,
    hot: Hot = "3 months",
    cold_fk: Annotated[
        str, typer.Option("--cold-fk", metavar="check|none", help="Whether what cold rows refer to is kept.")
    ] = "check",
    premake: Annotated[int, typer.Option(help="How many partitions to keep ready after the current one.")] = 2,
    coalesce: Annotated[
        str, typer.Option(metavar="POLICY", help="When old periods are joined: 'year after 2 years', or none.")
    ] = "",
    dry_run: DryRun = False,
    print_sql: PrintSql = False,
) -> None:
    """Let a partitioned table have a cold tier. Changes metadata only; no row moves."""
    with connect(require_dsn(load_settings(context))) as connection:
        act = registration.plan if dry_run or print_sql else registration.register
        found = act(connection, table, hot, registration.Choice(cold_fk, premake, coalesce))
        if isinstance(found, Managed):
            report().line(f"{found.table} is registered already; rows stay hot for {found.hot_for}")
        elif print_sql:
            typer.echo(found.sql(connection))
        else:
            _describe(found, would=dry_run)


def archive(context: typer.Context, table: Name) -> None:
    """Move every partition older than the hot period to the lake, oldest first."""
    # Here, not above: Spark and PyIceberg take most of a second to import.
    from frostline.pipeline.session import spark_session
    from frostline.tiering.archive import run

    settings = load_settings(context)
    require_dsn(settings)
    jars = artifacts.fetch(settings, report=report()).jars
    archived = run.archive(settings, table, report(), lambda: spark_session(settings, jars))
    if not archived:
        report().line("No partition is older than the hot period; nothing to do.")
        return
    shown = Table("partition", "rows", "lake bytes", "files", box=None, pad_edge=False, header_style="bold")
    for column in shown.columns[1:]:
        column.justify = "right"
    for one in archived:
        shown.add_row(str(one.leaf), f"{one.rows:,}", f"{one.bytes:,}", str(one.files))
    output().print(shown)


def _describe(plan: registration.Plan, *, would: bool) -> None:
    table, hot = plan.table, f"{plan.table.schema}.{plan.hot}"
    lines = [
        "Nothing was changed. Registering would do this:" if would else "Registered.",
        f"  rows of {table} stay in Postgres for {plan.hot_for}; older partitions can go to the lake",
        f"  the Iceberg table is {'.'.join(plan.lake)}",
        f"  its {len(table.leaves)} partitions stand under {hot}; new ones are to be created there",
        f"  the primary key and foreign keys stand on {hot}; ON CONFLICT (key) is to be addressed to it",
        *(f"  warning: {warning}" for warning in plan.warnings),
    ]
    for line in lines:
        report().line(line)
    if not would:
        report().line(f"Next: frostline archive '{table.schema}.{table.name}'")
