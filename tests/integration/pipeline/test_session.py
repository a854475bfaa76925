"""Spark's start, when somebody does not wait for it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from frostline.config import Settings
from frostline.local import artifacts
from frostline.report import Report

_START = """
import sys
from pathlib import Path
from frostline import config
from frostline.pipeline import session
session.start(config.load({"local.dir": sys.argv[1]}, environ={}).settings, [Path(jar) for jar in sys.argv[2:]])
"""
_ENDLESS = """
import sys, threading, time
from pathlib import Path
from frostline import config
from frostline.pipeline import session

def tell(tracker):
    while not tracker.getActiveStageIds():
        time.sleep(0.05)
    print("running", flush=True)

settings = config.load({"local.dir": sys.argv[1]}, environ={}).settings
with session.spark_session(settings, [Path(jar) for jar in sys.argv[2:]]) as spark:
    threading.Thread(target=tell, args=(spark.sparkContext.statusTracker(),)).start()
    with session.told_plainly():
        spark.sql("SELECT count(DISTINCT a.id * b.id) FROM range(1000000) a, range(1000000) b").collect()
"""


def test_whoever_interrupts_a_job_need_not_wait_for_its_end(settings: Settings, report: Report, tmp_path: Path) -> None:
    jars = artifacts.fetch(settings, report=report).jars
    command = [sys.executable, "-c", _ENDLESS, str(tmp_path), *map(str, jars)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as running:
        assert running.stdout is not None
        assert running.stdout.readline() == "running\n"
        running.send_signal(signal.SIGINT)
        try:
            _, errors = running.communicate(timeout=60)
        finally:
            running.kill()
    assert errors.splitlines()[-1] == "KeyboardInterrupt"


def test_a_java_that_is_being_started_goes_with_whoever_starts_it(
    settings: Settings, report: Report, tmp_path: Path
) -> None:
    jars = artifacts.fetch(settings, report=report).jars
    command = [sys.executable, "-c", _START, str(tmp_path), *map(str, jars)]
    with subprocess.Popen(command, stderr=subprocess.DEVNULL) as starting:
        java = _java(starting.pid)
        starting.send_signal(signal.SIGINT)
        starting.wait(120)
    try:
        assert not Path(f"/proc/{java}").exists()
    finally:
        if Path(f"/proc/{java}").exists():
            os.kill(java, signal.SIGKILL)


def _java(parent: int) -> int:
    """The child that is to become Spark, as soon as it is a Java."""
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        for child in Path(f"/proc/{parent}/task/{parent}/children").read_text().split():
            if Path(f"/proc/{child}/comm").read_text() == "java\n":
                return int(child)
        time.sleep(0.01)
    raise AssertionError("it never started Java")
