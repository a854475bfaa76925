"""Outbound foreign keys of cold rows: triggers on the referenced tables that keep what cold rows refer to.

Hot rows have their foreign keys on the hot partition. For cold rows a trigger of ours fires after those of Postgres
(triggers fire in the order of their names, `RI_...` first): a row that is archived between the two is found by ours.
"""

from __future__ import annotations

from psycopg.sql import SQL, Composed, Identifier, Literal

from frostline.catalog import queries
from frostline.catalog.database import Connection
from frostline.model.tables import derived_name

_FUNCTION = SQL("frostline.keep_cold_references")


def guards(connection: Connection, relation: int, id_: int) -> list[Composed]:
    """The triggers for every foreign key of a relation, deferrable where the key is."""
    found: list[Composed] = []
    references = queries.rows(connection, "references", oid=relation)
    for number, (name, schema, referenced, _, _, deferrable, deferred, columns) in enumerate(references, 1):
        on = Identifier(schema, referenced)
        call = SQL("{}({}, {})").format(_FUNCTION, Literal(str(id_)), Literal(name))
        when = SQL(" OR ").join(
            SQL("OLD.{c} IS DISTINCT FROM NEW.{c}").format(c=Identifier(column)) for column in columns
        )
        timing = SQL(
            f"{'' if deferrable else 'NOT '}DEFERRABLE{' INITIALLY DEFERRED' if deferred else ''} FOR EACH ROW"
        )
        found += [
            SQL("CREATE CONSTRAINT TRIGGER {} AFTER DELETE ON {} {} EXECUTE FUNCTION {}").format(
                _named(f"{id_}_{number}", name, "delete"), on, timing, call
            ),
            SQL("CREATE CONSTRAINT TRIGGER {} AFTER UPDATE ON {} {} WHEN ({}) EXECUTE FUNCTION {}").format(
                _named(f"{id_}_{number}", name, "update"), on, timing, when, call
            ),
            SQL("CREATE TRIGGER {} BEFORE TRUNCATE ON {} FOR EACH STATEMENT EXECUTE FUNCTION {}").format(
                _named(f"{id_}_{number}", name, "truncate"), on, call
            ),
        ]
    return found


def _named(number: str, constraint: str, event: str) -> Identifier:
    return Identifier(derived_name(f"frostline_{number}_{constraint}", f"_{event}"))
