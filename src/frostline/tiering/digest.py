"""Order-independent content hashes, computed by Postgres: over a leaf, over what the gateway answers, over the delta.

A value is hashed together with its row's key, so that values which changed places are found too: as the text its type
prints, or, where equal values print alike, by the type's own hash, which is several times as fast. The sums of two
disjoint sets of rows add up to the sum of their union.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from psycopg.sql import SQL, Composable, Composed, Identifier, Literal

from frostline.catalog.database import Connection
from frostline.catalog.names import SERVER_NAME
from frostline.catalog.registry import Managed
from frostline.model.bounds import Range
from frostline.model.tables import Column, Table

SHOWN_KEYS = 5
_COLUMNS_AT_ONCE = 500  # a select list ends at 1664
_KEY = Identifier("!frostline key")
# How values were hashed: what was recorded otherwise cannot be compared.
_HASH = 2


@dataclass(frozen=True)
class Digest:
    """How many rows, and of each column (by its number) how many values and the sum of their hashes."""

    rows: int
    columns: Mapping[int, tuple[int, Decimal]]

    def __add__(self, other: Digest) -> Digest:
        both = dict(self.columns)
        for number, (count, total) in other.columns.items():
            known = both.get(number, (0, Decimal(0)))
            both[number] = known[0] + count, known[1] + total
        return Digest(self.rows + other.rows, both)

    def json(self) -> dict[str, Any]:
        columns = {str(number): [count, str(total)] for number, (count, total) in self.columns.items()}
        return {"rows": self.rows, "columns": columns, "hash": _HASH}

    @classmethod
    def of_json(cls, value: Mapping[str, Any] | None) -> Digest | None:
        """As it was recorded; None: it was not, or with other hashes."""
        if value is None or value.get("hash") != _HASH:
            return None
        found = {int(number): (int(count), Decimal(total)) for number, (count, total) in value["columns"].items()}
        return cls(int(value["rows"]), found)


def exported_snapshot(connection: Connection) -> str:
    """Fix what this transaction sees, under a name by which the gateway can see the same."""
    connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
    row = connection.execute("SELECT pg_export_snapshot()").fetchone()
    assert row is not None
    return str(row[0])


def digest_of(connection: Connection, table: Table, source: Composable) -> Digest:
    """Read a source of the table's rows once for every few hundred columns."""
    columns = table.stored
    key: Composable = SQL("0")
    for column in (column for name in table.primary_key for column in columns if column.name == name):
        key = _hash(column, key)
    found: dict[int, tuple[int, Decimal]] = {}
    rows = 0
    for start in range(0, len(columns), _COLUMNS_AT_ONCE):
        some = columns[start : start + _COLUMNS_AT_ONCE]
        sums = SQL(", ").join(
            SQL("count({}), coalesce(sum({}), 0)").format(Identifier(column.name), _hash(column, _KEY))
            for column in some
        )
        names = SQL(", ").join(Identifier(column.name) for column in some)
        # OFFSET 0: otherwise the key would be hashed again for every column.
        rows_with_key = SQL("(SELECT {}, {} AS {} FROM {} OFFSET 0) AS r").format(names, key, _KEY, source)
        row: Any = connection.execute(SQL("SELECT count(*), {} FROM {}").format(sums, rows_with_key)).fetchone()
        rows = row[0]
        found |= {column.number: (row[1 + 2 * at], row[2 + 2 * at]) for at, column in enumerate(some)}
    return Digest(rows, found)


def _hash(column: Column, seed: Composable) -> Composed:
    name, type_ = Identifier(column.name), column.base_type
    if type_ in ("smallint", "integer", "bigint"):
        return SQL("hashint8extended({}::bigint, {})").format(name, seed)
    if type_ in ("boolean", "uuid") or type_.startswith("timestamp"):
        return SQL("hash_record_extended(ROW({}), {})").format(name, seed)
    text = name if type_ == "text" else SQL("frostline.output({})").format(name)
    # Hashed as C: a column's own collation may call different texts equal, and then they hash alike.
    return SQL('hashtextextended({} COLLATE "C", {})').format(text, seed)


def differing(columns: Sequence[Column], one: Digest, other: Digest) -> list[str]:
    """Names of the columns whose contents are not the same."""
    return [c.name for c in columns if one.columns.get(c.number) != other.columns.get(c.number)]


def first_keys(connection: Connection, managed: Managed, one: Composable, other: Composable) -> list[str]:
    """Keys of the first rows that stand on one side only, compared as text so that no type needs an equality."""
    columns = SQL(", ").join(
        SQL('frostline.output({}) COLLATE "C"').format(Identifier(c.name)) for c in managed.table.stored
    )
    key = SQL(", ").join(Identifier(name) for name in managed.table.primary_key)
    rows = SQL("SELECT ROW({})::text AS key, {} FROM {}")
    here, there = rows.format(key, columns, one), rows.format(key, columns, other)
    apart = SQL("(({h}) EXCEPT ALL ({t})) UNION ALL (({t}) EXCEPT ALL ({h}))").format(h=here, t=there)
    query = SQL("SELECT DISTINCT key FROM ({}) d ORDER BY key LIMIT {}").format(apart, Literal(SHOWN_KEYS))
    return [str(found) for (found,) in connection.execute(query)]


def foreign_table(managed: Managed, name: Identifier, range_: Range, scope: str) -> Composed:
    """A foreign table for one transaction. The scope says what the gateway is to read: of which operation, at which
    snapshot of Postgres, and whether only the lake without the delta."""
    columns = SQL(", ").join(SQL("{} {}").format(Identifier(c.name), SQL(c.type)) for c in managed.table.stored)
    return SQL("CREATE FOREIGN TABLE {} ({}) SERVER {} OPTIONS (schema_name {}, table_name {})").format(
        name, columns, Identifier(SERVER_NAME), Literal(f"{managed.server_schema}{scope}"), Literal(str(range_))
    )
