"""`frostline doctor` finds what is wrong because it was really broken, and says how to repair it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import Any

import duckdb
import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from pydantic import SecretStr

from fix_commands import Run, command, environment
from fix_faults import at
from fix_tiering import World
from frostline.catalog import registry
from frostline.catalog.database import connect
from frostline.catalog.install import install, uninstall
from frostline.catalog.names import SERVER_NAME
from frostline.config import Settings
from frostline.delta import collect, follow
from frostline.errors import LakeError, RefusedError
from frostline.faults import InjectedFault
from frostline.lake import catalog as lake
from frostline.local import artifacts, doctor
from frostline.report import Silent
from frostline.tiering import clean, verify, writing
from frostline.tiering import doctor as tiering
from frostline.tiering.archive.run import Warm, periods
from frostline.tiering.checks import OK, PROBLEM, WARNING, Check, Checks
from frostline.tiering.doctor import examine
from frostline.tiering.fold.run import fold
from frostline.tiering.locks import Wanted
from frostline.tiering.partition import run
from frostline.tiering.partition.plan import Choice
from frostline.tiering.unregister import unregister
from frostline.tiering.untier.run import Returned, untier

EVENTS = """
CREATE TABLE public.events (id int, ts timestamptz NOT NULL, v text, PRIMARY KEY (id, ts)) PARTITION BY RANGE (ts);
CREATE TABLE public.events_01 PARTITION OF public.events FOR VALUES FROM ('2024-01-01') TO ('2024-02-01');
CREATE TABLE public.events_02 PARTITION OF public.events FOR VALUES FROM ('2024-02-01') TO ('2024-03-01');
CREATE TABLE public.events_now PARTITION OF public.events FOR VALUES FROM ('2024-03-01') TO ('2100-01-01');
INSERT INTO public.events SELECT i, timestamptz '2024-01-02' + i * interval '1 min', 'x' FROM generate_series(1, 500) i;
INSERT INTO public.events VALUES (1, now(), 'hot');
ANALYZE public.events;
"""


def found(settings: Settings, look: Callable[[Settings], Checks] = examine) -> dict[tuple[str, str], Check]:
    """The worst finding of each check."""
    order = (OK, WARNING, PROBLEM)
    worst: dict[tuple[str, str], Check] = {}
    for check in look(settings):
        key = (check.area, check.name)
        if key not in worst or order.index(check.verdict) > order.index(worst[key].verdict):
            worst[key] = check
    return worst


def wrong(settings: Settings) -> list[tuple[str, str, str]]:
    return [(*key, check.verdict) for key, check in found(settings).items() if check.verdict != OK]


@contextmanager
def sql(world: World, breaking: str, repair: str) -> Iterator[None]:
    world.run(breaking)
    yield
    world.run(repair)


def repaired_as_told(world: World, breaking: str, key: tuple[str, str], verdict: str, words: str = "") -> None:
    """The remedy is SQL or a command, and it is enough."""
    world.run(breaking)
    check = found(world.settings)[key]
    assert (check.verdict, words in check.found) == (verdict, True), check
    for step in [check.remedy] if check.remedy.startswith("BEGIN") else check.remedy.split("; "):
        if step == "frostline init":
            with connect(world.dsn) as connection:
                assert install(world.dsn) + writing.equip(connection)
        elif step.startswith("frostline clean "):
            with connect(world.dsn) as connection:
                managed = registry.get(connection, step.removeprefix("frostline clean "))
                clean.clean(connection, world.settings, managed, world.settings.archive.orphan_age, Silent())
        elif step.endswith("`frostline up`"):
            world.restart_gateway()
            world.gateway._presence.renew()
        else:
            world.run(step)
    assert wrong(world.settings) == []


def test_whatever_is_broken_is_found(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.run(EVENTS)
    world.register("public.events", "100 years")
    assert archived(world, "2024-02-01") == ["events_01"]
    assert wrong(world.settings) == []
    table = "public.events"
    server = f'"{SERVER_NAME}"'
    other = f"other_{uuid.uuid4().hex[:8]}"

    # Repaired by what it says.
    trigger = 'TRIGGER "!frostline" ON public.events'
    repaired_as_told(world, f"DROP {trigger}", (table, "triggers"), PROBLEM)
    off = 'ALTER TABLE public.events_01 DISABLE TRIGGER "!frostline"'
    repaired_as_told(world, off, (table, "triggers"), PROBLEM)
    origin = 'ALTER TABLE public.events ENABLE TRIGGER "!frostline"'  # fires, but not always
    repaired_as_told(world, origin, (table, "triggers"), PROBLEM)
    check = "ALTER TABLE public.events_now DROP CONSTRAINT frostline_bound"
    repaired_as_told(world, check, (table, "CHECKs"), WARNING)
    world.run(f"CREATE ROLE {other}")
    grant = f"GRANT USAGE ON FOREIGN SERVER {server} TO {other}"
    repaired_as_told(world, grant, ("gateway", "foreign server"), PROBLEM)

    mapping = f"CREATE USER MAPPING FOR {other} SERVER {server}"
    repaired_as_told(world, mapping, ("gateway", "foreign server"), PROBLEM, f"{other} have user mappings")
    gone = f"DROP USER MAPPING FOR PUBLIC SERVER {server}"
    repaired_as_told(world, gone, ("gateway", "foreign server"), PROBLEM, "its user mapping for PUBLIC is gone")
    assert world.run("SELECT count(*) FROM public.events") == [(501,)]  # with the new secret
    database, user = (conninfo_to_dict(world.dsn)[name] for name in ("dbname", "user"))
    replica = f"ALTER DATABASE {database} SET session_replication_role = replica"
    repaired_as_told(world, replica, ("Postgres", "settings"), WARNING, "session_replication_role is replica")
    closed = f"ALTER ROLE {user} IN DATABASE {database} SET default_transaction_read_only = on"
    repaired_as_told(world, closed, ("Postgres", "settings"), WARNING, "clients cannot write")
    monkeypatch.setattr("frostline.tiering.doctor.MISCOUNTING", range(180000, 190000))
    repaired_as_told(world, "SELECT 1", ("Postgres", "generic plans"), PROBLEM, "crashes")
    world.run(f"ALTER DATABASE {database} RESET plan_cache_mode")
    monkeypatch.undo()
    unknown = "UPDATE pg_class SET reltuples = -1 WHERE relname = 'events_01'"
    repaired_as_told(world, unknown, (table, "statistics"), WARNING, "never analyzed")
    unique = "ALTER TABLE public.events_hot ADD CONSTRAINT once UNIQUE (ts, v)"
    repaired_as_told(world, unique, (table, "constraints"), WARNING, "once of public.events_hot holds among hot rows")
    sending = 'CREATE PUBLICATION "Of %s" FOR TABLE public.events WITH (publish_via_partition_root)'
    repaired_as_told(world, sending, (table, "publications"), WARNING, "subscribers find no row")
    dead = (
        "INSERT INTO frostline.gateways VALUES ('00000000-0000-0000-0000-000000000001', 'gone', 1, now(),"
        " now() - interval '1 day'); INSERT INTO frostline.pins VALUES ('00000000-0000-0000-0000-000000000001',"
        " 1, 1, 'x')"
    )
    _left_over(world, table)
    world.gateway.stop(grace=0)
    world.run(dead)
    pins = found(world.settings)["gateway", "pins"]
    assert (pins.verdict, pins.found[:4], "`frostline up`" in pins.remedy) == (WARNING, "1 of", True)
    repaired_as_told(world, "SELECT 1", ("gateway", "from Postgres"), PROBLEM, "could not connect")

    _worse(world, server)
    world.run(f"DROP ROLE {other}")


def _left_over(world: World, table: str) -> None:
    left = leftover(world)
    with connect(world.dsn) as run:
        run.execute("SELECT pg_advisory_lock(734621502, 1)")
        leftovers = found(world.settings)[table, "leftovers"]
        assert (leftovers.verdict, "a run is at work" in leftovers.found) == (OK, True)
    repaired_as_told(world, "SELECT 1", (table, "leftovers"), WARNING, "1 file")
    assert not left.exists()


def _worse(world: World, server: str) -> None:
    _functions_of_others(world)
    _empty_in_the_lake(world)
    _partitions_by_hand(world)
    _undone_by_hand(world, server)
    _several_at_once(world, server)
    _nothing_to_restore(world, server)


def _functions_of_others(world: World) -> None:
    """As an upgrade of Postgres leaves them, and an older Frostline made them."""
    with connect(world.dsn) as connection:
        other = collect.Connections(follow.connections(connection).schema, used_in_transaction=False)
        before = collect._after(1, ("frostline_delta", "events_1"), other).as_string(connection)
    key = ("public.events", "triggers")
    repaired_as_told(world, before, key, WARNING, "made for another version of Postgres")
    assert "used_in_xact" in world.run("SELECT prosrc FROM pg_proc WHERE proname = 'collect_1'")[0][0]
    older = "COMMENT ON FUNCTION frostline.store_1(oid, bool) IS 'stores cold rows, version 1'"
    repaired_as_told(world, older, key, PROBLEM, "made by another Frostline")


def _several_at_once(world: World, server: str) -> None:
    """What has no effect on other checks is broken together; and what makes them fail."""
    changes = "INSERT INTO public.events SELECT i, '2024-04-01', 'x' FROM generate_series(1000, 12000) i"
    world.run(
        f"{changes}; ALTER USER MAPPING FOR PUBLIC SERVER {server} OPTIONS (ADD sslcert 'mine');"
        f"ALTER SERVER {server} OPTIONS (SET dbname 'of-another'); UPDATE frostline.installation SET timeline = 9;"
        "SELECT pg_stat_force_next_flush()"
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tiering, "_NEWEST", 17)  # there is no 19 yet
        with crowded(world):
            checks = list(examine(world.settings))
    for area, name, verdict, words, remedy in (
        ("Postgres", "version", WARNING, "Postgres 18", "upgrade Frostline"),
        ("Postgres", "connections", WARNING, "connections are in use", "raise max_connections"),
        ("registry", "identity", PROBLEM, "timeline 9; this is", "frostline adopt --successor"),
        ("gateway", "foreign server", PROBLEM, "is of installation of-another", "was copied"),
        ("gateway", "foreign server", WARNING, "its user mapping has options sslcert", "OPTIONS (DROP sslcert)"),
        ("gateway", "from Postgres", PROBLEM, "this gateway serves installation", "gateway.host"),
        ("public.events", "statistics", WARNING, "changes since the last", "ANALYZE public.events_now"),
        ("public.events", "cold rows", PROBLEM, "this gateway serves installation", "see gateway"),
    ):
        of_it = [check for check in checks if (check.area, check.name, check.verdict) == (area, name, verdict)]
        assert any(words in check.found and remedy in check.remedy for check in of_it), (words, of_it)


@contextmanager
def crowded(world: World) -> Iterator[None]:
    """Clients until there is hardly room for more."""
    [(used, most)] = world.run(
        "SELECT count(*), current_setting('max_connections')::int FROM pg_stat_activity"
        " WHERE backend_type = 'client backend'"
    )
    with ExitStack() as clients:
        for _ in range(most * 17 // 20 - used):
            clients.enter_context(psycopg.connect(world.dsn))
        yield


def _empty_in_the_lake(world: World) -> None:
    """Rows that nobody has deleted are gone; or somebody has, and no fold was made yet."""
    key, every = ("public.events", "cold rows"), "SELECT * FROM public.events ORDER BY ts, id"
    before = world.run(every)
    with connect(world.dsn) as connection:
        managed = registry.get(connection, "public.events")
    with lake.opened(world.settings) as catalog:
        table = catalog.load_table(lake.identifier(managed))
        table.delete()
    shown = "UPDATE frostline.tables SET snapshot_id = %s, metadata_location = %s"
    world.run(shown, table.metadata.current_snapshot_id, table.metadata_location)
    check = found(world.settings)[key]
    assert (check.verdict, check.found) == (PROBLEM, "public.events_01 is empty, and the registry knows of rows")
    assert check.remedy == "frostline verify public.events"
    [finding] = [one for one in verify.verify(world.settings, "public.events", None, Silent()) if one.state != "good"]
    assert "500" in str(finding.problems)
    world.run(shown, managed.snapshot_id, managed.metadata_location)
    assert {one.state for one in verify.verify(world.settings, "public.events", None, Silent())} == {"good"}

    world.run("CREATE TABLE public.aside AS SELECT * FROM public.events WHERE ts < '2024-02-01'")
    world.run("DELETE FROM public.events WHERE ts < '2024-02-01'")
    check = found(world.settings)[key]
    assert (check.verdict, check.found[:36]) == (OK, "all of public.events_01 were deleted")
    world.run("INSERT INTO public.events TABLE public.aside; DROP TABLE public.aside")
    assert (world.run(every), wrong(world.settings)) == (before, [])


def _nothing_to_restore(world: World, server: str) -> None:
    """One thing after the other is dropped by hand, until Frostline begins anew."""
    world.run(f"DROP SERVER {server} CASCADE")
    check = found(world.settings)["gateway", "foreign server"]
    assert (check.verdict, check.found) == (PROBLEM, "the gateway's foreign server is gone")
    assert "restore the database; without cold rows: frostline uninstall, init" in check.remedy
    world.run("DROP TABLE public.events_hot")
    check = found(world.settings)["registry", "dropped tables"]
    assert (check.verdict, check.remedy) == (PROBLEM, "restore the database: docs/backup.md")
    assert "the partition of public.events that hot rows were in was dropped" in check.found
    world.run("DROP TABLE public.events CASCADE")
    check = found(world.settings)["registry", "dropped tables"]
    assert (check.verdict, "its old rows are still in" in check.found) == (WARNING, True)
    world.run(check.remedy)
    assert uninstall(world.dsn)
    assert install(world.dsn)
    world.restart_gateway()
    world.gateway._presence.renew()
    assert wrong(world.settings) == []
    world.run("DELETE FROM frostline.migrations WHERE number = (SELECT max(number) FROM frostline.migrations)")
    check = found(world.settings)["registry", "version"]
    assert (check.verdict, check.remedy, "the registry is old" in check.found) == (PROBLEM, "frostline init", True)


def archived(world: World, before: str) -> list[str]:
    with Warm(world.spark_here) as warm:
        return [one.leaf.name for one in periods(world.settings, "public.events", Silent(), warm, before)]


def brought_back(world: World, period: str) -> list[Returned]:
    with Warm(world.spark_here) as warm:
        return untier(world.settings, "public.events", period, Silent(), warm)


def _partitions_by_hand(world: World) -> None:
    """Nothing is taken back, removed or moved past what a person has done, until he says what is meant."""
    count, key = "SELECT count(*) FROM public.events", ("public.events", "partitions")
    world.run("ALTER TABLE public.events DETACH PARTITION public.events_01")
    leaving: list[Callable[[], object]] = [
        lambda: brought_back(world, "2024-01-05"),
        lambda: unregister(world.settings, "public.events", Silent(), keep_lake=False),
    ]
    for work in leaving:
        with pytest.raises(RefusedError, match=r"events_01 was detached from public\.events") as error:
            work()
        assert "it belongs there: ALTER TABLE" in (error.value.hint or "")
    assert world.run(f"{count} UNION ALL SELECT count(*) FROM public.events_01") == [(1,), (500,)]
    repaired_as_told(world, "SELECT 1", key, WARNING, "events_01 was detached")
    dropped = "the cold period from 2024-01-01 00:00:00+00 to 2024-02-01 00:00:00+00 was dropped"
    repaired_as_told(world, "DROP FOREIGN TABLE public.events_01", key, WARNING, dropped)
    world.run("UPDATE public.events SET v = 'y' WHERE id = 500")
    assert world.run(f"{count} WHERE v = 'y'") == [(1,)]
    hot = "ALTER TABLE public.events DETACH PARTITION public.events_hot"
    repaired_as_told(world, hot, key, PROBLEM, "events_hot, where hot rows are, was detached")
    assert world.run(count) == [(501,)]

    world.run(
        "CREATE TABLE public.far PARTITION OF public.events_hot FOR VALUES FROM ('2100-01-01') TO ('2101-01-01')"
        " PARTITION BY HASH (id);"
        "CREATE TABLE public.far_0 PARTITION OF public.far FOR VALUES WITH (MODULUS 1, REMAINDER 0);"
        "INSERT INTO public.events VALUES (2, '2100-05-05', 'far')"
    )
    for work in (lambda: archived(world, "2024-03-01"), *leaving):
        with pytest.raises(RefusedError, match=r"the hot partition public\.far, which is partitioned again"):
            work()
    assert world.run(count) == [(502,)]
    check = found(world.settings)[key]
    assert (check.verdict, check.found[:34]) == (PROBLEM, "public.far is partitioned again: n")
    detach, create, _ = check.remedy.split("; ")
    world.run(f"{detach}; {create.replace('...', 'public.flat')}; INSERT INTO public.flat SELECT * FROM public.far")
    assert world.run(count) == [(502,)]
    world.run("DROP TABLE public.flat, public.far")


def _undone_by_hand(world: World, server: str) -> None:
    table = "public.events"
    broken: list[tuple[AbstractContextManager[Any], tuple[str, str], str, str]] = [
        (
            sql(
                world,
                "INSERT INTO frostline.migrations VALUES (999, 'future')",
                "DELETE FROM frostline.migrations WHERE number = 999",
            ),
            ("registry", "version"),
            PROBLEM,
            "newer than this Frostline knows",
        ),
        (
            sql(
                world,
                'UPDATE frostline.periods SET alarm = \'{"problems": ["a file is gone"]}\' WHERE rows > 0',
                "UPDATE frostline.periods SET alarm = NULL",
            ),
            (table, "cold rows"),
            PROBLEM,
            "a file is gone",
        ),
        (
            sql(
                world,
                "INSERT INTO frostline.upkeep (table_id, step, failures, error, retry_at)"
                " VALUES (1, 'fold', 3, 'the disk is full', now())",
                "DELETE FROM frostline.upkeep",
            ),
            ("registry", "failing steps"),
            WARNING,
            "fold of public.events has failed 3 times: the disk is full",
        ),
        (read_only(world), ("lake", "storage and catalog"), PROBLEM, ""),
    ]
    for breaking, key, verdict, words in broken:
        with breaking:
            check_ = found(world.settings)[key]
        assert (check_.verdict, words in check_.found) == (verdict, True), check_
        assert check_.remedy, check_
    secret = world.settings.model_copy(
        update={"s3": world.settings.s3.model_copy(update={"secret_key": SecretStr("very-secret-key")})}
    )
    with sql(
        world,
        f"ALTER SERVER {server} OPTIONS (ADD options '-c x.y=very-secret-key')",
        f"ALTER SERVER {server} OPTIONS (DROP options)",
    ):
        assert ("secrets", "in the database", PROBLEM) in wrong(secret)
    assert ("secrets", "in the database", PROBLEM) not in wrong(secret)


def leftover(world: World) -> Path:
    file = world.directory("events") / "data" / "period=2024-01" / "left.parquet"
    file.write_bytes(b"PAR1")
    os.utime(file, (time.time() - 7200,) * 2)
    return file


@contextmanager
def read_only(world: World) -> Iterator[None]:
    """A file where the warehouse should be: root writes into any directory, whatever its mode."""
    place = Path(world.settings.warehouse)
    place.rename(place.with_name("aside"))
    place.write_text("")
    yield
    place.unlink()
    place.with_name("aside").rename(place)


def test_a_machine_without_java_jars_or_postgres(
    database: str, frostline: Run, settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("JAVA_HOME", raising=False)
    bare = settings.model_copy(
        update={
            "dsn": SecretStr("postgresql://nobody@127.0.0.1:1/none"),
            "local": settings.local.model_copy(update={"cache": tmp_path}),
        }
    )
    jar = tmp_path / "jars" / artifacts.JARS[1].file
    jar.parent.mkdir()
    jar.write_bytes(b"damaged")
    _mismatch(monkeypatch)
    checks = found(bare, doctor.diagnose)
    assert "no java on the PATH" in checks["this machine", "Java"].found
    assert checks["this machine", "jars"].verdict == WARNING
    assert jar.name in checks["this machine", "jars"].found
    assert "cannot load extensions" in checks["this machine", "DuckDB"].found
    assert checks["this machine", "Spark"].remedy.startswith("pip install 'pyspark==4.1.*'")
    assert checks["Postgres", "connection"].verdict == PROBLEM
    lake_ = checks["lake", "storage and catalog"]
    assert (lake_.verdict, lake_.found.endswith("catalog jdbc, which is in Postgres, was not asked")) == (OK, True)

    monkeypatch.undo()
    _engine_of_another_machine(bare, tmp_path / "packages", monkeypatch)

    done = frostline("--dsn", database, "doctor", "--json")
    assert done.returncode == 1
    checks_ = {(one["area"], one["name"]): one for one in json.loads(done.stdout)["checks"]}
    assert checks_["Postgres", "extension"]["remedy"] == "CREATE EXTENSION postgres_fdw"
    assert checks_["registry", "version"]["remedy"] == "frostline init"
    assert checks_["lake", "storage and catalog"]["verdict"] == OK  # `frostline init` makes the catalog
    assert "Traceback" not in done.stderr


def _engine_of_another_machine(bare: Settings, directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the right version, as the package manager sees it, and not to be loaded."""
    file = directory / "duckdb_extension_avro" / "extensions" / f"v{duckdb.__version__}" / "avro.duckdb_extension"
    file.parent.mkdir(parents=True)
    file.write_bytes(b"of another machine")
    (directory / "duckdb_extension_avro" / "__init__.py").touch()
    monkeypatch.syspath_prepend(directory)
    monkeypatch.delitem(sys.modules, "duckdb_extension_avro", raising=False)
    check = found(bare, doctor.diagnose)["this machine", "DuckDB"]
    assert (check.verdict, check.found[:45]) == (PROBLEM, "the DuckDB extension avro cannot be loaded; I")
    assert f"pip install --force-reinstall duckdb-extension-avro=={duckdb.__version__}" in check.remedy
    (directory / "duckdb").mkdir()
    (directory / "duckdb" / "__init__.py").write_text("raise ImportError('libstdc++.so.6 is too old')")
    done = subprocess.run(
        command("--dsn", bare.dsn.get_secret_value(), "doctor", "--json"),
        env=environment({"PYTHONPATH": os.pathsep.join((str(directory), os.environ.get("PYTHONPATH", "")))}),
        capture_output=True,
        check=False,
    )
    [check_] = [one for one in json.loads(done.stdout)["checks"] if one["name"] == "packages"]
    assert (done.returncode, check_["verdict"], "libstdc++.so.6 is too old" in check_["found"]) == (1, PROBLEM, True)
    assert check_["remedy"].startswith("pip install --force-reinstall frostline")
    monkeypatch.undo()


def _mismatch(monkeypatch: pytest.MonkeyPatch) -> None:
    real: Callable[[str], str | None] = doctor._installed
    others = {"duckdb-extension-avro": "1.0.0", "pyspark": "3.5.1"}
    monkeypatch.setattr(doctor, "_installed", lambda name: others.get(name) or real(name))


def test_what_a_role_lacks_is_granted_as_told(world: World) -> None:
    """The registry of another role, and a wrapper that may not be used."""
    name = f"Odd keeper {uuid.uuid4().hex[:8]}"
    world.run(f"CREATE ROLE \"{name}\" LOGIN PASSWORD 'keeper'")
    dsn = SecretStr(make_conninfo(world.dsn, user=name, password="keeper"))
    settings = world.settings.model_copy(update={"dsn": dsn})
    check = found(settings)["lake", "storage and catalog"]
    assert (check.verdict, "permission denied" in check.found, "GRANT" in check.remedy) == (PROBLEM, True, True)
    for key in (("Postgres", "extension"), ("Postgres", "grants")):
        check = found(settings)[key]
        assert check.verdict == PROBLEM
        world.run(check.remedy)
        assert found(settings)[key].verdict == OK
    assert found(settings)["lake", "storage and catalog"].verdict == OK
    world.run(f'DROP OWNED BY "{name}" CASCADE; DROP ROLE "{name}"')


def test_what_installing_needs_is_granted_as_told(database: str, settings: Settings) -> None:
    name, key = f"Odd keeper {uuid.uuid4().hex[:8]}", ("Postgres", "grants")
    with psycopg.connect(database, autocommit=True) as owner:
        owner.execute(f"CREATE ROLE \"{name}\" LOGIN PASSWORD 'keeper'")
        dsn = make_conninfo(database, user=name, password="keeper")
        theirs = settings.model_copy(update={"dsn": SecretStr(dsn)})
        check = found(theirs)[key]
        assert (check.verdict, len(check.remedy.split("; "))) == (PROBLEM, 3)
        owner.execute(check.remedy)
        assert found(theirs)[key].verdict == OK
        assert install(dsn)
        assert found(theirs)["lake", "storage and catalog"].verdict == OK
        owner.execute(f'DROP OWNED BY "{name}" CASCADE; DROP ROLE "{name}"')


def test_a_catalog_that_does_not_answer_or_has_lost_a_table_is_found(world: World) -> None:
    world.run(EVENTS)
    world.register("public.events", "100 years")
    assert archived(world, "2024-02-01") == ["events_01"]
    sound = found(world.settings)
    assert sound["public.events", "Iceberg table"].verdict == OK

    world.run("UPDATE public.events SET v = 'changed' WHERE id = 7 AND ts < '2024-02-01'")
    rename = "ALTER TABLE frostline_lake.{} RENAME TO {}"
    with sql(world, rename.format("iceberg_tables", "x"), rename.format("x", "iceberg_tables")):
        checks = found(world.settings)
        with pytest.raises(LakeError, match="the Iceberg catalog in Postgres does not answer"):
            archived(world, "2024-03-01")
    # Once, not for every table too; whatever needs no catalog is looked at.
    assert set(sound) - set(checks) == {("public.events", "Iceberg table"), ("public.events", "leftovers")}
    [check] = [one for one in checks.values() if one.verdict == PROBLEM]
    assert (check.area, check.name) == ("lake", "storage and catalog")
    assert check.found.startswith("the Iceberg catalog in Postgres does not answer; ")
    assert "iceberg_tables" in check.found
    assert "belong in the schema frostline_lake" in check.remedy
    assert checks["public.events", "cold rows"].verdict == OK

    lost = "CREATE TABLE public.aside AS TABLE frostline_lake.iceberg_tables; DELETE FROM frostline_lake.iceberg_tables"
    with sql(world, lost, "INSERT INTO frostline_lake.iceberg_tables TABLE public.aside; DROP TABLE public.aside"):
        [check] = [one for one in examine(world.settings) if one.verdict == PROBLEM]
        with Warm(world.spark_here) as warm:
            for act in (
                lambda: unregister(world.settings, "public.events", Silent(), keep_lake=False),
                lambda: fold(world.settings, "public.events", Silent(), warm),
            ):
                with pytest.raises(LakeError, match=r" of public\.events is gone from the catalog"):
                    act()
            # Rows come back all the same: reading them takes the files only.
            returned = untier(world.settings, "public.events", "events_01", Silent(), warm)
        assert [one.rows for one in returned] == [500]
    assert (check.area, check.name) == ("public.events", "Iceberg table")
    assert check.found.endswith(" of public.events is gone from the catalog")
    [(metadata,)] = world.run("SELECT metadata_location FROM frostline.tables")
    assert metadata.endswith(".metadata.json")
    assert metadata in check.remedy
    assert wrong(world.settings) == []


def test_a_table_that_is_half_partitioned_is_gone_on_with_as_told(world: World, tmp_path: Path) -> None:
    world.run(
        "CREATE TABLE public.plain (id int PRIMARY KEY, ts timestamptz NOT NULL);"
        "INSERT INTO public.plain SELECT i, timestamptz '2024-01-01' + i * interval '1 day'"
        " FROM generate_series(1, 99) i"
    )

    def partition() -> None:
        with connect(world.dsn) as connection:
            choice = Choice("ts", key=("id", "ts"))
            run.partition(connection, "public.plain", choice, Wanted(patience=20), Silent(), drop_old=True)

    with at(tmp_path, lambda point: point != "partition.batch"), pytest.raises(InjectedFault):
        partition()
    check = found(world.settings)["registry", "work under way"]
    assert check.verdict == WARNING
    assert check.remedy.startswith("frostline partition public.plain goes on with it")
    partition()
    assert ("registry", "work under way") not in found(world.settings)
    assert world.run("SELECT count(*) FROM public.plain") == [(99,)]
