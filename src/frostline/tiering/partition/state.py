"""How far the partitioning of one table is: a row of the registry, written with each step it tells of."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from psycopg.sql import SQL, Identifier
from psycopg.types.json import Jsonb

from frostline.catalog import queries
from frostline.catalog.database import Connection
from frostline.errors import Occupied
from frostline.tiering.partition.plan import Plan
from frostline.tiering.partition.shape import Shape

_LOCK = 734_621_510  # advisory, of a session, with the old table's OID: one run per table


@dataclass
class Work:
    """One table on its way."""

    source: int
    target: int
    plan: Plan
    shape: Any  # as JSON: what Shape.json() must still be at the end
    state: str  # made, copying, copied, swapped
    filenode: int | None = None
    pages: int = 0
    next_page: int = 0
    compared: object = None  # what the table's rows stood in when the copy was found to be the same

    @property
    def log(self) -> Identifier:
        return Identifier("frostline", f"changes_{self.source}")

    @property
    def function(self) -> Identifier:
        return Identifier("frostline", f"log_changes_{self.source}")


def find(connection: Connection, oid: int) -> Work | None:
    row = queries.row(connection, "partitioning", oid=oid)
    if row is None:
        return None
    source, target, plan, shape, state, filenode, pages, next_page = row
    return Work(source, target, Plan.of_json(plan), shape, state, filenode, pages or 0, next_page)


def begin(connection: Connection, source: int, plan: Plan, shape: Shape) -> Work:
    found = queries.row(connection, "resolve", schema=plan.schema, name=plan.copy)
    assert found is not None
    work = Work(source, found[0], plan, shape.json(), "made")
    connection.execute(
        "INSERT INTO frostline.partitionings (source, target, plan, shape) VALUES (%s, %s, %s, %s)",
        (source, work.target, Jsonb(plan.json()), Jsonb(work.shape)),
    )
    return work


def record(connection: Connection, work: Work) -> None:
    connection.execute(
        "UPDATE frostline.partitionings SET shape = %s, state = %s, filenode = %s, pages = %s, next_page = %s"
        " WHERE source = %s",
        (Jsonb(work.shape), work.state, work.filenode, work.pages, work.next_page, work.source),
    )


def end(connection: Connection, work: Work) -> None:
    """Nothing is left but the tables."""
    connection.execute(SQL("DROP TABLE IF EXISTS {}").format(work.log))
    connection.execute(SQL("DROP FUNCTION IF EXISTS {}()").format(work.function))
    connection.execute("DELETE FROM frostline.partitionings WHERE source = %s", (work.source,))


@contextmanager
def only_run(connection: Connection, oid: int, name: str) -> Iterator[Work | None]:
    """One run per table, before and after the swap; gives what an earlier one has begun."""
    found = find(connection, oid)
    key = (_LOCK, found.source if found is not None else oid)
    if connection.execute("SELECT pg_try_advisory_lock(%s, %s::oid::int)", key).fetchone() != (True,):
        raise Occupied(f"another run is partitioning {name}; nothing was changed")
    try:
        yield find(connection, oid)
    finally:
        if not connection.broken:
            connection.execute("SELECT pg_advisory_unlock(%s, %s::oid::int)", key)
