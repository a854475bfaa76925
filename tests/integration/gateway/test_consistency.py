"""The delta merged in, and the registry changing while transactions are open."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from fix_cluster import wait_until
from integration.gateway.world import PERIODS, SEAM, World, foreign_table, rows


@pytest.fixture
def delta(connection: psycopg.Connection[Any]) -> Iterator[psycopg.Connection[Any]]:
    """Changed cold rows: updated twice, deleted, deleted and inserted again, new."""
    connection.execute("BEGIN")
    connection.execute("CREATE TABLE expected AS SELECT * FROM copy")
    versions = [
        ("id = 5", "U", "i4 = 1, t = 'first'", 1),
        (
            "id = 5",
            "U",
            r"""i4 = 2, t = E'second \\ \n ''', f8 = 'NaN', j = '{"z": 1.0}', by = '\x00', mood = 'sad'""",
            2,
        ),
        ("id = 6", "T", "i4 = NULL", 3),
        ("id = 7", "T", "i4 = NULL", 4),
        (
            "id = 7",
            "U",
            "i4 = 77, n = 1.5, d = '0044-03-15 BC', tm = '12026-01-01', f8 = '-0', tarr = '{\"\",NULL}'",
            5,
        ),
        ("id = -4", "U", "t = NULL, u = md5('x')::uuid", 6),
        ("id = -2", "T", "i4 = NULL", 7),
    ]
    newest: dict[str, int] = {}  # the lake's, until there is one in the delta
    for condition, kind, change, sequence in versions:
        previous, newest[condition] = newest.get(condition, 0), sequence
        connection.execute(f"CREATE TEMP TABLE version AS SELECT * FROM copy WHERE {condition}")
        connection.execute(f"UPDATE version SET {change}")
        numbered = f"*, '{kind}', {sequence}, {previous}"
        connection.execute(f"INSERT INTO frostline_delta.events SELECT {numbered} FROM version")
        connection.execute(f"DELETE FROM expected WHERE {condition}")
        if kind == "U":
            connection.execute("INSERT INTO expected SELECT * FROM version")
        connection.execute("DROP TABLE version")
    new = "SELECT -99, '2026-02-28 00:00:00+00'::timestamptz, 1::smallint, 5"
    connection.execute(f"INSERT INTO frostline_delta.events (id, ts, i2, i4, _op, _seq, _prev) {new}, 'U', 8, 0")
    connection.execute(f"INSERT INTO expected (id, ts, i2, i4) {new}")
    connection.execute("COMMIT")
    yield connection
    connection.execute("DROP TABLE expected")
    connection.execute("DELETE FROM frostline_delta.events")


@pytest.mark.parametrize(
    "query",
    [
        "SELECT * FROM {} ORDER BY id",
        "SELECT count(*) FROM {}",
        "SELECT id, t FROM {} WHERE id IN (5, 6, 7, -4, -2, -99) ORDER BY id",
        "SELECT id FROM {} WHERE t LIKE 'sec%'",
        "SELECT id FROM {} WHERE i4 = 77 ORDER BY id",
        "SELECT id FROM {} WHERE i4 = 5 ORDER BY id",
        "SELECT v, count(*) FROM {} WHERE ts < '2026-03-01' GROUP BY v ORDER BY v",
        "SELECT count(*), sum(i4) FROM {} WHERE ts >= '2026-02-01' AND ts < '2026-03-01'",
    ],
)
def test_changed_cold_rows_are_merged(delta: psycopg.Connection[Any], query: str) -> None:
    assert rows(delta, query.format("events")) == rows(delta, query.format("expected"))


@pytest.mark.parametrize(
    ("level", "after"), [("READ COMMITTED", b"0"), ("REPEATABLE READ", b"1"), ("SERIALIZABLE", b"1")]
)
def test_a_change_is_seen_by_later_statements_in_read_committed_only(
    world: World, connection: psycopg.Connection[Any], level: str, after: bytes
) -> None:
    query = "SELECT count(*) FROM events WHERE id = 5"
    with world.connect() as other:
        connection.execute(f"BEGIN ISOLATION LEVEL {level}")
        assert rows(connection, query) == [(b"1",)]
        other.execute("INSERT INTO frostline_delta.events SELECT *, 'T', 1, 0 FROM copy WHERE id = 5")
        try:
            assert rows(connection, query) == [(after,)]
            assert rows(other, query) == [(b"0",)]
            connection.execute("COMMIT")
            assert rows(connection, query) == [(b"0",)]
        finally:
            other.execute("DELETE FROM frostline_delta.events")


def test_a_statement_that_read_no_cold_row_does_not_fix_what_the_next_one_reads(
    world: World, connection: psycopg.Connection[Any]
) -> None:
    """postgres_fdw begins its transaction with the plan; a scan that is never reached asks for nothing."""
    unreached = (
        "SELECT e.id FROM (SELECT 5 AS k WHERE random() < 0) v, LATERAL"
        " (SELECT id FROM events WHERE id = v.k AND ts < '2026-01-01' OFFSET 0) e"
    )
    query = "SELECT count(*) FROM events WHERE id = 5"
    assert rows(connection, query) == [(b"1",)]  # what the gateway expects to be asked again
    with world.connect() as other:
        connection.execute("BEGIN")
        assert rows(connection, unreached) == []
        other.execute("INSERT INTO frostline_delta.events SELECT *, 'T', 1, 0 FROM copy WHERE id = 5")
        try:
            assert rows(connection, query) == [(b"0",)]
        finally:
            connection.execute("ROLLBACK")
            other.execute("DELETE FROM frostline_delta.events")


def test_one_statement_reads_one_state_however_often_it_scans(
    world: World, connection: psycopg.Connection[Any]
) -> None:
    """A nested loop declares its inner cursor again and again; changes committed meanwhile are not for it."""
    for setting in ("hashjoin", "mergejoin", "material", "memoize"):
        connection.execute(f"SET enable_{setting} = off")
    connection.execute("CREATE TEMP TABLE slow (k bigint)")
    connection.execute("INSERT INTO slow SELECT 5 FROM generate_series(1, 40)")
    query = (
        f"SELECT count(e.id), count(*) FROM slow s LEFT JOIN LATERAL"
        f" (SELECT id FROM events WHERE id = s.k AND ts < '{SEAM}' OFFSET 0) e ON pg_sleep(0.02) IS NOT NULL"
    )
    with world.connect() as other:
        between = f"SELECT FROM pg_stat_activity WHERE pid = {connection.info.backend_pid} AND wait_event = 'PgSleep'"

        def change() -> None:
            wait_until(lambda: other.execute(between).rowcount == 1, 60, "it has scanned once")
            other.execute("INSERT INTO frostline_delta.events SELECT *, 'T', 1, 0 FROM copy WHERE id = 5")

        changer = threading.Thread(target=change)
        connection.execute("BEGIN")
        assert rows(connection, "SELECT count(*) FROM events WHERE id = 5") == [(b"1",)]
        changer.start()
        try:
            assert rows(connection, query) == [(b"40", b"40")]
            changer.join()
            assert rows(connection, "SELECT count(*) FROM events WHERE id = 5") == [(b"0",)]
        finally:
            changer.join()
            connection.execute("ROLLBACK")
            other.execute("DELETE FROM frostline_delta.events")


def _seam(connection: psycopg.Connection[Any], seam: str) -> None:
    connection.execute("UPDATE frostline.tables SET seam = %s", [seam])


def test_a_swap_under_an_open_transaction_is_seen_whole(world: World, connection: psycopg.Connection[Any]) -> None:
    """The registry says hot at first use; the period becomes cold; the same transaction then meets its partition."""
    with world.connect() as other:
        _seam(other, PERIODS[2][0])
        try:
            with connection.transaction():
                rows(connection, "SELECT count(*) FROM events WHERE ts < '2026-01-01'")
                _seam(other, SEAM)
                assert rows(
                    connection, "SELECT count(*) FROM events WHERE ts >= '2026-02-01' AND ts < '2026-03-01'"
                ) == rows(other, "SELECT count(*) FROM copy WHERE ts >= '2026-02-01' AND ts < '2026-03-01'")
        finally:
            _seam(other, SEAM)


def test_a_swap_under_an_open_cursor_is_a_serialization_failure(
    world: World, connection: psycopg.Connection[Any]
) -> None:
    with world.connect() as other:
        _seam(other, PERIODS[2][0])
        try:
            connection.execute("BEGIN")
            connection.execute("DECLARE c CURSOR FOR SELECT id FROM events WHERE ts < '2026-01-01'")
            connection.execute("FETCH 1 FROM c")
            _seam(other, SEAM)
            with pytest.raises(psycopg.errors.SerializationFailure, match="moved between tiers"):
                connection.execute("SELECT count(*) FROM events WHERE ts >= '2026-02-01' AND ts < '2026-03-01'")
            connection.execute("ROLLBACK")
        finally:
            _seam(other, SEAM)


def test_a_range_that_is_not_cold_is_never_answered(world: World, connection: psycopg.Connection[Any]) -> None:
    with world.connect() as other:
        _seam(other, PERIODS[2][0])
        try:
            with pytest.raises(psycopg.errors.SerializationFailure) as caught:
                connection.execute("SELECT count(*) FROM events WHERE ts >= '2026-02-01' AND ts < '2026-03-01'")
            assert caught.value.diag.message_hint == "retry the transaction"
        finally:
            _seam(other, SEAM)


@pytest.mark.usefixtures("gateway")
def test_an_export_is_read_before_it_is_visible(world: World) -> None:
    """The second form of name: an operation's Iceberg snapshot at an exported Postgres snapshot."""
    with world.connect() as connection, world.connect() as holder, world.connect() as other:
        holder.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
        exported = holder.execute("SELECT pg_export_snapshot()").fetchone()
        assert exported is not None
        _seam(other, PERIODS[2][0])
        operation = other.execute(
            "INSERT INTO frostline.operations (table_id, kind, leaf, upper, snapshot_id, metadata_location)"
            " SELECT id, 'archive', 'x', %s, snapshot_id, metadata_location FROM frostline.tables RETURNING id",
            [SEAM],
        ).fetchone()
        assert operation is not None
        # The export must not be read through the registry's own pin.
        pinned = other.execute("SELECT snapshot_id, metadata_location FROM frostline.tables").fetchone()
        assert pinned is not None
        other.execute("UPDATE frostline.tables SET snapshot_id = NULL, metadata_location = NULL")
        other.execute("INSERT INTO frostline_delta.events SELECT *, 'T', 1, 0 FROM copy WHERE id = 6000")
        try:
            holder.execute("COMMIT")
            holder.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
            exported = holder.execute("SELECT pg_export_snapshot()").fetchone()
            assert exported is not None
            other.execute("INSERT INTO frostline_delta.events SELECT *, 'T', 2, 0 FROM copy WHERE id = 5900")
            schema = f"table {world.table_id} operation {operation[0]} snapshot {exported[0]}"
            foreign_table(connection, "exported", world.table_id, *PERIODS[2], schema=schema)
            condition = "ts >= '2026-02-01' AND ts < '2026-03-01' AND id <> 6000 AND id IN (5899, 5900, 6000, 6001)"
            found = rows(connection, "SELECT * FROM exported WHERE id IN (5899, 5900, 6000, 6001) ORDER BY id")
            cold = other.execute("SELECT count(*) FROM copy WHERE id = 5900 AND ts < '2026-03-01'").fetchone()
            assert cold == (1,)
            assert found == rows(connection, f"SELECT * FROM copy WHERE {condition} ORDER BY id")
            assert rows(connection, "SELECT count(*) FROM exported WHERE t LIKE '%'") == rows(
                connection,
                "SELECT count(*) FROM copy WHERE t LIKE '%' AND id <> 6000 "
                "AND ts >= '2026-02-01' AND ts < '2026-03-01'",
            )
        finally:
            holder.execute("COMMIT")
            other.execute("DELETE FROM frostline_delta.events")
            other.execute("DROP FOREIGN TABLE IF EXISTS exported")
            other.execute("UPDATE frostline.tables SET snapshot_id = %s, metadata_location = %s", pinned)
            other.execute("DELETE FROM frostline.operations")
            _seam(other, SEAM)


def test_before_the_first_archive_the_lake_part_is_empty(world: World, connection: psycopg.Connection[Any]) -> None:
    with world.connect() as other:
        pinned = other.execute("SELECT snapshot_id, metadata_location FROM frostline.tables").fetchone()
        assert pinned is not None
        other.execute("UPDATE frostline.tables SET snapshot_id = NULL, metadata_location = NULL")
        try:
            hot = rows(connection, f"SELECT * FROM copy WHERE ts >= '{SEAM}' ORDER BY id")
            assert rows(connection, "SELECT * FROM events ORDER BY id") == hot
            assert rows(connection, "SELECT id FROM events WHERE t LIKE 'row 5%' AND ts < '2026-01-01'") == []
        finally:
            other.execute("UPDATE frostline.tables SET snapshot_id = %s, metadata_location = %s", pinned)


def test_a_renamed_column_is_found(connection: psycopg.Connection[Any]) -> None:
    expected = rows(connection, "SELECT id, t FROM copy WHERE id < 10 ORDER BY id")
    connection.execute("ALTER TABLE events RENAME t TO renamed")
    try:
        assert rows(connection, "SELECT id, renamed FROM events WHERE id < 10 ORDER BY id") == expected
    finally:
        connection.execute("ALTER TABLE events RENAME renamed TO t")


@pytest.mark.parametrize(
    ("there", "back", "query"),
    [
        (
            "ALTER TABLE {0} RENAME t TO x; ALTER TABLE {0} RENAME v TO t; ALTER TABLE {0} RENAME x TO v",
            "ALTER TABLE {0} RENAME t TO x; ALTER TABLE {0} RENAME v TO t; ALTER TABLE {0} RENAME x TO v",
            "SELECT id, t, v FROM {0} WHERE ts < '2026-02-01' AND t LIKE 'r%' ORDER BY id LIMIT 50",
        ),
        (
            "ALTER TYPE mood RENAME TO feeling",
            "ALTER TYPE feeling RENAME TO mood",
            "SELECT id FROM {0} WHERE ts < '2026-02-01' AND mood::text || '' = 'sad' ORDER BY id LIMIT 50",
        ),
        (
            "ALTER TABLE events RENAME TO occasions",
            "ALTER TABLE occasions RENAME TO events",
            "SELECT id FROM copy WHERE id IN (SELECT id FROM events_1) ORDER BY id LIMIT 50",
        ),
    ],
)
def test_a_session_follows_what_is_renamed(
    connection: psycopg.Connection[Any], there: str, back: str, query: str
) -> None:
    """It knows the table already, and asks only for what has changed."""
    for _ in range(2):
        assert rows(connection, query.format("events")) == rows(connection, query.format("copy"))
    for table in ("events", "copy")[: 1 + there.count("{0} ")]:
        connection.execute(there.format(table))
    try:
        for _ in range(2):
            assert rows(connection, query.format("events")) == rows(connection, query.format("copy"))
    finally:
        for table in ("events", "copy")[: 1 + there.count("{0} ")]:
            connection.execute(back.format(table))
    assert rows(connection, query.format("events")) == rows(connection, query.format("copy"))
