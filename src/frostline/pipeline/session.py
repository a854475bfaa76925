"""One Spark session: quiet, local by default, with our catalog."""

from __future__ import annotations

import hashlib
import logging
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from importlib import resources
from importlib.util import find_spec
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

from frostline.config import Settings
from frostline.errors import SetupError
from frostline.lake.catalog import spark_properties

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_NO_NETWORK = {"spark.driver.bindAddress": "127.0.0.1", "spark.driver.host": "127.0.0.1"}
CLASSES = "classes-"  # how files of Java's classes are called
QUIET = ("-Xlog:disable", "-Xlog:all=warning:stderr")  # about them Java speaks on stdout, which is ours


# Options whose values Spark never prints, by name; its own list does not know `access-key-id`.
SECRETS = r"(?i)secret|password|token|access[.-]?key|credential"


@contextmanager
def spark_session(settings: Settings, jars: Sequence[Path]) -> Iterator[SparkSession]:
    """A session on this database's lake for as long as the block lasts."""
    session = start(settings, jars)
    try:
        with _killable():
            yield for_database(session, settings)
    finally:
        stop(session)


_killed: list[subprocess.Popen[bytes]] = []  # the JVM of spark_session, while there is one


@contextmanager
def _killable() -> Iterator[None]:
    """Ctrl-C ends the JVM: PySpark's own answer to it asks the JVM to cancel its jobs, and waits for it behind them."""
    from pyspark import SparkContext

    _killed[:] = [SparkContext._gateway.proc] if SparkContext._gateway is not None else []
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, _interrupted)
    try:
        yield
    finally:
        _killed.clear()


def _interrupted(_number: int, _frame: FrameType | None) -> None:
    kill()
    raise KeyboardInterrupt


def kill() -> None:
    """End the JVM now, from a signal: whoever waits for it, be it in a `finally`, would wait until its job is done."""
    for process in _killed:
        process.kill()


@contextmanager
def told_plainly() -> Iterator[None]:
    """When the JVM was ended under whoever waits for it, what ended it is raised, and not what PySpark says then."""
    try:
        yield
    except Exception as error:
        before: BaseException | None = error
        while before is not None:
            if isinstance(before, KeyboardInterrupt | SystemExit):
                raise before from None
            before = before.__context__
        raise


def for_database(session: SparkSession, settings: Settings) -> SparkSession:
    """A session of its own in the same JVM: Spark remembers catalogs per session."""
    own = session.newSession()
    for key, value in _catalog(settings).items():
        own.conf.set(key, value)
    return own


def start(settings: Settings, jars: Sequence[Path], java: Sequence[str] = ()) -> SparkSession:
    """Start Spark; the JVM's own chatter goes to logs/spark.log and logs/spark-jvm.log."""
    log = (settings.local.dir / "logs").absolute()
    log.mkdir(parents=True, exist_ok=True)
    os.environ["PYSPARK_PYTHON"] = sys.executable
    root = logging.getLogger()
    for place in (root, *root.handlers):
        place.addFilter(_not_of_py4j)
    from pyspark.sql import SparkSession

    with resources.as_file(resources.files("frostline.pipeline") / "log4j2.properties") as log4j:
        options = {
            "log4j2.configurationFile": log4j.as_uri(),
            "frostline.log": log / "spark.log",
            "user.timezone": "UTC",
        }
        given = [*(f"-D{name}={value}" for name, value in options.items()), *(java or _classes(jars))]
        builder = SparkSession.builder.master(settings.spark.master).appName("frostline")
        for key, value in {
            **_found_by_spark(settings, jars),
            "spark.driver.memory": settings.spark.memory,
            "spark.driver.extraJavaOptions": " ".join(f'"{one}"' for one in given),  # quoted: a path may hold spaces
            **(_NO_NETWORK if _in_this_process(settings) else {}),
            "spark.ui.enabled": "false",
            "spark.ui.showConsoleProgress": "false",
            "spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
            "spark.sql.session.timeZone": "UTC",
            "spark.sql.caseSensitive": "true",  # Postgres tells "A" from "a"
            "spark.redaction.regex": SECRETS,
        }.items():
            builder = builder.config(key, value)
        with _stderr_to(log / "spark-jvm.log"), _none_left():
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


def _not_of_py4j(record: logging.LogRecord) -> bool:
    """It logs a call that failed with its stack, as when Java was killed; whoever made the call says what it means."""
    return f"{os.sep}py4j{os.sep}" not in record.pathname


def _found_by_spark(settings: Settings, jars: Sequence[Path]) -> dict[str, str]:
    """Here they stand in the class path, which an archive of classes covers; executors elsewhere are sent them."""
    paths = [str(jar) for jar in jars]
    if _in_this_process(settings) and not any(os.pathsep in path for path in paths):
        return {"spark.driver.extraClassPath": os.pathsep.join(paths)}
    return {"spark.jars": ",".join(paths)}


def class_archive(jars: Sequence[Path]) -> Path | None:
    """The file of Java's classes for this Java, this Spark and these jars; see classes.py, which makes it."""
    home, spark = os.environ.get("JAVA_HOME"), find_spec("pyspark")
    java = shutil.which(Path(home) / "bin" / "java" if home else "java")
    if spark is None or spark.origin is None or java is None or not jars:
        return None
    try:
        parts = (Path(java).resolve().parents[1] / "lib" / "modules", Path(spark.origin).parent / "jars", *jars)
        told = "\n".join(f"{part} {part.stat().st_size} {part.stat().st_mtime_ns}" for part in parts)
    except OSError:
        return None  # a Java of another kind
    return jars[0].parent / f"{CLASSES}{hashlib.sha256(told.encode()).hexdigest()[:16]}.jsa"


def _classes(jars: Sequence[Path]) -> list[str]:
    found = class_archive(jars)
    if found is None or not found.exists():
        return []
    with suppress(OSError):
        os.utime(found)  # still used
    return [f"-XX:SharedArchiveFile={found}", *QUIET]


def _in_this_process(settings: Settings) -> bool:
    return re.match(r"local(\[|$)", settings.spark.master) is not None


def _ship(session: SparkSession, settings: Settings) -> None:
    """Send this package to the executors; what it imports must be installed there."""
    package = Path(str(resources.files("frostline")))
    archive = settings.local.dir.absolute() / "executors" / "frostline"  # they fetch it when they start, so it stays
    session.sparkContext.addPyFile(shutil.make_archive(str(archive), "zip", package.parent, package.name))


def stop(session: SparkSession, seconds: float = 30) -> None:
    """Stop Spark and its JVM: PySpark would leave the JVM until this process ends."""
    from pyspark import SparkContext

    with suppress(Exception), warnings.catch_warnings():  # a JVM that was killed cannot be asked to stop
        warnings.simplefilter("ignore", RuntimeWarning)
        session.stop()
    gateway = SparkContext._gateway
    if gateway is not None:
        with suppress(Exception):
            gateway.shutdown()
        gateway.proc.stdin.close()
        gateway.proc.wait(timeout=seconds)
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
def _none_left() -> Iterator[None]:
    """PySpark forgets a JVM that it is starting when it is interrupted or fails, and that one would never end."""
    from pyspark import SparkContext, java_gateway

    started: list[subprocess.Popen[bytes]] = []

    def noted(*arguments: Any, **options: Any) -> subprocess.Popen[bytes]:
        started.append(subprocess.Popen(*arguments, **options))
        return started[-1]

    setattr(java_gateway, "Popen", noted)  # noqa: B010 - it is no name of PySpark's that is typed
    try:
        yield
    except BaseException:
        for process in started:
            process.kill()
            process.wait()
            assert process.stdin is not None
            process.stdin.close()
        SparkContext._gateway = SparkContext._jvm = None
        raise
    finally:
        setattr(java_gateway, "Popen", subprocess.Popen)  # noqa: B010


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
