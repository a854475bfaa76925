"""The Iceberg table's partitions and sort order follow what was chosen for the table.

Only files that are written from then on are cut and sorted so: a file keeps the partition spec it was written under,
and readers know it by that. What was chosen last stands in a property of the table, changed in the same commit. So a
layout that another program gave the table stays until somebody chooses another one here.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping

from pyiceberg.table import Table as IcebergTable
from pyiceberg.table import Transaction
from pyiceberg.table.sorting import NullOrder, SortDirection, SortField

from frostline.catalog.registry import Managed
from frostline.config import Settings
from frostline.lake import layout
from frostline.lake.catalog import load
from frostline.model.layout import sorted_by


def pending(settings: Settings, managed: Managed) -> bool:
    """Whether something else was chosen than the Iceberg table has."""
    return _chosen(load(settings, managed)) != layout.chosen(managed)


def arrange(table: IcebergTable, managed: Managed, ids: Mapping[int, int]) -> None:
    """One commit, if anything else was chosen; `ids`: the lake's numbers of columns by the table's."""
    before, now = _chosen(table), layout.chosen(managed)
    if before == now:
        return
    with table.transaction() as transaction:
        if before.get("lake_partition") != now.get("lake_partition"):
            _cut(transaction, managed, ids[managed.table.key_column.number])
        if before.get("sort_order") != now.get("sort_order"):
            keys = sorted_by(managed.table, managed.options.sort_order)
            set_order(transaction, layout.sort_fields(keys, ids))
        transaction.set_properties({layout.LAYOUT: json.dumps(now)})


def set_order(transaction: Transaction, fields: Iterable[SortField]) -> None:
    """What rows of new files are sorted by."""
    schema = transaction.table_metadata.schema()
    with transaction.update_sort_order() as update:
        for field in fields:
            add = update.desc if field.direction == SortDirection.DESC else update.asc
            nulls = NullOrder.NULLS_FIRST if field.null_order == NullOrder.NULLS_FIRST else NullOrder.NULLS_LAST
            add(schema.find_field(field.source_id).name, field.transform, nulls)


def _cut(transaction: Transaction, managed: Managed, key: int) -> None:
    """A field that was there before is found again; another one gets a name of its own, for Spark shows them all."""
    metadata, wanted = transaction.table_metadata, layout.transform(managed)
    current = metadata.spec().fields
    if [(field.source_id, field.transform) for field in current] == [(key, wanted)]:
        return
    old = [field for spec in metadata.specs().values() for field in spec.fields]
    same = [field.name for field in old if (field.source_id, field.transform) == (key, wanted)]
    name = same[0] if same else layout.partition_name(managed, _name(str(wanted)), [field.name for field in old])
    with transaction.update_spec() as update:
        for field in current:
            update.remove_field(field.name)
        update.add_field(metadata.schema().find_field(key).name, wanted, name)


def _name(transform: str) -> str:
    """`period_day`, or `period_1000` of truncate[1000]."""
    return f"period_{transform.removeprefix('truncate[').removesuffix(']')}"


def _chosen(table: IcebergTable) -> dict[str, str]:
    found: dict[str, str] = json.loads(table.properties.get(layout.LAYOUT, "{}"))
    return found
