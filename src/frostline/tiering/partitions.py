"""Partitions that somebody has taken out of a registered table, or put into it, by hand.

A cold period that was detached is a table of its own to Postgres, yet its rows are in the lake of the table it was
taken from: nothing moves or removes them until a person has said what is meant. A hot partition that is partitioned
again, or foreign, cannot be moved as a whole: nothing is moved past it.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass

from psycopg.sql import SQL, Composed, Identifier, Literal

from frostline.catalog import describe, queries
from frostline.catalog.database import Connection
from frostline.catalog.registry import Managed
from frostline.errors import RefusedError
from frostline.model.bounds import Range, parse_bound
from frostline.model.tables import Branch, Leaf, derived_name
from frostline.tiering import ddl


@dataclass(frozen=True)
class Stray:
    """What the registry takes for a partition of the table and is none."""

    oid: int
    schema: str | None  # None: it was dropped
    name: str | None
    range: Range

    def __str__(self) -> str:
        return f"{self.schema}.{self.name}" if self.schema is not None else f"the cold period {self.range}"

    @property
    def dropped(self) -> bool:
        return self.schema is None

    def attach(self, managed: Managed) -> Composed:
        assert self.schema is not None
        assert self.name is not None
        parent = Identifier(managed.table.schema, managed.table.name)
        return ddl.attach(parent, Leaf(self.oid, self.schema, self.name, self.range))

    def remake(self, connection: Connection, managed: Managed) -> list[Composed]:
        """What was dropped, once more: its rows are still in the lake."""
        assert self.range.upper is not None
        taken = {name for (name,) in queries.rows(connection, "names_in_schema", schema=managed.table.schema)}
        label = re.sub(r"\W+", "_", self.range.lower.text.split()[0]) if self.range.lower is not None else "before"
        new = (managed.table.schema, derived_name(managed.table.name, f"_{label}", taken))
        return [
            *ddl.foreign_partition(managed.table, new, managed.id, self.range),
            SQL("UPDATE frostline.periods SET foreign_table = {}::regclass WHERE table_id = {} AND upper = {}").format(
                Literal(Identifier(*new).as_string(None)), managed.id, Literal(self.range.upper.text)
            ),
            SQL("ANALYZE {}").format(Identifier(*new)),
        ]

    def forget(self, managed: Managed) -> Composed:
        assert self.range.upper is not None
        return SQL("DELETE FROM frostline.periods WHERE table_id = {} AND upper = {}").format(
            managed.id, Literal(self.range.upper.text)
        )


def strays(connection: Connection, managed: Managed) -> list[Stray]:
    """The hot partition and cold periods that were detached or dropped."""
    return [
        Stray(oid, schema, name, Range(parse_bound(lower), parse_bound(upper)))
        for oid, schema, name, lower, upper in queries.rows(connection, "strays", table=managed.id)
    ]


def check_attached(connection: Connection, managed: Managed, oids: Collection[int]) -> None:
    """None of these cold periods was detached."""
    for stray in strays(connection, managed):
        if stray.oid in oids and not stray.dropped:
            raise RefusedError(
                f"{stray} was detached from {managed.table}, and its rows are in the lake of that table;"
                " nothing was changed",
                hint=f"it belongs there: {stray.attach(managed).as_string(connection)}\n"
                f"its rows are not needed any more: DROP FOREIGN TABLE {_quoted(stray)}",
            )


def check_plain(connection: Connection, managed: Managed) -> None:
    """Every hot partition is a plain table: others cannot be moved as a whole."""
    found = describe.branches(connection, managed.hot_oid)
    if found:
        raise RefusedError(
            f"{managed.table} has the hot partition {found[0]}, which is {found[0].kind}; nothing was changed",
            hint=way_out(connection, managed, found[0]),
        )


def way_out(connection: Connection, managed: Managed, leaf: Branch) -> str:
    detach = ddl.detach(Identifier(*managed.hot), leaf).as_string(connection)
    bounds = ddl.for_values(leaf.range).as_string(connection) if leaf.range is not None else "DEFAULT"
    hot = Identifier(*managed.hot).as_string(connection)
    return f"{detach}; CREATE TABLE ... PARTITION OF {hot} {bounds}; INSERT INTO that the rows of {_quoted(leaf)}"


def _quoted(relation: Stray | Branch) -> str:
    return Identifier(relation.schema or "", relation.name or "").as_string(None)
