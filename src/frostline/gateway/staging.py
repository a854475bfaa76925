"""Many new cold rows at once: written to data files of the lake, which the client's transaction then stores by name.

A file that is staged is read as one more file of the snapshot, so its rows are the lake's: they are updated and deleted
by versions of the delta as any other. That is right only if no key in it was ever used: not in the lake, not in another
such file, not by a version of the delta. Where one was, the rows go the ordinary way, which knows what that means.

Rows get here through the bench, where Postgres has checked them and filled what it computes.
"""

from __future__ import annotations

import select
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
from psycopg.errors import error_from_result
from psycopg.pq import ExecStatus
from psycopg.sql import SQL, Composed, Identifier, Literal
from pyiceberg.schema import Schema
from pyiceberg.table import StaticTable

from frostline import faults
from frostline.catalog import identity, turns
from frostline.catalog.cold import ColdColumn, ColdTable
from frostline.catalog.database import Connection
from frostline.delta.collect import references_name
from frostline.delta.tables import SCHEMA
from frostline.gateway.backing import Backing
from frostline.gateway.bench import WRITE, Batch, Bench, Written, numbers
from frostline.gateway.names import Source
from frostline.gateway.operations import Way
from frostline.gateway.rows import Batches
from frostline.gateway.scan import cold_rows
from frostline.gateway.translate import column_name
from frostline.gateway.view import View
from frostline.lake import files, owner, staged, writer
from frostline.lake.decode import TRAILER, BadCopy, Wire, batch, without_header
from frostline.lake.engine import parquet_scan
from frostline.lake.layout import INSTALLATION, iceberg_type
from frostline.lake.pruning import Column, Compare
from frostline.lake.staged import StagedFile
from frostline.lake.writer import Writer
from frostline.model.bounds import Range

_MOST_BESIDE = 100_000  # versions that are looked at, one by one, when there were fewer before
_BLOCK_BYTES = 2 * 1024 * 1024  # of rows that are turned into columns at once


@dataclass(frozen=True)
class Staged:
    """Files with the rows of a batch, the first and the last partition key in them, and what the delta held then."""

    files: tuple[StagedFile, ...]
    ends: tuple[str, str]
    beside: tuple[object, ...]


def possible(view: View, bench: Bench) -> bool:
    """Whether new rows of the table may go into files: the lake is ours, has its columns, and nothing else looks on."""
    table = bench.table
    if table.snapshot_id is None or table.metadata_location is None or not table.followed:
        return False
    if not all(column.exact_equality for column in table.primary_key):
        return False
    fields = files.snapshot(view.storage, table.metadata_location, table.snapshot_id).fields
    if not all(_same_type(column, fields.get(column.field_id or 0)) for column in table.stored):
        return False
    checked = SQL("SELECT pg_catalog.to_regclass({})").format(
        Literal(Identifier(SCHEMA, references_name(table.id)).as_string(None))
    )
    with view.backing.running():
        connection = view.backing.connection
        if connection.execute(checked).fetchone() != (None,):
            return False  # foreign keys are checked as versions are stored
        return identity.known(connection) in (None, identity.here(connection))


def _same_type(column: ColdColumn, field: object) -> bool:
    return field is not None and getattr(field, "field_type", None) == iceberg_type(column.storage.iceberg)


def stage(view: View, bench: Bench, written: Written) -> Staged | None:
    """Write the held rows to files; None: they have to go the ordinary way, and nothing is left of these."""
    table, held = bench.table, numbers(written.held)
    static = StaticTable.from_metadata(str(table.metadata_location), view.storage.python())
    if static.properties.get(INSTALLATION) not in (None, table.installation):
        return None  # this is a copy of the database that the lake belongs to
    if not _known_there(view, table.id, static):
        return None  # or this one has a copy that does not know it is one
    size, prefix = table.file_size or view.bulk.file_bytes, f"{staged.PREFIX}-{table.id}"
    target = writer.target(static, _looked_up(table, static.schema()), size, prefix)
    output = Writer(target)
    try:
        query, columns = _query(bench, written, target)
        try:
            _copy(view.backing, query, columns, output.add)
            output.flush()
        except OSError as error:
            raise view.storage.failed(error) from error
        made = tuple(StagedFile(file, target.spec.spec_id) for file in output.written)
        paths = staged.paths(made)
        faults.reached("write.staged")
        if not made or not _unused(view, bench, written, made):
            output.discard()
            return None
        view.storage.flush(paths)
        view.made(table.id, paths, lambda: _known_there(view, table.id, static))
        faults.reached("write.flushed")
        ends = SQL("SELECT min({k})::text, max({k})::text FROM {} WHERE {} = {}").format(
            bench.added, WRITE, held, k=Identifier(table.key.name)
        )
        first, last = view.backing.connection.execute(ends).fetchone() or (None, None)
        beside = view.backing.connection.execute(_delta(table)).fetchone()
    except (BadCopy, pa.ArrowInvalid):
        output.discard()
        return None  # the lake cannot hold a value: which one is told when it is a version
    except BaseException:
        output.discard()
        raise
    view.metrics.add("rows_staged_total", sum(file.written.rows for file in made))
    view.metrics.add("writes_total", way=str(Way.FILES))
    return Staged(made, (str(first), str(last)), tuple(beside or ()))


def _known_there(view: View, table_id: int, static: StaticTable) -> bool:
    """Leave a word in the lake, as every operation does: a copy of the disk would take our files for leftovers."""

    def leave(connection: Connection) -> bool:
        word = owner.word(static.io, static.location())
        if word is not None and not turns.known(connection, word):
            return False
        turns.leave(connection, table_id, put)
        return True

    def put(word: str) -> bool:
        owner.leave_word(static.io, static.location(), word)
        return True

    try:
        return view.follower.run(leave)
    except OSError as error:
        raise view.storage.failed(error) from error


def _looked_up(table: ColdTable, schema: Schema) -> tuple[str, ...]:
    """The lake's names of the key's columns by which rows are asked for, one by one."""
    ids = [column.field_id or 0 for column in table.primary_key if column != table.key]
    return tuple(schema.find_field(id_).name for id_ in ids)


def still(view: View, bench: Bench, batch: Batch) -> bool:
    """Whether their keys are still nobody else's; the client keeps all others out by now.

    Its own snapshot may be too old to see that, and ours is.
    """
    if not view.storage.holds_all(staged.paths(batch.files)):
        return False  # it waited so long that they were taken for leftovers
    return tuple(view.follower.now(_delta(bench.table)) or ()) == batch.beside or _apart(view, bench, batch)


def _apart(view: View, bench: Bench, batch: Batch) -> bool:
    """Whether the versions that there are now, if they are not too many, are of other keys."""
    table, key = bench.table, Identifier(bench.table.key.name)
    first, last = (Literal(mark[table.key.name]) for mark in batch.versions)
    found = SQL("SELECT count(*), {} FROM (SELECT * FROM {} WHERE {k} BETWEEN {} AND {} LIMIT {}) v").format(
        SQL(", ").join(SQL("array_agg({}::text)").format(Identifier(column.name)) for column in bench.key),
        Identifier(*table.delta),
        first,
        last,
        Literal(_MOST_BESIDE + 1),
        k=key,
    )
    count, *columns = view.follower.now(found) or (_MOST_BESIDE + 1,)
    if not 0 < count <= _MOST_BESIDE:
        return bool(count == 0)
    same = SQL(
        "SELECT EXISTS (SELECT FROM {} a JOIN (SELECT {} FROM unnest({}) u ({})) v ON ({}) WHERE a.{} = {})"
    ).format(
        bench.added,
        SQL(", ").join(
            SQL("{c}::{} AS {c}").format(SQL(column.type), c=Identifier(column.name)) for column in bench.key
        ),
        SQL(", ").join(SQL("{}::text[]").format(Literal(values)) for values in columns),
        bench.key_names(),
        bench.same_key("a", "v"),
        WRITE,
        numbers(batch.of.held),
    )
    (result,) = view.at_bench(bench, [same.as_string(None)])
    return result.get_value(0, 0) == b"f"


def _delta(table: ColdTable) -> Composed:
    """What tells the versions of cold rows apart: while the Iceberg snapshot stays they only get more."""
    assert table.seam is not None
    return SQL("SELECT count(*), coalesce(sum(_seq), 0) FROM {} WHERE {} < {}::{}").format(
        Identifier(*table.delta), Identifier(table.key.name), Literal(table.seam.text), SQL(table.key.type)
    )


def _query(bench: Bench, written: Written, target: writer.Target) -> tuple[str, list[Wire]]:
    """A COPY of the held rows, with the columns of the lake in its order; what goes to one period comes together."""
    by_id = {column.field_id: column for column in bench.table.stored}
    last = max(column.number for column in bench.table.columns.values())
    values, wires = [], []
    for field in target.schema.fields:
        column = by_id.get(field.field_id)
        name = "" if column is None else Identifier(column.name).as_string(None)
        # The lake's own column says which columns a row knows.
        values.append(f"{last}::int" if column is None else column.storage.copied.replace("{c}", name))
        wire = "int4" if column is None else column.storage.wire
        wires.append(Wire(field.name, wire, writer.arrow_type(field.field_type)))
    order = SQL(" ORDER BY {}").format(WRITE) if len(written.held) > 1 else SQL("")
    source = SQL("FROM {} WHERE {} = {}{}").format(bench.added, WRITE, numbers(written.held), order)
    return f"COPY (SELECT {', '.join(values)} {source.as_string(None)}) TO STDOUT (FORMAT binary)", wires


def _copy(backing: Backing, query: str, columns: Sequence[Wire], take: Callable[[pa.RecordBatch], None]) -> None:
    """Hand over the rows of a binary COPY, a block at a time."""
    with backing.savepoint():
        block: list[bytes] = []
        size = 0
        for message in _messages(backing, query):
            block.append(message)
            size += len(message)
            if size >= _BLOCK_BYTES:
                take(batch(block, columns))
                block, size = [], 0
        if block:
            take(batch(block, columns))


def _messages(backing: Backing, query: str) -> Iterator[bytes]:
    """One of each row. Others go on while Postgres is waited for, and whoever stops early leaves no COPY behind."""
    connection = backing.connection
    pg = connection.pgconn
    poll = select.poll()
    poll.register(pg.socket, select.POLLIN)
    result = pg.exec_(query.encode())
    if result.status != ExecStatus.COPY_OUT:
        raise error_from_result(result)
    done = begun = False
    try:
        while True:
            length, data = pg.get_copy_data(1)
            if length > 0:
                row = bytes(data)
                if not begun:
                    row, begun = without_header(row), True
                if row and row != TRAILER:
                    yield row
            elif length == 0:
                poll.poll()
                pg.consume_input()
            else:
                break
        done = True
    finally:
        if not done:
            connection.cancel_safe(timeout=5)
            while pg.get_copy_data(0)[0] > 0:
                pass
        last = pg.get_result()
        while pg.get_result() is not None:
            pass
    if last is not None and last.status == ExecStatus.FATAL_ERROR:
        raise error_from_result(last)


def _unused(view: View, bench: Bench, written: Written, made: Sequence[StagedFile]) -> bool:
    """Whether every key in the files is there once, and nowhere else."""
    table = bench.table
    fields = files.snapshot(view.storage, str(table.metadata_location), int(table.snapshot_id or 0)).fields
    named = {column_name(column.number): fields[column.field_id or 0] for column in table.primary_key}
    keys = ", ".join(named)
    rows = parquet_scan(staged.paths(made), named)
    if _found(view, f"SELECT 1 FROM {rows} GROUP BY {keys} HAVING count(*) > 1 LIMIT 1"):
        return False
    lake = cold_rows(
        view,
        Source(table.id, Range(None, table.seam), lake_only=True),
        table,
        set(table.primary_key),
        _around(table, made, fields),
    )
    same = " AND ".join(f"t.{name} = k.{name}" for name in named)
    if not lake.empty and _found(view, f"SELECT 1 FROM {lake.sql} SEMI JOIN {rows} AS k ON ({same}) LIMIT 1"):
        return False
    return not view.has_versions(table) or not _in_the_delta(view, bench, written)


def _found(view: View, query: str) -> bool:
    batches = Batches(view.cursors, view.canceller, query)
    try:
        found = batches.next()
        return found is not None and found.num_rows > 0
    finally:
        batches.close()


def _around(table: ColdTable, made: Sequence[StagedFile], fields: files.Fields) -> list[Compare]:
    """What other files must reach into to have one of the keys."""
    alone = files.Snapshot(tuple(file.data_file for file in made), fields, frozenset(), plain=True, vectors=False)
    found: list[Compare] = []
    for column in table.primary_key:
        known = alone.column(column.field_id or 0)
        if known is None:
            continue
        at = Column(column.field_id or 0, column.storage.iceberg)
        least = [value for value in known.lower if value is not None]
        greatest = [value for value in known.upper if value is not None]
        if len(least) == len(greatest) == len(made):
            found += [Compare(at, ">=", min(least)), Compare(at, "<=", max(greatest))]
    return found


def _in_the_delta(view: View, bench: Bench, written: Written) -> bool:
    """Also as a tombstone: then a new row is a version that replaces it."""
    query = SQL("SELECT EXISTS (SELECT FROM {} a JOIN {} v ON ({}) WHERE a.{} = {})").format(
        bench.added, view.version_rows(bench.table), bench.same_key("a", "v"), WRITE, numbers(written.held)
    )
    (result,) = view.at_bench(bench, [query.as_string(None)])
    return result.get_value(0, 0) == b"t"
