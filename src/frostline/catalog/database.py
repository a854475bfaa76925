"""Connections to the user's Postgres, with a session whose text output is the same everywhere."""

from __future__ import annotations

import psycopg
from psycopg.rows import TupleRow

from frostline.errors import DatabaseError

READ_ONLY = "a standby can only be read: name the primary, with --dsn or FROSTLINE_DSN"
MINIMUM_VERSION = 150000  # postgres_fdw learned application_name escapes in 15
# Seen up to 18.4, and right in 18.6: a generic plan of UPDATE or DELETE that leaves partitions out when it starts
# takes heaps among the rest for the foreign tables that stood in their place, and the server crashes.
MISCOUNTING = range(180000, 180006)
LOCK_TIMEOUT_MS = 100  # how long others may queue behind us
# A deadlock with a user's transaction is one more way of not getting a lock.
BUSY = (psycopg.errors.LockNotAvailable, psycopg.errors.DeadlockDetected)
# Refused before there is a session: libpq knows no SQLSTATE of that, only what the server says.
_CROWDED = ("too many clients already", "remaining connection slots are reserved", "too many connections for ")
# What a role or a database may have set otherwise, and our work cannot have.
SESSION = {
    # Bounds and values are read as text: it must not depend on who asks.
    "timezone": "UTC",
    "datestyle": "ISO, YMD",
    "intervalstyle": "postgres",
    "extra_float_digits": "3",
    "bytea_output": "hex",
    "xmloption": "content",
    "array_nulls": "on",
    "standard_conforming_strings": "on",
    "search_path": "pg_catalog",  # nobody's function or operator stands in for a built-in one
    # An error where a policy would hide rows: hidden from us, they would not be copied, and dropped.
    "row_security": "off",
    "default_transaction_read_only": "off",
    # What is looked at under a lock is to be of that moment, not of the transaction's first statement.
    "default_transaction_isolation": "read committed",
    "client_min_messages": "warning",
    "synchronous_commit": "on",  # what we recorded is still there after a crash
    # A long export is no runaway query.
    "statement_timeout": "0",
    "transaction_timeout": "0",
    "idle_session_timeout": "0",
    "idle_in_transaction_session_timeout": "0",
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
        raise unreachable(error) from None
    version = connection.info.server_version
    if version < MINIMUM_VERSION:
        connection.close()
        raise DatabaseError(f"this is Postgres {version // 10000}; Frostline needs 15 or later")
    connection.execute(session_sql(local=False))
    if not autocommit:
        connection.commit()
    return connection


def unreachable(error: psycopg.Error, what: str = "Postgres cannot be reached") -> DatabaseError:
    """Why there is no connection, as an error of ours."""
    said = " ".join(str(error).split())
    if any(words in said for words in _CROWDED):
        return DatabaseError(
            f"Postgres has no connection left: {said}",
            hint="try again when some are closed; raise max_connections if that happens often",
            sqlstate="53300",
        )
    return DatabaseError(
        f"{what}: {said}",
        hint="is it running? `frostline status` shows the embedded one, `frostline up` starts it",
    )


def out_of_reach(error: psycopg.Error, *more: str) -> bool:
    """Whether Postgres or the gateway could not be asked, and may be later; it says nothing of what was asked for."""
    states = ("08", "53", "57", "HV", *more)
    return isinstance(error, psycopg.OperationalError) and (error.sqlstate or "08")[:2] in states


def session_sql(*, local: bool) -> str:
    """One statement that sets all of SESSION that this version of Postgres knows."""
    values = ", ".join(f"('{name}', '{value}')" for name, value in SESSION.items())
    return (
        f"SELECT pg_catalog.set_config(v.name, v.value, {str(local).lower()}) FROM (VALUES {values}) v (name, value)"
        # TimeZone, DateStyle and IntervalStyle are listed so.
        " WHERE EXISTS (SELECT FROM pg_catalog.pg_settings s"
        " WHERE pg_catalog.lower(s.name) OPERATOR(pg_catalog.=) v.name)"
    )


def in_recovery(connection: Connection) -> bool:
    """Whether this is a standby, now: it may be promoted at any time, and its sessions live on."""
    return connection.execute("SELECT pg_catalog.pg_is_in_recovery()").fetchone() == (True,)


def from_postgres(error: psycopg.Error) -> DatabaseError:
    """What Postgres said, as an error of ours."""
    said = error.diag
    message = said.message_primary or " ".join(str(error).split()) or type(error).__name__
    hint = READ_ONLY if isinstance(error, psycopg.errors.ReadOnlySqlTransaction) else said.message_hint
    return DatabaseError(f"Postgres says: {message}", detail=said.message_detail, hint=hint)
