"""Cold queries over a lake on S3: the same answers, little traffic, and clear errors while the store is away."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import psycopg
import pytest
from pydantic import SecretStr

from fix_lake import PATIENCE, S3, Door, a_door, fail, impatient, s3_settings
from frostline import config
from frostline.config import Settings
from frostline.errors import LakeError
from frostline.gateway.server import Gateway
from frostline.lake import files, storage
from integration.gateway.world import SEAM, World, build

COLD = f"SELECT id, i4, n, t, u, j FROM {{}} WHERE ts < '{SEAM}' ORDER BY id"
HOT = f"SELECT count(*), sum(id) FROM {{}} WHERE ts >= '{SEAM}'"


@dataclass
class Reads:
    """Tables in two forms, their cold rows behind a door."""

    world: World
    settings: Settings
    door: Door

    def same(self, connection: psycopg.Connection[Any], query: str) -> None:
        assert (
            connection.execute(query.format("events")).fetchall() == connection.execute(query.format("copy")).fetchall()
        )


@pytest.fixture(scope="module")
def made(dsn: str, s3: S3, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Reads]:
    with a_door(s3.port) as door:
        options = s3_settings(door, s3, s3.bucket())
        there = storage.of(config.load(options).settings)
        world = build(dsn, tmp_path_factory.mktemp("catalog"), dense=True, storage=there)
        yield Reads(world, config.load({"dsn": world.dsn, **options}).settings, door)


@pytest.fixture
def reads(made: Reads) -> Reads:
    made.door.open()
    return made


@contextmanager
def serving(settings: Settings) -> Iterator[None]:
    """A gateway that has read nothing yet."""
    gateway = Gateway(settings)
    gateway.start()
    try:
        yield
    finally:
        gateway.stop(grace=0)


def test_rows_are_the_same_and_what_was_read_once_is_not_fetched_again(reads: Reads) -> None:
    with serving(reads.settings), reads.world.connect() as connection:
        reads.same(connection, COLD)
        before = reads.door.passed
        assert before > 0
        reads.same(connection, COLD)
        assert reads.door.passed == before


@pytest.mark.parametrize("how", ["silent", "shut"])
def test_a_store_that_stops_answering_fails_cold_queries_alone(reads: Reads, how: str) -> None:
    with serving(impatient(reads.settings)), reads.world.connect() as connection:
        fail(reads.door, how)
        start = time.monotonic()
        with pytest.raises(psycopg.Error) as caught:
            connection.execute(COLD.format("events")).fetchall()
        assert time.monotonic() - start < PATIENCE
        assert caught.value.sqlstate == "58030"
        meaning = "does not answer in time" if how == "silent" else "cannot be reached"
        assert str(caught.value.diag.message_primary).startswith(f"the lake cannot be read: the store {meaning} (")
        assert "s3." in str(caught.value.diag.message_hint)
        reads.same(connection, HOT)
        with connection.transaction(force_rollback=True):
            connection.execute("INSERT INTO events (id, ts) VALUES (-77, now())")
        reads.door.open()
        reads.same(connection, COLD)


def test_a_snapshots_file_list_is_not_waited_for_forever(reads: Reads) -> None:
    fail(reads.door, "silent")
    there = storage.of(impatient(reads.settings))
    start = time.monotonic()
    with pytest.raises(LakeError, match="the lake cannot be read: the store does not answer in time"):
        files.snapshot(there, f"{there.root}/x.metadata.json", 1)
    assert time.monotonic() - start < PATIENCE


def test_wrong_keys_say_so(reads: Reads) -> None:
    s3 = reads.settings.s3.model_copy(update={"secret_key": SecretStr("not-the-secret")})
    wrong = reads.settings.model_copy(update={"s3": s3})
    with serving(wrong), reads.world.connect() as connection, pytest.raises(psycopg.Error) as caught:
        connection.execute(COLD.format("events")).fetchall()
    assert caught.value.sqlstate == "58030"
    assert "the store refuses these keys" in str(caught.value)
    assert "not-the-secret" not in str(caught.value)
