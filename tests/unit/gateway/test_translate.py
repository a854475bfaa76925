"""What DuckDB is asked, and what is left to Postgres."""

from __future__ import annotations

import pytest

from frostline.catalog.cold import ColdColumn, ColdTable
from frostline.gateway.clauses import clauses
from frostline.gateway.constants import Unknown, range_condition
from frostline.gateway.translate import known_part, translate
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
        base_type=typname,
        field_id=number,
        delta_name=name,
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
    tail = translate(clauses(f'SELECT id FROM "s"."t" WHERE ({condition})'), TABLE, parameters).tail
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
        ("id BETWEEN 1 AND 2", "(c1 >= (1)) AND (c1 <= (2))"),
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
        ("n < (-1)::numeric", "(c4 < CAST('-1' AS DECIMAL(10, 2)))"),
        ("n = 1.555", "(CAST(c4 AS DECIMAL(11, 3)) = CAST('1.555' AS DECIMAL(11, 3)))"),
        ("id = 5.0", "(c1 = (5))"),
        ("id > 1.5", "(CAST(c1 AS DECIMAL(20, 1)) > CAST('1.5' AS DECIMAL(20, 1)))"),
        ("id = i + 1", "(c1 = TRY_CAST((CAST(c12 AS BIGINT) + CAST((1) AS BIGINT)) AS INTEGER))"),
        ("id / 2 = 1", "(TRY_CAST((CAST(c1 AS HUGEINT) // CAST((2) AS HUGEINT)) AS BIGINT) = (1))"),
        ("f = 1.5", "((NOT isnan(c9)) AND c9 = CAST('1.5' AS DOUBLE))"),
        ("f > 1.5", "(isnan(c9) OR c9 > CAST('1.5' AS DOUBLE))"),
        ("f >= 'NaN'::double precision", "isnan(c9)"),
        ("f < 1e+300::double precision", "((NOT isnan(c9)) AND c9 < CAST('1e+300' AS DOUBLE))"),
        ("flag IS TRUE", "(c3 IS TRUE)"),
        ("flag IS NOT UNKNOWN", "(c3 IS NOT NULL)"),
        ("t ~~ 'a%'", "(c5 LIKE 'a%')"),
        (r"t ~~ E'a\\_%'::text", r"(c5 LIKE 'a\_%' ESCAPE '\')"),
        (r"t ~~ E'a\\b'::text", "(c5 = 'ab')"),
        (r"t ~~ E'a\\\\%'::text", r"(c5 LIKE 'a\%')"),
        (r"t = E'a\\b'", r"(c5 = 'a\b')"),
        ("t !~~ '_'", "(NOT (c5 LIKE '_'))"),
        ("id > ANY ('{1,NULL}'::integer[])", "((c1 > (1)) OR (c1 > CAST(NULL AS INTEGER)))"),
        ("id = ALL ('{1}'::integer[])", "((c1 = (1)))"),
        ("id IS DISTINCT FROM 5", "coalesce((c1 <> (5)), (c1 IS NULL) <> ((5) IS NULL))"),
        ("d < tm", "((CAST(c6 - DATE '1970-01-01' AS HUGEINT) * 86400000000) < epoch_us(c10))"),
        ("CASE WHEN flag THEN 1 ELSE 2 END = i", "((CASE WHEN c3 THEN (1) ELSE (2) END) = c12)"),
        ("coalesce(i, 0) = 1", "(coalesce(c12, (0)) = (1))"),
        ("nullif(i, 0) = 1", "((CASE WHEN (c12 = (0)) THEN NULL ELSE c12 END) = (1))"),
        ("CAST('5' AS bigint) = id", "(c1 = (5))"),
        ("NOT id = 5 OR flag", "((NOT (c1 = (5))) OR c3)"),
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
        "u = 'A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11'",
        "id = '5'::text",
        "(id)::text = '5'",
        "n = 'NaN'::numeric",
        "big = 1",
        "ts = 'infinity'",
        "ts > '2026-01-01'",
        "ts > '2026-01-01'::date",
        "ts > '2026-01-01 00:00:00'::timestamp without time zone",
        "tm > '2026-01-01 00:00:00+00'",
        "d = 'today'",
        "flag = 'yes'",
        "t ~ 'a'",
        "t ~~* 'a'",
        r"t ~~ E'a\\'",  # ends with its escape
        "t ~~ c",
        "user = 'x'",  # a function
        "t < c",
        "f + 1 = 2",
        "n / 3 = 1",
        "n ^ 2 = 4",
        "d = '2026-02-30'",
        "tm = '2026-01-01 24:00:00'",
        'i = 5::smallint::"char"',
        "t = 'x'::character varying(3)",
        "f = 1e400",
        "i = '99999999999'::integer",
        "tm + '1 mon'::interval > '2026-01-01 00:00:00'::timestamp without time zone",
        "substr(t, (-1), 3) = 'a'",
        "substr(t, i, 3) = 'a'",
        "i = 1 = flag",
        "lower(t) = 'a'",
        "id = ANY ('[0:1]={1,2}'::integer[])",
        "id = ANY ('{{1},{2}}'::integer[])",
        "(id, i) = (1, 2)",
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
        "SELECT count(*), id FROM {}",
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
        "SELECT id, ctid FROM {}",
        "SELECT id, row_number() OVER () FROM {}",
        "SELECT id AS x FROM {} WINDOW w AS ()",
    ],
)
def test_other_shapes_are_left_to_postgres(query: str) -> None:
    with pytest.raises(Unknown):
        translate(clauses(query.format('"s"."t"', '"s"."t"')), TABLE)


def test_a_whole_select() -> None:
    query = 'SELECT id, NULL, d FROM "s"."t" WHERE ((id > 3)) ORDER BY ts DESC NULLS FIRST LIMIT 5::bigint OFFSET 2'
    found = translate(clauses(query), TABLE)
    assert [field.name for field in found.fields] == ["id", "?column?", "d"]
    assert found.outputs[:2] == ("CAST(c1 AS VARCHAR)", "CAST(NULL AS VARCHAR)")
    assert found.tail == " WHERE (c1 > (3)) ORDER BY c2 DESC NULLS FIRST LIMIT 5 OFFSET 2"
    assert {used.name for used in found.columns} == {"id", "ts", "d"}


@pytest.mark.parametrize(
    ("query", "outputs", "tail"),
    [
        ("SELECT count(*) FROM {}", ("CAST(count(*) AS VARCHAR)",), ""),
        (
            "SELECT c, sum(i) FILTER (WHERE (flag)) FROM {} GROUP BY 1 HAVING ((count(*) > 5)) ORDER BY c NULLS LAST",
            ("c8", "CAST(sum(c12) FILTER (WHERE c3) AS VARCHAR)"),
            " GROUP BY c8 HAVING (count(*) > (5)) ORDER BY c8 ASC NULLS LAST",
        ),
        ("SELECT DISTINCT t FROM {} LIMIT 3", ("c5",), " GROUP BY c5 LIMIT 3"),
        (
            "SELECT count(DISTINCT t), max(c) FROM {}",
            ("CAST(count(DISTINCT c5) AS VARCHAR)", "CAST(max(c8) AS VARCHAR)"),
            "",
        ),
        (
            "SELECT sum(id), sum(n) FROM {}",
            ("CAST(CAST(sum(c1) AS DECIMAL(38, 0)) AS VARCHAR)", "CAST(CAST(sum(c4) AS DECIMAL(38, 2)) AS VARCHAR)"),
            "",
        ),
    ],
)
def test_aggregates_of_a_whole_source(query: str, outputs: tuple[str, ...], tail: str) -> None:
    found = translate(clauses(query.format('"s"."t"')), TABLE)
    assert (found.outputs, found.tail) == (outputs, tail)


@pytest.mark.parametrize(
    "query",
    [
        "SELECT sum(f) FROM {}",
        "SELECT max(t) FROM {}",
        "SELECT max(f) FROM {}",
        "SELECT t, c FROM {} GROUP BY 1",
        "SELECT f FROM {} GROUP BY 1",
        "SELECT DISTINCT f FROM {}",
        "SELECT sum(DISTINCT i) FROM {}",
        "SELECT sum(i) + 1 FROM {}",  # the sum could be the largest bigint
        "SELECT string_agg(t, ','::text) FROM {}",
        "SELECT count(*) FROM {} GROUP BY 1",
        "SELECT i FROM {} GROUP BY ROLLUP (i)",
        "SELECT avg(f) FROM {}",
        "SELECT stddev(i) FROM {}",
        "SELECT sum(big) FROM {}",
        "SELECT count(*), ctid FROM {}",
    ],
)
def test_other_aggregates_are_left_to_postgres(query: str) -> None:
    with pytest.raises(Unknown):
        translate(clauses(query.format('"s"."t"')), TABLE)


def test_a_statement_that_may_fail_says_for_which_rows() -> None:
    found = translate(clauses('SELECT sum((i + 1)) FROM "s"."t" WHERE ((1 / id > 0))'), TABLE)
    division = "(CAST((1) AS HUGEINT) // CAST(c1 AS HUGEINT))"
    assert found.check("t") == (
        f"SELECT 1 FROM t WHERE ({division} NOT BETWEEN -9223372036854775808 AND 9223372036854775807 OR c1 = 0) OR "
        "((CAST(c12 AS BIGINT) + CAST((1) AS BIGINT)) NOT BETWEEN -2147483648 AND 2147483647) LIMIT 1"
    )


def test_locks_mean_nothing() -> None:
    assert translate(clauses('SELECT id FROM "s"."t" FOR UPDATE'), TABLE).tail == ""


def test_a_sample_is_a_share_at_random() -> None:
    found = translate(clauses('SELECT id FROM "s"."t" TABLESAMPLE BERNOULLI(12.5)'), TABLE)
    assert found.tail == " WHERE (random() < 12.5 / 100)"


def test_known_conjuncts_narrow_what_postgres_evaluates() -> None:
    query = "SELECT max(t) FROM \"s\".\"t\" WHERE ((id > 3)) AND ((t ~~ 'a%')) AND ((flag OR (t ~~ 'b'))) AND ((flag))"
    assert known_part(clauses(query.replace("~~", "~")), TABLE).conditions == ["(c1 > (3))", "c3"]


def test_a_row_that_fails_is_among_those_postgres_is_given() -> None:
    query = 'SELECT id FROM "s"."t" r1 WHERE ((r1.i + 1 > 3)) AND ((t ~ \'a\'))'
    (condition,) = known_part(clauses(query), TABLE).conditions
    sum_ = "(CAST(c12 AS BIGINT) + CAST((1) AS BIGINT))"
    assert condition == (f"((TRY_CAST({sum_} AS INTEGER) > (3)) OR ({sum_} NOT BETWEEN -2147483648 AND 2147483647))")


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
    try:
        conditions = known_part(clauses(query), TABLE).conditions
    except Unknown:
        conditions = []
    assert conditions == []


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
