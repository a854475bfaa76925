"""Old periods joined to larger foreign partitions, so that a look-up without the key stays a few dozen remote probes.

Only metadata of Postgres changes: the lake is cut by its own partitions and the gateway by the range in a foreign
table's options. All of it, registry included, is one short transaction, so a run that dies leaves nothing to settle.
Readers see the old partitions before and the new one after; the range is cold in every snapshot in which its parts are.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import groupby

import psycopg
from psycopg.sql import SQL, Identifier, Literal
from psycopg.types.json import Jsonb

from frostline.catalog import queries
from frostline.catalog.database import Connection
from frostline.catalog.registry import Managed
from frostline.errors import OperationError
from frostline.faults import reached
from frostline.model import spacing
from frostline.model.bounds import Bound, Range, parse_bound
from frostline.model.tables import derived_name
from frostline.tiering import ddl, statistics
from frostline.tiering.digest import Digest
from frostline.tiering.locks import Wanted, lock, with_short_locks

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Part:
    """A foreign partition as the registry has it."""

    oid: int
    schema: str
    name: str
    range: Range
    rows: int
    bytes: int
    files: int
    digest: Digest | None
    alarm: str | None


@dataclass(frozen=True)
class Group:
    """Adjacent periods that become one."""

    name: str
    parts: tuple[Part, ...]

    @property
    def range(self) -> Range:
        return Range(self.parts[0].range.lower, self.parts[-1].range.upper)


def groups(connection: Connection, managed: Managed) -> list[Group]:
    """What the table's policy joins now; nothing without a policy."""
    policy, found_parts = managed.options.coalesce, parts(connection, managed)
    if policy is None or managed.seam is None:
        return []
    oldest = min(limit(connection, managed, policy[1]), managed.seam.order)
    zone = _zone(connection, managed, found_parts)
    taken = {name for (name,) in queries.rows(connection, "names_in_schema", schema=managed.table.schema)}
    found = []
    units = [(_unit(part.range, policy[0], zone), run, part) for run, part in _runs(found_parts)]
    for (unit, _), members in groupby(units, key=lambda one: one[:2]):
        some = tuple(part for *_, part in members)
        if unit is None or len(some) < 2 or unit[1] > oldest:
            continue
        name = derived_name(f"{managed.table.name}_{_label(unit, policy[0], zone)}", "", taken - {p.name for p in some})
        taken.add(name)
        found.append(Group(name, some))
    return found


def _runs(parts: list[Part]) -> Iterator[tuple[int, Part]]:
    """Each with a number that is another after a gap: what somebody has dropped there is not to come back."""
    number, end = 0, None
    for part in parts:
        number += part.range.lower != end
        end = part.range.upper
        yield number, part


def coalesce(connection: Connection, managed: Managed, group: Group, locks: Wanted) -> None:
    """Join one group. Whoever calls holds the table's lock, so no period comes or goes meanwhile."""

    def work() -> None:
        table = Identifier(managed.table.schema, managed.table.name)
        lock(connection, [(table, "ACCESS EXCLUSIVE")], locks.timeout_ms)
        now = parts(connection, managed)
        if not all(part in now for part in group.parts):
            changed = f"periods of {managed.table} were changed by someone else meanwhile; nothing was joined"
            raise OperationError(changed, hint="run the same command again")
        grants, fetch = _grants(connection, group), _fetch_rows(connection, group)
        reached("coalesce.locked")
        drop(connection, [(part.schema, part.name) for part in group.parts], locks.timeout_ms)
        reached("coalesce.dropped")
        name = (managed.table.schema, group.name)
        for statement in (
            *ddl.foreign_partition(managed.table, name, managed.id, group.range, fetch),
            *ddl.same_grants(connection, None, name),
        ):
            connection.execute(statement)
        for grant in grants:
            connection.execute(ddl.grant(Identifier(*name), *grant))
        reached("coalesce.made")
        _record(connection, managed, group)
        reached("coalesce.commit")

    wanted = replace(locks, relations=[managed.table.oid, *(part.oid for part in group.parts)])
    with ddl.droppable(f"periods of {managed.table} stay apart: something depends on one of them itself"):
        with_short_locks(connection, work, f"joining periods to {group.name}", wanted)
    reached("coalesce.joined")
    _analyze(connection, managed, group)


def parts(connection: Connection, managed: Managed) -> list[Part]:
    """Every foreign partition but the one without a lower bound, the oldest first."""
    found = [
        Part(
            oid,
            schema,
            name,
            Range(parse_bound(lower), parse_bound(upper)),
            rows,
            size,
            files,
            Digest.of_json(digest),
            alarm,
        )
        for oid, schema, name, lower, upper, rows, size, files, digest, alarm in queries.rows(
            connection, "parts", table=managed.id
        )
    ]
    return sorted(found, key=lambda part: part.range.upper.order if part.range.upper is not None else 0)


def limit(connection: Connection, managed: Managed, after: str) -> int:
    """Below it periods are older than that."""
    if managed.table.key_type.startswith("int"):
        newest = ddl.newest(connection, managed.table, managed.hot)
        return (newest if newest is not None else -(2**63)) - int(after)
    now = ddl.clock(managed.table.key_type)
    query = SQL("SELECT (extract(epoch FROM {} - {}::interval) * 1000000)::bigint").format(now, Literal(after))
    row = connection.execute(query).fetchone()
    assert row is not None
    return int(row[0])


def _zone(connection: Connection, managed: Managed, parts: list[Part]) -> str:
    """The zone whose calendar the periods follow; leaves that are still hot tell it as well."""
    if managed.table.key_type != "timestamptz":
        return "UTC"
    row = connection.execute("SELECT reset_val FROM pg_settings WHERE name = 'TimeZone'").fetchone()
    ranges = [part.range for part in parts] + [leaf.range for leaf in managed.table.leaves if leaf.range is not None]
    step = spacing.recognise(ranges, managed.table.key_type, row[0] if row else "UTC")
    return step.zone if step is not None else "UTC"


def _unit(range_: Range, to: str, zone: str) -> tuple[int, int] | None:
    """The larger period that a range lies wholly in."""
    assert range_.lower is not None
    assert range_.upper is not None
    try:
        if to.isdecimal():
            start = range_.lower.order // int(to) * int(to)
            end = start + int(to)
        else:
            moments = spacing.calendar_unit(spacing.local(range_.lower.order, zone), to)
            start, end = (spacing.to_order(moment, zone) for moment in moments)
    except (OverflowError, ValueError):
        return None
    return (start, end) if range_.upper.order <= end else None


def _label(unit: tuple[int, int], to: str, zone: str) -> str:
    if to.isdecimal():
        return f"{unit[0]}_to_{unit[1]}".replace("-", "n")
    moment = spacing.local(unit[0], zone)
    return {
        "year": f"{moment:%Y}",
        "quarter": f"{moment:%Y}_q{(moment.month + 2) // 3}",
        "month": f"{moment:%Y_%m}",
    }[to]


def _fetch_rows(connection: Connection, group: Group) -> int:
    """As few at a time as of the period with the widest rows."""
    row = connection.execute(
        "SELECT min(o.option_value::int) FROM pg_foreign_table f, pg_options_to_table(f.ftoptions) o"
        " WHERE f.ftrelid = ANY (%s) AND o.option_name = 'fetch_size'",
        ([part.oid for part in group.parts],),
    ).fetchone()
    return int(row[0]) if row is not None and row[0] is not None else ddl.FETCH_ROWS


def _grants(connection: Connection, group: Group) -> list[tuple[str, str, bool, str | None]]:
    """Whoever may read all of the periods may read what they become."""
    found = [set(queries.rows(connection, "grants", oid=part.oid)) for part in group.parts]
    return sorted(set.intersection(*found), key=str)


def drop(connection: Connection, partitions: list[tuple[str, str]], timeout_ms: int) -> None:
    """LOCK TABLE takes no foreign tables, so each is waited for as it is dropped, all within one short time."""
    deadline = time.monotonic() + timeout_ms / 1000
    for name in partitions:
        left = max(int((deadline - time.monotonic()) * 1000), 1)
        connection.execute(f"SET LOCAL lock_timeout = '{left}ms'")
        connection.execute(SQL("DROP FOREIGN TABLE {}").format(Identifier(*name)))


def _record(connection: Connection, managed: Managed, group: Group) -> None:
    lower, upper = (_text(side) for side in (group.range.lower, group.range.upper))
    row = connection.execute(
        "INSERT INTO frostline.operations (table_id, kind, leaf, lower, upper, state, rows, bytes, finished_at)"
        " VALUES (%s, 'coalesce', %s, %s, %s, 'done', %s, %s, clock_timestamp()) RETURNING id",
        (
            managed.id,
            f"{managed.table.schema}.{group.name}",
            lower,
            upper,
            sum(part.rows for part in group.parts),
            sum(part.bytes for part in group.parts),
        ),
    ).fetchone()
    assert row is not None
    uppers = [_text(part.range.upper) for part in group.parts]
    connection.execute("DELETE FROM frostline.periods WHERE table_id = %s AND upper = ANY(%s)", (managed.id, uppers))
    connection.execute(
        "INSERT INTO frostline.periods"
        " (table_id, lower, upper, foreign_table, rows, bytes, files, operation_id, digest, alarm)"
        " VALUES (%s, %s, %s, %s::regclass, %s, %s, %s, %s, %s, %s)",
        (
            managed.id,
            lower,
            upper,
            Identifier(managed.table.schema, group.name).as_string(connection),
            sum(part.rows for part in group.parts),
            sum(part.bytes for part in group.parts),
            sum(part.files for part in group.parts),
            row[0],
            _digests(group),
            "; ".join(part.alarm for part in group.parts if part.alarm is not None) or None,
        ),
    )


def _digests(group: Group) -> Jsonb | None:
    """Sums of disjoint rows add up; where one was never recorded, there is none."""
    known = [part.digest for part in group.parts if part.digest is not None]
    if len(known) < len(group.parts):
        return None
    total = sum(known, Digest(0, {}))
    # Of a column that one of them does not have (it was added or promoted since) no sum says anything of all rows.
    every = set.intersection(*(set(one.columns) for one in known))
    return Jsonb(Digest(total.rows, {number: total.columns[number] for number in every}).json())


def _text(bound: Bound | None) -> str:
    assert bound is not None
    return bound.text


def _analyze(connection: Connection, managed: Managed, group: Group) -> None:
    """The planner's statistics of all the rows together. Without them plans suffer, rows do not."""
    try:
        statistics.measure(connection, managed.id)
        connection.execute(SQL("ANALYZE {}").format(Identifier(managed.table.schema, group.name)))
    except psycopg.Error as error:
        log.warning("the planner has no statistics of %s: %s; ANALYZE it", group.name, str(error).strip())


def joined(connection: Connection, managed: Managed, locks: Wanted) -> Iterator[Group]:
    """Join group after group."""
    for group in groups(connection, managed):
        coalesce(connection, managed, group, locks)
        yield group
