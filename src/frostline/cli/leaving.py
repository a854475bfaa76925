"""The way back, and after a restore: untier, unregister, uninstall, adopt."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table
from rich.text import Text

from frostline.catalog import registry
from frostline.catalog.database import connect
from frostline.cli.common import load_settings, output, report, require_dsn
from frostline.cli.tables import PANEL, DryRun, Name
from frostline.errors import ConfigError
from frostline.local import artifacts

if TYPE_CHECKING:
    from frostline.tiering.untier.run import Returned


def add_to(app: typer.Typer) -> None:
    app.command("untier", rich_help_panel=PANEL)(untier)
    app.command("unregister", rich_help_panel=PANEL)(unregister)
    app.command("uninstall", rich_help_panel=PANEL)(uninstall)
    app.command("adopt", rich_help_panel=PANEL)(adopt)


def untier(
    context: typer.Context,
    table: Name,
    period: Annotated[
        str, typer.Argument(metavar="PERIOD", help="A cold partition's name, or a value of the partition key.")
    ],
    dry_run: DryRun = False,
) -> None:
    """Bring a cold period back into Postgres, and every newer one that is cold: the cold tier has no holes.

    frostline untier public.events events_2026_07

    frostline untier public.events 2026-07-15 --dry-run
    """
    from frostline.pipeline.session import spark_session
    from frostline.tiering.archive.run import Warm
    from frostline.tiering.untier import run

    settings = load_settings(context)
    dsn = require_dsn(settings)
    if dry_run:
        with connect(dsn) as connection:
            found = run.planned(connection, registry.get(connection, table), period)
        report().line("Nothing was changed. These would come back:")
    else:
        # Spark is only started where a file of the lake has to be rewritten.
        with Warm(lambda: spark_session(settings, artifacts.fetch(settings, report=report()).jars)) as warm:
            found = run.untier(settings, table, period, report(), warm)
    print_returned(found)
    with connect(dsn) as connection:
        if again := run.expired_again(connection, registry.get(connection, table), found):
            names = ", ".join(str(one.period) for one in again)
            report().line(
                f"{names}: older than the hot period, and in Postgres all the same. Nothing of the table is archived "
                f"until you name it: frostline archive {shlex.quote(table)}"
            )


def unregister(
    context: typer.Context,
    table: Name,
    keep_lake: Annotated[
        bool, typer.Option("--keep-lake", help="Leave the Iceberg table as it is, with the rows that were cold.")
    ] = False,
    dry_run: DryRun = False,
) -> None:
    """Bring every row back and make the table what it was before it was registered.

    frostline unregister public.events --dry-run

    frostline unregister public.events --keep-lake
    """
    from frostline.tiering import unregister as leaving

    settings = load_settings(context)
    require_dsn(settings)
    if dry_run:
        found = leaving.plan(settings, table)
        rows, size = sum(one.rows for one in found), sum(one.period.bytes for one in found)
        report().line(f"Nothing was changed. {rows:,} rows ({size:,} bytes in the lake) would come back:")
        print_returned(found)
        return
    left = leaving.unregister(settings, table, report(), keep_lake=keep_lake)
    print_returned(left.returned)
    report().line(f"{table} is an ordinary table again.")
    if left.lake is not None:
        report().line(f"The Iceberg table {left.lake} was kept, without changes that were never folded.")


def uninstall(context: typer.Context, dry_run: DryRun = False) -> None:
    """Remove Frostline's schemas and server from a database in which no table is registered.

    frostline --dsn postgresql://... uninstall
    """
    from frostline.catalog import install

    done = install.uninstall(require_dsn(load_settings(context)), dry_run=dry_run)
    for line in done:
        report().line(f"{'would remove' if dry_run else 'removed'} {line}")


def adopt(
    context: typer.Context,
    successor: Annotated[
        bool, typer.Option("--successor", help="It takes the place of the original, which is gone.")
    ] = False,
    copy: Annotated[bool, typer.Option("--copy", help="It is a copy, and the original lives on.")] = False,
    sure: Annotated[
        bool, typer.Option("--sure", help="With --copy: it is one, though nothing tells it from the original.")
    ] = False,
) -> None:
    """After a restore, a failover, a clone or a dump: say what this database is. Until then the lake is not changed.

    frostline --dsn postgresql://restored/db adopt --successor

    frostline --dsn postgresql://staging/db adopt --copy
    """
    from frostline.tiering import adopt as adopting

    settings = load_settings(context)
    require_dsn(settings)
    if successor == copy:
        raise ConfigError("say either --successor or --copy; nothing was changed")
    if copy:
        adopting.copy(settings, sure=sure)
        report().line(
            "This database is a copy with a name of its own. Start a gateway for it; it will not change the lake."
        )
        return
    for found in adopting.successor(settings, report()):
        report().line(f"{found.table}: {found.snapshots} commits of a lost future were set aside")
    report().line("Whatever belongs to this installation in the lake belongs to this database.")


def print_returned(found: list[Returned]) -> None:
    heads = ("partition", "from", "to", "rows", "lake bytes", "changes not yet in the lake")
    shown = Table(*heads, box=None, pad_edge=False, header_style="bold")
    for column in shown.columns[3:]:
        column.justify = "right"
    for one in found:
        lower, upper = one.period.range.lower or "MINVALUE", one.period.range.upper
        figures = (f"{figure:,}" for figure in (one.rows, one.period.bytes, one.changed))
        shown.add_row(Text(str(one.period)), Text(str(lower)), Text(str(upper)), *figures)
    output().print(shown)
