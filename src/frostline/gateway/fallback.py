"""Whatever DuckDB is not known to answer exactly: the rows go to Postgres, and the original text runs there."""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping, Sequence

from psycopg import sql

from frostline.catalog.cold import ColdColumn, ColdTable
from frostline.gateway import encode, handed, lexer
from frostline.gateway.candidates import candidates, text
from frostline.gateway.clauses import cut, split
from frostline.gateway.expressions.tree import Unknown
from frostline.gateway.handed import HandedRows
from frostline.gateway.lexer import Token
from frostline.gateway.names import Reference, Source
from frostline.gateway.narrowed import Narrowed, narrowed
from frostline.gateway.rows import Batches, PostgresRows, Rows
from frostline.gateway.scan import cold_rows
from frostline.gateway.statements import Statement
from frostline.gateway.translate import Parameters, column_name
from frostline.gateway.view import TempTable, View

_numbers = itertools.count(1)
_ALIAS = re.compile(r"r\d+")  # as postgres_fdw calls them


def evaluate(
    view: View,
    statement: Statement,
    tables: Mapping[Source, ColdTable],
    parameters: Parameters,
) -> Rows:
    """Run a SELECT on Postgres, over temporary tables that hold the cold rows it may need."""
    if view.backing.standby:
        return _without_tables(view, statement, tables, parameters)
    original, tokens, found = statement.text, statement.tokens, statement.references
    changes = [(0, tokens[0].start, ""), *lexer.values(tokens, parameters)]
    to_change, before = _to_change(statement), []
    for reference in found:
        table = tables[reference.source]
        known = narrowed(original, tokens, table, parameters) if len(found) == 1 else Narrowed()
        if reference in to_change:
            rows, load = _versions(view, reference.source, table, known, changed=_locked(statement, reference))
            rows += " AS t" if _alias(statement, reference) is None else ""
            before += load
        else:
            rows = _named(_loaded(view, reference.source, table, _mentioned(tokens, table), known))
        changes.append((reference.start, reference.end, rows))
    changes += _locks(tokens)
    return PostgresRows(view.backing, lexer.splice(original, changes), before=before, again=bool(to_change))


def _without_tables(
    view: View, statement: Statement, tables: Mapping[Source, ColdTable], parameters: Parameters
) -> Rows:
    """The same on a standby: the rows are in the statement, or in as many statements as there are pieces of them."""
    original, tokens, found = statement.text, statement.tokens, statement.references
    fixed = [(0, tokens[0].start, ""), *lexer.values(tokens, parameters), *_locks(tokens)]
    if len(found) == 1 and _row_by_row(original, tokens):
        (reference,), table = found, tables[found[0].source]
        known = narrowed(original, tokens, table, parameters)
        columns, batches = _batches(view, reference.source, table, tokens, known)
        return HandedRows(
            view.backing,
            columns,
            batches,
            lambda rows: lexer.splice(original, [*fixed, (reference.start, reference.end, f"{rows} AS t")]),
        )
    changes = []
    for reference in found:
        table = tables[reference.source]
        known = narrowed(original, tokens, table, parameters) if len(found) == 1 else Narrowed()
        columns, batches = _batches(view, reference.source, table, tokens, known)
        rows = handed.relation(columns, handed.whole(columns, batches))
        rows += " AS t" if _alias(statement, reference) is None else ""
        changes.append((reference.start, reference.end, rows))
    return PostgresRows(view.backing, lexer.splice(original, [*fixed, *changes]))


def _row_by_row(original: str, tokens: Sequence[Token]) -> bool:
    """Whether each row is answered by itself. So it is in a scan of postgres_fdw, which lists plain columns."""
    try:
        select = cut(original, tokens)
        rest = select.source()[1]
    except Unknown:
        return False
    plain = all(len(part) == 1 and part[0].kind in ("word", "quoted") for part in split(select.get("select")))
    alone = not rest and not any(token.word("select") for token in select.get("where"))
    return plain and alone and select.clauses.keys() <= {"select", "from", "where", "for"}


def _batches(
    view: View, source: Source, table: ColdTable, tokens: Sequence[Token], known: Narrowed
) -> tuple[list[ColdColumn], Batches]:
    """The columns a statement may mean, and their values in the rows that it may want."""
    columns = _mentioned(tokens, table)
    return _in_order(columns), Batches(view.cursors, view.canceller, _rows(view, source, table, columns, known))


def whole(view: View, source: Source, tables: Mapping[Source, ColdTable]) -> str:
    """A temporary table with all rows of a source, for a statement that reads it beside what it changes."""
    table = tables[source]
    return _named(_loaded(view, source, table, frozenset(table.columns.values()), Narrowed()))


def _named(name: str) -> str:
    return f'pg_temp."{name}"'


def changes(statement: Statement) -> bool:
    """Whether rows are asked for that are going to be changed."""
    return bool(_to_change(statement))


def _to_change(statement: Statement) -> list[Reference]:
    """The sources whose rows are asked for by ctid: they, or others of the table, are going to be changed."""
    tokens = statement.tokens
    places = [at for at, token in enumerate(tokens) if token.word("ctid")]
    asked = {tokens[at - 2].text if tokens[at - 1].text == "." else None for at in places}
    return [reference for reference in statement.references if _alias(statement, reference) in asked]


def _locked(statement: Statement, reference: Reference) -> bool:
    """Whether the rows of a source are themselves going to be changed."""
    tokens = statement.tokens
    at = lexer.clause(tokens, "for")
    if at is None:
        return False
    named = [token.text for token in tokens[at:] if _ALIAS.fullmatch(token.text)]  # FOR UPDATE [OF r1]
    return not named or _alias(statement, reference) in named


def _alias(statement: Statement, reference: Reference) -> str | None:
    following = next((token for token in statement.tokens if token.start >= reference.end), None)
    return following.text if following is not None and _ALIAS.fullmatch(following.text) else None


def _versions(view: View, source: Source, table: ColdTable, known: Narrowed, *, changed: bool) -> tuple[str, list[str]]:
    """The rows of a source on the bench, and what puts them there."""
    bench = view.bench(table)
    view.at_bench(bench, [])
    load = candidates(view, source, table, known, changed=changed)
    rows = f'(SELECT ctid, * FROM {bench.work.as_string(None)} WHERE "!load" = {load.number if load else "NULL"})'
    return rows, load.before() if load else []


def _locks(tokens: Sequence[Token]) -> list[tuple[int, int, str]]:
    """FOR UPDATE and FOR SHARE end a statement; there is nothing to lock in the lake."""
    at = lexer.clause(tokens, "for")
    return [] if at is None else [(tokens[at].start, tokens[-1].end, "")]


def _mentioned(tokens: Sequence[Token], table: ColdTable) -> frozenset[ColdColumn]:
    """Every column that could be meant by a name in the text, all of them for a whole row."""
    for before, token in itertools.pairwise(tokens):
        if token.text == "*" and (before.text in (".", ",") or before.word("select")):
            return frozenset(column for column in table.columns.values() if column.generated != "v")
    names = {token.text for token in tokens if token.kind in ("word", "quoted")}
    return frozenset(column for name, column in table.columns.items() if name in names) | {table.key}


def _loaded(view: View, source: Source, table: ColdTable, columns: frozenset[ColdColumn], known: Narrowed) -> str:
    """A temporary table with the rows wanted, reused when one of this transaction holds them already."""
    conditions = (*known.filter.conditions, *map(repr, known.files), *known.keys)
    for held in view.temp_tables.get(source, ()):
        if columns <= held.columns and held.conditions in ((), conditions):
            return held.name
    name = f"frostline_rows_{next(_numbers)}"
    _load(view, name, _in_order(columns), _rows(view, source, table, columns, known))
    view.temp_tables.setdefault(source, []).append(TempTable(name, columns, conditions))
    return name


def _in_order(columns: frozenset[ColdColumn]) -> list[ColdColumn]:
    return sorted(columns, key=lambda column: column.number)


def _rows(view: View, source: Source, table: ColdTable, columns: frozenset[ColdColumn], known: Narrowed) -> str:
    """DuckDB's query for the rows that are not known to be unwanted."""
    wanted, conditions = columns | known.filter.columns, known.filter.conditions
    rows = cold_rows(view, source, table, wanted, known.files, keys=known.keys).sql
    outputs = ", ".join(f"{text(column)} AS {column_name(column.number)}" for column in _in_order(columns))
    where = f" WHERE {' AND '.join(conditions)}" if conditions else ""
    return f"SELECT {outputs} FROM {rows}{where}"


def _load(view: View, name: str, columns: Sequence[ColdColumn], query: str) -> None:
    target = sql.Identifier("pg_temp", name)
    batches = Batches(view.cursors, view.canceller, query)
    try:
        with view.backing.savepoint() as connection:
            definitions = sql.SQL(", ").join(_definition(column) for column in columns)
            connection.execute(sql.SQL("CREATE TABLE {} ({}) ON COMMIT DROP").format(target, definitions))
            names = sql.SQL(", ").join(sql.Identifier(column.name) for column in columns)
            with connection.cursor().copy(sql.SQL("COPY {} ({}) FROM STDIN").format(target, names)) as copy:
                while (batch := batches.next()) is not None:
                    for lines in encode.copy_lines(batch):
                        copy.write(lines)
            connection.execute(sql.SQL("ANALYZE {}").format(target))
    finally:
        batches.close()


def _definition(column: ColdColumn) -> sql.Composable:
    """Same name, type and collation as the user's column; no constraints, they were checked when it was written."""
    definition = sql.SQL("{} {}").format(sql.Identifier(column.name), sql.SQL(column.type))
    if column.collation is None:
        return definition
    return sql.SQL("{} COLLATE {}").format(definition, sql.Identifier(*column.collation))
