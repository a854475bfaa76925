"""From what a statement removed and added to the versions the client's transaction stores.

Per key and statement there is one: a key that lost its row and got another has a new version of it, one that only lost
it a tombstone. A key that only got a row must have been free. A row whose key is not cold any more moves to the hot
partition.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import pyarrow as pa
from psycopg.pq.abc import PGresult
from psycopg.sql import SQL, Composable, Composed, Identifier, Literal

from frostline import faults
from frostline.catalog.cold import ColdColumn
from frostline.catalog.names import SERVER_NAME
from frostline.delta.collect import ALONE, FEW, INSIDE, MANY, WAS_RESET, uncollected
from frostline.errors import QueryError
from frostline.gateway import lexer, staging
from frostline.gateway.bench import FEW_ROWS, WRITE, Batch, Bench, Inner, Mark, Write, Written, names, numbers, values
from frostline.gateway.lexer import Token
from frostline.gateway.names import Source, held_table
from frostline.gateway.rows import Batches, FixedRows, PostgresRows, Rows
from frostline.gateway.scan import cold_rows
from frostline.gateway.translate import column_name
from frostline.gateway.view import View, exported, in_range
from frostline.gateway.wire.messages import Field
from frostline.lake.staged import written_down
from frostline.model.bounds import Bound, Range, parse_bound
from frostline.model.tables import as_sql

Version = Mapping[str, str | None]  # by column
# A relation through which rows of a table are written, and that has not both triggers.
_DISABLED = SQL("""
SELECT pg_catalog.format('%I', c.relname)
FROM frostline.tables t
JOIN pg_catalog.pg_class c ON c.oid IN (SELECT a.relid FROM pg_catalog.pg_partition_ancestors(t.relation) a)
  OR c.oid IN (SELECT p.foreign_table FROM frostline.periods p WHERE p.table_id = t.id) AND c.relispartition
WHERE t.id = {} AND 2 > (
  SELECT count(DISTINCT f.proname) FROM pg_catalog.pg_trigger g JOIN pg_catalog.pg_proc f ON f.oid = g.tgfoid
  WHERE g.tgrelid = c.oid AND g.tgenabled = 'A' AND g.tgnargs = 0
    AND f.pronamespace = 'frostline'::pg_catalog.regnamespace AND f.proname IN ('collect_' || t.id, 'begins_' || t.id))
LIMIT 1
""")
_KEYS_AT_ONCE = 50_000
_UNIT = {"date": 86_400_000_000}  # between two neighbouring keys, where that is not one


def held(view: View, table_id: int, text: str, tokens: Sequence[Token], span: tuple[int, int]) -> Rows:
    """The versions that wait to be stored, as the collecting function asks for them."""
    fields = _fields(tokens[1 : lexer.clause(tokens, "from")])
    batch = _waiting(view, table_id)
    if batch is None:
        return FixedRows(fields)
    view.benches[table_id].asked_by = view.scan
    if batch.versions:
        return FixedRows(fields, _listed(fields, batch.versions))
    rows = f"{view.benches[table_id].versions.as_string(None)} WHERE _batch = {batch.number}"
    return PostgresRows(view.backing, lexer.splice(text, [(0, tokens[0].start, ""), (*span, rows)]))


@dataclass(frozen=True)
class Taking:
    """What the collecting function asks for: all that is held of a table, in the name of a statement so deep."""

    table_id: int
    fields: tuple[Field, ...]
    _depth: str  # a number, or a parameter

    def depth(self, parameters: Sequence[str | None]) -> int:
        value = parameters[int(self._depth[1:]) - 1] if self._depth[0] == "$" else self._depth
        if value is None or not value.isdecimal():
            raise _not_taken()
        return int(value)


@lru_cache(maxsize=1000)
def taking(text: str) -> Taking | None:
    """What a DELETE takes of what is held; None: it is no such. Always the same words, so they are read once."""
    tokens = lexer.tokens(text)
    held = held_table(tokens)
    if held is None:
        return None
    at = lexer.clause(tokens, "returning")
    depth = None if at is None else _depth(tokens[:at])
    if at is None or depth is None:
        raise _not_taken()
    return Taking(held[0], tuple(_fields(tokens[at + 1 :])), depth)


def _not_taken() -> QueryError:
    return QueryError("versions of cold rows are taken by the trigger that stores them", sqlstate="0A000")


def taken(view: View, asked: Taking, parameters: Sequence[str | None]) -> Rows:
    """The same in one round trip, if they are few: whoever takes them stores them, or the statement fails.

    Before them comes a row that says how many they are, at which snapshot they were worked out, and how often files had
    been staged by then (for a batch); or that they are more, or in files, and wait to be read and acknowledged.
    """
    table_id, fields, depth = asked.table_id, asked.fields, asked.depth(parameters)
    doubts = _doubts(view, table_id, depth)
    batch = _waiting(view, table_id)
    if batch is None or view.benches[table_id].begins is None:
        view.touched.discard(table_id)  # nobody has asked in whose name it was: frostline.strict is off
    if batch is None:
        written = view.written_of(table_id)
        if written.ended(depth) is not written:
            view.store(table_id, written.ended(depth))
        return FixedRows(fields, _listed(fields, doubts))
    bench = view.benches[table_id]
    bench.depth = depth
    found = () if batch.files else batch.versions or _few(view, bench, batch)
    head: dict[str, str | None] = {"_op": FEW if found else MANY, "_seq": str(batch.rows)}
    if found:
        head["_prev"], staged = _acknowledged(view, bench, batch)
        head["_batch"] = str(staged)
    return FixedRows(fields, _listed(fields, [head, *doubts, *found]))


def _doubts(view: View, table_id: int, depth: int) -> list[Version]:
    """What whoever stores has to see to: see `collect.ALONE`."""
    written = view.written_of(table_id)
    silent = depth and not any(one.depth == depth for one in written.inner)  # it did not say that it begins
    if written.held and silent and (len(written.held) > 1 or written.batches):
        view.doubted.add(table_id)
    if table_id in view.doubted | view.beyond:
        _refuse_disabled(view, table_id)
    signs = [sign for sign, found in ((ALONE, view.doubted), (INSIDE, view.beyond)) if table_id in found]
    view.doubted.discard(table_id)
    view.beyond.discard(table_id)
    return [{"_op": sign} for sign in signs]


def begins(view: View, argument: str) -> str:
    """A statement begins inside another one, which has perhaps changed rows: then these are stored first.

    Without a depth it is only asked whether there is anything to be said at the statement's end.
    """
    table_id, *depths = map(int, argument.split())
    written = view.written_of(table_id)
    if not depths:
        return "held" if written.held or written.inner or table_id in view.beyond else "nothing"
    depth, known = depths[0], written.inner
    if depths[1:] and known:
        _refuse_reset(view, table_id)
    same = next((one for one in known if one.depth == depth), None)
    if same is not None and not same.over:
        return "nothing"  # another part of the same
    batch = _waiting(view, table_id)
    written = view.written_of(table_id)  # what came to nothing is not held any more
    sees = (same.batches, same.files) if same is not None else (len(written.batches), len(written.files))
    # The client's own is called by nobody: whatever was called before is over.
    made = (Inner(view.next_number(), depth, *sees),) if depth else ()
    now = replace(written, inner=(*(one for one in known if one.depth < depth), *made))
    view.store(table_id, now)
    if batch is None or not made:
        return "nothing"
    bench = view.benches[table_id]
    bench.pending, bench.begins = replace(batch, of=now), made[0].number
    return "held"


def stored(view: View, argument: str) -> str:
    """The client has stored a batch: from now on its transaction sees these versions."""
    table_id, number, rows = map(int, argument.split())
    bench, written = view.benches.get(table_id), view.written_of(table_id)
    batch = bench.pending if bench is not None else None
    if bench is None or batch is None or batch.of is not written or (batch.number, batch.rows) != (number, rows):
        raise QueryError(
            f"the versions of cold rows that were stored are not the ones that were held: {argument}",
            hint="nothing was changed; did somebody read the held versions, or change a trigger of Frostline's?",
            sqlstate="XX000",
        )
    if batch.files and not staging.still(view, bench, batch):
        return "overtaken"  # the client finds that it is not what it wants to hear, and says 40001
    snapshot, staged = _acknowledged(view, bench, batch)
    return f"{snapshot or '-'} {staged}"


def files(view: View, argument: str) -> str:
    """The files that the client is about to store instead of versions."""
    table_id, number = map(int, argument.split())
    bench = view.benches.get(table_id)
    batch = bench.pending if bench is not None else None
    if batch is None or not batch.files or batch.number != number:
        raise QueryError(f"no files of cold rows are held: {argument}", sqlstate="XX000")
    return written_down(batch.files)


def _acknowledged(view: View, bench: Bench, batch: Batch) -> tuple[str | None, int]:
    """The batch is the client's; returns what it was worked out at: the lake's snapshot, and how often was staged."""
    faults.reached("write.stored")
    bench.pending, bench.last_batch = None, batch.number
    now = replace(batch.of if bench.begins is not None else batch.of.ended(bench.depth), held=())
    scan, bench.asked_by = bench.asked_by, None
    if scan is not None:
        now = replace(now, marks=(*now.marks, Mark(scan, len(now.batches), len(now.files), bench.begins)))
    bench.begins = None
    if batch.files:
        now = replace(now, files=(*now.files, *batch.files), stagings=now.stagings + 1)
        bench.deferred.append(lambda: [f"TRUNCATE {bench.added.as_string(None)}"])  # nobody asks for what is stored
    else:
        now = replace(now, batches=(*now.batches, batch.number))
    view.store(bench.table.id, now)
    snapshot = bench.table.snapshot_id
    return None if snapshot is None else str(snapshot), bench.table.staged + now.stagings


def _waiting(view: View, table_id: int) -> Batch | None:
    """What waits to be stored; None: nothing does."""
    written = view.written_of(table_id)
    if not written.held:
        return None
    bench = view.benches[table_id]
    view.backing.end_copy()
    view.backing.check(write.number for write in written.held)
    if bench.pending is None or bench.pending.of is not written:
        bench.pending = _known(view, bench, written) or _staged(view, bench, written) or _netted(view, bench, written)
    if not bench.pending.rows:  # nothing came of it, and nobody will say that it is stored
        view.store(table_id, replace(written, held=()))
        return None
    faults.reached("write.netted")
    return bench.pending


def _few(view: View, bench: Bench, batch: Batch) -> Sequence[Version]:
    """The versions of a small batch on the bench; none where a row becomes hot, for those are stored elsewhere."""
    if batch.rows > FEW_ROWS:
        return ()
    query = SQL("SELECT * FROM {} WHERE _batch = {}").format(bench.versions, Literal(batch.number))
    (result,) = view.at_bench(bench, [query.as_string(None)])
    fields = [(result.fname(at) or b"").decode() for at in range(result.nfields)]
    found = [dict(zip(fields, row, strict=True)) for row in _rows(result)]
    return () if any(version["_op"] == "H" for version in found) else found


def _depth(tokens: Sequence[Token]) -> str | None:
    """Of whose statement a DELETE takes all, by the one condition of the collecting function; None: it is not that."""
    where = lexer.clause(tokens, "where")
    found = [token for token in tokens[where + 1 :] if token.text not in "()"] if where is not None else []
    if [token.text for token in found[:2]] != ["_batch", "="] or len(found) not in (3, 5):
        return None
    return found[2].text if found[2].kind in ("parameter", "number") else None


def _listed(fields: Sequence[Field], found: Iterable[Version]) -> list[list[str | None]]:
    return [[version.get(field.name) for field in fields] for version in found]


def refuse_uncollected(view: View) -> None:
    """At the end of a transaction: what was written and not stored would be lost."""
    for table_id, written in view.written.items():
        if not written.held:
            continue
        table = view.benches[table_id].table
        if view.origin.pid is None:
            alter = f"ALTER SERVER {as_sql(SERVER_NAME)} OPTIONS (SET application_name 'frostline %c')"
            raise QueryError(
                uncollected(table),
                detail="the session had another postgres_fdw.application_name when it came to cold rows first,"
                " or the gateway's server entry has another application_name than 'frostline %c'",
                hint="nothing was changed; retry the transaction, for which postgres_fdw connects anew\n"
                f"if that does not do: {alter}",
                sqlstate="55000",
            )
        raise _uncollected(view, table_id, f"{table}, or on the partition written to, did not fire")


def _uncollected(view: View, table_id: int, where: str) -> QueryError:
    return QueryError(
        uncollected(view.benches[table_id].table),
        detail=f'the trigger "!frostline" on {where}',
        hint='nothing was changed; ALTER TABLE ... ENABLE ALWAYS TRIGGER "!frostline"',
        sqlstate="55000",
    )


def _refuse_reset(view: View, table_id: int) -> None:
    """It says that no other was called before it, and there was one."""
    bench = view.benches.get(table_id)
    raise QueryError(
        f"cold rows of {bench.table if bench else 'the table'} cannot be changed: {WAS_RESET}",
        hint="nothing was changed; let RESET ALL wait until the transaction is over",
        sqlstate="55000",
    )


def _refuse_disabled(view: View, table_id: int) -> None:
    """Whoever stores sees the triggers as his snapshot does; this is how they are now."""
    row = view.follower.now(_DISABLED.format(Literal(table_id)))
    if row is not None:
        raise _uncollected(view, table_id, f'{row[0]}, or "!frostline.before", is disabled or gone')


def skip_duplicates(view: View, bench: Bench, write: Write, ctid: str | None = None) -> int:
    """ON CONFLICT DO NOTHING: take back what is there already; returns how many rows. One that was the last, or all."""
    written = view.written_of(bench.table.id)
    if ctid is None:
        which = SQL("a.{w} = {n} AND (b.{w} < a.{w} OR b.{w} = a.{w} AND b.ctid < a.ctid)").format(
            w=WRITE, n=Literal(write.number)
        )
    else:
        which = SQL("a.ctid = {at}::tid AND b.ctid <> {at}::tid").format(at=Literal(ctid))
    same_statement = SQL("DELETE FROM {a} a USING {a} b WHERE {which} AND b.{w} = {held} AND {same}").format(
        a=bench.added, which=which, w=WRITE, held=numbers(written.held), same=bench.same_key("a", "b")
    )
    statements = [same_statement]
    found = _taken(view, bench, written, [write], ctid)
    if found:
        statements.append(SQL("DELETE FROM {} WHERE ctid = ANY ({}::tid[])").format(bench.added, Literal(found)))
    results = view.at_bench(bench, [statement.as_string(None) for statement in statements])
    return sum(result.command_tuples or 0 for result in results)


def _known(view: View, bench: Bench, written: Written) -> Batch | None:
    """The versions of a write that did not need the bench; its tables get them when they are looked at."""
    made = bench.quick
    if made is None or written.held != (made.write,):
        return None
    number = view.next_number()
    found = tuple({**version, "_batch": str(number)} for version in made.versions)
    bench.deferred.append(lambda: [_inserted(bench, found)])
    return Batch(number, len(found), written, found)


def _inserted(bench: Bench, found: Sequence[Version]) -> str:
    columns = list(found[0])
    names_ = SQL(", ").join(map(Identifier, columns)).as_string(None)
    listed = values([version.get(column) for column in columns] for version in found)
    return f"INSERT INTO {bench.versions.as_string(None)} ({names_}) VALUES {listed}"


def _staged(view: View, bench: Bench, written: Written) -> Batch | None:
    """Many new rows go into files, if none of their keys was ever used; what is wrong with them is found as always."""
    if any(write.verb != "INSERT" for write in written.held):
        return None
    rows = sum(bench.counts[write.number] for write in written.held)
    if rows < (bench.table.bulk_rows or view.bulk.rows) or not staging.possible(view, bench):
        return None
    _check_ranges(view, bench, written)
    found = staging.stage(view, bench, written)
    if found is None:
        return None
    if sum(file.written.rows for file in found.files) != rows:
        raise _lost(bench, rows)
    number = view.next_number()
    mark = {"_op": "F", "_seq": "0", "_prev": "0", "_batch": str(number)}
    marks = tuple({**mark, bench.table.key.name: end} for end in found.ends)
    return Batch(number, len(marks), written, marks, found.files, found.beside)


def _netted(view: View, bench: Bench, written: Written) -> Batch:
    number = view.next_number()
    if any(write.new_keys for write in written.held):
        _check_ranges(view, bench, written)
        _check_duplicates(view, bench, written)
    unheld = _unheld(bench, number)
    results = view.at_bench(bench, [_net(view, bench, written, number).as_string(None), *unheld])
    if unheld and results[1].ntuples:
        raise _cannot_hold(view, bench, number)
    rows, counted = results[0].command_tuples or 0, sum(bench.counts[write.number] for write in written.held)
    if rows != counted and _one_each(bench, written.held):
        raise _lost(bench, counted)
    return Batch(number, rows, written)


def _one_each(bench: Bench, writes: Sequence[Write]) -> bool:
    """Whether each row that was counted comes to one version; a new row and one that is removed may be one together."""
    named = (write.number in bench.row_by_row and not write.new_keys for write in writes)
    return all(write.verb == "INSERT" for write in writes) or all(named)


def _lost(bench: Bench, rows: int) -> QueryError:
    """Never, as far as we know."""
    return QueryError(
        f"of {rows} rows of {bench.table} that were written not all are there",
        hint="nothing was changed; this is a fault in Frostline itself",
        sqlstate="XX000",
    )


def _net(view: View, bench: Bench, written: Written, number: int) -> Composed:
    """The versions of one batch."""
    table = bench.table
    others = [column for column in table.stored if column not in bench.key]
    w = numbers(written.held)
    # What a key that was free had last: a tombstone, or a row that is replaced.
    head = SQL("SELECT max(v._seq) FROM {} v WHERE {}").format(view.version_rows(table), bench.same_key("a", "v"))
    new_keys = any(write.new_keys for write in written.held)
    upserts = SQL(
        "SELECT {key}, {others}, CASE WHEN {cold} THEN 'U' ELSE 'H' END::\"char\", coalesce(r.{prev}, {head}, 0)"
        " FROM {added} a LEFT JOIN {removed} r ON ({same} AND r.{write} = {w}) WHERE a.{write} = {w}"
    ).format(
        key=bench.key_names("a"),
        others=names(others, "a") if others else SQL("NULL"),
        cold=_cold(bench, "a"),
        prev=Identifier("!prev"),
        added=bench.added,
        removed=bench.removed,
        same=bench.same_key("a", "r"),
        write=WRITE,
        w=w,
        head=SQL("({})").format(head) if new_keys else SQL("0"),
    )
    tombstones = SQL(
        "SELECT {key}, {nothing}, 'T'::\"char\", r.{prev} FROM {removed} r"
        " WHERE r.{write} = {w} AND NOT EXISTS (SELECT FROM {added} a WHERE {same} AND a.{write} = {w} AND {cold})"
    ).format(
        key=bench.key_names("r"),
        nothing=SQL(", ").join([SQL("NULL")] * max(len(others), 1)),
        prev=Identifier("!prev"),
        removed=bench.removed,
        write=WRITE,
        w=w,
        added=bench.added,
        same=bench.same_key("a", "r"),
        cold=_cold(bench, "a"),
    )
    columns = names([*bench.key, *others])
    inner = [*(f"k{at}" for at in range(len(bench.key))), *(f"o{at}" for at in range(max(len(others), 1)))]
    wanted = inner[: len(bench.key) + len(others)]
    return SQL(
        "INSERT INTO {} ({}, _op, _prev, _seq, _batch)"
        " SELECT {}, x.op, x.prev, pg_catalog.nextval('frostline.version'), {}"
        " FROM ({} UNION ALL {}) x ({}, op, prev)"
    ).format(
        bench.versions,
        columns,
        SQL(", ").join(map(Identifier, wanted)),
        Literal(number),
        upserts,
        tombstones,
        SQL(", ").join(map(Identifier, inner)),
    )


def _cold(bench: Bench, *prefix: str) -> Composable:
    """True for keys below the seam."""
    key = Identifier(*prefix, bench.table.key.name)
    seam = bench.table.seam
    return (
        SQL("false")
        if seam is None
        else SQL("({} < {}::{})").format(key, Literal(seam.text), SQL(bench.table.key.type))
    )


def _check_ranges(view: View, bench: Bench, written: Written) -> None:
    """A row inserted into a foreign partition by name must belong there, for Postgres does not check."""
    inserts = [write for write in written.held if write.verb == "INSERT"]
    for source in {write.source for write in inserts}:
        query = SQL("SELECT FROM {} WHERE {} = {} AND NOT ({}) LIMIT 1").format(
            bench.added,
            WRITE,
            numbers([write for write in inserts if write.source == source]),
            in_range(source, bench.table),
        )
        if _first(view, bench, query) is not None:
            raise QueryError(
                f'new row for relation "{bench.table.name}" violates partition constraint',
                detail=f"a row was inserted into the partition {source.range}",
                sqlstate="23514",
            )


def _check_duplicates(view: View, bench: Bench, written: Written) -> None:
    """One row per key: within the statement, and with what is there."""
    query = SQL("SELECT min(ctid::text) FROM {} WHERE {} = {} GROUP BY {} HAVING count(*) > 1 LIMIT 1").format(
        bench.added, WRITE, numbers(written.held), bench.key_names()
    )
    twice = _first(view, bench, query)
    if twice is not None:
        raise _duplicate(view, bench, str(twice[0]))
    checked = [
        write for write in written.held if write.new_keys and (write.verb != "INSERT" or not bench.table.upserts)
    ]
    taken = _taken(view, bench, written, checked) if checked else []
    if taken:
        raise _duplicate(view, bench, taken[0])


def _first(view: View, bench: Bench, query: Composed) -> tuple[str | None, ...] | None:
    (result,) = view.at_bench(bench, [query.as_string(None)])
    return next(iter(_rows(result)), None)


def _rows(result: PGresult) -> Iterator[tuple[str | None, ...]]:
    for row in range(result.ntuples):
        values = (result.get_value(row, column) for column in range(result.nfields))
        yield tuple(None if value is None else value.decode() for value in values)


def _duplicate(view: View, bench: Bench, ctid: str) -> QueryError:
    values = SQL(", ").join(SQL("{}::text").format(Identifier(column.name)) for column in bench.key)
    row = _first(view, bench, SQL("SELECT {} FROM {} WHERE ctid = {}::tid").format(values, bench.added, Literal(ctid)))
    columns = ", ".join(column.name for column in bench.key)
    return QueryError(
        f'duplicate key value violates unique constraint "{bench.table.name}_pkey"',
        detail=f"Key ({columns})=({', '.join(map(str, row or ()))}) already exists.",
        sqlstate="23505",
    )


def _taken(view: View, bench: Bench, written: Written, writes: Sequence[Write], ctid: str | None = None) -> list[str]:
    """Added rows (by their place), or one of them, whose key has a row that the statement did not remove."""
    which = (
        SQL("a.{} = {}").format(WRITE, numbers(writes))
        if ctid is None
        else SQL("a.ctid = {}::tid").format(Literal(ctid))
    )
    fresh = SQL(
        "SELECT a.ctid::text, h.op, {keys}, a.{key}::text FROM {added} a"
        " LEFT JOIN LATERAL (SELECT v._op::text AS op FROM {versions} v WHERE {head}"
        " ORDER BY v._seq DESC LIMIT 1) h ON true"
        " WHERE {which} AND {cold}"
        " AND NOT EXISTS (SELECT FROM {removed} r WHERE {same} AND r.{write} = {held})"
        " ORDER BY a.{key}"
    ).format(
        keys=SQL(", ").join(exported(column, "a") for column in bench.key),
        key=Identifier(bench.table.key.name),
        added=bench.added,
        versions=view.version_rows(bench.table),
        head=bench.same_key("a", "v"),
        which=which,
        write=WRITE,
        cold=_cold(bench, "a"),
        removed=bench.removed,
        same=bench.same_key("a", "r"),
        held=numbers(written.held),
    )
    name = f"fresh_{view.next_number()}"
    statements = [f"DECLARE {name} NO SCROLL CURSOR FOR {fresh.as_string(None)}", f"FETCH {_KEYS_AT_ONCE} FROM {name}"]
    found: list[str] = []
    while statements:
        rows = list(_rows(view.at_bench(bench, statements)[-1]))
        found += [str(row[0]) for row in rows if row[1] == "U"]
        found += _in_the_lake(view, bench, [row for row in rows if row[1] is None])
        statements = statements[-1:] if len(rows) == _KEYS_AT_ONCE else []
    view.backing.later(f"CLOSE {name}")
    return found


def _in_the_lake(view: View, bench: Bench, rows: Sequence[tuple[object, ...]]) -> list[str]:
    """Those of these keys that the lake has."""
    table = bench.table
    if not rows or table.snapshot_id is None:
        return []
    lowest, highest = (parse_bound(str(row[-1])) for row in (rows[0], rows[-1]))  # they are sorted
    if lowest is None or highest is None:
        raise AssertionError
    beyond = Bound(highest.text, highest.order + _UNIT.get(table.key.typname, 1))
    source = Source(table.id, Range(lowest, beyond), lake_only=True)
    scan = cold_rows(view, source, table, set(bench.key))
    if scan.empty:
        return []
    columns = list(zip(*rows, strict=True))
    fields = ["place", *(f"k{at}" for at in range(len(bench.key)))]
    values = [columns[0], *columns[2 : 2 + len(bench.key)]]
    keys = pa.table([pa.array(column, pa.string()) for column in values], names=fields)
    loads = [
        f"{column.storage.load.replace('{c}', f'k{at}')} AS {column_name(column.number)}"
        for at, column in enumerate(bench.key)
    ]
    same = " AND ".join(f"t.{n} = k.{n}" for n in (column_name(column.number) for column in bench.key))
    query = f"SELECT k.place FROM (SELECT place, {', '.join(loads)} FROM keys) k SEMI JOIN {scan.sql} ON ({same})"
    batches = Batches(view.cursors, view.canceller, query, {"keys": keys})
    found: list[str] = []
    try:
        while (batch := batches.next()) is not None:
            found += batch.column(0).to_pylist()
    finally:
        batches.close()
    return found


def _unheld(bench: Bench, number: int) -> list[str]:
    """Finds a version with a value that the lake cannot hold; nothing where no column can have one."""
    conditions = [_unheld_value(column) for column in _checked(bench)]
    if not conditions:
        return []
    query = SQL("SELECT FROM {} WHERE _batch = {} AND _op = 'U' AND ({}) LIMIT 1").format(
        bench.versions, Literal(number), SQL(" OR ").join(conditions)
    )
    return [query.as_string(None)]


def _checked(bench: Bench) -> list[ColdColumn]:
    return [column for column in bench.table.stored if column.storage.cannot_hold is not None]


def _unheld_value(column: ColdColumn) -> SQL:
    condition = column.storage.cannot_hold or "false"
    return SQL(f"({condition.replace('{c}', Identifier(column.name).as_string(None))})")


def _cannot_hold(view: View, bench: Bench, number: int) -> QueryError:
    """It is refused now, not when it is merged."""
    for column in _checked(bench):
        query = SQL("SELECT {}::text FROM {} WHERE _batch = {} AND _op = 'U' AND {} LIMIT 1").format(
            Identifier(column.name), bench.versions, Literal(number), _unheld_value(column)
        )
        row = _first(view, bench, query)
        if row is not None:
            break
    return QueryError(
        f"the lake cannot hold the value {row[0] if row else ''} in column {column.name} of {bench.table}",
        hint="nothing was changed; rows with this value can only be hot",
        sqlstate="22003",
    )


def _fields(tokens: Sequence[Token]) -> list[Field]:
    return [Field(token.text) for token in tokens if token.kind != "punctuation"]
