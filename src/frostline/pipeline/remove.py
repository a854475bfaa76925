"""Rows removed from the Iceberg table by one `DELETE`: Iceberg drops whole files and rewrites those that keep rows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from frostline.catalog.registry import Managed
from frostline.config import Settings
from frostline.errors import OperationError
from frostline.lake import layout, storage
from frostline.model.bounds import Bound
from frostline.pipeline.export import cause
from frostline.pipeline.merge import literal, quiet, quoted, stamped, table_name

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_DAY = 86_400_000_000  # microseconds: a date's bound counts days


def from_bound(spark: SparkSession, settings: Settings, managed: Managed, bound: Bound | None, operation: int) -> None:
    """All rows whose key is not below the bound (None: all there are), in one commit with the operation's id."""
    key = managed.table.key_column
    where = "true"
    if bound is not None:
        order = bound.order // _DAY if managed.table.key_type == "date" else bound.order
        where = f"{quoted(managed.lake_names[key.name])} >= {literal(key, order)}"
    try:
        with stamped(spark, {layout.OPERATION: str(operation)}), quiet():
            spark.sql(f"DELETE FROM {table_name(settings, managed)} WHERE {where}")
    except Exception as error:
        raise OperationError(
            f"rows of {managed.table} that came back could not be removed from the lake; nobody reads them there",
            detail=storage.of(settings).said(cause(error))[0],
            hint=f"Spark's own words are in {settings.local.dir / 'logs' / 'spark.log'}; run the same command again",
        ) from error
