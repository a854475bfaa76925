"""Java's classes for Spark, in a file that Java maps instead of reading jars: a start takes half the processor time.

Class data sharing, as Java calls it. The file is good for one Java, one installation of Spark and these jars; Java
compares all of that by itself and does without the file where anything is different.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory

from frostline.config import Settings
from frostline.pipeline import session
from frostline.report import Report

_UNUSED_SECONDS = 30 * 86400
_DUMP_SECONDS = 300
_BRIEF = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")  # to compile well would take longer than it saves
# What archiving, folding and maintenance use of Spark and Iceberg, on three rows.
_EXERCISE = (
    "CREATE TABLE lake.db.events (id bigint, ts timestamp, v string) USING iceberg PARTITIONED BY (days(ts))"
    " TBLPROPERTIES ('format-version' = '2', 'write.merge.mode' = 'merge-on-read')",
    "INSERT INTO lake.db.events VALUES (1, timestamp '2020-01-01', 'a'), (2, timestamp '2020-01-02', 'b')",
    "INSERT INTO lake.db.events VALUES (3, timestamp '2020-01-01', 'c')",
    "MERGE INTO lake.db.events t USING (SELECT 1L AS id, timestamp '2020-01-01' AS ts, 'd' AS v) s"
    " ON t.id = s.id AND t.ts = s.ts WHEN MATCHED AND s.v IS NULL THEN DELETE WHEN MATCHED THEN UPDATE SET v = s.v"
    " WHEN NOT MATCHED THEN INSERT *",
    "DELETE FROM lake.db.events WHERE ts >= timestamp '2020-01-02'",
    "CALL lake.system.rewrite_data_files(table => 'db.events', options => map('rewrite-all', 'true'))",
    "CALL lake.system.rewrite_manifests('db.events')",
    "CALL lake.system.expire_snapshots(table => 'db.events', retain_last => 1)",
    "SELECT count(*), max(v) FROM lake.db.events GROUP BY id ORDER BY 1",
)


def prepare(settings: Settings, jars: Sequence[Path], report: Report) -> None:
    """Make the file unless it is there. Everything works without it, only slower."""
    path = session.class_archive(jars)
    if path is None or path.exists():
        return
    _forget_unused(path.parent)
    try:
        with report.step("prepare Java's classes for Spark, once"), TemporaryDirectory() as directory:
            _make(settings, jars, path, Path(directory))
    except Exception as error:  # of Spark, of Java, of the disk: all the same to us
        report.line(
            f"Java's classes could not be prepared, so Spark takes longer to start: {str(error).splitlines()[0]}"
        )


def _make(settings: Settings, jars: Sequence[Path], path: Path, directory: Path) -> None:
    apart = settings.local.model_copy(update={"dir": directory})
    here = settings.spark.model_copy(update={"master": "local[2]"})
    alone = settings.model_copy(update={"local": apart, "spark": here})
    made = path.with_name(f"{path.name}.{os.getpid()}")
    spark = session.start(alone, jars, java=[f"-XX:ArchiveClassesAtExit={made}", *_BRIEF, *session.QUIET])
    try:
        for name, value in (("", "org.apache.iceberg.spark.SparkCatalog"), (".type", "hadoop")):
            spark.conf.set(f"spark.sql.catalog.lake{name}", value)
        spark.conf.set("spark.sql.catalog.lake.warehouse", (directory / "lake").as_uri())
        for statement in _EXERCISE:
            spark.sql(statement).collect()
        spark.sparkContext.parallelize([1], 1).map(str).collect()  # with a Python beside it
    finally:
        session.stop(spark, _DUMP_SECONDS)
    made.replace(path)


def _forget_unused(directory: Path) -> None:
    """Of installations that are gone; whoever starts Spark touches his own."""
    for old in directory.glob(f"{session.CLASSES}*"):
        with suppress(OSError):
            if old.stat().st_mtime < time.time() - _UNUSED_SECONDS:
                old.unlink()
