"""Writes that reach the cold tier: refused without changing anything, unless they select no cold row."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest

from integration.gateway.world import rows

FIVE = "SELECT id, ts, i4, t FROM {} WHERE id IN (-4, 5, 6) ORDER BY id"


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE events SET i4 = 0 WHERE id = 5",
        "UPDATE events SET i4 = i4 + 1 WHERE t LIKE 'row 5'",
        "UPDATE events SET t = 'x' WHERE id = 5 RETURNING id, t",
        "UPDATE events e SET i4 = c.i4 FROM copy c WHERE c.id = e.id AND c.id = 5",
        "DELETE FROM events WHERE id = 5",
        "DELETE FROM events WHERE id = 5 RETURNING *",
        "DELETE FROM events e USING copy c WHERE c.id = e.id AND c.id = 5",
        "INSERT INTO events (id, ts) VALUES (1000000, '2026-01-05')",
        "INSERT INTO events (id, ts) SELECT i, '2026-01-05' FROM generate_series(1, 5) i",
    ],
)
def test_a_write_to_a_cold_row_is_refused(connection: psycopg.Connection[Any], statement: str) -> None:
    before = rows(connection, "SELECT count(*) FROM events")
    with pytest.raises(psycopg.errors.FeatureNotSupported, match=r"cold rows of public.events cannot be changed yet"):
        connection.execute(statement)
    assert rows(connection, FIVE.format("events")) == rows(connection, FIVE.format("copy"))
    assert rows(connection, "SELECT count(*) FROM events") == before


def test_the_refusal_says_how_many_rows_and_what_to_do(connection: psycopg.Connection[Any]) -> None:
    with pytest.raises(psycopg.errors.FeatureNotSupported) as caught:
        connection.execute(
            "DELETE FROM events WHERE ts >= '2026-01-01' AND ts < '2026-02-01' AND id IN (-4, 1100, 1101)"
        )
    assert caught.value.diag.message_primary == (
        "cold rows of public.events cannot be changed yet: 3 rows match "
        "between 2026-01-01 00:00:00+00 and 2026-02-01 00:00:00+00"
    )
    assert caught.value.diag.message_hint == (
        "nothing was changed; restrict the statement to rows from 2026-03-01 00:00:00+00 on"
    )


@pytest.mark.parametrize(
    ("statement", "tag"),
    [
        ("UPDATE events SET i4 = 0 WHERE id = 123456789", "UPDATE 0"),
        ("UPDATE events SET i4 = 0 WHERE t LIKE 'nothing%'", "UPDATE 0"),
        ("DELETE FROM events WHERE id = 123456789", "DELETE 0"),
        ("DELETE FROM events WHERE id = 123456789 RETURNING id, t, n", "DELETE 0"),
        ("UPDATE events SET t = t || 'x' WHERE id = 123456789 RETURNING id, t", "UPDATE 0"),
        ("UPDATE events SET t = t WHERE id = 7999", "UPDATE 1"),
    ],
)
def test_a_write_that_finds_no_cold_row_passes(connection: psycopg.Connection[Any], statement: str, tag: str) -> None:
    assert connection.execute(statement).statusmessage == tag


def test_a_prepared_write_with_parameters(connection: psycopg.Connection[Any]) -> None:
    connection.execute("SET plan_cache_mode = force_generic_plan")
    connection.execute("PREPARE w (int, text) AS UPDATE events SET i4 = $1, v = 'x' WHERE t LIKE $2")
    assert connection.execute("EXECUTE w (5, 'nothing%')").statusmessage == "UPDATE 0"
    with pytest.raises(psycopg.errors.FeatureNotSupported):
        connection.execute("EXECUTE w (5, 'row%')")


def test_a_refused_write_can_be_rolled_back_to_a_savepoint(connection: psycopg.Connection[Any]) -> None:
    with connection.transaction():
        connection.execute("UPDATE events SET i4 = 12345 WHERE id = 7999 AND ts > '2026-03-01'")
        with pytest.raises(psycopg.errors.FeatureNotSupported), connection.transaction():
            connection.execute("UPDATE events SET i4 = 0 WHERE id = 5")
        assert rows(connection, "SELECT i4 FROM events WHERE id IN (5, 7999) ORDER BY id") == [(b"5",), (b"12345",)]
        raise psycopg.Rollback


def test_truncate_is_refused(connection: psycopg.Connection[Any]) -> None:
    with pytest.raises(psycopg.Error):
        connection.execute("TRUNCATE events")
    assert rows(connection, "SELECT count(*) FROM events") == rows(connection, "SELECT count(*) FROM copy")
