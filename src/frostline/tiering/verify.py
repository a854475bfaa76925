"""Whether the cold tier still holds what was archived: every file, every row, every column, at any time.

What the lake holds of a period is compared with the hashes recorded when it was archived, or when it was first verified
after a fold. Changes since then stand in
the delta and are none of the lake's: what readers see must be exactly the lake's rows without those the delta replaces,
and the delta's newest versions. Both are computed by Postgres, at one snapshot.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import psycopg
from psycopg.sql import SQL, Composable, Composed, Identifier
from psycopg.types.json import Jsonb

from frostline.catalog import queries, registry
from frostline.catalog.database import Connection, connect, in_recovery, out_of_reach
from frostline.catalog.registry import Managed
from frostline.config import Settings
from frostline.errors import FrostlineError, RefusedError
from frostline.lake import files as lake
from frostline.lake import inspect, storage
from frostline.model.bounds import Bound, Range, parse_bound
from frostline.report import Report
from frostline.tiering import ddl, staged, statistics
from frostline.tiering.digest import (
    SHOWN_KEYS,
    Digest,
    differing,
    digest_of,
    exported_snapshot,
    first_keys,
    foreign_table,
)
from frostline.tiering.locks import only_writer
from frostline.tiering.meant import Meant, meant

_FIRST = Bound("", -(2**200))
_GONE = (FileNotFoundError, NotADirectoryError)  # any other error of a store is about the store, not the file


@dataclass(frozen=True)
class Sources:
    """Foreign tables for one transaction: the lake alone, and what readers see. Each session has its own names."""

    lake: Identifier
    seen: Identifier

    @classmethod
    def of(cls, connection: Connection) -> Sources:
        pid = connection.info.backend_pid
        return cls(Identifier("frostline", f"verify_lake_{pid}"), Identifier("frostline", f"verify_seen_{pid}"))


@dataclass(frozen=True)
class Period:
    """A cold period as the registry has it."""

    name: str
    range: Range
    rows: int
    digest: Digest | None  # None: changed by a fold since hashes were recorded


@dataclass(frozen=True)
class Finding:
    """What was found of one period."""

    period: str
    state: str  # good, damaged, unknown (could not be asked), hot, on its way
    rows: int | None = None
    files: int | None = None
    changed: int | None = None  # versions in the delta
    problems: tuple[str, ...] = ()
    anew: tuple[int, Digest] | None = None  # what a snapshot holds, where nothing is recorded of it

    @property
    def failed(self) -> bool:
        return self.state in ("damaged", "unknown")


def verify(settings: Settings, text: str, wanted: str | None, report: Report) -> list[Finding]:
    """Verify a table's cold periods, or one of them; a problem stays in the registry as an alarm until it is gone."""
    with connect(settings.dsn.get_secret_value(), application="frostline verify") as connection:
        if in_recovery(connection):
            raise RefusedError(
                "verifying needs foreign tables of its own, which a standby cannot have; nothing was verified",
                hint="verify on the primary: the lake's files are the same",
            )
        managed = _all_in_the_lake(connection, settings, registry.get(connection, text), report)
        periods = _periods(connection, managed)
        if wanted is not None:
            one = meant(connection, managed, wanted)
            hot = list(_hot(connection, managed, one))
            periods = [period for period in periods if one.is_(period.name, period.range)]
            if not periods and not hot:
                raise RefusedError(
                    f"{managed.table} has no partition {wanted}",
                    hint="name a partition, or a value of the partition key",
                )
            if hot:
                return hot
        found = []
        for period in periods:
            with report.step(f"verify {period.name}") as progress:
                found.append(finding := _verified(settings, text, period))
                progress.note = finding.state
            if finding.state != "unknown":
                _record(connection, managed, period, finding)
        return found


def _all_in_the_lake(connection: Connection, settings: Settings, managed: Managed, report: Report) -> Managed:
    """With what was staged: hashes are of what a snapshot holds."""
    if not staged.waiting(connection, managed).files:
        return managed
    with only_writer(connection, managed) as locked:
        current = staged.add(connection, settings, locked, report)
        statistics.refresh(connection, current)
        return current


def _periods(connection: Connection, managed: Managed) -> list[Period]:
    return [
        Period(
            f"{schema}.{name}",
            Range(parse_bound(lower) if lower is not None else None, parse_bound(upper)),
            rows,
            Digest.of_json(digest),
        )
        for schema, name, lower, upper, rows, digest in sorted(
            queries.rows(connection, "periods", table=managed.id), key=lambda row: parse_bound(row[3]) or _FIRST
        )
    ]


def _hot(connection: Connection, managed: Managed, wanted: Meant) -> Iterator[Finding]:
    for leaf in managed.table.leaves:
        if wanted.is_(str(leaf), leaf.range):
            running = queries.row(connection, "on_its_way", table=managed.id, leaf=str(leaf))
            if running is None:
                yield Finding(str(leaf), "hot", problems=("its rows are in Postgres; the lake has none of them",))
            else:
                said = f"operation {running[0]} is at {running[1]}; until its swap Postgres has the rows"
                yield Finding(str(leaf), "on its way", problems=(said,))


def _verified(settings: Settings, text: str, period: Period) -> Finding:
    """Files first: what is wrong with them explains whatever else there is."""
    with connect(settings.dsn.get_secret_value(), application="frostline verify", autocommit=False) as connection:
        try:
            snapshot = exported_snapshot(connection)
            managed = registry.get(connection, text)
            period = next((p for p in _periods(connection, managed) if p.range == period.range), period)
            if staged.waiting(connection, managed).files:
                late = "many rows were added just now; run the same command again"
                return Finding(period.name, "unknown", problems=(late,))
            files, problems = _files(settings, managed, period)
            if files is None:
                return Finding(period.name, "unknown", problems=tuple(problems))
            if problems:
                return Finding(period.name, "damaged", files=files, problems=tuple(problems))
            sources = Sources.of(connection)
            connection.execute(foreign_table(managed, sources.lake, period.range, f" lake snapshot {snapshot}"))
            connection.execute(foreign_table(managed, sources.seen, period.range, f" snapshot {snapshot}"))
            found = digest_of(connection, managed.table, sources.lake)
            changed = _changes(connection, managed, period)
            problems = [*_contents(connection, managed, period, found, sources)]
            if changed and not problems:
                problems = [*_merged(connection, managed, period, sources)]
            state = "damaged" if problems else "good"
            anew = (managed.snapshot_id, found) if period.digest is None and managed.snapshot_id is not None else None
            return Finding(period.name, state, found.rows, files, changed, tuple(problems), anew)
        except psycopg.Error as error:
            # The gateway is away, or to it the store is: the files themselves were found whole just now.
            # And what was altered so that old rows cannot follow is not damaged.
            away = out_of_reach(error, "58") or isinstance(error, psycopg.errors.FeatureNotSupported)
            state = "unknown" if away else "damaged"
            return Finding(period.name, state, problems=(f"cannot be read: {' '.join(str(error).split())}",))
        finally:
            connection.rollback()


def _files(settings: Settings, managed: Managed, period: Period) -> tuple[int | None, list[str]]:
    """How many, and what is wrong with them; None: the store cannot be asked."""
    if managed.snapshot_id is None or managed.metadata_location is None:
        return 0, []
    key = managed.field_ids[managed.table.key]
    try:
        files = storage.of(settings)
        snapshot = lake.snapshot(files, managed.metadata_location, managed.snapshot_id)
        chosen = inspect.files_of(snapshot, key, managed.table.key_type, period.range)
        io = inspect.opened(files, managed.metadata_location)
        damages = [(file.path, inspect.damage(io, file)) for file in chosen]
    except (FrostlineError, OSError) as error:
        cause = error.__cause__ or error
        away = isinstance(cause, OSError) and not isinstance(cause, _GONE)
        return None if away else 0, [f"snapshot {managed.snapshot_id} of {managed.metadata_location}: {error}"]
    return len(chosen), [f"file {path} {what}" for path, what in damages if what is not None]


def _contents(
    connection: Connection, managed: Managed, period: Period, found: Digest, sources: Sources
) -> Iterator[str]:
    """What the lake holds against what it held when the period was archived."""
    if found.rows != period.rows:
        yield f"{found.rows:,} rows in the lake instead of {period.rows:,}"
    if period.digest is not None:
        known = [column for column in managed.table.stored if column.number in period.digest.columns]
        columns = differing(known, period.digest, found)
        if columns and period.rows:
            yield f"contents differ from what was archived in {', '.join(columns)}"
    if found.rows > period.rows:
        yield f"keys that stand there twice: {', '.join(_doubled(connection, managed, sources)) or 'none'}"


def _doubled(connection: Connection, managed: Managed, sources: Sources) -> list[str]:
    key = SQL(", ").join(Identifier(name) for name in managed.table.primary_key)
    query = SQL("SELECT ROW({k})::text FROM {t} GROUP BY {k} HAVING count(*) > 1 ORDER BY {k} LIMIT {n}").format(
        k=key, t=sources.lake, n=SQL(str(SHOWN_KEYS))
    )
    return [str(found) for (found,) in connection.execute(query)]


def _changes(connection: Connection, managed: Managed, period: Period) -> int:
    within = ddl.within(managed.table, period.range)
    row = connection.execute(
        SQL("SELECT count(*) FROM {} WHERE {}").format(Identifier(*managed.delta), within)
    ).fetchone()
    return row[0] if row else 0


def _merged(connection: Connection, managed: Managed, period: Period, sources: Sources) -> Iterator[str]:
    """What readers see against the lake and the delta put together by Postgres."""
    expected = SQL("({}) AS merged").format(_together(managed, period, sources.lake))
    columns = managed.table.stored
    seen, should = (digest_of(connection, managed.table, source) for source in (sources.seen, expected))
    if seen != should:
        keys = first_keys(connection, managed, sources.seen, expected)
        yield (
            f"readers see {seen.rows:,} rows where lake and delta together have {should.rows:,}; columns that differ: "
            f"{', '.join(differing(columns, seen, should)) or 'none'}; first keys: {', '.join(keys) or 'none'}"
        )


def _together(managed: Managed, period: Period, lake_only: Identifier) -> Composed:
    def listed(names: tuple[str, ...], prefix: str = "") -> Composable:
        return SQL(", ").join(SQL(prefix) + Identifier(name) for name in names)

    delta, key = Identifier(*managed.delta), managed.table.primary_key
    every = tuple(column.name for column in managed.table.stored)
    same = SQL(" AND ").join(SQL("d.{c} = l.{c}").format(c=Identifier(name)) for name in key)
    return SQL(
        "SELECT {lake} FROM {l} l WHERE NOT EXISTS (SELECT FROM {d} d WHERE {same})"
        " UNION ALL SELECT {same_types} FROM"
        " (SELECT DISTINCT ON ({key}) * FROM {d} WHERE {within} ORDER BY {key}, _seq DESC) d WHERE _op = 'U'"
    ).format(
        lake=listed(every, "l."),
        l=lake_only,
        d=delta,
        same=same,
        same_types=SQL(", ").join(
            SQL("{}::{}").format(Identifier(c.name), SQL(c.base_type)) for c in managed.table.stored
        ),
        key=listed(key),
        within=ddl.within(managed.table, period.range),
    )


def _record(connection: Connection, managed: Managed, period: Period, finding: Finding) -> None:
    assert period.range.upper is not None
    connection.execute(
        "UPDATE frostline.periods SET verified_at = clock_timestamp(), alarm = %s WHERE table_id = %s AND upper = %s",
        ("; ".join(finding.problems) or None, managed.id, period.range.upper.text),
    )
    if finding.anew is not None and finding.state == "good":
        snapshot, found = finding.anew
        connection.execute(
            "UPDATE frostline.periods p SET digest = %s FROM frostline.tables t WHERE p.table_id = %s AND p.upper = %s"
            " AND p.digest IS NULL AND t.id = p.table_id AND t.snapshot_id = %s",
            (Jsonb(found.json()), managed.id, period.range.upper.text, snapshot),
        )
