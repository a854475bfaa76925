"""Commands that work on the user's tables: init, register, archive, fold, verify, coalesce."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table
from rich.text import Text

from frostline.catalog import install, registry
from frostline.catalog.database import connect
from frostline.catalog.registry import Managed
from frostline.cli.common import load_settings, output, print_error, report, require_dsn
from frostline.cli.options import pairs
from frostline.local import artifacts
from frostline.tiering import register as registration
from frostline.tiering import writing
from frostline.tiering.checks import shell_name
from frostline.tiering.options import HOT_FOR

if TYPE_CHECKING:
    from frostline.tiering import cycle
    from frostline.tiering.fold.run import Folded

PANEL = "Your tables"
Name = Annotated[str, typer.Argument(metavar="SCHEMA.TABLE", help="As in SQL; odd names in double quotes.")]
Names = Annotated[
    list[str] | None,
    typer.Argument(metavar="[SCHEMA.TABLE]...", help="Which tables; none: all that are registered."),
]
Hot = Annotated[
    str,
    typer.Option(
        "--hot",
        metavar="PERIOD",
        help=f"How long rows stay in Postgres: an interval, or a width for an integer key ({HOT_FOR} if not given).",
    ),
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Say what would change, and change nothing.")]
PrintSql = Annotated[bool, typer.Option("--print-sql", help="Print the SQL and change nothing.")]


def add_to(app: typer.Typer) -> None:
    app.command("init", rich_help_panel=PANEL)(init)
    app.command("register", rich_help_panel=PANEL)(register)
    app.command("archive", rich_help_panel=PANEL)(archive)
    app.command("fold", rich_help_panel=PANEL)(fold)
    app.command("verify", rich_help_panel=PANEL)(verify)
    app.command("coalesce", rich_help_panel=PANEL)(coalesce)


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
    with connect(postgres) as connection:
        done += writing.equip(connection)
    for line in done:
        report().line(f"installed {line}")
    report().line("The registry is up to date." if done else "The registry was up to date already.")


def register(  # noqa: PLR0913, PLR0917 - one per option of the command
    context: typer.Context,
    table: Name,
    hot: Hot = "",
    cold_fk: Annotated[
        str, typer.Option("--cold-fk", metavar="check|none", help="Whether what cold rows refer to is kept.")
    ] = "",
    premake: Annotated[
        int | None, typer.Option(help="How many partitions to keep ready after the current one (2 if not given).")
    ] = None,
    coalesce: Annotated[
        str, typer.Option(metavar="POLICY", help="When old periods are joined: 'year after 2 years', or none.")
    ] = "",
    lake_partition: Annotated[
        str, typer.Option(metavar="STEP", help="What files of the lake are cut by: hour, day, month, year, a width.")
    ] = "",
    sort_order: Annotated[
        str, typer.Option(metavar="COLUMNS", help="What rows of a file are sorted by, as in ORDER BY.")
    ] = "",
    others: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Any option of `frostline set`; may be given several times."),
    ] = None,
    dry_run: DryRun = False,
    print_sql: PrintSql = False,
) -> None:
    """Let a partitioned table have a cold tier. Changes metadata only; no row moves."""
    flags = {
        "hot": hot,
        "cold_fk": cold_fk,
        "premake": "" if premake is None else str(premake),
        "coalesce": coalesce,
        "lake_partition": lake_partition,
        "sort_order": sort_order,
    }
    given = pairs(others or [], {name: text for name, text in flags.items() if text})
    with connect(require_dsn(load_settings(context))) as connection:
        act = registration.plan if dry_run or print_sql else registration.register
        found = act(connection, table, given.pop("hot", HOT_FOR), given)
        if isinstance(found, Managed):
            report().line(f"{found.table} is registered already; rows stay hot for {found.hot_for}")
            report().line("Its options stay as they are; `frostline set` changes them")
        elif print_sql:
            typer.echo(found.sql(connection))
        else:
            _describe(found, would=dry_run)


def archive(
    context: typer.Context,
    tables: Names = None,
    before: Annotated[
        str | None, typer.Option(metavar="DATE", help="Archive what ends before this, whatever the hot period.")
    ] = None,
) -> None:
    """Create future partitions, fold, then move every partition older than the hot period to the lake, oldest first."""
    # Here, not above: Spark and PyIceberg take most of a second to import.
    from frostline.pipeline.session import spark_session
    from frostline.tiering import cycle

    settings = load_settings(context)
    require_dsn(settings)
    jars = artifacts.fetch(settings, report=report()).jars
    outcomes = cycle.cycle(settings, tables or [], report(), lambda: spark_session(settings, jars), before)
    for outcome in outcomes:
        if outcome.error is not None:
            print_error(outcome.error)
    if not any(outcome.state not in ("created", "folded") for outcome in outcomes):
        report().line("No partition is older than the hot period; nothing to archive.")
    if outcomes:
        _print_outcomes(outcomes)
    if any(outcome.error is not None for outcome in outcomes):
        raise typer.Exit(1)


def _print_outcomes(outcomes: list[cycle.Outcome]) -> None:
    shown = Table(
        "table", "partition", "", "rows", "lake bytes", "files", box=None, pad_edge=False, header_style="bold"
    )
    for column in shown.columns[3:]:
        column.justify = "right"
    for one in outcomes:
        done = one.archived
        figures = (f"{done.rows:,}", f"{done.bytes:,}", str(done.files)) if done is not None else ("", "", "")
        shown.add_row(Text(one.table), Text(one.what), one.state, *figures)
    output().print(shown)


def fold(context: typer.Context, tables: Names = None) -> None:
    """Merge changes of cold rows into the lake, where they are read faster. Rows stay what they are to everyone."""
    from frostline.pipeline.session import spark_session
    from frostline.tiering import cycle

    settings = load_settings(context)
    require_dsn(settings)
    jars = artifacts.fetch(settings, report=report()).jars
    outcomes = cycle.folds(settings, tables or [], report(), lambda: spark_session(settings, jars))
    for outcome in outcomes:
        if outcome.error is not None:
            print_error(outcome.error)
    done = [outcome.folded for outcome in outcomes if outcome.folded is not None]
    if done:
        _print_folds(done)
    if any(outcome.error is not None for outcome in outcomes):
        raise typer.Exit(1)
    if not done:
        report().line("No cold row was changed since the last fold; nothing to fold.")


def _print_folds(done: list[Folded]) -> None:
    heads = ("table", "versions", "updated", "deleted", "inserted", "files rewritten", "seconds")
    shown = Table(*heads, box=None, pad_edge=False, header_style="bold")
    for column in shown.columns[1:]:
        column.justify = "right"
    for one in done:
        figures = (one.versions, one.updated, one.deleted, one.inserted, one.files)
        shown.add_row(Text(one.table), *(f"{figure:,}" for figure in figures), f"{one.seconds:.1f}")
    output().print(shown)


def verify(
    context: typer.Context,
    table: Name,
    period: Annotated[
        str | None, typer.Argument(metavar="[PERIOD]", help="A partition's name, or a value of the partition key.")
    ] = None,
) -> None:
    """Check every file, row and column of the cold tier against what was archived. Changes nothing."""
    from frostline.tiering import verify as verification

    settings = load_settings(context)
    require_dsn(settings)
    found = verification.verify(settings, table, period, report())
    shown = Table("partition", "", "rows", "files", "changed since", box=None, pad_edge=False, header_style="bold")
    for column in shown.columns[2:]:
        column.justify = "right"
    for one in found:
        figures = ("" if figure is None else f"{figure:,}" for figure in (one.rows, one.files, one.changed))
        shown.add_row(Text(one.period), one.state, *figures)
    output().print(shown)
    for one in found:
        for problem in one.problems:
            output().print(Text(f"{one.period}: {problem}"), soft_wrap=True)
    if any(one.failed for one in found):
        raise typer.Exit(1)


def coalesce(context: typer.Context, table: Name, dry_run: DryRun = False) -> None:
    """Join old periods to larger foreign partitions, as the table's policy says. The lake stays as it is."""
    from frostline.tiering import coalesce as joining
    from frostline.tiering.locks import from_settings, only_writer

    settings = load_settings(context)
    with connect(require_dsn(settings), application="frostline coalesce") as connection:
        managed = registry.get(connection, table)
        if dry_run:
            found = joining.groups(connection, managed)
        else:
            with only_writer(connection, managed) as managed, report().step(f"coalesce {managed.table}"):
                found = list(joining.joined(connection, managed, from_settings(settings)))
    shown = Table("partition", "from", "to", "periods", "rows", box=None, pad_edge=False, header_style="bold")
    for group in found:
        rows = sum(part.rows for part in group.parts)
        bounds = (Text(str(side)) for side in (group.range.lower, group.range.upper))
        shown.add_row(Text(f"{managed.table.schema}.{group.name}"), *bounds, str(len(group.parts)), f"{rows:,}")
    if found:
        output().print(shown)
    else:
        report().line("No periods are old enough to be joined.")


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
        report().line(f"Next: frostline archive {shell_name(table.schema, table.name)}")
