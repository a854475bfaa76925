"""What a person should know before registering a table: nothing here forbids it."""

from __future__ import annotations

from collections.abc import Iterator

from psycopg.sql import SQL

from frostline.catalog import queries
from frostline.catalog.database import MISCOUNTING, Connection
from frostline.catalog.names import LOWER_CHECK, UPPER_CHECK
from frostline.model.tables import Table
from frostline.tiering.refusals import names

# (query that lists what is concerned, what to know about it)
_KNOWN = (
    ("row_triggers", "row triggers ({}) will fire on cold rows too and keep their updates from being pushed down"),
    ("rules", "rules ({}) act on statements that name the table, not on those addressed to its hot partition"),
    ("publications", "publications ({}) do not carry changes of cold rows"),
    ("declared_unlogged", "{} was declared UNLOGGED: its partitions are not, but Postgres reads it on no standby"),
    ("unlogged_sequences", "sequences ({}) are UNLOGGED and begin anew after a crash: ALTER SEQUENCE ... SET LOGGED"),
    ("identity_by_index", "its replica identity ({}) goes to the hot partition with the primary key"),
)
_SET_BY_ACTION = {"c": "CASCADE", "n": "SET NULL", "d": "SET DEFAULT"}


def cautions(connection: Connection, table: Table, *, cold_fk: str) -> list[str]:
    """Each as one sentence."""
    found = [
        text.format(concerned) for query, text in _KNOWN if (concerned := names(connection, query, table.oid)) != ""
    ]
    return [
        *found,
        *_foreign_keys(connection, table, cold_fk),
        *_partitions(connection, table),
        *_partman(connection, table),
        *_server(connection),
        f"a plan in which `{table.key} > now() - ...` decides at run time which partitions are read is not parallel",
    ]


def _server(connection: Connection) -> Iterator[str]:
    if connection.info.server_version in MISCOUNTING:
        version = connection.info.parameter_status("server_version")
        yield (
            f"Postgres {version} crashes when a prepared UPDATE or DELETE with a generic plan passes over foreign "
            "partitions, 18.6 does not: upgrade it, or ALTER DATABASE ... SET plan_cache_mode = force_custom_plan"
        )


def _foreign_keys(connection: Connection, table: Table, cold_fk: str) -> Iterator[str]:
    references = queries.rows(connection, "references", oid=table.oid)
    if not references:
        return
    listed = ", ".join(f"{name} to {schema}.{to}" for name, schema, to, *_ in references)
    if cold_fk == "none":
        yield f"foreign keys ({listed}) hold for hot rows only: deleting a row they refer to does not see cold rows"
        return
    yield (
        f"foreign keys ({listed}): a trigger on the referenced table asks the lake whether cold rows refer to a row "
        "that is deleted or gets another key, so that needs the gateway; --cold-fk none does without"
    )
    changing = [
        f"{name} ON {event} {_SET_BY_ACTION[action]}"
        for name, _, _, delete, update, *_ in references
        for event, action in (("DELETE", delete), ("UPDATE", update))
        if action in _SET_BY_ACTION
    ]
    if changing:
        yield f"{', '.join(changing)}: cold rows that refer to a row are changed along with it"


def _partitions(connection: Connection, table: Table) -> Iterator[str]:
    if standing := names(connection, "on_leaves", table.oid, own=[LOWER_CHECK, UPPER_CHECK]):
        yield f"what stands on single partitions goes when they are archived: {standing}"
    for leaf in table.leaves:
        dependents = ", ".join(name for (name,) in queries.rows(connection, "dependents", oid=leaf.oid))
        if dependents:
            yield f"{leaf} stays in Postgres as long as {dependents} depend on that partition itself"
        if leaf.range is not None and leaf.range.upper is None:
            yield f"{leaf} reaches to MAXVALUE: it can never be archived, and no partition can be made after it"


def _partman(connection: Connection, table: Table) -> Iterator[str]:
    config = queries.row(connection, "partman", oid=table.oid)
    if config is None:
        return
    query = SQL("SELECT FROM {} WHERE parent_table = %s").format(SQL(config[0]))
    if connection.execute(query, (str(table),)).fetchone() is not None:
        yield (
            f"pg_partman would go on creating partitions under {table}: let Frostline create them, and "
            f"DELETE FROM {config[0]} WHERE parent_table = '{table}'"
        )
