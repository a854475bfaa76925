"""`frostline doctor` finds what is wrong because it was really broken, and says how to repair it."""

from __future__ import annotations

import json
import os
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import pytest
from psycopg.conninfo import conninfo_to_dict
from pydantic import SecretStr

from fix_commands import Run
from fix_tiering import World
from frostline.catalog.names import SERVER_NAME
from frostline.config import Settings
from frostline.local import artifacts, doctor
from frostline.tiering.doctor import OK, PROBLEM, WARNING, Check, Checks, examine

EVENTS = """
CREATE TABLE public.events (id int, ts timestamptz NOT NULL, v text, PRIMARY KEY (id, ts)) PARTITION BY RANGE (ts);
CREATE TABLE public.events_01 PARTITION OF public.events FOR VALUES FROM ('2024-01-01') TO ('2024-02-01');
CREATE TABLE public.events_now PARTITION OF public.events FOR VALUES FROM ('2024-02-01') TO (MAXVALUE);
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


def repaired_as_told(world: World, breaking: str, key: tuple[str, str], verdict: str) -> None:
    """The remedy is SQL, and it is enough."""
    world.run(breaking)
    check = found(world.settings)[key]
    assert check.verdict == verdict, check
    for statement in check.remedy.split("; "):
        world.run(statement)
    assert wrong(world.settings) == []


def test_whatever_is_broken_is_found(world: World) -> None:
    world.run(EVENTS)
    world.register("public.events")
    world.archive("public.events")
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

    # Undone by hand.
    database = conninfo_to_dict(world.dsn)["dbname"]
    broken: list[tuple[AbstractContextManager[Any], tuple[str, str], str, str]] = [
        (
            sql(
                world,
                f"CREATE USER MAPPING FOR {other} SERVER {server}",
                f"DROP USER MAPPING FOR {other} SERVER {server}",
            ),
            ("gateway", "foreign server"),
            PROBLEM,
            "user mappings of their own",
        ),
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
                f"ALTER DATABASE {database} SET session_replication_role = replica",
                f"ALTER DATABASE {database} RESET session_replication_role",
            ),
            ("Postgres", "settings"),
            WARNING,
            "session_replication_role is replica",
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
                "INSERT INTO frostline.gateways VALUES ('00000000-0000-0000-0000-000000000001', 'gone', 1, now(),"
                " now() - interval '1 day'); INSERT INTO frostline.pins VALUES ('00000000-0000-0000-0000-000000000001',"
                " 1, 1, 'x')",
                "DELETE FROM frostline.gateways WHERE host = 'gone'",
            ),
            ("gateway", "pins"),
            WARNING,
            "1 of",
        ),
        (
            sql(
                world,
                "UPDATE pg_class SET reltuples = -1 WHERE relname = 'events_01'",
                "UPDATE pg_class SET reltuples = 500 WHERE relname = 'events_01'",
            ),
            (table, "statistics"),
            WARNING,
            "never analyzed",
        ),
        (leftover(world), (table, "leftovers"), WARNING, "1 file"),
        (stopped(world), ("gateway", "from Postgres"), PROBLEM, "could not connect"),
        (read_only(world), ("lake", "storage and catalog"), PROBLEM, ""),
    ]
    for breaking, key, verdict, words in broken:
        with breaking:
            check_ = found(world.settings)[key]
        assert (check_.verdict, words in check_.found) == (verdict, True), check_
        assert check_.remedy or key == ("lake", "storage and catalog"), check_
    world.run(f"DROP ROLE {other}")
    assert wrong(world.settings) == []

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


@contextmanager
def leftover(world: World) -> Iterator[None]:
    file = world.directory("events") / "data" / "period=2024-01" / "left.parquet"
    file.write_bytes(b"PAR1")
    os.utime(file, (time.time() - 7200,) * 2)
    yield
    file.unlink()


@contextmanager
def stopped(world: World) -> Iterator[None]:
    world.gateway.stop(grace=0)
    yield
    world.restart_gateway()


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
    assert checks["Postgres", "connection"].verdict == PROBLEM

    done = frostline("--dsn", database, "doctor", "--json")
    assert done.returncode == 1
    checks_ = {(one["area"], one["name"]): one for one in json.loads(done.stdout)["checks"]}
    assert checks_["registry", "version"]["remedy"] == "frostline init"
    assert "Traceback" not in done.stderr


def _mismatch(monkeypatch: pytest.MonkeyPatch) -> None:
    real: Callable[[str], str | None] = doctor._installed
    monkeypatch.setattr(doctor, "_installed", lambda name: "1.0.0" if name == "duckdb-extension-avro" else real(name))
