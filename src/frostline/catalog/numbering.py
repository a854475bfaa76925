"""Whether columns have the numbers that the lake knows them by.

A dump numbers them anew, and what is made from it would show one column's values as another's.
"""

from __future__ import annotations

from frostline.catalog import identity, queries
from frostline.catalog.database import Connection, in_recovery
from frostline.errors import RefusedError


def check(connection: Connection, table_id: int, table: str) -> None:
    """Before a database that may have been loaded from a dump goes on with the rows of the lake."""
    lost = [name for (name,) in queries.rows(connection, "columns_without_number", table=table_id)]
    if lost:
        raise RefusedError(
            f"the columns of {table} have other numbers than in the lake; nothing was changed",
            detail=f"in the lake and not here: {', '.join(lost)}",
            hint="a dump gives columns new numbers where some had been dropped before: use a physical copy instead",
        )
    renamed = queries.rows(connection, "columns_renamed_before_the_dump", table=table_id)
    if renamed:
        raise RefusedError(
            f"columns of {table} were altered before the dump that it was loaded from, and which in the lake they are"
            " cannot be told; nothing was changed",
            detail="; ".join(f"{here} here, {before} before" for here, before in renamed),
            hint="`frostline sync` in the original, and load another dump; or use a physical copy\n"
            "if they were renamed, and none was dropped: rename them back here, adopt, and rename them again",
        )


def check_unless_adopted(connection: Connection) -> None:
    """Before a gateway serves a database that nobody has said yet what it is."""
    if in_recovery(connection) or identity.known(connection) == identity.here(connection):
        return
    tables = connection.execute(
        "SELECT t.id, c.oid::regclass::text FROM frostline.tables t JOIN pg_class c ON c.oid = t.relation ORDER BY t.id"
    )
    for table_id, name in tables.fetchall():
        check(connection, table_id, name)
