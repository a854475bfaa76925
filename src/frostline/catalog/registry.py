"""Typed access to the registry's rows."""

from __future__ import annotations

import shlex
from dataclasses import dataclass, field, replace
from typing import Any

from frostline.catalog import describe, install, queries
from frostline.catalog.database import Connection
from frostline.catalog.identity import Identity
from frostline.catalog.names import MARKER, server_schema
from frostline.errors import DatabaseError, RefusedError
from frostline.model.bounds import Bound, parse_bound
from frostline.model.layout import AUTO, SortKey, read_sort
from frostline.model.tables import Table

_NOWHERE = (None, None)


@dataclass(frozen=True)
class Options:
    """What a person may choose for a table besides its hot period; None: the setting's value."""

    cold_fk: str = "check"
    premake: int = 2
    coalesce: tuple[str, str] | None = None  # (to what width, how old a period must be)
    merge_mode: str = "copy-on-write"
    file_size: int | None = None
    fold_rows: int | None = None
    fold_bytes: int | None = None
    fold_age: float | None = None
    maintenance: str = "auto"
    compact_files: int | None = None
    backup_window: float | None = None
    lake_partition: str = AUTO
    compaction: str = "sort"
    sort_order: tuple[SortKey, ...] = ()  # as chosen; empty: the primary key


@dataclass(frozen=True)
class Managed:
    """A registered table: the user's own, with the leaves and the primary key that moved to its hot partition."""

    id: int
    table: Table
    hot: tuple[str, str]
    hot_oid: int
    delta: tuple[str, str]
    delta_oid: int
    hot_for: str
    lake_namespace: str
    lake_table: str
    seam: Bound | None
    snapshot_id: int | None
    metadata_location: str | None
    lake_names: dict[str, str]  # the user's column -> the lake's
    installation: str  # of this database alone: others may have a table of the same name in the same lake
    options: Options = Options()
    field_ids: dict[str, int] = field(default_factory=dict)  # the user's column -> the lake's number for it
    marker: str | None = None  # the lake's column that says which columns a row knows; None: all rows know them all
    dropped: dict[int, str] = field(default_factory=dict)  # numbers that are gone -> the lake's columns that are not
    owner: str | None = None  # which database this is, among those that were copied from one another
    followed: str | None = None  # the shape that delta and functions were made for

    @property
    def server_schema(self) -> str:
        return server_schema(self.id)


def require(connection: Connection) -> None:
    """One sentence when the registry is not installed, or not the one that this version knows.

    To another version rows and files may belong to the table that this one would take for nobody's.
    """
    if connection.execute("SELECT to_regclass('frostline.tables')").fetchone() == (None,):
        raise DatabaseError(
            f"Frostline is not installed in database {connection.info.dbname}",
            hint="install it with `frostline init --dsn ...`",
            sqlstate="3F000",
        )
    install.check_current(connection)


def find(connection: Connection, oid: int) -> Managed | None:
    """The managed table behind a relation, if it is one."""
    row = queries.row(connection, "managed", oid=oid)
    if row is None:
        return None
    id_, relation, hot, delta, hot_for, namespace, lake_table, seam, snapshot, metadata, *more = row
    followed, installation, system, database, timeline, *options = more
    table = describe.table(connection, relation, *_name(connection, relation))
    hot_table = describe.table(connection, hot, *_name(connection, hot))
    lake = {number: (name, field) for number, name, field in queries.rows(connection, "lake_columns", table=id_)}
    return Managed(
        id=id_,
        table=replace(table, primary_key=hot_table.primary_key, leaves=hot_table.leaves),
        hot=_name(connection, hot),
        hot_oid=hot,
        delta=_name(connection, delta),
        delta_oid=delta,
        hot_for=hot_for,
        lake_namespace=namespace,
        lake_table=lake_table,
        seam=parse_bound(seam) if seam is not None else None,
        snapshot_id=snapshot,
        metadata_location=metadata,
        lake_names={c.name: lake[c.number][0] for c in table.stored if c.number in lake},
        field_ids={c.name: lake[c.number][1] for c in table.stored if lake.get(c.number, _NOWHERE)[1] is not None},
        marker=lake[MARKER][0] if MARKER in lake else None,
        dropped={n: name for n, (name, _) in lake.items() if n not in {MARKER, *(c.number for c in table.stored)}},
        followed=followed,
        installation=installation,
        owner=str(Identity(system, database, timeline)) if system is not None else None,
        options=_options(*options),
    )


def _options(cold_fk: str, premake: int, to: str | None, after: str | None, *others: Any) -> Options:
    coalesce = (to, after) if to is not None and after is not None else None
    return replace(Options(cold_fk, premake, coalesce, *others[:-1]), sort_order=read_sort(others[-1]))


def every(connection: Connection) -> list[Managed]:
    """All managed tables that still exist, in the order they were registered."""
    require(connection)
    found = (find(connection, oid) for (oid,) in queries.rows(connection, "managed_tables"))
    return [managed for managed in found if managed is not None]


def get_by_id(connection: Connection, id_: int) -> Managed:
    """A managed table whose row is known to exist."""
    row = connection.execute("SELECT relation::oid FROM frostline.tables WHERE id = %s", (id_,)).fetchone()
    found = find(connection, row[0]) if row else None
    if found is None:
        raise RefusedError(f"the table registered under number {id_} is no longer registered")
    return found


def get(connection: Connection, text: str) -> Managed:
    """The managed table a person named, or one sentence why it is none."""
    require(connection)
    oid, schema, name = describe.resolve(connection, text)
    found = find(connection, oid)
    if found is None:
        raise RefusedError(
            f"{schema}.{name} is not registered",
            hint=f"register it first: frostline register {shlex.quote(text)} --hot '3 months'",
        )
    return found


def _name(connection: Connection, oid: int) -> tuple[str, str]:
    row = queries.row(connection, "relation", oid=oid)
    if row is None:
        raise DatabaseError(
            f"the registry names a relation with OID {oid} that no longer exists",
            hint="was the table dropped by hand? `SELECT * FROM frostline.tables` shows the row",
        )
    return row[0], row[1]
