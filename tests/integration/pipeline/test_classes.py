"""Java's classes for Spark in a file of their own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from frostline.config import Settings
from frostline.local import artifacts
from frostline.pipeline import session
from frostline.report import Report

_START = """
import sys
from pathlib import Path
from frostline import config
from frostline.pipeline import session
jars = [Path(jar) for jar in sys.argv[2:]]
spark = session.start(config.load({"local.dir": sys.argv[1]}, environ={}).settings, jars)
print(list(spark._jvm.java.lang.management.ManagementFactory.getRuntimeMXBean().getInputArguments()))
session.stop(spark)
"""


def test_java_takes_the_file_that_was_prepared(settings: Settings, report: Report, tmp_path: Path) -> None:
    jars = artifacts.fetch(settings, report=report).jars
    prepared = session.class_archive(jars)
    if prepared is None or not prepared.exists():
        pytest.skip("it is made by frostline fetch --prepare")
    # Java ends with an error where it cannot use it; otherwise it would say nothing and read the jars.
    environment = os.environ | {"SPARK_SUBMIT_OPTS": "-Xshare:on"}
    command = [sys.executable, "-c", _START, str(tmp_path), *map(str, jars)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    assert f"-XX:SharedArchiveFile={prepared}" in done.stdout
    assert "[warning]" not in done.stdout


def test_another_jar_another_file(tmp_path: Path) -> None:
    (tmp_path / "some.jar").write_bytes(b"1")
    (tmp_path / "other.jar").write_bytes(b"2")
    jars = [tmp_path / "some.jar", tmp_path / "other.jar"]
    before = session.class_archive(jars)
    assert before is not None
    assert before.parent == tmp_path
    assert session.class_archive(jars[:1]) != before
    jars[1].write_bytes(b"23")
    assert session.class_archive(jars) not in (None, before)
    assert session.class_archive([tmp_path / "missing.jar"]) is None
