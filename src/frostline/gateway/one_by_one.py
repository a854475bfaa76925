"""Rows that are changed one by one: taken down as they come, and worked out together.

For every row of a join postgres_fdw sends `UPDATE ... SET c = $2 WHERE ctid = $1`, or the like, and wants to know
whether the row was there. That is known as long as nothing but such statements has come to the rows it was told of:
each can be changed once. So the new values go into a table, and what becomes of them is worked out when somebody looks.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from psycopg.sql import SQL, Identifier, Literal

from frostline.gateway import encode
from frostline.gateway.bench import PLACE, PREV, WRITE, Bench, Taking, Write
from frostline.gateway.translate import Parameters
from frostline.gateway.view import View
from frostline.gateway.writes import Modify


def take(
    view: View,
    bench: Bench,
    statement: Modify,
    given: Sequence[tuple[str, int]],
    parameters: Parameters,
    *,
    new_keys: bool,
) -> None:
    """Take down the change of a row that is there."""
    write = view.note(bench.table, statement.verb, statement.target.source, new_keys=new_keys)
    view.backing.check([write.number])
    taking = _taking(view, bench, write, tuple(name for name, _ in given))
    bench.counts[write.number] += 1
    values = [*(parameters[at] for _, at in given), parameters[0]]
    line = encode.lines([None if v is None else v.encode() for v in values], len(values), taking.number)
    view.backing.copy(taking.copy, line, write.number)


def _taking(view: View, bench: Bench, write: Write, columns: tuple[str, ...]) -> Taking:
    """The changes go on with those before, or others begin."""
    taking = bench.taking
    if taking is not None and taking.write == write and taking.columns == columns:
        return taking
    if bench.deferred or not bench.made:
        view.at_bench(bench, [])
    names = SQL(", ").join([*map(Identifier, columns), PLACE, WRITE])
    copy = SQL("COPY {} ({}) FROM STDIN").format(bench.taken, names).as_string(None)
    taking = bench.taking = Taking(write, columns, view.next_number(), copy)
    bench.deferred.append(partial(_worked_out, view, bench, taking))
    bench.row_by_row.add(write.number)
    return taking


def _worked_out(view: View, bench: Bench, taking: Taking) -> list[str]:
    """What was taken down becomes what was removed and added; nothing of a write that was undone."""
    write = taking.write
    if write not in view.written_of(bench.table.id).writes:
        return []
    keys = SQL(", ").join(bench.old_key)
    new = [Identifier("t" if c.name in taking.columns else "w", c.name) for c in bench.settable]
    names = SQL(", ").join(Identifier(column.name) for column in bench.settable)
    added = SQL(", added AS (INSERT INTO {} ({}, {}) SELECT {}, {} FROM done)").format(
        bench.added, names, WRITE, names, Literal(write.number)
    )
    query = SQL(
        "WITH t AS (DELETE FROM {taken} WHERE {w} = {turn} RETURNING *),"
        " done AS (SELECT {old}, {new} FROM t JOIN {work} w ON w.ctid = t.{place}),"
        " removed AS (INSERT INTO {removed} ({key}, {prev}, {w}) SELECT {keys}, {prev}, {number} FROM done){added}"
        " SELECT count(*) FROM done"
    ).format(
        taken=bench.taken,
        w=WRITE,
        turn=Literal(taking.number),
        old=SQL(", ").join(SQL("w.{}").format(column) for column in (*bench.old_key, PREV)),
        new=SQL(", ").join(new),
        work=bench.work,
        place=PLACE,
        removed=bench.removed,
        key=bench.key_names(),
        prev=PREV,
        keys=keys,
        number=Literal(write.number),
        added=added if write.verb == "UPDATE" else SQL(""),
    )
    return [query.as_string(None)]
