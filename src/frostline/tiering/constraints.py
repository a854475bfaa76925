"""Constraints that were added after rows had become cold.

Postgres checks hot rows and believes a CHECK or NOT NULL of foreign partitions without a look: from then on a plan may
leave out an old row that does not satisfy it. So every new one is looked at once, by reading the old rows.
"""

from __future__ import annotations

from dataclasses import dataclass

from psycopg.sql import SQL, Composed, Identifier

from frostline.catalog import queries
from frostline.catalog.database import Connection
from frostline.catalog.registry import Managed
from frostline.errors import OperationError, RefusedError
from frostline.model.tables import as_sql

_UNPROVEN = """
SELECT c.identity, c.name, c.violated FROM frostline.tables t CROSS JOIN LATERAL frostline.constraints(t.id) c
WHERE t.id = %s AND c.identity <> ALL (t.proven) ORDER BY 1
"""
_PROVEN = """
UPDATE frostline.tables t
SET proven = ARRAY(SELECT c.identity FROM frostline.constraints(t.id) c WHERE c.identity = ANY (%s)) WHERE t.id = %s
"""


def prove(connection: Connection, managed: Managed) -> list[str]:
    """Look at the cold rows for every constraint that is new; those that hold. An error names one that does not."""
    new = connection.execute(_UNPROVEN, (managed.id,)).fetchall()
    if not new:
        return []
    if managed.snapshot_id is not None or _changes(connection, managed):
        counts = SQL(", ").join(SQL("count(*) FILTER (WHERE {})").format(SQL(violated)) for _, _, violated in new)
        for partition in queries.rows(connection, "foreign_partitions", table=managed.id):
            found = connection.execute(SQL("SELECT {} FROM {}").format(counts, Identifier(*partition))).fetchone()
            for (_, name, violated), count in zip(new, found or (), strict=True):
                if count:
                    raise _violated(managed, name, violated, ".".join(partition), count)
    known = connection.execute("SELECT proven FROM frostline.tables WHERE id = %s", (managed.id,)).fetchone()
    proven = [*(known[0] if known else []), *(identity for identity, _, _ in new)]
    connection.execute(_PROVEN, (proven, managed.id))
    return [name for _, name, _ in new]


def _changes(connection: Connection, managed: Managed) -> bool:
    """Rows older than the oldest partition are cold before anything is in the lake."""
    query = SQL("SELECT EXISTS (SELECT FROM {})").format(Identifier(*managed.delta))
    return connection.execute(query).fetchone() == (True,)


@dataclass(frozen=True)
class HotOnly:
    """A UNIQUE or EXCLUDE that was added after registration: no cold row is asked."""

    relation: tuple[str, str]
    name: str
    definition: str
    excludes: bool
    above: bool  # it stands on the table itself, not on its hot partition

    def drop(self) -> Composed:
        return SQL("ALTER TABLE {} DROP CONSTRAINT {}").format(Identifier(*self.relation), Identifier(self.name))

    def move(self, hot: tuple[str, str]) -> list[Composed]:
        add = SQL("ALTER TABLE {} ADD CONSTRAINT {} {}")
        return [self.drop(), add.format(Identifier(*hot), Identifier(self.name), SQL(self.definition))]


def hot_only(connection: Connection, managed: Managed) -> list[HotOnly]:
    return [
        HotOnly((schema, relation), *others)
        for schema, relation, *others in queries.rows(connection, "hot_constraints", table=managed.id)
    ]


def check_movable(connection: Connection, managed: Managed) -> None:
    """The hot partition can be taken out and put back without an index being built.

    Postgres does not recognise an exclusion constraint of a partition as its parent's: it would build another one over
    all hot rows, under the lock of every swap.
    """
    for one in hot_only(connection, managed):
        if one.above:
            raise _excludes(
                managed,
                one,
                "which every swap would build anew over all hot rows",
                "move it to the hot partition: "
                + "; ".join(statement.as_string(connection) for statement in one.move(managed.hot)),
            )


def check_attachable(connection: Connection, managed: Managed) -> None:
    """The same for partitions that come back: it would be built under their lock, and stay twice."""
    for one in hot_only(connection, managed):
        if one.excludes:
            raise _excludes(
                managed,
                one,
                "which partitions that come back would be given under their lock",
                f"drop it, and add it again afterwards: {one.drop().as_string(connection)}",
            )


def _excludes(managed: Managed, one: HotOnly, why: str, hint: str) -> RefusedError:
    return RefusedError(
        f"{managed.table} has an EXCLUDE constraint {one.name}, {why}; nothing was changed",
        detail="it was added since the table was registered, and holds among hot rows only: cold ones are not asked",
        hint=hint,
    )


def _violated(managed: Managed, name: str, violated: str, partition: str, count: int) -> OperationError:
    return OperationError(
        f"{count:,} old rows of {managed.table} do not satisfy {name}, which was added since",
        detail=f"they are in {partition}; Postgres takes it for true of all rows, and a query may leave these out",
        hint="correct them: SET constraint_exclusion = off;"
        f" UPDATE {as_sql(managed.table.schema, managed.table.name)} SET ... WHERE {violated};"
        " or drop the constraint again",
        sqlstate="23514",
    )
