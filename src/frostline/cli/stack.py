"""The embedded stack's commands: up, down, status, dsn, psql, gateway, fetch."""

from __future__ import annotations

import os
import shutil
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import psycopg
import typer
from psycopg import pq
from psycopg.rows import TupleRow
from pydantic import SecretStr
from rich.console import Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from frostline.cli.common import load_settings, output, report, require_dsn
from frostline.config import S3, Settings, masked
from frostline.errors import FrostlineError, SetupError
from frostline.local import artifacts, background, stack
from frostline.local.stack import Stack

PANEL = "The embedded stack"
NOTHING_MANAGED = Text("No table is managed yet; `frostline register SCHEMA.TABLE` makes one")
_WATCH_SECONDS = 2.0
# Of periods that were joined since nobody knows when.
_ALARMS = """
SELECT format('alarm of %s%s: %s: %s', found_by, to_char(found_at, ', YYYY-MM-DD HH24:MI'), period, alarm)
FROM frostline.alarms
"""
_WORKERS = """
SELECT format('%s, pid %s', host, pid) AS worker, CASE WHEN leader THEN 'leads' ELSE 'stands by' END AS role,
       coalesce(doing, 'waits for its next round') AS doing,
       date_trunc('second', clock_timestamp() - heartbeat)::text AS "last heartbeat"
FROM frostline.workers ORDER BY leader DESC, started_at
"""
Directory = Annotated[str, typer.Option("--dir", metavar="DIR", help="The stack's directory.", show_default=False)]


def add_to(app: typer.Typer) -> None:
    app.command("up", rich_help_panel=PANEL)(up)
    app.command("down", rich_help_panel=PANEL)(down)
    app.command("status", rich_help_panel="Look")(status)
    app.command("dsn", rich_help_panel="Look")(dsn)
    app.command(
        "psql",
        rich_help_panel="Look",
        context_settings={"ignore_unknown_options": True, "allow_extra_args": True, "help_option_names": []},
    )(psql)
    app.command("gateway", rich_help_panel=PANEL)(gateway)
    app.command("fetch", rich_help_panel=PANEL)(fetch)


def up(
    context: typer.Context,
    directory: Directory = "",
    worker: Annotated[bool, typer.Option(help="Start the worker too, which looks after your tables.")] = True,
) -> None:
    """Start Postgres, the gateway and the worker in the background (with --dsn: not Postgres, but for your own)."""
    _choose_directory(context, directory)
    running = stack.up(load_settings(context, with_stack=False), report(), worker=worker)
    _print_services(running)
    console = output()
    console.print(Text(f"\n{running.dsn}" if not running.external else ""), soft_wrap=True)
    console.print("Next: `frostline psql`, `frostline status`, `frostline down`", markup=False, style="dim")


def down(context: typer.Context, directory: Directory = "") -> None:
    """Stop what `up` started. The data stays."""
    _choose_directory(context, directory)
    settings = load_settings(context, with_stack=False)
    if not stack.down(settings, report()):
        report().line(f"Nothing is running in {settings.local.dir}")


def status(
    context: typer.Context,
    directory: Directory = "",
    watch: Annotated[bool, typer.Option("--watch", help="Again every two seconds, until Ctrl-C.")] = False,
) -> None:
    """Show what runs where, the lake's size, the managed tables, and what the worker does."""
    _choose_directory(context, directory)
    if watch:
        _watch(context)
        return
    settings = load_settings(context)
    running = stack.state(settings)
    if running is None:
        report().line(f"Nothing is running in {settings.local.dir}; `frostline up` starts it")
    console = output()
    for part in _status(settings, running):
        if part is NOTHING_MANAGED:
            report().line(part.plain)
        else:
            console.print(part, soft_wrap=True)


def _watch(context: typer.Context) -> None:
    """On a terminal one picture that changes, elsewhere one after the other."""
    console = output()
    with Live(console=console, screen=console.is_terminal, auto_refresh=False) as live:
        while True:
            try:
                settings = load_settings(context)
                shown = Group(*_status(settings, stack.state(settings)))
            except (psycopg.Error, FrostlineError) as error:
                shown = Group(Text(str(error), style="bold red"))
            if console.is_terminal:
                live.update(shown, refresh=True)
            else:
                console.print(shown)
            time.sleep(_WATCH_SECONDS)


def _status(settings: Settings, running: Stack | None) -> Iterator[Table | Text]:
    if running is not None:
        yield _services(running)
    if settings.dsn.get_secret_value():
        yield from _tables(settings.dsn.get_secret_value())


def dsn(context: typer.Context, directory: Directory = "") -> None:
    """Print the DSN of the Postgres in use, password included."""
    _choose_directory(context, directory)
    typer.echo(require_dsn(load_settings(context)))


def psql(context: typer.Context) -> None:
    """Open psql (or pgcli, which comes with Frostline) on the Postgres in use; arguments are passed on."""
    # By the environment: an argument would show the password to everyone on this machine.
    given = pq.Conninfo.parse(require_dsn(load_settings(context)).encode())
    environment = {o.envvar.decode(): o.val.decode() for o in given if o.envvar and o.val is not None}
    program = shutil.which("psql") or str(Path(sys.executable).with_name("pgcli"))
    if not os.access(program, os.X_OK):
        raise SetupError("there is neither psql nor pgcli here", hint="install psql, or Frostline's packages again")
    sys.stdout.flush()
    os.execve(program, [program, *context.args], os.environ | environment)  # noqa: S606 (no shell is wanted)


def gateway(
    context: typer.Context,
    ready_file: Annotated[
        Path | None, typer.Option(metavar="PATH", help="Written, as JSON, when the gateway listens.")
    ] = None,
) -> None:
    """Run the gateway in the foreground until Ctrl-C."""
    from frostline.gateway.server import serve

    settings = load_settings(context, with_stack=ready_file is None)
    require_dsn(settings)

    def ready(host: str, port: int) -> None:
        report().line(f"The gateway listens on {host}:{port}")
        if ready_file is not None:
            background.write_ready(ready_file, host, port)

    serve(settings, ready=ready)


def fetch(
    context: typer.Context,
    s3: Annotated[bool, typer.Option("--s3", help="Also what a lake on S3 needs, wherever it is now.")] = False,
    prepare: Annotated[
        bool,
        typer.Option(
            "--prepare", help="Also prepare Java's classes: a minute, 200 MB; Spark then starts in half the time."
        ),
    ] = False,
) -> None:
    """Download and check what the stack runs on, so that everything later works off line."""
    settings = load_settings(context, with_stack=False)
    fetched = artifacts.fetch(settings, report=report())
    if s3:
        artifacts.fetch_jar(artifacts.S3_JAR, settings, report=report())
    if prepare:
        from frostline.pipeline import classes  # with all that Spark and the lake need, which other commands do not

        classes.prepare(settings, fetched.jars, report())


def _choose_directory(context: typer.Context, directory: str) -> None:
    """`frostline up --dir X` means the same as `frostline --dir X up`."""
    if directory:
        context.find_root().obj.overrides["local.dir"] = directory


def _print_services(running: Stack) -> None:
    output().print(_services(running), soft_wrap=True)


def _services(running: Stack) -> Table:
    table = Table("", "pid", "address", "up for", "log", box=None, pad_edge=False, header_style="bold")
    for name in ("Postgres", "gateway", "worker"):
        service = running.service(name)
        if service is not None:
            age = str(datetime.now(UTC).replace(microsecond=0) - service.since.replace(microsecond=0))
            table.add_row(name, str(service.pid), service.address, age, str(service.log))
        elif name == "Postgres" and running.external:
            table.add_row(name, "", Text(masked(SecretStr(running.dsn))), "", "")
        else:
            style = "bold red" if name != "worker" else "yellow"  # without it rows stay where they are
            table.add_row(name, Text("down", style=style), "", "", "`frostline up` starts it")
    table.add_row("lake", "", Text(running.warehouse), "", lake_size(running.warehouse))
    return table


def _tables(postgres: str) -> Iterator[Table | Text]:
    with psycopg.connect(postgres, connect_timeout=10, application_name="frostline status") as connection:
        if connection.execute("SELECT to_regclass('frostline.status')").fetchone() == (None,):
            return
        alarms = connection.execute("SELECT to_regclass('frostline.alarms')").fetchone() != (None,)
        shown_below = "alarm" if alarms else ""
        yield from _rows(connection, "SELECT * FROM frostline.status", NOTHING_MANAGED, without=shown_below)
        if connection.execute("SELECT to_regclass('frostline.failing')").fetchone() == (None,):
            return  # of an older version
        yield from _rows(connection, _WORKERS)
        yield from _rows(connection, "SELECT * FROM frostline.failing")
        if alarms:
            yield from _alarms(connection)


def _rows(
    connection: psycopg.Connection[TupleRow], query: str, nothing: Text | None = None, *, without: str = ""
) -> Iterator[Table | Text]:
    """A query's rows below an empty line, but for one column."""
    cursor = connection.execute(query)
    names = [column.name for column in cursor.description or ()]
    table = Table(*(name for name in names if name != without), box=None, pad_edge=False, header_style="bold")
    for row in cursor:
        kept = (value for name, value in zip(names, row, strict=True) if name != without)
        table.add_row(*("" if value is None else Text(str(value)) for value in kept))
    if table.row_count:
        yield Text()
        yield table
    elif nothing is not None:
        yield nothing


def _alarms(connection: psycopg.Connection[TupleRow]) -> Iterator[Text]:
    """A line for each: in a column among twelve nobody could read them."""
    for place, (alarm,) in enumerate(connection.execute(_ALARMS)):
        if place == 0:
            yield Text()
        yield Text(alarm, style="bold red")


def lake_size(warehouse: str) -> str:
    """Of a directory: a bucket of many files takes too long to list."""
    if warehouse.startswith(S3):
        return ""
    files = list(_sizes(warehouse))
    return f"{sum(files) / 1e6:.1f} MB in {len(files)} files"


def _sizes(directory: str) -> Iterator[int]:
    """Of every file; the worker and the gateway make and remove some meanwhile."""
    for path, _, names in os.walk(directory):
        for name in names:
            with suppress(OSError):
                yield Path(path, name).stat().st_size
