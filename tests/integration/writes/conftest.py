"""One table twice: tiered, with rows on both sides of the seam, and plain; on 18 and on 15."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from fix_tiering import World, new_world
from integration.writes import machine
from integration.writes.pair import Pair, build, build_bulk, build_direct, build_narrow


@pytest.fixture(scope="session", params=["18", "15"])
def pair(
    request: pytest.FixtureRequest, spark: SparkSession, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Pair]:
    server = request.getfixturevalue("dsn" if request.param == "18" else "postgres15")
    with new_world(server, spark, tmp_path_factory.mktemp(f"writes{request.param}")) as world:
        yield build(world)


@pytest.fixture(scope="session")
def direct(pair: Pair) -> Pair:
    """Another such table in the same database."""
    return build_direct(pair.world)


@pytest.fixture(scope="session")
def narrow(pair: Pair) -> Pair:
    """And one whose rows can be set to constants without a question."""
    return build_narrow(pair.world)


@pytest.fixture(scope="session")
def bulk(pair: Pair) -> Pair:
    """And one into which many rows are inserted at once."""
    return build_bulk(pair.world)


@pytest.fixture(scope="session")
def moving(pair: Pair) -> World:
    """A small one, whose rows are put back."""
    machine.build(pair.world)
    return pair.world


@pytest.fixture(autouse=True)
def _connections_closed(request: pytest.FixtureRequest) -> Iterator[None]:
    """A server has a hundred, and each of these has two more behind it."""
    yield
    if "pair" in request.fixturenames:
        connections = request.getfixturevalue("pair").world.connections
        while connections:
            connections.pop().close()
