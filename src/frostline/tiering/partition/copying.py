"""The copy and how it stays true: batches of pages, and a log of the keys that changed.

A batch is one statement: it copies what its snapshot sees of some pages. Whatever changes after that snapshot is logged
by a trigger in the transaction that changes it, so a row of the log is seen only together with its change. Applying the
log is one REPEATABLE READ transaction: the rows whose keys it names are taken out of the copy and put in again as the
same snapshot has them. A trigger that wrote the copy itself would not do: in a transaction with an older snapshot it
does not see what a batch has copied since, and would leave a deleted row standing.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import TypeVar

from psycopg import IsolationLevel
from psycopg.sql import SQL, Composed, Identifier, Literal

from frostline.catalog import queries
from frostline.catalog.database import Connection
from frostline.delta.tables import quoted
from frostline.errors import OperationError
from frostline.faults import reached
from frostline.model.tables import Table
from frostline.report import Task
from frostline.tiering.digest import Digest, differing, digest_of
from frostline.tiering.locks import Wanted, with_short_locks
from frostline.tiering.partition import state
from frostline.tiering.partition.state import Work

Result = TypeVar("Result")

LOG, NO_TRUNCATE = "!frostline changes", "!frostline truncate"
EXPECTED = [f"{LOG} A", f"{NO_TRUNCATE} A"]
_FIRST_PAGES, _MOST_PAGES = 128, 16_384
_BATCH_SECONDS = 1.0
APPLIED_AT_ONCE = 5_000


def log_table(work: Work, table: Table) -> list[Composed]:
    """The log of keys, old and new, and the function that writes it, whoever changes the table.

    A column of the key may have been renamed or have another type meanwhile. As with a leaf that is archived nobody's
    write fails then, and that something was not logged is counted: the copy is compared once more.
    """
    names = logged(work, table)
    types = {column.name: column.type for column in table.columns}
    columns = SQL(", ").join(SQL("{} {} NOT NULL").format(Identifier(name), SQL(types[name])) for name in names)
    numbered = [(SQL(str(at)), Identifier(name)) for at, name in enumerate(names)]

    def each(template: str, separator: str = " ") -> Composed:
        return SQL(separator).join(SQL(template).format(n=n, name=name, log=work.log) for n, name in numbered)

    body = SQL(
        """DECLARE {variables}
BEGIN
    BEGIN -- Nothing is written in here, so it takes no transaction id.
        IF TG_OP <> 'INSERT' THEN {old} END IF;
        IF TG_OP <> 'DELETE' THEN {new} END IF;
    EXCEPTION WHEN OTHERS THEN
        PERFORM nextval('frostline.missed');
        RETURN NULL;
    END;
    IF TG_OP <> 'INSERT' THEN
        INSERT INTO {log} ({names}) VALUES ({olds});
    END IF;
    IF TG_OP <> 'DELETE' THEN
        INSERT INTO {log} ({names}) VALUES ({news});
    END IF;
    RETURN NULL;
END"""
    ).format(
        log=work.log,
        names=SQL(", ").join(Identifier(name) for name in names),
        variables=each('"!old_{n}" {log}.{name}%TYPE; "!new_{n}" {log}.{name}%TYPE;'),
        old=each('"!old_{n}" := OLD.{name};'),
        new=each('"!new_{n}" := NEW.{name};'),
        olds=each('"!old_{n}"', ", "),
        news=each('"!new_{n}"', ", "),
    )
    return [
        SQL("CREATE TABLE {} ({} bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, {})").format(
            work.log, _number(names), columns
        ),
        SQL(
            "CREATE FUNCTION {}() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog AS {}"
        ).format(work.function, quoted(body)),
        # It runs as its owner: nobody else is to hang it on a table of his own.
        SQL("REVOKE ALL ON FUNCTION {}() FROM PUBLIC").format(work.function),
    ]


def logged(work: Work, table: Table) -> tuple[str, ...]:
    """The new key: it finds a row in the copy by its index, and holds the old one."""
    return tuple(dict.fromkeys((*work.plan.key, *table.primary_key)))


def _number(names: Iterable[str]) -> Identifier:
    """The column that counts the log's rows, under a name that no column of the key has."""
    name, taken = "_seq", set(names)
    while name in taken:
        name = f"_{name}"
    return Identifier(name)


def start(connection: Connection, work: Work, wanted: Wanted) -> None:
    """The lock of CREATE TRIGGER waits for every writer: what is not logged from here on, the copy sees."""

    def begin() -> None:
        for statement in _triggers(work):
            connection.execute(statement)
        _measure(connection, work)
        work.state = "copying"
        state.record(connection, work)
        reached("partition.triggers")

    with_short_locks(connection, begin, f"logging changes of {work.plan}", wanted)


def _triggers(work: Work) -> list[Composed]:
    on = work.plan.table
    made = [
        SQL(
            "CREATE OR REPLACE TRIGGER {} AFTER INSERT OR UPDATE OR DELETE ON {} FOR EACH ROW EXECUTE FUNCTION {}()"
        ).format(Identifier(LOG), on, work.function),
        SQL(
            "CREATE OR REPLACE TRIGGER {} BEFORE TRUNCATE ON {} FOR EACH STATEMENT"
            " EXECUTE FUNCTION frostline.no_truncate()"
        ).format(Identifier(NO_TRUNCATE), on),
    ]
    always = [
        SQL("ALTER TABLE {} ENABLE ALWAYS TRIGGER {}").format(on, Identifier(name)) for name in (LOG, NO_TRUNCATE)
    ]
    return [*made, *always]


def drop_triggers(table: Identifier) -> list[Composed]:
    return [SQL("DROP TRIGGER IF EXISTS {} ON {}").format(Identifier(name), table) for name in (LOG, NO_TRUNCATE)]


def check_triggers(connection: Connection, work: Work) -> None:
    found = [text for (text,) in queries.rows(connection, "sync_triggers", oid=work.source)]
    if found != EXPECTED:
        raise OperationError(
            f"the triggers that log changes of {work.plan} were removed or switched off; the copy may lack rows",
            hint=f"begin anew: frostline partition {work.plan.pasted} --abandon, then the same command again",
        )


def _measure(connection: Connection, work: Work) -> None:
    """Which file holds the rows, and how many pages of it do; from its first page on."""
    row = connection.execute(
        "SELECT pg_relation_filenode(%(t)s::oid),"
        " pg_relation_size(%(t)s::oid) / current_setting('block_size')::bigint + 1",
        {"t": work.source},
    ).fetchone()
    assert row is not None
    work.filenode, work.pages = row
    work.next_page = 0


def copy(connection: Connection, work: Work, table: Table, task: Task) -> None:
    """All pages there were when logging began, a batch at a time; the log is kept short on the way."""
    length = _FIRST_PAGES
    task.advance(work.next_page)
    while work.next_page < work.pages:
        began = time.monotonic()
        before = work.next_page
        _batch(connection, work, table, length)
        task.advance(max(work.next_page - before, 0))
        reached("partition.batch")
        took = max(time.monotonic() - began, 0.001)
        length = int(min(max(length * min(_BATCH_SECONDS / took, 2), 1), _MOST_PAGES))
        check_triggers(connection, work)
        apply(connection, work, table)


def _batch(connection: Connection, work: Work, table: Table, length: int) -> None:
    columns = _columns(table)
    with connection.transaction():
        # Held to the end: were the table rewritten meanwhile (VACUUM FULL), other rows would be on these pages.
        connection.execute(SQL("LOCK TABLE ONLY {} IN ACCESS SHARE MODE").format(work.plan.table))
        row = connection.execute("SELECT pg_relation_filenode(%s::oid)", (work.source,)).fetchone()
        if row != (work.filenode,):
            _measure(connection, work)  # rewritten: once more, what is there already is passed over
        end = min(work.next_page + length, work.pages)
        last = end >= work.pages
        connection.execute(
            SQL(
                "INSERT INTO {} ({columns}) OVERRIDING SYSTEM VALUE SELECT {columns} FROM ONLY {} WHERE ctid >= {}"
                + ("" if last else " AND ctid < {}")
                + " ON CONFLICT DO NOTHING"
            ).format(
                work.plan.target,
                work.plan.table,
                Literal(f"({work.next_page},0)"),
                *(() if last else (Literal(f"({end},0)"),)),
                columns=columns,
            )
        )
        work.next_page = end
        state.record(connection, work)
        reached("partition.copied")


def _columns(table: Table) -> Composed:
    return SQL(", ").join(Identifier(column.name) for column in table.columns if not column.generated)


def apply(connection: Connection, work: Work, table: Table) -> int:
    """Bring the copy up to date with the log, as far as it is now; how many rows of the log that were."""
    total = 0
    while True:
        done = repeatable(connection, lambda: apply_now(connection, work, table, APPLIED_AT_ONCE))
        total += done
        reached("partition.applied")
        if done < APPLIED_AT_ONCE:
            return total


def repeatable(connection: Connection, work: Callable[[], Result]) -> Result:
    """Run something in a REPEATABLE READ transaction."""
    connection.isolation_level = IsolationLevel.REPEATABLE_READ
    try:
        with connection.transaction():
            return work()
    finally:
        connection.isolation_level = None


def apply_now(connection: Connection, work: Work, table: Table, most: int | None) -> int:
    """In the caller's transaction, which must see the log and the table at one moment."""
    limit = SQL("ALL") if most is None else Literal(most)
    number = _number(logged(work, table))
    row = connection.execute(
        SQL("SELECT count(*), max({n}) FROM (SELECT {n} FROM {log} ORDER BY {n} LIMIT {limit}) few").format(
            n=number, log=work.log, limit=limit
        )
    ).fetchone()
    if row is None or row[0] == 0:
        return 0
    count, upto = row
    # A few keys at a time in a large table: by index, whatever the planner believes of tables it knows nothing of.
    _planner(connection, "off")
    some = SQL("(SELECT DISTINCT {} FROM {} WHERE {} <= {})")
    keys = some.format(_names(work.plan.key), work.log, number, upto)
    rows = some.format(_names(table.primary_key), work.log, number, upto)
    connection.execute(
        SQL("DELETE FROM {} AS c USING {} AS k WHERE {}").format(work.plan.target, keys, _same("c", work.plan.key))
    )
    columns = _columns(table)
    qualified = SQL(", ").join(SQL("t.{}").format(Identifier(c.name)) for c in table.columns if not c.generated)
    connection.execute(
        SQL(
            "INSERT INTO {} ({}) OVERRIDING SYSTEM VALUE SELECT {} FROM {} AS k JOIN ONLY {} AS t ON {}"
            " ON CONFLICT DO NOTHING"
        ).format(work.plan.target, columns, qualified, rows, work.plan.table, _same("t", table.primary_key))
    )
    connection.execute(SQL("DELETE FROM {} WHERE {} <= {}").format(work.log, number, upto))
    return int(count)


def _planner(connection: Connection, value: str) -> None:
    for setting in ("enable_seqscan", "enable_hashjoin", "enable_mergejoin", "enable_bitmapscan"):
        connection.execute(f"SET LOCAL {setting} = {value}")


def _names(names: Iterable[str]) -> Composed:
    return SQL(", ").join(Identifier(name) for name in names)


def _same(alias: str, names: Iterable[str]) -> Composed:
    return SQL(" AND ").join(SQL(f"{alias}.{{n}} = k.{{n}}").format(n=Identifier(name)) for name in names)


def verify(connection: Connection, work: Work, table: Table) -> Digest:
    """At one snapshot: the copy, with all that is logged by then, holds every value of every row of the table."""

    def compare() -> tuple[Digest, Digest]:
        apply_now(connection, work, table, None)
        _planner(connection, "on")
        here = digest_of(connection, table, SQL("ONLY {}").format(work.plan.table))
        return here, digest_of(connection, table, SQL("{}").format(work.plan.target))

    work.compared = standing(connection, work)
    here, there = repeatable(connection, compare)
    if here != there:
        raise OperationError(
            f"the copy of {work.plan} is not what the table is; nothing was changed",
            detail=f"{here.rows:,} rows here, {there.rows:,} in the copy; not the same: "
            f"{', '.join(differing(table.stored, here, there)) or 'the number of rows'}",
            hint=f"begin anew: frostline partition {work.plan.pasted} --abandon, then the same command again;"
            " and please report this",
        )
    return here


def standing(connection: Connection, work: Work) -> object:
    """The file of the table's rows, and its columns by number: no trigger tells when ALTER TABLE changes either.

    And how often a change could not be logged, of whatever table.
    """
    return connection.execute(
        "SELECT pg_relation_filenode(%(t)s::oid), array_agg(attnum ORDER BY attnum),"
        " (SELECT last_value + is_called::int FROM frostline.missed) FROM pg_attribute"
        " WHERE attrelid = %(t)s AND attnum > 0 AND NOT attisdropped",
        {"t": work.source},
    ).fetchone()
