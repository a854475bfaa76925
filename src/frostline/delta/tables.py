"""The delta table of one managed table and the trigger function that fills it while a leaf is exported.

A delta row is one version of a cold row: `_op` is U (the row's new values) or T (a tombstone), `_seq` orders
versions, `_prev` names the version it replaces (0: the lake's). The newest `_seq` of a key is the truth.
"""

from __future__ import annotations

from psycopg.sql import SQL, Composed, Identifier, Literal

from frostline.model.tables import Table, derived_name

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
    """The delta table, its capture function, and the functions that refuse what would get lost."""
    return [
        _delta(table, id_),
        _capture(table, id_),
        _refuse(no_truncate_name(id_), f"a partition of {table} on its way to the lake cannot be truncated", "55006"),
        _refuse(archived_name(id_), f"this partition of {table} has been archived", "55000"),
    ]


def _delta(table: Table, id_: int) -> Composed:
    columns = SQL(", ").join(SQL("{} {}").format(Identifier(c.name), SQL(c.type)) for c in table.stored)
    return SQL(
        "CREATE TABLE {} ({}, _op \"char\" NOT NULL CHECK (_op IN ('U', 'T')), _seq bigint NOT NULL UNIQUE,"
        " _prev bigint NOT NULL, UNIQUE ({}, _prev))"
    ).format(Identifier(SCHEMA, delta_name(table, id_)), columns, _names(table.primary_key))


def _capture(table: Table, id_: int) -> Composed:
    # SECURITY DEFINER: whoever may write the leaf need not be able to write the delta.
    every, key = tuple(column.name for column in table.stored), table.primary_key
    delta = Identifier(SCHEMA, delta_name(table, id_))
    return SQL(
        """CREATE FUNCTION {function}() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp AS $frostline$
#variable_conflict use_column
BEGIN
  IF tg_op = 'DELETE' OR (tg_op = 'UPDATE' AND ({old_key}) IS DISTINCT FROM ({new_key})) THEN
    INSERT INTO {delta} AS d (_op, _seq, _prev, {key}) VALUES ('T', nextval('frostline.version'), 0, {old_key})
    ON CONFLICT ({key}, _prev) DO UPDATE SET _op = excluded._op, _seq = excluded._seq{cleared};
  END IF;
  IF tg_op <> 'DELETE' THEN
    INSERT INTO {delta} AS d (_op, _seq, _prev, {every}) VALUES ('U', nextval('frostline.version'), 0, {new})
    ON CONFLICT ({key}, _prev) DO UPDATE SET _op = excluded._op, _seq = excluded._seq{replaced};
  END IF;
  RETURN NULL;
END $frostline$"""
    ).format(
        function=Identifier(SCHEMA, capture_name(id_)),
        delta=delta,
        key=_names(key),
        every=_names(every),
        old_key=_names(key, "OLD."),
        new_key=_names(key, "NEW."),
        new=_names(every, "NEW."),
        cleared=_assignments(tuple(c for c in every if c not in key), "NULL"),
        replaced=_assignments(tuple(c for c in every if c not in key), None),
    )


def _refuse(name: str, message: str, sqlstate: str) -> Composed:
    body = SQL(
        """BEGIN
  RAISE EXCEPTION USING MESSAGE = {}, ERRCODE = {}, HINT = 'Nothing was changed. Run the statement again.';
END"""
    ).format(Literal(message), Literal(sqlstate))
    return SQL("CREATE FUNCTION {}() RETURNS trigger LANGUAGE plpgsql AS {}").format(
        Identifier(SCHEMA, name), Literal(body.as_string(None))
    )


def _names(columns: tuple[str, ...], prefix: str = "") -> Composed:
    return SQL(", ").join(SQL(prefix) + Identifier(column) for column in columns)


def _assignments(columns: tuple[str, ...], value: str | None) -> Composed:
    """`, c = ...` for each column: a fixed SQL value, or the row that was proposed."""
    return SQL("").join(
        SQL(", {} = {}").format(Identifier(c), SQL(value) if value else SQL("excluded.") + Identifier(c))
        for c in columns
    )
