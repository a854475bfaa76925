"""`frostline assess`: what a database would gain, on a page of 100 columns or as JSON."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console, JustifyMethod
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from frostline.catalog.database import connect
from frostline.cli.common import load_settings, report, require_dsn
from frostline.tiering.assess.lockplan import SHORT

if TYPE_CHECKING:
    from frostline.model.ages import Bin
    from frostline.tiering.assess.lockplan import Lock
    from frostline.tiering.assess.run import Assessed

_WIDTH = 100
_BAR = 36
_EIGHTHS = " ▏▎▍▌▋▊▉"
_SHOWN = 50  # rows of the list; --json has them all


def add_to(app: typer.Typer) -> None:
    app.command("assess", rich_help_panel="Your tables")(assess)


def assess(
    context: typer.Context,
    tables: Annotated[
        list[str] | None, typer.Argument(metavar="[SCHEMA.TABLE]...", help="Which tables; none: every one.")
    ] = None,
    dsn: Annotated[str, typer.Option(metavar="DSN", help="The Postgres to look at.")] = "",
    hot: Annotated[
        str, typer.Option("--hot", help="How long rows would stay in Postgres; a width for integer keys.")
    ] = "3 months",
    top: Annotated[int, typer.Option(min=0, help="How many of the largest tables to look at closely.")] = 20,
    as_json: Annotated[bool, typer.Option("--json", help="All that was found, as JSON.")] = False,
) -> None:
    """What would move to the lake, what that saves and what is in the way. Needs no Java, no init; changes nothing."""
    from frostline.tiering.assess import run

    if dsn:
        context.find_root().obj.overrides["dsn"] = dsn
    with connect(require_dsn(load_settings(context)), application="frostline assess") as connection:
        found = run.assess(connection, hot, tables or [], top, report())
        about = {
            "database": connection.info.dbname,
            "postgres": str(connection.info.parameter_status("server_version")),
            "hot": hot,
        }
    if as_json:
        typer.echo(json.dumps({**about, "tables": [_json(one) for one in found]}, indent=2, default=str))
        return
    console = Console(width=_WIDTH, highlight=False)
    total = sum(one.sizes.total for one in found if one.sizes)
    console.print(
        f"Postgres {about['postgres'].split()[0]}, database {about['database']}: "
        f"{len(found)} table{'s' * (len(found) != 1)}, {size(total)}; rows would stay in Postgres for {hot}\n",
        markup=False,
    )
    console.print(_overview(found))
    for one in found:
        if one.close:
            _print_closely(console, one)
    distant = [one for one in found if not one.close]
    for one in [one for one in distant if one.notes][:_SHOWN]:
        for note in one.notes:
            console.print(f"\n{one}: {note}", markup=False, soft_wrap=True)
    rest = sum(not one.notes for one in distant)
    if rest:
        console.print(f"\n{rest} other tables were not looked at closely: name one to have it looked at.")


def _json(one: Assessed) -> dict[str, Any]:
    found = {key: value for key, value in asdict(one).items() if key != "close"}
    if one.sizes is not None:
        found["sizes"]["total"] = one.sizes.total
    return {"table": str(one), **found}


def _overview(found: list[Assessed]) -> Table:
    shown = Table(box=None, pad_edge=False, header_style="bold", width=_WIDTH)
    shown.add_column("table", ratio=1, overflow="fold")
    for head in ("heap", "indexes", "toast", "rows", "partitions", "archivable", "in the lake"):
        shown.add_column(head, justify="right", no_wrap=True)
    for one in found[:_SHOWN]:
        sizes, cold = one.sizes, one.cold
        figures = (size(sizes.heap), size(sizes.indexes), size(sizes.toast)) if sizes else ("?", "?", "?")
        kind = str(one.partitions) if one.kind == "partitioned" else one.kind
        shown.add_row(
            Text(str(one)),
            *figures,
            count(sizes.rows) if sizes else "?",
            kind if one.readable else "not readable",
            size(cold.bytes) if cold else "",
            size(cold.lake_bytes) if cold and cold.lake_bytes is not None else "",
        )
    if len(found) > _SHOWN:
        rest = found[_SHOWN:]
        shown.add_row(f"{len(rest)} smaller ones", size(sum(one.sizes.total for one in rest if one.sizes)))
    colds = [one.cold for one in found if one.cold]
    if len(colds) > 1:
        lake = sum(cold.lake_bytes or 0 for cold in colds)
        shown.add_row("", "", "", "", "", "", size(sum(cold.bytes for cold in colds)), size(lake), style="bold")
    return shown


def _print_closely(console: Console, one: Assessed) -> None:
    console.print()
    cut = f"by {one.key} ({one.key_type})" if one.key else "no key"
    how = f"{one.partitions} partitions {cut}" if one.kind == "partitioned" else f"a {one.kind} table, {cut}"
    total = size(one.sizes.total) if one.sizes else "?"
    console.print(Text.assemble((str(one), "bold"), f"  {total}, {how}"))
    if any(bin_.rows or bin_.bytes for bin_ in one.profile):
        console.print(Padding(_picture(one.profile), (0, 0, 0, 2), expand=False))
    grid = Table.grid(padding=(0, 1))
    grid.add_column(no_wrap=True, width=12)
    grid.add_column()
    for head, text in _sentences(one):
        grid.add_row(Text(f"  {head}", style="dim"), Text(text))
    console.print(grid)
    if one.locks:
        console.print(_lock_table(one.locks))
        console.print(f"{'':13}{SHORT}")
    if one.next is not None:
        console.print(Text.assemble(("  next       ", "dim"), (one.next, "bold")), soft_wrap=True)


def _lock_table(locks: list[Lock]) -> Table:
    grid = Table.grid(padding=(0, 2, 0, 0), pad_edge=False)
    for width in (11, 9, 22, 35, 13):
        grid.add_column(width=width)
    for number, lock in enumerate(locks):
        step = lock.step if number == 0 or locks[number - 1].step != lock.step else ""
        head = Text("  locks" if number == 0 else "", style="dim")
        grid.add_row(head, step, lock.mode, Text(lock.on), lock.held)
    return grid


def _picture(profile: list[Bin]) -> Table:
    """A bar for each bin; what would be archived is light."""
    most = max(bin_.bytes or bin_.rows for bin_ in profile) or 1
    grid = Table.grid(padding=(0, 1))
    justifications: tuple[JustifyMethod, ...] = ("left", "left", "right", "right", "left")
    for justify in justifications:
        grid.add_column(justify=justify, no_wrap=True)
    for bin_ in profile:
        share = (bin_.bytes or bin_.rows) / most * _BAR
        whole, eighth = int(share), int(share % 1 * 8)
        bar = "█" * whole + _EIGHTHS[eighth].strip()
        style = "cyan" if bin_.cold else "red"
        grid.add_row(
            Text(bin_.label.ljust(10)),
            Text(bar.ljust(_BAR), style=style),
            size(bin_.bytes),
            f"{count(bin_.rows)} rows",
            Text("cold", style="cyan") if bin_.cold else "",
        )
    return grid


def _sentences(one: Assessed) -> Iterator[tuple[str, str]]:
    if one.cold is not None and one.cold.rows:
        cold = one.cold
        lake = f" become about {size(cold.lake_bytes)} of Parquet" if cold.lake_bytes is not None else " would be freed"
        parts = f"{cold.partitions} partition{'s' * (cold.partitions != 1)}, " if one.kind == "partitioned" else ""
        yield "archive", f"{parts}{count(cold.rows)} rows: {size(cold.bytes)} of heap and indexes{lake}"
    elif one.cold is not None:
        yield "archive", "nothing is older than the hot period"
    if one.sampled is not None and one.sizes is not None:
        here = one.sizes.total / max(one.sizes.rows, 1)
        yield (
            "sample",
            (
                f"{one.sampled.rows:,} rows, written as the archive would: {one.sampled.row_bytes:.1f} bytes a row,"
                f" {here:.0f} here"
            ),
        )
    for number, objection in enumerate(one.obstacles):
        yield "in the way" if number == 0 else "", f"- {objection.reason}\n  -> {objection.remedy}"
    for number, text in enumerate(one.cautions):
        yield "to know" if number == 0 else "", f"- {text}"
    for number, text in enumerate(one.notes):
        yield "note" if number == 0 else "", text


def size(bytes_: float) -> str:
    """Three figures and a unit: 0 B, 12.3 MB, 1.21 TB."""
    return _figure(bytes_, 1000, ("B", "kB", "MB", "GB", "TB", "PB"))


def count(rows: float) -> str:
    return _figure(rows, 1000, ("", "k", "M", "G", "T"))


def _figure(value: float, base: int, units: tuple[str, ...]) -> str:
    for unit in units[:-1]:
        if value < base * 0.9995:
            digits = 0 if unit == units[0] or value >= 99.95 else 1 if value >= 9.995 else 2
            return f"{value:.{digits}f} {unit}".strip()
        value /= base
    return f"{value:.0f} {units[-1]}"
