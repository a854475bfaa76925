"""Copying one leaf into Iceberg: every task reads its own pages at one exported snapshot."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from psycopg.sql import Identifier

from frostline.catalog.database import session_sql
from frostline.catalog.registry import Managed
from frostline.config import Settings
from frostline.errors import OperationError
from frostline.lake.catalog import address, identifier
from frostline.lake.layout import OPERATION
from frostline.model.tables import Leaf

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

PAGES_PER_TASK = 32_768  # 256 MB of heap: one task's sort stays in memory, and one task makes one file
FETCH_ROWS = 10_000


@dataclass(frozen=True)
class Source:
    """A leaf as one snapshot sees it."""

    leaf: Leaf
    snapshot: str  # pg_export_snapshot() of a transaction that stays open
    pages: int


def export(spark: SparkSession, settings: Settings, managed: Managed, source: Source, operation: int) -> None:
    """Append the leaf to the Iceberg table in one commit that carries the operation's id."""
    target = ".".join(_quoted(part) for part in (settings.lake.name, *identifier(managed)))
    try:
        _read(spark, settings, managed, source).writeTo(target).option(
            f"snapshot-property.{OPERATION}", str(operation)
        ).append()
    except Exception as error:
        raise OperationError(
            f"exporting {source.leaf} to the lake failed; the table is as it was",
            detail=_cause(error),
            hint=f"Spark's own words are in {settings.local.dir / 'logs' / 'spark.log'}; run the same command again",
        ) from error


def _read(spark: SparkSession, settings: Settings, managed: Managed, source: Source) -> DataFrame:
    at = address(settings.dsn.get_secret_value())
    frame = spark.read.jdbc(
        url=at.jdbc,
        table=f"({_query(managed, source.leaf)}) AS leaf",
        predicates=_slices(source.pages),
        properties={
            "driver": "org.postgresql.Driver",
            "user": at.user,
            "password": at.password,
            "fetchsize": str(FETCH_ROWS),
            "sessionInitStatement": _session(source.snapshot),
        },
    )
    columns = managed.table.stored
    return frame.selectExpr(
        *(f"{c.storage.restore.format(c=f'c{c.number}')} AS {_quoted(managed.lake_names[c.name])}" for c in columns)
    )


def _query(managed: Managed, leaf: Leaf) -> str:
    """The leaf's columns under names that need no quoting on the way, and ctid for the slices."""
    values = [f"{c.storage.export.format(c=_identifier(c.name))} AS c{c.number}" for c in managed.table.stored]
    return f"SELECT {', '.join(values)}, ctid AS page FROM ONLY {_identifier(leaf.schema, leaf.name)}"


def _slices(pages: int) -> list[str]:
    """Page ranges that cover the heap whatever was added to it since: the last has no end."""
    starts = list(range(0, max(pages, 1), PAGES_PER_TASK))
    ends = [f" AND page < '({end},0)'::tid" for end in starts[1:]] + [""]
    return [f"page >= '({start},0)'::tid{end}" for start, end in zip(starts, ends, strict=True)]


def _session(snapshot: str) -> str:
    """First statements of each task's transaction; a snapshot can only be taken before any query."""
    return (
        "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY;"
        f" SET TRANSACTION SNAPSHOT '{snapshot}'; {session_sql(local=True)}"
    )


def _identifier(*names: str) -> str:
    return Identifier(*names).as_string(None)


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def _cause(error: Exception) -> str:
    """The innermost reason of a Spark failure, one line."""
    lines = [
        line for line in str(error).splitlines() if "ERROR:" in line or "Caused by" in line or "Exception:" in line
    ]
    return (lines[-1] if lines else str(error).splitlines()[0]).strip()
