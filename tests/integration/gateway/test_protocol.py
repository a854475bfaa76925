"""The protocol met directly: passwords, other databases, malformed messages, and clients other than postgres_fdw."""

from __future__ import annotations

import random
import socket
import struct
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from fix_cluster import wait_until
from frostline.catalog.names import GATEWAY_USER, SERVER_NAME
from frostline.gateway.server import Gateway
from integration.gateway.world import World

JANUARY = "from 2026-01-01 00:00:00+00 to 2026-02-01 00:00:00+00"


@pytest.fixture
def address(world: World, gateway: Gateway) -> dict[str, Any]:
    """How postgres_fdw connects."""
    with world.connect() as connection:
        row = connection.execute(
            "SELECT i.id::text, m.umoptions FROM frostline.installation i, pg_user_mappings m WHERE m.srvname = %s",
            [SERVER_NAME],
        ).fetchone()
    assert row is not None
    options = dict(option.split("=", 1) for option in row[1])
    return {
        "host": gateway.host,
        "port": gateway.port,
        "dbname": row[0],
        "user": GATEWAY_USER,
        "password": options["password"],
    }


@pytest.fixture
def direct(address: dict[str, Any]) -> Iterator[psycopg.Connection[Any]]:
    with psycopg.connect(**address, autocommit=True, prepare_threshold=None) as connection:
        yield connection


@pytest.fixture
def january(world: World) -> str:
    return f'"table {world.table_id}"."{JANUARY}"'


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"password": "wrong"}, "password authentication failed"),
        ({"user": "postgres"}, "password authentication failed"),
        ({"dbname": "postgres"}, "this gateway serves installation"),
        ({"client_encoding": "LATIN1"}, "the gateway speaks UTF8"),
        ({"sslmode": "require"}, "server does not support SSL"),
    ],
)
def test_a_client_that_does_not_belong_is_refused(
    address: dict[str, Any], changed: dict[str, Any], message: str
) -> None:
    with pytest.raises(psycopg.OperationalError, match=message):
        psycopg.connect(**{**address, **changed})


def test_a_changed_secret_is_used_at_once(world: World, address: dict[str, Any]) -> None:
    alter = f"ALTER USER MAPPING FOR PUBLIC SERVER \"{SERVER_NAME}\" OPTIONS (SET password '%s')"
    with world.connect() as connection:
        connection.execute(alter % "changed")
        try:
            psycopg.connect(**{**address, "password": "changed"}).close()
            with pytest.raises(psycopg.OperationalError):
                psycopg.connect(**address)
            assert connection.execute("SELECT id FROM events WHERE id = 5").fetchone() == (5,)
        finally:
            connection.execute(alter % address["password"])


def test_an_ordinary_client_can_read(direct: psycopg.Connection[Any], january: str) -> None:
    """Extended protocol with parameters, described results, prepared statements."""
    query = f"SELECT id, ts, n, t FROM {january} WHERE id = %s"
    for prepare in (False, True, True):
        row = direct.execute(query, ["1100"], prepare=prepare).fetchone()
        assert row is not None
        assert row[0] == 1100
    assert direct.execute(f"SELECT count(*) FROM {january} WHERE t LIKE %s", ["row 1%"]).fetchone() == (297,)
    assert direct.execute(f"SELECT count(*) FROM {january} a JOIN {january} b USING (id)").fetchone() == (2626,)


def test_several_statements_in_one_query(direct: psycopg.Connection[Any], january: str) -> None:
    cursor = direct.execute(
        f"BEGIN; DECLARE c CURSOR FOR SELECT id FROM {january} ORDER BY id ASC NULLS LAST;"
        " FETCH 2 FROM c; MOVE BACKWARD ALL IN c; FETCH 1 FROM c; CLOSE c; COMMIT"
    )
    found = []
    while True:
        found.append((cursor.statusmessage, cursor.fetchall() if cursor.description is not None else None))
        if not cursor.nextset():
            break
    assert found == [
        ("BEGIN", None),
        ("DECLARE CURSOR", None),
        ("FETCH 2", [(-4,), (1017,)]),
        ("MOVE 0", None),
        ("FETCH 1", [(-4,)]),
        ("CLOSE CURSOR", None),
        ("COMMIT", None),
    ]


def _status(connection: psycopg.Connection[Any]) -> str:
    return connection.info.transaction_status.name


def test_a_failed_transaction_only_ends(direct: psycopg.Connection[Any], january: str) -> None:
    direct.execute("BEGIN")
    direct.execute("SAVEPOINT s1")
    assert _status(direct) == "INTRANS"
    with pytest.raises(psycopg.errors.InvalidCursorName):
        direct.execute("FETCH 1 FROM nothing")
    assert _status(direct) == "INERROR"
    with pytest.raises(psycopg.errors.InFailedSqlTransaction):
        direct.execute(f"SELECT id FROM {january}")
    direct.execute("ROLLBACK TO SAVEPOINT s1; RELEASE SAVEPOINT s1")
    assert _status(direct) == "INTRANS"
    direct.execute("COMMIT")
    assert _status(direct) == "IDLE"


@pytest.mark.parametrize(
    ("statement", "sqlstate"),
    [
        ("SELECT 1", "0A000"),
        ("CREATE TABLE x ()", "0A000"),
        ("SELECT * FROM pg_class", "0A000"),
        ('SELECT id FROM "table 999999"."from MINVALUE to 2026-01-01 00:00:00+00"', "42P01"),
        ('SELECT id FROM "table 1"."elsewhere"', "42P01"),
        ("SELECT 'open", "42601"),
        ("DECLARE c CURSOR FOR SELECT 1", "25P01"),
        ("SAVEPOINT s", "25P01"),
        ("DEALLOCATE nothing", "26000"),
        ("FETCH 1 FROM nothing", "34000"),
    ],
)
def test_a_statement_that_makes_no_sense_is_an_error(
    direct: psycopg.Connection[Any], statement: str, sqlstate: str
) -> None:
    with pytest.raises(psycopg.Error) as caught:
        direct.execute(statement)
    assert caught.value.sqlstate == sqlstate


def test_a_column_that_does_not_exist(direct: psycopg.Connection[Any], january: str) -> None:
    with pytest.raises(psycopg.errors.UndefinedColumn):
        direct.execute(f"SELECT nothing FROM {january}")


def test_binary_results_are_refused(direct: psycopg.Connection[Any], january: str) -> None:
    with pytest.raises(psycopg.errors.FeatureNotSupported, match="text format"):
        direct.execute(f"SELECT id FROM {january}", binary=True)


def test_a_large_result_can_be_taken_in_parts(direct: psycopg.Connection[Any], january: str) -> None:
    """Execute with a row limit suspends the portal."""
    with direct.transaction(), psycopg.ServerCursor(direct, "c") as cursor:
        cursor.execute(f"SELECT id FROM {january}")
        sizes = []
        while part := cursor.fetchmany(1000):
            sizes.append(len(part))
    assert sizes == [1000, 1000, 626]


def _exchange(gateway: Gateway, data: bytes) -> bytes:
    """Everything the gateway answers to some bytes until it hangs up."""
    with socket.create_connection((gateway.host, gateway.port), timeout=10) as sock:
        sock.sendall(data)
        sock.shutdown(socket.SHUT_WR)
        answer = b""
        while chunk := sock.recv(65536):
            answer += chunk
        return answer


@pytest.mark.parametrize(
    "data",
    [
        b"GET / HTTP/1.1\r\n\r\n",
        struct.pack("!i", 2**31 - 1),
        struct.pack("!i", -5),
        struct.pack("!ii", 8, 196608),
        struct.pack("!ii", 9, 196608) + b"x",
        struct.pack("!ii", 8, 2 << 16),
        struct.pack("!iiii", 16, 80877102, 1, 1),
        b"",
        b"\0",
    ],
)
def test_garbage_ends_that_connection_only(gateway: Gateway, direct: psycopg.Connection[Any], data: bytes) -> None:
    answer = _exchange(gateway, data)
    assert answer == b"" or answer[:1] in (b"E", b"R", b"v")
    direct.execute("SET nothing = at_all")


def test_random_bytes_never_stop_the_gateway(gateway: Gateway, direct: psycopg.Connection[Any]) -> None:
    chance = random.Random(7)
    for _ in range(100):
        body = chance.randbytes(chance.randrange(1, 200))
        _exchange(gateway, struct.pack("!ii", len(body) + 8, 196608) + body)
    direct.execute("SET nothing = at_all")


@pytest.mark.parametrize(
    "message",
    [b"P\0\0\0\x05x", b"B\0\0\0\x06\0\0", b"?\0\0\0\x04", b"Q\x7f\xff\xff\xff", b"Q\0\0\0\x03", b"D\0\0\0\x04"],
)
def test_a_malformed_message_ends_the_session(
    address: dict[str, Any], direct: psycopg.Connection[Any], message: bytes
) -> None:
    with psycopg.connect(**address) as broken:
        sock = socket.socket(fileno=broken.pgconn.socket)
        try:
            sock.setblocking(True)
            sock.settimeout(10)
            sock.sendall(message)
            answer = b""
            while chunk := sock.recv(65536):
                answer += chunk
        finally:
            sock.detach()
    assert b"C08P01" in answer
    assert b"SFATAL" in answer
    direct.execute("SET nothing = at_all")


def _message(kind: bytes, body: bytes = b"") -> bytes:
    return kind + struct.pack("!i", len(body) + 4) + body


def _sequences(source: str) -> list[list[bytes]]:
    """What clients say, message by message."""
    select = f"SELECT id FROM {source} WHERE id < $1".encode()
    bind = b"p\0s\0" + struct.pack("!hhi", 0, 1, 4) + b"1030" + struct.pack("!h", 0)
    declare = f"DECLARE c CURSOR FOR SELECT id, t FROM {source}".encode()
    return [
        [
            *(_message(b"P", b"s\0" + select + b"\0" + struct.pack("!h", 0)), _message(b"B", bind)),
            *(_message(b"D", b"Pp\0"), _message(b"E", b"p\0" + struct.pack("!i", 5)), _message(b"S")),
        ],
        [_message(b"Q", text + b"\0") for text in (b"BEGIN", declare, b"FETCH 3 FROM c", b"CLOSE c", b"COMMIT")],
        [_message(b"P", b"\0" + select + b"\0" + struct.pack("!hi", 1, 20)), _message(b"H"), _message(b"C", b"Ss\0")],
        [_message(b"Q", b"SAVEPOINT s\0"), _message(b"S"), _message(b"X")],
    ]


def _mutated(chance: random.Random, messages: list[bytes]) -> bytes:
    """One to four messages or bytes are others, elsewhere, twice there or missing."""
    messages = list(messages)
    if chance.random() < 0.5:
        at = chance.randrange(len(messages))
        messages[at : at + 1] = [messages[at]] * chance.choice([0, 2])
        chance.shuffle(messages)
    data = bytearray(b"".join(messages))
    for _ in range(chance.randrange(1, 4)):
        at = chance.randrange(len(data))
        data[at : at + chance.randrange(3)] = chance.randbytes(chance.randrange(4))
    return bytes(data)


def _said(address: dict[str, Any], data: bytes) -> None:
    """By a client that has logged in, and goes."""
    with psycopg.connect(**address) as client:
        sock = socket.socket(fileno=client.pgconn.socket)
        try:
            sock.setblocking(True)
            sock.settimeout(20)
            sock.sendall(data)
            sock.shutdown(socket.SHUT_WR)
            while sock.recv(65536):
                pass
        except ConnectionError:
            pass  # it hung up before it had read everything
        finally:
            sock.detach()


def test_whatever_a_session_says_only_that_session_ends(
    gateway: Gateway,
    address: dict[str, Any],
    direct: psycopg.Connection[Any],
    january: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    chance = random.Random(11)
    sequences = _sequences(january)
    direct.execute("BEGIN")
    direct.execute(f"DECLARE mine CURSOR FOR SELECT id FROM {january} ORDER BY id ASC NULLS LAST")
    for number in range(80):
        data = chance.randbytes(chance.randrange(1, 200)) if number % 8 == 0 else b""
        _said(address, data or _mutated(chance, sequences[number % len(sequences)]))
    assert direct.execute("FETCH 2 FROM mine").fetchall() == [(-4,), (1017,)]
    direct.execute("COMMIT")
    assert [record.getMessage() for record in caplog.records if record.exc_info] == []
    wait_until(lambda: len(gateway._current()) <= 1, 60, "the last one's thread ends")
