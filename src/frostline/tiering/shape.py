"""A table that was altered: its delta and its Iceberg table follow, before anything else is done with either."""

from __future__ import annotations

from frostline.catalog import queries, registry
from frostline.catalog.database import Connection
from frostline.catalog.names import MARKER
from frostline.catalog.registry import Managed
from frostline.config import Settings
from frostline.delta import follow
from frostline.lake import evolve
from frostline.lake.evolve import Field
from frostline.tiering import turns


def followed(connection: Connection, settings: Settings, managed: Managed) -> Managed:
    """The table once delta and lake have its columns; whoever calls this holds the table's lake lock.

    What died half-way is found by its field ids, and done again.
    """
    managed = follow.follow(connection, managed.id, patience=settings.archive.lock_patience)
    turns.take(connection, settings, managed)
    fields = evolve.evolve(settings, managed)
    if fields is None:
        names = evolve.wanted_names(managed, marked=False)
        fields = {number: Field(name, None) for number, name in names.items()}
    with connection.transaction():
        _record(connection, managed, fields)
    return registry.get_by_id(connection, managed.id)


def pending(connection: Connection, managed: Managed) -> bool:
    """Whether the table was altered and delta or lake have not followed, as far as Postgres knows."""
    row = queries.row(connection, "shape", table=managed.id)
    names = evolve.wanted_names(managed, marked=managed.marker is not None, taken=evolve.made_way(managed))
    wanted = {column.name: names[column.number] for column in managed.table.stored}
    heaps = connection.execute(
        "SELECT heaps = frostline.heaps(id) FROM frostline.tables WHERE id = %s", (managed.id,)
    ).fetchone()
    current = row is not None and row[0] == row[1] and heaps == (True,)
    return not current or managed.lake_names != wanted or bool(managed.dropped)


def _record(connection: Connection, managed: Managed, fields: dict[int, Field]) -> None:
    for number, field in fields.items():
        connection.execute(
            "INSERT INTO frostline.columns AS c (table_id, attnum, lake_name, field_id) VALUES (%s, %s, %s, %s)"
            " ON CONFLICT (table_id, attnum) DO UPDATE SET lake_name = excluded.lake_name, field_id = excluded.field_id"
            " WHERE (c.lake_name, c.field_id) IS DISTINCT FROM (excluded.lake_name, excluded.field_id)",
            (managed.id, number, field.name, field.id),
        )
    # Partitions come, go and are rewritten.
    connection.execute(
        "UPDATE frostline.tables SET heaps = frostline.heaps(id)"
        " WHERE id = %s AND followed = frostline.shape(id) AND heaps <> frostline.heaps(id)",
        (managed.id,),
    )
    # Those of dropped columns.
    connection.execute(
        "DELETE FROM frostline.columns WHERE table_id = %s AND attnum <> ALL (%s)",
        (managed.id, [MARKER, *(column.number for column in managed.table.stored)]),
    )
    if managed.snapshot_id is None:
        # The lake has no rows: all it will have know every column.
        connection.execute(
            "UPDATE frostline.columns SET missing = NULL WHERE table_id = %s AND missing IS NOT NULL", (managed.id,)
        )
