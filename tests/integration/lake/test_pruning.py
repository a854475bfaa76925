"""No file is dropped that holds a row: real files with the bounds their writer left, conditions at random."""

from __future__ import annotations

import random
import uuid
from collections.abc import Iterator
from typing import Any

import duckdb
import hypothesis
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import parquet
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import IntegerType, NestedField
from pyspark.sql import SparkSession

from frostline.config import Settings
from frostline.gateway import pruning
from frostline.gateway.clauses import clauses
from frostline.gateway.expressions.tree import Unknown
from frostline.lake import files
from frostline.lake.catalog import opened
from frostline.lake.pruning import Compare, chosen, wholly
from frostline.lake.storage import of
from frostline.model.bounds import parse_range
from frostline.pipeline.session import for_database
from integration.lake.columns import SPECS, TABLE, Spec

FILES = 60
MODES = ("truncate(16)", "full", "truncate(2)", "counts")


class Lake:
    """The same rows in DuckDB, where `part` is the file's number."""

    def __init__(self, snapshot: files.Snapshot, engine: duckdb.DuckDBPyConnection) -> None:
        self.snapshot = snapshot
        self.engine = engine

    def __repr__(self) -> str:
        return "Lake"

    def holds(self, condition: str) -> set[int]:
        found = self.engine.execute(f"SELECT DISTINCT part FROM everything WHERE {condition}").fetchall()
        return {part for (part,) in found}

    def kept(self, condition: str) -> set[int]:
        found = pruning.conditions(clauses(f'SELECT i4 FROM "a"."source" WHERE {condition}'), TABLE)
        return self.parts(chosen(self.snapshot, found))

    def parts(self, places: list[int]) -> set[int]:
        return {self.snapshot.files[at].partition[1] for at in places}

    def text(self, spec: Spec, value: Any) -> str:
        """A value as Postgres prints it, by the type map's own expression."""
        expression = TABLE.columns[spec.name].storage.text.replace("{c}", spec.duckdb(value))
        row = self.engine.execute(f"SELECT {expression}").fetchone()
        assert row is not None
        return str(row[0]).replace("inf", "Infinity").replace("nan", "NaN")


def rows() -> pa.Table:
    """Sixty parts; each column of a part draws from a few neighbouring values, so that bounds are narrow."""
    chance = random.Random(7)
    columns: dict[str, list[Any]] = {"part": [], **{spec.name: [] for spec in SPECS}}
    for part in range(FILES):
        pools = {}
        for spec in SPECS:
            start = chance.randrange(len(spec.values))
            pools[spec.name] = [*spec.values[start : start + chance.randint(1, 3)], *[None] * chance.choice((0, 0, 1))]
            if chance.random() < 0.1:
                pools[spec.name] = [None]
        for _ in range(6):
            columns["part"].append(part)
            for spec in SPECS:
                columns[spec.name].append(chance.choice(pools[spec.name]))
    arrays = [pa.array(columns["part"], pa.int32()), *(spec.array(columns[spec.name]) for spec in SPECS)]
    return pa.table(arrays, names=list(columns))


@pytest.fixture(scope="module", params=MODES)
def lake(
    request: pytest.FixtureRequest, settings: Settings, spark: SparkSession, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Lake]:
    """Written by Spark, as ours are: PyIceberg has no bounds for years before 1."""
    source = tmp_path_factory.mktemp("rows") / "rows.parquet"
    content = rows()
    parquet.write_table(content, source)
    name = f"ns.everything_{uuid.uuid4().hex}"
    with opened(settings) as catalog:
        catalog.create_namespace_if_not_exists("ns")
        catalog.create_table(name, SCHEMA, partition_spec=BY_PART, properties=properties(request.param))
        session = for_database(spark, settings)
        session.conf.set("spark.sql.parquet.datetimeRebaseModeInRead", "CORRECTED")
        session.read.parquet(source.as_uri()).coalesce(1).writeTo(f"{settings.lake.name}.{name}").append()
        table = catalog.load_table(name)
    with duckdb.connect() as engine:
        engine.execute("SET timezone = 'UTC'")
        engine.register("arrow", content)
        engine.execute("CREATE TABLE everything AS SELECT * REPLACE (CAST(u AS UUID) AS u) FROM arrow")
        head = table.current_snapshot()
        assert head is not None
        yield Lake(files.snapshot(of(settings), table.metadata_location, head.snapshot_id), engine)


SCHEMA = Schema(
    NestedField(1, "part", IntegerType()),
    *(NestedField(number, spec.name, spec.iceberg) for number, spec in enumerate(SPECS, 2)),
)
BY_PART = PartitionSpec(PartitionField(1, 1000, IdentityTransform(), "parts"))


def properties(metrics: str) -> dict[str, str]:
    """Row groups of two rows: the bounds of a file are put together from those of three."""
    return {
        "write.metadata.metrics.default": metrics,
        "write.distribution-mode": "none",
        "write.spark.fanout.enabled": "true",
        "write.parquet.row-group-size-bytes": "1",
        "write.parquet.row-group-check-min-record-count": "2",
        "write.parquet.row-group-check-max-record-count": "2",
    }


Pair = tuple[str, str]  # a condition for Postgres and the same for DuckDB


@st.composite
def comparisons(draw: st.DrawFn) -> tuple[Spec, str, list[Any]]:
    spec = draw(st.sampled_from(SPECS))
    kind = draw(
        st.sampled_from(["=", "<", "<=", ">", ">=", "<>", "in", "any", "between", "null", "not null", "turned"])
    )
    values = draw(st.lists(st.sampled_from(spec.values), min_size=2, max_size=4))
    return spec, kind, values


def written(lake: Lake, spec: Spec, kind: str, values: list[Any]) -> Pair:
    texts = [lake.text(spec, value).replace("'", "''") for value in values]
    ours = [f"'{text}'::{spec.label}" for text in texts]
    theirs = [spec.duckdb(value) for value in values]
    name = spec.name
    match kind:
        case "in":
            return f"{name} IN ({', '.join(ours)})", f"{name} IN ({', '.join(theirs)})"
        case "any":
            inner = ",".join('"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"' for text in texts)
            return f"{name} = ANY ('{{{inner}}}'::{spec.label}[])", f"{name} IN ({', '.join(theirs)})"
        case "between":
            return f"{name} BETWEEN {ours[0]} AND {ours[1]}", f"{name} BETWEEN {theirs[0]} AND {theirs[1]}"
        case "null" | "not null":
            return f"{name} IS {kind}", f"{name} IS {kind}"
        case "turned":
            return f"{ours[0]} < {name}", f"{theirs[0]} < {name}"
    return f"{name} {kind} {ours[0]}", f"{name} {kind} {theirs[0]}"


def combined(lake: Lake, tree: Any) -> Pair:
    if isinstance(tree, tuple) and isinstance(tree[0], Spec):
        return written(lake, *tree)
    word, parts = tree
    pairs = [combined(lake, part) for part in parts]
    if word == "NOT":
        return f"(NOT ({pairs[0][0]}))", f"(NOT ({pairs[0][1]}))"
    return "(" + f" {word} ".join(p for p, _ in pairs) + ")", "(" + f" {word} ".join(p for _, p in pairs) + ")"


TREES = st.recursive(
    comparisons(),
    lambda inner: st.tuples(st.sampled_from(["AND", "OR", "NOT"]), st.lists(inner, min_size=2, max_size=3)),
    max_leaves=5,
)


@hypothesis.settings(max_examples=300, deadline=None)
@given(tree=TREES)
def test_every_file_with_a_row_is_kept(lake: Lake, tree: Any) -> None:
    ours, theirs = combined(lake, tree)
    assert lake.holds(theirs) <= lake.kept(ours), ours


def test_every_comparison_with_every_value(lake: Lake) -> None:
    """And the bounds are used: over all of these, most files are not read, where there are bounds."""
    kept = 0
    cases = 0
    for spec in SPECS:
        for value in spec.values:
            for kind in ("=", "<", "<=", ">", ">=", "<>"):
                ours, theirs = written(lake, spec, kind, [value, value])
                found = lake.kept(ours)
                assert lake.holds(theirs) <= found, ours
                kept += len(found) if kind != "<>" else 0
                cases += FILES if kind != "<>" else 0
    known = any(file.lower for file in lake.snapshot.files)
    assert kept < 0.6 * cases if known else kept > 0.8 * cases


@pytest.mark.parametrize(
    "text", ["from MINVALUE to 0044-03-15 00:00:00+00 BC", "from 1970-01-01 00:00:00+00 to MAXVALUE"]
)
def test_the_period_keeps_every_file_with_a_row(lake: Lake, text: str) -> None:
    found = parse_range(text)
    limits = [
        f"epoch_us(tz) {operator} {bound.order}"
        for operator, bound in ((">=", found.lower), ("<", found.upper))
        if bound is not None
    ]
    assert lake.holds(" AND ".join(limits)) <= lake.parts(chosen(lake.snapshot, pruning.in_range(TABLE, found)))


def test_files_said_to_be_wholly_inside_have_no_row_outside(lake: Lake) -> None:
    inside = 0
    for spec in SPECS:
        for value in spec.values:
            for kind in ("<", "<=", ">", ">="):
                ours, theirs = written(lake, spec, kind, [value, value])
                found = pruning.conditions(clauses(f'SELECT i4 FROM "a"."source" WHERE {ours}'), TABLE)
                comparisons = [condition for condition in found if isinstance(condition, Compare)]
                sure = [at for at in range(FILES) if comparisons and wholly(lake.snapshot, [at], comparisons)]
                assert not lake.parts(sure) & lake.holds(f"({theirs}) IS NOT TRUE"), ours
                inside += len(sure)
    assert inside > 1000 if any(file.lower for file in lake.snapshot.files) else inside == 0


@pytest.mark.parametrize(
    "condition",
    [
        "f4 = 1.1",  # a double to Postgres: no real is equal to it, and nothing says which are near
        "i8 = 5.4::bigint",  # rounded by the cast
        "i8 = '9007199254740993'::double precision",
        "v < 'b'::text",  # another order than that of the bytes
        "t = 'a' COLLATE \"x\"",
        "t LIKE 'a%'",
        "other = 5",
        "n = 'NaN'::numeric",
        "f8 > 'NaN'::double precision",
        "d = 'today'::date",
        "tz = '2020-01-01 00:00:00'::timestamp without time zone",
        "NOT (i8 = 3)",
        "i8 = 3 OR t LIKE 'a%'",
    ],
)
def test_what_is_not_understood_prunes_nothing(condition: str) -> None:
    assert pruning.conditions(clauses(f'SELECT 1 FROM "a"."source" WHERE {condition}'), TABLE) == ()


@pytest.mark.parametrize(
    "statement",
    [
        'SELECT 1 FROM (SELECT i4 AS i8 FROM "a"."source") AS s WHERE i8 = 1',
        'SELECT 1 FROM "a"."source" AS s (i8, i4) WHERE i8 = 1',
        'SELECT 1 FROM "a"."source" AS s JOIN "a"."b" AS r ON true WHERE i8 = 1',
        'SELECT 1 FROM "a"."source", "a"."b" WHERE i8 = 1',
        'SELECT i8 FROM "a"."source" WHERE i8 = 1 UNION SELECT 1',
        "SELECT 1 FROM source WHERE i8 = 1",
    ],
)
def test_names_that_may_mean_something_else_prune_nothing(statement: str) -> None:
    try:
        found = pruning.conditions(clauses(statement), TABLE)
    except Unknown:
        found = ()
    assert found == ()
