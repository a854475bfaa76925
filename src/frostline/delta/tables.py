"""The delta table of one managed table and the trigger function that fills it while a leaf is exported.

A delta row is one version of a cold row: `_op` is U (the row's new values) or T (a tombstone), `_seq` orders
versions, `_prev` names the version it replaces (0: the lake's). The newest `_seq` of a key is the truth.
"""

from __future__ import annotations

from psycopg.sql import SQL, Composed, Identifier, Literal

from frostline.model.tables import Leaf, Table, derived_name
from frostline.model.types import delta_type

SCHEMA = "frostline_delta"


def delta_name(table: Table, id_: int) -> str:
    return derived_name(table.name, f"_{id_}")


def capture_name(id_: int) -> str:
    return f"capture_{id_}"


def no_truncate_name(id_: int) -> str:
    return f"no_truncate_{id_}"


def archived_name(id_: int) -> str:
    return f"archived_{id_}"


def create(table: Table, id_: int) -> list[Composed]:
    """The delta table and the functions that refuse what would get lost."""
    truncate = f"a partition of {table} on its way to the lake cannot be truncated"
    return [
        _delta(table, id_),
        _refuse(
            no_truncate_name(id_), truncate, "55006", "Delete its rows, or truncate it when the archive run is over."
        ),
        _refuse(
            archived_name(id_), f"this partition of {table} has been archived", "55000", "Run the statement again."
        ),
    ]


def shape_name(id_: int) -> str:
    return f"shape_{id_}"


def create_shape(table: Table, id_: int) -> list[Composed]:
    """An empty table like the user's: what is made after it needs no lock on that."""
    name = Identifier(SCHEMA, shape_name(id_))
    return [
        SQL("DROP TABLE IF EXISTS {}").format(name),
        SQL("CREATE TABLE {} (LIKE {} INCLUDING GENERATED INCLUDING CONSTRAINTS)").format(
            name, Identifier(table.schema, table.name)
        ),
    ]


def capture(table: Table, id_: int, delta: tuple[str, str], leaf: Leaf, shape: str) -> Composed:
    """The trigger function that writes a leaf's changes to the delta.

    OLD and NEW only tell which keys changed; the row is read again. A user's own trigger may have changed it once more
    since, and its change was captured before this one. A snapshot of before may show another row of the key, which
    somebody has deleted since: ours is younger, and where there is none of ours, locking the other is a serialization
    failure.

    While the table or the leaf has another shape or name nothing is captured. Such a leaf is not swapped, not even when
    it is what it was again: that something has passed by is counted, whatever becomes of the transaction. So is what
    policies may hide from this function, which would take it for deleted.
    """
    every, key = tuple(column.name for column in table.stored), table.primary_key
    values = tuple(name for name in every if name not in key)

    def note(record: str) -> Composed:
        return SQL(
            """
    INSERT INTO {delta} AS d (_op, _seq, _prev, {key}{values})
    SELECT CASE WHEN l.ctid IS NULL THEN 'T' ELSE 'U' END, nextval('frostline.version'), 0, {record_key}{leaf_values}
    FROM (VALUES (1)) AS one LEFT JOIN LATERAL (
      SELECT l.ctid, l.* FROM ONLY {leaf} AS l WHERE {same} ORDER BY age(l.xmin) LIMIT 1 FOR KEY SHARE) AS l ON true
    ON CONFLICT ({key}, _prev) DO UPDATE SET _op = excluded._op, _seq = excluded._seq{replaced};"""
        ).format(
            delta=Identifier(*delta),
            leaf=Identifier(leaf.schema, leaf.name),
            key=_names(key),
            record_key=_names(key, f"{record}."),
            values=_each(", {c}", values),
            leaf_values=_each(", l.{c}", values),
            same=SQL(" AND ").join(SQL("l.{c} = " + record + ".{c}").format(c=Identifier(name)) for name in key),
            replaced=_each(", {c} = excluded.{c}", values),
        )

    # SECURITY DEFINER: whoever may write the leaf need not be able to write the delta.
    return SQL(
        """CREATE OR REPLACE FUNCTION {function}() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp AS $frostline$
#variable_conflict use_column
BEGIN
  IF tg_table_name <> {name} OR tg_table_schema <> {schema} OR frostline.shape({id}) <> {shape}
    OR row_security_active({quoted}) THEN
    PERFORM nextval('frostline.missed');
    RETURN NULL;
  END IF;
  IF tg_op = 'DELETE' OR (tg_op = 'UPDATE' AND ({old_key}) IS DISTINCT FROM ({new_key})) THEN{old}
  END IF;
  IF tg_op <> 'DELETE' THEN{new}
  END IF;
  RETURN NULL;
END $frostline$"""
    ).format(
        function=Identifier(SCHEMA, capture_name(id_)),
        name=Literal(leaf.name),
        schema=Literal(leaf.schema),
        id=Literal(id_),
        shape=Literal(shape),
        quoted=Literal(Identifier(leaf.schema, leaf.name).as_string(None)),
        old_key=_names(key, "OLD."),
        new_key=_names(key, "NEW."),
        old=note("OLD"),
        new=note("NEW"),
    )


def _delta(table: Table, id_: int) -> Composed:
    # Base types: a tombstone has no values, and a domain may be NOT NULL.
    columns = SQL(", ").join(
        SQL("{} {}").format(Identifier(c.name), SQL(delta_type(c.base_type))) for c in table.stored
    )
    return SQL(
        "CREATE TABLE {} ({}, _op \"char\" NOT NULL CHECK (_op IN ('U', 'T')), _seq bigint NOT NULL UNIQUE,"
        " _prev bigint NOT NULL, UNIQUE ({}, _prev))"
    ).format(Identifier(SCHEMA, delta_name(table, id_)), columns, _names(table.primary_key))


def _refuse(name: str, message: str, sqlstate: str, hint: str) -> Composed:
    body = SQL("BEGIN RAISE EXCEPTION USING MESSAGE = {}, ERRCODE = {}, HINT = {}; END").format(
        Literal(message), Literal(sqlstate), Literal(f"Nothing was changed. {hint}")
    )
    return SQL("CREATE FUNCTION {}() RETURNS trigger LANGUAGE plpgsql AS {}").format(
        Identifier(SCHEMA, name), Literal(body.as_string(None))
    )


def _names(columns: tuple[str, ...], prefix: str = "") -> Composed:
    return SQL(", ").join(SQL(prefix) + Identifier(column) for column in columns)


def _each(template: str, columns: tuple[str, ...]) -> Composed:
    return SQL("").join(SQL(template).format(c=Identifier(column)) for column in columns)
