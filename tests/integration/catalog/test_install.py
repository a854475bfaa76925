"""Installing the registry: once, wholly or not at all, and with no more rights than it needs."""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from frostline import config
from frostline.catalog import install
from frostline.catalog.database import connect
from frostline.catalog.names import SERVER_NAME
from frostline.errors import DatabaseError
from frostline.tiering.checks import WARNING
from frostline.tiering.doctor import examine


def query(dsn: str, sql: str) -> list[tuple[Any, ...]]:
    with psycopg.connect(dsn, autocommit=True) as connection:
        cursor = connection.execute(sql)
        return cursor.fetchall() if cursor.description is not None else []


def test_a_second_install_changes_nothing(database: str) -> None:
    registry, *later = (f"migration {name}" for _, name, _ in install.migrations())
    assert install.install(database) == [registry, "extension postgres_fdw", "the gateway's foreign server", *later]
    before = query(database, "SELECT * FROM frostline.installation"), query(database, "TABLE frostline.migrations")
    secret = query(database, "SELECT umoptions FROM pg_user_mappings")
    assert install.install(database) == []
    assert (
        query(database, "SELECT * FROM frostline.installation"),
        query(database, "TABLE frostline.migrations"),
    ) == before
    assert query(database, "SELECT umoptions FROM pg_user_mappings") == secret


def test_an_extension_that_a_major_upgrade_left_behind_is_brought_along(database: str, tmp_path: Path) -> None:
    query(database, "CREATE EXTENSION postgres_fdw SCHEMA public VERSION '1.1'")
    settings = config.load({"dsn": database, "local.dir": str(tmp_path)}).settings
    [check] = [one for one in examine(settings) if one.name == "extension" and one.verdict == WARNING]
    assert check.remedy == "ALTER EXTENSION postgres_fdw UPDATE; frostline init"
    assert "extension postgres_fdw 1.2" in install.install(database)
    assert install.install(database) == []


def test_a_failing_migration_leaves_nothing(database: str) -> None:
    query(database, "CREATE SCHEMA frostline_lake")  # somebody's own, in the way of the migration's
    with pytest.raises(DatabaseError, match=r"001_registry\.sql failed and was rolled back"):
        install.install(database)
    assert query(database, "SELECT to_regnamespace('frostline')") == [(None,)]
    assert query(database, "SELECT count(*) FROM pg_extension WHERE extname = 'postgres_fdw'") == [(0,)]


def test_a_database_in_another_encoding_is_refused_before_anything_is_made(database: str) -> None:
    latin = f"{_name(database)}_latin"
    query(database, f"CREATE DATABASE {latin} TEMPLATE template0 ENCODING 'LATIN1' LOCALE_PROVIDER libc LOCALE 'C'")
    there = make_conninfo(database, dbname=latin)
    try:
        with pytest.raises(DatabaseError, match=r"is LATIN1, and Frostline needs UTF8; nothing was changed"):
            install.install(there)
        assert query(there, "SELECT to_regnamespace('frostline')") == [(None,)]
    finally:
        query(database, f"DROP DATABASE {latin}")


def test_the_printed_sql_installs_the_same(database: str) -> None:
    with connect(database) as connection:
        text = install.print_sql(connection)
    query(database, text)
    assert query(database, "SELECT srvname FROM pg_foreign_server") == [(SERVER_NAME,)]
    assert query(database, "SELECT count(*) FROM frostline.status") == [(0,)]


def test_every_missing_grant_is_named_and_granting_them_is_enough(database: str) -> None:
    role = f"plain_{uuid.uuid4().hex[:8]}"
    query(
        database,
        f"CREATE ROLE {role} LOGIN PASSWORD 'plain'; REVOKE TEMPORARY ON DATABASE \"{_name(database)}\" FROM PUBLIC",
    )
    own = make_conninfo(database, user=role, password="plain")
    try:
        with pytest.raises(DatabaseError, match="nothing was changed") as error:
            install.install(own)
        assert error.value.sqlstate == "42501"
        for line in (error.value.hint or "").splitlines():
            query(database, line.split("--")[0])
        assert len((error.value.hint or "").splitlines()) == 4
        # The extension is there now, so USAGE on it can be granted.
        assert "the gateway's foreign server" in install.install(own)
        assert query(own, "SELECT umoptions IS NOT NULL FROM pg_user_mappings") == [(True,)]
    finally:
        query(database, f"DROP OWNED BY {role} CASCADE; DROP ROLE {role}")


def test_a_registry_from_the_future_is_left_alone(database: str) -> None:
    install.install(database)
    query(database, "INSERT INTO frostline.migrations VALUES (999, 'from the future')")
    with pytest.raises(DatabaseError, match="newer than this Frostline knows"):
        install.install(database)


def test_it_installs_on_postgres_15(postgres15: str) -> None:
    name = f"fifteen_{uuid.uuid4().hex[:8]}"
    query(postgres15, f"CREATE DATABASE {name}")
    assert "migration 001_registry.sql" in install.install(make_conninfo(postgres15, dbname=name))
    assert install.install(make_conninfo(postgres15, dbname=name)) == []
    query(postgres15, f"DROP DATABASE {name}")


def test_no_dsn_says_how_to_get_one() -> None:
    with pytest.raises(DatabaseError, match="no Postgres is known") as error:
        install.install("")
    assert "frostline up" in (error.value.hint or "")


def _name(dsn: str) -> str:
    return str(psycopg.conninfo.conninfo_to_dict(dsn)["dbname"])
