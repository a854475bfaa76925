"""`pg_upgrade` of a database with cold periods: everything is there, and one command after the other is told."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
from psycopg.conninfo import make_conninfo
from pydantic import SecretStr
from pyspark.sql import SparkSession

import fix_builds
from fix_cluster import PASSWORD, Plain, made_in
from fix_tiering import World, new_world
from frostline.catalog.database import connect
from frostline.catalog.install import install
from frostline.config import Settings
from frostline.errors import RefusedError
from frostline.gateway.server import Gateway
from frostline.local import user
from frostline.local.ports import free_port
from frostline.report import Report, Silent
from frostline.tiering import adopt, checks, doctor, verify, writing
from frostline.tiering.archive.run import Warm, periods
from frostline.tiering.fold.run import fold
from integration.tiering.test_archive import SIMPLE

ROWS = "SELECT id, ts, v FROM public.events ORDER BY id"


def upgraded(old: Plain, new: Plain) -> None:
    """As the manual has it."""
    with (old.data / "pg_hba.conf").open("w") as trusted, (new.data / "pg_hba.conf").open("w") as too:
        for file in (trusted, too):
            file.write("local all all trust\nhost all all 127.0.0.1/32 trust\n")
    programs: list[str | Path] = ["-b", old.home / "bin", "-B", new.home / "bin", "-d", old.data, "-D", new.data]
    done = subprocess.run(
        [new.home / "bin" / "pg_upgrade", *programs, "-U", "postgres", "-p", str(free_port()), "-P", str(free_port())],
        cwd=new.base,
        capture_output=True,
        text=True,
        check=False,
        **user.run_as(user.server_account()),
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture(scope="module")
def homes(settings: Settings, report: Report, open_directory: Path) -> tuple[Path, Path]:
    """The programs of 15 and of 18, or of what UPGRADE_FROM and UPGRADE_TO name."""
    directory = open_directory / "builds"
    directory.mkdir()
    given = [Path(os.environ[name]) if name in os.environ else None for name in ("UPGRADE_FROM", "UPGRADE_TO")]
    return given[0] or fix_builds.older(directory, settings, report), given[1] or fix_builds.newer(directory, settings)


def test_an_upgraded_database_goes_on_once_it_is_told_to(
    homes: tuple[Path, Path], spark: SparkSession, open_directory: Path, tmp_path: Path
) -> None:
    older, newer = homes
    with made_in(open_directory / "upgrade", older) as cluster:
        with new_world(cluster.dsn, spark, tmp_path, keep=True) as world:
            world.run(SIMPLE)
            world.register("public.events", "100 years")
            assert archived(world, "2020-02-01") == ["events_01"]
            world.run("UPDATE public.events SET v = -v WHERE id IN (1, 2, 1999)")
            before = world.run(ROWS)
            world.gateway.stop(grace=0)
        old = cluster.server
        old.stop()
        assert isinstance(old, Plain)
        new = Plain(newer, cluster.directory / "new")
        new.base.mkdir()
        new._own(new.base)
        new.initialise(PASSWORD)
        upgraded(old, new)
        port = free_port()
        new.start(port)
        cluster.server, cluster.port = new, port
        dsn = make_conninfo(world.dsn, port=port)
        there = World(world.settings.model_copy(update={"dsn": SecretStr(dsn)}), spark, Gateway(world.settings))
        _goes_on(there, before)


def _goes_on(world: World, before: list[tuple[Any, ...]]) -> None:
    told = {(check.area, check.name): check.remedy for check in doctor.examine(world.settings)}
    assert "frostline adopt --successor" in told["registry", "identity"]
    assert told["Postgres", "extension"] == "ALTER EXTENSION postgres_fdw UPDATE; frostline init"
    with pytest.raises(RefusedError, match="not the one that its lake belongs to"):
        archived(world, "2020-03-01")
    assert [found.snapshots for found in adopt.successor(world.settings, Silent())] == [0]
    assert install(world.dsn) == ["extension postgres_fdw 1.2"]
    with connect(world.dsn) as connection:
        assert writing.equip(connection) == ["what writes cold rows of public.events"]
    world.gateway = Gateway(world.settings)
    world.gateway.start()
    try:
        assert world.run(ROWS) == before
        assert checks.PROBLEM not in {check.verdict for check in doctor.examine(world.settings)}
        world.run("UPDATE public.events SET v = v + 1 WHERE id IN (3, 4, 1998)")
        after = world.run(ROWS)
        assert after == [(i, ts, v + (i in (3, 4, 1998))) for i, ts, v in before]
        with Warm(world.spark_here) as warm:
            fold(world.settings, "public.events", Silent(), warm)
        assert archived(world, "2020-03-01") == ["events_02"]
        world.run("ALTER TABLE public.events ADD COLUMN extra int DEFAULT 7")
        assert world.run("SELECT DISTINCT extra FROM public.events") == [(7,)]
        assert world.run(ROWS) == after
        assert {found.state for found in verify.verify(world.settings, "public.events", None, Silent())} == {"good"}
    finally:
        world.gateway.stop(grace=0)


def archived(world: World, before: str) -> list[str]:
    with Warm(world.spark_here) as warm:
        return [one.leaf.name for one in periods(world.settings, "public.events", Silent(), warm, before)]
