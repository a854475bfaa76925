"""Options of tables: set, listed, exported and imported; what is wrong is told before anything changes."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import psycopg
import pytest
from typer.testing import CliRunner, Result

from frostline.catalog.database import connect
from frostline.catalog.install import install
from frostline.cli.main import app
from frostline.tiering import register

TABLES = """
CREATE TABLE public.dim (k int PRIMARY KEY); INSERT INTO public.dim VALUES (1);
CREATE TABLE public.events (id bigint, ts timestamptz NOT NULL, k int REFERENCES public.dim, PRIMARY KEY (id, ts))
PARTITION BY RANGE (ts);
CREATE TABLE public.e1 PARTITION OF public.events FOR VALUES FROM ('2020-01-01') TO ('2020-02-01');
CREATE TABLE public."Odd ""one"" more" (n bigint PRIMARY KEY) PARTITION BY RANGE (n);
CREATE TABLE public.o1 PARTITION OF public."Odd ""one"" more" FOR VALUES FROM (0) TO (100);
"""
ODD = 'public."Odd ""one"" more"'
Call = Callable[..., Result]


@pytest.fixture
def call(database: str) -> Call:
    install(database)
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute(TABLES)
    with connect(database) as connection:
        register.register(connection, "public.events", "3 months")
        register.register(connection, ODD, "1000")

    def run(*arguments: str, ok: bool = True) -> Result:
        done = CliRunner().invoke(app, ["--dsn", database, *arguments], catch_exceptions=False)
        assert (done.exit_code == 0) == ok, done.output
        return done

    return run


def values(call: Call, table: str = "public.events") -> dict[str, str]:
    found = json.loads(call("list", table, "--json").stdout)
    return {name: one["value"] for name, one in found[next(iter(found))].items()}


DEFAULTS = {
    "hot": "3 months",
    "retention": "none",
    "premake": "2",
    "cold_duplicates": "error",
    "cold_fk": "check",
    "coalesce": "year after 2 years",
    "merge_mode": "copy-on-write",
    "lake_partition": "auto",
    "sort_order": "primary key",
    "file_size": "128MB",
    "bulk_rows": "10000",
    "fold_rows": "10000",
    "fold_bytes": "64MB",
    "fold_age": "900 s",
    "maintenance": "auto",
    "compact_files": "8",
    "compaction": "sort",
    "backup_window": "604800 s",
}


def test_every_option_is_set_listed_and_given_back(call: Call) -> None:
    assert values(call) == DEFAULTS
    given = {
        "hot": "6 months",
        "retention": "7 years",
        "premake": "4",
        "cold_duplicates": "upsert",
        "cold_fk": "none",
        "coalesce": "quarter after 1 year",
        "merge_mode": "merge-on-read",
        "lake_partition": "day",
        "sort_order": "k desc nulls last, ts",
        "file_size": "32MB",
        "bulk_rows": "500",
        "fold_rows": "5",
        "fold_bytes": "1234",
        "fold_age": "15 minutes",
        "maintenance": "none",
        "compact_files": "3",
        "compaction": "binpack",
        "backup_window": "2 days",
    }
    call("set", "public.events", *(f"{key}={value}" for key, value in given.items()), "--dry-run")
    assert values(call) == DEFAULTS
    done = call("set", "public.events", *(f"{key}={value}" for key, value in given.items()))
    assert "cold_fk          check               none" in done.stdout
    assert values(call) == given | {"fold_age": "900 s", "backup_window": "172800 s"}
    assert "nothing was changed" in call("set", "public.events", "hot=6 months", "fold_age=900").stderr
    call("set", "public.events", *(f"{key}=default" for key in given))
    assert values(call) == DEFAULTS


def test_a_table_is_registered_with_options_or_not_at_all(call: Call, database: str) -> None:
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute(
            "CREATE TABLE public.late (id bigint, ts date, PRIMARY KEY (id, ts)) PARTITION BY RANGE (ts);"
            "CREATE TABLE public.l1 PARTITION OF public.late FOR VALUES FROM ('2020-01-01') TO ('2020-02-01')"
        )
    cases: list[tuple[list[str], str]] = [
        (["--set", "merge_mode=often"], "copy-on-write or merge-on-read"),
        (["--set", "merge_mod=merge-on-read"], "did you mean merge_mode?"),
        (["--set", "merge_mode"], "merge_mode has no value"),
        (["--set", "premake=3", "--premake", "0"], "premake is given twice"),
        (["--set", "retention=2 months"], "is not longer than hot = '3 months'"),
        (["--set", "hot=soon"], "an interval, such as"),
    ]
    for given, words in cases:
        assert words in call("register", "public.late", *given, ok=False).stderr
    assert "not registered" in call("list", "public.late", ok=False).stderr
    chosen = {"merge_mode": "merge-on-read", "retention": "7 years", "hot": "1 year", "bulk_rows": "500"}
    given = [text for key, value in chosen.items() for text in ("--set", f"{key}={value}")]
    given += ["--premake", "0", "--set", "fold_age=1 hour", "--set", "maintenance=default"]
    call("register", "public.late", *given, "--dry-run")
    call("register", "public.late", *given)
    assert values(call, "public.late") == DEFAULTS | chosen | {"premake": "0", "fold_age": "3600 s"}
    assert "registered already" in call("register", "public.late", "--set", "premake=9").stderr
    assert values(call, "public.late")["premake"] == "0"


def test_what_is_wrong_is_named_with_what_is_right(call: Call) -> None:
    cases: list[tuple[str, list[str], list[str]]] = [
        ("public.events", ["hto=1 year"], ["there is no option hto", "did you mean hot?"]),
        ("public.events", ["zzzz=1"], ["the options are: hot, retention"]),
        ("public.events", ["premake"], ["premake has no value"]),
        ("public.events", ["premake=1", "premake=2"], ["premake is given twice"]),
        ("public.events", ["premake=many"], ["premake = 'many' is not allowed", "from 0 to 1000"]),
        ("public.events", ["premake=5", "hot=-1 day"], ["hot = '-1 day' is not allowed", "an interval, such as"]),
        ("public.events", ["hot=7000 years"], ["not allowed", "before 4713 BC"]),
        ("public.events", ["retention=infinity"], ["not allowed", "before 4713 BC"]),
        ("public.events", ["coalesce=year after 9999 years"], ["not allowed", "before 4713 BC"]),
        (ODD, ["hot=3 months"], ["not allowed", "a width of the key"]),
        (ODD, ["coalesce=year after 2 years"], ["not allowed", "1000000 after 5000000"]),
        ("public.events", ["coalesce=week after 1 year"], ["not allowed", "month, quarter, year"]),
        ("public.events", ["fold_age=-1"], ["not allowed"]),
        ("public.events", ["fold_age=99999 years"], ["not allowed"]),
        ("public.events", ["file_size=0"], ["not allowed", "128MB"]),
        ("public.events", ["file_size=3999"], ["not allowed", "from 4kB on"]),
        ("public.events", ["retention=1 month"], ["is not longer than hot"]),
        ("public.events", ["retention=4 months", "hot=5 months"], ["is not longer than hot"]),
        ("public.events", ["lake_partition=year"], ["not allowed", "partitions of the table are shorter (month)"]),
        ("public.events", ["lake_partition=none"], ["not allowed", "rows of several partitions"]),
        ("public.events", ["lake_partition=bucket(4)"], ["not allowed", "rows of all times"]),
        ("public.events", ["lake_partition=100"], ["not allowed", "year, month, day, hour, not longer than"]),
        (ODD, ["lake_partition=day"], ["not allowed", "a width of the key"]),
        (ODD, ["lake_partition=101"], ["not allowed", "are shorter (100)"]),
        ("public.events", ["sort_order=k, nope"], ["not allowed", "the table has no column nope"]),
        ("public.events", ["sort_order=k, ts, K desc"], ["not allowed", "column k is named twice"]),
        ("public.events", ["sort_order=k ascending"], ["not allowed", "columns as in ORDER BY"]),
        ("public.events", ["compaction=zorder"], ["not allowed", "sort or binpack"]),
        ("public.dim", ["hot=1 day"], ["public.dim is not registered"]),
    ]
    for table, given, words in cases:
        done = call("set", table, *given, ok=False)
        for word in words:
            assert word in done.stderr
    assert values(call) == DEFAULTS


def test_what_is_exported_is_imported_as_a_whole_or_not_at_all(call: Call, tmp_path: Path) -> None:
    call("set", "public.events", "hot=5 months", "fold_rows=7", "coalesce=none")
    call("set", ODD, "coalesce=1000 after 5000", "lake_partition=25", "sort_order=n desc")
    exported = call("export").stdout
    assert 'fold_age = "default"  # 900 s, by fold.age' in exported
    file = tmp_path / "options.toml"
    file.write_text(exported)
    assert "nothing was changed" in call("import", str(file)).stderr
    before = values(call), values(call, ODD)
    call("set", "public.events", "hot=1 year", "fold_rows=default", "fold_age=5", "cold_fk=none")
    call("set", ODD, "hot=77", "coalesce=none", "lake_partition=default", "sort_order=default")
    shown = call("import", str(file), "--dry-run").stdout
    assert "would be" in shown
    assert call("import", str(file)).stdout.count("\n") == shown.count("\n")
    assert (values(call), values(call, ODD)) == before
    assert call("export").stdout == exported
    more = exported.replace("premake = 2", "premake = 9", 1)  # right, and not done either
    for change, words in (
        (exported.replace('hot = "5 months"', 'hot = "soon"'), "hot = 'soon' is not allowed"),
        (more.replace("premake = 2", "premak = 2"), "did you mean premake?"),
        (more.replace("premake = 2", "premake = 2.5"), "neither a text"),
        (exported + "[other]\n", "is no table's options"),
        (exported + '[tables."public.dim"]\nhot = "1 day"\n', "public.dim is not registered"),
        (exported + "[", "cannot be read"),
    ):
        file.write_text(change)
        assert words in call("import", str(file), ok=False).stderr
        assert call("export").stdout == exported


def test_whatever_is_set_can_be_exported_and_imported(call: Call, database: str, tmp_path: Path) -> None:
    """Long times, numbers as Postgres takes them, a column that is called like a word of ours."""
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute('ALTER TABLE public.events ADD "default" int')
    call("set", "public.events", "backup_window=30 days", "fold_age=1000001.5")
    call("set", "public.events", 'sort_order="default"', "hot=090 days")
    call("set", ODD, "hot=0100")
    assert values(call)["backup_window"] == "2592000 s"
    file, before = tmp_path / "options.toml", (values(call), values(call, ODD))
    file.write_text(call("export").stdout)
    assert "nothing was changed" in call("import", str(file)).stderr
    call("set", "public.events", "backup_window=default", "fold_age=default", "sort_order=default", "hot=1 day")
    call("set", ODD, "hot=1")
    call("import", str(file))
    assert (values(call), values(call, ODD)) == before


def test_a_file_may_not_name_a_table_twice(call: Call, tmp_path: Path) -> None:
    """Each time by itself its options would do, and together they would not."""
    file = tmp_path / "options.toml"
    file.write_text('[tables."public.events"]\nhot = "2 years"\n[tables.events]\nretention = "1 year"\n')
    told = call("import", str(file), ok=False).stderr
    assert "names public.events twice, as public.events and as events; nothing was changed" in " ".join(told.split())
    assert values(call) == DEFAULTS


def test_a_file_that_is_no_text_is_told_so(call: Call, tmp_path: Path) -> None:
    file = tmp_path / "options.toml"
    file.write_bytes(b'[tables."public.events"]\nhot = "\xff"\n')
    told = call("import", str(file), ok=False).stderr
    assert "options.toml cannot be read: 'utf-8' codec can't decode byte 0xff" in " ".join(told.split())


def test_cold_fk_takes_its_triggers_away_and_brings_them_back(call: Call, database: str) -> None:
    def guards() -> list[tuple[str, ...]]:
        with psycopg.connect(database) as connection:
            return connection.execute(
                "SELECT tgname FROM pg_trigger WHERE tgrelid = 'public.dim'::regclass AND NOT tgisinternal UNION ALL"
                " SELECT conname FROM pg_constraint WHERE conrelid = to_regclass('frostline_delta.references_1_1')"
                " ORDER BY 1"
            ).fetchall()

    first = guards()
    assert len(first) == 4
    call("set", "public.events", "cold_fk=none")
    assert guards() == []
    call("set", "public.events", "cold_fk=check")
    assert guards() == first
