"""`frostline run`: the worker."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from frostline import logs
from frostline.cli.common import load_settings, require_dsn
from frostline.errors import ConfigError
from frostline.local import artifacts, background
from frostline.logs import Logged

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_UNITS = {"": 1.0, "ms": 0.001, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86_400.0}


def add_to(app: typer.Typer) -> None:
    app.command("run", rich_help_panel="Your tables")(run)


def run(
    context: typer.Context,
    once: Annotated[bool, typer.Option("--once", help="One round over all tables, then end.")] = False,
    interval: Annotated[
        str, typer.Option(metavar="TIME", help="From one round to the next: 60s, 5min, 1h. [worker.interval]")
    ] = "",
    metrics_port: Annotated[
        int, typer.Option(metavar="PORT", min=0, max=65535, help="Port of /metrics. [worker.metrics_port]")
    ] = 0,
    log_format: Annotated[str, typer.Option(metavar="text|json", help="How the log is written, to stderr.")] = "text",
    ready_file: Annotated[
        Path | None, typer.Option(metavar="PATH", help="Written, as JSON, when the worker is there.")
    ] = None,
) -> None:
    """Look after every registered table: fold, archive, coalesce, retain, maintain and more. Until Ctrl-C."""
    # Here, not above: PyIceberg takes most of a second to import.
    from frostline.tiering.worker.run import run as work

    if log_format not in ("text", "json"):
        raise ConfigError(f"--log-format {log_format!r} is neither text nor json")
    given: dict[str, object] = {"interval": seconds(interval)} if interval else {}
    settings = load_settings(context, with_stack=ready_file is None)
    require_dsn(settings)
    given |= {"metrics_port": metrics_port} if metrics_port else {}
    settings = settings.model_copy(update={"worker": settings.worker.model_copy(update=given)})
    logs.install(log_format)
    report = Logged()

    @contextmanager
    def spark() -> Iterator[SparkSession]:
        from frostline.pipeline.session import spark_session

        with spark_session(settings, artifacts.fetch(settings, report=report).jars) as session:
            yield session

    def ready(port: int) -> None:
        if ready_file is not None:
            background.write_ready(ready_file, settings.worker.listen if port else "", port)

    failures = work(settings, report, spark, once=once, ready=ready)
    if once and failures:
        raise typer.Exit(1)


def seconds(text: str) -> float:
    """A time as a person writes it."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([a-z]*)", text.strip())
    if match is None or match[2] not in _UNITS or (found := float(match[1]) * _UNITS[match[2]]) <= 0:
        raise ConfigError(f"--interval {text!r} is no time", hint=f"a number and one of {', '.join(list(_UNITS)[1:])}")
    return found
