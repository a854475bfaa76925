"""Words that this database has left in the lake, one with every change: see tiering/turns.py."""

from __future__ import annotations

import uuid
from collections.abc import Callable

from frostline.catalog.database import Connection

_KEPT = 1000  # words of a table; none of a copy is ever among them


def known(connection: Connection, word: str) -> bool:
    query = "SELECT FROM frostline.turns WHERE word::text = %s"
    return connection.execute(query, (word,)).fetchone() is not None


def leave(connection: Connection, table_id: int, put: Callable[[str], bool]) -> None:
    """A new one. It is committed here before it is in the lake, so whoever dies in between knows the one there.

    Earlier ones are kept a while: who has lost his session may still be writing his own, and who looks without the
    table's lock may have read one.
    """
    word = str(uuid.uuid4())
    connection.execute("INSERT INTO frostline.turns (table_id, word) VALUES (%s, %s)", (table_id, word))
    if put(word):
        # It may have taken so long that others have forgotten it.
        connection.execute(
            "INSERT INTO frostline.turns (table_id, word) VALUES (%s, %s) ON CONFLICT DO NOTHING", (table_id, word)
        )
        connection.execute(
            "DELETE FROM frostline.turns WHERE number IN"
            " (SELECT number FROM frostline.turns WHERE table_id = %s ORDER BY number DESC OFFSET %s)",
            (table_id, _KEPT),
        )
