"""Whether rows that another engine has committed hold a key twice."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from frostline.catalog.registry import Managed
from frostline.config import Settings
from frostline.pipeline.merge import literal, quiet, quoted, table_name

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_SHOWN = 5


def doubled(
    spark: SparkSession,
    settings: Settings,
    managed: Managed,
    ranges: Sequence[tuple[int, int]],
    snapshot_id: int | None = None,
) -> list[str]:
    """The first keys that stand twice in these ranges of the partition key; at a snapshot, else at the head."""
    period = quoted(managed.lake_names[managed.table.key])
    columns = ", ".join(quoted(managed.lake_names[name]) for name in managed.table.primary_key)
    key = managed.table.key_column
    within = " OR ".join(
        f"{period} BETWEEN {literal(key, least)} AND {literal(key, greatest)}"
        for least, greatest in sorted(set(ranges))
    )
    at = f" VERSION AS OF {int(snapshot_id)}" if snapshot_id is not None else ""
    with quiet():
        rows = spark.sql(
            f"SELECT CAST(struct({columns}) AS STRING) FROM {table_name(settings, managed)}{at} WHERE {within}"
            f" GROUP BY {columns} HAVING count(*) > 1 LIMIT {_SHOWN}"
        ).collect()
    return [str(row[0]) for row in rows]
