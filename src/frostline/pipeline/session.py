"""One Spark session: quiet, local by default, with our catalog."""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING

from frostline.config import Settings
from frostline.errors import SetupError
from frostline.lake.catalog import spark_properties

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_NO_NETWORK = {"spark.driver.bindAddress": "127.0.0.1", "spark.driver.host": "127.0.0.1"}


# Options whose values Spark never prints, by name; its own list does not know `access-key-id`.
SECRETS = r"(?i)secret|password|token|access[.-]?key|credential"


@contextmanager
def spark_session(settings: Settings, jars: Sequence[Path]) -> Iterator[SparkSession]:
    """A session on this database's lake for as long as the block lasts."""
    session = start(settings, jars)
    try:
        yield for_database(session, settings)
    finally:
        stop(session)


def for_database(session: SparkSession, settings: Settings) -> SparkSession:
    """A session of its own in the same JVM: Spark remembers catalogs per session."""
    own = session.newSession()
    for key, value in _catalog(settings).items():
        own.conf.set(key, value)
    return own


def start(settings: Settings, jars: Sequence[Path]) -> SparkSession:
    """Start Spark; the JVM's own chatter goes to logs/spark.log and logs/spark-jvm.log."""
    log = (settings.local.dir / "logs").absolute()
    log.mkdir(parents=True, exist_ok=True)
    os.environ["PYSPARK_PYTHON"] = sys.executable
    from pyspark.sql import SparkSession

    with resources.as_file(resources.files("frostline.pipeline") / "log4j2.properties") as logging:
        options = {
            "log4j2.configurationFile": logging.as_uri(),
            "frostline.log": log / "spark.log",
            "user.timezone": "UTC",
        }
        java = " ".join(f'"-D{name}={value}"' for name, value in options.items())  # quoted: a path may hold spaces
        builder = SparkSession.builder.master(settings.spark.master).appName("frostline")
        for key, value in {
            "spark.jars": ",".join(str(jar) for jar in jars),
            "spark.driver.memory": settings.spark.memory,
            "spark.driver.extraJavaOptions": java,
            **(_NO_NETWORK if _in_this_process(settings) else {}),
            "spark.ui.enabled": "false",
            "spark.ui.showConsoleProgress": "false",
            "spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
            "spark.sql.session.timeZone": "UTC",
            "spark.sql.caseSensitive": "true",  # Postgres tells "A" from "a"
            "spark.redaction.regex": SECRETS,
        }.items():
            builder = builder.config(key, value)
        with _stderr_to(log / "spark-jvm.log"):
            try:
                session = builder.getOrCreate()
                if not _in_this_process(settings):
                    _ship(session, settings)
                return session
            except Exception as error:
                raise SetupError(
                    f"Spark did not start: {str(error).splitlines()[0]}",
                    hint=f"its own words are in {log / 'spark-jvm.log'}",
                ) from error


def _in_this_process(settings: Settings) -> bool:
    return re.match(r"local(\[|$)", settings.spark.master) is not None


def _ship(session: SparkSession, settings: Settings) -> None:
    """Send this package to the executors; what it imports must be installed there."""
    package = Path(str(resources.files("frostline")))
    archive = settings.local.dir.absolute() / "executors" / "frostline"  # they fetch it when they start, so it stays
    session.sparkContext.addPyFile(shutil.make_archive(str(archive), "zip", package.parent, package.name))


def stop(session: SparkSession) -> None:
    """Stop Spark and its JVM: PySpark would leave the JVM until this process ends."""
    from pyspark import SparkContext

    with suppress(Exception):  # a JVM that was killed cannot be asked to stop
        session.stop()
    gateway = SparkContext._gateway
    if gateway is not None:
        with suppress(Exception):
            gateway.shutdown()
        gateway.proc.stdin.close()
        gateway.proc.wait(timeout=30)
        SparkContext._gateway = None
        SparkContext._jvm = None


def alive(session: SparkSession) -> bool:
    """Whether its JVM still answers."""
    try:
        return not session.sparkContext._jsc.sc().isStopped()
    except Exception:
        return False


def _catalog(settings: Settings) -> dict[str, str]:
    """Set at run time: as start-up options passwords and keys would stand in the process list."""
    prefix = f"spark.sql.catalog.{settings.lake.name}"
    own = {f"{prefix}.{name}": value for name, value in spark_properties(settings).items()}
    # No cache: tables are written by others than Spark too, and a MERGE must begin at the head.
    return {prefix: "org.apache.iceberg.spark.SparkCatalog", f"{prefix}.cache-enabled": "false"} | own


@contextmanager
def _stderr_to(path: Path) -> Iterator[None]:
    """The JVM inherits our stderr when it starts and writes banners there."""
    sys.stderr.flush()
    saved = os.dup(2)
    with path.open("ab") as file:
        os.dup2(file.fileno(), 2)
        try:
            yield
        finally:
            os.dup2(saved, 2)
            os.close(saved)
