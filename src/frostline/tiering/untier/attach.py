"""Step 4, attach: the leaf takes the foreign partition's place and name in one short transaction; the seam moves down.

To snapshots that see all that was ever changed in the period the leaf is exactly that; older ones must be gone first.
"""

from __future__ import annotations

import time
from dataclasses import replace

import psycopg
from psycopg.sql import SQL, Composed, Identifier, Literal

from frostline.catalog import describe, queries, registry
from frostline.catalog.database import Connection
from frostline.catalog.names import UPPER_CHECK
from frostline.errors import Interrupted
from frostline.faults import reached
from frostline.model.bounds import Range
from frostline.model.tables import Leaf
from frostline.tiering import ddl
from frostline.tiering.archive.steps import wanted
from frostline.tiering.locks import fence, lock, referents, with_short_locks
from frostline.tiering.untier import follow
from frostline.tiering.untier.operation import Operation, altered, check_columns, fits, periods

_LOOK_SECONDS = 0.1
_SHOWN = 5
# Numbers of transactions go round: one that seems to be in the future is of long ago.
_OLDER = """
WITH changed AS (
    SELECT age(p.xmin) AS ago FROM frostline.periods p WHERE p.foreign_table = {period}::oid
    UNION ALL
    SELECT age(d.xmin) FROM frostline.operations o CROSS JOIN LATERAL unnest(o.loaded) v (seq)
    JOIN {delta} d ON d._seq = v.seq WHERE o.id = {operation}
    UNION ALL
    SELECT age(o.overtook::xid) FROM frostline.operations o WHERE o.id = {operation} AND o.overtook IS NOT NULL
)
SELECT l.virtualtransaction,
       format('pid %s (%s, since %s): %s', a.pid, coalesce(a.state, a.backend_type, '?'),
              coalesce(to_char(a.xact_start, 'YYYY-MM-DD HH24:MI:SSOF'), '?'), coalesce(left(a.query, 200), ''))
FROM pg_stat_activity a
JOIN pg_locks l ON l.pid = a.pid AND l.locktype = 'virtualxid' AND l.granted
CROSS JOIN (SELECT min(ago) AS ago FROM changed WHERE ago > -1000000) newest
WHERE a.datid = (SELECT oid FROM pg_database WHERE datname = current_database())
  AND a.pid <> pg_backend_pid() AND a.backend_type <> 'autovacuum worker'
  -- Whoever a gateway reads for has a snapshot of his own.
  AND a.application_name IS DISTINCT FROM 'frostline gateway'
  -- Without pg_read_all_stats nobody tells us of others' snapshots: whoever is in a transaction may have an old one.
  AND CASE WHEN pg_has_role('pg_read_all_stats', 'USAGE') OR pg_has_role(a.usesysid, 'USAGE')
           THEN age(a.backend_xmin) >= newest.ago ELSE newest.ago IS NOT NULL END
ORDER BY a.xact_start
"""


def attach(connection: Connection, operation: Operation) -> None:
    """Readers see the lake before and the leaf after."""
    managed, period, leaf = operation.managed, operation.period, operation.leaf
    assert leaf is not None
    _wait_for_older(connection, operation)

    def work() -> None:
        # Loading may have taken long: the table is meant, whatever it is called by now.
        operation.managed = registry.get_by_id(connection, managed.id)
        lock(connection, _locks(connection, operation), operation.locks.timeout_ms)
        fence(connection, managed.id)
        reached("attach.locked")
        moved = _hot(connection, operation) if ddl.leaves_move(connection, managed.table) else []
        check_columns(connection, managed, period)
        _check_unchanged(connection, operation)
        grants = queries.rows(connection, "grants", oid=period.oid)
        for point, statements in _statements(connection, operation, moved):
            for statement in statements:
                connection.execute(statement)
            reached(point)
        name = (period.schema, period.name)
        for statement in ddl.same_grants(connection, None, name):
            connection.execute(statement)
        for grant in grants:
            connection.execute(ddl.grant(Identifier(*name), *grant))
        _record(connection, operation)
        reached("attach.commit")

    hot = [managed.hot_oid, *(other.oid for other in _hot(connection, operation))]
    referenced = [oid for _, oid in referents(connection, [leaf.oid, *hot])]
    relations = [managed.table.oid, period.oid, *hot]
    locks = replace(wanted(connection, operation, relations, written=referenced), fence=managed.id)
    with ddl.droppable(f"{period} stays in the lake: something depends on that partition itself"):
        try:
            with_short_locks(connection, work, f"attaching {period}", locks)
        # A CHECK or NOT NULL that the leaf does not have, or has as NOT VALID where it is valid by now.
        except (psycopg.errors.DatatypeMismatch, psycopg.errors.InvalidObjectDefinition) as error:
            raise altered(managed, period) from error


def _wait_for_older(connection: Connection, operation: Operation) -> None:
    """Until no snapshot is left that some change of the period is not in. Where nothing was changed, at once."""
    # Not as parameters: a percent sign in the delta's name would be taken for one.
    values = {"period": Literal(operation.period.oid), "operation": Literal(operation.id)}
    query = SQL(_OLDER).format(delta=Identifier(*operation.managed.delta), **values)
    tell = wanted(connection, operation, []).tell
    assert tell is not None
    # Those that come later see all of it.
    older: dict[str, str] = dict(connection.execute(query).fetchall())
    deadline, waited = time.monotonic() + operation.locks.patience, bool(older)
    while older:
        tell([{"query": said} for said in list(older.values())[:_SHOWN]])
        if time.monotonic() > deadline:
            raise Interrupted(
                f"{operation.period} waits for transactions that began before its rows were last changed; "
                "its rows stay in the lake for now",
                detail="\n".join(list(older.values())[:_SHOWN]),
                hint="let these transactions end, then run the same command again: it goes on from here;"
                " archive.lock_patience is how long it waits",
                sqlstate="55P03",
            )
        time.sleep(_LOOK_SECONDS)
        still = {key for key, _ in connection.execute(query)}
        older = {key: said for key, said in older.items() if key in still}
    if waited:
        tell(None)


def _locks(connection: Connection, operation: Operation) -> list[tuple[Identifier, str]]:
    """From the top down as every statement on the table does, and referenced tables first (see archive/swap.py)."""
    hot = _hot(connection, operation)
    managed, leaf = operation.managed, operation.leaf
    assert leaf is not None
    oids = [leaf.oid, managed.hot_oid, *(other.oid for other in hot)]
    shared = [(name, "SHARE ROW EXCLUSIVE") for name, _ in referents(connection, oids)]
    exclusive = [Identifier(managed.table.schema, managed.table.name), Identifier(*managed.hot)]
    exclusive += [Identifier(other.schema, other.name) for other in (*hot, leaf)]
    return shared + [(name, "ACCESS EXCLUSIVE") for name in exclusive]


def _hot(connection: Connection, operation: Operation) -> list[Leaf]:
    """Not as they were when the run began: someone may have created one since."""
    return list(describe.leaves(connection, operation.managed.hot_oid))


def _check_unchanged(connection: Connection, operation: Operation) -> None:
    """Under the lock: the period is still the newest, its leaf is the one that was made, and it has followed."""
    managed, period = operation.managed, operation.period
    now = registry.get_by_id(connection, managed.id)
    followed = connection.execute(
        "SELECT tgenabled::text FROM pg_trigger WHERE tgrelid = %s AND tgname = %s",
        (managed.delta_oid, operation.trigger),
    ).fetchone()
    # Rows that come in files pass the delta, and so the trigger, by.
    loaded = connection.execute(
        "SELECT o.loaded_staged = t.staged FROM frostline.operations o JOIN frostline.tables t ON t.id = o.table_id"
        " WHERE o.id = %s",
        (operation.id,),
    ).fetchone()
    found = queries.row(connection, "resolve", schema=operation.schema, name=period.name)
    if (
        periods(connection, now)[:1] != [period]
        or followed != ("A",)
        or loaded != (True,)
        or found is None
        or operation.leaf is None
        or found[0] != operation.leaf.oid
        or not fits(connection, now, operation.leaf.oid)
    ):
        raise altered(managed, period)


def _statements(connection: Connection, operation: Operation, moved: list[Leaf]) -> list[tuple[str, list[Composed]]]:
    """What is done, up to which point."""
    managed, period = operation.managed, operation.period
    parent, hot = Identifier(managed.table.schema, managed.table.name), Identifier(*managed.hot)
    place = Identifier(period.schema, period.name)
    waiting = Identifier(operation.schema, period.name)
    attached = Leaf(0, period.schema, period.name, period.range)
    attach_hot = SQL("ALTER TABLE {} ATTACH PARTITION {} {}").format(
        parent, hot, ddl.for_values(Range(period.range.lower, None))
    )
    checked = not ddl.leaves_move(connection, managed.table) and period.range.upper is not None
    return [
        (
            "attach.detached",
            [
                *(ddl.detach(hot, other) for other in moved),
                SQL("ALTER TABLE {} DETACH PARTITION {}").format(parent, hot),
            ],
        ),
        # LOCK TABLE takes no foreign tables: it is waited for here.
        (
            "attach.dropped",
            [
                # And what is left of partitions that somebody has dropped: there is a place for their range again.
                SQL(
                    "DELETE FROM frostline.periods p WHERE p.table_id = {} AND (p.foreign_table = {}::oid"
                    " OR NOT EXISTS (SELECT FROM pg_class c WHERE c.oid = p.foreign_table))"
                ).format(managed.id, period.oid),
                SQL("DROP FOREIGN TABLE {}").format(place),
            ],
        ),
        (
            "attach.attached",
            [
                SQL("ALTER TABLE {} SET SCHEMA {}").format(waiting, Identifier(period.schema)),
                SQL("DROP TABLE IF EXISTS {}").format(Identifier(operation.schema, operation.pattern)),
                SQL("DROP SCHEMA {}").format(Identifier(operation.schema)),
                ddl.owned_by(place, managed.table),
                # The empty hot partition first, as at registration.
                attach_hot,
                ddl.attach(hot, attached),
                *(ddl.attach(hot, other) for other in moved),
                *([SQL("ALTER TABLE {} DROP CONSTRAINT {}").format(place, Identifier(UPPER_CHECK))] if checked else []),
                follow.no_longer(operation),
            ],
        ),
    ]


def _record(connection: Connection, operation: Operation) -> None:
    lower = operation.period.range.lower
    # Once all is hot there are no old rows to be cut off: those that come there are new, whatever their key.
    connection.execute(
        "UPDATE frostline.tables SET seam = %s, surplus = snapshot_id IS NOT NULL, held_from = %s,"
        " retained_from = CASE WHEN %s THEN retained_from END WHERE id = %s",
        (
            lower.text if lower is not None else None,
            str(lower or "MINVALUE"),
            lower is not None,
            operation.managed.id,
        ),
    )
