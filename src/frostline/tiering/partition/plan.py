"""What will be done to a table: which partitions, which key, which statements; or what is in the way."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from typing import Any

import psycopg
from psycopg.sql import SQL, Composable, Composed, Identifier, Literal

from frostline.catalog import describe, queries
from frostline.catalog.database import Connection
from frostline.errors import ConfigError, RefusedError
from frostline.model import spacing
from frostline.model.bounds import KEY_TYPES, Range
from frostline.model.spacing import Step
from frostline.model.tables import Table, derived_name
from frostline.tiering import ddl
from frostline.tiering.checks import shell_list, shell_name
from frostline.tiering.partition.shape import Shape, read
from frostline.tiering.refusals import Objection, names, told

PREMAKE = 3
_MOST_PARTITIONS = 1000
_UNITS = {"hour": ("fixed", 3_600_000_000), "day": ("day", 1), "week": ("day", 7)}
_MONTHS = {"month": 1, "quarter": 3, "year": 12}
# Years that a calendar can begin at: before them even years would be too many, and after the last datetime ends.
_EARLIEST, _LATEST = (spacing.to_order(datetime(year, 1, 1), "UTC") for year in (1000, 9999))
KEPT = "_before_partition"


@dataclass(frozen=True)
class Choice:
    """The options as a person gives them."""

    by: str
    period: str = "month"
    key: tuple[str, ...] = ()
    zone: str = "UTC"
    since: str = ""  # rows before share one partition


@dataclass(frozen=True)
class Plan:
    """What a later run goes on with."""

    schema: str
    name: str
    copy: str  # the new table's name until the swap
    kept: str  # the old one's name after it
    by: str
    key: tuple[str, ...]  # the new primary key
    partitions: tuple[tuple[str, str], ...]  # name, FOR VALUES ... or DEFAULT
    choice: Choice

    def json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def of_json(cls, value: dict[str, Any]) -> Plan:
        choice = Choice(**{**value["choice"], "key": tuple(value["choice"]["key"])})
        partitions = tuple((name, bounds) for name, bounds in value["partitions"])
        return cls(**{**value, "key": tuple(value["key"]), "partitions": partitions, "choice": choice})

    def __str__(self) -> str:
        return f"{self.schema}.{self.name}"

    @property
    def pasted(self) -> str:
        """As a command takes it."""
        return shell_name(self.schema, self.name)

    @property
    def table(self) -> Identifier:
        return Identifier(self.schema, self.name)

    @property
    def target(self) -> Identifier:
        return Identifier(self.schema, self.copy)

    def leaves(self) -> list[Identifier]:
        return [Identifier(self.schema, name) for name, _ in self.partitions]


def make(connection: Connection, oid: int, name: tuple[str, str], choice: Choice) -> tuple[Plan, Table, Shape]:
    """The plan, or every reason why there is none; changes nothing."""
    found = [Objection(what, "nothing to do here") for (what,) in queries.rows(connection, "no_plain_table", oid=oid)]
    table = described(connection, oid, name, choice.by)
    refuse(name, found or [*_key(connection, table, choice), *others(connection, oid, choice.by)])
    taken = {name for (name,) in queries.rows(connection, "names_in_schema", schema=table.schema)}
    copy = derived_name(table.name, "_partitioned", taken)
    kept = derived_name(table.name, KEPT, taken)
    key = choice.key or table.primary_key
    partitions = tuple(_partitions(connection, table, choice, taken | {copy, kept}))
    return Plan(*name, copy, kept, choice.by, key, partitions, choice), table, read(connection, oid)


def refuse(name: tuple[str, str], found: list[Objection]) -> None:
    """One error with every reason, if there is any."""
    if found:
        raise RefusedError(
            f"{'.'.join(name)} cannot be partitioned as it is; it is as it was",
            detail="\n".join(f"  - {one.reason}" for one in found),
            hint="\n".join(f"  -> {one.remedy}" for one in found),
        )


def described(connection: Connection, oid: int, name: tuple[str, str], by: str) -> Table:
    columns = describe.columns(connection, oid)
    if by not in {column.name for column in columns}:
        raise RefusedError(f"{'.'.join(name)} has no column {by}; nothing was changed")
    key_type = queries.row(connection, "column_type", oid=oid, column=by)
    owner = queries.row(connection, "owner", oid=oid)
    return Table(
        oid=oid,
        schema=name[0],
        name=name[1],
        owner=owner[0] if owner else "",
        columns=columns,
        key=by,
        key_type=key_type[0] if key_type else "",
        primary_key=tuple(column for (column,) in queries.rows(connection, "primary_key", oid=oid)),
        leaves=(),
    )


def _key(connection: Connection, table: Table, choice: Choice) -> Iterator[Objection]:
    column = table.key_column
    if table.key_type not in KEY_TYPES:
        yield Objection(f"{choice.by} is of type {column.type}", f"cut it by one of {', '.join(KEY_TYPES)}")
    if not column.not_null:
        name = Identifier(choice.by).as_string(connection)
        yield Objection(
            f"{choice.by} may be NULL",
            f"ALTER TABLE ... ADD CHECK ({name} IS NOT NULL) NOT VALID, VALIDATE it, then ALTER {name} SET NOT NULL",
        )
    if column.generated:
        yield Objection(f"{choice.by} is a generated column", "cut it by an ordinary one")
    if not table.primary_key:
        yield Objection(
            "it has no primary key, by which rows could be told apart",
            "CREATE UNIQUE INDEX CONCURRENTLY one, then ALTER TABLE ... ADD PRIMARY KEY USING INDEX it",
        )
    elif not choice.key and choice.by not in table.primary_key:
        old, new = ", ".join(table.primary_key), shell_list((*table.primary_key, choice.by))
        yield Objection(
            f"its primary key ({old}) does not hold {choice.by}: Postgres keeps a partitioned table's keys unique only"
            f" with it, so that two rows with the same ({old}) and another {choice.by} would be possible",
            f"say that this is meant: --key {new}",
        )
    for column in table.columns:
        if column.name in (*table.primary_key, *choice.key) and not column.exact_equality:
            yield Objection(
                f"{column.name} of the key is of type {column.type}, which can call different values equal",
                "use a key of another type: rows that change have to be found again by it",
            )
    yield from _chosen_key(table, choice)


def _chosen_key(table: Table, choice: Choice) -> Iterator[Objection]:
    known = {column.name: column for column in table.columns}
    for name in choice.key:
        if name not in known:
            yield Objection(f"--key names {name}, which is no column", "name columns of the table")
        elif not known[name].not_null:
            yield Objection(f"--key names {name}, which may be NULL", "name columns that are NOT NULL")
    lost = [name for name in (*table.primary_key, choice.by) if choice.key and name not in choice.key]
    if lost:
        yield Objection(
            f"--key does not hold {', '.join(lost)}", f"--key {shell_list((*choice.key, *dict.fromkeys(lost)))}"
        )


# (query that lists what is in the way, reason, way out)
_IN_THE_WAY = (
    (
        "inbound_foreign_keys",
        "foreign keys of other tables point at it ({})",
        "drop them: they need a key that a partitioned table no longer has, and a tiered one can have none",
    ),
    ("exclusions", "exclusion constraints ({}) cannot be kept across partitions", "drop them"),
    (
        "deferrable_keys",
        "keys ({}) are deferrable: rows cannot be copied under them",
        "drop them and add them NOT DEFERRABLE; UNIQUE can be deferrable again afterwards",
    ),
    ("not_valid", "constraints ({}) are not valid", "ALTER TABLE ... VALIDATE CONSTRAINT them first"),
    ("invalid_indexes", "indexes ({}) are invalid", "REINDEX or drop them"),
    ("no_inherit_checks", "CHECKs ({}) are NO INHERIT, which a partitioned table cannot have", "make them ordinary"),
    (
        "row_transition_triggers",
        "row triggers with transition tables ({}) cannot stand on a partitioned table",
        "use statement triggers, or row triggers without REFERENCING",
    ),
    ("own_rules", "rules ({}) are not carried over", "drop them, and create them again afterwards"),
    ("identity_index", "its replica identity is an {}", "ALTER TABLE ... REPLICA IDENTITY DEFAULT, or FULL"),
    (
        "wide_publications",
        "publications ({}) would send the copy, or partitions under their own names",
        "publish the table by name, with publish_via_partition_root = true",
    ),
    ("own_subscriptions", "a subscription ({}) writes into it", "take it out of the subscription"),
    (
        "bound_to_it",
        "{} know the table by itself or by its row type, and would go on with the old one",
        "drop them, and create them again afterwards",
    ),
    (
        "depend_on_primary_key",
        "{} depend on its primary key: they group by it, or name it in ON CONFLICT",
        "let them group by every column they select, or name columns",
    ),
    (
        "forced_row_security",
        "row security is forced and hides rows from {}",
        "ALTER TABLE ... NO FORCE ROW LEVEL SECURITY meanwhile, or let a role with BYPASSRLS do this",
    ),
    ("foreign_owner", "it belongs to {}", "GRANT {} TO {role}"),
    ("closed_schema", "no table can be created in its schema {}", "GRANT CREATE, USAGE ON SCHEMA {} TO {role}"),
    ("closed_to_owner", "its owner may create nothing in its schema {}", "GRANT CREATE ON SCHEMA {} TO {owner}"),
    ("unreferenceable", "this role may not refer to {}", "GRANT REFERENCES ON {} TO {role}"),
)


def others(connection: Connection, oid: int, by: str) -> Iterator[Objection]:
    for query, reason, remedy in _IN_THE_WAY:
        if found := names(connection, query, oid):
            yield Objection(reason.format(found), told(connection, oid, remedy, found))
    if found := names(connection, "keys_without", oid, column=by):
        yield Objection(
            f"UNIQUE indexes ({found}) do not hold {by}, and a partitioned table's have to",
            "make them ordinary indexes, or let them hold it",
        )


def step_of(choice: Choice, key_type: str) -> Step:
    if key_type.startswith("int"):
        if not choice.period.isdecimal() or int(choice.period) < 1:
            raise ConfigError(f"--period {choice.period!r} is no width", hint="for an integer key, for example 1000000")
        return Step("fixed", int(choice.period))
    if choice.period in _MONTHS:
        return Step("month", _MONTHS[choice.period], choice.zone)
    if choice.period in _UNITS and not (key_type == "date" and choice.period == "hour"):
        kind, count = _UNITS[choice.period]
        return Step(kind, count, choice.zone)
    raise ConfigError(f"--period {choice.period!r} is unknown", hint=f"one of {', '.join((*_UNITS, *_MONTHS))}")


def _partitions(connection: Connection, table: Table, choice: Choice, taken: set[str]) -> Iterator[tuple[str, str]]:
    """One per period from the oldest row on, some for what is to come, and one for whatever fits nowhere."""
    if table.key_type != "timestamptz" and choice.zone != "UTC":
        raise ConfigError(f"--zone is for keys of type timestamptz; {choice.by} is of type {table.key_type}")
    if not spacing.known(choice.zone):
        raise ConfigError(f"--zone {choice.zone!r} is no time zone", hint="name one such as Europe/Berlin")
    integer = table.key_type.startswith("int")
    step = step_of(choice, table.key_type)
    least, greatest, now = _ends(connection, table)
    first = _order(connection, table, choice.since) if choice.since else least
    if not integer and first < _EARLIEST:
        raise _too_many(table, "before the year 1000")
    start = _floor(first, step)
    if choice.since and least < start:
        bounds = ddl.for_values(Range(None, spacing.bound(start, table.key_type))).as_string(connection)
        yield _named(f"{table.name}_before", taken), bounds
    last = max(now, greatest if integer else min(greatest, now + 366 * 86_400_000_000))
    ahead = 0
    for made, range_ in enumerate(_ranges(start, step, table.key_type)):
        if made == _MOST_PARTITIONS:
            raise _too_many(table, str(spacing.bound(start, table.key_type)))
        assert range_.lower is not None
        lower = range_.lower.order
        label = str(lower).replace("-", "n") if integer else spacing.label(spacing.local(lower, step.zone), step)
        yield _named(f"{table.name}_{label}", taken), ddl.for_values(range_).as_string(connection)
        ahead += lower > last
        if ahead == PREMAKE:
            break
    yield _named(f"{table.name}_default", taken), "DEFAULT"


def _ranges(start: int, step: Step, key_type: str) -> Iterator[Range]:
    """One period after the other; the first and the last end where the type does."""
    limit = spacing.limit(key_type)
    lower: int | None = start
    while lower is not None:
        upper = step.after(lower, limit)
        yield Range(
            spacing.bound(max(lower, -limit), key_type), None if upper is None else spacing.bound(upper, key_type)
        )
        lower = upper


def _too_many(table: Table, first: str) -> RefusedError:
    return RefusedError(
        f"{table} would have more than {_MOST_PARTITIONS} partitions, from {first} on; nothing was changed",
        hint="--since DATE puts whatever is older into one partition; or choose a longer --period",
    )


def _named(wished: str, taken: set[str]) -> str:
    name = derived_name(wished, "", taken)
    taken.add(name)
    return name


def _ends(connection: Connection, table: Table) -> tuple[int, int, int]:
    """The least and the greatest key there is, without infinities, and where the key is by now."""
    name = Identifier(table.key)
    integer = table.key_type.startswith("int")
    # No bigint: a date can lie where its microseconds do not fit into one.
    order: Composable = name if integer else SQL("extract(epoch FROM {}) * 1000000").format(name)
    finite = SQL("true") if integer else SQL("isfinite({})").format(name)
    query = SQL(
        "SELECT min({o}), max({o}) FROM (SELECT min({n}) AS {n} FROM ONLY {t} WHERE {f}"
        " UNION ALL SELECT max({n}) FROM ONLY {t} WHERE {f}) ends"
    ).format(o=order, n=name, t=Identifier(table.schema, table.name), f=finite)
    row = connection.execute(query).fetchone()
    assert row is not None
    now = ddl.now(connection, table.key_type) if not integer else int(row[1] or 0)
    return (int(row[0]), int(row[1]), now) if row[0] is not None else (now, now, now)


def _order(connection: Connection, table: Table, text: str) -> int:
    type_ = SQL(table.key_type)
    integer = table.key_type.startswith("int")
    query = SQL("SELECT {}::{}" if integer else "SELECT extract(epoch FROM {}::{}) * 1000000")
    try:
        row = connection.execute(query.format(Literal(text), type_)).fetchone()
    except psycopg.DataError:
        row = None
    if row is None or not (integer or -math.inf < row[0] < _LATEST):
        raise ConfigError(
            f"--since {text!r} is no {table.key_type}",
            hint="for example 1000000" if integer else "a day before the year 9999, for example 2024-01-01",
        )
    return int(row[0])


def _floor(order: int, step: Step) -> int:
    """Where the period begins that a key lies in."""
    if step.kind == "fixed":
        return order - order % step.count
    moment = spacing.local(order, step.zone)
    if step.kind == "month":
        months = moment.year * 12 + moment.month - 1
        months -= months % step.count
        first = moment.replace(year=months // 12, month=months % 12 + 1, day=1)
    else:
        first = moment if step.count == 1 else moment.fromordinal(moment.toordinal() - moment.weekday())
    return spacing.to_order(first.replace(hour=0, minute=0, second=0, microsecond=0), step.zone)


def create(connection: Connection, plan: Plan, shape: Shape) -> list[Composed]:
    """The new table, empty: nothing of it is seen by anybody yet."""
    parent = plan.target
    using = SQL(" USING {}").format(Identifier(shape.method)) if shape.method else SQL("")
    where = SQL(" TABLESPACE {}").format(Identifier(shape.tablespace)) if shape.tablespace else SQL("")
    options = SQL(f" WITH ({', '.join(shape.options)})") if shape.options else SQL("")
    statements = [
        SQL(
            "CREATE TABLE {} (LIKE {} INCLUDING COMMENTS INCLUDING COMPRESSION INCLUDING CONSTRAINTS INCLUDING DEFAULTS"
            " INCLUDING GENERATED INCLUDING STORAGE) PARTITION BY RANGE ({}){}"
        ).format(parent, plan.table, Identifier(plan.by), where),
        SQL("ALTER TABLE {} OWNER TO {}").format(parent, Identifier(shape.owner)),
        *_key_statement(shape, parent, plan.key),
    ]
    for name, bounds in plan.partitions:
        leaf = Identifier(plan.schema, name)
        statements.append(
            SQL("CREATE TABLE {} PARTITION OF {} {}{}{}{}").format(leaf, parent, SQL(bounds), using, options, where)
        )
        statements.append(SQL("ALTER TABLE {} OWNER TO {}").format(leaf, Identifier(shape.owner)))
        if shape.replica_identity in ("f", "n"):
            kind = {"f": "FULL", "n": "NOTHING"}[shape.replica_identity]
            statements.append(SQL(f"ALTER TABLE {{}} REPLICA IDENTITY {kind}").format(leaf))
        statements += ddl.same_grants(connection, None, (plan.schema, name))
    columns = [one for relation in (parent, *plan.leaves()) for one in _column_options(relation, shape)]
    return [*statements, *columns, *ddl.same_grants(connection, None, (plan.schema, plan.copy))]


def _key_statement(shape: Shape, parent: Identifier, names: tuple[str, ...]) -> list[Composed]:
    _, options, tablespace, _, _, included = shape.primary_key
    beside = [Identifier(name) for name in included if name not in names]
    include = SQL(" INCLUDE ({})").format(SQL(", ").join(beside)) if beside else SQL("")
    tail = SQL(f" WITH ({', '.join(options)})") if options else SQL("")
    where = SQL(" USING INDEX TABLESPACE {}").format(Identifier(tablespace)) if tablespace else SQL("")
    key = SQL(", ").join(map(Identifier, names))
    return [SQL("ALTER TABLE {} ADD PRIMARY KEY ({}){}{}{}").format(parent, key, include, tail, where)]


def _column_options(parent: Identifier, shape: Shape) -> Iterator[Composed]:
    for name, *_, target, options, _ in shape.columns:
        column = Identifier(name)
        if target is not None:
            yield SQL("ALTER TABLE {} ALTER COLUMN {} SET STATISTICS {}").format(parent, column, Literal(target))
        if options:
            yield SQL(f"ALTER TABLE {{}} ALTER COLUMN {{}} SET ({', '.join(options)})").format(parent, column)


def same_choice(plan: Plan, choice: Choice) -> bool:
    """Whether a command means what an earlier run began; a bare one does."""
    given = replace(choice, by=choice.by or plan.choice.by)
    return not choice.by or given == plan.choice
