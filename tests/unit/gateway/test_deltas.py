"""Versions kept for the next reader: the right ones, and no longer than somebody uses them."""

from __future__ import annotations

import duckdb
import pytest

from frostline.gateway import deltas
from frostline.gateway.deltas import Deltas


@pytest.fixture
def engine() -> duckdb.DuckDBPyConnection:
    return duckdb.connect()


def made(engine: duckdb.DuckDBPyConnection, name: str) -> str:
    engine.execute(f"CREATE TABLE {name} AS SELECT 1")
    return name


def tables(engine: duckdb.DuckDBPyConnection) -> set[str]:
    return {name for (name,) in engine.execute("SELECT table_name FROM duckdb_tables()").fetchall()}


def test_only_the_same_versions_are_taken_again(engine: duckdb.DuckDBPyConnection) -> None:
    kept = Deltas(engine)
    kept.keep(("t", 1), 5, 17, made(engine, "a"))
    assert kept.take(("t", 1), 5, 17) == "a"
    assert kept.take(("t", 1), 6, 18) is None
    assert kept.take(("t", 1), 5, 18) is None
    assert kept.take(("t", 2), 5, 17) is None


def test_a_table_goes_when_it_is_replaced_and_nobody_uses_it(engine: duckdb.DuckDBPyConnection) -> None:
    kept = Deltas(engine)
    kept.keep(("t", 1), 5, 17, made(engine, "a"))
    assert kept.take(("t", 1), 5, 17) == "a"
    kept.keep(("t", 1), 6, 18, made(engine, "b"))
    kept.give_back("a")
    assert tables(engine) == {"a", "b"}
    kept.give_back("a")
    assert tables(engine) == {"b"}
    kept.give_back("b")
    assert kept.take(("t", 1), 6, 18) == "b"


def test_no_more_is_kept_than_fits(engine: duckdb.DuckDBPyConnection, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deltas, "_MOST_ROWS", 10)
    kept = Deltas(engine)
    for number in range(4):
        kept.keep(("t", number), 4, number, made(engine, f"t{number}"))
        kept.give_back(f"t{number}")
    assert tables(engine) == {"t2", "t3"}
