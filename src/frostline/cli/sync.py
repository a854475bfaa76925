"""`frostline sync`: after ALTER TABLE, delta and lake get the table's columns at once."""

from __future__ import annotations

from typing import Annotated

import typer

from frostline.cli.common import load_settings, print_error, report, require_dsn
from frostline.errors import FrostlineError

Name = Annotated[str, typer.Argument(metavar="[SCHEMA.TABLE]", help="One table only; without it all that are managed.")]


def add_to(app: typer.Typer) -> None:
    app.command("sync", rich_help_panel="Your tables")(sync)


def sync(context: typer.Context, table: Name = "") -> None:
    """Let delta and lake follow a table that was altered; folding, archiving and the worker do so too."""
    # Here, not above: PyIceberg takes most of a second to import.
    from frostline.catalog import registry
    from frostline.catalog.database import connect
    from frostline.tiering import constraints, shape, writing
    from frostline.tiering.locks import only_writer

    settings = load_settings(context)
    failed = False
    with connect(require_dsn(settings), application="frostline sync") as connection:
        for managed in [registry.get(connection, table)] if table else registry.every(connection):
            try:
                with only_writer(connection, managed) as current:
                    done = shape.followed(connection, settings, current)
                    writing.equip(connection, done.id)
                    constraints.prove(connection, done)
            except FrostlineError as error:
                print_error(error)
                failed = True
            else:
                report().line(f"{done.table}: {len(done.table.stored)} columns, in the delta and in the lake")
    if failed:
        raise typer.Exit(1)
