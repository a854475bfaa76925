"""`frostline explain`: what a statement would read of each tier, and who would evaluate what."""

from __future__ import annotations

from typing import Annotated

import psycopg
import typer
from psycopg.rows import dict_row
from rich.table import Table
from rich.text import Text

from frostline.catalog.database import connect
from frostline.cli.common import load_settings, output, require_dsn
from frostline.errors import DatabaseError

_STYLES = {"hot": "red", "cold": "cyan", "pruned": "dim"}


def add_to(app: typer.Typer) -> None:
    app.command("explain", rich_help_panel="Look")(explain)


def explain(
    context: typer.Context,
    statement: Annotated[str, typer.Argument(metavar="SQL", help="Any one statement; it is not run.")],
    remote: Annotated[bool, typer.Option("--remote", help="Show the statements sent to the gateway too.")] = False,
) -> None:
    """Show which partitions, files and bytes a statement would read, and what is pushed down, without running it."""
    with connect(require_dsn(load_settings(context)), application="frostline explain") as connection:
        connection.execute("RESET search_path")  # names mean what they mean to an application
        try:
            with connection.cursor(row_factory=dict_row) as cursor:
                found = cursor.execute("SELECT * FROM frostline.explain(%s)", (statement,)).fetchall()
        except (psycopg.errors.InvalidSchemaName, psycopg.errors.UndefinedFunction) as error:
            raise DatabaseError(
                f"Frostline in this database has no explain: {error.diag.message_primary}", hint="run frostline init"
            ) from None
    output().print(_table(found))
    for line in found if remote else []:
        if line["remote"]:
            output().print(Text(f"{line['relation']}: {line['remote']}"), soft_wrap=True)


def _table(found: list[dict[str, object]]) -> Table:
    shown = Table(box=None, pad_edge=False, header_style="bold")
    for name in (
        "relation",
        "tier",
        "engine",
        "files",
        "bytes",
        "delta",
        "pushed down",
        "evaluated by Postgres",
        "why",
    ):
        shown.add_column(name, justify="right" if name in ("files", "bytes", "delta") else "left", overflow="fold")
    for line in found:
        values = (
            line["relation"],
            line["tier"],
            line["engine"],
            _share(line["files"], line["of_files"]),
            _share(line["bytes"], line["of_bytes"]),
            line["delta_rows"],
            line["pushed"],
            line["kept"],
            line["why"],
        )
        cells = [Text("" if value is None else str(value)) for value in values]
        shown.add_row(*cells, style=_STYLES.get(str(line["tier"])))
    snapshots = {line["snapshot"] for line in found if line["snapshot"] is not None}
    if snapshots:
        shown.caption = f"Iceberg snapshot {', '.join(map(str, sorted(snapshots, key=str)))}"
    return shown


def _share(part: object, whole: object) -> str | None:
    return None if part is None or whole is None else f"{part:,} of {whole:,}"
