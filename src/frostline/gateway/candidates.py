"""Rows that a statement may change, put on the bench with the version each of them is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain

from psycopg.sql import SQL, Identifier, Literal

from frostline.catalog.cold import ColdColumn, ColdTable
from frostline.gateway import encode, points
from frostline.gateway.bench import FEW_ROWS, LOAD, PREV, WRITE, Bench, Later, Write, numbers, values
from frostline.gateway.names import Source
from frostline.gateway.narrowed import Narrowed
from frostline.gateway.points import Sought
from frostline.gateway.rows import Batches
from frostline.gateway.scan import cold_rows, lake_rows
from frostline.gateway.translate import column_name
from frostline.gateway.view import View


@dataclass(frozen=True)
class Load:
    """Rows on the bench, or on their way there: `before` puts them there."""

    number: int
    before: Later
    columns: Sequence[ColdColumn] = ()
    rows: Sequence[Sequence[str | None]] = ()  # a few: these columns, the primary key, the version


def sought(source: Source, table: ColdTable, narrowed: Narrowed) -> Sought:
    """The rows that may be concerned, where they are few; Postgres looks at every other condition anyway."""
    outputs = (*table.settable, *table.primary_key)
    return points.sought(source, table, outputs, narrowed.files, lambda: narrowed.keys)


def candidates(
    view: View,
    source: Source,
    table: ColdTable,
    narrowed: Narrowed,
    wanted: Sought | None = None,
    *,
    changed: bool = True,
) -> Load | None:
    """Put the rows that may be concerned on the bench, with the version each of them is; None: there are none.

    Rows that are only read, not changed, are as they were when the statement began, whatever it has done since.
    """
    bench = view.bench(table)
    bench.begin_load(alone=not view.written_of(table.id).held and not view.reading)
    columns = bench.settable
    outputs = (*columns, *table.primary_key)
    ahead = wanted.ahead if wanted is not None else ()
    lake = ahead[0].scan if ahead else lake_rows(view, source, table, outputs, narrowed.files)
    few = points.few(view, lake, wanted or sought(source, table, narrowed))
    if few == []:
        return None
    number = view.next_number()
    bench.load(number, source.range)
    after = _after(view, bench, number) if changed else []
    if few is not None:
        return _few(bench, columns, [[*row.values, row.number, str(number)] for row in few], number, after)
    conditions, more = narrowed.filter.conditions, narrowed.filter.columns
    scan = cold_rows(view, source, table, {*outputs, *more}, narrowed.files, keys=narrowed.keys, versions=True)
    if scan.empty:
        return None
    where = f" WHERE {' AND '.join(conditions)}" if conditions else ""
    texts = [text(c) for c in outputs] + [f"CAST({scan.version} AS VARCHAR)", f"'{number}'"]
    query = f"SELECT {', '.join(f'{o} AS o{at}' for at, o in enumerate(texts))} FROM {scan.sql}{where}"
    batches = Batches(view.cursors, view.canceller, query)
    try:
        return _load(view, bench, columns, batches, number, after)
    finally:
        batches.close()


def _load(
    view: View, bench: Bench, columns: Sequence[ColdColumn], batches: Batches, number: int, after: list[str]
) -> Load | None:
    first = batches.next()
    if first is None or first.num_rows == 0:
        return None
    second = batches.next()
    if second is None and first.num_rows <= FEW_ROWS:
        rows = list(zip(*(column.to_pylist() for column in first.columns), strict=True))
        return _few(bench, columns, rows, number, after)
    view.at_bench(bench, bench.tidy())
    count = 0
    with (
        view.backing.savepoint() as connection,
        connection.cursor().copy(f"COPY {_target(bench, columns)} FROM STDIN") as copy,
    ):
        for batch in chain((first, second), iter(batches.next, None)):
            if batch is not None:
                count += batch.num_rows
                for lines in encode.copy_lines(batch):
                    copy.write(lines)
    bench.loaded(count)
    return Load(number, lambda: after)


def _few(
    bench: Bench,
    columns: Sequence[ColdColumn],
    rows: Sequence[Sequence[str | None]],
    number: int,
    after: list[str],
) -> Load:
    def listed() -> list[str]:
        before = bench.tidy()
        bench.loaded(len(rows))
        return [*before, f"INSERT INTO {_target(bench, columns)} VALUES {values(rows)}", *after]

    return Load(number, listed, columns, rows)


def _after(view: View, bench: Bench, number: int) -> list[str]:
    held = view.written_of(bench.table.id).held
    return [_without_removed(bench, held, number)] if held else []


def _target(bench: Bench, columns: Sequence[ColdColumn]) -> str:
    names = SQL(", ").join([*map(Identifier, (c.name for c in columns)), *bench.old_key, PREV, LOAD])
    return SQL("{} ({})").format(bench.work, names).as_string(None)


def _without_removed(bench: Bench, held: Sequence[Write], load: int) -> str:
    """The same statement has changed some of these rows already, and changes no row twice."""
    query = SQL("DELETE FROM {} w USING {} r WHERE {} AND w.{} = {} AND r.{} = {}").format(
        bench.work, bench.removed, bench.old_key_is("r"), LOAD, Literal(load), WRITE, numbers(held)
    )
    return query.as_string(None)


def text(column: ColdColumn) -> str:
    """A column's value as Postgres prints it, in DuckDB's SQL."""
    return column.storage.text.replace("{c}", column_name(column.number))
