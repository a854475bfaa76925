"""Whose session it is that comes to a gateway: one of its own server, or of a standby or copy of it."""

from __future__ import annotations

import uuid

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from frostline.catalog.install import install
from frostline.catalog.names import SERVER_NAME
from frostline.gateway.control import Control
from frostline.gateway.link import Link
from frostline.gateway.origin import Origin

_ROLES = """
CREATE ROLE {keeper} LOGIN PASSWORD 'secret';
CREATE ROLE {client} LOGIN PASSWORD 'secret' IN ROLE {keeper};
CREATE EXTENSION postgres_fdw;
GRANT USAGE ON FOREIGN DATA WRAPPER postgres_fdw TO {keeper};
GRANT CREATE, TEMPORARY ON DATABASE {database} TO {keeper};
"""


def test_a_role_that_may_not_see_when_a_session_began_sees_that_it_reads(database: str) -> None:
    """On another server a process of the same number hardly does so at that moment."""
    number = uuid.uuid4().hex[:8]
    keeper, client = f"keeper_{number}", f"client_{number}"
    with psycopg.connect(database, autocommit=True) as admin:
        admin.execute(_ROLES.format(keeper=keeper, client=client, database=conninfo_to_dict(database)["dbname"]))
        as_keeper = make_conninfo(database, user=keeper, password="secret")
        install(as_keeper)
        link = Link(as_keeper, "test")
        control = Control(link)
        with psycopg.connect(make_conninfo(database, user=client, password="secret")) as session:
            origin = Origin(session.info.backend_pid, started=1)
            assert not control.installed(origin).theirs
            session.execute("EXPLAIN SELECT * FROM frostline.call_pin")
            assert control.installed(origin).theirs
            session.rollback()
            session.execute(f'CREATE FOREIGN TABLE frostline.mine (a int) SERVER "{SERVER_NAME}"')
            assert control.installed(origin).theirs
            session.rollback()
            assert not control.installed(origin).theirs
            assert not control.installed(Origin(2**31 - 1, started=1)).theirs
        link.close()
        admin.execute(f"DROP OWNED BY {keeper}, {client} CASCADE; DROP ROLE {keeper}, {client}")
