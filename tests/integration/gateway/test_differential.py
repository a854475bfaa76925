"""Every query answers over the tiered table, byte for byte, what it answers over the plain copy."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import psycopg
import pytest

from integration.gateway.conftest import LOCALES
from integration.gateway.pair import COLD, Pair, agree
from integration.gateway.queries import ERRORS, FILTERS, ORDERED, QUERIES, written
from integration.gateway.world import rows

PARTITIONWISE = ("enable_partitionwise_aggregate", "enable_partitionwise_join")
ZONES = ("America/New_York", "Pacific/Apia")
MOMENTS = [condition for condition in FILTERS if any(name in condition for name in ("ts", "tz", "tm", "d::", "d ="))]


@contextlib.contextmanager
def setting(pair: Pair, **values: str) -> Iterator[None]:
    """Settings of the client's session, for a while."""
    for name, value in values.items():
        pair.connection.execute("SELECT set_config(%s, %s, false)", [name, value])
    yield
    for name in values:
        pair.connection.execute(f"RESET {name}")
    pair.connection.execute("SET timezone = 'UTC'")


@pytest.mark.parametrize("condition", FILTERS)
def test_a_filter_selects_the_same_rows(pair: Pair, condition: str) -> None:
    tiered, plain = pair.both(f"SELECT id, t, n, d FROM {{t}} WHERE {condition}")
    assert not isinstance(plain, str)
    assert agree(tiered, plain)


@pytest.mark.parametrize("query", QUERIES)
def test_a_query_has_the_same_rows(pair: Pair, query: str) -> None:
    tiered, plain = pair.both(written(query))
    assert not isinstance(plain, str)
    assert agree(tiered, plain)


@pytest.mark.parametrize("query", ORDERED)
def test_an_ordered_query_has_the_same_rows_in_the_same_order(pair: Pair, query: str) -> None:
    tiered, plain = pair.both(written(query))
    assert not isinstance(plain, str)
    assert agree(tiered, plain, ordered=True)


@pytest.mark.parametrize("condition", ERRORS)
def test_an_error_is_the_same_error(pair: Pair, condition: str) -> None:
    found = []
    for table in ("events", "copy"):
        with pytest.raises(psycopg.Error) as caught:
            pair.connection.execute(f"SELECT id FROM {table} WHERE {condition}")
        found.append((caught.value.sqlstate, caught.value.diag.message_primary))
    assert found[0] == found[1]


@pytest.mark.parametrize("query", [query for query in QUERIES if "count(" in query or "JOIN" in query])
def test_aggregates_and_joins_by_partition(pair: Pair, query: str) -> None:
    with setting(pair, **dict.fromkeys(PARTITIONWISE, "on")):
        assert agree(*pair.both(written(query)))


@pytest.mark.parametrize("zone", ZONES)
def test_the_clients_time_zone_changes_nothing(pair: Pair, zone: str) -> None:
    with setting(pair, timezone=zone):
        for condition in MOMENTS:
            assert agree(*pair.both(f"SELECT id, ts, tz, tm, d FROM {{t}} WHERE {condition}")), condition


def test_most_filters_that_arrive_are_answered_by_duckdb(pair: Pair) -> None:
    """Else the suite would compare Postgres with itself."""
    known = [condition for condition in FILTERS if pair.translated(f"SELECT id FROM {{t}} WHERE {condition}")]
    assert len(known) > len(FILTERS) // 3
    assert {"f8 > 2166", "t LIKE 'a_b'", "i4 % 7 < 0", "n * 2.50 = 3.75"} <= set(known)


def test_every_aggregate_of_a_cold_partition_that_is_listed_is_answered_by_duckdb(pair: Pair) -> None:
    query = (
        "SELECT mood, count(*), count(j), sum(i4), sum(i8), sum(n), avg(i4), avg(n2), min(cc), max(d), bool_and(b), "
        f"count(DISTINCT v) FROM {{t}} WHERE {COLD} GROUP BY 1 HAVING ((count(*) > 1))"
    )
    assert pair.translated(query) is not None
    assert agree(*pair.remotely(query, query))


def test_text_has_an_order_in_duckdb_only_where_that_is_the_databases(pair: Pair) -> None:
    icu = rows(pair.connection, "SELECT 1 FROM pg_database WHERE datname = current_database() AND datlocprovider = 'i'")
    for query in ("SELECT max(t) FROM {t}", "SELECT id FROM {t} ORDER BY t", "SELECT id FROM {t} WHERE t < 'b'"):
        assert (pair.translated(query) is None) == bool(icu)
        assert pair.translated(query.replace("t)", "cc)").replace("BY t", "BY cc").replace("t <", "cc <")) is not None


CHANGES = """
CREATE TABLE kept AS SELECT * FROM copy WHERE {cold} AND abs(id) % 5 = 0;
UPDATE copy SET t = cc, v = left(t, 20), n = -n, b = NOT b, d = date2, i4 = i4 / 2, f8 = f4,
    tm = tz AT TIME ZONE 'UTC', u = NULL, x_bit = ~ x_bit, x_inet = x_cidr, x_pair = ROW(NULL, NULL),
    x_amount = -x_amount, x_int4range = x_int4range * '[2,6)', x_moods = 'happy', x_name = x_code
WHERE {cold} AND abs(id) % 10 = 0;
INSERT INTO frostline_delta.events
SELECT *, 'U', row_number() OVER (), 0 FROM copy WHERE {cold} AND abs(id) % 10 = 0;
INSERT INTO frostline_delta.events SELECT *, 'T', 1000000 + row_number() OVER (), 0 FROM kept WHERE abs(id) % 10 = 5;
DELETE FROM copy WHERE {cold} AND abs(id) % 10 = 5;
ANALYZE frostline_delta.events
"""
# What depends on the order in which rows come.
ROUNDED = ("corr(", "regr_", "stddev", "var_", "variance", "sum(f", "avg(f")
UNDONE = "TRUNCATE frostline_delta.events; DELETE FROM copy USING kept WHERE copy.id = kept.id AND copy.ts = kept.ts;"
UNDONE += "INSERT INTO copy SELECT * FROM kept; DROP TABLE kept"


@pytest.fixture
def changed(pair: Pair) -> Iterator[Pair]:
    """A tenth of the cold rows have other values, another tenth is gone, and nothing is folded."""
    pair.connection.execute(CHANGES.replace("{cold}", COLD))
    yield pair
    pair.connection.execute(UNDONE)


def test_rows_that_are_changed_and_not_folded(changed: Pair, request: pytest.FixtureRequest) -> None:
    """Each of the databases is asked a sixth of the questions."""
    count = rows(changed.connection, "SELECT count(*) FROM frostline_delta.events GROUP BY _op")
    assert all(int(number or 0) > 100 for (number,) in count)
    assert len(count) == 2
    sixth = slice(list(LOCALES).index(request.node.callspec.params["pair"]), None, 6)
    for condition in FILTERS[sixth]:
        assert agree(*changed.both(f"SELECT id, t, n, d FROM {{t}} WHERE {condition}")), condition
    for query in QUERIES[sixth]:
        if not any(name in query for name in ROUNDED):
            assert agree(*changed.both(written(query))), query
    for query in ORDERED[sixth]:
        assert agree(*changed.both(written(query)), ordered=True), query


def test_prepared_statements_with_generic_plans(pair: Pair) -> None:
    """Values travel as parameters of the remote statement."""
    types = "bigint, timestamptz, text, numeric, date, uuid, boolean, int[], text[], float8, bytea, timestamp"
    values = r"5, '0044-03-15 12:00:00+00 BC', 'row%', 12.345, '0044-03-15 BC', md5('77')::uuid, true, "
    values += r"'{1,NULL,7}', ARRAY['\.', 'a\b', '', NULL], 'NaN', '\xff', '1969-12-31 23:59:59.999999'"
    conditions = (
        *("id = $1", "id = $1 AND t LIKE $3", "ts = $2", "t LIKE $3 AND id < 30", "n = $4", "d = $5", "u = $6"),
        *("b = $7 AND id < 10", "i4 = ANY ($8) AND id < 100", "t = ANY ($9)", "t <> ALL ($9)", "id = $1 + 1"),
        *("f8 = $10", "f8 < $10 AND id < 100", "by = $11", "tm < $12", "n * 2 > $4 AND id < 60", "i4 % $1::int = 0"),
    )
    with setting(pair, plan_cache_mode="force_generic_plan"):
        for number, condition in enumerate(conditions):
            found = []
            for table in ("events", "copy"):
                name = f"{table}_{number}"
                pair.connection.execute(
                    f"PREPARE {name} ({types}) AS SELECT id FROM {table} WHERE {condition} ORDER BY id"
                )
                found.append(rows(pair.connection, f"EXECUTE {name} ({values})"))
                assert rows(pair.connection, f"EXECUTE {name} ({', '.join(['NULL'] * 12)})") == []
            assert found[0] == found[1], condition
            assert bool(found[1]) == (condition != "t <> ALL ($9)"), condition
        pair.connection.execute("DEALLOCATE ALL")


FUNCTION = """
CREATE OR REPLACE FUNCTION summed(low int, high int) RETURNS TABLE (kind text, total numeric, seen bigint)
LANGUAGE plpgsql AS $$
DECLARE
    found record;
BEGIN
    FOR found IN SELECT v, sum(n) AS s, count(*) AS c FROM {t} WHERE i4 > low AND i4 < high GROUP BY v ORDER BY v LOOP
        kind := found.v; total := found.s; seen := found.c;
        IF EXISTS (SELECT FROM {t} WHERE v = found.v AND i4 = low + 1) THEN
            seen := seen * 1000;
        END IF;
        RETURN NEXT;
    END LOOP;
END $$
"""


def test_functions_in_plpgsql(pair: Pair) -> None:
    found = []
    for table in ("events", "copy"):
        pair.connection.execute(FUNCTION.replace("{t}", table))
        for mode in ("force_generic_plan", "force_custom_plan"):
            with setting(pair, plan_cache_mode=mode):
                found.append(rows(pair.connection, "SELECT * FROM summed(3, 300)"))
    assert found[0]
    assert all(other == found[0] for other in found)


def test_cursors_that_scroll(pair: Pair) -> None:
    moves = ("NEXT", "5", "PRIOR", "BACKWARD 3", "LAST", "FIRST", "ABSOLUTE 7", "RELATIVE -2", "BACKWARD ALL", "ALL")
    query = f"SELECT id, t FROM {{}} WHERE {COLD} AND i4 > 5 ORDER BY id"
    with pair.connection.transaction():
        for table in ("events", "copy"):
            pair.connection.execute(f"DECLARE {table}_c SCROLL CURSOR FOR {query.format(table)}")
        for move in moves:
            tiered, plain = (rows(pair.connection, f"FETCH {move} FROM {table}_c") for table in ("events", "copy"))
            assert tiered == plain, move
