"""Which period a person means: by the name of its partition, or by a value of the partition key that lies in it."""

from __future__ import annotations

from dataclasses import dataclass

import psycopg
from psycopg.sql import SQL

from frostline.catalog.database import Connection
from frostline.catalog.registry import Managed
from frostline.model.bounds import Bound, Range, parse_bound


@dataclass(frozen=True)
class Meant:
    text: str
    point: Bound | None  # if the text is a value of the key

    def is_(self, name: str, range_: Range | None) -> bool:
        """The partition of that name, with its schema, and range (None: it is not known)."""
        if self.text in (name, name.partition(".")[2]):
            return True
        return self.point is not None and range_ is not None and range_.holds(self.point)


def meant(connection: Connection, managed: Managed, text: str) -> Meant:
    try:
        query = SQL("SELECT frostline.output(%s::{})").format(SQL(managed.table.key_type))
        row = connection.execute(query, (text,)).fetchone()
    except psycopg.DataError:
        row = None
    return Meant(text, parse_bound(row[0]) if row else None)
