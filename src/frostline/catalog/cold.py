"""One managed table as the gateway sees it: what is cold, where it is in the lake, and the user's columns today."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any
from weakref import WeakKeyDictionary

from psycopg import Connection
from psycopg.pq.abc import PGresult
from psycopg.rows import dict_row
from psycopg.sql import SQL, Literal

from frostline.errors import QueryError
from frostline.model.bounds import Bound, parse_bound
from frostline.model.types import Storage, promotes, storage

# What this version knows of where cold rows are: `frostline.tables.readers` says what a table needs.
READS = 1
# libc locales whose order is that of the bytes.
_BYTE_ORDERED = ("C", "POSIX", "C.UTF-8", "C.utf8")


@dataclass(frozen=True)
class ColdColumn:
    """A column of the user's table and its place in the lake."""

    number: int
    name: str
    type: str  # format_type(): what DDL needs
    base_type: str  # the type under any domain
    oid: int
    typmod: int
    typname: str  # of the base type, when it is one of Postgres's own; else ''
    domain: bool
    enum: bool
    storage: Storage
    field_id: int | None  # in the lake; None: it is not there yet
    delta_name: str | None  # in the delta; None: it is not there yet
    collation: tuple[str, str] | None
    deterministic: bool
    byte_ordered: bool
    generated: str = ""  # '' | 's'tored | 'v'irtual
    missing: str | None = None  # its value in rows from before it was added, as they are exported
    missing_text: str | None = None  # and as Postgres prints it
    unreadable: str | None = None  # why its values in cold rows are not known
    composite: bool = False
    not_null: bool = False

    def __hash__(self) -> int:
        """Looked up dozens of times a statement, mostly among columns of one table."""
        return self.number

    @property
    def null_is_null(self) -> bool:
        """Whether IS NULL asks if there is a value: of a row that is there it asks for what is in it."""
        return not self.composite

    @property
    def exact_equality(self) -> bool:
        """Whether two values are equal to Postgres exactly when their forms in the lake are equal to DuckDB."""
        return self.enum or (self.storage.native and self.deterministic)


@dataclass(frozen=True)
class ColdTable:
    """A managed table in one snapshot of the registry."""

    id: int
    schema: str
    name: str
    seam: Bound | None
    snapshot_id: int | None
    metadata_location: str | None
    delta: tuple[str, str]
    key: ColdColumn
    primary_key: tuple[ColdColumn, ...]
    columns: Mapping[str, ColdColumn]
    upserts: bool = False  # an INSERT of a key that is there replaces the row
    retained: Bound | None = None  # rows below it are not kept
    marker: int | None = None  # the lake's column that says up to which number a row knows columns
    shape: str = ""  # what the table is like
    followed: bool = True  # delta and functions were made for that
    file_size: int | None = None  # of a data file; None: as the settings say
    bulk_rows: int | None = None  # new rows of one statement that are written to files; None: as the settings say
    staged: int = 0  # how often files were staged
    staged_files: str = ""  # those that are, as the registry describes them
    installation: str = ""  # whose table it is
    checked: bool = False  # it has CHECK constraints

    def __str__(self) -> str:
        return f"{self.schema}.{self.name}"

    @cached_property
    def settable(self) -> list[ColdColumn]:
        """All columns but those Postgres computes."""
        return [column for column in self.columns.values() if not column.generated]

    @property
    def stored(self) -> list[ColdColumn]:
        """The columns whose values are kept."""
        return [column for column in self.columns.values() if column.generated != "v"]


class NotRegistered(QueryError):
    """The registry has no such table, in the snapshot it was asked at."""


Row = tuple[bytes | None, ...]
# The last description of each table and the row it was made from: it holds as long as that row is the same.
_descriptions: dict[tuple[object, ...], tuple[Row, ColdTable]] = {}
_KEPT = 1000
# By connection and table: the last versions and what they were described as. Transaction numbers are those of one
# server's life, and so is a connection.
_current: WeakKeyDictionary[Connection[Any], dict[int, tuple[Row, ColdTable]]] = WeakKeyDictionary()

# Which version of everything a description is made from is visible, by the transactions that wrote it: a fifth of the
# cost of the rows themselves, and mostly they are known. What only has names is known by these, and the user's
# types by what is in them.
_VERSIONS = """
SELECT t.relation, t.delta, t.xmin,
       ARRAY(SELECT CASE WHEN a.atttypid < 16384 THEN a.xmin::text
                         ELSE concat(a.xmin::text, pg_catalog.format_type(a.atttypid, a.atttypmod), (
                             SELECT CASE WHEN ty.typtype = 'e' THEN ARRAY(SELECT e.xmin FROM pg_catalog.pg_enum e
                                                                          WHERE e.enumtypid = ty.oid)::text
                                         WHEN ty.typtype <> 'b' OR ty.typelem <> 0
                                         THEN frostline.sense(ty.oid)::text END
                             FROM pg_catalog.pg_type ty WHERE ty.oid = a.atttypid)) END
             FROM pg_catalog.pg_attribute a WHERE a.attrelid = t.relation AND a.attnum > 0),
       ARRAY(SELECT i.xmin FROM pg_catalog.pg_index i WHERE i.indrelid = t.hot),
       ARRAY(SELECT c.xmin FROM frostline.columns c WHERE c.table_id = t.id),
       ARRAY(SELECT k.xmin FROM pg_catalog.pg_constraint k WHERE k.conrelid = t.relation OR k.conrelid = t.hot)
FROM frostline.tables t
WHERE t.id = $1
"""

_TABLE = """
SELECT format('%I.%I', n.nspname, c.relname), format('%I.%I', dn.nspname, dc.relname),
       t.id, n.nspname AS schema, c.relname AS name, t.seam,
       CASE WHEN $2 IS NULL THEN t.snapshot_id ELSE o.snapshot_id END AS snapshot_id,
       CASE WHEN $2 IS NULL THEN t.metadata_location ELSE o.metadata_location END
           AS metadata_location,
       dn.nspname AS delta_schema, dc.relname AS delta_name, p.partattrs[0] AS key,
       $2 IS NULL OR o.id IS NOT NULL AS found, t.cold_duplicates, t.retained_from, t.file_size, t.bulk_rows, t.staged,
       t.readers,
       CASE WHEN $2 IS NULL THEN (SELECT json_agg(f.entry ORDER BY f.id) FROM frostline.staged_files f
                                  WHERE f.table_id = t.id) END AS staged_files,
       i.id::text AS installation,
       EXISTS (SELECT FROM pg_catalog.pg_constraint k WHERE k.conrelid = t.relation AND k.contype = 'c') AS checked,
       frostline.shape(t.id) AS shape, t.followed,
       (SELECT m.field_id FROM frostline.columns m WHERE m.table_id = t.id AND m.attnum = 0) AS marker,
       array_to_json(ARRAY(SELECT ha.attname::text
             FROM pg_catalog.pg_index i
             CROSS JOIN LATERAL unnest(i.indkey::smallint[]) WITH ORDINALITY AS k (attnum, position)
             JOIN pg_catalog.pg_attribute ha ON ha.attrelid = i.indrelid AND ha.attnum = k.attnum
             WHERE i.indrelid = t.hot AND i.indisprimary AND k.position <= i.indnkeyatts
               -- By another one than the delta's its versions belong to other rows.
               AND (SELECT array_agg(h.attname::text ORDER BY h.attname::text)
                    FROM unnest(i.indkey::smallint[]) WITH ORDINALITY AS p (attnum, position)
                    JOIN pg_catalog.pg_attribute h ON h.attrelid = i.indrelid AND h.attnum = p.attnum
                    WHERE p.position <= i.indnkeyatts)
                 = (SELECT array_agg(r.attname::text ORDER BY r.attname::text)
                    FROM pg_catalog.pg_constraint dk CROSS JOIN LATERAL unnest(dk.conkey) AS u (attnum)
                    JOIN pg_catalog.pg_attribute d ON d.attrelid = dk.conrelid AND d.attnum = u.attnum
                    LEFT JOIN frostline.columns dn ON dn.table_id = t.id AND dn.delta_name = d.attname
                    LEFT JOIN pg_catalog.pg_attribute r
                      ON r.attrelid = t.relation AND r.attnum = dn.attnum AND NOT r.attisdropped
                    WHERE dk.conrelid = t.delta AND dk.contype = 'u' AND d.attname NOT IN ('_seq', '_prev'))
             ORDER BY k.position)) AS primary_key,
       -- All that _COLUMNS reads and that can change, a tenth of its cost.
       (SELECT string_agg(ROW(a.attnum, a.attname, a.atttypid, a.atttypmod, a.attcollation,
                              pg_catalog.format_type(a.atttypid, a.atttypmod), fc.*)::text, ','
                          ORDER BY a.attnum)
        FROM pg_catalog.pg_attribute a
        LEFT JOIN frostline.columns fc ON fc.table_id = t.id AND fc.attnum = a.attnum
        WHERE a.attrelid = t.relation AND a.attnum > 0 AND NOT a.attisdropped) AS columns
FROM frostline.tables t
JOIN pg_catalog.pg_class c ON c.oid = t.relation
JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
JOIN pg_catalog.pg_partitioned_table p ON p.partrelid = t.relation
JOIN pg_catalog.pg_class dc ON dc.oid = t.delta
JOIN pg_catalog.pg_namespace dn ON dn.oid = dc.relnamespace
CROSS JOIN frostline.installation i
LEFT JOIN frostline.operations o ON o.id = $2 AND o.table_id = t.id
WHERE t.id = $1
"""

_COLUMNS = """
SELECT a.attnum, a.attname, pg_catalog.format_type(a.atttypid, a.atttypmod) AS type, a.atttypid, a.atttypmod,
       a.attgenerated::text, a.attnotnull,
       base.typname, base.typmod, base.builtin, base.typtype, ty.typtype = 'd' AS domain,
       pg_catalog.format_type(base.oid, base.typmod) AS base_type, fc.field_id, fc.delta_name,
       coalesce(fc.missing, added.missing) AS missing, coalesce(fc.undecided, added.undecided) AS undecided,
       fc.base IS NULL OR (fc.base, fc.typmod) = (base.oid, base.typmod) AS same_type,
       pg_catalog.format_type(fc.base, fc.typmod) AS old_type, old.typname AS old_typname, fc.typmod AS old_typmod,
       base.builtin AND old.typnamespace = 'pg_catalog'::regnamespace AS comparable,
       CASE WHEN fc.sense IS NOT NULL THEN frostline.sense_changed(fc.sense, frostline.sense(base.oid)) END
           AS sense_changed,
       CASE WHEN fc.expression IS NOT NULL THEN frostline.expression_changed(
           fc.expression, frostline.expression(a.attrelid, a.attnum), frostline.rewritten(t.id)) END AS computed,
       con.nspname AS collation_schema, co.collname AS collation_name,
       coalesce(co.collisdeterministic, true) AS deterministic,
       CASE co.collprovider WHEN 'd' THEN d.datlocprovider ELSE co.collprovider END AS provider,
       CASE co.collprovider WHEN 'd' THEN d.datcollate ELSE co.collcollate END AS locale
FROM frostline.tables t
JOIN pg_catalog.pg_attribute a ON a.attrelid = t.relation AND a.attnum > 0 AND NOT a.attisdropped
JOIN pg_catalog.pg_type ty ON ty.oid = a.atttypid
CROSS JOIN LATERAL (
    WITH RECURSIVE unwrapped AS (
        SELECT a.atttypid AS oid, a.atttypmod AS typmod
        UNION ALL
        SELECT b.typbasetype, CASE WHEN u.typmod >= 0 THEN u.typmod ELSE b.typtypmod END
        FROM unwrapped u
        JOIN pg_catalog.pg_type b ON b.oid = u.oid AND b.typtype = 'd'
    )
    SELECT b.oid, b.typname, u.typmod, b.typtype, b.typnamespace = 'pg_catalog'::regnamespace AS builtin
    FROM unwrapped u
    JOIN pg_catalog.pg_type b ON b.oid = u.oid AND b.typtype <> 'd'
) base
LEFT JOIN pg_catalog.pg_collation co ON co.oid = a.attcollation
LEFT JOIN pg_catalog.pg_namespace con ON con.oid = co.collnamespace
LEFT JOIN frostline.columns fc ON fc.table_id = t.id AND fc.attnum = a.attnum
LEFT JOIN pg_catalog.pg_type old ON old.oid = fc.base
LEFT JOIN frostline.added_columns(t.id) added ON added.attnum = a.attnum
JOIN pg_catalog.pg_database d ON d.datname = pg_catalog.current_database()
WHERE t.id = %(table)s
ORDER BY a.attnum
"""


# Planned once per connection. What it finds is the first thing every transaction of the gateway wants to know.
PREPARE = f"PREPARE frostline_versions (bigint) AS {_VERSIONS}; PREPARE frostline_table (bigint, bigint) AS {_TABLE}"


def question(table_id: int, operation_id: int | None = None) -> str:
    """The query whose one row `described` takes, on a connection that has run PREPARE."""
    return f"EXECUTE frostline_versions ({int(table_id)})" if operation_id is None else _whole(table_id, operation_id)


def _whole(table_id: int, operation_id: int | None) -> str:
    return f"EXECUTE frostline_table ({int(table_id)}, {'NULL' if operation_id is None else int(operation_id)})"


def cold_table(connection: Connection[Any], table_id: int, operation_id: int | None = None) -> ColdTable:
    """Describe one managed table; with an operation, at the Iceberg snapshot that operation made."""
    return described(connection, _asked(connection, question(table_id, operation_id)), table_id, operation_id)


def described(
    connection: Connection[Any], answer: PGresult, table_id: int, operation_id: int | None = None
) -> ColdTable:
    """The table that the answer to its question is about."""
    if answer.ntuples == 0:
        raise NotRegistered(
            f"no table is registered with Frostline under number {table_id}",
            hint="the foreign table was left behind by an unregistered table; drop it",
            sqlstate="42P01",
        )
    if operation_id is not None:
        return _described(connection, answer, table_id, operation_id)[1]
    # A point look-up would spend most of its time on a description that hardly ever changes.
    versions = _row(answer)
    current = _current.setdefault(connection, {})
    known = current.get(table_id)
    if known is not None and known[0] == versions:
        return known[1]
    names, table = _described(connection, _asked(connection, _whole(table_id, None)), table_id, None)
    if names == versions[:2]:  # else renamed since the snapshot: names are always the newest, rows are not
        current[table_id] = versions, table
    return table


def _asked(connection: Connection[Any], query: str) -> PGresult:
    cursor = connection.execute(query)
    assert cursor.pgresult is not None
    return cursor.pgresult


def _row(answer: PGresult) -> Row:
    return tuple(answer.get_value(0, at) for at in range(answer.nfields))


def _described(
    connection: Connection[Any], answer: PGresult, table_id: int, operation_id: int | None
) -> tuple[Row, ColdTable]:
    """From the whole row: the names of table and delta in it, and the description."""
    raw = _row(answer)
    names = raw[:2]
    known = _descriptions.get(key := (*connection_key(connection), table_id, operation_id))
    if known is not None and known[0] == raw:
        return names, known[1]
    row = {
        (answer.fname(at) or b"").decode(): None if value is None else value.decode() for at, value in enumerate(raw)
    }
    if row["found"] != "t":
        raise QueryError(f"{row['schema']}.{row['name']} has no operation {operation_id}", sqlstate="42P01")
    if int(row["readers"] or 0) > READS:
        raise QueryError(
            f"cold rows of {row['schema']}.{row['name']} are kept in a way that only a newer gateway knows",
            hint="replace the gateway: a newer version of Frostline works on this database",
            sqlstate="0A000",
        )
    with connection.cursor(row_factory=dict_row) as cursor:
        rows = cursor.execute(_COLUMNS, {"table": table_id}).fetchall()
    columns = [_column(connection, found) for found in rows]
    table = _table(row, columns)
    if len(_descriptions) >= _KEPT:
        _descriptions.clear()
    _descriptions[key] = raw, table
    return names, table


def connection_key(connection: Connection[Any]) -> tuple[str, int, str]:
    """Which database a connection is to."""
    info = connection.info
    return info.host, info.port, info.dbname


def _table(row: Mapping[str, str | None], columns: list[ColdColumn]) -> ColdTable:
    """From a row as Postgres writes it."""
    by_name = {column.name: column for column in columns}
    key = int(row["key"] or 0)
    return ColdTable(
        id=int(row["id"] or 0),
        schema=row["schema"] or "",
        name=row["name"] or "",
        seam=parse_bound(row["seam"]) if row["seam"] is not None else None,
        snapshot_id=int(row["snapshot_id"]) if row["snapshot_id"] is not None else None,
        metadata_location=row["metadata_location"],
        delta=(row["delta_schema"] or "", row["delta_name"] or ""),
        key=next(column for column in columns if column.number == key),
        primary_key=tuple(by_name[name] for name in json.loads(row["primary_key"] or "[]")),
        columns=by_name,
        upserts=row["cold_duplicates"] == "upsert",
        retained=parse_bound(row["retained_from"]) if row["retained_from"] is not None else None,
        marker=int(row["marker"]) if row["marker"] is not None else None,
        shape=row["shape"] or "",
        followed=row["shape"] == row["followed"],
        file_size=int(row["file_size"]) if row["file_size"] is not None else None,
        bulk_rows=int(row["bulk_rows"]) if row["bulk_rows"] is not None else None,
        staged=int(row["staged"] or 0),
        staged_files=row["staged_files"] or "",
        installation=row["installation"] or "",
        checked=row["checked"] == "t",
    )


def _column(connection: Connection[Any], row: Mapping[str, Any]) -> ColdColumn:
    collation = row["collation_name"]
    kept = storage(row["typname"], row["typmod"], builtin=row["builtin"])
    missing, unreadable = _missing(connection, row, kept)
    return ColdColumn(
        number=row["attnum"],
        name=row["attname"],
        type=row["type"],
        base_type=row["base_type"],
        oid=row["atttypid"],
        typmod=row["atttypmod"],
        typname=row["typname"] if row["builtin"] else "",
        domain=row["domain"],
        enum=row["typtype"] == "e",
        storage=kept,
        field_id=row["field_id"],
        delta_name=row["delta_name"],
        collation=(row["collation_schema"], collation) if collation else None,
        deterministic=row["deterministic"],
        byte_ordered=row["provider"] == "b" or (row["provider"] == "c" and row["locale"] in _BYTE_ORDERED),
        generated=row["attgenerated"],
        missing=missing,
        missing_text=row["missing"],
        unreadable=unreadable,
        composite=row["typtype"] == "c",
        not_null=row["attnotnull"],
    )


def _unreadable(row: Mapping[str, Any]) -> str | None:
    """Why cold rows have no value for a column that can be told, in words that follow "column x"."""
    if row["undecided"] is not None:
        return str(row["undecided"])
    if row["computed"] is not None:
        return str(row["computed"])
    if row["same_type"]:
        return f"its type was changed: {row['sense_changed']}" if row["sense_changed"] is not None else None
    old, new = (row["old_typname"], row["old_typmod"]), (row["typname"], row["typmod"])
    if row["comparable"] and promotes(old, new):
        return None
    return f"its type was changed from {row['old_type']} to {row['base_type']}"


def _missing(connection: Connection[Any], row: Mapping[str, Any], kept: Storage) -> tuple[str | None, str | None]:
    """The value of rows from before the column was added, in the form that the lake's is made from; or why not."""
    unreadable = _unreadable(row)
    if unreadable is not None or row["missing"] is None:
        return None, unreadable
    before = SQL("::{}").format(SQL(row["old_type"])) if row["old_type"] is not None else SQL("")
    value = SQL("SELECT {}{}::{} AS v").format(Literal(row["missing"]), before, SQL(row["base_type"]))
    strange, export = (form.format(c="x.v") for form in (kept.cannot_hold or "false", kept.export))
    query = SQL("SELECT CASE WHEN NOT ({}) THEN ({})::text END FROM ({}) x")
    found = connection.execute(query.format(SQL(strange), SQL(export), value)).fetchone()
    if found is None or found[0] is None:
        return None, f"it was added with the value {row['missing']}, which the lake cannot hold"
    return found[0], None
