"""Runs as processes that can be killed: forked from a warm one, on a Spark that outlives them.

As a program: `archiver.py host` keeps a Spark, `archiver.py fork` forks a run for every line it reads.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import traceback
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from frostline import config, faults
from frostline.config import Settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from frostline.report import Report

TIMEOUT = 300.0  # seconds; nobody answers that late


@dataclass(frozen=True)
class Ended:
    """How a run ended: killed, failed with an error, or done."""

    killed: bool
    error: str | None
    done_to: tuple[str, ...] = ()
    said: tuple[str, ...] = ()

    @property
    def done(self) -> bool:
        return not self.killed and self.error is None


def _program(what: str, settings: Settings) -> subprocess.Popen[str]:
    given = {config.env_name(key): value for key, value in _values(settings).items()}
    kept = {name: value for name, value in os.environ.items() if not name.startswith(config.ENV_PREFIX)}
    path = os.pathsep.join(p for p in sys.path if p)
    return subprocess.Popen(
        [sys.executable, __file__, what],
        env={**kept, **given, "PYTHONPATH": path},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def _values(settings: Settings) -> dict[str, str]:
    return {
        "dsn": settings.dsn.get_secret_value(),
        "local.dir": str(settings.local.dir),
        "lake.warehouse": settings.warehouse,
        "archive.lock_patience": str(settings.archive.lock_patience),
        "archive.orphan_age": str(settings.archive.orphan_age),
    }


@dataclass
class SparkHost:
    """A Spark in a process of its own."""

    settings: Settings
    _process: subprocess.Popen[str] | None = None
    _where: dict[str, str] = field(default_factory=dict)

    def begin(self) -> None:
        """Start without waiting for it."""
        if self._process is None:
            self._process = _program("host", self.settings)

    def where(self) -> dict[str, str]:
        """The variables by which a run finds it."""
        self.begin()
        if not self._where:
            assert self._process is not None
            self._where = _answer(self._process)
        return {name: value for name, value in self._where.items() if name != "pid"}

    @property
    def pid(self) -> int:
        self.where()
        return int(self._where["pid"])

    def end(self) -> None:
        if self._process is not None:
            os.killpg(self._process.pid, signal.SIGKILL)
            _close(self._process)
        self._process, self._where = None, {}


@dataclass
class Forks:
    """A warm process that forks one run after the other."""

    settings: Settings
    _process: subprocess.Popen[str] | None = None

    def start(self, what: str, table: str, spark: dict[str, str], socket: Path) -> int:
        """Begin a run that archives, folds, untiers, unregisters, coalesces or cleans, and return its process id."""
        if self._process is None:
            self._process = _program("fork", self.settings)
        assert self._process.stdin is not None
        order = {"what": what, "table": table, "env": {**spark, faults.VARIABLE: str(socket)}}
        self._process.stdin.write(json.dumps(order) + "\n")
        self._process.stdin.flush()
        return int(self._answer()["pid"])

    def wait(self) -> Ended:
        found = self._answer()
        return Ended(found["killed"], found["error"], tuple(found["done_to"]), tuple(found["said"]))

    def end(self) -> None:
        if self._process is not None:
            os.killpg(self._process.pid, signal.SIGKILL)
            _close(self._process)
        self._process = None

    def _answer(self) -> dict[str, Any]:
        assert self._process is not None
        return _answer(self._process)


def _answer(process: subprocess.Popen[str]) -> dict[str, Any]:
    """The next line; whoever does not say it in time is killed."""
    assert process.stdout is not None
    too_late = threading.Timer(TIMEOUT, os.killpg, (process.pid, signal.SIGKILL))
    too_late.start()
    line = process.stdout.readline()
    too_late.cancel()
    assert line, f"no answer within {TIMEOUT:.0f} s, or it died"
    answer: dict[str, Any] = json.loads(line)
    return answer


def _close(process: subprocess.Popen[str]) -> None:
    process.wait()
    for stream in (process.stdin, process.stdout):
        if stream is not None:
            stream.close()


def _host() -> None:
    """Start Spark, say where, and wait to be killed."""
    from frostline.local import artifacts
    from frostline.pipeline import session
    from frostline.report import Silent

    settings = config.load().settings
    spark = session.start(settings, artifacts.fetch(settings, report=Silent()).jars)
    gateway = spark.sparkContext._gateway
    assert gateway is not None
    where = {
        "PYSPARK_GATEWAY_PORT": str(gateway.gateway_parameters.port),
        "PYSPARK_GATEWAY_SECRET": gateway.gateway_parameters.auth_token,
        "pid": str(gateway.proc.pid),
    }
    sys.stdout.write(json.dumps(where) + "\n")
    sys.stdout.flush()
    sys.stdin.read()


def _attach(settings: Settings) -> SparkSession:
    """A session in a JVM that somebody else started."""
    from pyspark import SparkConf, SparkContext
    from pyspark.java_gateway import launch_gateway
    from pyspark.sql import SparkSession

    from frostline.pipeline import session

    gateway = launch_gateway()  # type: ignore[no-untyped-call]  # PYSPARK_GATEWAY_PORT: no JVM is launched
    jvm: Any = gateway.jvm
    context = jvm.org.apache.spark.api.java.JavaSparkContext.fromSparkContext(
        jvm.org.apache.spark.SparkContext.getOrCreate()
    )
    conf = SparkConf(_jvm=jvm, _jconf=context.getConf())
    return session.for_database(SparkSession(SparkContext(gateway=gateway, jsc=context, conf=conf)), settings)


def _work(what: str, table: str, settings: Settings, report: Report) -> list[str]:
    """What `frostline archive`, `fold`, `untier`, `unregister`, `coalesce` and `clean` do."""
    from frostline.tiering.archive.run import Warm, archive
    from frostline.tiering.fold.run import fold
    from frostline.tiering.unregister import unregister
    from frostline.tiering.untier.run import untier

    def spark() -> AbstractContextManager[SparkSession]:
        return nullcontext(_attach(settings))

    if what == "archive":
        return [str(one.leaf) for one in archive(settings, table, report, spark)]
    if what == "fold":
        with Warm(spark) as warm:
            return [f"{one.versions} versions" for one in fold(settings, table, report, warm)]
    if what.startswith("untier "):
        with Warm(spark) as warm:
            return [str(one.period) for one in untier(settings, table, what.removeprefix("untier "), report, warm)]
    if what == "unregister":
        return [str(one.period) for one in unregister(settings, table, report, keep_lake=False).returned]
    return _work_alone(what, table, settings, report)


def _work_alone(what: str, table: str, settings: Settings, report: Report) -> list[str]:
    """What is done without Spark; append: how a fold begins."""
    from frostline.catalog import registry
    from frostline.catalog.database import connect
    from frostline.tiering import clean, coalesce, staged
    from frostline.tiering.locks import from_settings, only_writer

    with connect(settings.dsn.get_secret_value(), application=f"frostline {what}") as connection:
        managed = registry.get(connection, table)
        with only_writer(connection, managed) as managed:
            if what == "append":
                return [str(staged.add_owned(connection, settings, managed, report).snapshot_id)]
            if what == "coalesce":
                return [group.name for group in coalesce.joined(connection, managed, from_settings(settings))]
            return [found.name for found in clean.clean(connection, settings, managed, 0, report)]


def _run(what: str, table: str) -> dict[str, object]:
    from frostline.errors import FrostlineError
    from frostline.report import Silent

    settings, said = config.load().settings, []

    class Heard(Silent):
        def line(self, text: str) -> None:
            said.append(text)

    try:
        done_to = _work(what, table, settings, Heard())
    except FrostlineError as error:
        return {"error": f"{type(error).__name__}: {error}", "done_to": [], "said": said}
    except BaseException as error:
        expected = isinstance(error, OSError) or type(error).__module__.startswith("psycopg")
        text = f"{type(error).__name__}: {error}" if expected else traceback.format_exc()
        return {"error": text, "done_to": [], "said": said}
    return {"error": None, "done_to": done_to, "said": said}


def _fork() -> None:
    """One run per line; its process id, then its end."""
    # Imported before the fork: a run starts at once.
    import pyarrow  # noqa: F401
    import pyspark.sql  # noqa: F401

    import frostline.tiering.archive.run
    import frostline.tiering.coalesce
    import frostline.tiering.fold.run
    import frostline.tiering.unregister  # noqa: F401

    for line in sys.stdin:
        order = json.loads(line)
        reading, writing = os.pipe()
        pid = os.fork()
        if pid == 0:
            os.close(reading)
            os.environ.update(order["env"])
            with os.fdopen(writing, "w") as result:
                json.dump(_run(order["what"], order["table"]), result)
            os._exit(0)
        os.close(writing)
        sys.stdout.write(json.dumps({"pid": pid}) + "\n")
        sys.stdout.flush()
        with os.fdopen(reading) as result:
            text = result.read()
        os.waitpid(pid, 0)
        found = json.loads(text) if text else {"error": None, "done_to": [], "said": []}
        sys.stdout.write(json.dumps({**found, "killed": not text}) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    {"host": _host, "fork": _fork}[sys.argv[1]]()
