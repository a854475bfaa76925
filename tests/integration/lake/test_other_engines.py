"""Files that Spark wrote, compacted or deleted rows from are read as Spark reads them, next to files of our own."""

from __future__ import annotations

from typing import Any

import psycopg
import pyarrow.parquet as pq
import pytest

from fix_tiering import World
from frostline.catalog import registry
from frostline.catalog.database import connect
from frostline.lake import catalog as lake

SHAPE = """
CREATE TABLE public.events (id bigint, ts timestamptz NOT NULL, v int, t text, u uuid,
    n numeric(9, 2), m numeric(18, 4), d date, PRIMARY KEY (id, ts))
    PARTITION BY RANGE (ts);
CREATE TABLE public.events_1969 PARTITION OF public.events FOR VALUES FROM ('1969-12-01') TO ('1970-01-01');
CREATE TABLE public.events_01 PARTITION OF public.events FOR VALUES FROM ('2020-01-01') TO ('2020-02-01');
CREATE TABLE public.events_02 PARTITION OF public.events FOR VALUES FROM ('2020-02-01') TO ('2020-03-01');
CREATE TABLE public.events_now PARTITION OF public.events FOR VALUES FROM ('2020-03-01') TO (MAXVALUE);
INSERT INTO public.events
SELECT i, timestamptz '2020-01-01' + i * interval '1 hour', i % 10, 'text ' || i, md5(i::text)::uuid,
    i * -1.01, i * 99999999.9999, date '2020-01-01' - i * 7
FROM generate_series(1, 1400) i;
INSERT INTO public.events SELECT -i, timestamptz '1969-12-25' + i * interval '1 hour', i FROM generate_series(1, 40) i;
CREATE TABLE public.plain AS TABLE public.events;
"""
# What Spark does, and the same in Postgres. Each step stands on the one before.
STEPS = (
    ("CALL {c}.system.rewrite_data_files(table => 'public.events', options => map('rewrite-all', 'true'))", ""),
    (
        "ALTER TABLE {t} SET TBLPROPERTIES ('write.delete.mode' = 'merge-on-read',"
        " 'write.update.mode' = 'merge-on-read', 'write.merge.mode' = 'merge-on-read')",
        "",
    ),
    ("DELETE FROM {t} WHERE id % 7 = 0", "DELETE FROM plain WHERE id % 7 = 0"),
    ("UPDATE {t} SET v = v + 100 WHERE id % 5 = 0", "UPDATE plain SET v = v + 100 WHERE id % 5 = 0"),
    (
        "CALL {c}.system.rewrite_data_files(table => 'public.events', options => map('rewrite-all', 'true'),"
        " where => 'ts < TIMESTAMP \"2020-02-01 00:00:00 UTC\"')",
        "",
    ),
    ("ALTER TABLE {t} ADD COLUMN later int", ""),
    (
        "INSERT INTO {t} VALUES (9001, TIMESTAMP '2020-01-09 00:00:00 UTC', 1, 'x', NULL, 1, 2, NULL, 7)",
        "INSERT INTO plain VALUES (9001, '2020-01-09', 1, 'x', NULL, 1, 2)",
    ),
    ("ALTER TABLE {t} ADD PARTITION FIELD bucket(3, id)", ""),
    ("UPDATE {t} SET t = 'changed' WHERE id % 11 = 0", "UPDATE plain SET t = 'changed' WHERE id % 11 = 0"),
)
# DuckDB reads these wrongly when a file has several: rows were missing, in most runs.
VECTORS = ("ALTER TABLE {t} SET TBLPROPERTIES ('format-version' = '3')", "DELETE FROM {t} WHERE id % 13 = 0")
QUERIES = (
    "SELECT id, ts, v, t, u, n, m, d FROM {} ORDER BY id",
    "SELECT count(*), sum(v), min(t), max(ts) FROM {} WHERE ts < '2020-02-11'",
    "SELECT v, count(*) FROM {} WHERE ts >= '2020-01-20' GROUP BY v ORDER BY v",
    "SELECT id, t FROM {} WHERE id IN (5, 35, 77, 143, 700, 9001) ORDER BY id",
    # DuckDB takes months and days before 1970 for others than Iceberg.
    "SELECT id, v FROM {} WHERE ts >= '1969-12-25 03:00' AND ts <= '1970-01-01' ORDER BY id",
    "SELECT id, v FROM {} WHERE ts = '1969-12-25 05:00'",
)


def test_what_spark_does_to_the_table_is_read_as_spark_reads_it(world: World) -> None:
    world.run(SHAPE)
    world.register("public.events")
    assert [one.rows for one in world.archive("public.events")] == [40, 743, 657]
    assert {"id", "ts", "n", "m", "d"} <= _by_difference(world)
    for spark, postgres in STEPS:
        _spark(world, spark)
        if postgres:
            world.run(f"SET search_path = public; {postgres}")
        for query in QUERIES:
            assert _answer(world, query, "public.events") == _answer(world, query, "public.plain"), (spark, query)
    for spark in VECTORS:
        _spark(world, spark)
    with pytest.raises(psycopg.errors.FeatureNotSupported, match="deletion vectors"):
        _answer(world, QUERIES[0], "public.events")
    assert world.run("SELECT count(*) FROM public.events WHERE ts >= '2020-03-01'") == [(0,)]


def _by_difference(world: World) -> set[str]:
    """Columns whose values are written by their differences: Iceberg's fast reader knows that since version 1.10."""
    with lake.opened(world.settings) as catalog:
        paths = [task.file.file_path for task in catalog.load_table(("public", "events")).scan().plan_files()]
    groups = [pq.read_metadata(path.removeprefix("file://")).row_group(0) for path in paths]
    chunks = [group.column(at) for group in groups for at in range(group.num_columns)]
    return {chunk.path_in_schema for chunk in chunks if "DELTA_BINARY_PACKED" in chunk.encodings}


def _answer(world: World, query: str, table: str) -> list[tuple[Any, ...]]:
    return world.run(query.format(table))


def _spark(world: World, statement: str) -> None:
    """The head then becomes what readers see, as after an operation of our own that Spark does."""
    name = world.settings.lake.name
    with world.spark_here() as session:
        session.sql(statement.format(c=name, t=f"{name}.public.events"))
    with connect(world.dsn) as connection:
        table = lake.load(world.settings, registry.get(connection, "public.events"))
        connection.execute(
            "UPDATE frostline.tables SET snapshot_id = %s, metadata_location = %s",
            (table.metadata.current_snapshot_id, table.metadata_location),
        )
