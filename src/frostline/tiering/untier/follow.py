"""Step 2, follow: from here on every change of the period reaches the new leaf in the writer's own transaction.

So the leaf is, to every snapshot taken from now on, what the period is. What was changed between the load's snapshot
and now is applied here, and only older snapshots would find that missing: the last step waits for them to be gone.
"""

from __future__ import annotations

from psycopg.sql import SQL, Composed, Identifier

from frostline.catalog.database import Connection
from frostline.catalog.registry import Managed
from frostline.delta.tables import SCHEMA, quoted, same_key
from frostline.errors import OperationError
from frostline.faults import reached
from frostline.tiering import ddl
from frostline.tiering.archive.steps import wanted
from frostline.tiering.locks import lock, with_short_locks
from frostline.tiering.untier.operation import Operation, function_name, trigger_name


def follow(connection: Connection, operation: Operation) -> int:
    """Returns how many rows had been changed since the load's snapshot."""
    managed = operation.managed

    def work() -> int:
        # The lock of CREATE TRIGGER, before anything is read: it waits for every writer of the delta.
        lock(connection, [(Identifier(*managed.delta), "SHARE ROW EXCLUSIVE")], operation.locks.timeout_ms)
        row = connection.execute(
            "SELECT o.loaded_from IS NOT DISTINCT FROM t.snapshot_id AND o.loaded_staged = t.staged"
            " FROM frostline.operations o JOIN frostline.tables t ON t.id = o.table_id WHERE o.id = %s",
            (operation.id,),
        ).fetchone()
        if row != (True,):
            raise OperationError(
                f"the lake was changed while {operation.period} was loaded; its rows stay there",
                hint="run the same command again",
            )
        changed = sum(connection.execute(statement).rowcount for statement in _catch_up(operation))
        if changed:
            connection.execute(
                "UPDATE frostline.operations SET overtook = pg_current_xact_id() WHERE id = %s", (operation.id,)
            )
        reached("follow.applied")
        for statement in (_function(operation), *_trigger(operation)):
            connection.execute(statement)
        reached("follow.commit")
        return changed

    locks = wanted(connection, operation, written=[managed.delta_oid])
    return with_short_locks(connection, work, f"following changes of {operation.period}", locks)


def no_longer(operation: Operation) -> Composed:
    """The trigger's function once the leaf is in its place; the trigger itself goes when nobody waits for it."""
    return SQL("CREATE OR REPLACE FUNCTION {}() RETURNS trigger LANGUAGE plpgsql AS {}").format(
        Identifier(SCHEMA, operation.function), "BEGIN RETURN NULL; END"
    )


def end(managed: Managed, id_: int) -> list[Composed]:
    return [
        SQL("DROP TRIGGER IF EXISTS {} ON {}").format(Identifier(trigger_name(id_)), Identifier(*managed.delta)),
        SQL("DROP FUNCTION IF EXISTS {}()").format(Identifier(SCHEMA, function_name(id_))),
    ]


def _catch_up(operation: Operation) -> list[Composed]:
    """The newest version of every key that has one the load has not seen."""
    managed = operation.managed
    table = managed.table
    newest = SQL(
        "SELECT DISTINCT ON ({key}) d.* FROM {delta} d WHERE {within} AND EXISTS (SELECT FROM {delta} n"
        " WHERE {same} AND n._seq <> ALL (SELECT unnest(o.loaded) FROM frostline.operations o WHERE o.id = {id}))"
        " ORDER BY {key}, d._seq DESC"
    ).format(
        key=_list(table.primary_key, "d."),
        delta=Identifier(*managed.delta),
        within=ddl.within(table, operation.period.range),
        same=_same(table.primary_key, "n.", "d."),
        id=operation.id,
    )
    leaf = Identifier(operation.schema, operation.period.name)
    delete = SQL("DELETE FROM {} l USING ({}) v WHERE {} AND v._op = 'T'").format(
        leaf, newest, _same(table.primary_key, "l.", "v.")
    )
    source = SQL("SELECT {} FROM ({}) v WHERE v._op = 'U'").format(_list(_written(managed), "v."), newest)
    return [delete, _upsert(operation, source)]


def _upsert(operation: Operation, source: Composed) -> Composed:
    managed = operation.managed
    columns, key = _written(managed), managed.table.primary_key
    changed = [name for name in columns if name not in key]
    action = (
        SQL("UPDATE SET {}").format(SQL(", ").join(SQL("{c} = excluded.{c}").format(c=Identifier(c)) for c in changed))
        if changed
        else SQL("NOTHING")
    )
    return SQL("INSERT INTO {} ({}) {} ON CONFLICT ({}) DO {}").format(
        Identifier(operation.schema, operation.period.name), _list(columns), source, _list(key), action
    )


def _function(operation: Operation) -> Composed:
    """As whoever untiers: a writer needs no rights on the leaf."""
    managed = operation.managed
    values = SQL("VALUES ({})").format(_list(_written(managed), "NEW."))
    body = SQL(
        """#variable_conflict use_column
BEGIN
  IF NEW._op = 'T' THEN
    DELETE FROM ONLY {leaf} l WHERE {same};
  ELSE
    {upsert};
  END IF;
  RETURN NULL;
END"""
    ).format(
        leaf=Identifier(operation.schema, operation.period.name),
        same=same_key(managed.table, "l.", "NEW."),
        upsert=_upsert(operation, values),
    )
    return SQL(
        "CREATE OR REPLACE FUNCTION {}() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER"
        " SET search_path = pg_catalog, pg_temp AS {}"
    ).format(Identifier(SCHEMA, operation.function), quoted(body))


def _trigger(operation: Operation) -> list[Composed]:
    managed = operation.managed
    delta, name = Identifier(*managed.delta), Identifier(operation.trigger)
    key, within = managed.table.key, operation.period.range
    sides = [
        SQL("NEW.{} {} {}::{}").format(Identifier(key), SQL(operator), side.text, SQL(managed.table.key_type))
        for operator, side in ((">=", within.lower), ("<", within.upper))
        if side is not None
    ]
    return [
        SQL("CREATE TRIGGER {} AFTER INSERT ON {} FOR EACH ROW WHEN ({}) EXECUTE FUNCTION {}()").format(
            name, delta, SQL(" AND ").join(sides), Identifier(SCHEMA, operation.function)
        ),
        SQL("ALTER TABLE {} ENABLE ALWAYS TRIGGER {}").format(delta, name),
    ]


def _written(managed: Managed) -> tuple[str, ...]:
    return tuple(column.name for column in managed.table.columns if not column.generated)


def _list(names: tuple[str, ...], prefix: str = "") -> Composed:
    return SQL(", ").join(SQL(prefix) + Identifier(name) for name in names)


def _same(names: tuple[str, ...], one: str, other: str) -> Composed:
    return SQL(" AND ").join(SQL("{}{c} = {}{c}").format(SQL(one), SQL(other), c=Identifier(name)) for name in names)
