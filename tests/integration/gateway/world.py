"""A table held twice: `copy` as a plain heap, `events` with its old rows in a real Iceberg table."""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb
import psycopg
import pyarrow as pa
from psycopg import sql
from psycopg.conninfo import make_conninfo
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.schema import Schema
from pyiceberg.types import IcebergType, NestedField, UUIDType

from frostline.catalog.cold import PREPARE, ColdColumn, cold_table
from frostline.catalog.install import install
from frostline.catalog.names import SERVER_NAME
from frostline.lake.storage import Local, Storage
from frostline.model.tables import lake_names
from integration.gateway import edges as edge_values
from integration.gateway import kinds

SEAM = "2026-03-01 00:00:00+00"
PERIODS = (
    ("MINVALUE", "2026-01-01 00:00:00+00"),
    ("2026-01-01 00:00:00+00", "2026-02-01 00:00:00+00"),
    ("2026-02-01 00:00:00+00", SEAM),
)
ODD = 'Odd "Name".é x'
COLUMNS = f"""
    id bigint NOT NULL, ts timestamptz NOT NULL, i2 smallint, i4 int, f4 real, f8 double precision,
    n numeric(12,4), big numeric, b boolean, t text, v varchar(20), ch char(8), cc text COLLATE "C", d date,
    tm timestamp, ti time, iv interval, u uuid, by bytea, j jsonb, js json, arr int[], tarr text[], mood mood,
    ip inet, dom positive, "{ODD.replace('"', '""')}" text, "A" int, "a" int, date2 date, "user" text,
    i8 bigint, n2 numeric(20,10), n3 numeric(38,6), tz timestamptz
"""
# What edges.py has values for.
EDGE_TYPES = {
    **{"i2": "int2", "i4": "int4", "f4": "float4", "f8": "float8", "n": "numeric(12,4)", "big": "numeric", "b": "bool"},
    **{"t": "text", "v": "varchar(20)", "ch": "char(8)", "cc": "text", "d": "date", "tm": "timestamp", "ti": "time"},
    **{"iv": "interval", "u": "uuid", "by": "bytea", "j": "jsonb", "arr": "int[]", "tarr": "text[]", "mood": "mood"},
    **{"A": "int4", "date2": "date", "i8": "int8", "n2": "numeric(20,10)", "n3": "numeric(38,6)"},
    **{"user": "text", "tz": "timestamptz"},
}
FIRST_EDGE = 100_000
COUNT, DENSE_COUNT = 8000, 1600
DENSE_FILES = 8  # so that what their statistics say can be wrong about something
FILL = """
INSERT INTO copy
SELECT i, timestamptz '2025-12-20 00:00:00+00' + i * {step} * interval '17 minutes 0.123457 seconds',
       (i % 7)::smallint - 3, nullif(i % 1000, 13), (i % 50) / 7.0, i / 3.0 - 500,
       (i % 999) * 1.2345 - 300, i * 1.10, nullif(i % 3, 2)::boolean, 'row ' || i % 97, 'v' || i % 11,
       chr(97 + i % 26) || ' ', md5(i::text), date '2025-01-01' + i % 500,
       timestamp '2020-02-29 23:59:59.999999' + i * interval '1 hour',
       time '00:00' + i * interval '1 second', i * interval '1 hour', md5(i::text)::uuid, decode(md5(i::text), 'hex'),
       jsonb_build_object('k', i % 10, 'x', jsonb_build_array(i, 'y')), '{"a" :  1}', ARRAY[i, NULL, i % 5],
       ARRAY['a', 'b "c" ' || i], (ARRAY['sad', 'ok', 'happy'])[1 + i % 3]::mood,
       '10.0.0.0'::inet + i % 300, 1 + i % 9,
       'odd ' || i % 5, i % 4, i % 6, nullif(date '2026-01-01' + i % 10, '2026-01-04'), 'u' || i % 3
FROM generate_series(1, {count}) AS i
"""
EDGES = r"""
INSERT INTO copy (id, ts, i2, i4, f4, f8, n, big, b, t, v, ch, cc, d, tm, ti, iv, by, j, tarr) VALUES
(-1, '2025-12-31 23:59:59.999999+00', -32768, -2147483648, 'NaN', 'Infinity', -99999999.9999, 1e40, true,
 '', '', '', '', '0044-03-15 BC', '0001-01-01 00:00:00 BC', '00:00', '-1 mon 3 days', '', 'null', '{}'),
(-2, '0099-02-03 04:05:06.7+00', 32767, 2147483647, '-Infinity', 'NaN', 99999999.9999, 0.000000000000001, false,
 E'quote '' double " back\\slash \t tab \n newline \r return', E'\\N', 'a', 'é',
 '9999-12-31', '9999-12-31 23:59:59.999999', '23:59:59.999999', '1 year', '\x00ff0a0d5c09', '"a\\nb"',
 ARRAY['{', ',', '"', '\', NULL, 'NULL', '']),
(-3, '0044-03-15 12:00:00+00 BC', 0, 0, '-0', '-0', 0, 0, NULL, '\.', ' ', ' x', 'Z', '12026-05-06',
 '12026-05-06 01:02:03', '24:00', '0', '\x5c', '{"a": 1.0, "b": 1.00}', ARRAY[E'\\', E'\n']),
(-4, '2026-01-01 00:00:00+00', NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL,
 NULL, NULL, NULL),
(-5, '2026-02-28 23:59:59.999999+00', 1, 1, 1.17549435e-38, 1.7976931348623157e308, 0.0001,
 12345678901234567890.0000001, true, 'Ünïcödé 😀 中文', 'straße', 'ß', 'z', '1970-01-01', '1969-12-31 23:59:59.999999',
 '12:00', '1 day -00:00:01', '\xff', '[]', ARRAY['x']),
(-6, '2026-03-01 00:00:00+00', 2, 2, 1.4e-45, 5e-324, 0.1, 0.1, false, '%', '_', '%', '%', '2026-03-01',
 '2026-03-01', '01:00', '1 hour', '\x', '{}', '{}')
"""


@dataclass
class World:
    """One database with the table in both forms."""

    dsn: str
    table_id: int
    columns: list[ColdColumn]
    lake: Any

    def connect(self, **more: Any) -> psycopg.Connection[Any]:
        return psycopg.connect(self.dsn, autocommit=True, **more)


def build(
    admin: str, directory: Path, *, dense: bool = False, locale: str = "", storage: Storage | None = None
) -> World:
    """A database of its own with both forms; no gateway yet. Dense: fewer rows, among them every type's edges."""
    name = f"world_{uuid.uuid4().hex[:12]}"
    with psycopg.connect(admin, autocommit=True) as connection:
        connection.execute(sql.SQL("CREATE DATABASE {} {}").format(sql.Identifier(name), sql.SQL(locale)))
    dsn = make_conninfo(admin, dbname=name)
    install(dsn)
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("SET timezone = 'UTC'")
        table_id = _tables(connection, dense)
        connection.execute(PREPARE)
        columns = list(cold_table(connection, table_id).columns.values())
        lake = _lake(connection, columns, directory, storage or Local(f"{directory}/warehouse"), dense)
        pin(connection, table_id, lake)
        connection.execute("ANALYZE copy")
    return World(dsn, table_id, columns, lake)


def pin(connection: psycopg.Connection[Any], table_id: int, lake: Any) -> None:
    """Make the Iceberg table's current snapshot the one readers see."""
    connection.execute(
        "UPDATE frostline.tables SET snapshot_id = %s, metadata_location = %s WHERE id = %s",
        [lake.current_snapshot().snapshot_id, lake.metadata_location, table_id],
    )


def foreign_table(
    connection: psycopg.Connection[Any], name: str, table_id: int, lower: str, upper: str, schema: str | None = None
) -> None:
    """A foreign partition of events, or with a schema name of its own a plain foreign table."""
    bound = sql.SQL("MINVALUE") if lower == "MINVALUE" else sql.Literal(lower)
    shape = (
        sql.SQL("PARTITION OF events FOR VALUES FROM ({}) TO ({})").format(bound, sql.Literal(upper))
        if schema is None
        else sql.SQL("({})").format(sql.SQL(COLUMNS))
    )
    connection.execute(
        sql.SQL("CREATE FOREIGN TABLE {} {} SERVER {} OPTIONS (schema_name {}, table_name {})").format(
            sql.Identifier(name),
            shape,
            sql.Identifier(SERVER_NAME),
            sql.Literal(schema or f"table {table_id}"),
            sql.Literal(f"from {lower} to {upper}"),
        )
    )


def _tables(connection: psycopg.Connection[Any], dense: bool) -> int:
    connection.execute("CREATE TYPE mood AS ENUM ('sad', 'ok', 'happy')")
    connection.execute("CREATE DOMAIN positive AS int CHECK (VALUE > 0)")
    columns = COLUMNS
    if dense:
        connection.execute(kinds.TYPES)
        columns += kinds.COLUMNS + (f", {kinds.XML} xml" if has_xml(connection) else "")
    connection.execute(f"CREATE TABLE copy ({columns}, PRIMARY KEY (id, ts))")
    connection.execute(f"CREATE TABLE events ({columns}) PARTITION BY RANGE (ts)")
    connection.execute(
        f"CREATE TABLE events_hot PARTITION OF events (PRIMARY KEY (id, ts)) FOR VALUES FROM ('{SEAM}') TO (MAXVALUE)"
    )
    connection.execute('CREATE TABLE frostline_delta.events (LIKE events, _op "char", _seq bigint, _prev bigint)')
    for column in ("id", "ts"):
        connection.execute(
            sql.SQL("ALTER TABLE frostline_delta.events ALTER {} SET NOT NULL").format(sql.Identifier(column))
        )
    connection.execute("ALTER TABLE frostline_delta.events ADD UNIQUE (id, ts, _prev)")
    count = DENSE_COUNT if dense else COUNT
    connection.execute(FILL.replace("{count}", str(count)).replace("{step}", str(COUNT // count)))
    connection.execute(EDGES)
    if dense:
        _edge_rows(connection)
    connection.execute(f"INSERT INTO events_hot SELECT * FROM copy WHERE ts >= '{SEAM}'")
    row = connection.execute(
        "INSERT INTO frostline.tables (relation, hot, delta, hot_for, lake_namespace, lake_table, seam, shape)"
        " VALUES ('events', 'events_hot', 'frostline_delta.events', '1 month', 'ns', 'events', %s, '{}') RETURNING id",
        [SEAM],
    ).fetchone()
    assert row is not None
    table_id = int(row[0])
    attributes = connection.execute(
        "SELECT attnum, attname FROM pg_attribute WHERE attrelid = 'events'::regclass AND attnum > 0"
    ).fetchall()
    for number, name in attributes:
        connection.execute(
            "INSERT INTO frostline.columns (table_id, attnum, lake_name, field_id, delta_name)"
            " VALUES (%(t)s, %(number)s, %(name)s::text, %(number)s, %(name)s::text)",
            {"t": table_id, "number": number, "name": name},
        )
    connection.execute("UPDATE frostline.tables SET followed = frostline.shape(id)")
    connection.execute(f"CREATE TABLE frostline_delta.shape_{table_id} (LIKE events INCLUDING GENERATED)")
    for index, (lower, upper) in enumerate(PERIODS):
        foreign_table(connection, f"events_{index}", table_id, lower, upper)
        connection.execute(
            "INSERT INTO frostline.periods (table_id, lower, upper, foreign_table, rows, bytes)"
            " SELECT %s, %s, %s, %s::regclass, count(*), 1000000 FROM copy"
            " WHERE ts >= coalesce(%s, '-infinity')::timestamptz AND ts < %s",
            [
                table_id,
                *(2 * [None if lower == "MINVALUE" else lower])[:1],
                upper,
                f"events_{index}",
                None if lower == "MINVALUE" else lower,
                upper,
            ],
        )
    return table_id


def has_xml(connection: psycopg.Connection[Any]) -> bool:
    """Whether this Postgres was built with it."""
    try:
        return connection.execute("SELECT '<a/>'::xml IS NOT NULL").fetchone() == (True,)
    except psycopg.errors.FeatureNotSupported:
        return False


def _edge_rows(connection: psycopg.Connection[Any]) -> None:
    """Spread over the periods: most are cold, every tenth is hot."""
    edges = {name: edge_values.EDGES[type_] for name, type_ in EDGE_TYPES.items()}
    others = {name: kind.values for name, kind in kinds.KINDS.items()}
    if has_xml(connection):
        others[kinds.XML] = kinds.XML_VALUES
    names = sql.SQL(", ").join(sql.Identifier(name) for name in ("id", "ts", *edges, *others))
    found = zip(edge_values.rows(edges), edge_values.rows(others), strict=True)
    with connection.cursor().copy(sql.SQL("COPY copy ({}) FROM STDIN").format(names)) as copy:
        for number, row in enumerate([*left, *right] for left, right in found):
            moment = SEAM if number % 10 == 0 else f"2026-0{1 + number % 2}-{1 + number % 28:02} 12:00:00+00"
            copy.write_row([FIRST_EDGE + number, moment, *row])


def rows_as_arrow(connection: psycopg.Connection[Any], columns: list[ColdColumn], where: str) -> pa.Table:
    """Rows of the copy as the pipeline would write them, by the type map's own expressions."""
    exports = [
        sql.SQL("({})::text").format(
            sql.SQL(c.storage.export.replace("{c}", sql.Identifier(c.name).as_string(connection)))
        )
        for c in columns
    ]
    query = sql.SQL("SELECT {} FROM copy WHERE {} ORDER BY id").format(sql.SQL(", ").join(exports), sql.SQL(where))
    found = list(zip(*connection.execute(query).fetchall(), strict=True))
    named = _lake_names(columns)
    names = [named[c.number] for c in columns]
    text = pa.table([pa.array(values, pa.string()) for values in found], names=names)
    with duckdb.connect() as engine:
        engine.execute("SET timezone = 'UTC'")
        engine.register("text", text)
        loads = [
            f'{c.storage.load.replace("{c}", f"""{chr(34)}{named[c.number]}{chr(34)}""")} AS "{named[c.number]}"'
            for c in columns
        ]
        typed = engine.execute(f"SELECT {', '.join(loads)} FROM text").to_arrow_table()
    for index, column in enumerate(columns):
        if column.storage.iceberg == "uuid":
            values = [None if v is None else uuid.UUID(str(v)).bytes for v in typed.column(index).to_pylist()]
            typed = typed.set_column(index, names[index], pa.array(values, pa.binary(16)))
    return typed


def _lake(
    connection: psycopg.Connection[Any], columns: list[ColdColumn], directory: Path, storage: Storage, dense: bool
) -> Any:
    rows = rows_as_arrow(connection, columns, f"ts < '{SEAM}'")
    catalog = SqlCatalog("lake", uri=f"sqlite:///{directory}/catalog.db", warehouse=storage.root, **storage.python())
    files = DENSE_FILES if dense else 1
    catalog.create_namespace("ns")
    named = _lake_names(columns)
    fields = [
        NestedField(index, named[column.number], _iceberg_type(column), required=False)
        for index, column in enumerate(columns, 1)
    ]
    # PyIceberg reads a file's minima into Python's calendar, which ends before the rows' does.
    unbounded = [column for column in columns if files == 1 or column.storage.family in ("date", "timestamp")]
    properties = {f"write.metadata.metrics.column.{named[column.number]}": "counts" for column in unbounded}
    table = catalog.create_table("ns.events", Schema(*fields), properties=properties)
    size = -(-rows.num_rows // files)
    for start in range(0, rows.num_rows, size):
        table.append(rows.slice(start, size))
    return table


def _lake_names(columns: list[ColdColumn]) -> dict[int, str]:
    return lake_names({column.number: column.name for column in columns})


def _iceberg_type(column: ColdColumn) -> IcebergType:
    if column.storage.iceberg == "uuid":
        return UUIDType()
    from pydantic import TypeAdapter

    return TypeAdapter(IcebergType).validate_python(column.storage.iceberg)


def rows(connection: psycopg.Connection[Any], query: str, parameters: Any = None) -> list[tuple[bytes | None, ...]]:
    """A result as the bytes Postgres sent: values no Python type holds are compared too."""
    result = connection.execute(query, parameters).pgresult
    assert result is not None
    return [tuple(result.get_value(row, c) for c in range(result.nfields)) for row in range(result.ntuples)]
