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
from frostline.pipeline.session import told_plainly

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_DAY = 86_400_000_000  # microseconds: a date's bound counts days


@told_plainly()
def unread(spark: SparkSession, settings: Settings, managed: Managed, kept_from: Bound | None, operation: int) -> None:
    """Rows at or above the seam (None: all there are) or not kept any more, in one commit with the operation's id."""
    above = "true" if managed.seam is None else _compared(managed, ">=", managed.seam)
    where = above if kept_from is None else f"{above} OR {_compared(managed, '<', kept_from)}"
    try:
        with stamped(spark, {layout.OPERATION: str(operation)}), quiet():
            spark.sql(f"DELETE FROM {table_name(settings, managed)} WHERE {where}")
    except Exception as error:
        raise OperationError(
            f"rows of {managed.table} that nobody reads could not be removed from the lake",
            detail=storage.of(settings).said(cause(error))[0],
            hint=f"Spark's own words are in {settings.local.dir / 'logs' / 'spark.log'}; run the same command again",
        ) from error


def _compared(managed: Managed, operator: str, bound: Bound) -> str:
    key = managed.table.key_column
    order = bound.order // _DAY if managed.table.key_type == "date" else bound.order
    return f"{quoted(managed.lake_names[key.name])} {operator} {literal(key, order)}"
