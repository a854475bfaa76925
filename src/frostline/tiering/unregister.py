"""Leaving: every row comes back, then the table is what it was before it was registered.

Rows first, period by period, each of them for good. Then the lake's copy goes, unless it is to be kept. In the end one
short transaction takes the hot partition away, gives the table its keys back, attaches the leaves to it, and removes
all that Frostline made for it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from psycopg.sql import SQL, Composable, Composed, Identifier, Literal

from frostline.catalog import queries, registry
from frostline.catalog.database import Connection, connect
from frostline.catalog.names import LOWER_CHECK, UPPER_CHECK
from frostline.catalog.registry import Managed
from frostline.config import Settings
from frostline.delta.tables import SCHEMA
from frostline.errors import OperationError
from frostline.faults import reached
from frostline.lake import catalog as lake
from frostline.lake import files, inspect, leftovers, storage
from frostline.model.tables import Leaf
from frostline.report import Report
from frostline.tiering import ddl, partitions, references, retention, staged, turns
from frostline.tiering.archive import default
from frostline.tiering.locks import Wanted, fence, from_settings, lock, only_writer, referents, with_short_locks
from frostline.tiering.register import ensure_bound_checks
from frostline.tiering.untier.operation import Period, function_name, periods
from frostline.tiering.untier.recover import unfinished
from frostline.tiering.untier.run import Returned, bring_back, planned, under_its_name


@dataclass(frozen=True)
class Left:
    """What leaving did."""

    returned: list[Returned]
    lake: str | None  # where the Iceberg table is that was kept


def plan(settings: Settings, text: str) -> list[Returned]:
    """What would come back, the newest first; changes nothing."""
    with connect(settings.dsn.get_secret_value()) as connection:
        managed = registry.get(connection, text)
        return [
            one for one in planned(connection, managed, None) if not _nothing(connection, settings, managed, one.period)
        ]


def unregister(settings: Settings, text: str, report: Report, *, keep_lake: bool) -> Left:
    """Bring everything back and leave the table as it was; a second run goes on where the first one ended."""
    with connect(settings.dsn.get_secret_value(), application="frostline unregister") as connection:
        managed = registry.get(connection, text)
        references.check_removable(connection, managed.id)
        with only_writer(connection, managed) as locked:
            if not keep_lake and locked.snapshot_id is not None:
                lake.load(settings, locked)  # refused where it is somebody else's, before anything comes back
                turns.check(connection, settings, locked)
            managed = staged.add_owned(connection, settings, locked, report)
            known = staged.paths(connection, managed)
            wanted = [
                period for period in periods(connection, managed) if not _nothing(connection, settings, managed, period)
            ]
            with under_its_name(managed):
                returned = list(bring_back(connection, settings, managed, wanted, report))
                kept = _kept(managed) if keep_lake else None
                if not keep_lake:
                    _drop_lake(connection, settings, managed, report, known)
                with report.step(f"restore {managed.table}"):
                    _restore(connection, settings, registry.get_by_id(connection, managed.id), known)
    return Left(returned, kept)


def _nothing(connection: Connection, settings: Settings, managed: Managed, period: Period) -> bool:
    """Whether it is what registration put below the oldest partition, and still without a row."""
    upper = period.range.upper
    if period.range.lower is not None or period.rows or upper is None:
        return False
    kept_from = retention.line(connection, managed)
    if kept_from is not None and upper <= kept_from:
        return True  # what the lake may still hold there is nobody's
    query = SQL("SELECT EXISTS (SELECT FROM {} WHERE {})")
    changed = query.format(Identifier(*managed.delta), ddl.within(managed.table, period.range))
    if connection.execute(changed).fetchone() == (True,) or staged.waiting(connection, managed).files:
        return False
    if managed.snapshot_id is None or managed.metadata_location is None:
        return True
    snapshot = files.snapshot(storage.of(settings), managed.metadata_location, managed.snapshot_id)
    key = managed.field_ids[managed.table.key]
    return not inspect.files_of(snapshot, key, managed.table.key_type, period.range)


def _kept(managed: Managed) -> str | None:
    if managed.metadata_location is None:
        return None
    return f"{'.'.join(lake.identifier(managed))} in {managed.metadata_location.rpartition('/metadata/')[0]}"


def _drop_lake(connection: Connection, settings: Settings, managed: Managed, report: Report, known: set[str]) -> None:
    """No row of the lake is read any more. The registry forgets its snapshot first: what is gone is named by nobody."""

    def work() -> None:
        fence(connection, managed.id)
        if staged.paths(connection, managed) != known:
            raise _written(managed)
        connection.execute(
            "UPDATE frostline.tables SET snapshot_id = NULL, metadata_location = NULL, surplus = false WHERE id = %s",
            (managed.id,),
        )

    if managed.snapshot_id is not None:
        lake.load(settings, managed)  # it may have been taken over since
    turns.check(connection, settings, managed)  # also where nothing is in the lake: a copy's original may be by now
    archived = "SELECT EXISTS (SELECT FROM frostline.operations WHERE table_id = %s AND kind = 'archive')"
    if managed.snapshot_id is None and connection.execute(archived, (managed.id,)).fetchone() == (False,):
        return  # what is in the place of its files is another database's: of an earlier version it may have no word
    with report.step(f"drop the Iceberg table of {managed.table}"):
        locks = replace(from_settings(settings), fence=managed.id)
        with_short_locks(connection, work, f"forgetting the lake of {managed.table}", locks)
        reached("leave.forgotten")
        leftovers.drop(settings, managed)
        reached("leave.dropped")


def _restore(connection: Connection, settings: Settings, managed: Managed, known: set[str]) -> None:
    for leaf in managed.table.leaves:
        ensure_bound_checks(connection, managed.table, leaf, upper=True)
    locks = from_settings(settings)
    relations = [managed.table.oid, managed.hot_oid, managed.delta_oid, *(leaf.oid for leaf in managed.table.leaves)]

    def work() -> None:
        _lock(connection, registry.get_by_id(connection, managed.id), locks)
        fence(connection, managed.id)
        reached("leave.locked")
        now = registry.get_by_id(connection, managed.id)
        _check(connection, managed, now)
        if staged.paths(connection, managed) != known:
            raise _written(managed)
        for statement in _statements(connection, now, locks):
            connection.execute(statement)
        reached("leave.commit")

    with_short_locks(connection, work, f"restoring {managed.table}", replace(locks, relations=relations))
    reached("leave.committed")


def _lock(connection: Connection, managed: Managed, locks: Wanted) -> None:
    """Referenced tables first, then from the top down (see archive/swap.py); triggers go from all of them."""
    oids = [managed.hot_oid, *(leaf.oid for leaf in managed.table.leaves)]
    above = [Identifier(schema, name) for schema, name, is_above, _ in _ancestors(connection, managed) if is_above]
    tables: list[Composable] = [name for name, _ in referents(connection, oids)]
    tables += [*above[::-1], Identifier(managed.table.schema, managed.table.name), Identifier(*managed.hot)]
    tables += [Identifier(leaf.schema, leaf.name) for leaf in managed.table.leaves]
    lock(connection, [(table, "ACCESS EXCLUSIVE") for table in tables], locks.timeout_ms)


def _ancestors(connection: Connection, managed: Managed) -> list[tuple[str, str, bool, bool]]:
    return [(s, n, above, rls) for s, n, above, rls in queries.rows(connection, "ancestors", oid=managed.table.oid)]


def _check(connection: Connection, before: Managed, now: Managed) -> None:
    """Under the lock: no row is cold, and the leaves are those whose bounds are known to hold."""
    late = connection.execute(SQL("SELECT EXISTS (SELECT FROM {})").format(Identifier(*now.delta))).fetchone()
    cold = [period for period in periods(connection, now) if period.range.lower is not None or period.rows]
    partitions.check_plain(connection, now)  # it would go with the hot partition
    if late == (True,) or cold or now.table.leaves != before.table.leaves:
        raise _written(now)


def _written(managed: Managed) -> OperationError:
    return OperationError(
        f"{managed.table} was written or altered meanwhile; it stays registered, what came back stays hot",
        hint="run the same command again",
    )


def _statements(connection: Connection, managed: Managed, locks: Wanted) -> list[Composed]:
    """All that is left to do, in an order in which nothing depends on what is gone."""
    table, parent, hot = managed.table, Identifier(managed.table.schema, managed.table.name), Identifier(*managed.hot)
    constraints = queries.rows(connection, "constraints", oid=managed.hot_oid)
    row = connection.execute("SELECT shape FROM frostline.tables WHERE id = %s", (managed.id,)).fetchone()
    assert row is not None
    return [
        *(ddl.detach(hot, leaf) for leaf in table.leaves),
        SQL("ALTER TABLE {} DETACH PARTITION {}").format(parent, hot),
        SQL("SET LOCAL lock_timeout = {}").format(f"{locks.timeout_ms}ms"),
        *_remove(connection, managed),
        SQL("DROP TABLE {}").format(hot),
        *(
            SQL("ALTER TABLE {} ADD CONSTRAINT {} {}").format(parent, Identifier(name), SQL(definition))
            for name, _, definition, _ in constraints
        ),
        *(
            SQL("COMMENT ON CONSTRAINT {} ON {} IS {}").format(Identifier(name), parent, Literal(comment))
            for name, *_, comment in constraints
            if comment is not None
        ),
        *(ddl.attach(parent, leaf) for leaf in table.leaves),
        *_as_they_were(connection, managed, table.leaves),
        *default.opened(connection, managed),
        *(
            SQL("ALTER TABLE {} REPLICA IDENTITY USING INDEX {}").format(parent, Identifier(name.split(".")[-1]))
            for name in row[0].get("replica_identity", ())
        ),
    ]


def _remove(connection: Connection, managed: Managed) -> list[Composed]:
    """Foreign partition, triggers, functions, tables, and the registry's rows."""
    id_, foreign = managed.id, periods(connection, managed)
    functions = [f"{what}_{id_}" for what in ("collect", "begins", "store", "capture", "no_truncate", "archived")]
    functions += [function_name(left.id) for left in unfinished(connection, managed)]
    triggers = queries.rows(connection, "own_triggers", table=id_, functions=functions)
    gone = {period.oid for period in foreign}
    # A function is called by triggers, a table's row type named by functions: in this order.
    return [
        *(SQL("DROP FOREIGN TABLE {}").format(Identifier(period.schema, period.name)) for period in foreign),
        *(
            SQL("DROP TRIGGER {} ON {}").format(Identifier(trigger), Identifier(schema, name))
            for schema, name, trigger, oid in triggers
            if oid not in gone
        ),
        *(
            SQL("DROP ROUTINE {}").format(SQL(name))
            for (name,) in queries.rows(connection, "own_functions", functions=functions)
        ),
        *(
            SQL("DROP {} {}").format(SQL("FOREIGN TABLE" if kind == "f" else "TABLE"), Identifier(SCHEMA, name))
            for name, kind in queries.rows(connection, "own_relations", table=id_)
        ),
        *(
            SQL("DELETE FROM frostline.{} WHERE table_id = {}").format(Identifier(rows), id_)
            for rows in ("pins", "expiring", "periods")
        ),
        SQL("DELETE FROM frostline.tables WHERE id = {}").format(id_),
        SQL("DROP TABLE {}").format(Identifier(*managed.delta)),
    ]


def _as_they_were(connection: Connection, managed: Managed, leaves: Sequence[Leaf]) -> list[Composed]:
    """No CHECK of ours, and before 17 no default where the table has an identity."""
    found = [
        SQL("ALTER TABLE {} DROP CONSTRAINT IF EXISTS {}, DROP CONSTRAINT IF EXISTS {}").format(
            Identifier(leaf.schema, leaf.name), Identifier(LOWER_CHECK), Identifier(UPPER_CHECK)
        )
        for leaf in leaves
    ]
    if connection.info.server_version >= ddl.IDENTITY_IN_PARTITIONS:
        return found
    columns = [column.name for column in managed.table.columns if column.identity]
    defaults = queries.rows(connection, "identity_defaults", oid=managed.hot_oid, columns=columns)
    return found + [
        SQL("ALTER TABLE {} ALTER COLUMN {} DROP DEFAULT").format(Identifier(schema, name), Identifier(column))
        for schema, name, column in defaults
    ]
