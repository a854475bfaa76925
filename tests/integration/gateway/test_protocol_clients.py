"""Clients under TLS, clients that stop reading, clients that vanish, and a cancel request that stops DuckDB."""

from __future__ import annotations

import contextlib
import socket
import struct
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyiceberg.catalog.sql import SqlCatalog

from frostline.catalog.names import GATEWAY_USER, SERVER_NAME
from frostline.errors import ConfigError
from frostline.gateway.server import Gateway
from integration.gateway.conftest import settings_for
from integration.gateway.world import World, rows

BIG_ROWS = 3_000_000


@contextlib.contextmanager
def started(world: World, **options: Any) -> Iterator[Gateway]:
    """One more gateway, which Postgres prefers because it is the newest."""
    gateway = Gateway(settings_for(world.dsn, **options))
    gateway.start()
    try:
        yield gateway
    finally:
        gateway.stop(grace=0)


def _address(world: World, gateway: Gateway) -> dict[str, Any]:
    with world.connect() as connection:
        row = connection.execute(
            "SELECT i.id::text, m.umoptions FROM frostline.installation i, pg_user_mappings m WHERE m.srvname = %s",
            [SERVER_NAME],
        ).fetchone()
    assert row is not None
    password = dict(option.split("=", 1) for option in row[1])["password"]
    return {"host": "127.0.0.1", "port": gateway.port, "dbname": row[0], "user": GATEWAY_USER, "password": password}


def _eventually(condition: Callable[[], bool], seconds: float = 60) -> bool:
    end = time.monotonic() + seconds
    while not (found := condition()) and time.monotonic() < end:
        time.sleep(0.02)
    return found


def _certificate(folder: Path) -> tuple[str, str]:
    cert, key = str(folder / "cert.pem"), str(folder / "key.pem")
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost"]
    command += ["-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1", "-out", cert, "-keyout", key]
    subprocess.run(command, check=True, capture_output=True)
    return cert, key


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    return _certificate(tmp_path_factory.mktemp("tls"))


def test_postgres_and_others_connect_under_tls(
    world: World, gateway: Gateway, certificate: tuple[str, str], tmp_path: Path
) -> None:
    cert, key = certificate
    assert gateway.port
    with started(world, tls_cert=cert, tls_key=key) as secure, world.connect() as connection:
        try:
            options = connection.execute("SELECT array_to_string(srvoptions, ' ') FROM pg_foreign_server").fetchone()
            assert options is not None
            assert "sslmode=require" in options[0]
            assert rows(connection, "SELECT id FROM events WHERE id = 5") == [(b"5",)]
            assert secure._metrics.text().count("frostline_gateway_sessions_total 1") == 1
            address = _address(world, secure)
            for verify in ("require", "verify-ca", "verify-full"):
                with psycopg.connect(**address, sslmode=verify, sslrootcert=cert) as direct:
                    assert direct.pgconn.ssl_in_use
            with pytest.raises(psycopg.OperationalError, match="certificate verify failed"):
                psycopg.connect(**address, sslmode="verify-ca", sslrootcert=_certificate(tmp_path)[0])
            # A shutdown is announced under TLS too.
            connection.execute("BEGIN")
            rows(connection, "SELECT id FROM events WHERE id = 5")
            secure.stop(grace=0.1)
            with pytest.raises(psycopg.Error, match="shutting down"):
                connection.execute("SELECT id FROM events WHERE id = 5")
            connection.execute("ROLLBACK")
        finally:
            connection.execute(f'ALTER SERVER "{SERVER_NAME}" OPTIONS (DROP sslmode, DROP sslcert)')
        assert rows(connection, "SELECT id FROM events WHERE id = 5") == [(b"5",)]


def test_data_before_the_handshake_is_not_taken_for_the_clients(
    world: World, gateway: Gateway, certificate: tuple[str, str]
) -> None:
    cert, key = certificate
    assert gateway.port
    with started(world, tls_cert=cert, tls_key=key) as secure, world.connect() as connection:
        try:
            with socket.create_connection(("127.0.0.1", secure.port), timeout=10) as sock:
                sock.sendall(struct.pack("!ii", 8, 80877103) + struct.pack("!ii", 9, 196608) + b"\0")
                answer = b""
                while chunk := sock.recv(65536):
                    answer += chunk
            assert answer[:1] == b"S"
            assert b"before the TLS handshake" in answer
            # A client that asks for TLS and then speaks no TLS.
            with socket.create_connection(("127.0.0.1", secure.port), timeout=10) as sock:
                sock.sendall(struct.pack("!ii", 8, 80877103))
                assert sock.recv(1) == b"S"
                sock.sendall(b"GET / HTTP/1.0\r\n\r\n" * 10)
                with contextlib.suppress(ConnectionResetError):
                    while sock.recv(65536):
                        pass
            assert rows(connection, "SELECT id FROM events WHERE id = 5") == [(b"5",)]
        finally:
            connection.execute(f'ALTER SERVER "{SERVER_NAME}" OPTIONS (DROP sslmode, DROP sslcert)')


def test_a_bad_certificate_is_refused_at_start(certificate: tuple[str, str], tmp_path: Path) -> None:
    cert, key = certificate
    empty = tmp_path / "empty.pem"
    empty.write_text("nothing")
    for options, message in (
        (
            {"tls_cert": str(tmp_path / "missing.pem"), "tls_key": key},
            r"tls_cert .*missing\.pem cannot be read: No such",
        ),
        ({"tls_cert": cert}, "gateway.tls_key is not set"),
        ({"tls_cert": str(empty), "tls_key": key}, "cannot be used"),
        ({"tls_cert": cert, "tls_key": cert}, "cannot be used"),
    ):
        with pytest.raises(ConfigError, match=message):
            Gateway(settings_for("postgresql://nowhere", **options))


def test_a_client_that_stops_reading_is_let_go_and_others_go_on(world: World, gateway: Gateway) -> None:
    assert gateway.port
    query = ";".join([f'SELECT * FROM "table {world.table_id}"."from MINVALUE to 2026-03-01 00:00:00+00"'] * 40)
    with (
        started(world, send_timeout=1) as impatient,
        world.connect() as other,
        contextlib.closing(psycopg.connect(**_address(world, impatient), autocommit=True)) as stuck,
    ):
        sock = socket.socket(fileno=stuck.pgconn.socket)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        sock.detach()
        assert rows(other, "SELECT id FROM events WHERE id = 5") == [(b"5",)]
        assert len(impatient._current()) == 2
        stuck.pgconn.send_query(query.encode())
        stuck.pgconn.flush()
        assert rows(other, "SELECT id FROM events WHERE id = 5") == [(b"5",)]
        assert _eventually(lambda: len(impatient._current()) == 1)
        assert rows(other, "SELECT id FROM events WHERE id = 5") == [(b"5",)]
        with pytest.raises(psycopg.OperationalError):
            stuck.execute("SELECT 1")


def test_the_kernel_looks_for_peers_that_vanished(world: World, gateway: Gateway) -> None:
    with psycopg.connect(**_address(world, gateway)):
        sock = gateway._current()[-1].stream.sock
        assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
        assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE) == 60
        assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == 300_000


@pytest.fixture(scope="module")
def big(tmp_path_factory: pytest.TempPathFactory) -> tuple[int, str]:
    """An Iceberg table large enough to keep DuckDB busy for seconds."""
    folder = tmp_path_factory.mktemp("big")
    catalog = SqlCatalog("big", uri=f"sqlite:///{folder}/catalog.db", warehouse=f"file://{folder}")
    catalog.create_namespace("ns")
    ids = pa.array(range(BIG_ROWS), pa.int64())
    mixed = pc.cast(pc.multiply(pc.bit_wise_xor(ids, pa.scalar(0x5BD1E995, pa.int64())), 40503), pa.string())
    text = pc.binary_join_element_wise(mixed, pc.utf8_reverse(mixed), mixed, "-")
    stamps = pa.array([0] * BIG_ROWS, pa.timestamp("us", "UTC"))
    rows_ = pa.table({"id": ids, "ts": stamps, "t": text})
    table = catalog.create_table("ns.big", rows_.schema)
    table.append(rows_)
    found = table.current_snapshot()
    assert found is not None
    return found.snapshot_id, table.metadata_location


def _registered(connection: psycopg.Connection[Any], big: tuple[int, str]) -> int:
    connection.execute('CREATE TABLE big (id bigint, ts timestamptz, t text COLLATE "C") PARTITION BY RANGE (ts)')
    connection.execute("CREATE TABLE big_hot PARTITION OF big FOR VALUES FROM ('2000-01-01') TO (MAXVALUE)")
    connection.execute('CREATE TABLE frostline_delta.big (LIKE big, _op "char", _seq bigint, _prev bigint)')
    row = connection.execute(
        "INSERT INTO frostline.tables (relation, hot, delta, hot_for, lake_namespace, lake_table, seam, shape,"
        " snapshot_id, metadata_location) VALUES ('big', 'big_hot', 'frostline_delta.big', '1', 'ns', 'big',"
        " '2000-01-01 00:00:00+00', '{}', %s, %s) RETURNING id",
        big,
    ).fetchone()
    assert row is not None
    connection.execute(
        "INSERT INTO frostline.columns (table_id, attnum, lake_name, field_id, delta_name)"
        " VALUES (%(t)s, 1, 'id', 1, 'id'), (%(t)s, 2, 'ts', 2, 'ts'), (%(t)s, 3, 't', 3, 't')",
        {"t": row[0]},
    )
    connection.execute("UPDATE frostline.tables SET followed = frostline.shape(id)")
    return int(row[0])


def test_a_cancel_request_really_stops_duckdb(world: World, gateway: Gateway, big: tuple[int, str]) -> None:
    """Millions of rows are being sorted when the request comes; soon the process is idle."""
    with world.connect() as connection:
        table = _registered(connection, big)
        try:
            _cancel_sort(world, gateway, table)
        finally:
            connection.execute("DROP TABLE big, frostline_delta.big")
            connection.execute("DELETE FROM frostline.tables WHERE id = %s", [table])


def _cancel_sort(world: World, gateway: Gateway, table: int) -> None:
    name = f'"table {table}"."from MINVALUE to 2000-01-01 00:00:00+00"'
    with psycopg.connect(**_address(world, gateway), autocommit=True, prepare_threshold=None) as direct:
        assert direct.execute(f"SELECT id FROM {name} WHERE id = 7").fetchone() == (7,)
        failure: list[BaseException] = []

        def sort() -> None:
            try:
                direct.execute(f"SELECT id, t FROM {name} ORDER BY t DESC NULLS LAST, id ASC NULLS LAST")
            except psycopg.Error as error:
                failure.append(error)

        thread = threading.Thread(target=sort)
        before = time.process_time()
        thread.start()
        assert _eventually(lambda: time.process_time() - before > 0.3)  # all threads of this process
        asked = time.process_time()
        direct.cancel_safe(timeout=10)
        thread.join(60)
        assert isinstance(failure[0], psycopg.errors.QueryCanceled)
        assert any(_idle() for _ in range(4))
        assert time.process_time() - asked < 0.5  # the whole of it takes seconds
        assert direct.execute(f"SELECT id FROM {name} WHERE id = 7").fetchone() == (7,)


def _idle() -> bool:
    """For half a second this process has hardly anything to do; now and then something else of it has."""
    before = time.process_time()
    time.sleep(0.5)
    return time.process_time() - before < 0.15
