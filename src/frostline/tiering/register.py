"""Registration: the table's leaves move under a hot partition, so that foreign partitions can stand beside it.

Only metadata changes. The table keeps its OID, and with it its views, grants, policies, triggers and identity.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import psycopg
from psycopg.sql import SQL, Composed, Identifier, Literal
from psycopg.types.json import Jsonb

from frostline.catalog import describe, queries, registry
from frostline.catalog.database import Connection
from frostline.catalog.names import BOUND_CHECK
from frostline.delta import tables as delta
from frostline.errors import ConfigError, OperationError, RefusedError
from frostline.model.bounds import Bound, Range
from frostline.model.tables import Leaf, Table, ascii_slug, derived_name, lake_names
from frostline.tiering import ddl, refusals
from frostline.tiering.ddl import IDENTITY_IN_PARTITIONS
from frostline.tiering.locks import with_short_locks


@dataclass(frozen=True)
class Plan:
    """All that registration will do: `checks` one by one, then `swap` in one transaction."""

    table: Table
    hot_for: str
    hot: str
    before: str | None
    lake: tuple[str, str]
    seam: Bound | None
    id: int
    checks: list[Composed]
    swap: list[Composed]
    shape: dict[str, object]
    warnings: list[str] = field(default_factory=list)

    def sql(self, connection: Connection) -> str:
        statements = [*self.checks, SQL("BEGIN"), *self.swap, SQL("COMMIT")]
        return "\n".join(f"{statement.as_string(connection)};" for statement in statements)


def plan(connection: Connection, text: str, hot_for: str) -> Plan | registry.Managed:
    """What registering would do, or the managed table when it is registered already; changes nothing."""
    registry.require(connection)
    oid, schema, name = describe.resolve(connection, text)
    if (managed := registry.find(connection, oid)) is not None:
        return managed
    kind = queries.row(connection, "resolve", schema=schema, name=name)
    found = refusals.refusals(connection, oid, kind[1] if kind else "")
    if found:
        raise RefusedError(
            f"{schema}.{name} cannot be registered as it is; nothing was changed",
            detail="\n".join(f"  - {o.reason}" for o in found),
            hint="\n".join(f"  -> {o.remedy}" for o in found),
        )
    table = describe.table(connection, oid, schema, name)
    check_hot_for(connection, table, hot_for)
    return _plan(connection, table, hot_for)


def register(connection: Connection, text: str, hot_for: str) -> Plan | registry.Managed:
    """Register a table; a second time it changes nothing."""
    found = plan(connection, text, hot_for)
    if isinstance(found, registry.Managed):
        return found
    for leaf in found.table.leaves:
        ensure_bound_check(connection, found.table, leaf)
    with_short_locks(connection, lambda: _swap(connection, found), f"registering {found.table}")
    return found


def check_hot_for(connection: Connection, table: Table, hot_for: str) -> None:
    """A positive interval for a time key, a positive width for an integer one."""
    type_ = "bigint" if table.key_type.startswith("int") else "interval"
    example = "1000000" if type_ == "bigint" else "3 months"
    try:
        row = connection.execute(
            SQL("SELECT {v}::{t} > {zero}::{t}").format(v=Literal(hot_for), t=SQL(type_), zero=Literal("0"))
        ).fetchone()
    except psycopg.DataError:
        row = None
    if row != (True,):
        raise ConfigError(f"--hot {hot_for!r} is not a positive {type_}", hint=f"for example: --hot '{example}'")


def ensure_bound_check(connection: Connection, table: Table, leaf: Leaf) -> None:
    """The validated CHECK on a leaf; one left half-way by a crash is validated now."""
    if leaf.range is None:
        return
    add, validate = ddl.add_bound_check(table, leaf)
    row = connection.execute(
        "SELECT convalidated FROM pg_constraint WHERE conrelid = %s AND conname = %s", (leaf.oid, BOUND_CHECK)
    ).fetchone()
    if row is None:
        with_short_locks(connection, lambda: connection.execute(add), f"adding a CHECK to {leaf}")
    if row != (True,):
        with_short_locks(connection, lambda: connection.execute(validate), f"validating the CHECK of {leaf}")


def _plan(connection: Connection, table: Table, hot_for: str) -> Plan:
    taken = {name for (name,) in queries.rows(connection, "names_in_schema", schema=table.schema)}
    first = next(leaf.range for leaf in table.leaves if leaf.range is not None)
    row = connection.execute("SELECT nextval(pg_get_serial_sequence('frostline.tables', 'id'))").fetchone()
    assert row is not None
    hot = derived_name(table.name, "_hot", taken)
    before = derived_name(table.name, "_before", taken | {hot}) if first.lower is not None else None
    constraints = queries.rows(connection, "constraints", oid=table.oid)
    return Plan(
        table=table,
        hot_for=hot_for,
        hot=hot,
        before=before,
        lake=_lake_name(connection, table, row[0]),
        seam=first.lower,
        id=row[0],
        checks=[s for leaf in table.leaves if leaf.range is not None for s in ddl.add_bound_check(table, leaf)],
        swap=_statements(table, row[0], hot, before, first.lower, constraints),
        shape={
            "constraints": [{"name": name, "definition": text} for name, _, text in constraints],
            "partitions": [{"schema": p.schema, "name": p.name, "range": str(p.range)} for p in table.leaves],
        },
        warnings=refusals.warnings(connection, table.oid),
    )


def _statements(
    table: Table, id_: int, hot: str, before: str | None, seam: Bound | None, constraints: list[tuple[str, str, str]]
) -> list[Composed]:
    parent, hot_table = Identifier(table.schema, table.name), Identifier(table.schema, hot)
    detach = [ddl.detach(parent, leaf) for leaf in table.leaves]
    drop = [SQL("ALTER TABLE {} DROP CONSTRAINT {}").format(parent, Identifier(name)) for name, _, _ in constraints]
    create = SQL(
        "CREATE TABLE {} (LIKE {} INCLUDING DEFAULTS INCLUDING GENERATED INCLUDING CONSTRAINTS INCLUDING STORAGE"
        " INCLUDING COMPRESSION) PARTITION BY RANGE ({})"
    ).format(hot_table, parent, Identifier(table.key))
    # The empty hot partition first: with leaves under it, 18 refuses a later detach when there is an identity column.
    attach = [
        SQL("ALTER TABLE {} ATTACH PARTITION {} {}").format(parent, hot_table, ddl.for_values(Range(seam, None))),
        *(
            SQL("ALTER TABLE {} ADD CONSTRAINT {} {}").format(hot_table, Identifier(name), SQL(definition))
            for name, _, definition in constraints
        ),
        *(ddl.attach(hot_table, leaf) for leaf in table.leaves),
    ]
    foreign = ddl.foreign_partition(table, (table.schema, before), f"table {id_}", Range(None, seam)) if before else []
    return [*detach, *drop, create, ddl.owned_by(hot_table, table), *attach, *foreign, *delta.create(table, id_)]


def _swap(connection: Connection, plan: Plan) -> None:
    table = plan.table
    connection.execute(SQL("LOCK TABLE {} IN ACCESS EXCLUSIVE MODE").format(Identifier(table.schema, table.name)))
    if describe.table(connection, table.oid, table.schema, table.name) != table:
        raise OperationError(
            f"{table} was changed by someone else meanwhile; only CHECK constraints were added to its partitions",
            hint="run the same command again",
        )
    for statement in plan.swap:
        connection.execute(statement)
    _open_hot(connection, plan)
    delta_table = delta.delta_name(table, plan.id)
    connection.execute(
        "INSERT INTO frostline.tables (id, relation, hot, delta, hot_for, lake_namespace, lake_table, seam, shape)"
        " OVERRIDING SYSTEM VALUE VALUES (%s, %s, %s::regclass, %s::regclass, %s, %s, %s, %s, %s)",
        (
            plan.id,
            table.oid,
            Identifier(table.schema, plan.hot).as_string(connection),
            Identifier(delta.SCHEMA, delta_table).as_string(connection),
            plan.hot_for,
            *plan.lake,
            plan.seam.text if plan.seam else None,
            Jsonb(plan.shape),
        ),
    )
    for number, name in lake_names({column.number: column.name for column in table.stored}).items():
        connection.execute("INSERT INTO frostline.columns VALUES (%s, %s, %s)", (plan.id, number, name))
    if plan.before is not None and plan.seam is not None:
        connection.execute(
            "INSERT INTO frostline.periods (table_id, lower, upper, foreign_table) VALUES (%s, NULL, %s, %s::regclass)",
            (plan.id, plan.seam.text, Identifier(table.schema, plan.before).as_string(connection)),
        )


def _open_hot(connection: Connection, plan: Plan) -> None:
    """Whoever may write the table may write its hot partition, where ON CONFLICT is to be addressed."""
    table, hot = plan.table, Identifier(plan.table.schema, plan.hot)
    policies = connection.execute("SELECT relrowsecurity FROM pg_class WHERE oid = %s", (table.oid,)).fetchone()
    if policies == (False,):  # with policies, a way around the table would be a way around them
        ddl.copy_grants(connection, table.oid, hot)
    if connection.info.server_version < IDENTITY_IN_PARTITIONS:
        for column in (column for column in table.columns if column.identity):
            query = "SELECT pg_get_serial_sequence(%s, %s)"
            name = Identifier(table.schema, table.name).as_string(connection)
            sequence = connection.execute(query, (name, column.name)).fetchone()
            connection.execute(
                SQL("ALTER TABLE {} ALTER COLUMN {} SET DEFAULT nextval({}::regclass)").format(
                    hot, Identifier(column.name), Literal(sequence[0] if sequence else None)
                )
            )


def _lake_name(connection: Connection, table: Table, id_: int) -> tuple[str, str]:
    """schema.table, with a number behind it where the plain form is taken or would need odd letters in a path."""
    namespace, name = ascii_slug(table.schema), ascii_slug(table.name)
    taken = {(a.casefold(), b.casefold()) for a, b in queries.rows(connection, "lake_names_taken")}
    if (namespace, name) != (table.schema, table.name) or (namespace.casefold(), name.casefold()) in taken:
        name = f"{name}_{id_}"
    return namespace, name
