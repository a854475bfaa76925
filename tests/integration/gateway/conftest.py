"""The tiered table and its untouched copy, on the embedded Postgres and on 15, each with a gateway."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from pydantic import SecretStr

from frostline.config import GatewaySettings, Settings
from frostline.gateway.server import Gateway
from integration.gateway.pair import Pair, open_pair
from integration.gateway.world import World, build


def settings_for(dsn: str, **gateway: Any) -> Settings:
    return Settings(dsn=SecretStr(dsn), gateway=GatewaySettings(**gateway))


@pytest.fixture(scope="session", params=["embedded", "15"])
def world(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> World:
    admin = request.getfixturevalue("dsn" if request.param == "embedded" else "postgres15")
    return build(admin, tmp_path_factory.mktemp(f"lake{request.param}"))


@pytest.fixture(scope="session")
def gateway(world: World) -> Iterator[Gateway]:
    started = Gateway(settings_for(world.dsn))
    started.start()
    yield started
    started.stop(grace=0.5)


@pytest.fixture
def connection(world: World, gateway: Gateway) -> Iterator[psycopg.Connection[Any]]:
    """A client's connection to Postgres, whose cold partitions the gateway serves."""
    assert gateway.port
    with world.connect() as found:
        found.execute("SET timezone = 'UTC'")
        yield found


LOCALES = {"C.UTF-8": "", "ICU": "LOCALE_PROVIDER icu ICU_LOCALE 'en-US' TEMPLATE template0", "15": ""}


@pytest.fixture(scope="session", params=list(LOCALES))
def pair(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    """Few rows and many edges, under byte order and under a language's order, on 18 and on 15."""
    admin = request.getfixturevalue("postgres15" if request.param == "15" else "dsn")
    directory = tmp_path_factory.mktemp("dense")
    made = build(admin, directory, dense=True, locale=LOCALES[request.param])
    gateway = Gateway(settings_for(made.dsn))
    gateway.start()
    found = open_pair(made, gateway)
    yield found
    found.direct.close()
    found.connection.close()
    gateway.stop(grace=0.5)
