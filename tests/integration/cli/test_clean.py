"""`frostline clean` shows what dead runs left, removes it, and touches nothing that is in use."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from fix_commands import Run, failed_clearly
from fix_tiering import lake_directory
from frostline import config
from frostline.catalog import registry
from frostline.catalog.database import Connection, connect
from frostline.catalog.install import install
from frostline.lake import catalog as lake
from frostline.tiering import register
from frostline.tiering.archive import capture, plan, steps

EVENTS = """
CREATE TABLE public.events (id bigint, ts timestamptz NOT NULL, v int, PRIMARY KEY (id, ts)) PARTITION BY RANGE (ts);
CREATE TABLE public.events_01 PARTITION OF public.events FOR VALUES FROM ('2020-01-01') TO ('2020-02-01');
CREATE TABLE public.events_now PARTITION OF public.events FOR VALUES FROM ('2020-02-01') TO (MAXVALUE);
INSERT INTO public.events VALUES (1, '2020-01-05', 1), (2, '2020-01-06', 2);
"""


@pytest.fixture
def died(database: str, tmp_path: Path) -> Iterator[tuple[str, Path, Connection]]:
    """A run that captured a change, wrote a file, and died: its DSN, the file, and a connection."""
    install(database)
    with connect(database) as connection:
        connection.execute(EVENTS)
        register.register(connection, "public.events", "3 months")
        managed = registry.get(connection, "public.events")
        settings = config.load({"dsn": database, "lake.warehouse": str(tmp_path / "lake")}).settings
        lake.ensure_table(settings, managed, set())
        operation = steps.begin(connection, managed, plan.expired(connection, managed)[0])
        with steps.step(connection, operation, 1, "capture"):
            capture.start(connection, operation)
        connection.execute("UPDATE public.events_hot SET v = 7 WHERE id = 1")
        file = lake_directory(database, tmp_path / "lake", "events") / "data" / "period=2020-01" / "left.parquet"
        file.parent.mkdir(parents=True)
        file.write_bytes(b"PAR1")
        os.utime(file, (time.time() - 7200,) * 2)
        yield database, file, connection


def clean(frostline: Run, dsn: str, tmp_path: Path, *arguments: str) -> list[str]:
    done = frostline("--dsn", dsn, "clean", *arguments, env={"FROSTLINE_LAKE_WAREHOUSE": str(tmp_path / "lake")})
    assert done.returncode == 0, done.stderr
    return [line for line in done.stdout.splitlines()[1:] if line.strip()]


def test_what_the_next_run_goes_on_with_is_kept(
    frostline: Run, died: tuple[str, Path, Connection], tmp_path: Path
) -> None:
    dsn, file, connection = died
    for arguments in (("--dry-run",), ("public.events",)):
        lines = clean(frostline, dsn, tmp_path, *arguments)
        assert lines
        assert all("kept" in line for line in lines), lines
    assert "ended at capture; `frostline archive` goes on with it" in lines[0]
    assert file.exists()
    assert connection.execute("SELECT count(*) FROM frostline_delta.touched_1_keys").fetchone() == (1,)


def test_what_nobody_needs_is_shown_and_removed(
    frostline: Run, died: tuple[str, Path, Connection], tmp_path: Path
) -> None:
    dsn, file, connection = died
    # Switched off and on again: the capture may have missed something, so nobody can go on with it.
    connection.execute("ALTER TABLE public.events_01 DISABLE TRIGGER ALL")
    connection.execute("ALTER TABLE public.events_01 ENABLE TRIGGER ALL")
    shown = clean(frostline, dsn, tmp_path, "--dry-run")
    assert [line.split()[1] for line in shown] == ["operation", "triggers", "captured", "file"]
    assert all("would be removed" in line for line in shown), shown
    assert file.exists()
    removed = clean(frostline, dsn, tmp_path)
    assert [line.split()[1] for line in removed] == ["operation", "triggers", "captured", "file"]
    assert all(line.rstrip().endswith("removed") for line in removed), removed
    assert not file.exists()
    assert connection.execute("SELECT count(*) FROM frostline_delta.events_1").fetchone() == (0,)
    assert connection.execute("SELECT to_regclass('frostline_delta.touched_1_keys')").fetchone() == (None,)
    assert connection.execute(
        "SELECT count(*) FROM pg_trigger WHERE tgrelid = 'public.events_01'::regclass AND tgname LIKE '!frostline%'"
    ).fetchone() == (0,)
    assert connection.execute("SELECT state, error FROM frostline.operations").fetchone() == (
        "failed",
        "the run ended at capture; a later one began anew",
    )
    assert connection.execute("SELECT v FROM public.events_hot WHERE id = 1").fetchone() == (7,)
    again = frostline("--dsn", dsn, "clean", env={"FROSTLINE_LAKE_WAREHOUSE": str(tmp_path / "lake")})
    assert (again.stdout, again.stderr.strip()) == ("", "Nothing is left over.")


def test_a_young_file_may_still_be_written(frostline: Run, died: tuple[str, Path, Connection], tmp_path: Path) -> None:
    dsn, file, connection = died
    connection.execute("ALTER TABLE public.events_01 DISABLE TRIGGER ALL")
    os.utime(file)
    assert "may still be written" in clean(frostline, dsn, tmp_path)[-1]
    assert file.exists()
    assert "removed" in clean(frostline, dsn, tmp_path, "--older-than", "0")[-1]
    assert not file.exists()


def test_nothing_is_cleaned_under_a_run(frostline: Run, died: tuple[str, Path, Connection], tmp_path: Path) -> None:
    dsn, file, _ = died
    with psycopg.connect(dsn) as run:
        run.execute("SELECT pg_advisory_lock(734621502, 1)")
        env = {"FROSTLINE_LAKE_WAREHOUSE": str(tmp_path / "lake")}
        failed_clearly(frostline("--dsn", dsn, "clean", env=env), "another run is archiving or folding public.events")
        shown = frostline("--dsn", dsn, "clean", "--dry-run", env=env)
        assert (shown.returncode, "A run is at work on public.events: some of this is its own" in shown.stderr) == (
            0,
            True,
        )
    assert file.exists()
