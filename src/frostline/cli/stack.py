"""The embedded stack's commands: up, down, status, dsn, psql, gateway, fetch."""

from __future__ import annotations

import os
import shutil
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import psycopg
import typer
from psycopg import pq
from pydantic import SecretStr
from rich.table import Table
from rich.text import Text

from frostline.cli.common import load_settings, output, report, require_dsn
from frostline.config import S3, masked
from frostline.errors import SetupError
from frostline.local import artifacts, gateway_process, stack
from frostline.local.stack import Stack

PANEL = "The embedded stack"
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


def up(context: typer.Context, directory: Directory = "") -> None:
    """Start Postgres and the gateway in the background (with --dsn: only the gateway, for your own Postgres)."""
    _choose_directory(context, directory)
    running = stack.up(load_settings(context, with_stack=False), report())
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


def status(context: typer.Context, directory: Directory = "") -> None:
    """Show what runs where, the lake's size, and the managed tables."""
    _choose_directory(context, directory)
    settings = load_settings(context)
    running = stack.state(settings)
    if running is None:
        report().line(f"Nothing is running in {settings.local.dir}; `frostline up` starts it")
    else:
        _print_services(running)
    if settings.dsn.get_secret_value():
        _print_tables(settings.dsn.get_secret_value())


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
            gateway_process.write_ready(ready_file, host, port)

    serve(settings, ready=ready)


def fetch(context: typer.Context) -> None:
    """Download and check what the stack runs on, so that everything later works off line."""
    artifacts.fetch(load_settings(context, with_stack=False), report=report())


def _choose_directory(context: typer.Context, directory: str) -> None:
    """`frostline up --dir X` means the same as `frostline --dir X up`."""
    if directory:
        context.find_root().obj.overrides["local.dir"] = directory


def _print_services(running: Stack) -> None:
    table = Table("", "pid", "address", "up for", "log", box=None, pad_edge=False, header_style="bold")
    for name in ("Postgres", "gateway"):
        service = running.service(name)
        if service is not None:
            age = str(datetime.now(UTC).replace(microsecond=0) - service.since.replace(microsecond=0))
            table.add_row(name, str(service.pid), service.address, age, str(service.log))
        elif name == "Postgres" and running.external:
            table.add_row(name, "", Text(masked(SecretStr(running.dsn))), "", "")
        else:
            table.add_row(name, Text("down", style="bold red"), "", "", "`frostline up` starts it")
    table.add_row("lake", "", Text(running.warehouse), "", _size(running.warehouse))
    output().print(table, soft_wrap=True)


def _print_tables(postgres: str) -> None:
    with psycopg.connect(postgres, connect_timeout=10, application_name="frostline status") as connection:
        if connection.execute("SELECT to_regclass('frostline.status')").fetchone() == (None,):
            return
        cursor = connection.execute("SELECT * FROM frostline.status")
        rows = cursor.fetchall()
        columns = [column.name for column in cursor.description or ()]
    if not rows:
        report().line("No table is managed yet; `frostline register SCHEMA.TABLE` makes one")
        return
    table = Table(*columns, box=None, pad_edge=False, header_style="bold")
    for row in rows:
        table.add_row(*("" if value is None else Text(str(value)) for value in row))
    console = output()
    console.print()
    console.print(table)


def _size(warehouse: str) -> str:
    """Of a directory: a bucket of many files takes too long to list."""
    directory = Path(warehouse)
    if warehouse.startswith(S3):
        return ""
    files = [file.stat().st_size for file in directory.rglob("*") if file.is_file()] if directory.exists() else []
    return f"{sum(files) / 1e6:.1f} MB in {len(files)} files"
