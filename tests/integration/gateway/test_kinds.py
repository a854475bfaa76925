"""Types kept as text, and domains: byte for byte what the plain copy answers, whoever evaluates it."""

from __future__ import annotations

import psycopg
import pytest

from integration.gateway.kinds import KINDS, XML, computed, conditions
from integration.gateway.pair import COLD, Outcome, Pair, agree
from integration.gateway.queries import JANUARY
from integration.gateway.world import FIRST_EDGE, has_xml

# Several to a statement: each costs its tables, whatever is asked of them.
CHUNKS = [list(KINDS)[at : at + 9] for at in range(0, len(KINDS), 9)]
EDGE_ROWS = f"id >= {FIRST_EDGE}"
FROM_COLD = f"FROM (SELECT * FROM {{t}} WHERE {COLD}) AS cold"
# Equal values that print differently: which of them stands for all is for whoever groups to choose.
SEVERAL_FORMS = ("x_odd", "x_bpchar", "x_floatrange", "x_float_array", "x_numrange")


def differing(expressions: list[str], left: Outcome, right: Outcome) -> list[str]:
    """Of expressions side by side, those whose values are not the same; the rows are in one order."""
    assert not isinstance(right, str), right
    assert not isinstance(left, str), left
    assert len(left) == len(right) > 0
    columns = zip(expressions, zip(*left, strict=True), zip(*right, strict=True), strict=True)
    return [expression for expression, tiered, plain in columns if tiered != plain]


@pytest.mark.parametrize("names", CHUNKS, ids=lambda names: names[0])
def test_values_and_what_is_computed_of_them_are_the_same(pair: Pair, names: list[str]) -> None:
    asked = [f"({item})" for name in names for item in (*conditions(name), *computed(name))]
    query = f"SELECT {', '.join(asked)} FROM {{t}} WHERE {EDGE_ROWS}"
    ordered = " ORDER BY id"
    assert differing(asked, *pair.remotely(query + ordered, f"{query} AND {COLD}{ordered}")) == []
    assert differing(asked, *pair.both(query + ordered)) == []


@pytest.mark.parametrize("names", CHUNKS, ids=lambda names: names[0])
def test_conditions_that_postgres_fdw_ships_hold_for_the_same_rows(pair: Pair, names: list[str]) -> None:
    """With an aggregate of one partition it ships them all in one statement."""
    asked = [f"sum(id) FILTER (WHERE {item})" for name in names for item in conditions(name)]
    query = f"SELECT {', '.join(asked)} FROM {{t}} WHERE {JANUARY.format('')} AND {EDGE_ROWS}"
    assert differing(asked, *pair.both(query)) == []


@pytest.mark.parametrize("names", CHUNKS, ids=lambda names: names[0])
def test_groups_order_and_extremes_are_the_same(pair: Pair, names: list[str]) -> None:
    known = {name: KINDS[name] for name in names if KINDS[name].grouped}
    asked = [f"count(DISTINCT {name})" for name in known] + [f"count({name})" for name in names]
    asked += [f"{name}({column})" for column, kind in known.items() if kind.extremes for name in ("min", "max")]
    ranks = [f"rank() OVER (ORDER BY {name} DESC NULLS LAST)" for name in known]
    query = f"SELECT {', '.join(asked)} {FROM_COLD}"
    assert differing(asked, *pair.remotely(query.replace(FROM_COLD, "FROM {t}"), query)) == []
    assert differing(asked, *pair.both(f"SELECT {', '.join(asked)} FROM {{t}} WHERE {JANUARY.format('')}")) == []
    if ranks:
        query = f"SELECT {', '.join(ranks)} FROM {{t}} WHERE {EDGE_ROWS} ORDER BY id"
        assert differing(ranks, *pair.both(query)) == []
    for name in known:
        shown = "" if name in SEVERAL_FORMS else f", {name}"
        query = f"SELECT count(*), min(id){shown} FROM {{t}} WHERE {JANUARY.format('')} GROUP BY {name}"
        assert agree(*pair.both(query)), query


def test_a_row_of_nulls_is_null_and_yet_a_value(pair: Pair) -> None:
    """IS NULL of a composite looks into it; the lake only knows that something is there."""
    for name in ("x_pair", "x_pairs"):
        assert pair.translated(f"SELECT id FROM {{t}} WHERE ({name} IS NULL)") is None
        assert pair.translated(f"SELECT id FROM {{t}} WHERE (NOT ({name} IS NOT NULL))") is None
        for test in ("IS NULL", "IS NOT NULL", "IS DISTINCT FROM NULL"):
            query = f"SELECT id, {name} FROM {{t}} WHERE (({name} {test}))"
            remote, plain = pair.remotely(query, f"{query} AND {COLD}")
            assert plain
            assert agree(remote, plain), query
        nulls = f"SELECT id FROM {{t}} WHERE (({name} IS NULL)) AND (({name} IS DISTINCT FROM NULL))"
        remote, plain = pair.remotely(nulls, f"{nulls} AND {COLD}")
        assert len(plain) > 10
        assert agree(remote, plain)


def test_labels_under_a_domain_have_no_equality_of_their_own(pair: Pair) -> None:
    query = "SELECT id FROM {t} WHERE (x_moods = x_moods)"
    assert pair.remotely(query, query) == ("42883", "42883")


def test_xml_is_the_same_where_postgres_has_it(pair: Pair) -> None:
    if not has_xml(pair.connection):
        with pytest.raises(psycopg.errors.FeatureNotSupported):
            pair.connection.execute("SELECT '<a/>'::xml")
        return
    asked = [XML, f"{XML}::text", f"{XML} IS DOCUMENT", f"{XML} IS NULL"]
    asked += [f"{XML}::text LIKE '%<a>%'", f"xmlconcat({XML}, {XML})"]
    query = f"SELECT {', '.join(asked)} FROM {{t}} WHERE {EDGE_ROWS} AND {XML} IS NOT NULL"
    remote = pair.remotely(f"{query} ORDER BY id", f"{query} AND {COLD} ORDER BY id")
    assert differing(asked, *remote) == []
    assert differing(asked, *pair.both(f"{query} ORDER BY id")) == []
