"""Connections to the user's Postgres, with a session whose text output is the same everywhere."""

from __future__ import annotations

import psycopg
from psycopg.rows import TupleRow

from frostline.errors import DatabaseError

MINIMUM_VERSION = 150000  # postgres_fdw learned application_name escapes in 15
# Bounds and values are read as text: without these the text would depend on the role's own settings.
SESSION = {
    "timezone": "UTC",
    "datestyle": "ISO, YMD",
    "intervalstyle": "postgres",
    "extra_float_digits": "3",
    "bytea_output": "hex",
    "client_min_messages": "warning",
    "search_path": "pg_catalog",  # nobody's function or operator stands in for a built-in one
}

Connection = psycopg.Connection[TupleRow]


def connect(dsn: str, *, application: str = "frostline", autocommit: bool = True) -> Connection:
    """A connection to Postgres 15 or later, or one sentence why not."""
    if not dsn:
        raise DatabaseError(
            "no Postgres is known here",
            hint="start the embedded one with `frostline up`, or name yours: --dsn, FROSTLINE_DSN, frostline.toml",
        )
    try:
        connection = psycopg.connect(dsn, autocommit=autocommit, application_name=application, connect_timeout=10)
    except psycopg.Error as error:
        raise DatabaseError(
            f"Postgres cannot be reached: {' '.join(str(error).split())}",
            hint="is it running? `frostline status` shows the embedded one, `frostline up` starts it",
        ) from None
    version = connection.info.server_version
    if version < MINIMUM_VERSION:
        connection.close()
        raise DatabaseError(f"this is Postgres {version // 10000}; Frostline needs 15 or later")
    for name, value in SESSION.items():
        connection.execute("SELECT pg_catalog.set_config(%s, %s, false)", (name, value))
    if not autocommit:
        connection.commit()
    return connection
