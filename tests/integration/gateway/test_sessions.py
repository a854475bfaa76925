"""Transactions, cursors, cancel requests and many clients at once, as postgres_fdw drives them."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any

import psycopg
import pytest

from fix_cluster import wait_until
from frostline.catalog.names import SERVER_NAME
from frostline.errors import DatabaseError, StackError
from frostline.gateway import server
from frostline.gateway.server import Gateway
from integration.gateway.conftest import settings_for
from integration.gateway.world import World, rows

COLD = "ts < '2026-03-01'"


@contextmanager
def another(world: World, gateway: Gateway, **options: Any) -> Iterator[Gateway]:
    """A second gateway that Postgres is pointed at for a while."""
    started = Gateway(settings_for(world.dsn, **options))
    started.start()
    try:
        yield started
    finally:
        started.stop(grace=0)
        assert gateway.port


def test_several_cursors_do_not_disturb_each_other(connection: psycopg.Connection[Any]) -> None:
    with connection.transaction():
        for number, condition in enumerate(["id > 0", "t LIKE 'row%'", "b", "t ~ '1'"]):
            for table in ("events", "copy"):
                query = f"SELECT id, t FROM {table} WHERE {condition} AND {COLD} ORDER BY id"
                connection.execute(f"DECLARE {table}_{number} CURSOR FOR {query}")
        for size in (1, 7, 1000, 3, 10000):
            for number in (3, 0, 2, 1):
                found = [rows(connection, f"FETCH {size} FROM {table}_{number}") for table in ("events", "copy")]
                assert found[0] == found[1]


@pytest.mark.usefixtures("gateway")
@pytest.mark.parametrize("size", [1, 3, 100, 100000])
def test_any_fetch_size_gives_every_row_once(world: World, size: int) -> None:
    with world.connect() as connection:
        connection.execute(f"ALTER FOREIGN TABLE events_1 OPTIONS (ADD fetch_size '{size}')")
        try:
            query = "SELECT * FROM {} WHERE ts >= '2026-01-01' AND ts < '2026-02-01' AND id < 1200"
            found = [sorted(rows(connection, query.format(table)), key=repr) for table in ("events", "copy")]
            assert len(found[1]) == 184
            assert found[0] == found[1]
        finally:
            connection.execute("ALTER FOREIGN TABLE events_1 OPTIONS (DROP fetch_size)")


def test_rescans_start_again(connection: psycopg.Connection[Any]) -> None:
    """A nested loop with the foreign scan inside, its filter known to DuckDB or not."""
    for setting in ("hashjoin", "mergejoin", "material", "memoize"):
        connection.execute(f"SET enable_{setting} = off")
    for condition in ("e.i4 = k", "e.i4 = k AND e.t LIKE 'row%'", "e.i4 + 0 = k", "e.id < 20"):
        inner = f"SELECT * FROM {{}} e WHERE {condition} AND e.{COLD}"
        query = f"SELECT k, e.id FROM generate_series(1, 20) k JOIN LATERAL ({inner}) e ON true"
        found = [sorted(rows(connection, query.format(table)), key=repr) for table in ("events", "copy")]
        assert found[0] == found[1]
        assert found[1]


def test_savepoints_at_depth(connection: psycopg.Connection[Any]) -> None:
    count = rows(connection, f"SELECT count(*) FROM copy WHERE {COLD}")
    with connection.transaction():
        connection.execute(f"DECLARE outside CURSOR FOR SELECT id FROM events WHERE {COLD} ORDER BY id")
        assert rows(connection, "FETCH 1 FROM outside") == [(b"-5",)]
        for depth in range(4):
            connection.execute(f"SAVEPOINT s{depth}")
            connection.execute(f"DECLARE inside{depth} CURSOR FOR SELECT id FROM events WHERE t LIKE '%' AND {COLD}")
            assert len(rows(connection, f"FETCH 5 FROM inside{depth}")) == 5
        with pytest.raises(psycopg.errors.DivisionByZero):
            connection.execute(f"SELECT 1 / (id - id) FROM events WHERE 1 / (id - id) = 1 AND {COLD}")
        connection.execute("ROLLBACK TO SAVEPOINT s3")
        assert len(rows(connection, "FETCH 5 FROM inside2")) == 5
        connection.execute("ROLLBACK TO SAVEPOINT s1")
        assert rows(connection, f"SELECT count(*) FROM events WHERE {COLD}") == count
        assert rows(connection, "FETCH 1 FROM outside") == [(b"-4",)]
        connection.execute("RELEASE SAVEPOINT s0")
        assert rows(connection, "FETCH 1 FROM outside") == [(b"-3",)]


def test_a_failed_statement_leaves_the_connection_usable(connection: psycopg.Connection[Any]) -> None:
    for _ in range(3):
        with pytest.raises(psycopg.errors.DivisionByZero):
            connection.execute(f"SELECT * FROM events WHERE 1 / (id - id) = 1 AND {COLD}")
        assert rows(connection, "SELECT id FROM events WHERE id = 5") == [(b"5",)]


@pytest.mark.usefixtures("gateway")
def test_many_sessions_at_once(world: World) -> None:
    queries = [
        f"SELECT * FROM {{}} WHERE {COLD} AND id % 8 = {{n}}",
        f"SELECT count(*), sum(n) FROM {{}} WHERE {COLD} AND id > {{n}}",
        f"SELECT v, count(*) FROM {{}} WHERE t LIKE '%{{n}}' AND {COLD} GROUP BY v",
    ]

    def work(n: int) -> bool:
        with world.connect() as connection:
            for query in queries * 2:
                found = [sorted(rows(connection, query.format(table, n=n)), key=repr) for table in ("events", "copy")]
                if found[0] != found[1]:
                    return False
        return True

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(work, range(8)))


def test_analyze_samples_the_cold_partitions(connection: psycopg.Connection[Any]) -> None:
    connection.execute("SET default_statistics_target = 5")
    connection.execute("ANALYZE events")
    found = connection.execute("SELECT reltuples FROM pg_class WHERE relname = 'events_1'").fetchone()
    exact = connection.execute(
        "SELECT rows FROM frostline.periods WHERE foreign_table = 'events_1'::regclass"
    ).fetchone()
    assert found is not None
    assert exact is not None
    assert found[0] == pytest.approx(exact[0], rel=0.35)
    null = connection.execute(
        "SELECT null_frac FROM pg_stats WHERE tablename = 'events_1' AND attname = 'b'"
    ).fetchone()
    assert null is not None
    assert 0.1 < null[0] < 0.6


def test_a_timeout_interrupts_duckdb_and_postgres(connection: psycopg.Connection[Any]) -> None:
    cross = f"FROM events a JOIN events b ON a.i4 <> b.i4 AND a.t <> b.t WHERE a.{COLD} AND b.{COLD}"
    for query in (
        f"SELECT max(a.t || b.t || a.cc) {cross}",
        f"SELECT count(*) FROM events a WHERE {COLD} AND repeat(t, 20000) ~ '(x+x+)+y'",
    ):
        connection.execute("SET statement_timeout = '400ms'")
        started = time.monotonic()
        with pytest.raises(psycopg.errors.QueryCanceled):
            connection.execute(query)
        assert time.monotonic() - started < 60  # to their end they take far longer
        connection.execute("SET statement_timeout = 0")
        assert rows(connection, "SELECT id FROM events WHERE id = 5") == [(b"5",)]


@pytest.mark.usefixtures("gateway")
def test_a_cancel_request_stops_a_scan(world: World) -> None:
    with world.connect() as connection, world.connect() as other:
        waits = (
            f"SELECT FROM pg_stat_activity WHERE pid = {connection.info.backend_pid} AND wait_event_type = 'Extension'"
        )

        def cancel() -> None:
            try:
                wait_until(lambda: other.execute(waits).rowcount == 1, 60, "it waits for the gateway")
            finally:
                connection.cancel_safe()

        thread = threading.Thread(target=cancel)
        assert rows(connection, "SELECT id FROM events WHERE id = 5") == [(b"5",)]  # it is connected
        thread.start()
        with pytest.raises(psycopg.errors.QueryCanceled):
            connection.execute(
                "SELECT count(*) FROM generate_series(1, 100000) k, LATERAL "
                f"(SELECT id FROM events WHERE {COLD} AND id = k OFFSET 0) e"
            )
        thread.join()
        assert rows(connection, "SELECT id FROM events WHERE id = 5") == [(b"5",)]


@pytest.mark.usefixtures("gateway")
def test_other_roles_read_through_the_one_mapping(world: World) -> None:
    """Without superuser rights, and in a SECURITY DEFINER function of somebody else."""
    with world.connect() as connection:
        connection.execute("DROP ROLE IF EXISTS reader")
        connection.execute("CREATE ROLE reader")
        try:
            connection.execute("GRANT SELECT ON events TO reader")
            connection.execute("SET ROLE reader")
            assert rows(connection, "SELECT id FROM events WHERE id = 5") == [(b"5",)]
        finally:
            connection.execute("RESET ROLE")
            connection.execute("REVOKE ALL ON events FROM reader")
            connection.execute("DROP ROLE reader")


def test_connections_of_the_gateway_that_were_ended_are_opened_again(
    world: World, connection: psycopg.Connection[Any]
) -> None:
    query = "SELECT id FROM events WHERE id = 5"
    assert rows(connection, query) == [(b"5",)]
    with world.connect() as admin:
        ended = admin.execute(
            "SELECT count(pg_terminate_backend(pid, 5000)) FROM pg_stat_activity"
            " WHERE application_name LIKE 'frostline gateway%' AND datname = current_database()"
        ).fetchone()
    assert ended is not None
    assert ended[0] >= 2
    assert rows(connection, query) == [(b"5",)]
    with world.connect() as another_one:  # admission asks Postgres too
        assert rows(another_one, query) == [(b"5",)]


def test_timeouts_set_for_the_database_end_no_cold_read(world: World, gateway: Gateway) -> None:
    assert gateway.port
    name = psycopg.conninfo.conninfo_to_dict(world.dsn)["dbname"]
    settings = ["idle_in_transaction_session_timeout", "idle_session_timeout", "statement_timeout"]
    with world.connect() as admin:
        if admin.info.server_version >= 170000:
            settings.append("transaction_timeout")
        for setting in settings:
            admin.execute(f"ALTER DATABASE \"{name}\" SET {setting} = '200ms'")
        try:
            # The client's own are off from the start.
            with world.connect(options=" ".join(f"-c {setting}=0" for setting in settings)) as client:
                for _ in range(2):
                    client.execute("BEGIN")
                    client.execute(f"DECLARE c CURSOR FOR SELECT id FROM events WHERE t ~ 'row' AND {COLD}")
                    assert len(rows(client, "FETCH 5 FROM c")) == 5
                    client.execute("SELECT pg_sleep(0.4)")
                    assert len(rows(client, "FETCH 5 FROM c")) == 5
                    client.execute("COMMIT")
                    client.execute("SELECT pg_sleep(0.4)")
        finally:
            for setting in settings:
                admin.execute(f'ALTER DATABASE "{name}" RESET {setting}')


def test_too_many_sessions_are_refused(world: World, gateway: Gateway) -> None:
    with another(world, gateway, max_sessions=1), world.connect() as one, world.connect() as two:
        assert rows(one, "SELECT id FROM events WHERE id = 5") == [(b"5",)]
        with pytest.raises(psycopg.errors.SqlclientUnableToEstablishSqlconnection, match="too many clients"):
            two.execute("SELECT id FROM events WHERE id = 5")


def _address(connection: psycopg.Connection[Any]) -> dict[str, str]:
    row = connection.execute("SELECT srvoptions FROM pg_foreign_server").fetchone()
    assert row is not None
    options = dict(option.split("=", 1) for option in row[0])
    return {"host": options["host"], "port": options["port"]}


def test_stopping_ends_open_transactions_and_another_gateway_takes_over(world: World, gateway: Gateway) -> None:
    """Both stand in the one server entry; nothing is told to Postgres by hand."""
    with another(world, gateway) as first, world.connect() as connection:
        assert _address(connection) == {"host": "127.0.0.1,127.0.0.1", "port": f"{first.port},{gateway.port}"}
        connection.execute("BEGIN")
        connection.execute(f"DECLARE c CURSOR FOR SELECT id FROM events WHERE {COLD} ORDER BY id")
        rows(connection, "FETCH 1 FROM c")
        first.stop(grace=0.2)
        with pytest.raises(psycopg.Error, match="shutting down"):
            connection.execute("SELECT count(*) FROM events")
        connection.execute("ROLLBACK")
        assert rows(connection, "SELECT id FROM events WHERE id = 5") == [(b"5",)]
        assert _address(connection) == {"host": "127.0.0.1", "port": str(gateway.port)}


def test_an_open_transaction_comes_to_its_end_while_new_sessions_go_elsewhere(world: World, gateway: Gateway) -> None:
    with another(world, gateway) as first, world.connect() as connection, world.connect() as late:
        connection.execute("BEGIN")
        connection.execute(f"DECLARE c CURSOR FOR SELECT id FROM events WHERE {COLD} ORDER BY id")
        assert rows(connection, "FETCH 1 FROM c") == [(b"-5",)]
        assert len(first._current()) == 1
        stopping = threading.Thread(target=first.stop, args=(60,))
        stopping.start()
        wait_until(lambda: first._stopping, 60, "it is stopping")
        with pytest.raises(psycopg.OperationalError):
            psycopg.connect(host=first.host, port=first.port, user="anybody", dbname="any", connect_timeout=10)
        assert rows(late, "SELECT id FROM events WHERE id = 5") == [(b"5",)]  # by the other gateway
        assert stopping.is_alive()
        assert rows(connection, "FETCH 2 FROM c") == [(b"-4",), (b"-3",)]
        assert rows(connection, "SELECT id FROM events WHERE id = 6") == [(b"6",)]
        assert len(first._current()) == 1
        connection.execute("COMMIT")
        stopping.join(50)  # it waits for nobody else
        assert not stopping.is_alive()
        assert rows(connection, "SELECT id FROM events WHERE id = 7") == [(b"7",)]


def _silent(gateway: Gateway) -> socket.socket:
    return socket.create_connection((gateway.host, gateway.port), timeout=20)


def test_a_client_that_says_nothing_is_let_go(world: World, gateway: Gateway, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "STARTUP_SECONDS", 0.3)
    with another(world, gateway) as short, _silent(short) as nothing, _silent(short) as half:
        half.sendall(b"\0\0")
        assert (nothing.recv(1), half.recv(1)) == (b"", b"")
        with world.connect() as connection:
            assert rows(connection, "SELECT id FROM events WHERE id = 5") == [(b"5",)]


def _met(gateway: Gateway, address: object) -> bool:
    return address in [stranger.sock.getpeername() for stranger in list(gateway._strangers)]


def test_silent_clients_take_nobodys_place(world: World, gateway: Gateway) -> None:
    with another(world, gateway, max_sessions=2) as small, ExitStack() as open_:
        silent = []
        for _ in range(5):
            silent.append(open_.enter_context(_silent(small)))
            # Each is met by a thread of its own, which may overtake another's.
            wait_until(partial(_met, small, silent[-1].getsockname()), 20, "it is met")
        for oldest in silent[:3]:
            assert oldest.recv(1) == b""
        with world.connect() as connection:
            assert rows(connection, "SELECT id FROM events WHERE id = 5") == [(b"5",)]
            assert len(small._current()) == 1


def test_without_a_gateway_hot_rows_answer_and_cold_ones_say_what_to_do(world: World, gateway: Gateway) -> None:
    with world.connect() as connection:
        connection.execute(f"ALTER SERVER \"{SERVER_NAME}\" OPTIONS (SET host '127.0.0.1', SET port '1')")
        try:
            with pytest.raises(psycopg.errors.SqlclientUnableToEstablishSqlconnection, match="frostline up starts it"):
                connection.execute("SELECT count(*) FROM events")
            assert rows(connection, "SELECT id FROM events WHERE id = 7999 AND ts > '2026-03-01'") == [(b"7999",)]
        finally:
            gateway.publish()
        assert rows(connection, "SELECT id FROM events WHERE id = 5") == [(b"5",)]


def test_a_gateway_that_died_is_passed_over_and_then_forgotten(world: World, gateway: Gateway) -> None:
    """Killed: its address stays in the entry until its heartbeat is old, and clients go on to the next."""
    with world.connect() as connection:
        connection.execute(
            "INSERT INTO frostline.gateways VALUES (gen_random_uuid(), '127.0.0.1', 1, clock_timestamp() + '1 hour')"
        )
        gateway.publish()
        assert _address(connection)["port"] == f"1,{gateway.port}"
        assert rows(connection, "SELECT id FROM events WHERE id = 5") == [(b"5",)]
        connection.execute("UPDATE frostline.gateways SET heartbeat = heartbeat - interval '2 minutes' WHERE port = 1")
        gateway.renew()
        assert _address(connection)["port"] == str(gateway.port)
        assert connection.execute("SELECT port FROM frostline.gateways").fetchall() == [(gateway.port,)]


def test_an_occupied_port_is_one_clear_error(world: World, gateway: Gateway) -> None:
    with pytest.raises(StackError, match=f"cannot listen on 127.0.0.1 port {gateway.port}"):
        Gateway(settings_for(world.dsn, port=gateway.port)).start()


def test_a_database_without_registry_is_one_clear_error(dsn: str) -> None:
    elsewhere = psycopg.conninfo.make_conninfo(dsn, dbname="template1")
    with pytest.raises(DatabaseError, match="no Frostline registry"):
        Gateway(settings_for(elsewhere)).start()
