"""Rows that a statement may change, put on the bench with the version each of them is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import psycopg
from psycopg.sql import SQL, Identifier, Literal

from frostline.catalog.cold import ColdColumn, ColdTable
from frostline.gateway import encode
from frostline.gateway.bench import LOAD, PREV, WRITE, Bench, Write, numbers
from frostline.gateway.names import Source
from frostline.gateway.rows import Batches
from frostline.gateway.scan import cold_rows
from frostline.gateway.translate import Filter, column_name
from frostline.gateway.view import View
from frostline.lake.pruning import Condition


def candidates(
    view: View, source: Source, table: ColdTable, narrowed: Filter, files: tuple[Condition, ...]
) -> int | None:
    """Put the rows that may be concerned on the bench; returns the load's number, None when there are none."""
    bench = view.bench(table)
    columns = [column for column in bench.settable if column.lake_name is not None]
    scan = cold_rows(view, source, table, {*columns, *table.primary_key, *narrowed.columns}, files, versions=True)
    if scan.empty:
        return None
    load = view.next_number()
    where = f" WHERE {' AND '.join(narrowed.conditions)}" if narrowed.conditions else ""
    outputs = [_text(c) for c in (*columns, *table.primary_key)] + [f"CAST({scan.version} AS VARCHAR)", f"'{load}'"]
    query = f"SELECT {', '.join(f'{o} AS o{at}' for at, o in enumerate(outputs))} FROM {scan.sql}{where}"
    batches = Batches(view.cursors, view.canceller, query)
    try:
        return load if _load(view, bench, columns, batches, load) else None
    finally:
        batches.close()


def _load(view: View, bench: Bench, columns: Sequence[ColdColumn], batches: Batches, load: int) -> int:
    batch = batches.next()
    if batch is None or batch.num_rows == 0:
        return 0
    count = 0
    held = view.written_of(bench.table.id).held
    target = SQL("COPY {} ({}) FROM STDIN").format(
        bench.work, SQL(", ").join([*map(Identifier, (c.name for c in columns)), *bench.old_key, PREV, LOAD])
    )
    with view.backing.savepoint() as connection:
        if not held and not view.reading:
            bench.tidy(connection)
        with connection.cursor().copy(target) as copy:
            while batch is not None:
                count += batch.num_rows
                for lines in encode.copy_lines(batch):
                    copy.write(lines)
                batch = batches.next()
        if held:
            count -= _without_removed(connection, bench, held, load)
    bench.loaded(count)
    return count


def _without_removed(connection: psycopg.Connection[Any], bench: Bench, held: Sequence[Write], load: int) -> int:
    """The same statement has changed some of these rows already, and changes no row twice."""
    same = SQL(" AND ").join(
        SQL("w.{} = r.{}").format(old, Identifier(column.name))
        for column, old in zip(bench.key, bench.old_key, strict=True)
    )
    query = SQL("DELETE FROM {} w USING {} r WHERE {} AND w.{} = {} AND r.{} = {}").format(
        bench.work, bench.removed, same, LOAD, Literal(load), WRITE, numbers(held)
    )
    return connection.execute(query).rowcount


def _text(column: ColdColumn) -> str:
    return column.storage.text.replace("{c}", column_name(column.number))
