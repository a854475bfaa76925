"""All that a plain table has besides its rows, read from the catalog: what the partitioned one is to have too.

It is read when the work begins and once more under the lock of the swap. What the copy was made after must be the same
then; the rest is taken as it is by then.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Any

from frostline.catalog import queries
from frostline.catalog.database import Connection

# What the empty copy is made after.
COPIED = (
    *("owner", "options", "tablespace", "method", "replica_identity"),
    *("columns", "indexes", "primary_key", "checks"),
)
Texts = tuple[Any, ...]  # a row of a query: texts, flags and lists of texts


@dataclass(frozen=True)
class Shape:
    owner: str
    comment: str | None
    options: tuple[str, ...]  # storage parameters, those of its TOAST table included
    tablespace: str | None
    method: str | None
    replica_identity: str
    row_security: bool
    forced: bool
    columns: tuple[Texts, ...]
    indexes: tuple[Texts, ...]
    primary_key: Texts
    checks: tuple[Texts, ...]
    foreign_keys: tuple[Texts, ...]
    triggers: tuple[Texts, ...]
    policies: tuple[Texts, ...]
    statistics: tuple[Texts, ...]
    publications: tuple[Texts, ...]
    views: tuple[Texts, ...]
    sequences: tuple[Texts, ...]
    grants: tuple[Texts, ...]

    def json(self) -> Any:
        """As it is kept, and compared."""
        return json.loads(json.dumps(asdict(self)))


def read(connection: Connection, oid: int) -> Shape:
    row = queries.row(connection, "plain_table", oid=oid)
    assert row is not None
    owner, comment, options, toast, tablespace, method, identity, security, forced = row
    return Shape(
        owner=owner,
        comment=comment,
        options=(*(options or ()), *(f"toast.{option}" for option in toast or ())),
        tablespace=tablespace,
        method=method,
        replica_identity=identity,
        row_security=security,
        forced=forced,
        columns=_rows(connection, "plain_columns", oid),
        indexes=_rows(connection, "plain_indexes", oid),
        primary_key=queries.row(connection, "plain_primary_key", oid=oid) or (),
        checks=_rows(connection, "plain_checks", oid),
        foreign_keys=_rows(connection, "plain_foreign_keys", oid),
        triggers=_rows(connection, "plain_triggers", oid),
        policies=_rows(connection, "plain_policies", oid),
        statistics=_rows(connection, "plain_statistics", oid),
        publications=_rows(connection, "plain_publications", oid),
        views=_rows(connection, "plain_views", oid),
        sequences=_rows(connection, "plain_sequences", oid),
        grants=_rows(connection, "all_grants", oid),
    )


def _rows(connection: Connection, query: str, oid: int) -> tuple[Texts, ...]:
    return tuple(queries.rows(connection, query, oid=oid))
