"""How a managed table is laid out in Iceberg: schema, partitions, sort order, table properties."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any

from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.sorting import NullOrder, SortDirection, SortField, SortOrder
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
from frostline.model.layout import AUTO, SortKey, sorted_by, step, write_sort
from frostline.model.tables import Column

OPERATION = "frostline.operation"  # snapshot property: which operation made it
PERIOD = "frostline.period"  # and which rows it moved
INSTALLATION = "frostline.installation"  # table property: which database it belongs to
LAYOUT = "frostline.layout"  # table property: what was chosen when partitions and sort order were last set
_STEPS: dict[str, Transform[Any, Any]] = {
    "year": YearTransform(),
    "month": MonthTransform(),
    "day": DayTransform(),
    "hour": HourTransform(),
}
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
    """One partition field of the table's key."""
    name = partition_name(managed, "period", ())
    return PartitionSpec(PartitionField(managed.table.key_column.number, 1000, transform(managed), name))


def partition_name(managed: Managed, wanted: str, taken: Iterable[str]) -> str:
    """A name that neither a column nor another partition field has."""
    others = {name.casefold() for name in (*managed.lake_names.values(), managed.marker or "", *taken)}
    names = (wanted, *(f"{prefix}_{wanted}" for prefix in ("frostline", "_frostline", "__frostline")))
    return next(name for name in names if name not in others)


def sort_order(managed: Managed) -> SortOrder:
    """As chosen; else by the primary key, so that a look-up by it reads few row groups."""
    numbers = {column.number: column.number for column in managed.table.columns}
    return SortOrder(*sort_fields(sorted_by(managed.table, managed.options.sort_order), numbers))


def sort_fields(keys: Iterable[SortKey], ids: Mapping[int, int]) -> list[SortField]:
    """Iceberg's own; `ids`: the lake's numbers of columns by the table's."""
    return [
        SortField(
            ids[key.number],
            IdentityTransform(),
            SortDirection.DESC if key.descending else SortDirection.ASC,
            NullOrder.NULLS_FIRST if key.nulls_first else NullOrder.NULLS_LAST,
        )
        for key in keys
    ]


def chosen(managed: Managed) -> dict[str, str]:
    """What a person has chosen, without what is the default."""
    there = {column.number for column in managed.table.stored}
    found = {
        "lake_partition": managed.options.lake_partition,
        "sort_order": write_sort([key for key in managed.options.sort_order if key.number in there]) or AUTO,
    }
    return {name: value for name, value in found.items() if value != AUTO}


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
        LAYOUT: json.dumps(chosen(managed)),
    }


def merge_properties(managed: Managed, file_bytes: int) -> dict[str, str]:
    """What keeps the files of a MERGE by Spark as much like our own as Spark can write them."""
    mode, lookups = managed.options.merge_mode, looked_up(managed)
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


def looked_up(managed: Managed) -> tuple[str, ...]:
    """Columns of the primary key that rows are asked for by one value; of time, a range is asked for."""
    return tuple(
        managed.lake_names[name]
        for name in managed.table.primary_key
        if name != managed.table.key and has_bloom(_column(managed, name).storage.iceberg)
    )


def _column(managed: Managed, name: str) -> Column:
    return next(column for column in managed.table.columns if column.name == name)


def _row_group_bytes(managed: Managed) -> int:
    """About ROWS_PER_GROUP rows. Writers count bytes, so the width of a row is estimated from its types."""
    return ROWS_PER_GROUP * sum(_width(column.storage.iceberg) for column in managed.table.stored)


def _width(iceberg: str) -> int:
    if iceberg.startswith("decimal"):
        return 8
    return _WIDTHS.get(iceberg, 24)


def transform(managed: Managed) -> Transform[Any, Any]:
    """What files are cut by."""
    found = step(managed.table, managed.options.lake_partition)
    return TruncateTransform(found) if isinstance(found, int) else _STEPS[found]


def iceberg_type(name: str) -> IcebergType:
    """The type the map of types calls by this name."""
    decimal = re.fullmatch(r"decimal\((\d+), (\d+)\)", name)
    return DecimalType(int(decimal[1]), int(decimal[2])) if decimal else _TYPES[name]
