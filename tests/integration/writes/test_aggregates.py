"""Columns that were aggregated before are in the gateway's memory: what is changed counts all the same."""

from __future__ import annotations

from integration.writes.pair import Pair

SUMS = "SELECT count(*), sum(i), min(ts), max(n), count(u), count(DISTINCT k) FROM {t}_2026_01 WHERE i > 3"
GROUPS = "SELECT k, count(*), sum(i), max(d) FROM {t}_2026_01 GROUP BY k ORDER BY k"
BOTH = (SUMS, GROUPS)


def test_changes_count_in_their_transaction_and_afterwards(pair: Pair) -> None:
    changes = (
        "UPDATE {t} SET i = i + 100, k = 3 WHERE id IN (5, 6, 7)",
        "DELETE FROM {t} WHERE id BETWEEN 20 AND 24",
        "INSERT INTO {t} (id, ts, i, k) VALUES (900, '2026-01-03Z', 50, 1)",
    )
    pair.same([*BOTH, *BOTH, *BOTH])
    pair.same([*BOTH, changes[0], *BOTH, "SAVEPOINT s", changes[1], *BOTH, "ROLLBACK TO s", *BOTH, changes[2], *BOTH])
    pair.same([*BOTH, *BOTH])
    pair.same([changes[0], changes[2], *BOTH], commit=True)
    pair.same([*BOTH, *BOTH])
    undone = "UPDATE {t} SET i = i - 100, k = id % 10 WHERE id IN (5, 6, 7)", "DELETE FROM {t} WHERE id = 900"
    pair.same([*undone, *BOTH], commit=True)
    pair.same([*BOTH, *BOTH])
