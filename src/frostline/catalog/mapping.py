"""The user mapping of the gateway's server: one for everybody, with the only secret in the database.

USAGE is nobody's: so all roles of a session share one remote transaction.
"""

from __future__ import annotations

import secrets

from psycopg.sql import SQL, Composable, Identifier, Literal

from frostline.catalog.database import Connection
from frostline.catalog.names import GATEWAY_USER, SERVER_NAME

_FOUND = """
SELECT m.umoptions, pg_has_role(s.srvowner, 'USAGE')
FROM pg_user_mappings m JOIN pg_foreign_server s ON s.oid = m.srvid WHERE s.srvname = %s AND m.umuser = 0
"""


def complete(connection: Connection) -> list[str]:
    """Make it, or what a dump by a role that may not see it has left out; returns what was made."""
    row = connection.execute(_FOUND, (SERVER_NAME,)).fetchone()
    if row is not None and not row[1]:
        return []  # what it has is not shown to us
    missing = _values().keys() - (_names(row[0]) if row is not None else set())
    if missing:
        _write(connection, None if row is None else _names(row[0]), missing)
    return ["the user mapping of the gateway's foreign server"] if missing else []


def renew(connection: Connection) -> None:
    """Another secret: who knows the old one is not let in any more."""
    row = connection.execute(_FOUND, (SERVER_NAME,)).fetchone()
    _write(connection, None if row is None else _names(row[0]), set(_values()))


def _write(connection: Connection, there: set[str] | None, wanted: set[str]) -> None:
    """`there`: options it has; None: there is no mapping."""
    how = "CREATE USER MAPPING" if there is None else "ALTER USER MAPPING"
    options: list[Composable] = []
    for name, value in _values().items():
        if name in wanted:
            action = "" if there is None else "SET " if name in there else "ADD "
            options.append(SQL("{}{} {}").format(SQL(action), Identifier(name), Literal(value)))
    connection.execute(
        SQL("{} FOR PUBLIC SERVER {} OPTIONS ({})").format(SQL(how), Identifier(SERVER_NAME), SQL(", ").join(options))
    )


def _values() -> dict[str, str]:
    return {"user": GATEWAY_USER, "password": secrets.token_urlsafe(32)}


def _names(options: list[str] | None) -> set[str]:
    return {option.partition("=")[0] for option in options or ()}
