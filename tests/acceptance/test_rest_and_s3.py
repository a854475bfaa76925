"""The whole way on a REST catalog and S3: register, archive twice, and read the same rows as before."""

from __future__ import annotations

from fix_lake import Lake

SHAPE = """
CREATE SCHEMA afar;
CREATE TABLE afar.events (
    id bigint, ts timestamptz NOT NULL, v numeric(10,2), note text, j jsonb, u uuid, d date, PRIMARY KEY (id, ts)
) PARTITION BY RANGE (ts);
CREATE TABLE afar.events_01 PARTITION OF afar.events FOR VALUES FROM ('2024-01-01') TO ('2024-02-01');
CREATE TABLE afar.events_02 PARTITION OF afar.events FOR VALUES FROM ('2024-02-01') TO ('2024-03-01');
CREATE TABLE afar.events_now PARTITION OF afar.events FOR VALUES FROM ('2024-03-01') TO (MAXVALUE);
INSERT INTO afar.events
SELECT i, timestamptz '2024-01-01' + i * interval '10 min', i / 7.0, CASE WHEN i % 3 > 0 THEN 'note ' || i % 11 END,
       jsonb_build_object('n', i % 5), md5(i::text)::uuid, date '2024-01-01' + i % 90
FROM generate_series(1, 13000) i;
CREATE TABLE afar.copy AS TABLE afar.events;
"""
QUERIES = (
    "SELECT * FROM {t} ORDER BY id",
    "SELECT count(*), sum(v), min(ts), max(note) FROM {t}",
    "SELECT * FROM {t} WHERE id IN (1, 77, 9000, 12999) ORDER BY id",
    "SELECT note, count(*) FROM {t} WHERE ts < '2024-02-10' GROUP BY note ORDER BY note NULLS FIRST",
    "SELECT count(*) FROM {t} WHERE j @> '{{\"n\": 3}}'",
)


def test_a_table_goes_to_a_rest_catalog_on_s3_and_answers_as_before(rest_lake: Lake) -> None:
    world = rest_lake.world
    world.run(SHAPE)
    world.register("afar.events")
    assert [(str(one.leaf), one.rows) for one in world.archive("afar.events")] == [
        ("afar.events_01", 4463),
        ("afar.events_02", 4176),
    ]
    place = f"s3://{rest_lake.bucket}/rest/afar/events_"
    ((metadata,),) = world.run("SELECT metadata_location FROM frostline.tables")
    assert metadata.startswith(place)
    assert any(name.endswith(".parquet") for name in rest_lake.s3.files(rest_lake.bucket))
    with world.spark_here() as session:
        assert session.table(f"{world.settings.lake.name}.afar.events").count() == 4463 + 4176
    world.restart_gateway()  # nothing cached while archiving
    rest_lake.door.shut()  # readers need the files alone
    for query in QUERIES:
        assert world.run(query.format(t="afar.events")) == world.run(query.format(t="afar.copy")), query
