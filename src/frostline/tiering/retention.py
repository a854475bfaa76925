"""Rows that are not kept any longer: a line below which reads find nothing and writes are refused.

The line is one short transaction of Postgres: the periods below it become part of the oldest partition, which has no
lower bound, versions of their rows go from the delta, and the registry knows the line. From then on nobody reads these
rows at the current snapshot; a transaction that began before still does. Their files are left to the trim.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from psycopg.sql import SQL, Identifier, Literal

from frostline.catalog import queries
from frostline.catalog.database import Connection
from frostline.catalog.registry import Managed
from frostline.errors import OperationError
from frostline.faults import reached
from frostline.model.bounds import Bound, Range, parse_bound
from frostline.model.tables import derived_name
from frostline.tiering import coalesce, ddl, partitions, statistics
from frostline.tiering.coalesce import Part
from frostline.tiering.locks import Wanted, fence, lock, with_short_locks


@dataclass(frozen=True)
class Expired:
    """Periods that go, the oldest first."""

    parts: tuple[Part, ...]
    line: Bound

    @property
    def rows(self) -> int:
        return sum(part.rows for part in self.parts)

    @property
    def bytes(self) -> int:
        return sum(part.bytes for part in self.parts)


@dataclass(frozen=True)
class _Oldest:
    """The partition without a lower bound."""

    oid: int
    schema: str
    name: str


def line(connection: Connection, managed: Managed) -> Bound | None:
    """Keys below it are not kept; None: all are."""
    row = connection.execute("SELECT retained_from FROM frostline.tables WHERE id = %s", (managed.id,)).fetchone()
    return parse_bound(row[0]) if row is not None and row[0] is not None else None


def expired(connection: Connection, managed: Managed) -> Expired | None:
    """The periods that the table's retention lets go; None: there are none."""
    row = connection.execute("SELECT retention FROM frostline.tables WHERE id = %s", (managed.id,)).fetchone()
    if row is None or row[0] is None or managed.seam is None:
        return None
    limit = min(coalesce.limit(connection, managed, row[0]), managed.seam.order)
    uppers = [(part, part.range.upper) for part in coalesce.parts(connection, managed)]
    gone = [(part, upper) for part, upper in uppers if upper is not None and upper.order <= limit]
    return Expired(tuple(part for part, _ in gone), gone[-1][1]) if gone else None


def retain(connection: Connection, managed: Managed, found: Expired, locks: Wanted) -> None:
    """Move the line. Whoever calls holds the table's lock, so no period comes or goes meanwhile."""

    below = [stray.oid for stray in partitions.strays(connection, managed) if stray.range.below(found.line)]
    partitions.check_attached(connection, managed, below)
    oldest = _oldest(connection, managed)

    def work() -> None:
        table = Identifier(managed.table.schema, managed.table.name)
        lock(connection, [(table, "ACCESS EXCLUSIVE")], locks.timeout_ms)
        fence(connection, managed.id)
        now = coalesce.parts(connection, managed)
        if not all(part in now for part in found.parts):
            changed = f"periods of {managed.table} were changed by someone else meanwhile; nothing was removed"
            raise OperationError(changed, hint="run the same command again")
        reached("retention.locked")
        _one_partition(connection, managed, found, oldest, locks.timeout_ms)
        reached("retention.made")
        _record(connection, managed, found)
        reached("retention.commit")

    relations = [managed.table.oid, *(part.oid for part in found.parts), *([oldest.oid] if oldest else [])]
    wanted = replace(locks, relations=relations, fence=managed.id)
    with ddl.droppable(f"periods of {managed.table} stay: something depends on one of them itself"):
        with_short_locks(connection, work, f"removing old periods of {managed.table}", wanted)
    reached("retention.done")
    statistics.measured(connection, managed)


def _one_partition(
    connection: Connection, managed: Managed, found: Expired, oldest: _Oldest | None, timeout_ms: int
) -> None:
    """What was below the periods, and they, become the oldest partition, under its name and with its grants."""
    taken = {name for (name,) in queries.rows(connection, "names_in_schema", schema=managed.table.schema)}
    name = (
        (oldest.schema, oldest.name)
        if oldest is not None
        else (managed.table.schema, derived_name(managed.table.name, "_before", taken))
    )
    grants = queries.rows(connection, "grants", oid=oldest.oid) if oldest is not None else []
    old = [(part.schema, part.name) for part in found.parts] + ([(oldest.schema, oldest.name)] if oldest else [])
    coalesce.drop(connection, old, timeout_ms)
    for statement in (
        *ddl.foreign_partition(managed.table, name, managed.id, Range(None, found.line)),
        *ddl.same_grants(connection, None, name),
        *(ddl.grant(Identifier(*name), *grant) for grant in grants),
    ):
        connection.execute(statement)
    dropped = [stray for stray in partitions.strays(connection, managed) if stray.range.below(found.line)]
    ends = [*(part.range.upper for part in found.parts), *(stray.range.upper for stray in dropped)]
    connection.execute(
        "DELETE FROM frostline.periods WHERE table_id = %s AND (lower IS NULL OR upper = ANY(%s))",
        (managed.id, [end.text for end in ends if end is not None]),
    )
    connection.execute(
        "INSERT INTO frostline.periods (table_id, upper, foreign_table) VALUES (%s, %s, %s::regclass)",
        (managed.id, found.line.text, Identifier(*name).as_string(None)),
    )


def _record(connection: Connection, managed: Managed, found: Expired) -> None:
    moved = "UPDATE frostline.tables SET retained_from = %s, surplus = true WHERE id = %s"
    connection.execute(moved, (found.line.text, managed.id))
    below = SQL("DELETE FROM {} WHERE {} < {}::{}").format(
        Identifier(*managed.delta),
        Identifier(managed.table.key),
        Literal(found.line.text),
        SQL(managed.table.key_type),
    )
    connection.execute(below)
    connection.execute(
        "INSERT INTO frostline.operations (table_id, kind, leaf, upper, state, rows, bytes, finished_at)"
        " VALUES (%s, 'retention', %s, %s, 'done', %s, %s, clock_timestamp())",
        (managed.id, str(managed.table), found.line.text, found.rows, found.bytes),
    )


def _oldest(connection: Connection, managed: Managed) -> _Oldest | None:
    row = queries.row(connection, "oldest_part", table=managed.id)
    return _Oldest(*row) if row is not None else None
