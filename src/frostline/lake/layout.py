"""How a managed table is laid out in Iceberg: schema, partitions, sort order, table properties."""

from __future__ import annotations

import re
from statistics import median
from typing import Any

from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.sorting import SortField, SortOrder
from pyiceberg.transforms import (
    DayTransform,
    HourTransform,
    IdentityTransform,
    MonthTransform,
    Transform,
    TruncateTransform,
    YearTransform,
)
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IcebergType,
    IntegerType,
    LongType,
    NestedField,
    StringType,
    TimestampType,
    TimestamptzType,
    UUIDType,
)

from frostline.catalog.registry import Managed
from frostline.lake.metrics import BOUND_LENGTH
from frostline.model.tables import Column

OPERATION = "frostline.operation"  # snapshot property: which operation made it
PERIOD = "frostline.period"  # and which rows it moved
INSTALLATION = "frostline.installation"  # table property: which database it belongs to
_DAY = 86_400_000_000  # microseconds
# From the longest: the transform whose steps are not longer than a period. Files carry min and max of the key, so
# a period that does not match a calendar unit only costs a few more files.
_STEPS: tuple[tuple[int, Transform[Any, Any]], ...] = (
    (360 * _DAY, YearTransform()),
    (7 * _DAY, MonthTransform()),
    (_DAY, DayTransform()),
    (0, HourTransform()),
)
# A look-up decodes one row group at least: with 16 thousand rows that takes 2 ms, with the usual 128 MB 20 ms and more.
# Whole scans are 4 % slower than with the largest groups, files as large.
ROWS_PER_GROUP = 16_384
# One byte a row: of twenty row groups without the value, one is decoded for nothing.
FALSE_POSITIVES = 0.05
# Columns without bloom filters: two values say nothing, and DuckDB asks them for a BLOB's escaped text instead of its
# bytes and tells -0 from 0, so that rows would be missing.
_NO_BLOOM = frozenset({"boolean", "float", "double", "binary"})
_WIDTHS = {"boolean": 1, "int": 4, "float": 4, "date": 4, "long": 8, "double": 8, "timestamp": 8, "timestamptz": 8}
_TYPES: dict[str, IcebergType] = {
    "boolean": BooleanType(),
    "int": IntegerType(),
    "long": LongType(),
    "float": FloatType(),
    "double": DoubleType(),
    "date": DateType(),
    "timestamp": TimestampType(),
    "timestamptz": TimestamptzType(),
    "uuid": UUIDType(),
    "binary": BinaryType(),
    "string": StringType(),
}


def schema(managed: Managed) -> Schema:
    """Columns by their lake names, without those the lake has not got yet; the Postgres type is each one's doc."""
    fields, identifiers = [], []
    for column in (column for column in managed.table.stored if column.name in managed.lake_names):
        key = column.name in managed.table.primary_key
        name = managed.lake_names[column.name]
        fields.append(
            NestedField(column.number, name, iceberg_type(column.storage.iceberg), required=key, doc=column.type)
        )
        if key:
            identifiers.append(column.number)
    return Schema(*fields, identifier_field_ids=identifiers)


def in_order(managed: Managed, schema: Schema) -> list[tuple[NestedField, Column | None]]:
    """The lake's columns in their order, each with the table's; None: the marker."""
    by_id = {managed.field_ids[column.name]: column for column in managed.table.stored}
    return [(field, by_id.get(field.field_id)) for field in schema.fields]


def partition_spec(managed: Managed) -> PartitionSpec:
    """One partition field that follows the periods."""
    source = next(column for column in managed.table.columns if column.name == managed.table.key)
    taken = set(managed.lake_names.values())
    name = next(name for name in ("period", "frostline_period", "_frostline_period") if name not in taken)
    return PartitionSpec(PartitionField(source.number, 1000, _transform(managed), name))


def sort_order(managed: Managed) -> SortOrder:
    """By the primary key, so that a look-up by it reads few row groups."""
    numbers = {column.name: column.number for column in managed.table.columns}
    return SortOrder(*(SortField(numbers[name], IdentityTransform()) for name in managed.table.primary_key))


def location(managed: Managed, root: str) -> str:
    """A directory no other database uses, though it may have a table of the same name in the same warehouse."""
    return f"{root}/{managed.lake_namespace}/{managed.lake_table}-{managed.installation[:8]}"


def properties(managed: Managed) -> dict[str, str]:
    return {
        "format-version": "2",
        "write.format.default": "parquet",
        "write.parquet.compression-codec": "zstd",
        # No shuffle: every task sorts its own slice of the leaf. A global sort would read the leaf twice.
        "write.distribution-mode": "none",
        "write.parquet.row-group-size-bytes": str(_row_group_bytes(managed)),
        "write.metadata.previous-versions-max": "1000",
        "frostline.table": str(managed.table),
        INSTALLATION: managed.installation,
    }


def merge_properties(managed: Managed, file_bytes: int) -> dict[str, str]:
    """What keeps the files of a MERGE by Spark as much like our own as Spark can write them."""
    mode = managed.options.merge_mode
    lookups = [
        managed.lake_names[name]
        for name in managed.table.primary_key
        if name != managed.table.key and has_bloom(_column(managed, name).storage.iceberg)
    ]
    return {
        **{f"write.{action}.mode": mode for action in ("delete", "update", "merge")},
        "write.merge.isolation-level": "serializable",
        # A partition's rows come together and are sorted, so that its files' keys follow each other. By range Spark
        # would merge twice, once to find out where to cut.
        "write.merge.distribution-mode": "hash",
        # Rows of a file are four times as large in the heap, about.
        "write.target-file-size-bytes": str(max(file_bytes // 4, 1)),
        "write.metadata.metrics.default": f"truncate({BOUND_LENGTH})",
        **{f"write.parquet.bloom-filter-enabled.column.{name}": "true" for name in lookups},
        **{f"write.parquet.bloom-filter-fpp.column.{name}": str(FALSE_POSITIVES) for name in lookups},
        **{f"write.parquet.bloom-filter-ndv.column.{name}": str(ROWS_PER_GROUP) for name in lookups},
    }


def has_bloom(iceberg: str) -> bool:
    """Whether a column of this type, where rows are looked up by it, has bloom filters."""
    return iceberg not in _NO_BLOOM


def _column(managed: Managed, name: str) -> Column:
    return next(column for column in managed.table.columns if column.name == name)


def _row_group_bytes(managed: Managed) -> int:
    """About ROWS_PER_GROUP rows. Writers count bytes, so the width of a row is estimated from its types."""
    return ROWS_PER_GROUP * sum(_width(column.storage.iceberg) for column in managed.table.stored)


def _width(iceberg: str) -> int:
    if iceberg.startswith("decimal"):
        return 8
    return _WIDTHS.get(iceberg, 24)


def _transform(managed: Managed) -> Transform[Any, Any]:
    widths = [
        leaf.range.upper.order - leaf.range.lower.order
        for leaf in managed.table.leaves
        if leaf.range is not None and leaf.range.lower is not None and leaf.range.upper is not None
    ]
    width = int(median(widths)) if widths else 30 * _DAY
    if managed.table.key_type.startswith("int"):
        return TruncateTransform(min(max(width, 1), 2**31 - 1))
    step = next(transform for least, transform in _STEPS if width >= least)
    # A date has no hours.
    return DayTransform() if managed.table.key_type == "date" and isinstance(step, HourTransform) else step


def iceberg_type(name: str) -> IcebergType:
    """The type the map of types calls by this name."""
    decimal = re.fullmatch(r"decimal\((\d+), (\d+)\)", name)
    return DecimalType(int(decimal[1]), int(decimal[2])) if decimal else _TYPES[name]
