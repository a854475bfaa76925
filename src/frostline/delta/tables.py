"""The delta table of one managed table, and what fills it with the changes of a leaf that is exported meanwhile.

A delta row is one version of a cold row: `_op` is U (the row's new values) or T (a tombstone), `_seq` orders
versions, `_prev` names the version it replaces (0: the lake's). The newest `_seq` of a key is the truth.
"""

from __future__ import annotations

import re

from psycopg.sql import SQL, Composable, Composed, Identifier, Literal

from frostline.model.tables import Leaf, Table, derived_name
from frostline.model.types import delta_type

SCHEMA = "frostline_delta"
# What else stands there, by the number of a table or, detached leaves and their indexes, of an operation.
_BESIDE = re.compile(r"(?:shape|held|references|dropped)_\d+(?:_\d+)?")


def delta_name(table: Table, id_: int) -> str:
    name = derived_name(table.name, f"_{id_}")
    return derived_name(table.name, f"_delta_{id_}") if _BESIDE.fullmatch(name) else name


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
        *_delta(table, id_),
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


def touched_name(id_: int) -> str:
    return f"touched_{id_}_keys"  # no delta is called so, whatever the table is called


def create_touched(table: Table, id_: int) -> list[Composed]:
    """Where the capture notes keys. No vacuum but ours, which nobody waits for."""
    columns = SQL(", ").join(SQL("{} {}").format(Identifier(name), type_) for name, type_ in _key(table))
    return [
        drop_touched(id_),
        SQL("CREATE TABLE {} ({}) WITH (autovacuum_enabled = false, toast.autovacuum_enabled = false)").format(
            touched(id_), columns
        ),
        # Or a publication of all tables keeps rows from being deleted.
        SQL("ALTER TABLE {} REPLICA IDENTITY FULL").format(touched(id_)),
    ]


def drop_touched(id_: int) -> Composed:
    return SQL("DROP TABLE IF EXISTS {}").format(touched(id_))


def touched(id_: int) -> Identifier:
    return Identifier(SCHEMA, touched_name(id_))


def capture(table: Table, id_: int) -> Composed:
    """The trigger function that notes which keys of a leaf were changed, and no more: writers wait for it.

    A column of the key may have been renamed or have another type meanwhile. Then nothing is noted, but nobody's write
    fails, and that something has passed by is counted, whatever becomes of the transaction: such a leaf is not swapped.
    A type itself may have been renamed or moved too, so that none is named here.
    """
    numbered = [(SQL(str(at)), Identifier(name)) for at, name in enumerate(table.primary_key)]

    def each(template: str, separator: str = " ") -> Composed:
        return SQL(separator).join(SQL(template).format(n=n, name=name, touched=touched(id_)) for n, name in numbered)

    note = SQL("INSERT INTO {} VALUES ({})")
    body = SQL(
        """
DECLARE {variables}
BEGIN
  BEGIN -- Nothing is written in here, so it takes no transaction id.
    IF tg_op <> 'INSERT' THEN {old} END IF;
    IF tg_op <> 'DELETE' THEN {new} END IF;
  EXCEPTION WHEN OTHERS THEN
    PERFORM nextval('frostline.missed');
    RETURN NULL;
  END;
  IF tg_op <> 'DELETE' THEN
    {note_new};
  END IF;
  IF tg_op = 'DELETE' OR (tg_op = 'UPDATE' AND ({olds}) IS DISTINCT FROM ({news})) THEN
    {note_old};
  END IF;
  RETURN NULL;
END """
    ).format(
        variables=each("old_{n} {touched}.{name}%TYPE; new_{n} {touched}.{name}%TYPE;"),
        old=each("old_{n} := OLD.{name};"),
        new=each("new_{n} := NEW.{name};"),
        olds=each("old_{n}", ", "),
        news=each("new_{n}", ", "),
        note_old=note.format(touched(id_), each("old_{n}", ", ")),
        note_new=note.format(touched(id_), each("new_{n}", ", ")),
    )
    # SECURITY DEFINER: whoever may write the leaf need not be able to write here.
    return SQL(
        "CREATE OR REPLACE FUNCTION {}() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER"
        " SET search_path = pg_catalog, pg_temp AS {}"
    ).format(Identifier(SCHEMA, capture_name(id_)), Literal(body.as_string(None)))


def carry(table: Table, id_: int, delta: tuple[str, str], leaf: Leaf) -> Composed:
    """The head of a query on `put`: for every noted key the leaf's row of now goes into the delta, or a tombstone.

    One statement, and so one snapshot: a change is in the leaf and noted, or neither. What has not committed yet is
    carried later. Rows are looked up one by one, however many keys the planner expects.
    """
    key = table.primary_key
    values = tuple(column.name for column in table.stored if column.name not in key)
    return SQL(
        """
WITH gone AS (DELETE FROM {touched} RETURNING {key}), put AS (
    INSERT INTO {delta} AS d (_op, _seq, _prev, {key}{values})
    SELECT CASE WHEN l.ctid IS NULL THEN 'T' ELSE 'U' END, nextval('frostline.version'), 0{either}{leaf_values}
    FROM (SELECT DISTINCT {key} FROM gone) AS t
    LEFT JOIN LATERAL (SELECT l.ctid, l.* FROM ONLY {leaf} AS l WHERE {same} LIMIT 1) AS l ON true
    ON CONFLICT ({key}, _prev) DO UPDATE SET _op = excluded._op, _seq = excluded._seq{replaced}
    RETURNING d._seq)"""
    ).format(
        touched=touched(id_),
        delta=Identifier(*delta),
        leaf=Identifier(leaf.schema, leaf.name),
        key=_names(key),
        values=_each(", {c}", values),
        # Equal keys may be spelled differently, as numbers are: the leaf's row has its own.
        either=_each(", CASE WHEN l.ctid IS NULL THEN t.{c} ELSE l.{c} END", key),
        leaf_values=_each(", l.{c}", values),
        same=same_key(table, "l.", "t."),
        replaced=_each(", {c} = excluded.{c}", (*key, *values)),
    )


def same_key(table: Table, leaf: str, other: str) -> Composed:
    """That a row of a leaf has another's key, which is of the delta's types.

    Compared by these the leaf's index may be of no use, as by text for char(n). A user's own type is the same in both,
    and is not named, for it may be called otherwise by now.
    """
    own = ((c.name, f"::{c.base_type}" if delta_type(c.base_type) != c.base_type else "") for c in table.stored)
    return SQL(" AND ").join(
        SQL("{}{c} = {}{c}{}").format(SQL(leaf), SQL(other), SQL(cast), c=Identifier(name))
        for name, cast in own
        if name in table.primary_key
    )


def untouched(table: Table, id_: int, source: Composable) -> Composed:
    """The rows of a source but for those whose keys were noted and not carried yet."""
    same = SQL(" AND ").join(SQL("s.{c} = t.{c}").format(c=Identifier(name)) for name in table.primary_key)
    return SQL("(SELECT * FROM {} AS s WHERE NOT EXISTS (SELECT FROM {} AS t WHERE {})) AS u").format(
        source, touched(id_), same
    )


def _key(table: Table) -> list[tuple[str, SQL]]:
    """The columns of the primary key, with the types they have in the delta."""
    types = {column.name: column.base_type for column in table.stored}
    return [(name, SQL(delta_type(types[name]))) for name in table.primary_key]


def _delta(table: Table, id_: int) -> list[Composed]:
    name, seq = Identifier(SCHEMA, delta_name(table, id_)), Identifier(f"{id_}_seq_key")
    # Base types: a tombstone has no values, and a domain may be NOT NULL.
    columns = SQL(", ").join(
        SQL("{} {}").format(Identifier(c.name), SQL(delta_type(c.base_type))) for c in table.stored
    )
    create = SQL(
        "CREATE TABLE {} ({}, _op \"char\" NOT NULL CHECK (_op IN ('U', 'T')),"
        " _seq bigint NOT NULL CONSTRAINT {} UNIQUE, _prev bigint NOT NULL, UNIQUE ({}, _prev))"
    ).format(name, columns, seq, _names(table.primary_key))
    # Or a publication of all tables keeps versions from being removed.
    return [create, SQL("ALTER TABLE {} REPLICA IDENTITY USING INDEX {}").format(name, seq)]


def _refuse(name: str, message: str, sqlstate: str, hint: str) -> Composed:
    body = SQL("BEGIN RAISE EXCEPTION USING MESSAGE = {}, ERRCODE = {}, HINT = {}; END").format(
        Literal(message), Literal(sqlstate), Literal(f"Nothing was changed. {hint}")
    )
    return SQL("CREATE FUNCTION {}() RETURNS trigger LANGUAGE plpgsql AS {}").format(
        Identifier(SCHEMA, name), quoted(body)
    )


def quoted(body: Composed) -> Literal:
    """A function's body: whatever stands between dollars, a name in it may have it too."""
    return Literal(body.as_string(None))


def _names(columns: tuple[str, ...], prefix: str = "") -> Composed:
    return SQL(", ").join(SQL(prefix) + Identifier(column) for column in columns)


def _each(template: str, columns: tuple[str, ...]) -> Composed:
    return SQL("").join(SQL(template).format(c=Identifier(column)) for column in columns)
