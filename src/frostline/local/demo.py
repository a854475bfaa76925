"""The demonstration: a year of readings, nine months of them handed to the lake, every answer shown to be the same."""

from __future__ import annotations

import re
import shlex
import shutil
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib import resources
from typing import Any

import psycopg
import pyarrow.compute as pc
from pgspecial.main import PGSpecial
from psycopg.types.string import TextLoader
from pydantic import SecretStr
from pyiceberg.table import StaticTable
from rich.console import Console
from rich.panel import Panel
from rich.syntax import Syntax
from rich.table import Table
from rich.text import Text

from frostline import config
from frostline.catalog.database import connect
from frostline.config import Settings
from frostline.errors import FrostlineError, StackError
from frostline.local import artifacts, stack
from frostline.pipeline.session import spark_session
from frostline.report import Report
from frostline.tiering import register
from frostline.tiering.archive import run

TABLE, HOT = "demo.readings", "3 months"
MARKER = "demo"  # a file in the stack's directory: we made it, and may make it anew
HASH = f"SELECT count(*), sum(hashtextextended(r::text, 0)::numeric) AS content_hash FROM {TABLE} r"
HEAP = f"SELECT coalesce(sum(pg_total_relation_size(relid)), 0)::bigint FROM pg_partition_tree('{TABLE}')"
HOT_QUERY = f"SELECT count(*), max(celsius) FROM {TABLE} WHERE taken_at > now() - interval '1 day'"
LOOK = (
    (
        "A cold range: one day, ten months ago",
        f"SELECT status, count(*), round(avg(celsius), 3) AS mean FROM {TABLE}\n"
        "WHERE taken_at >= date_trunc('day', now()) - interval '10 months'\n"
        "  AND taken_at <  date_trunc('day', now()) - interval '10 months' + interval '1 day'\n"
        "GROUP BY status ORDER BY status",
    ),
    ("A cold row by its id alone, as an ORM asks for it", f"SELECT * FROM {TABLE} WHERE id = 1000"),
    (
        "A join over both tiers, with an expression only Postgres knows",
        "SELECT s.room, count(*) AS errors, max(r.taken_at)::date AS latest\n"
        f"FROM {TABLE} r JOIN demo.sensors s ON s.id = r.sensor_id\n"
        "WHERE r.status LIKE 'err%' AND r.payload @> '{\"firmware\": \"1.3\"}'\n"
        "GROUP BY s.room ORDER BY errors DESC, s.room LIMIT 3",
    ),
    ("The view that was there before", "SELECT * FROM demo.monthly ORDER BY month"),
)

WRITES = (
    f"UPDATE {TABLE} SET celsius = celsius + 0.5, status = 'checked' WHERE id IN (1000, 1001)\n"
    "RETURNING id, taken_at::date, celsius, status",
    f"DELETE FROM {TABLE} WHERE id BETWEEN 1100 AND 1104 RETURNING id",
    f"UPDATE {TABLE} SET taken_at = now() WHERE id = 1002 RETURNING id, taken_at::date",
    f"SELECT id, tableoid::regclass AS lives_in, status FROM {TABLE}\nWHERE id IN (1000, 1001, 1002, 1100) ORDER BY id",
)
OLD_ROWS = f"SELECT count(*), sum(hashtextextended(r::text, 0)::numeric) AS content_hash FROM {TABLE} r WHERE id < 2000"
COMMITTED = f"UPDATE {TABLE} SET status = 'checked' WHERE id = 1000 RETURNING id, taken_at::date, status"


@dataclass
class Demo:
    """One run: where it prints, and how long things took."""

    settings: Settings
    console: Console
    report: Report
    rows: int
    timings: list[tuple[str, float]] = field(default_factory=list)

    @contextmanager
    def timed(self, what: str) -> Iterator[None]:
        started = time.monotonic()
        yield
        self.timings.append((what, time.monotonic() - started))


def run_demo(settings: Settings, console: Console, report: Report, *, rows: int, keep: bool) -> None:
    """Everything, on a stack of its own; without `keep` it is stopped at the end."""
    _fresh_directory(settings, report)
    started = time.monotonic()
    running = stack.up(settings, report)
    try:
        settings = settings.model_copy(update={"dsn": SecretStr(running.dsn)})
        demo = Demo(settings, console, report, rows)
        with connect(running.dsn, application="frostline demo") as connection:
            connection.adapters.register_loader("jsonb", TextLoader)  # shown as Postgres writes it
            _perform(demo, connection)
        demo.timings.append(("everything", time.monotonic() - started))
        _timings(demo)
    except BaseException:
        stack.down(settings, report)
        raise
    if not keep:
        stack.down(settings, report)
    _what_next(demo, keep=keep)


def _fresh_directory(settings: Settings, report: Report) -> None:
    directory = settings.local.dir
    if settings.dsn.get_secret_value():
        raise StackError(
            "the demo only runs on the embedded stack, and a DSN of yours is set; nothing was touched",
            hint="run it without --dsn, FROSTLINE_DSN and the dsn in frostline.toml",
        )
    if (directory / MARKER).exists():
        stack.down(settings, report)
        shutil.rmtree(directory)
    elif directory.exists() and any(directory.iterdir()):
        raise StackError(
            f"{directory} holds a stack of yours, which the demo will not touch",
            hint=f"run it elsewhere: frostline --dir {directory}-demo demo",
        )
    directory.mkdir(parents=True, exist_ok=True)
    (directory / MARKER).touch()


def _perform(demo: Demo, connection: psycopg.Connection[Any]) -> None:
    _load(demo, connection)
    before, heap_before = _hash(demo, connection, "before"), _heap(connection)
    answers = [_answer(connection, sql) for _, sql in LOOK]

    _heading(demo, "Registering: the table may now have a cold tier; no row moves")
    _shell(demo, f"frostline register {TABLE} --hot '{HOT}'")
    with demo.timed("register (metadata only)"):
        register.register(connection, TABLE, HOT)
    _heading(demo, "Archiving: every partition older than three months goes to the lake")
    _shell(demo, f"frostline archive {TABLE}")
    jars = artifacts.fetch(demo.settings, report=demo.report).jars
    with demo.timed("archive (Spark's start included)"):
        archived = run.archive(demo.settings, TABLE, demo.report, lambda: spark_session(demo.settings, jars))

    after, heap_after = _hash(demo, connection, "after"), _heap(connection)
    _heading(demo, "The table as Postgres describes it: foreign partitions beside the hot one")
    _describe(demo, connection)
    _heading(demo, "A query on the last day: the lake is pruned away, the gateway is not asked")
    _plan(demo, connection)
    for (title, sql), expected in zip(LOOK, answers, strict=True):
        _look(demo, connection, title, sql, expected)
    lake = sum(one.bytes for one in archived)
    _sizes(demo, heap_before, heap_after, lake)
    _independently(demo, connection)
    _writes(demo, connection)
    if before != after:
        raise FrostlineError(f"the content hash changed: {before} before, {after} after")
    demo.console.print(
        f"\nThe content hash of all {after[0]:,} rows is the same before and after: [bold green]{after[1]}[/]"
    )


def _load(demo: Demo, connection: psycopg.Connection[Any]) -> None:
    text = (resources.files("frostline.local") / "demo.sql").read_text(encoding="utf-8")
    with demo.timed("create and load the table"):
        text = text.replace("{rows}", str(demo.rows))
        for title, body in re.findall(r"^-- step: (.+)\n((?:(?!-- step).*\n)+)", text, flags=re.M):
            _heading(demo, title)
            _sql(demo, body.strip())
            with demo.report.step(title):
                connection.execute(body)


def _hash(demo: Demo, connection: psycopg.Connection[Any], when: str) -> tuple[int, int]:
    _heading(demo, f"The content hash of the whole table, {when}")
    with demo.timed(f"content hash of every row, {when}"):
        rows = _run(demo, connection, HASH)
    return rows[0][0], rows[0][1]


def _heap(connection: psycopg.Connection[Any]) -> int:
    row = connection.execute(HEAP).fetchone()
    assert row is not None
    return int(row[0])


def _answer(connection: psycopg.Connection[Any], sql: str) -> list[tuple[Any, ...]]:
    return connection.execute(sql).fetchall()


def _look(
    demo: Demo, connection: psycopg.Connection[Any], title: str, sql: str, expected: Sequence[tuple[Any, ...]]
) -> None:
    _heading(demo, title)
    with demo.timed(title[0].lower() + title[1:]):
        rows = _run(demo, connection, sql)
    if rows != expected:
        raise FrostlineError(f"the answer differs from the one before archiving: {rows} instead of {expected}")
    demo.console.print("[green]the same answer as before archiving[/]")


def _describe(demo: Demo, connection: psycopg.Connection[Any]) -> None:
    _sql(demo, f"\\d+ {TABLE}")
    for _, rows, headers, footer in PGSpecial().execute(connection.cursor(), f"\\d+ {TABLE}"):
        _print_rows(demo, headers, rows)
        demo.console.print(footer, markup=False, highlight=False)


def _plan(demo: Demo, connection: psycopg.Connection[Any]) -> None:
    sql = f"EXPLAIN (ANALYZE, COSTS OFF, TIMING OFF, BUFFERS OFF, SUMMARY OFF)\n{HOT_QUERY}"
    with demo.timed("a query on the last day"):
        rows = _run(demo, connection, sql)
    if any("Foreign Scan" in line for (line,) in rows):
        raise FrostlineError("the plan of a hot query touches the lake")


def _sizes(demo: Demo, before: int, after: int, lake: int) -> None:
    _heading(demo, "What it takes to keep")
    table = Table("", "before", "after", box=None, pad_edge=False, header_style="bold")
    table.add_row("Postgres: heap and indexes", _megabytes(before), _megabytes(after))
    table.add_row("lake: Parquet files", "", _megabytes(lake))
    table.add_row("together", _megabytes(before), _megabytes(after + lake))
    demo.console.print(table)
    demo.console.print(f"the cold rows take {(before - after) / lake:.1f} times less room than they did in Postgres")


def _independently(demo: Demo, connection: psycopg.Connection[Any]) -> None:
    row = connection.execute(
        "SELECT metadata_location, seam FROM frostline.tables WHERE relation = %s::regclass", (TABLE,)
    ).fetchone()
    assert row is not None
    metadata, seam = row
    _heading(demo, "The same rows read without us: PyIceberg, from the Iceberg metadata file alone")
    code = (
        f'table = StaticTable.from_metadata("{metadata}")\n'
        'rows = table.scan(selected_fields=("id", "celsius")).to_arrow()\n'
        'rows.num_rows, pyarrow.compute.sum(rows["celsius"])'
    )
    demo.console.print(Syntax(code, "python", background_color="default", word_wrap=True))
    with demo.timed("the lake read by PyIceberg"):
        rows = StaticTable.from_metadata(metadata).scan(selected_fields=("id", "celsius")).to_arrow()
        read = (rows.num_rows, pc.sum(rows["celsius"]).as_py())
    demo.console.print(f"{read[0]:,} rows, sum {read[1]}")
    sql = f"SELECT count(*), sum(celsius) FROM {TABLE} WHERE taken_at < '{seam}'"
    if (answer := _run(demo, connection, sql)) != [read]:
        raise FrostlineError(f"PyIceberg reads {read}, Postgres {answer}")


def _writes(demo: Demo, connection: psycopg.Connection[Any]) -> None:
    """Old rows updated, deleted and moved in one transaction with new ones: rolled back, then committed."""
    _heading(demo, "Old rows are written like new ones: one transaction over both tiers, rolled back")
    before = _answer(connection, OLD_ROWS)
    with demo.timed("a transaction that writes both tiers"):
        _sql(demo, "BEGIN")
        with connection.transaction(force_rollback=True):
            for sql in WRITES:
                _run(demo, connection, sql)
        _sql(demo, "ROLLBACK")
    if _run(demo, connection, OLD_ROWS) != before:
        raise FrostlineError("a transaction that was rolled back has changed cold rows")
    demo.console.print("[green]the same rows as before the transaction[/]")
    _heading(demo, "And one that stays")
    _run(demo, connection, COMMITTED)
    if _run(demo, connection, f"SELECT id, status FROM {TABLE} WHERE id = 1000") != [(1000, "checked")]:
        raise FrostlineError("a committed change of a cold row is not there")


def _run(demo: Demo, connection: psycopg.Connection[Any], sql: str) -> list[tuple[Any, ...]]:
    _sql(demo, sql)
    cursor = connection.execute(sql)
    rows = cursor.fetchall()
    _print_rows(demo, [column.name for column in cursor.description or ()], rows)
    return rows


def _print_rows(demo: Demo, headers: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    table = Table(*headers, box=None, pad_edge=False, header_style="bold")
    for row in rows:
        table.add_row(*("" if value is None else Text(str(value)) for value in row))
    demo.console.print(table)


def _heading(demo: Demo, title: str) -> None:
    demo.console.print()
    demo.console.rule(f"[bold]{title}", align="left")


def _sql(demo: Demo, sql: str) -> None:
    demo.console.print(Syntax(sql, "postgresql", background_color="default", word_wrap=True))


def _shell(demo: Demo, command: str) -> None:
    demo.console.print(Text(f"$ {command}", style="bold"))


def _timings(demo: Demo) -> None:
    _heading(demo, "How long it took")
    table = Table("", "seconds", box=None, pad_edge=False, header_style="bold")
    table.columns[1].justify = "right"
    for what, seconds in demo.timings:
        table.add_row(what, f"{seconds:.3f}" if seconds < 1 else f"{seconds:.1f}")
    demo.console.print(table)


def _what_next(demo: Demo, *, keep: bool) -> None:
    state = (
        "It is all still running." if keep else "It is stopped; its data is kept. Start it again with `frostline up`."
    )
    default = config.LocalSettings.model_fields["dir"].default
    where = "" if demo.settings.local.dir == default else f" --dir {shlex.quote(str(demo.settings.local.dir))}"
    lines = [
        f"{state} Then try:",
        f"  frostline{where} psql -c '\\d+ demo.readings'",
        f"  frostline{where} psql -c 'EXPLAIN SELECT * FROM demo.readings WHERE id = 1000'",
        f"  frostline{where} psql -c 'SELECT * FROM demo.monthly'      (as any role that may: GRANTs are as they were)",
        f"  frostline{where} status",
        f"  frostline{where} down",
    ]
    demo.console.print(Panel(Text("\n".join(lines)), title="what to try next", title_align="left"))


def _megabytes(size: int) -> str:
    return f"{size / 1e6:,.1f} MB"
