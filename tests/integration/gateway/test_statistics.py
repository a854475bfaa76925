"""After archiving the planner knows the cold partitions as it knew the leaves: same estimates, same join orders."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest

from fix_tiering import World

TABLE = """
CREATE TABLE public.{0} (
    id bigint, ts timestamptz NOT NULL, kind text, rare int, skewed int, customer int NOT NULL, tags text[],
    PRIMARY KEY (id, ts)
) PARTITION BY RANGE (ts);
CREATE TABLE public.{0}_01 PARTITION OF public.{0} FOR VALUES FROM ('2020-01-01') TO ('2020-02-01');
CREATE TABLE public.{0}_02 PARTITION OF public.{0} FOR VALUES FROM ('2020-02-01') TO ('2020-03-01');
CREATE TABLE public.{0}_now PARTITION OF public.{0} FOR VALUES FROM ('2020-03-01') TO (MAXVALUE);
CREATE INDEX ON public.{0} (customer);
INSERT INTO public.{0}
SELECT i, timestamptz '2020-01-01' + i * interval '3 min', (ARRAY['a', 'b', 'c', 'd'])[1 + i % 4],
       CASE WHEN i % 50 = 0 THEN i END, CASE WHEN i % 100 < 90 THEN 0 ELSE i % 100 END, i % 500,
       ARRAY['x', 'y' || i % 7]
FROM generate_series(0, 39999) i;
ANALYZE public.{0};
"""
OTHERS = """
CREATE TABLE public.customers (id int PRIMARY KEY, region int NOT NULL, name text);
INSERT INTO public.customers SELECT i, i % 10, 'customer ' || i FROM generate_series(0, 499) i;
CREATE TABLE public.regions (id int PRIMARY KEY, name text);
INSERT INTO public.regions SELECT i, 'region ' || i FROM generate_series(0, 9) i;
ANALYZE public.customers, public.regions;
"""
COLD = "ts < '2020-03-01'"
QUERIES = [
    "SELECT * FROM {0} WHERE " + COLD,
    "SELECT * FROM {0} WHERE ts >= '2020-01-10' AND ts < '2020-01-20'",
    "SELECT * FROM {0} WHERE kind = 'a' AND " + COLD,
    "SELECT * FROM {0} WHERE skewed = 0 AND " + COLD,
    "SELECT * FROM {0} WHERE skewed = 95 AND " + COLD,
    "SELECT * FROM {0} WHERE rare IS NOT NULL AND " + COLD,
    "SELECT * FROM {0} WHERE customer BETWEEN 100 AND 120 AND " + COLD,
    "SELECT * FROM {0} WHERE tags @> ARRAY['y3'] AND " + COLD,
    "SELECT DISTINCT kind, customer FROM {0} WHERE " + COLD,
    "SELECT customer, count(*) FROM {0} WHERE ts < '2020-02-01' GROUP BY customer",
    "SELECT * FROM {0} e JOIN customers c ON c.id = e.customer JOIN regions r ON r.id = c.region"
    " WHERE r.name = 'region 3' AND e." + COLD,
    "SELECT * FROM {0} e JOIN customers c ON c.id = e.customer WHERE e.skewed = 95 AND e." + COLD,
    "SELECT * FROM {0} a JOIN {0} b ON a.customer = b.customer AND a.ts = b.ts"
    " WHERE a.rare IS NOT NULL AND a.ts < '2020-02-01' AND b.ts < '2020-02-01'",
    "SELECT c.region, count(*) FROM customers c JOIN {0} e ON e.customer = c.id WHERE e.kind = 'b' GROUP BY c.region",
]


def _plan(connection: psycopg.Connection[Any], query: str) -> dict[str, Any]:
    row = connection.execute(f"EXPLAIN (FORMAT JSON) {query}").fetchone()
    assert row is not None
    found: dict[str, Any] = row[0][0]["Plan"]
    return found


def _tables(node: dict[str, Any], name: str) -> list[str]:
    """The tables in the order they are joined, our two counted as one; how each is scanned does not matter."""
    inner = [table for child in node.get("Plans", []) for table in _tables(child, name)]
    own = [node["Relation Name"]] if "Relation Name" in node else []
    found = ["events" if table.startswith((name, "events")) else table for table in own + inner]
    return [table for at, table in enumerate(found) if at == 0 or found[at - 1] != table]


def test_estimates_and_join_orders_are_those_of_the_heap(any_world: World) -> None:
    any_world.run(TABLE.format("plain") + TABLE.format("events") + OTHERS)
    any_world.register("public.events")
    assert len(any_world.archive("public.events")) == 2
    wrong = {}
    with any_world.connect() as connection:
        # An index can only help on a heap; the question is what the planner believes, not what it can use.
        connection.execute("SET enable_indexscan = off; SET enable_bitmapscan = off; SET enable_nestloop = off")
        for query in QUERIES:
            heap, tiered = (_plan(connection, query.format(table)) for table in ("plain", "events"))
            ratio = tiered["Plan Rows"] / heap["Plan Rows"]
            orders = _tables(tiered, "events"), _tables(heap, "plain")
            if not 0.5 <= ratio <= 2 or orders[0] != orders[1]:
                wrong[query] = ratio, orders
    assert wrong == {}


def test_statistics_of_a_leaf_that_was_never_analyzed_come_too(any_world: World) -> None:
    any_world.run(TABLE.format("events").replace("ANALYZE", "-- ANALYZE"))
    any_world.register("public.events")
    any_world.archive("public.events")
    found = any_world.run(
        "SELECT relname, reltuples FROM pg_class WHERE relkind = 'f' AND relname ~ 'events' ORDER BY 1"
    )
    assert found == [("events_01", pytest.approx(14880)), ("events_02", pytest.approx(13920)), ("events_before", 0)]
    columns = any_world.run(
        "SELECT attname, round(null_frac::numeric, 2), CASE WHEN n_distinct > 0 THEN round(n_distinct::numeric) END"
        " FROM pg_stats WHERE tablename = 'events_01' ORDER BY attname"
    )
    assert {(name, float(nulls)) for name, nulls, _ in columns} == {
        *((name, 0.0) for name in ("customer", "id", "kind", "skewed", "tags", "ts")),
        ("rare", 0.98),
    }
    distinct = {name: number for name, _, number in columns}
    assert (distinct["kind"], distinct["customer"]) == (4, 500)
    assert not any_world.run("SELECT FROM pg_foreign_server WHERE srvoptions::text ~ 'use_remote_estimate'")
