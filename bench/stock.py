"""What the export is measured against: Spark's own JDBC source, page range by page range, and Iceberg's own append."""

from __future__ import annotations

from typing import TYPE_CHECKING

from psycopg.sql import SQL, Identifier

from frostline.catalog.registry import Managed
from frostline.config import Settings
from frostline.lake.catalog import address, identifier
from frostline.pipeline.export import Source

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_PAGES = 16_384  # 128 MB a task
_FETCH_ROWS = 10_000


def export(spark: SparkSession, settings: Settings, managed: Managed, source: Source) -> None:
    """Append the leaf to its Iceberg table."""
    at = address(settings.dsn.get_secret_value())
    frame = spark.read.jdbc(
        url=at.jdbc,
        table=f"({_query(managed, source)}) AS leaf",
        predicates=_ranges(source.pages),
        properties={
            "driver": "org.postgresql.Driver",
            "user": at.user,
            "password": at.password,
            "fetchsize": str(_FETCH_ROWS),
        },
    )
    columns = [managed.lake_names[column.name] for column in managed.table.stored]
    target = ".".join((settings.lake.name, *identifier(managed)))
    spark.catalog.refreshTable(target)  # it was made anew
    frame.select(*columns).writeTo(target).append()


def _query(managed: Managed, source: Source) -> str:
    """Types that Spark does not know go as text, as one would do it by hand."""
    values = SQL(", ").join(
        SQL("{}{} AS {}").format(
            Identifier(c.name),
            SQL("" if c.storage.native and c.storage.iceberg != "uuid" else "::text"),
            Identifier(managed.lake_names[c.name]),
        )
        for c in managed.table.stored
    )
    leaf = Identifier(source.leaf.schema, source.leaf.name)
    return SQL("SELECT {}, ctid AS page FROM ONLY {}").format(values, leaf).as_string(None)


def _ranges(pages: int) -> list[str]:
    starts = list(range(0, max(pages, 1), _PAGES))
    ends = [f" AND page < '({end},0)'::tid" for end in starts[1:]] + [""]
    return [f"page >= '({start},0)'::tid{end}" for start, end in zip(starts, ends, strict=True)]
