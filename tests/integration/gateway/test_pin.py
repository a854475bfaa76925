"""Pins as rows that maintenance respects, and frostline.pin(): hot and cold at one exact snapshot."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from frostline.catalog import pins
from frostline.catalog.database import Connection, connect
from frostline.gateway.pins import Pins
from frostline.gateway.server import Gateway
from integration.gateway.world import PERIODS, SEAM, World, rows

COUNT = "SELECT count(*) FROM events WHERE ts < '2026-01-01'"


@pytest.fixture
def keeper(world: World, gateway: Gateway) -> Iterator[Connection]:
    """Maintenance's connection; no pins of earlier tests."""
    _pins(gateway).drop_unused(0)
    with connect(world.dsn) as found:
        yield found
        found.execute("DELETE FROM frostline.expiring")


def _pins(gateway: Gateway) -> Pins:
    return gateway._presence.pins


def _current(connection: Connection) -> int:
    row = connection.execute("SELECT snapshot_id FROM frostline.tables").fetchone()
    assert row is not None
    return int(row[0])


def _pinned(connection: Connection) -> list[int]:
    return [found for (found,) in connection.execute("SELECT snapshot_id FROM frostline.pins")]


def _move(connection: Connection, snapshot: int) -> None:
    """What a fold will do: the registry names another Iceberg snapshot."""
    connection.execute("UPDATE frostline.tables SET snapshot_id = %s", [snapshot])


def test_many_readers_of_a_snapshot_cost_one_commit(
    world: World, gateway: Gateway, keeper: Connection, connection: psycopg.Connection[Any]
) -> None:
    current = _current(keeper)
    rows(connection, COUNT)
    written = "SELECT pinned_at, xmin::text FROM frostline.pins"
    first = keeper.execute(written).fetchall()
    assert _pinned(keeper) == [current]
    with world.connect() as other:
        for client in (connection, other) * 3:
            rows(client, COUNT)
    assert keeper.execute(written).fetchall() == first
    _pins(gateway).drop_unused()  # not yet: the next reader will want it
    assert _pinned(keeper) == [current]
    _pins(gateway).drop_unused(0)
    assert _pinned(keeper) == []
    rows(connection, COUNT)
    assert _pinned(keeper) == [current]


def test_what_an_open_transaction_reads_is_live_until_it_ends(
    world: World, gateway: Gateway, keeper: Connection, connection: psycopg.Connection[Any]
) -> None:
    current = _current(keeper)
    connection.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
    rows(connection, COUNT)
    _move(keeper, 12345)
    try:
        assert pins.live_snapshots(keeper, world.table_id) == {current, 12345}
        assert pins.claim_expired(keeper, world.table_id, {current, 777}) == {777}
        _pins(gateway).drop_unused(0)
        assert rows(connection, COUNT) == rows(connection, COUNT.replace("events", "copy"))
        connection.execute("COMMIT")
        _pins(gateway).drop_unused(0)
        assert pins.claim_expired(keeper, world.table_id, {current, 12345}) == {current}
    finally:
        _move(keeper, current)


def test_a_snapshot_being_removed_is_never_pinned(
    world: World, keeper: Connection, connection: psycopg.Connection[Any]
) -> None:
    """The registry row was read before S moved on; the pin comes after maintenance has decided."""
    current = _current(keeper)
    _move(keeper, 12345)
    assert pins.claim_expired(keeper, world.table_id, {current}) == {current}
    _move(keeper, current)  # what a transaction with an older snapshot still reads
    with pytest.raises(psycopg.errors.SerializationFailure) as caught:
        rows(connection, COUNT)
    assert caught.value.diag.message_hint == "retry the transaction"
    assert _pinned(keeper) == []
    keeper.execute("DELETE FROM frostline.expiring")
    assert rows(connection, COUNT) == rows(connection, COUNT.replace("events", "copy"))


def test_pin_and_removal_at_every_interleaving(world: World, gateway: Gateway) -> None:
    """Two steps each, the six orders: never is a snapshot both pinned for reading and removed."""
    orders = {"ppmm": (True, False), "pmpm": (False, False), "pmmp": (False, False)}
    orders |= {"mpmp": (False, False), "mppm": (False, False), "mmpp": (False, True)}
    with connect(world.dsn) as one, connect(world.dsn) as two:
        for number, order in enumerate(orders):
            snapshot = pins.Snapshot(world.table_id, 1000 + number, "nowhere")
            pin = _Recorded(one, gateway, snapshot).steps()
            removal = _Recorded(two, gateway, snapshot).removal()
            found: dict[str, bool] = {}
            for letter in order:
                found[letter] = next(pin if letter == "p" else removal)
            assert (found["p"], found["m"]) == orders[order], order
        one.execute("DELETE FROM frostline.pins WHERE metadata_location = 'nowhere'")
        one.execute("DELETE FROM frostline.expiring")


class _Recorded:
    """The statements of `pins.add` and `pins.claim_expired`, one at a time."""

    def __init__(self, connection: Connection, gateway: Gateway, snapshot: pins.Snapshot) -> None:
        self.connection = connection
        self.gateway = gateway._presence.id
        self.snapshot = snapshot

    def steps(self) -> Iterator[bool]:
        key = (self.snapshot.table, self.snapshot.id)
        self.connection.execute(pins._ADD, (self.gateway, *key, self.snapshot.metadata_location))
        yield False
        yield self.connection.execute(pins._EXPIRING, key).fetchone() is None

    def removal(self) -> Iterator[bool]:
        table, snapshot = self.snapshot.table, self.snapshot.id
        self.connection.execute(pins._EXPIRE, (table, [snapshot]))
        yield False
        yield snapshot not in pins.live_snapshots(self.connection, table)


def test_pins_of_a_dead_gateway_expire_and_a_paused_one_finds_out(
    world: World,
    gateway: Gateway,
    keeper: Connection,
    connection: psycopg.Connection[Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    current = _current(keeper)
    beat = gateway._presence.renew
    monkeypatch.setattr(gateway._presence, "renew", lambda: None)  # its heart beats when we say so
    connection.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
    rows(connection, COUNT)
    _move(keeper, 12345)
    try:
        assert current in pins.live_snapshots(keeper, world.table_id)
        keeper.execute("UPDATE frostline.gateways SET heartbeat = heartbeat - interval '61 seconds'")
        assert pins.live_snapshots(keeper, world.table_id) == {12345}
        beat()  # it had only been slow
        assert current in pins.live_snapshots(keeper, world.table_id)
        # Taken for dead for long, its row is buried and the snapshot removed; then it comes back.
        keeper.execute("DELETE FROM frostline.gateways")
        assert pins.claim_expired(keeper, world.table_id, {current}) == {current}
        beat()
        assert _pinned(keeper) == []
        with pytest.raises(psycopg.errors.SerializationFailure):
            rows(connection, COUNT)
        connection.execute("ROLLBACK")
    finally:
        keeper.execute("DELETE FROM frostline.expiring")
        _move(keeper, current)
    assert rows(connection, COUNT) == rows(connection, COUNT.replace("events", "copy"))


def test_a_gateway_whose_row_was_buried_pins_again_by_itself(
    gateway: Gateway, keeper: Connection, connection: psycopg.Connection[Any]
) -> None:
    keeper.execute("DELETE FROM frostline.gateways")
    assert gateway.port
    assert rows(connection, COUNT) == rows(connection, COUNT.replace("events", "copy"))
    assert _pinned(keeper) == [_current(keeper)]


def test_pin_is_refused_where_there_is_no_one_snapshot(connection: psycopg.Connection[Any]) -> None:
    with pytest.raises(psycopg.errors.FeatureNotSupported, match="a READ COMMITTED transaction has one per statement"):
        connection.execute("SELECT frostline.pin()")
    with connection.transaction(), pytest.raises(psycopg.errors.FeatureNotSupported), connection.transaction():
        connection.execute("SELECT frostline.pin()")


@pytest.mark.parametrize("level", ["REPEATABLE READ", "SERIALIZABLE", "SERIALIZABLE READ ONLY DEFERRABLE"])
@pytest.mark.parametrize(("first", "seen"), [("SELECT frostline.pin()", b"2"), ("SELECT 1", b"1")])
def test_pin_gives_the_delta_and_the_hot_rows_of_one_moment(
    world: World, connection: psycopg.Connection[Any], level: str, first: str, seen: bytes
) -> None:
    """Without it the cold tier is read as of its first use, which is later than the transaction's snapshot."""
    total = "SELECT count(*) FROM events WHERE id IN (5, 7999)"
    with world.connect() as writer:
        connection.execute(f"BEGIN ISOLATION LEVEL {level}")
        connection.execute(first)
        writer.execute("BEGIN")
        writer.execute("INSERT INTO frostline_delta.events SELECT *, 'T', 1, 0 FROM copy WHERE id = 5")
        writer.execute("DELETE FROM events_hot WHERE id = 7999")
        writer.execute("COMMIT")
        try:
            assert rows(connection, total) == [(seen,)]
            assert rows(connection, total) == [(seen,)]
            connection.execute("COMMIT")
            assert rows(connection, total) == [(b"0",)]
        finally:
            writer.execute("DELETE FROM frostline_delta.events")
            writer.execute("INSERT INTO events_hot SELECT * FROM copy WHERE id = 7999")


def test_pin_comes_first_or_not_at_all(connection: psycopg.Connection[Any]) -> None:
    connection.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
    connection.execute("SELECT frostline.pin()")
    rows(connection, COUNT)
    connection.execute("SELECT frostline.pin()")  # again: it is pinned already
    connection.execute("COMMIT")
    connection.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
    rows(connection, COUNT)
    with pytest.raises(psycopg.errors.ActiveSqlTransaction, match="comes too late"):
        connection.execute("SELECT frostline.pin()")
    connection.execute("ROLLBACK")


def test_pin_outlives_savepoints_and_is_not_made_in_one(connection: psycopg.Connection[Any]) -> None:
    expected = rows(connection, COUNT)
    connection.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
    connection.execute("SAVEPOINT s")
    with pytest.raises(psycopg.errors.ActiveSqlTransaction, match="subtransaction"):
        connection.execute("SELECT frostline.pin()")
    connection.execute("ROLLBACK TO s; RELEASE s")
    connection.execute("SELECT frostline.pin()")
    connection.execute("SAVEPOINT s")
    assert rows(connection, COUNT) == expected
    connection.execute("ROLLBACK TO s")
    assert rows(connection, COUNT) == expected
    connection.execute("COMMIT")


def test_every_role_may_pin_and_none_may_read_what_is_behind(world: World, gateway: Gateway) -> None:
    assert gateway.port
    with world.connect() as connection:
        connection.execute("DROP ROLE IF EXISTS pinner")
        connection.execute("CREATE ROLE pinner")
        try:
            connection.execute("GRANT SELECT ON events TO pinner")
            connection.execute("SET ROLE pinner")
            # A namesake of a built-in function in the caller's path stands in for nothing.
            connection.execute("SET search_path = pg_temp, public")
            connection.execute("CREATE FUNCTION pg_temp.pg_export_snapshot() RETURNS text RETURN 'mine'")
            connection.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
            assert rows(connection, "SELECT frostline.pin() <> 'mine'") == [(b"t",)]
            assert rows(connection, "SELECT id FROM events WHERE id = 5") == [(b"5",)]
            connection.execute("COMMIT")
            for table in ("call_pin", "pins", "tables"):
                with pytest.raises(psycopg.errors.InsufficientPrivilege):
                    connection.execute(f"SELECT * FROM frostline.{table}")
        finally:
            connection.execute("RESET ROLE")
            connection.execute("DROP FUNCTION IF EXISTS pg_temp.pg_export_snapshot()")
            connection.execute("DROP OWNED BY pinner")
            connection.execute("DROP ROLE pinner")


def test_a_period_that_became_cold_after_the_pin_is_a_serialization_failure(
    world: World, connection: psycopg.Connection[Any]
) -> None:
    """The partition is foreign to Postgres, whose catalog is always current, and still hot in the pinned snapshot."""
    with world.connect() as other:
        other.execute("UPDATE frostline.tables SET seam = %s", [PERIODS[2][0]])
        try:
            connection.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
            connection.execute("SELECT frostline.pin()")
            other.execute("UPDATE frostline.tables SET seam = %s", [SEAM])
            assert rows(connection, COUNT) == rows(other, COUNT)
            with pytest.raises(psycopg.errors.SerializationFailure, match="moved between tiers"):
                connection.execute("SELECT count(*) FROM events WHERE ts >= '2026-02-01' AND ts < '2026-03-01'")
            connection.execute("ROLLBACK")
        finally:
            other.execute("UPDATE frostline.tables SET seam = %s", [SEAM])
