"""Registration: the table's leaves move under a hot partition, so that foreign partitions can stand beside it.

Only metadata changes. The table keeps its OID, and with it its views, grants, policies, triggers and identity.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from psycopg.sql import SQL, Composable, Composed, Identifier, Literal
from psycopg.types.json import Jsonb

from frostline.catalog import describe, identity, queries, registry
from frostline.catalog.database import Connection
from frostline.catalog.names import UPPER_CHECK
from frostline.delta import tables as delta
from frostline.errors import OperationError, RefusedError
from frostline.model.bounds import Bound, Range
from frostline.model.tables import Leaf, Table, ascii_slug, derived_name, lake_names
from frostline.tiering import cautions, ddl, options, references, refusals, writing
from frostline.tiering.ddl import IDENTITY_IN_PARTITIONS
from frostline.tiering.locks import with_short_locks


@dataclass(frozen=True)
class Plan:
    """All that registration will do: `checks` one by one, then `swap` in one transaction."""

    table: Table
    hot_for: str
    values: options.ByColumn  # of the registry, as they were chosen
    hot: str
    before: str | None
    lake: tuple[str, str]
    seam: Bound | None
    id: int
    checks: list[Composed] = field(default_factory=list)
    swap: list[Composed] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)

    def sql(self, connection: Connection) -> str:
        statements = [*self.checks, SQL("BEGIN"), *self.swap, SQL("COMMIT")]
        return "\n".join(f"{statement.as_string(connection)};" for statement in statements)


def plan(
    connection: Connection, text: str, hot_for: str, given: Mapping[str, str] | None = None, *, rehearsed: bool = True
) -> Plan | registry.Managed:
    """What registering with these options would do, or the managed table when it is registered already.

    Changes nothing; rehearsed, not even which number the next table gets.
    """
    registry.require(connection)
    given = {"hot": hot_for, **(given or {})}
    options.known(given)
    oid, schema, name = describe.resolve(connection, text)
    if (managed := registry.find(connection, oid)) is not None:
        return managed
    kind = queries.row(connection, "resolve", schema=schema, name=name)
    found = refusals.refusals(
        connection, oid, kind[1] if kind else "", cold_fk="none" if given.get("cold_fk") == "none" else "check"
    )
    if found:
        raise RefusedError(
            f"{schema}.{name} cannot be registered as it is; nothing was changed",
            detail="\n".join(f"  - {o.reason}" for o in found),
            hint="\n".join(f"  -> {o.remedy}" for o in found),
        )
    table = describe.table(connection, oid, schema, name)
    id_ = _next_number(connection, "next_table" if rehearsed else "new_table")
    return _plan(connection, table, hot_for, options.chosen(connection, table, given), id_)


def register(
    connection: Connection, text: str, hot_for: str, given: Mapping[str, str] | None = None
) -> Plan | registry.Managed:
    """Register a table; a second time it changes nothing."""
    found = plan(connection, text, hot_for, given, rehearsed=False)
    if isinstance(found, registry.Managed):
        return found
    identity.check(connection)
    for leaf in found.table.leaves:
        ensure_bound_checks(connection, found.table, leaf, upper=True)
    with_short_locks(connection, lambda: _swap(connection, found), f"registering {found.table}")
    return found


def ensure_bound_checks(connection: Connection, table: Table, leaf: Leaf, *, upper: bool) -> None:
    """The validated CHECKs on a leaf; what was left half-way by a crash is validated now."""
    if leaf.range is None:
        return
    query = "SELECT conname, convalidated FROM pg_constraint WHERE conrelid = %s AND contype = 'c'"
    found: dict[str, bool] = dict(connection.execute(query, (leaf.oid,)).fetchall())
    checks = ddl.bound_checks(table, leaf.range, upper=upper)
    if missing := [check for check in checks if check[0] not in found]:
        add = ddl.add_checks(leaf, missing)
        with_short_locks(connection, lambda: connection.execute(add), f"adding a CHECK to {leaf}")
    if unproven := [name for name, _ in checks if not found.get(name)]:
        validate = ddl.validate_checks(leaf, unproven)
        with_short_locks(connection, lambda: connection.execute(validate), f"validating the CHECK of {leaf}")


def _next_number(connection: Connection, query: str) -> int:
    row = queries.row(connection, query)
    assert row is not None
    return int(row[0])


def _plan(connection: Connection, table: Table, hot_for: str, values: options.ByColumn, id_: int) -> Plan:
    taken = {name for (name,) in queries.rows(connection, "names_in_schema", schema=table.schema)}
    first = next(leaf.range for leaf in table.leaves if leaf.range is not None)
    hot = derived_name(table.name, "_hot", taken)
    before = derived_name(table.name, "_before", taken | {hot}) if first.lower is not None else None
    cold_fk = str(values["cold_fk"])
    made = Plan(table, hot_for, values, hot, before, _lake_name(connection, table, id_), first.lower, id_)
    for leaf in table.leaves:
        if leaf.range is not None and (checks := ddl.bound_checks(table, leaf.range, upper=True)):
            made.checks.append(ddl.add_checks(leaf, checks))
            made.checks.append(ddl.validate_checks(leaf, [name for name, _ in checks]))
    made.swap.extend(
        [
            SQL("LOCK TABLE {} IN ACCESS EXCLUSIVE MODE").format(Identifier(table.schema, table.name)),
            *_partitions(connection, made),
            *_open_hot(connection, made),
            *delta.create(table, made.id),
            *writing.statements(
                connection,
                table,
                made.id,
                (delta.SCHEMA, delta.delta_name(table, made.id)),
                (table.schema, hot),
                table.oid,
                checked=cold_fk == "check",
            ),
            *_foreign(connection, made),
            *_record(connection, made),
            *(references.guards(connection, table.oid, made.id) if cold_fk == "check" else ()),
        ]
    )
    made.warnings.extend(cautions.cautions(connection, table, cold_fk=cold_fk))
    return made


def _partitions(connection: Connection, plan: Plan) -> list[Composed]:
    """The leaves and the keys move under a hot partition."""
    table, constraints = plan.table, queries.rows(connection, "constraints", oid=plan.table.oid)
    parent, hot = Identifier(table.schema, table.name), Identifier(table.schema, plan.hot)
    create = SQL(
        "CREATE TABLE {} (LIKE {} INCLUDING DEFAULTS INCLUDING GENERATED INCLUDING CONSTRAINTS INCLUDING STORAGE"
        " INCLUDING COMPRESSION) PARTITION BY RANGE ({}){}"
    ).format(hot, parent, Identifier(table.key), _placement(connection, table))
    return [
        *(ddl.detach(parent, leaf) for leaf in table.leaves),
        *(SQL("ALTER TABLE {} DROP CONSTRAINT {}").format(parent, Identifier(name)) for name, *_ in constraints),
        create,
        ddl.owned_by(hot, table),
        # The empty hot partition first: with leaves in it, 18 refuses a later detach when there is an identity column.
        SQL("ALTER TABLE {} ATTACH PARTITION {} {}").format(parent, hot, ddl.for_values(Range(plan.seam, None))),
        *(
            SQL("ALTER TABLE {} ADD CONSTRAINT {} {}").format(hot, Identifier(name), SQL(definition))
            for name, _, definition, _ in constraints
        ),
        *(
            SQL("COMMENT ON CONSTRAINT {} ON {} IS {}").format(Identifier(name), hot, Literal(comment))
            for name, *_, comment in constraints
            if comment is not None
        ),
        *(ddl.attach(hot, leaf) for leaf in table.leaves),
        *([] if ddl.leaves_move(connection, table) else _drop_upper_checks(table)),
    ]


def _drop_upper_checks(table: Table) -> list[Composed]:
    return [
        SQL("ALTER TABLE {} DROP CONSTRAINT {}").format(Identifier(leaf.schema, leaf.name), Identifier(UPPER_CHECK))
        for leaf in table.leaves
        if leaf.range is not None and leaf.range.upper is not None
    ]


def _placement(connection: Connection, table: Table) -> Composable:
    """A new partition is put where the table above it says, which is going to be the hot partition."""
    tablespace, method = queries.row(connection, "placement", oid=table.oid) or (None, None)
    using = SQL(" USING {}").format(Identifier(method)) if method is not None else SQL("")
    return using + (SQL(" TABLESPACE {}").format(Identifier(tablespace)) if tablespace is not None else SQL(""))


def _foreign(connection: Connection, plan: Plan) -> list[Composed]:
    """What is below the oldest partition, where nothing is yet."""
    if plan.before is None:
        return []
    name = (plan.table.schema, plan.before)
    return [
        *ddl.foreign_partition(plan.table, name, plan.id, Range(None, plan.seam)),
        *ddl.same_grants(connection, None, name),
    ]


def _swap(connection: Connection, plan: Plan) -> None:
    table = plan.table
    connection.execute(plan.swap[0])
    if describe.table(connection, table.oid, table.schema, table.name) != table:
        raise OperationError(
            f"{table} was changed by someone else meanwhile; only CHECK constraints were added to its partitions",
            hint="run the same command again",
        )
    for statement in plan.swap[1:]:
        connection.execute(statement)


def _record(connection: Connection, plan: Plan) -> list[Composed]:
    """The registry's rows."""
    table, seam = plan.table, plan.seam.text if plan.seam else None

    def named(*name: str) -> Composed:
        return SQL("{}::regclass").format(Literal(Identifier(*name).as_string(connection)))

    tables = SQL(
        "INSERT INTO frostline.tables (id, relation, hot, delta, lake_namespace, lake_table, seam, shape, {})"
        " OVERRIDING SYSTEM VALUE VALUES ({})"
    ).format(
        SQL(", ").join(map(Identifier, plan.values)),
        SQL(", ").join(
            [
                Literal(plan.id),
                named(table.schema, table.name),
                named(table.schema, plan.hot),
                named(delta.SCHEMA, delta.delta_name(table, plan.id)),
                *(Literal(value) for value in (*plan.lake, seam, Jsonb(_shape(connection, table)))),
                *map(Literal, plan.values.values()),
            ]
        ),
    )
    # Whoever runs what was printed has not taken the number.
    taken = SQL(
        "SELECT nextval(s.q) FROM (SELECT pg_get_serial_sequence('frostline.tables', 'id')::regclass AS q) s"
        " WHERE coalesce(pg_sequence_last_value(s.q), 0) < {}"
    ).format(Literal(plan.id))
    names = lake_names({column.number: column.name for column in table.stored})
    columns = SQL(
        "INSERT INTO frostline.columns (table_id, attnum, lake_name, delta_name, base, typmod, sense, expression)"
        " VALUES {}"
    ).format(
        SQL(", ").join(
            SQL("({}, frostline.sense({}), frostline.expression({}, {}::smallint))").format(
                SQL(", ").join(map(Literal, (plan.id, c.number, names[c.number], c.name, *c.base))),
                *map(Literal, (c.base[0], table.oid, c.number)),
            )
            for c in table.stored
        )
    )
    followed = SQL(
        "UPDATE frostline.tables SET followed = frostline.shape(id), heaps = frostline.heaps(id),"
        " proven = ARRAY(SELECT c.identity FROM frostline.constraints(id) c) WHERE id = {}"
    ).format(Literal(plan.id))
    if plan.before is None:
        return [taken, tables, columns, followed]
    periods = SQL("INSERT INTO frostline.periods (table_id, upper, foreign_table) VALUES ({}, {}, {})").format(
        Literal(plan.id), Literal(seam), named(table.schema, plan.before)
    )
    return [taken, tables, columns, followed, periods]


def _shape(connection: Connection, table: Table) -> dict[str, object]:
    """What registration takes away from the table, for the day it is to be as it was."""
    constraints = queries.rows(connection, "constraints", oid=table.oid)
    return {
        "constraints": [{"name": n, "definition": text, "comment": comment} for n, _, text, comment in constraints],
        "partitions": [{"schema": p.schema, "name": p.name, "range": str(p.range)} for p in table.leaves],
        "replica_identity": [name for (name,) in queries.rows(connection, "identity_by_index", oid=table.oid)],
    }


def _open_hot(connection: Connection, plan: Plan) -> list[Composed]:
    """Whoever may write the table may write its hot partition, where ON CONFLICT is to be addressed."""
    table, hot = plan.table, (plan.table.schema, plan.hot)
    policies = connection.execute("SELECT relrowsecurity FROM pg_class WHERE oid = %s", (table.oid,)).fetchone()
    # With policies, a way around the table would be a way around them.
    statements = ddl.same_grants(connection, table.oid if policies == (False,) else None, hot)
    if connection.info.server_version >= IDENTITY_IN_PARTITIONS:
        return statements
    for column in (column for column in table.columns if column.identity):
        query = "SELECT pg_get_serial_sequence(%s, %s)"
        name = Identifier(table.schema, table.name).as_string(connection)
        sequence = connection.execute(query, (name, column.name)).fetchone()
        statements.append(
            SQL("ALTER TABLE {} ALTER COLUMN {} SET DEFAULT nextval({}::regclass)").format(
                Identifier(*hot), Identifier(column.name), Literal(sequence[0] if sequence else None)
            )
        )
    return statements


def _lake_name(connection: Connection, table: Table, id_: int) -> tuple[str, str]:
    """schema.table, with a number behind it where the plain form is taken or would need odd letters in a path."""
    namespace, name = ascii_slug(table.schema), ascii_slug(table.name)
    taken = {(a.casefold(), b.casefold()) for a, b in queries.rows(connection, "lake_names_taken")}
    if (namespace, name) != (table.schema, table.name) or (namespace.casefold(), name.casefold()) in taken:
        name = f"{name}_{id_}"
    return namespace, name
