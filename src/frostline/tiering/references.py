"""Outbound foreign keys of cold rows: triggers on the referenced tables that keep what cold rows refer to.

Hot rows have their foreign keys on the hot partition. For cold rows a trigger of ours fires after those of Postgres
(triggers fire in the order of their names, `RI_...` first): a row that is archived between the two is found by ours.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from psycopg.sql import SQL, Composed, Identifier, Literal

from frostline.catalog import queries
from frostline.catalog.database import Connection
from frostline.errors import RefusedError
from frostline.model.tables import as_sql, derived_name

_FUNCTION = SQL("frostline.keep_cold_references")
_NO_ACTION, _RESTRICT = "a", "r"


@dataclass(frozen=True)
class _Key:
    """A foreign key; actions are as in pg_constraint."""

    name: str
    schema: str
    referenced: str
    on_delete: str
    on_update: str
    deferrable: bool
    deferred: bool
    columns: list[str]
    partitioned: bool  # the referenced table

    def timing(self, action: str) -> str:
        """Postgres defers NO ACTION only: whatever else is to be done is done at once."""
        if not self.deferrable or action != _NO_ACTION:
            return "NOT DEFERRABLE"
        return "DEFERRABLE INITIALLY DEFERRED" if self.deferred else "DEFERRABLE"


@dataclass(frozen=True)
class _Guard:
    name: str
    deferrable: bool
    statement: Composed


def guards(connection: Connection, relation: int, id_: int) -> list[Composed]:
    """The triggers for every foreign key of a relation."""
    return [guard.statement for guard in _guards(connection, relation, id_)]


def check_removable(connection: Connection, id_: int) -> None:
    """Whoever may create a trigger on a table of another owner may not drop it: that takes a member of its owner."""
    guarded = {(schema, name) for _, schema, name, _ in queries.rows(connection, "reference_guards", table=id_)}
    owners = {f"{schema}.{name}": _foreign_owner(connection, schema, name) for schema, name in sorted(guarded)}
    others = {table: owner for table, owner in owners.items() if owner is not None}
    if others:
        role = as_sql(connection.info.user)
        raise RefusedError(
            f"triggers on {', '.join(others)} are to be dropped, which only their owners may; nothing was changed",
            hint=f"GRANT {', '.join(sorted(set(others.values())))} TO {role}; take it back when this is done",
            sqlstate="42501",
        )


def _foreign_owner(connection: Connection, schema: str, name: str) -> str | None:
    row = connection.execute(
        "SELECT c.relowner::regrole::text FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace"
        " WHERE n.nspname = %s AND c.relname = %s AND NOT pg_has_role(c.relowner, 'USAGE')",
        (schema, name),
    ).fetchone()
    return None if row is None else str(row[0])


def removal(connection: Connection, id_: int) -> list[Composed]:
    """They are taken away."""
    return [
        SQL("DROP TRIGGER {} ON {}").format(Identifier(trigger), Identifier(schema, name))
        for trigger, schema, name, _ in queries.rows(connection, "reference_guards", table=id_)
    ]


def renewal(connection: Connection, relation: int, id_: int) -> list[Composed]:
    """What is to be done where an older version has made them, and made them otherwise."""
    there = {(name, deferrable) for name, _, _, deferrable in queries.rows(connection, "reference_guards", table=id_)}
    wanted = list(_guards(connection, relation, id_))
    if there == {(guard.name, guard.deferrable) for guard in wanted}:
        return []
    return [*removal(connection, id_), *(guard.statement for guard in wanted)]


def _guards(connection: Connection, relation: int, id_: int) -> Iterator[_Guard]:
    for number, row in enumerate(queries.rows(connection, "references", oid=relation), 1):
        yield from _of_key(_Key(*row), id_, number)


def _of_key(key: _Key, id_: int, number: int) -> Iterator[_Guard]:
    on = Identifier(key.schema, key.referenced)
    call = SQL("{}({}, {})").format(_FUNCTION, Literal(str(id_)), Literal(key.name))
    changed = SQL(" OR ").join(
        SQL("OLD.{c} IS DISTINCT FROM NEW.{c}").format(c=Identifier(column)) for column in key.columns
    )

    def guard(event: str, timing: str, statement: str) -> _Guard:
        name = derived_name(f"frostline_{id_}_{number}_{key.name}", f"_{event}")
        made = SQL(statement).format(name=Identifier(name), on=on, timing=SQL(timing), call=call, changed=changed)
        return _Guard(name, timing.startswith("DEFERRABLE"), made)

    yield guard(
        "delete",
        key.timing(key.on_delete),
        "CREATE CONSTRAINT TRIGGER {name} AFTER DELETE ON {on} {timing} FOR EACH ROW EXECUTE FUNCTION {call}",
    )
    yield guard(
        "update",
        key.timing(key.on_update),
        "CREATE CONSTRAINT TRIGGER {name} AFTER UPDATE ON {on} {timing} FOR EACH ROW WHEN ({changed})"
        " EXECUTE FUNCTION {call}",
    )
    yield guard(
        "truncate", "", "CREATE TRIGGER {name} BEFORE TRUNCATE ON {on} FOR EACH STATEMENT EXECUTE FUNCTION {call}"
    )
    if key.partitioned and key.on_delete not in (_NO_ACTION, _RESTRICT):
        # A row that an UPDATE moves to another partition is deleted, as far as triggers can tell.
        yield guard(
            "move",
            "",
            "CREATE TRIGGER {name} BEFORE UPDATE ON {on} FOR EACH ROW WHEN ({changed}) EXECUTE FUNCTION {call}",
        )
