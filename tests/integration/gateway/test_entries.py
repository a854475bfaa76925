"""Every entry of the allow-list is compared with Postgres at the edges of its types, and is answered by DuckDB."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import pytest

from frostline.gateway.aggregates import AGGREGATES, ANYTHING, Aggregate
from frostline.gateway.expressions import comparisons, functions, grouped
from frostline.gateway.expressions.types import BYTE_ORDERED_CHAR, FLOATS
from frostline.gateway.operators import ENTRIES, GROUPED, MIRRORED, SORTED, Entry
from integration.gateway import entries
from integration.gateway.entries import COLUMNS
from integration.gateway.pair import COLD, Pair, agree
from integration.gateway.world import FIRST_EDGE, rows

SIDE_BY_SIDE = 60
EDGE_ROWS = f"(id >= '{FIRST_EDGE}'::bigint)"


class Watched(dict[Any, Any]):
    """A list that remembers what was looked up and found in it."""

    def __init__(self, known: Mapping[Any, Any]) -> None:
        super().__init__(known)
        self.used: set[Any] = set()

    def get(self, key: Any, default: Any = None) -> Any:
        if key in self:
            self.used.add(key)
        return super().get(key, default)


@pytest.fixture
def watched(monkeypatch: pytest.MonkeyPatch) -> Watched:
    found = Watched(ENTRIES)
    for module in (comparisons, functions):
        monkeypatch.setattr(module, "ENTRIES", found)
    return found


def lacking(pair: Pair) -> set[str]:
    """Kinds of text that the table has no column of under the database's collation; another database's table has."""
    icu = rows(pair.connection, "SELECT 1 FROM pg_database WHERE datname = current_database() AND datlocprovider = 'i'")
    return {BYTE_ORDERED_CHAR} if icu else {"text", "bpchar"}


def _known(pair: Pair, watched: Watched, expressions: Iterable[str], entry: Entry) -> Iterator[str]:
    """Those that DuckDB is asked for by this very entry."""
    asked = {(entry.name, entry.arguments)}
    if entry.constants == (0,):  # a constant is compared from the right
        asked = {(MIRRORED[entry.name], entry.arguments[::-1])}
    for expression in expressions:
        watched.used.clear()
        if pair.translated(f"SELECT {expression} FROM {{t}}") is not None and asked <= watched.used:
            yield expression


def test_an_entry_has_the_same_values(pair: Pair, watched: Watched) -> None:
    known: dict[str, bool] = {}  # and whether it is a float
    missed = set()
    for key, entry in ENTRIES.items():
        result = entry.arguments[0] if entry.result == "first" else entry.result
        found = list(_known(pair, watched, entries.safe(entry), entry))
        known |= dict.fromkeys(found, result in FLOATS)
        if not found:
            missed.add(key)
    assert {key for key in missed if not lacking(pair) & set(key[1])} == set()
    for floats in (False, True):
        wanted = [expression for expression, is_float in known.items() if is_float == floats]
        for expressions in _parts(wanted, SIDE_BY_SIDE):
            _same(pair, expressions, floats=floats)


def test_an_entry_that_can_fail_fails_alike(pair: Pair, watched: Watched) -> None:
    missing = lacking(pair)
    for key, entry in ENTRIES.items():
        if entry.hazard and not missing & set(key[1]):
            (expression,) = _known(pair, watched, entries.failing(entry), entry)
            query = f"SELECT {expression} FROM {{t}} WHERE {EDGE_ROWS}"
            tiered, plain = pair.remotely(query, f"{query} AND {COLD}")
            assert isinstance(plain, str), query
            assert agree(tiered, plain), query


def _same(pair: Pair, expressions: Sequence[str], *, floats: bool) -> None:
    query = f"SELECT {', '.join(['id', *expressions])} FROM {{t}} WHERE {EDGE_ROWS}"
    before = pair.answered("duckdb")
    tiered, plain = pair.remotely(query, f"{query} AND {COLD}")
    assert not isinstance(plain, str), (plain, query)
    assert not isinstance(tiered, str), (tiered, query)
    if floats:  # DuckDB prints 1.0 and inf, which are read as 1 and Infinity
        tiered, plain = ([tuple(value and repr(float(value)).encode() for value in row) for row in found]
                         for found in (tiered, plain))  # fmt: skip
    if not agree(tiered, plain):
        assert len(expressions) > 1, (query, set(tiered) ^ set(plain))
        for expression in expressions:
            _same(pair, [expression], floats=floats)
    assert pair.answered("duckdb") == before + 1, query


def _parts(items: list[str], size: int) -> Iterator[list[str]]:
    return (items[start : start + size] for start in range(0, len(items), size))


def test_an_aggregate_has_the_same_values(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    watched = Watched(AGGREGATES)
    monkeypatch.setattr(grouped, "AGGREGATES", watched)
    missing = lacking(pair)
    if pair.connection.info.server_version < 180000:
        missing = missing | {"bytea"}  # it has no least and greatest there
    written = [one for key, entry in AGGREGATES.items() if key[1] not in missing for one in _aggregates(entry)]
    known = [one for one in written if pair.translated(f"SELECT {one} FROM {{t}}") is not None]
    assert watched.used | {("count", ANYTHING, False)} == {key for key in AGGREGATES if key[1] not in missing}
    before = pair.answered("duckdb")
    for where in ("(b IS NOT NULL)", "(id IS NULL)"):
        query = f"SELECT {', '.join(known)} FROM {{t}} WHERE {where}"
        assert agree(*pair.remotely(query, f"{query} AND {COLD}")), query
        query = f"SELECT mood, {', '.join(known)} FROM {{t}} WHERE {where} GROUP BY 1"
        assert agree(*pair.remotely(query, query.replace("WHERE", f"WHERE {COLD} AND"))), query
    assert pair.answered("duckdb") == before + 4


def _aggregates(entry: Aggregate) -> Iterator[str]:
    columns = {"*": ("*",), ANYTHING: ("j", "arr", "f8", "t")}.get(entry.argument) or COLUMNS[entry.argument]
    for column in columns:
        yield f"{entry.name}({'DISTINCT ' if entry.distinct else ''}{column})"
        yield f"{entry.name}({'DISTINCT ' if entry.distinct else ''}{column}) FILTER (WHERE (i2 > 0))"


def test_rows_are_grouped_and_ordered_alike(pair: Pair) -> None:
    before, asked = pair.answered("duckdb"), 0
    for name in (GROUPED | SORTED) - lacking(pair):
        queries = [(query, query.replace("{cold}", "(id IS NOT NULL)")) for query in _arranged(name)]
        known = [one for one in queries if pair.translated(one[1]) is not None]
        assert known, name
        for query, remote in known:
            plain = query.replace("SELECT ch", "SELECT ch::text")  # what reads the answer pads it
            found = pair.remotely(remote, plain.replace("{cold}", COLD))
            assert agree(*found, ordered="ORDER" in query), query
        asked += len(known)
    assert pair.answered("duckdb") == before + asked


def _arranged(name: str) -> Iterator[str]:
    for column in COLUMNS[name]:
        if name in GROUPED:
            yield f"SELECT {column}, count(*) FROM {{t}} WHERE {{cold}} GROUP BY 1"
        if name in SORTED:
            for order in ("ASC NULLS FIRST", "DESC NULLS LAST"):
                yield f"SELECT id FROM {{t}} WHERE {{cold}} ORDER BY {column} {order}, id"
