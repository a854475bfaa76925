"""What a generator thinks of is answered, byte for byte, as over the plain copy; `make soak` lets it think longer."""

from __future__ import annotations

import os
from collections import Counter

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from integration.gateway import generator
from integration.gateway.pair import COLD, Pair, agree
from integration.gateway.queries import JANUARY

# Of the strategies themselves, which nobody prints.
pytestmark = pytest.mark.filterwarnings("ignore:Generating overly large repr")

# Expressions for each database; half of them go side by side, ten to a statement.
EXAMPLES = int(os.environ.get("SOAK_EXAMPLES", "600"))
SIDE_BY_SIDE = 10
SOAK = "SOAK_EXAMPLES" in os.environ


def examples(share: float) -> settings:
    """No shrinking by default: the failing statement is short enough, and the suite's time is bounded."""
    return settings(
        max_examples=max(int(EXAMPLES * share), 1),
        deadline=None,
        database=None,
        derandomize=not SOAK,
        suppress_health_check=list(HealthCheck),
        phases=[Phase.explicit, Phase.generate, *([Phase.shrink] if SOAK else [])],
    )


class Paths(Counter[str]):
    """Who answered: a suite that only asks Postgres proves nothing."""

    def note(self, pair: Pair, query: str) -> bool:
        known = pair.translated(query) is not None
        self["asked"] += 1
        self["DuckDB"] += known
        return known

    @property
    def share(self) -> float:
        return self["DuckDB"] / max(self["asked"], 1)


def test_expressions_have_the_same_values(pair: Pair) -> None:
    paths = Paths()

    @examples(0.5 / SIDE_BY_SIDE)
    @given(st.lists(generator.values(), min_size=SIDE_BY_SIDE, max_size=SIDE_BY_SIDE))
    def run(expressions: list[str]) -> None:
        known = [f"({item})" for item in expressions if paths.note(pair, f"SELECT {item} FROM {{t}}")]
        query = f"SELECT {', '.join(['id', *known])} FROM {{t}}"
        assert agree(*pair.remotely(query, f"{query} WHERE {COLD}")), query

    run()
    assert paths.share > 0.7  # constants alone are not counted on


def test_predicates_select_the_same_rows(pair: Pair) -> None:
    paths = Paths()

    @examples(0.2)
    @given(generator.predicates())
    def run(predicate: str) -> None:
        paths.note(pair, f"SELECT id FROM {{t}} WHERE {predicate}")
        assert agree(*pair.both(f"SELECT id FROM {{t}} WHERE {predicate}")), predicate

    run()
    assert paths.share > 0.8


def test_predicates_that_may_fail_fail_alike(pair: Pair) -> None:
    paths = Paths()

    @examples(0.1)
    @given(generator.failing())
    def run(predicate: str) -> None:
        paths.note(pair, f"SELECT id FROM {{t}} WHERE {predicate}")
        assert agree(*pair.both(f"SELECT id FROM {{t}} WHERE {predicate}")), predicate

    run()
    assert paths.share > 0.8


def test_an_expression_that_rows_are_grouped_by_prints_the_same(pair: Pair) -> None:
    """Grouping by it makes postgres_fdw ship the expression itself."""

    @examples(0.1)
    @given(generator.values())
    def run(expression: str) -> None:
        grouped = f"SELECT {expression} AS value, count(*) AS n FROM {{t}} WHERE {JANUARY.format('')} GROUP BY 1"
        assert agree(*pair.both(f"SELECT value::text, n FROM ({grouped}) AS g")), expression

    run()


def test_aggregates_over_the_cold_rows_are_the_same(pair: Pair) -> None:
    paths = Paths()

    @examples(0.1)
    @given(generator.aggregations())
    def run(query: str) -> None:
        paths.note(pair, query)
        ordered = "ORDER BY" in query
        cold = query.replace("{t}", f"(SELECT * FROM {{t}} WHERE {COLD}) AS cold")
        assert agree(*pair.remotely(query, cold), ordered=ordered), query

    run()
    assert paths.share > 0.6


def test_what_postgres_evaluates_is_the_same_too(pair: Pair) -> None:
    predicate = st.builds(
        "({} {} {})".format, generator.predicates(1), st.sampled_from(["AND", "OR"]), generator.everything_else()
    )

    @examples(0.02)
    @given(predicate)
    def run(predicate: str) -> None:
        assert pair.translated(f"SELECT id FROM {{t}} WHERE {predicate}") is None
        assert agree(*pair.both(f"SELECT id FROM {{t}} WHERE {predicate}")), predicate

    run()


def test_types_of_every_kind_are_the_same_by_themselves_and_among_others(pair: Pair) -> None:
    mixed = st.builds(
        "({} {} {})".format, generator.predicates(1), st.sampled_from(["AND", "OR"]), generator.of_any_kind()
    )

    @examples(0.01)
    @given(st.lists(generator.of_any_kind(), min_size=2 * SIDE_BY_SIDE, max_size=2 * SIDE_BY_SIDE), mixed)
    def run(conditions: list[str], predicate: str) -> None:
        query = f"SELECT {', '.join(['id', *conditions])} FROM {{t}}"
        assert agree(*pair.remotely(query, f"{query} WHERE {COLD}")), query
        assert agree(*pair.both(f"SELECT id FROM {{t}} WHERE {predicate}")), predicate
        query = f"SELECT id FROM {{t}} WHERE {predicate}"
        assert agree(*pair.remotely(query, f"{query} AND {COLD}")), query

    run()
