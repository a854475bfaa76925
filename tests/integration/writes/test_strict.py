"""SET frostline.strict = on: a write that may come to both tiers is refused, with what would do."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from psycopg.errors import ProhibitedSqlStatementAttempted

from integration.writes.pair import Pair

COLD = "UPDATE tiered SET t = t WHERE id = 5 AND ts < '2026-02-01Z'"
HOT = "UPDATE tiered SET t = t WHERE id = 405 AND ts >= '2026-11-01Z'"
BOTH = (
    "UPDATE tiered SET t = t WHERE id = 5",
    "DELETE FROM tiered WHERE id = 123456",
    "DELETE FROM tiered WHERE ts < '2027-01-01Z' AND t = 'no such'",
    "UPDATE tiered SET t = o.t FROM tiered o WHERE tiered.id = o.id AND tiered.id = 5",
    "UPDATE tiered SET t = o.w FROM other o WHERE tiered.k = o.k AND tiered.id = 123456",
    "INSERT INTO tiered (id, ts) VALUES (7001, '2026-01-05Z'), (7002, '2026-11-05Z')",
    "WITH gone AS (DELETE FROM tiered WHERE id = 5 RETURNING id) SELECT * FROM gone",
)
ONE = (
    COLD,
    HOT,
    "DELETE FROM tiered WHERE ts = '2026-01-05Z' AND id = 123456",
    "DELETE FROM tiered WHERE ts IN ('2026-01-05Z', '2026-02-05Z') AND id = 123456",
    "DELETE FROM tiered WHERE ts BETWEEN '2026-01-05Z' AND '2026-02-05Z' AND id = 123456",
    "DELETE FROM tiered WHERE ts > now() + interval '100 years'",
    "INSERT INTO tiered (id, ts) VALUES (7001, '2026-01-05Z'), (7002, '2026-02-05Z')",
    "INSERT INTO tiered (id, ts) VALUES (7001, '2026-11-05Z')",
    "UPDATE tiered_2026_01 SET t = t WHERE id = 5",
    "UPDATE tiered SET t = (SELECT max(o.t) FROM tiered o WHERE o.id = 405) WHERE id = 5 AND ts < '2026-02-01Z'",
)


@pytest.fixture
def strict(pair: Pair) -> Iterator[psycopg.Connection[Any]]:
    client = pair.world.connect()
    client.execute("SET frostline.strict = on")
    yield client
    client.execute("RESET frostline.strict")


@pytest.mark.parametrize("statement", BOTH)
def test_what_may_come_to_both_tiers_is_refused(strict: psycopg.Connection[Any], statement: str) -> None:
    with pytest.raises(ProhibitedSqlStatementAttempted, match="may change recent and old rows") as error:
        strict.execute(statement)
    said = f"{error.value.diag.message_detail} {error.value.diag.message_hint}"
    assert "rows with ts below 2026-" in said
    assert "Nothing was changed" in said
    assert "ts BETWEEN ... AND ..." in said
    strict.execute("SET frostline.strict = off")
    with strict.transaction(force_rollback=True):
        strict.execute(statement)


@pytest.mark.parametrize("statement", ONE)
def test_what_names_its_tier_is_done(strict: psycopg.Connection[Any], statement: str) -> None:
    with strict.transaction(force_rollback=True):
        strict.execute(statement)


def test_a_transaction_changes_old_rows_first(strict: psycopg.Connection[Any]) -> None:
    with strict.transaction(force_rollback=True):
        strict.execute("SELECT count(*) FROM tiered")
        strict.execute("SELECT FROM tiered WHERE id IN (5, 405) FOR UPDATE")
        for statement in (COLD, COLD, HOT, HOT):
            assert strict.execute(statement).rowcount == 1
        with pytest.raises(ProhibitedSqlStatementAttempted, match="recent and old rows"), strict.transaction():
            strict.execute(BOTH[0])
        assert strict.execute(HOT).rowcount == 1
    with strict.transaction(force_rollback=True):
        assert strict.execute(HOT).rowcount == 1
        with pytest.raises(ProhibitedSqlStatementAttempted) as error, strict.transaction():
            strict.execute(COLD)
        assert "old rows come first" in (error.value.diag.message_hint or "")


def test_what_was_before_is_not_held_against_a_statement(strict: psycopg.Connection[Any]) -> None:
    """Rows that were locked, or changed while anything was allowed."""
    for before in (
        "SELECT FROM tiered WHERE id IN (5, 405) FOR UPDATE",
        "SELECT FROM tiered_2026_01 FOR UPDATE",
        BOTH[0],
    ):
        with strict.transaction(force_rollback=True):
            strict.execute("SET LOCAL frostline.strict = off")
            strict.execute(before)
            strict.execute("SET LOCAL frostline.strict = on")
            assert strict.execute(HOT).rowcount == 1
            with pytest.raises(ProhibitedSqlStatementAttempted), strict.transaction():
                strict.execute(BOTH[0])


def test_a_prepared_statement_is_judged_by_where_it_came(strict: psycopg.Connection[Any]) -> None:
    """Its plan has every partition; which one it comes to is known when it runs."""
    strict.execute("SET plan_cache_mode = force_generic_plan")
    strict.execute("PREPARE one (timestamptz) AS UPDATE tiered SET t = t WHERE ts = $1")
    for moment in ("2026-01-05 00:00Z", "2026-11-05 00:00Z"):
        strict.execute(f"EXECUTE one ('{moment}')")
    strict.execute("DEALLOCATE one; RESET plan_cache_mode")
