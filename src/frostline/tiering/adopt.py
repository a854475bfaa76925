"""After a restore, a failover or a copy: what this database is, and what that means for the lake.

A successor goes on where it stands: the lake is put back to the snapshots it knows, and what its predecessor committed
later is set aside. A copy gets a name of its own and leaves the lake's tables to the original: it reads them, and
changes of its cold rows stay in its delta.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from frostline.catalog import identity, numbering, pins, queries, registry, workers
from frostline.catalog.database import Connection, connect
from frostline.catalog.registry import Managed
from frostline.config import Settings
from frostline.errors import LakeError, RefusedError
from frostline.lake import catalog as lake
from frostline.lake import evolve, leftovers, storage
from frostline.report import Report
from frostline.tiering import turns
from frostline.tiering.locks import lake_writer


@dataclass(frozen=True)
class SetAside:
    """Commits of a future that never was, in the Iceberg table of one table."""

    table: str
    snapshots: int


def successor(settings: Settings, report: Report) -> list[SetAside]:
    """The other one is gone; repeating it changes nothing."""
    with connect(settings.dsn.get_secret_value(), application="frostline adopt") as connection:
        registry.require(connection)
        owner = str(identity.here(connection))  # or why not
        tables = [replace(managed, owner=owner) for managed in registry.every(connection)]
        for managed in tables:
            numbering.check(connection, managed.id, str(managed.table))
        found = []
        for managed in tables:
            # Whoever works for the other one stops; the successor of a copy only reads what that one only read.
            if (maker := lake.claim(settings, managed)) is not None:
                report.line(f"{managed.table} belongs to installation {maker}, and this is a copy that only reads it")
                continue
            with lake_writer(connection, managed), report.step(f"look at the lake of {managed.table}") as progress:
                turns.leave_word(connection, settings, managed)
                evolve.restore(settings, managed, _field_ids(connection, managed))
                aside = _set_aside(connection, settings, managed)
                progress.note = f"{aside} commits set aside"
            found.append(SetAside(str(managed.table), aside))
        identity.become(connection)
        workers.forget(connection)
        return found


def copy(settings: Settings, *, sure: bool = False) -> None:
    """The other one lives on. `sure`: also where nothing tells this one from it."""
    with connect(settings.dsn.get_secret_value(), application="frostline adopt") as connection:
        registry.require(connection)
        for managed in registry.every(connection):
            numbering.check(connection, managed.id, str(managed.table))
        same = identity.known(connection) == identity.here(connection)
        tables = registry.every(connection)
        if not sure and same and all(_is_ours(connection, settings, managed) for managed in tables):
            raise RefusedError(
                "this database is the one its lake belongs to, not a copy of it; nothing was changed",
                hint="run it in the copy; a database made by CREATE DATABASE ... TEMPLATE, a restore or a dump is"
                " one\na snapshot of the disk, and a base backup that was started as it is, look like the original:"
                " if this is one of these, frostline adopt --copy --sure",
            )
        with connection.transaction():
            identity.rename(connection)
            identity.become(connection)
            # What the original had begun it goes on with itself.
            connection.execute(
                "UPDATE frostline.operations SET state = 'failed', captured = NULL, folded = NULL,"
                " error = 'begun by the database that this is a copy of', finished_at = clock_timestamp()"
                " WHERE state = 'running' OR state = 'failed' AND (captured IS NOT NULL OR folded IS NOT NULL)"
            )


def _is_ours(connection: Connection, settings: Settings, managed: Managed) -> bool:
    """Whether nothing in the lake tells that another database has the table."""
    try:
        if managed.snapshot_id is not None and not lake.owned(settings, managed):
            return True
        return turns.is_ours(connection, settings, managed)  # also of what the other one has archived first
    except RefusedError:
        return False  # another one has taken its place
    except LakeError:
        if managed.snapshot_id is not None:
            raise
        return True


def _set_aside(connection: Connection, settings: Settings, managed: Managed) -> int:
    """The head goes back to the registry's snapshot; commits with numbers of operations that may come again are
    forgotten."""
    stamps = leftovers.stamps(settings, managed)
    connection.execute(
        "SELECT setval(pg_get_serial_sequence('frostline.operations', 'id'),"
        " greatest(%s, (SELECT last_value FROM frostline.operations_id_seq)))",
        (max(map(int, stamps), default=1),),
    )
    lost = leftovers.abandoned(settings, managed, stamps)
    _begin_anew(connection, managed, [one.id for one in lost if not storage.of(settings).holds_all(one.files)])
    claimed = pins.claim_expired(connection, managed.id, [snapshot.id for snapshot in lost])
    gone = [snapshot for snapshot in lost if snapshot.id in claimed]
    # Their files stay for now: this may be a moment too early, or no successor at all.
    return len(leftovers.forget(settings, managed, gone)) if gone else 0


def _field_ids(connection: Connection, managed: Managed) -> dict[int, int]:
    found = queries.rows(connection, "lake_columns", table=managed.id)
    return {number: id_ for number, _, id_ in found if id_ is not None}


def _begin_anew(connection: Connection, managed: Managed, removed: list[int]) -> None:
    """Operations that would go on with a snapshot whose files were removed after the moment that was restored."""
    connection.execute(
        "UPDATE frostline.operations"
        " SET captured = NULL, folded = NULL, noted = NULL, snapshot_id = NULL, metadata_location = NULL"
        " WHERE table_id = %s AND snapshot_id = ANY (%s)",
        (managed.id, removed),
    )
