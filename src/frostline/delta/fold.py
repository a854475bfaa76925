"""The delta's side of a fold: which versions are read, what they are in the lake's terms, and their removal.

Of every key below the seam the newest version is merged into the lake, and all that one snapshot saw are removed. A
newer version that is committed meanwhile stays: nothing but the versions that were read is ever removed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from psycopg.sql import SQL, Composable, Composed, Identifier, Literal

from frostline.catalog.database import Connection
from frostline.catalog.registry import Managed
from frostline.model.tables import Column


@dataclass(frozen=True)
class Waiting:
    """What a fold would take out of the delta now."""

    versions: int
    bytes: int


def cold(managed: Managed, alias: str = "d") -> Composed:
    """Below the seam; what is captured of a leaf that is still hot is not."""
    assert managed.seam is not None
    key, type_ = Identifier(alias, managed.table.key), SQL(managed.table.key_type)
    return SQL("{} < {}::{}").format(key, Literal(managed.seam.text), type_)


def waiting(connection: Connection, managed: Managed) -> Waiting:
    """Nothing, until the first archive run has made a table in the lake: older rows that come before it stay here."""
    if managed.seam is None or managed.snapshot_id is None:
        return Waiting(0, 0)
    query = SQL("SELECT count(*), coalesce(sum(pg_column_size(d)), 0) FROM {} d WHERE {}")
    row: Any = connection.execute(query.format(Identifier(*managed.delta), cold(managed))).fetchone()
    return Waiting(*row)


def newest(managed: Managed, columns: Sequence[Composable]) -> Composed:
    """The newest version of every key below the seam; `ctid` can be asked for."""
    same = SQL(" AND ").join(SQL("n.{c} = d.{c}").format(c=Identifier(name)) for name in managed.table.primary_key)
    return SQL(
        "SELECT {columns} FROM (SELECT d.*, d.ctid FROM ONLY {delta} d WHERE {cold}"
        " AND NOT EXISTS (SELECT FROM ONLY {delta} n WHERE {same} AND n._seq > d._seq)) v"
    ).format(columns=SQL(", ").join(columns), delta=Identifier(*managed.delta), cold=cold(managed), same=same)


def bounds(
    connection: Connection, managed: Managed, group: Composable, columns: Sequence[Column]
) -> list[list[tuple[int, int]]]:
    """Least and greatest value of each column in every group of the versions, as the lake counts."""

    def side(function: str, column: Column) -> Composable:
        value = SQL(f"{function}({{}})").format(Identifier(column.name)).as_string(None)
        return SQL(column.storage.export.format(c=value))

    sides = [side(function, column) for column in columns for function in ("min", "max")]
    query = SQL("SELECT {} FROM {} d WHERE {} GROUP BY {}").format(
        SQL(", ").join(sides), Identifier(*managed.delta), cold(managed), group
    )
    return [list(zip(row[::2], row[1::2], strict=True)) for row in connection.execute(query)]


def note(connection: Connection, managed: Managed, operation: int) -> int:
    """Remember with the operation which versions this transaction's snapshot sees; returns how many."""
    query = SQL(
        "UPDATE frostline.operations SET folded = (SELECT array_agg(d._seq) FROM {} d WHERE {}) WHERE id = {}"
        " RETURNING cardinality(folded)"
    ).format(Identifier(*managed.delta), cold(managed), Literal(operation))
    row: Any = connection.execute(query).fetchone()
    return row[0] or 0


def remove(connection: Connection, managed: Managed, operation: int) -> int:
    """Remove the versions the operation has noted, and the note; returns how many there were."""
    query = SQL(
        "DELETE FROM {} d USING frostline.operations o CROSS JOIN LATERAL unnest(o.folded) f (seq)"
        " WHERE o.id = {} AND d._seq = f.seq"
    ).format(Identifier(*managed.delta), Literal(operation))
    removed = connection.execute(query).rowcount
    connection.execute("UPDATE frostline.operations SET folded = NULL WHERE id = %s", (operation,))
    return removed


def touched(connection: Connection, managed: Managed, operation: int, uppers: Sequence[str]) -> dict[int, int]:
    """Which of these periods, given by their ends in order, the operation's versions lie in, and of how many rows."""
    ends = SQL("{}::{}[]").format(Literal(list(uppers)), SQL(managed.table.key_type))
    row = SQL(", ").join(SQL("d.{}").format(Identifier(name)) for name in managed.table.primary_key)
    query = SQL(
        "SELECT width_bucket(d.{}, {}), count(DISTINCT ({}))"
        " FROM frostline.operations o CROSS JOIN LATERAL unnest(o.folded) f (seq)"
        " JOIN {} d ON d._seq = f.seq WHERE o.id = {} GROUP BY 1"
    ).format(Identifier(managed.table.key), ends, row, Identifier(*managed.delta), Literal(operation))
    return dict(connection.execute(query).fetchall())
