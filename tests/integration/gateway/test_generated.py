"""Generated SQL over the table that is held twice: the same rows, the same text, the same errors."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from hypothesis import HealthCheck, given, settings

from frostline.gateway.metrics import Metrics
from frostline.gateway.server import Gateway
from integration.gateway import generator
from integration.gateway.conftest import settings_for
from integration.gateway.world import PERIODS, build, rows

# Of each of four kinds, under two collations; `make soak` asks for many more.
EXAMPLES = int(os.environ.get("EXAMPLES", "120"))
LOCALES = {"C.UTF-8": "", "icu": "LOCALE_PROVIDER icu ICU_LOCALE 'en-US' LOCALE 'C' TEMPLATE template0"}
generated = settings(
    max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck), print_blob=True, database=None
)


class Tables:
    """Both forms of the table, and how the gateway answered."""

    def __init__(self, connection: psycopg.Connection[Any], metrics: Metrics) -> None:
        self.connection = connection
        self.metrics = metrics

    def answer(self, query: str) -> list[tuple[bytes | None, ...]] | str:
        """The rows as Postgres sent them, or the error's SQLSTATE."""
        try:
            return rows(self.connection, query)
        except psycopg.Error as error:
            if error.sqlstate is None:
                raise
            return error.sqlstate

    def queries(self, path: str) -> float:
        found = re.search(rf'queries_total{{[^}}]*"{path}"}} ([0-9.e+]+)', self.metrics.text())
        return float(found[1]) if found else 0.0


@pytest.fixture(scope="module", params=LOCALES)
def tables(request: pytest.FixtureRequest, dsn: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tables]:
    world = build(dsn, tmp_path_factory.mktemp("generated"), dense=True, locale=LOCALES[request.param])
    gateway = Gateway(settings_for(world.dsn))
    gateway.start()
    with world.connect() as connection:
        connection.execute("SET timezone = 'UTC'")
        yield Tables(connection, gateway._metrics)
    gateway.stop(grace=0)


@generated
@given(generator.predicates(2))
def test_a_predicate_selects_the_same_rows(tables: Tables, predicate: str) -> None:
    query = f"SELECT id FROM TABLES WHERE {predicate} ORDER BY id, ts"
    assert tables.answer(query.replace("TABLES", "events")) == tables.answer(query.replace("TABLES", "copy"))


@generated
@given(generator.predicates(2, risky=True))
def test_a_predicate_that_can_fail_fails_alike(tables: Tables, predicate: str) -> None:
    query = f"SELECT id FROM TABLES WHERE {predicate} ORDER BY id, ts"
    assert tables.answer(query.replace("TABLES", "events")) == tables.answer(query.replace("TABLES", "copy"))


@generated
@given(generator.values(2))
def test_a_pushed_expression_prints_the_same(tables: Tables, expression: str) -> None:
    """Grouping by it lets postgres_fdw ship the expression itself."""
    lower, upper = PERIODS[1]
    copy = f"(SELECT * FROM copy WHERE ts >= '{lower}' AND ts < '{upper}') c"
    grouped = f"SELECT {expression} AS value, count(*) AS n FROM TABLES GROUP BY 1"
    query = f'SELECT value::text, n FROM ({grouped}) g ORDER BY value::text COLLATE "C", n'
    assert tables.answer(query.replace("TABLES", "events_1")) == tables.answer(query.replace("TABLES", copy))


@generated
@given(generator.everything_else(), generator.predicates(1))
def test_what_postgres_evaluates_mixes_with_what_duckdb_does(tables: Tables, other: str, predicate: str) -> None:
    query = f"SELECT id FROM TABLES WHERE {other} AND {predicate} ORDER BY id, ts"
    assert tables.answer(query.replace("TABLES", "events")) == tables.answer(query.replace("TABLES", "copy"))


def test_most_of_it_was_answered_by_duckdb(tables: Tables) -> None:
    """Otherwise Postgres was compared with itself."""
    assert tables.queries("duckdb") > tables.queries("postgres") / 2
    assert tables.queries("duckdb") > EXAMPLES
