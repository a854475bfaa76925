"""Which period a person means: by the name of its partition, or by a value of the partition key that lies in it."""

from __future__ import annotations

from dataclasses import dataclass

import psycopg
from psycopg.sql import SQL, Composed

from frostline.catalog.database import Connection
from frostline.catalog.registry import Managed
from frostline.model.bounds import Bound, Range, parse_bound


@dataclass(frozen=True)
class Meant:
    names: frozenset[str]  # the text as it is, and as SQL reads it
    point: Bound | None  # if the text is a value of the key

    def is_(self, name: str, range_: Range | None) -> bool:
        """The partition of that name, with its schema, and range (None: it is not known)."""
        if not self.names.isdisjoint((name, name.partition(".")[2])):
            return True
        return self.point is not None and range_ is not None and range_.holds(self.point)


def meant(connection: Connection, managed: Managed, text: str) -> Meant:
    point = _asked(connection, SQL("SELECT frostline.output(%s::{})").format(SQL(managed.table.key_type)), text)
    named = _asked(connection, SQL("SELECT array_to_string(parse_ident(%s), '.')"), text)
    return Meant(frozenset({text, named or text}), parse_bound(point) if point else None)


def _asked(connection: Connection, query: SQL | Composed, text: str) -> str | None:
    try:
        row = connection.execute(query, (text,)).fetchone()
    except psycopg.DataError:
        return None
    return row[0] if row else None
