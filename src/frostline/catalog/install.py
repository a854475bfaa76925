"""Installing the registry: numbered migrations and the gateway's foreign server, all or nothing."""

from __future__ import annotations

import random
import shlex
import time
from collections.abc import Iterator
from importlib import resources

import psycopg
from psycopg import sql

from frostline.catalog import mapping
from frostline.catalog.database import BUSY, LOCK_TIMEOUT_MS, Connection, connect
from frostline.catalog.names import GATEWAY_USER, SERVER_NAME
from frostline.errors import DatabaseError

# Any number will do as long as every installer takes the same one.
_INSTALL_LOCK = 7_346_215_001
_EXTENSION = "postgres_fdw"
PATIENCE_SECONDS = 300.0

Migration = tuple[int, str, str]


def migrations() -> Iterator[Migration]:
    """(number, name, SQL) of every migration, in order."""
    folder = resources.files("frostline.catalog") / "sql"
    for file in sorted(folder.iterdir(), key=lambda entry: entry.name):
        if file.name[:3].isdigit():
            yield int(file.name[:3]), file.name, file.read_text(encoding="utf-8")


def install(dsn: str) -> list[str]:
    """Bring the registry up to date; returns what was done, nothing when it was current."""
    with connect(dsn, application="frostline init") as connection:
        check_encoding(connection)
        check_grants(connection)
        deadline = time.monotonic() + PATIENCE_SECONDS
        while True:
            try:
                return _all(connection)
            except BUSY as busy:
                if time.monotonic() > deadline:
                    raise _no_patience(connection) from busy
            time.sleep(random.uniform(0.5, 1.5))


def _all(connection: Connection) -> list[str]:
    """In one short transaction: every cold read needs the tables that it locks, and waits behind it."""
    with connection.transaction():
        connection.execute("SELECT pg_advisory_xact_lock(%s)", (_INSTALL_LOCK,))
        connection.execute(f"SET LOCAL lock_timeout = '{LOCK_TIMEOUT_MS}ms'")
        first, later = _around_the_server(pending(connection))
        done = [_apply(connection, *migration) for migration in first]
        done += _extension(connection)
        done += _server(connection)
        return done + [_apply(connection, *migration) for migration in later]


def _no_patience(connection: Connection) -> DatabaseError:
    row = connection.execute(
        "SELECT string_agg(DISTINCT format('pid %s (%s, since %s)', a.pid, a.application_name, a.xact_start), '; ')"
        " FROM pg_locks l JOIN pg_class c ON c.oid = l.relation JOIN pg_stat_activity a ON a.pid = l.pid"
        " WHERE c.relnamespace = 'frostline'::regnamespace AND a.pid <> pg_backend_pid()"
    ).fetchone()
    return DatabaseError(
        f"the registry did not get its locks within {PATIENCE_SECONDS:.0f} s; nothing was changed",
        detail=f"held by {row[0]}" if row is not None and row[0] else None,
        hint="transactions that have come to old rows hold them: let these end, then run the same command again",
        sqlstate="55P03",
    )


def check_current(connection: Connection) -> None:
    """Refused unless the registry has all that this version knows, and nothing else."""
    if pending(connection):
        raise DatabaseError(
            f"the registry in database {connection.info.dbname} is older than this Frostline; nothing was changed",
            hint="bring it up to date first: frostline init",
        )


def _around_the_server(found: list[Migration]) -> tuple[list[Migration], list[Migration]]:
    """The foreign server carries the installation's id, which the first migration makes; later ones may use it."""
    return [m for m in found if m[0] == 1], [m for m in found if m[0] > 1]


def pending(connection: Connection) -> list[Migration]:
    """The migrations this database has not seen."""
    known = list(migrations())
    if connection.execute("SELECT to_regclass('frostline.migrations')").fetchone() == (None,):
        return known
    applied = {number for (number,) in connection.execute("SELECT number FROM frostline.migrations")}
    newer = applied - {number for number, _, _ in known}
    if newer:
        raise DatabaseError(
            f"the registry here is at migration {max(newer)}, newer than this Frostline knows",
            hint="upgrade Frostline on this machine",
        )
    return [migration for migration in known if migration[0] not in applied]


def print_sql(connection: Connection | None) -> str:
    """What `install` would run, for a person to read or a DBA to run."""
    first, later = _around_the_server(pending(connection) if connection else list(migrations()))
    parts = [f"-- {name}\n{text}" for _, name, text in first]
    parts.append(f"CREATE EXTENSION IF NOT EXISTS {_EXTENSION};")
    parts.append(
        f'CREATE SERVER "{SERVER_NAME}" FOREIGN DATA WRAPPER postgres_fdw\n'
        f"    OPTIONS ({_options('<installation id>')});\n"
        f'CREATE USER MAPPING FOR PUBLIC SERVER "{SERVER_NAME}"\n'
        f"    OPTIONS (user '{GATEWAY_USER}', password '<random>');"
    )
    parts += [f"-- {name}\n{text}" for _, name, text in later]
    return "\n\n".join(["BEGIN;", *parts, "COMMIT;"])


def uninstall(dsn: str, *, dry_run: bool = False) -> list[str]:
    """Remove all that `install` made, when no table needs it; what an Iceberg table that was kept needs stays."""
    with connect(dsn, application="frostline uninstall") as connection, connection.transaction() as attempt:
        connection.execute("SELECT pg_advisory_xact_lock(%s)", (_INSTALL_LOCK,))
        if connection.execute("SELECT to_regclass('frostline.tables')").fetchone() == (None,):
            raise DatabaseError(f"Frostline is not installed in database {connection.info.dbname}; nothing was changed")
        tables = [name for (name,) in connection.execute("SELECT relation::text FROM frostline.tables ORDER BY id")]
        if tables:
            raise DatabaseError(
                f"{', '.join(tables)} would lose their cold rows; nothing was changed",
                hint=f"first: frostline unregister {shlex.quote(tables[0])}",
            )
        kept = connection.execute("SELECT count(*) FROM frostline_lake.iceberg_tables").fetchone()
        schemas = ["frostline_delta", "frostline"] + (["frostline_lake"] if kept == (0,) else [])
        done = ["the gateway's foreign server, with what was created on it"]
        connection.execute(sql.SQL("DROP SERVER IF EXISTS {} CASCADE").format(sql.Identifier(SERVER_NAME)))
        for schema in schemas:
            connection.execute(sql.SQL("DROP SCHEMA {} CASCADE").format(sql.Identifier(schema)))
            done.append(f"schema {schema}")
        if dry_run:
            raise psycopg.Rollback(attempt)
    return done


def check_encoding(connection: Connection) -> None:
    """The lake's text is UTF-8, and so is what the gateway says."""
    encoding = connection.info.parameter_status("server_encoding")
    if encoding != "UTF8":
        raise DatabaseError(
            f"the encoding of database {connection.info.dbname} is {encoding}, and Frostline needs UTF8;"
            " nothing was changed",
            hint="move its tables into a database that was created with ENCODING 'UTF8'",
        )


def check_grants(connection: Connection) -> None:
    """One error that lists every grant the role lacks, before anything is tried."""
    missing = [hint for granted, hint in grants(connection) if not granted]
    if missing:
        role = connection.info.user
        raise DatabaseError(
            f"role {role} may not install Frostline in database {connection.info.dbname}; nothing was changed",
            detail="missing:",
            hint="\n".join(f"  {line};" for line in missing),
            sqlstate="42501",
        )


def grants(connection: Connection) -> Iterator[tuple[bool, str]]:
    """What installing needs: whether it is granted, and the statement that grants it."""
    role = sql.Identifier(connection.info.user).as_string(connection)
    database = sql.Identifier(connection.info.dbname).as_string(connection)
    row = connection.execute(
        "SELECT has_database_privilege(current_database(), 'CREATE'),"
        " has_database_privilege(current_database(), 'TEMP'),"
        " EXISTS (SELECT FROM pg_extension WHERE extname = %(e)s),"
        " (SELECT rolsuper FROM pg_roles WHERE rolname = current_user),"
        " coalesce((SELECT has_foreign_data_wrapper_privilege(oid, 'USAGE') FROM pg_foreign_data_wrapper"
        "   WHERE fdwname = %(e)s), true),"
        " EXISTS (SELECT FROM pg_available_extensions WHERE name = %(e)s)",
        {"e": _EXTENSION},
    ).fetchone()
    assert row is not None
    create, temporary, installed, superuser, usage, available = row
    if not available:
        yield False, f"-- the extension {_EXTENSION} is not on this server: install the contrib package of its Postgres"
        return
    yield create or superuser, f"GRANT CREATE ON DATABASE {database} TO {role}"
    yield temporary or superuser, f"GRANT TEMPORARY ON DATABASE {database} TO {role}"
    if not superuser:
        yield installed, f"/* a superuser, or the provider's admin role: */ CREATE EXTENSION {_EXTENSION}"
        yield usage and installed, f"GRANT USAGE ON FOREIGN DATA WRAPPER {_EXTENSION} TO {role}"


def _apply(connection: Connection, number: int, name: str, text: str) -> str:
    try:
        connection.execute(text)
    except BUSY:
        raise
    except psycopg.Error as error:
        raise DatabaseError(f"migration {name} failed and was rolled back: {error}") from error
    connection.execute("INSERT INTO frostline.migrations (number, name) VALUES (%s, %s)", (number, name))
    return f"migration {name}"


def _extension(connection: Connection) -> list[str]:
    found = connection.execute(
        "SELECT a.default_version, e.extversion <> a.default_version AND r.rolsuper FROM pg_extension e"
        " JOIN pg_roles r ON r.rolname = current_user LEFT JOIN pg_available_extensions a ON a.name = e.extname"
        " WHERE e.extname = %s",
        (_EXTENSION,),
    ).fetchone()
    if found is not None and found[1]:
        # A major upgrade of Postgres leaves it as it was.
        connection.execute(sql.SQL("ALTER EXTENSION {} UPDATE").format(sql.Identifier(_EXTENSION)))
        return [f"extension {_EXTENSION} {found[0]}"]
    if found is not None:
        return []
    # pg_catalog is our search_path; the extension's functions belong where a person would look for them.
    connection.execute(sql.SQL("CREATE EXTENSION {} SCHEMA public").format(sql.Identifier(_EXTENSION)))
    return [f"extension {_EXTENSION}"]


def _server(connection: Connection) -> list[str]:
    if connection.execute("SELECT FROM pg_foreign_server WHERE srvname = %s", (SERVER_NAME,)).fetchone() is not None:
        return mapping.complete(connection)
    row = connection.execute("SELECT id FROM frostline.installation").fetchone()
    assert row is not None
    server = sql.Identifier(SERVER_NAME)
    connection.execute(
        sql.SQL("CREATE SERVER {} FOREIGN DATA WRAPPER postgres_fdw OPTIONS ({})").format(
            server, sql.SQL(_options(str(row[0])))
        )
    )
    mapping.complete(connection)
    return ["the gateway's foreign server"]


def _options(installation: str) -> str:
    # The address is filled in by the gateway when it starts. Port 1 answers nobody until then.
    return (
        f"host '127.0.0.1', port '1', dbname '{installation}', fetch_size '10000', application_name 'frostline %c', "
        "truncatable 'false'"
    )
