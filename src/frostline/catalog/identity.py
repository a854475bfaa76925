"""Whether this is the database that the lake belongs to, or a copy of it.

A database that was restored to a point in time, a standby that was promoted, a clone for staging and a dump loaded
elsewhere all say of themselves what the original says. Two of them changing one lake would destroy it. So an
installation remembers cluster, database and timeline, and where these are others nothing of the lake is changed until a
person has said what this database is.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass

from psycopg.sql import SQL, Identifier

from frostline.catalog import mapping
from frostline.catalog.database import READ_ONLY, Connection, in_recovery
from frostline.catalog.names import SERVER_NAME
from frostline.errors import RefusedError

_HERE = """
SELECT s.system_identifier::text, d.oid::bigint,
       ('x' || left(pg_walfile_name(pg_current_wal_lsn()), 8))::bit(32)::int
FROM pg_control_system() s, pg_database d WHERE d.datname = current_database()
"""
_KNOWN = "SELECT i.system, i.database::bigint, i.timeline FROM frostline.installation i"


@dataclass(frozen=True)
class Identity:
    """Cluster, database, and how often its history was forked."""

    system: str
    database: int
    timeline: int

    def __str__(self) -> str:
        return f"cluster {self.system}, database {self.database}, timeline {self.timeline}"


def here(connection: Connection) -> Identity:
    if in_recovery(connection):
        raise RefusedError("this Postgres is a standby, where nothing can be changed; nothing was", hint=READ_ONLY)
    row = connection.execute(_HERE).fetchone()
    assert row is not None
    return Identity(*row)


def known(connection: Connection) -> Identity | None:
    """What the installation remembers; None: nothing yet."""
    row = connection.execute(_KNOWN).fetchone()
    return Identity(*row) if row is not None and row[0] is not None else None


def check(connection: Connection) -> None:
    """Before anything of the lake is changed."""
    was, now = known(connection), here(connection)
    if was is not None and was != now:
        raise RefusedError(
            "this database is not the one that its lake belongs to: it was restored, failed over to, copied or loaded "
            "from a dump; nothing was changed",
            detail=f"the lake belongs to {was}; this is {now}",
            hint="it takes the place of the other one, which is gone: frostline adopt --successor\n"
            "the other one lives on, and this is a copy: frostline adopt --copy",
        )


def become(connection: Connection) -> None:
    """From now on the lake belongs to this database."""
    now = here(connection)
    connection.execute(
        "UPDATE frostline.installation SET system = %s, database = %s, timeline = %s",
        (now.system, now.database, now.timeline),
    )


def rename(connection: Connection) -> None:
    """An installation of its own: gateways of the original refuse it, and the lake's tables are somebody else's."""
    id_, server = str(uuid.uuid4()), Identifier(SERVER_NAME)
    connection.execute("UPDATE frostline.installation SET id = %s", (id_,))
    # Nobody listens there until a gateway of this database does.
    connection.execute(
        SQL("ALTER SERVER {} OPTIONS (SET dbname {}, SET host '127.0.0.1', SET port '1')").format(server, id_)
    )
    mapping.renew(connection)
    connection.execute("DELETE FROM frostline.gateways")
    connection.execute("DELETE FROM frostline.workers")
