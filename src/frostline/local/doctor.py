"""This machine: Python, Java, Spark, the jars, DuckDB and its extensions. Then the rest, which needs no machine."""

from __future__ import annotations

import platform
import sys
from importlib.metadata import PackageNotFoundError, version

from frostline.config import Settings
from frostline.local import artifacts
from frostline.local.java import require_java
from frostline.tiering.checks import OK, PROBLEM, WARNING, Check, Checks, guarded

_AREA = "this machine"
_EXTENSIONS = ("avro", "httpfs", "iceberg")
_REINSTALL = "pip install --force-reinstall frostline, with the Python and on the machine it is to run on"
_SPARK = "4.1"  # what the Iceberg runtime is made for


def diagnose(settings: Settings) -> Checks:
    yield Check(_AREA, "Python", OK, f"{platform.python_version()} at {sys.prefix}")
    yield from guarded(_AREA, "Java", _java)
    yield from guarded(_AREA, "Spark", _spark)
    yield from guarded(_AREA, "jars", lambda: _jars(settings))
    try:
        from frostline.tiering.doctor import examine
    except ImportError as error:
        # The rest is made with it, and cannot be looked at.
        yield Check(_AREA, "packages", PROBLEM, f"what Frostline is made with cannot be loaded: {error}", _REINSTALL)
        return
    yield from guarded(_AREA, "DuckDB", _duckdb)
    yield from examine(settings)


def _java() -> Checks:
    yield Check(_AREA, "Java", OK, str(require_java()))


def _spark() -> Checks:
    found = _installed("pyspark")
    right = found is not None and found.startswith(f"{_SPARK}.")
    remedy = "" if right else f"pip install 'pyspark=={_SPARK}.*': the Iceberg runtime is made for it"
    yield Check(_AREA, "Spark", OK if right else PROBLEM, f"PySpark {found or 'is not installed'}", remedy)


def _jars(settings: Settings) -> Checks:
    wanted = (*artifacts.JARS, artifacts.S3_JAR) if settings.on_s3 else artifacts.JARS
    cache = artifacts.cache_directory(settings)
    missing = [artifact.file for artifact in wanted if not artifacts.cached(artifact, cache)]
    if missing:
        found = f"not in {cache} or damaged: {', '.join(missing)}"
        yield Check(_AREA, "jars", WARNING, found, "frostline fetch; the first run that needs them does, too")
    else:
        yield Check(_AREA, "jars", OK, f"{len(wanted)} in {cache}, with the sums they must have")


def _duckdb() -> Checks:
    own = _installed("duckdb")
    found = {name: _installed(f"duckdb-extension-{name}") for name in _EXTENSIONS}
    wrong = {name: at for name, at in found.items() if at != own}
    if wrong:
        listed = ", ".join(f"{name} {at or 'is missing'}" for name, at in wrong.items())
        remedy = f"pip install {' '.join(f'duckdb-extension-{name}=={own}' for name in wrong)}"
        yield Check(_AREA, "DuckDB", PROBLEM, f"DuckDB {own} cannot load extensions of others: {listed}", remedy)
        return
    _load()
    yield Check(_AREA, "DuckDB", OK, f"{own}, with {', '.join(_EXTENSIONS)}")


def _load() -> None:
    """Really loaded: a package may be of the right version and of another platform."""
    import duckdb

    from frostline.lake.duck import load

    with duckdb.connect() as engine:
        for name in _EXTENSIONS:
            load(engine, name)


def _installed(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None
