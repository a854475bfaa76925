"""The table in both forms with a gateway, and the ways to ask about either."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

import psycopg

from frostline.catalog.cold import PREPARE, ColdTable, cold_table
from frostline.catalog.names import GATEWAY_USER, SERVER_NAME
from frostline.gateway.clauses import clauses
from frostline.gateway.constants import Unknown
from frostline.gateway.server import Gateway
from frostline.gateway.translate import Translated, translate
from integration.gateway.world import SEAM, World, rows

COLD = f"ts < '{SEAM}'"
# Which of several rows fails first is for each scan to say.
SAME_ERROR = frozenset({"22003", "22008", "22012"})

Outcome = list[tuple[bytes | None, ...]] | str


@dataclass
class Pair:
    """`{t}` in a query stands for the tiered table, then for its plain copy."""

    world: World
    gateway: Gateway
    connection: psycopg.Connection[Any]
    direct: psycopg.Connection[Any]
    table: ColdTable = field(init=False)

    def __post_init__(self) -> None:
        self.connection.execute(PREPARE)
        self.table = cold_table(self.connection, self.world.table_id)

    @property
    def source(self) -> str:
        """All cold rows, as a foreign table names them."""
        return f'"table {self.world.table_id}"."from MINVALUE to {SEAM}"'

    def translated(self, query: str) -> Translated | None:
        """What DuckDB would be asked for a remote statement; None: Postgres evaluates it."""
        try:
            return translate(clauses(query.replace("{t}", self.source)), self.table)
        except Unknown:
            return None

    def answered(self, path: str) -> float:
        """How many queries the gateway has answered this way."""
        found = re.search(rf'queries_total{{path="{path}"}} (\d+)', self.gateway._metrics.text())
        return float(found[1]) if found else 0.0

    def both(self, query: str) -> tuple[Outcome, Outcome]:
        """Through postgres_fdw: the tiered table's answer and the copy's, or their errors' SQLSTATEs."""
        tables = ("events", "copy")
        tiered, plain = (outcome(self.connection, query.replace("{t}", table)) for table in tables)
        return tiered, plain

    def remotely(self, query: str, cold: str) -> tuple[Outcome, Outcome]:
        """Straight from the gateway: one statement on the cold rows, and the same on the copy's cold rows."""
        remote = outcome(self.direct, query.replace("{t}", self.source))
        return remote, outcome(self.connection, cold.replace("{t}", "copy"))


def open_pair(world: World, gateway: Gateway) -> Pair:
    connection = world.connect()
    connection.execute("SET timezone = 'UTC'")
    row = connection.execute(
        "SELECT i.id::text, m.umoptions FROM frostline.installation i, pg_user_mappings m WHERE m.srvname = %s",
        [SERVER_NAME],
    ).fetchone()
    assert row is not None
    password = dict(option.split("=", 1) for option in row[1])["password"]
    direct: psycopg.Connection[Any] = psycopg.connect(
        host=gateway.host,
        port=gateway.port,
        dbname=row[0],
        user=GATEWAY_USER,
        password=password,
        autocommit=True,
        prepare_threshold=None,
    )
    return Pair(world, gateway, connection, direct)


def outcome(connection: psycopg.Connection[Any], query: str) -> Outcome:
    """A result as the bytes Postgres sent, or the error's SQLSTATE."""
    try:
        return rows(connection, query)
    except psycopg.Error as error:
        return str(error.sqlstate)


def agree(left: Outcome, right: Outcome, *, ordered: bool = False) -> bool:
    if isinstance(left, str) and isinstance(right, str):
        return left == right or {left, right} <= SAME_ERROR
    if isinstance(left, str) or isinstance(right, str):
        return False
    return left == right if ordered else sorted(left, key=repr) == sorted(right, key=repr)
