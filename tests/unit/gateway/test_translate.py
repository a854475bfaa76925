"""What DuckDB is asked, and what is left to Postgres."""

from __future__ import annotations

import pytest

from frostline.catalog.cold import ColdColumn, ColdTable
from frostline.gateway.constants import Unknown, range_condition
from frostline.gateway.translate import known_part, parse, translate
from frostline.model.bounds import parse_range
from frostline.model.types import storage

NUMERIC_10_2 = ((10 << 16) | 2) + 4


def column(number: int, name: str, typname: str, typmod: int = -1, *, byte_ordered: bool = False) -> ColdColumn:
    return ColdColumn(
        number=number,
        name=name,
        type=typname,
        oid=0,
        typmod=typmod,
        typname=typname,
        domain=False,
        enum=False,
        storage=storage(typname, typmod),
        lake_name=name,
        collation=("pg_catalog", "C" if byte_ordered else "default") if typname == "text" else None,
        deterministic=True,
        byte_ordered=byte_ordered,
    )


COLUMNS = [
    column(1, "id", "int8"),
    column(2, "ts", "timestamptz"),
    column(3, "flag", "bool"),
    column(4, "n", "numeric", NUMERIC_10_2),
    column(5, "t", "text"),
    column(6, "d", "date"),
    column(7, "u", "uuid"),
    column(8, "c", "text", byte_ordered=True),
    column(9, "f", "float8"),
    column(10, "tm", "timestamp"),
    column(11, "big", "numeric"),
    column(12, "i", "int4"),
]
TABLE = ColdTable(
    id=1,
    schema="public",
    name="events",
    seam=None,
    snapshot_id=1,
    metadata_location="x",
    delta=("frostline_delta", "events"),
    key=COLUMNS[1],
    primary_key=(COLUMNS[0], COLUMNS[1]),
    columns={found.name: found for found in COLUMNS},
)


def where(condition: str, *parameters: str | None) -> str:
    tail = translate(parse(f'SELECT id FROM "s"."t" WHERE ({condition})'), TABLE, parameters).tail
    return tail.removeprefix(" WHERE ")


@pytest.mark.parametrize(
    ("condition", "emitted"),
    [
        ("id = 5", "(c1 = (5))"),
        ("(5 < id)", "(c1 > (5))"),
        ("id = (-5)", "(c1 = (-5))"),
        ("id = '5'::bigint", "(c1 = (5))"),
        ("id = i", "(c1 = c12)"),
        ("id <> 5::bigint", "(c1 <> (5))"),
        ("id BETWEEN 1 AND 2", "(c1 >= (1) AND c1 <= (2))"),
        ("id IN (1, NULL)", "(c1 IN ((1), NULL))"),
        ("id = ANY ('{1,NULL}'::integer[])", "(c1 IN ((1), NULL))"),
        ("id = ANY (ARRAY[1, $1::bigint])", "(c1 IN ((1), (7)))"),
        ("id = ANY ('{}'::integer[])", "false"),
        ("id <> ALL ('{}'::integer[])", "true"),
        ("id <> ALL ('{1,2}'::integer[])", "(c1 NOT IN ((1), (2)))"),
        ("id IS NULL", "(c1 IS NULL)"),
        ("(NOT flag) OR (t IS NOT NULL)", "((NOT c3) OR (c5 IS NOT NULL))"),
        ("flag = true", "(c3 = true)"),
        ("ts >= '2026-01-01 00:00:00+00'::timestamp with time zone", "(c2 >= make_timestamptz(1767225600000000))"),
        ("ts >= '2026-01-01 05:30:00+05:30'", "(c2 >= make_timestamptz(1767225600000000))"),
        ("ts < '1969-12-31 19:00:00.000001-05'", "(c2 < make_timestamptz(1))"),
        ("tm = '1970-01-01 00:00:00'", "(c10 = make_timestamp(0))"),
        ("d = '1969-12-31'::date", "(c6 = (DATE '1970-01-01' + (-1)))"),
        ("n = 1.50", "(c4 = CAST('1.5' AS DECIMAL(10, 2)))"),
        ("n < (-1)::numeric", "(c4 < CAST('-1.0' AS DECIMAL(10, 2)))"),
        ("t = 'it''s'::text", "(c5 = 'it''s')"),
        ("c < 'x'", "(c8 < 'x')"),
        ("t = $1", "(c5 = '7')"),
    ],
)
def test_what_is_known_is_emitted_exactly(condition: str, emitted: str) -> None:
    assert where(condition, "7") == emitted


@pytest.mark.parametrize(
    "condition",
    [
        "t < 'x'",  # the database's collation
        "t = c",  # two collations
        "u < 'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11'::uuid",
        "u = 'A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11'",
        "id = 1.5",
        "id = 99999999999999999999",
        "id = '5'::text",
        "(id)::text = '5'",
        "id = i + 1",
        "id / 2 = 1",
        "n = 1.555",
        "n = 123456789.5",
        "n = 'NaN'::numeric",
        "big = 1",
        "f = 1.5",
        "ts = 'infinity'",
        "ts > '2026-01-01'",
        "ts > '2026-01-01'::date",
        "ts > '2026-01-01 00:00:00'::timestamp without time zone",
        "tm > '2026-01-01 00:00:00+00'",
        "d = 'today'",
        "flag IS TRUE",
        "flag = 'yes'",
        "t ~~ 'a%'",
        "t ~ 'a'",
        "lower(t) = 'a'",
        "t = E'a\\\\b'",
        "id = ANY ('[0:1]={1,2}'::integer[])",
        "id = ANY ('{{1},{2}}'::integer[])",
        "id > ANY ('{1}'::integer[])",
        "id = ALL ('{1}'::integer[])",
        "(id, i) = (1, 2)",
        "id IS DISTINCT FROM 5",
        "id = (SELECT 5)",
        "id = $2",
        "r1.id = 5",
        "nothing = 5",
        "id BETWEEN SYMMETRIC 2 AND 1",
        'id OPERATOR("x".=) 5',
        "t COLLATE \"C\" = 'x'",
    ],
)
def test_what_is_not_known_is_left_to_postgres(condition: str) -> None:
    with pytest.raises(Unknown):
        where(condition, "7")


@pytest.mark.parametrize(
    "query",
    [
        "SELECT DISTINCT id FROM {}",
        "SELECT id FROM {} GROUP BY id",
        "SELECT count(*), id FROM {}",
        "SELECT count(id) FROM {}",
        "SELECT count(*) FILTER (WHERE flag) FROM {}",
        "SELECT count(DISTINCT id) FROM {}",
        "SELECT id + 1 FROM {}",
        "SELECT id FROM {} ORDER BY t ASC NULLS LAST",
        "SELECT id FROM {} ORDER BY id USING <",
        "SELECT id FROM {} r1",
        "SELECT id FROM {} JOIN {} ON true",
        "SELECT id FROM {}, {}",
        "SELECT id FROM {} LIMIT i",
        "SELECT id FROM {} FETCH FIRST 3 ROWS WITH TIES",
        "WITH x AS (SELECT 1) SELECT id FROM {}",
        "SELECT id FROM {} UNION SELECT id FROM {}",
        "SELECT id FROM ONLY {}",
        "SELECT id, row_number() OVER () FROM {}",
        "SELECT id AS x FROM {} WINDOW w AS ()",
    ],
)
def test_other_shapes_are_left_to_postgres(query: str) -> None:
    with pytest.raises(Unknown):
        translate(parse(query.format('"s"."t"', '"s"."t"')), TABLE)


def test_a_whole_select() -> None:
    query = (
        'SELECT id, NULL, ctid, d FROM "s"."t" WHERE ((id > 3)) ORDER BY ts DESC NULLS FIRST LIMIT 5::bigint OFFSET 2'
    )
    found = translate(parse(query), TABLE)
    assert [field.name for field in found.fields] == ["id", "?column?", "ctid", "d"]
    assert found.outputs[:3] == ("CAST(c1 AS VARCHAR)", "CAST(NULL AS VARCHAR)", "'(0,1)'")
    assert found.tail == " WHERE (c1 > (3)) ORDER BY c2 DESC NULLS FIRST LIMIT 5 OFFSET 2"
    assert {used.name for used in found.columns} == {"id", "ts", "d"}


def test_locks_mean_nothing() -> None:
    assert translate(parse('SELECT id FROM "s"."t" FOR UPDATE'), TABLE).tail == ""


def test_a_sample_is_a_share_at_random() -> None:
    found = translate(parse('SELECT id FROM "s"."t" TABLESAMPLE BERNOULLI(12.5)'), TABLE)
    assert found.tail == " WHERE (random() < 12.5 / 100)"


def test_known_conjuncts_narrow_what_postgres_evaluates() -> None:
    query = "SELECT max(t) FROM \"s\".\"t\" WHERE ((id > 3)) AND ((t ~~ 'a%')) AND ((flag OR (t ~~ 'b'))) AND ((flag))"
    assert known_part(parse(query), TABLE).conditions == ["(c1 > (3))", "c3"]


@pytest.mark.parametrize(
    "query",
    [
        'SELECT 1 FROM "s"."t" r1 INNER JOIN "s"."t" r2 ON (true) WHERE ((id > 3))',
        'SELECT 1 FROM (SELECT i AS id FROM "s"."t") r1 WHERE ((id > 3))',
        'WITH x AS (SELECT i AS id FROM "s"."t") SELECT 1 FROM x WHERE ((id > 3))',
        'SELECT 1 FROM "s"."t" WHERE ((id > 3)) UNION ALL SELECT 2',
    ],
)
def test_other_shapes_are_not_narrowed(query: str) -> None:
    assert known_part(parse(query), TABLE).conditions == []


@pytest.mark.parametrize(
    ("text", "condition"),
    [
        ("from MINVALUE to 1970-01-01 00:00:00+00", "k < make_timestamptz(0)"),
        (
            "from 0044-01-01 00:00:00+00 BC to 12026-01-01 00:00:00+00",
            "k >= make_timestamptz(-63524131200000000) AND k < make_timestamptz(317336745600000000)",
        ),
        ("from -infinity to 1970-01-01 00:00:00.5+00", "k < make_timestamptz(500000)"),
        ("from 1970-01-01 00:00:00+00 to infinity", "k >= make_timestamptz(0)"),
    ],
)
def test_a_range_is_emitted_in_micros(text: str, condition: str) -> None:
    assert range_condition(TABLE.key, parse_range(text), "k") == condition
