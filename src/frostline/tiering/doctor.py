"""Is everything as it must be? Each check looks at one thing, really, and says what it found and what to do."""

from __future__ import annotations

import shlex
from collections import Counter

import psycopg
from psycopg.sql import SQL, Composable, Identifier
from pydantic import SecretStr

from frostline.catalog import describe, identity, install, queries, registry
from frostline.catalog.database import MISCOUNTING, Connection, connect, in_recovery
from frostline.catalog.gateways import ALIVE
from frostline.catalog.names import LOWER_CHECK, SERVER_NAME
from frostline.catalog.registry import Managed
from frostline.config import Settings
from frostline.delta import collect
from frostline.errors import FrostlineError
from frostline.lake import catalog as lake
from frostline.model.bounds import Range, parse_bound
from frostline.tiering import clean, constraints, ddl, partitions, turns, writing
from frostline.tiering.checks import OK, PROBLEM, WARNING, Check, Checks, guarded, line, shell_name
from frostline.tiering.locks import at_work

_NEWEST = 18
_CROWDED = 0.8  # of all connections
_OUTDATED = "what stores cold rows was made by another Frostline, or before row-level security was enabled"
_OTHER_POSTGRES = "what stores cold rows was made for another version of Postgres: sessions ask the gateway in vain"


def examine(settings: Settings) -> Checks:
    """The database, what is registered in it, the gateway and the lake."""
    try:
        connection = connect(settings.dsn.get_secret_value(), application="frostline doctor")
    except FrostlineError as error:
        yield Check("Postgres", "connection", PROBLEM, line(error.message), line(error.hint))
        yield from guarded("lake", "storage and catalog", lambda: _lake(settings, postgres=False))
        return
    with connection:
        yield from guarded("Postgres", "version", lambda: _version(connection))
        yield from guarded("Postgres", "standby", lambda: _standby(connection, settings))
        yield from guarded("Postgres", "settings", lambda: _settings(connection))
        yield from guarded("Postgres", "extension", lambda: _extension(connection))
        installed = []
        for check in guarded("registry", "version", lambda: _registry(connection)):
            installed.append(check.verdict == OK)
            yield check
        usable = []
        for check in guarded("lake", "storage and catalog", lambda: _lake(settings, postgres=True)):
            usable.append(check.verdict == OK)
            yield check
        if not all(installed):
            return
        yield from guarded("registry", "identity", lambda: _identity(connection))
        yield from guarded("gateway", "foreign server", lambda: _server(connection))
        yield from guarded("gateway", "from Postgres", lambda: _gateway(connection))
        yield from guarded("gateway", "pins", lambda: _pins(connection))
        yield from guarded("secrets", "in the database", lambda: _secrets(connection, settings))
        yield from guarded("registry", "work under way", lambda: _partitionings(connection))
        yield from guarded("registry", "dropped tables", lambda: _dropped(connection))
        for managed in registry.every(connection):
            yield from _table(connection, managed)
            if all(usable):  # else it was said once what every table would say
                yield from _in_lake(connection, settings, managed)


def _version(connection: Connection) -> Checks:
    text, major = connection.info.parameter_status("server_version"), connection.info.server_version // 10000
    late = major > _NEWEST
    remedy = "no test of ours has run on it: upgrade Frostline" if late else ""
    yield Check("Postgres", "version", WARNING if late else OK, f"Postgres {text}", remedy)
    if connection.info.server_version in MISCOUNTING:
        yield _generic_plans(connection, str(text))
    missing = [hint for granted, hint in install.grants(connection) if not granted]
    row = queries.row(connection, "doctor_role")
    assert row is not None
    role, superuser, owner, member = row
    if owner is None and missing:
        yield Check("Postgres", "grants", PROBLEM, f"role {role} may not install the registry", "; ".join(missing))
    elif owner is not None and not member:
        grant = f"GRANT {owner} TO {Identifier(role).as_string(connection)}"
        yield Check("Postgres", "grants", PROBLEM, f"the registry belongs to {owner}", grant)
    else:
        yield Check("Postgres", "grants", OK, f"role {role}" + (", a superuser" if superuser else ", no superuser"))


def _generic_plans(connection: Connection, version: str) -> Check:
    """A fault of that Postgres: one crash ends every session of the server."""
    if dict(queries.rows(connection, "doctor_settings")).get("plan_cache_mode") == "force_custom_plan":
        found = f"Postgres {version} is kept from generic plans, some of which crash it; 18.6 has no need of that"
        return Check("Postgres", "generic plans", OK, found)
    found = f"Postgres {version} crashes when a prepared UPDATE or DELETE with a generic plan passes over cold rows"
    database = Identifier(connection.info.dbname).as_string(connection)
    remedy = f"ALTER DATABASE {database} SET plan_cache_mode = force_custom_plan"
    return Check("Postgres", "generic plans", PROBLEM, f"{found}; 18.6 does not", remedy)


def _standby(connection: Connection, settings: Settings) -> Checks:
    """How far it is behind: what it reads stays in the lake for so long."""
    row = queries.row(connection, "doctor_standby")
    if row is None:
        return
    (behind,) = row
    window = settings.maintenance.backup_window
    late = behind > window / 2
    remedy = f"past {window:.0f} s (maintenance.backup_window) what it reads may be removed from the lake"
    found = f"a standby, {behind:.0f} s behind its primary: cold rows can be read"
    yield Check("Postgres", "standby", WARNING if late else OK, found, remedy if late else "")


def _settings(connection: Connection) -> Checks:
    row = queries.row(connection, "doctor_connections")
    assert row is not None
    used, most = row
    verdict = WARNING if used > most * _CROWDED else OK
    remedy = "a gateway session takes one connection for each client that reads cold rows: raise max_connections"
    found = f"{used} of {most} connections are in use"
    yield Check("Postgres", "connections", verdict, found, remedy if verdict != OK else "")
    values = dict(queries.rows(connection, "doctor_settings"))
    for name, right, why in (
        ("session_replication_role", "origin", "triggers of yours do not fire"),
        ("default_transaction_read_only", "off", "clients cannot write"),
    ):
        if values.get(name) != right:
            resets = [statement for (statement,) in queries.rows(connection, "doctor_resets", name=name)]
            # Where transactions are read-only by default, this one must not be.
            statements = ["BEGIN READ WRITE", *resets, "COMMIT"] if resets else [f"ALTER SYSTEM RESET {name}", "reload"]
            remedy = "; ".join(statements)
            yield Check("Postgres", "settings", WARNING, f"{name} is {values.get(name)}: {why}", remedy)
    names = ("wal_level", "lock_timeout", "statement_timeout")
    yield Check("Postgres", "settings", OK, ", ".join(f"{name} = {values.get(name)}" for name in names))


def _extension(connection: Connection) -> Checks:
    found = queries.row(connection, "doctor_extension")
    if found is None:
        yield Check("Postgres", "extension", PROBLEM, "postgres_fdw is not installed", "CREATE EXTENSION postgres_fdw")
        return
    version, usage, here = found
    role = Identifier(connection.info.user).as_string(connection)
    grant = f"GRANT USAGE ON FOREIGN DATA WRAPPER postgres_fdw TO {role}"
    yield Check("Postgres", "extension", OK if usage else PROBLEM, f"postgres_fdw {version}", "" if usage else grant)
    if version != (here or version):
        told = f"postgres_fdw {version} is of an earlier Postgres, {here} is there: sessions ask the gateway in vain"
        yield Check("Postgres", "extension", WARNING, told, "ALTER EXTENSION postgres_fdw UPDATE; frostline init")


def _registry(connection: Connection) -> Checks:
    pending = install.pending(connection)
    newest = max(number for number, *_ in install.migrations())
    if len(pending) == len(list(install.migrations())):
        yield Check("registry", "version", PROBLEM, "the registry is not installed", "frostline init")
    elif pending:
        listed = ", ".join(name for _, name, _ in pending)
        yield Check("registry", "version", PROBLEM, f"the registry is old: {listed} are to come", "frostline init")
    else:
        yield Check("registry", "version", OK, f"migration {newest}")


def _identity(connection: Connection) -> Checks:
    """That it may change its lake."""
    if in_recovery(connection):
        return
    identity.check(connection)
    yield Check("registry", "identity", OK, "the lake belongs to this database")


def _server(connection: Connection) -> Checks:
    row = queries.row(connection, "doctor_server", server=SERVER_NAME)
    if row is None:
        remedy = "foreign partitions went with it: restore the database; without cold rows: frostline uninstall, init"
        yield Check("gateway", "foreign server", PROBLEM, "the gateway's foreign server is gone", remedy)
        return
    of, installation, granted, mapping, others, address = row
    if of != installation:
        yield Check(
            "gateway",
            "foreign server",
            PROBLEM,
            f"the foreign server is of installation {of}, this is {installation}",
            "this database was copied from another one: its gateway is not to be used here",
        )
    if granted:
        found = f"USAGE of the foreign server is granted to {granted}"
        remedy = f'REVOKE USAGE ON FOREIGN SERVER "{SERVER_NAME}" FROM {granted}'
        yield Check("gateway", "foreign server", PROBLEM, found, remedy)
    if others:
        found = f"{', '.join(others)} have user mappings of their own, and so sessions that miss their own writes"
        remedy = "; ".join(f'DROP USER MAPPING FOR {role} SERVER "{SERVER_NAME}"' for role in others)
        yield Check("gateway", "foreign server", PROBLEM, found, remedy)
    if mapping is None:
        found = "its user mapping for PUBLIC is gone"
        yield Check("gateway", "foreign server", PROBLEM, found, "frostline init")
    elif more := sorted(set(mapping) - {"user", "password", "password_required"}):
        dropped = ", ".join(f"DROP {name}" for name in more)
        remedy = f'ALTER USER MAPPING FOR PUBLIC SERVER "{SERVER_NAME}" OPTIONS ({dropped})'
        found = f"its user mapping has options {', '.join(more)}, which no gateway asks for"
        yield Check("gateway", "foreign server", WARNING, found, remedy)
    yield Check("gateway", "foreign server", OK, ", ".join(address))


def _gateway(connection: Connection) -> Checks:
    """A real foreign query: Postgres connects to the gateway, and the gateway back."""
    alive = connection.execute(f"SELECT count(*) FROM frostline.gateways g WHERE {ALIVE}").fetchone()
    count = alive[0] if alive else 0
    try:
        with connection.transaction():
            connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
            connection.execute("SELECT frostline.pin()")
    except psycopg.Error as error:
        said = line(error.diag.message_primary or str(error), error.diag.message_detail)
        remedy = (
            "start it: `frostline up`"
            if count == 0
            else "it lives, but Postgres cannot reach it: gateway.host must be an address that Postgres can connect to"
        )
        yield Check("gateway", "from Postgres", PROBLEM, said, remedy)
        return
    yield Check("gateway", "from Postgres", OK, f"a foreign query was answered; {count} alive")


def _pins(connection: Connection) -> Checks:
    row = connection.execute(
        "SELECT count(*) FILTER (WHERE NOT alive), count(*) FROM"
        f" (SELECT {ALIVE} AS alive FROM frostline.pins p JOIN frostline.gateways g ON g.id = p.gateway) x"
    ).fetchone()
    assert row is not None
    stale, every = row
    if stale:
        found = f"{stale} of {every} pins are of gateways that are dead; they hold nothing back"
        yield Check(
            "gateway", "pins", WARNING, found, "a gateway that runs removes them within seconds: `frostline up`"
        )
    else:
        yield Check("gateway", "pins", OK, f"{every} snapshots are read")


def _lake(settings: Settings, *, postgres: bool) -> Checks:
    lake.check(settings, postgres=postgres)
    where = f"{settings.warehouse} can be written, read and deleted from"
    asked = "" if postgres or settings.lake.catalog == "rest" else ", which is in Postgres, was not asked"
    yield Check("lake", "storage and catalog", OK, f"{where}; catalog {settings.lake.catalog}{asked}")


def _secrets(connection: Connection, settings: Settings) -> Checks:
    """Nothing that opens the lake is written down in the database."""
    secrets = {
        f"{section}.{name}": value.get_secret_value()
        for section in ("s3", "rest")
        for name, value in getattr(settings, section)
        if isinstance(value, SecretStr) and value.get_secret_value()
    }
    places: list[Composable] = [SQL("SELECT array_to_string(srvoptions, ' ') FROM pg_foreign_server")]
    places += [
        SQL("SELECT x::text FROM {} AS x").format(Identifier(schema, name))
        for schema, name in queries.rows(connection, "registry_relations")
    ]
    found = sorted(
        name
        for name, value in secrets.items()
        for place in places
        if connection.execute(
            SQL("SELECT EXISTS (SELECT FROM ({}) AS y (line) WHERE strpos(line, %s) > 0)").format(place), (value,)
        ).fetchone()
        == (True,)
    )
    if found:
        text = f"{', '.join(dict.fromkeys(found))} stand in the database in plain text"
        yield Check("secrets", "in the database", PROBLEM, text, "remove them there, and take new keys")
    else:
        yield Check("secrets", "in the database", OK, f"none of {len(secrets)} keys of the lake is in the database")


def _partitionings(connection: Connection) -> Checks:
    for name, state, since in queries.rows(connection, "doctor_partitionings"):
        found = f"{name} is being partitioned since {since} ({state})"
        remedy = f"frostline partition {shlex.quote(name)} goes on with it, --abandon gives it up"
        yield Check("registry", "work under way", WARNING, found, remedy)
    for name, step, failures, _, error in connection.execute("SELECT * FROM frostline.failing").fetchall():
        found = f"{step} of {name} has failed {failures} times: {error}"
        yield Check("registry", "failing steps", WARNING, line(found), "see docs/operations.md for the error")


def _dropped(connection: Connection) -> Checks:
    for id_, table, iceberg, delta, metadata in queries.rows(connection, "doctor_dropped"):
        if table is not None:
            found = f"the partition of {table} that hot rows were in was dropped; nothing looks after the table"
            yield Check("registry", "dropped tables", PROBLEM, found, "restore the database: docs/backup.md")
            continue
        found = f"a registered table was dropped; its old rows are still in {iceberg} of the lake"
        if metadata is not None:
            found += f", described by {metadata}"
        statements = [
            f"DELETE FROM frostline.{name} WHERE table_id = {id_}" for name in ("pins", "expiring", "periods")
        ]
        statements += [f"DELETE FROM frostline.tables WHERE id = {id_}"]
        statements += [f"DROP TABLE {delta} CASCADE"] if delta is not None else []
        yield Check("registry", "dropped tables", WARNING, found, "; ".join(statements))


def _table(connection: Connection, managed: Managed) -> Checks:
    area = str(managed.table)
    for name, look in (
        ("partitions", lambda: _partitions(connection, managed)),
        ("triggers", lambda: _triggers(connection, managed)),
        ("CHECKs", lambda: _bounds(connection, managed)),
        ("constraints", lambda: _constraints(connection, managed)),
        ("publications", lambda: _publications(connection, managed)),
        ("statistics", lambda: _statistics(connection, managed)),
        ("cold rows", lambda: _cold(connection, managed)),
    ):
        yield from guarded(area, name, look)


def _in_lake(connection: Connection, settings: Settings, managed: Managed) -> Checks:
    area = str(managed.table)
    yield from guarded(area, "Iceberg table", lambda: _iceberg(connection, settings, managed))
    yield from guarded(area, "leftovers", lambda: _leftovers(connection, settings, managed))


def _partitions(connection: Connection, managed: Managed) -> Checks:
    """Those that somebody has taken out, and those that cannot be moved."""
    strays, branches = partitions.strays(connection, managed), describe.branches(connection, managed.hot_oid)
    for stray in strays:
        if stray.oid == managed.hot_oid:
            verdict, found = PROBLEM, f"{stray}, where hot rows are, was detached"
        elif stray.dropped:
            drop = stray.forget(managed).as_string(connection)
            verdict, found = (
                WARNING,
                f"{stray} was dropped: nobody reads its rows in the lake; if that is meant: {drop}",
            )
        else:
            verdict, found = (
                WARNING,
                f"{stray} was detached: it cannot be brought back or removed; drop it, or attach it",
            )
        made = stray.remake(connection, managed) if stray.dropped else [stray.attach(managed)]
        remedy = "; ".join(one.as_string(connection) for one in made)
        yield Check(str(managed.table), "partitions", verdict, found, remedy)
    for leaf in branches:
        found = f"{leaf} is {leaf.kind}: nothing is archived or brought back"
        yield Check(str(managed.table), "partitions", PROBLEM, found, partitions.way_out(connection, managed, leaf))
    if not strays and not branches:
        yield Check(str(managed.table), "partitions", OK, "as they must be")


def _triggers(connection: Connection, managed: Managed) -> Checks:
    wrong = queries.rows(connection, "doctor_triggers", table=managed.id)
    for _, schema, name, above, enabled in wrong:
        state = "lacks the trigger that stores cold writes" if enabled is None else "has its trigger switched off"
        make = collect.triggers(managed.id, Identifier(schema, name), above=above)
        remedy = "; ".join(one.as_string(connection) for one in make)
        found = f"{schema}.{name} {state}: writes that come there are refused at commit"
        yield Check(str(managed.table), "triggers", PROBLEM, found, remedy)
    outdated = writing.unequipped(connection).get(managed.id)
    if outdated is not None:
        found = _OUTDATED if outdated else _OTHER_POSTGRES
        yield Check(str(managed.table), "triggers", PROBLEM if outdated else WARNING, found, "frostline init")
    if not wrong and outdated is None:
        yield Check(str(managed.table), "triggers", OK, "wherever cold rows can be written, and always firing")


def _bounds(connection: Connection, managed: Managed) -> Checks:
    wrong = queries.rows(connection, "doctor_bounds", hot=managed.hot_oid, check=LOWER_CHECK)
    leaves = {leaf.oid: leaf for leaf in managed.table.leaves}
    for oid, schema, name, validated in wrong:
        leaf = leaves.get(oid)
        checks = ddl.bound_checks(managed.table, leaf.range, upper=False) if leaf and leaf.range else []
        if leaf is None or not checks:
            continue
        add = [] if validated is not None else [ddl.add_checks(leaf, checks)]
        statements = [*add, ddl.validate_checks(leaf, [check for check, _ in checks])]
        remedy = "; ".join(one.as_string(connection) for one in statements)
        found = f"{schema}.{name} has no valid CHECK of its lower bound: the next swap would read it under its lock"
        yield Check(str(managed.table), "CHECKs", WARNING, found, remedy)
    if not wrong:
        yield Check(str(managed.table), "CHECKs", OK, "every hot partition's lower bound is proven")


def _constraints(connection: Connection, managed: Managed) -> Checks:
    wrong = constraints.hot_only(connection, managed)
    for one in wrong:
        found = f"{one.name} of {'.'.join(one.relation)} holds among hot rows only, cold ones are not asked"
        if one.above:
            found += "; every swap would build it anew, so nothing is archived"
        remedy = "; ".join(s.as_string(connection) for s in (one.move(managed.hot) if one.above else [one.drop()]))
        yield Check(str(managed.table), "constraints", PROBLEM if one.above else WARNING, found, remedy)
    if not wrong:
        yield Check(str(managed.table), "constraints", OK, "none that cold rows are not asked about")


def _publications(connection: Connection, managed: Managed) -> Checks:
    """Registration refuses them; they may have been created since."""
    for (name,) in queries.rows(connection, "publications_by_root", oid=managed.table.oid):
        found = f"{name} sends its updates under its own name, and without a primary key there subscribers find no row"
        remedy = SQL("ALTER PUBLICATION {} SET (publish_via_partition_root = false)").format(Identifier(name))
        yield Check(str(managed.table), "publications", WARNING, found, remedy.as_string(connection))


def _statistics(connection: Connection, managed: Managed) -> Checks:
    wrong = queries.rows(connection, "doctor_statistics", table=managed.id)
    for name, what in wrong:
        yield Check(str(managed.table), "statistics", WARNING, f"{name} {what}", f"ANALYZE {name}")
    if not wrong:
        yield Check(str(managed.table), "statistics", OK, "the planner knows every partition")


def _cold(connection: Connection, managed: Managed) -> Checks:
    """One row of the lake comes through the gateway."""
    for name, alarm, found_by in queries.rows(connection, "alarms", table=managed.id):
        remedy = f"frostline {found_by} {_named(managed)}: see docs/operations.md"
        yield Check(str(managed.table), "cold rows", PROBLEM, f"{name}: {alarm}", remedy)
    found = queries.row(connection, "doctor_cold", table=managed.id)
    if found is None:
        yield Check(str(managed.table), "cold rows", OK, "nothing was archived yet")
        return
    schema, name, lower, upper, rows = found
    at = f"{schema}.{name}"
    try:
        row = connection.execute(SQL("SELECT 1 FROM {} LIMIT 1").format(Identifier(schema, name))).fetchone()
    except psycopg.Error as error:
        said = line(error.diag.message_primary or str(error), error.diag.message_detail)
        yield Check(str(managed.table), "cold rows", PROBLEM, f"{at}: {said}", "see gateway and lake above")
        return
    if row is not None:
        yield Check(str(managed.table), "cold rows", OK, "can be read")
    elif _deleted(connection, managed, Range(parse_bound(lower), parse_bound(upper))) >= rows:
        yield Check(str(managed.table), "cold rows", OK, f"all of {at} were deleted, and are folded in their turn")
    else:
        text = f"{at} is empty, and the registry knows of rows"
        yield Check(str(managed.table), "cold rows", PROBLEM, text, f"frostline verify {_named(managed)}")


def _deleted(connection: Connection, managed: Managed, range_: Range) -> int:
    """Rows of a period that the lake still has, and nobody else."""
    query = SQL("SELECT count(DISTINCT ({})) FROM {} WHERE _op = 'T' AND {}").format(
        SQL(", ").join(map(Identifier, managed.table.primary_key)),
        Identifier(*managed.delta),
        ddl.within(managed.table, range_),
    )
    row = connection.execute(query).fetchone()
    assert row is not None
    return int(row[0])


def _iceberg(connection: Connection, settings: Settings, managed: Managed) -> Checks:
    """What folding and archiving need; readers do without the catalog, and notice nothing when it is gone there."""
    if managed.snapshot_id is None:
        return
    if lake.anothers(settings, managed):
        found = "it is the original's: its rows are read here, and what is changed here stays in Postgres"
        yield Check(str(managed.table), "Iceberg table", OK, found)
        return
    lake.load(settings, managed)
    if not in_recovery(connection):  # a standby hears of words later than the lake
        turns.check(connection, settings, managed)
    yield Check(str(managed.table), "Iceberg table", OK, f"{'.'.join(lake.identifier(managed))} is in the catalog")


def _leftovers(connection: Connection, settings: Settings, managed: Managed) -> Checks:
    if lake.anothers(settings, managed):
        return
    busy = at_work(connection, managed)
    left = [one for one in clean.look(connection, settings, managed, settings.archive.orphan_age) if not one.kept]
    if busy or at_work(connection, managed):
        yield Check(str(managed.table), "leftovers", OK, "a run is at work; what it leaves is seen when it is over")
    elif left:
        kinds = Counter(one.what for one in left)
        found = f"dead runs left {', '.join(f'{count} {kind}' for kind, count in kinds.items())}"
        yield Check(str(managed.table), "leftovers", WARNING, found, f"frostline clean {_named(managed)}")
    else:
        yield Check(str(managed.table), "leftovers", OK, "none")


def _named(managed: Managed) -> str:
    return shell_name(managed.table.schema, managed.table.name)
