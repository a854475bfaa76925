"""A physical standby: cold rows are read there as on the primary, and after its promotion everything goes on."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from pydantic import SecretStr
from pyspark.sql import SparkSession

from fix_cluster import Cluster, Standby, new_cluster
from fix_tiering import World, new_world
from frostline.config import Settings
from frostline.gateway.server import Gateway
from frostline.local.ports import free_port
from frostline.report import Report
from integration.gateway import world as both_forms
from integration.gateway.pair import agree, outcome
from integration.gateway.queries import ERRORS, FILTERS, ORDERED, QUERIES, written


@pytest.fixture(scope="module")
def servers(settings: Settings, report: Report, open_directory: Path) -> Iterator[tuple[Cluster, Standby]]:
    with new_cluster(settings, report, open_directory / "standby") as cluster:
        yield cluster, cluster.standby("follower")


def at(settings: Settings, dsn: str, **gateway: Any) -> Settings:
    """The same for another server."""
    return settings.model_copy(update={"dsn": SecretStr(dsn), "gateway": settings.gateway.model_copy(update=gateway)})


@contextmanager
def started(settings: Settings) -> Iterator[Gateway]:
    gateway = Gateway(settings)
    gateway.start()
    try:
        yield gateway
    finally:
        gateway.stop(grace=0)


def test_every_query_has_the_answer_it_has_on_the_primary(servers: tuple[Cluster, Standby], tmp_path: Path) -> None:
    cluster, standby = servers
    world = both_forms.build(cluster.dsn, tmp_path, dense=True)
    port = free_port()
    settings = Settings(dsn=SecretStr(world.dsn))
    there = make_conninfo(world.dsn, port=conninfo_to_dict(standby.dsn)["port"])
    with (
        started(at(settings, world.dsn, standbys=f"127.0.0.1:{port}")),
        started(at(settings, there, port=port)) as gateway,
        psycopg.connect(there, autocommit=True) as connection,
    ):
        standby.catch_up()
        connection.execute("SET timezone = 'UTC'")
        import time

        for condition in FILTERS:
            t = time.time()
            tiered, plain = (
                outcome(connection, f"SELECT id, t, n, d FROM {t} WHERE {condition}") for t in ("events", "copy")
            )
            if not agree(tiered, plain):
                print("DIFF", condition, str(tiered)[:200], str(plain)[:200])
            if time.time() - t > 0.3:
                print("SLOW", time.time() - t, condition)
        for q in QUERIES + ORDERED:
            t = time.time()
            tiered, plain = (outcome(connection, written(q).replace("{t}", t)) for t in ("events", "copy"))
            if not agree(tiered, plain, ordered=q in ORDERED):
                print("DIFF", q, str(tiered)[:200], str(plain)[:200])
            if time.time() - t > 0.3:
                print("SLOW", time.time() - t, q)
        print(gateway._metrics)
        assert 0
