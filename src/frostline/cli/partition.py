"""`frostline partition`: a plain table becomes a partitioned one, while it is in use."""

from __future__ import annotations

import csv
from typing import TYPE_CHECKING, Annotated

import typer

from frostline.catalog.database import connect
from frostline.cli.common import load_settings, output, report, require_dsn
from frostline.errors import ConfigError

if TYPE_CHECKING:
    from frostline.tiering.partition.plan import Plan


def add_to(app: typer.Typer) -> None:
    app.command("partition", rich_help_panel="Your tables")(partition)


def partition(  # noqa: PLR0913, PLR0917 - one per option of the command
    context: typer.Context,
    table: Annotated[str, typer.Argument(metavar="SCHEMA.TABLE", help="As in SQL; odd names in double quotes.")],
    by: Annotated[
        str, typer.Option(metavar="COLUMN", help="The column to cut by; left out, what was begun goes on.")
    ] = "",
    period: Annotated[
        str, typer.Option(help="hour, day, week, month, quarter, year; a width for an integer column.")
    ] = "month",
    key: Annotated[
        str, typer.Option(metavar="COLUMNS", help="The new primary key, when the old one lacks the column: id,ts")
    ] = "",
    since: Annotated[str, typer.Option(metavar="DATE", help="What is older goes into one partition.")] = "",
    zone: Annotated[str, typer.Option(help="Whose midnight periods begin at, for a timestamptz column.")] = "UTC",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the plan and its SQL, and change nothing.")] = False,
    abandon: Annotated[bool, typer.Option("--abandon", help="Give up what was begun; the table is as it was.")] = False,
    drop_old: Annotated[bool, typer.Option("--drop-old", help="Drop the table as it was, when all is done.")] = False,
) -> None:
    """Cut a plain table into RANGE partitions while it is in use. Run it again to go on after an interruption."""
    from frostline.tiering.locks import from_settings
    from frostline.tiering.partition import run
    from frostline.tiering.partition.plan import Choice

    settings = load_settings(context)
    columns = tuple(name.strip() for name in next(csv.reader([key], skipinitialspace=True), []) if name.strip())
    choice = Choice(by, period, columns, zone, since)
    with connect(require_dsn(settings), application="frostline partition") as connection:
        if abandon:
            given_up = run.abandon(connection, table, from_settings(settings))
            report().line(f"The partitioning of {given_up} is given up; the table is as it was.")
            return
        if dry_run:
            if not by:
                raise ConfigError("--dry-run needs --by COLUMN")
            plan, statements = run.dry_run(connection, table, choice)
            _describe(plan)
            output().print(
                "\n".join(f"{one.as_string(connection)};" for one in statements), markup=False, soft_wrap=True
            )
            return
        done = run.partition(connection, table, choice, from_settings(settings), report(), drop_old=drop_old)
    report().line(
        f"{done.plan} is partitioned by {done.plan.by}: {len(done.plan.partitions)} partitions, ~{done.rows:,} rows."
    )
    if done.in_default:
        report().line(
            f"{done.in_default:,} rows fit into none of them and are in {done.plan.partitions[-1][0]}:"
            " they stand in the way of registering"
        )
    if not done.dropped:
        report().line(f"What it was is kept as {done.plan.schema}.{done.plan.kept}; drop it when you like.")


def _describe(plan: Plan) -> None:
    first, last = plan.partitions[0], plan.partitions[-2]
    for line in (
        "Nothing was changed. Partitioning would do this:",
        f"  {plan} is copied into {plan.schema}.{plan.copy}, which then takes its name: so much more room is needed",
        f"  {len(plan.partitions)} partitions by {plan.by}, from {first[0]} to {last[0]}, and {plan.partitions[-1][0]}",
        f"  the primary key is ({', '.join(plan.key)})",
        f"  the table as it was is kept as {plan.schema}.{plan.kept}",
        "  locks: SHARE ROW EXCLUSIVE on the table for a moment (two triggers); ACCESS EXCLUSIVE twice for a moment,",
        "  for a rehearsal and for the swap; each is given up and tried again before anybody waits for long",
        "",
    ):
        output().print(line, markup=False, soft_wrap=True)
