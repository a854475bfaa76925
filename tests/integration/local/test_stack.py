from __future__ import annotations

import psycopg

from frostline.local.stack import Stack


def test_the_session_stack_is_a_postgres_18_with_our_settings(stack: Stack) -> None:
    with psycopg.connect(stack.dsn) as connection:
        row = connection.execute(
            "SELECT current_setting('server_version_num')::int / 10000, current_setting('wal_level'),"
            " current_setting('TimeZone'), current_setting('listen_addresses'),"
            " current_setting('unix_socket_directories'),"
            " datlocprovider, datlocale, pg_encoding_to_char(encoding)"
            " FROM pg_database WHERE datname = current_database()"
        ).fetchone()
    assert row == (18, "logical", "UTC", "127.0.0.1", "", "b", "C.UTF-8", "UTF8")


def test_fifteen(postgres15: str) -> None:
    with psycopg.connect(postgres15) as connection:
        assert connection.info.server_version // 10000 == 15
