"""The Iceberg table's columns follow the user's table, by field id: a rename keeps the values, a new column has none.

Field ids are the lake's own. Which belongs to which attribute number stands in a property of the Iceberg table, changed
in the same commit as its columns, and in the registry, where the gateway looks it up.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.schema import Schema
from pyiceberg.table import Table as IcebergTable
from pyiceberg.table import Transaction
from pyiceberg.table.update import SetCurrentSchemaUpdate
from pyiceberg.table.update.schema import UpdateSchema
from pyiceberg.types import IcebergType, IntegerType

from frostline.catalog.names import MARKER
from frostline.catalog.registry import Managed
from frostline.config import Settings
from frostline.lake import layout
from frostline.lake.arrange import arrange, set_order
from frostline.lake.catalog import opened, table_of
from frostline.model.layout import sorted_by
from frostline.model.tables import lake_names, slug

FIELDS = "frostline.fields"  # table property: attribute numbers and their field ids
_MARKER_NAME = "_frostline_columns"
_MARKER_DOC = "rows have values of their own for columns up to this number"


@dataclass(frozen=True)
class Field:
    """A column in the lake."""

    name: str
    id: int | None  # None: nothing was archived yet


def evolve(settings: Settings, managed: Managed) -> dict[int, Field] | None:
    """Make the Iceberg table follow; its columns by attribute number then. None: there is no such table yet."""
    with opened(settings) as catalog:
        try:
            table = table_of(catalog, managed)
        except NoSuchTableError:
            return None
        fields = _known(table, managed)
        cut = {field.name for spec in table.specs().values() for field in spec.fields}
        names = wanted_names(managed, marked=MARKER in fields or _adds(managed, fields), taken=cut)
        if _differs(table.schema(), managed, fields, names):
            fields = _changed(table, managed, fields, names)
        arrange(table, managed, fields)
        return {number: Field(names[number], id_) for number, id_ in fields.items()}


def restore(settings: Settings, managed: Managed, known: Mapping[int, int]) -> None:
    """Make a catalog that lives elsewhere forget which columns came, went or grew after the moment that was restored.

    `known`: the field ids that the registry knows, by attribute number. A number that was given to a column of the
    lost future is given to another one now, and a column that was dropped there is the one that old files have.
    """
    if not known:
        return  # nothing was archived yet: the first export makes the table anew
    with opened(settings) as catalog:
        try:
            table = table_of(catalog, managed)
        except NoSuchTableError:
            return
        now = _known(table, managed)
        schema = _schema_of(table, managed, known)
        ids = {field.field_id for field in schema.fields}
        kept = {number: id_ for number, id_ in known.items() if id_ in ids}
        if schema.schema_id == table.schema().schema_id and now.items() <= kept.items():
            return
        with table.transaction() as transaction:
            _unsort(transaction, managed, now, dict.fromkeys(kept, ""))
            if schema.schema_id != table.schema().schema_id:
                back = SetCurrentSchemaUpdate.model_validate({"schema-id": schema.schema_id})
                transaction._apply((back,))
            with transaction.update_schema() as update:
                for field in schema.fields:
                    if field.field_id not in kept.values():
                        update.delete_column(field.name)
            transaction.set_properties({FIELDS: json.dumps(kept)})


def _schema_of(table: IcebergTable, managed: Managed, known: Mapping[int, int]) -> Schema:
    """The newest schema that has all columns there are, and none wider than it is."""
    columns = {
        known[c.number]: layout.iceberg_type(c.storage.iceberg) for c in managed.table.stored if c.number in known
    }
    newest = sorted(table.schemas().values(), key=lambda schema: schema.schema_id, reverse=True)
    found = [schema for schema in (table.schema(), *newest) if columns.keys() <= _types(schema).keys()]
    exact = [schema for schema in found if columns.items() <= _types(schema).items()]
    return next(iter([*exact, *found]), table.schema())


def _types(schema: Schema) -> dict[int, IcebergType]:
    return {field.field_id: field.field_type for field in schema.fields}


def wanted_names(managed: Managed, *, marked: bool, taken: Collection[str] = ()) -> dict[int, str]:
    """The lake's name of every column; that of the marker makes way for them, and they for those that are taken."""
    names = {column.number: column.name for column in managed.table.stored}
    first = dict(enumerate(sorted(taken), -len(taken)))  # Iceberg's partition fields: no column may be called so
    found = lake_names({**first, **names, MARKER: _MARKER_NAME} if marked else {**first, **names})
    return {number: name for number, name in found.items() if number not in first}


def made_way(managed: Managed) -> set[str]:
    """Names that columns have not got in the lake, as far as the registry knows: something else there has them."""
    plain = {column.name: slug(column.name) for column in managed.table.stored}
    return {
        plain[name]
        for name, lake in managed.lake_names.items()
        if re.fullmatch(rf"{re.escape(plain[name])}_\d+", lake) and plain[name] not in managed.lake_names.values()
    }


def _known(table: IcebergTable, managed: Managed) -> dict[int, int]:
    """The field ids of what is there, by attribute number."""
    if FIELDS in table.properties:
        return {int(number): id_ for number, id_ in json.loads(table.properties[FIELDS]).items()}
    # As it was made: nothing was renamed yet.
    ids = {field.name: field.field_id for field in table.schema().fields}
    numbers = {column.name: column.number for column in managed.table.columns}
    return {numbers[name]: ids[lake] for name, lake in managed.lake_names.items() if lake in ids} | {
        number: ids[lake] for number, lake in managed.dropped.items() if lake in ids
    }


def _adds(managed: Managed, fields: Mapping[int, int]) -> bool:
    return any(column.number not in fields for column in managed.table.stored)


def _differs(schema: Schema, managed: Managed, fields: Mapping[int, int], names: Mapping[int, str]) -> bool:
    if set(fields) != set(names):
        return True
    found = {field.field_id: (field.name, field.field_type) for field in schema.fields}
    kinds = {column.number: layout.iceberg_type(column.storage.iceberg) for column in managed.table.stored}
    return any(found.get(id_) != (names[number], kinds.get(number, IntegerType())) for number, id_ in fields.items())


def _changed(
    table: IcebergTable, managed: Managed, fields: Mapping[int, int], names: Mapping[int, str]
) -> dict[int, int]:
    """One commit: what is gone, renamed or wider first, so that new columns find their names free."""
    columns = {column.number: column for column in managed.table.stored}
    kept = {number: id_ for number, id_ in fields.items() if number in names}
    with table.transaction() as transaction:
        _unsort(transaction, managed, fields, names)
        with transaction.update_schema() as update:
            _update(update, table.schema(), managed, fields, names)
        added = [number for number in names if number not in kept]
        if added:
            with transaction.update_schema() as update:
                for number in added:
                    column = columns.get(number)
                    type_ = layout.iceberg_type(column.storage.iceberg) if column else IntegerType()
                    update.add_column(names[number], type_, doc=column.type if column else _MARKER_DOC)
            ids = {field.name: field.field_id for field in transaction.table_metadata.schema().fields}
            kept |= {number: ids[names[number]] for number in added}
        transaction.set_properties({FIELDS: json.dumps(kept)})
    return kept


def _unsort(transaction: Transaction, managed: Managed, fields: Mapping[int, int], names: Mapping[int, str]) -> None:
    """Nothing is sorted by a column that goes: no engine could open a table that is."""
    gone = {id_ for number, id_ in fields.items() if number not in names}
    order = transaction.table_metadata.sort_order_by_id(transaction.table_metadata.default_sort_order_id)
    if order is None or not gone & {field.source_id for field in order.fields}:
        return
    kept = [field for field in order.fields if field.source_id not in gone]
    set_order(transaction, kept or layout.sort_fields(sorted_by(managed.table, ()), fields))


def _update(
    update: UpdateSchema, schema: Schema, managed: Managed, fields: Mapping[int, int], names: Mapping[int, str]
) -> None:
    columns = {column.number: column for column in managed.table.stored}
    for number, id_ in fields.items():
        field = schema.find_field(id_)
        if number not in names:
            update.delete_column(field.name)
            continue
        column = columns.get(number)
        if column is not None and layout.iceberg_type(column.storage.iceberg) != field.field_type:
            update.update_column(field.name, layout.iceberg_type(column.storage.iceberg), doc=column.type)
        if field.name != names[number]:
            update.rename_column(field.name, names[number])
