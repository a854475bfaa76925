"""Where the cold writes of one table are worked out: temporary tables in the backing transaction.

A statement that changes cold rows runs, word for word, on a temporary table that holds the rows it may concern, so that
Postgres itself evaluates it: expressions, casts, defaults, constraints. What it did is noted in two more tables:
`removed`, the versions that are no longer, and `added`, the rows that are new. Out of these come the versions that the
client's transaction stores (`versions`, in the form of the delta).

Numbers tell what belongs together. Loads, writes and batches are counted together, so that of any two it is known which
was first. Nothing is ever taken back here: after a rollback to a savepoint some numbers no longer count.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from psycopg.sql import SQL, Composed, Identifier, Literal

from frostline.catalog.cold import ColdColumn, ColdTable
from frostline.delta.tables import SCHEMA, shape_name
from frostline.gateway.lexer import quoted
from frostline.gateway.names import Source
from frostline.lake.staged import StagedFile
from frostline.model.bounds import Range
from frostline.model.tables import derived_name

Later = Callable[[], list[str]]  # statements that mostly nobody needs
LOAD, PREV, WRITE, PLACE = Identifier("!load"), Identifier("!prev"), Identifier("!write"), Identifier("!place")
FEW_ROWS = 100  # fit into a statement
_MANY_ROWS = 300
_LEFT_OVER = 1000  # rows of earlier statements that a scan may come across


@dataclass(frozen=True)
class Write:
    """One statement's work, or that of one that goes on row by row."""

    number: int
    verb: str
    source: Source
    new_keys: bool  # it may add rows with keys that it did not remove


@dataclass(frozen=True)
class Mark:
    """When something was stored, by the number of a scan: postgres_fdw counts them as they begin."""

    scan: int
    batches: int  # so many were stored before
    files: int
    of: int | None = None  # the inner statement for which it was stored, and whose scans began before it was


@dataclass(frozen=True)
class Inner:
    """A statement that another one calls, which goes on when it is over."""

    number: int
    depth: int  # lines of what calls what: more than of the one outside
    batches: int  # so many the one outside sees
    files: int
    over: bool = False


@dataclass(frozen=True)
class Written:
    """What a transaction has written of one table; a savepoint keeps the one it found."""

    writes: tuple[Write, ...] = ()  # all of them
    held: tuple[Write, ...] = ()  # those that the client has not stored yet
    batches: tuple[int, ...] = ()  # of versions that it has
    files: tuple[StagedFile, ...] = ()  # and of rows
    stagings: int = 0  # how often it has staged some
    marks: tuple[Mark, ...] = ()
    inner: tuple[Inner, ...] = ()  # the deepest last

    def ended(self, depth: int) -> Written:
        """A statement at this depth is over, and so are all that it has called."""
        inner = tuple(replace(one, over=one.over or one.depth == depth) for one in self.inner if one.depth <= depth)
        return self if inner == self.inner else replace(self, inner=inner)

    def outside(self) -> Written:
        """What a statement sees that goes on after others that it has called."""
        if not self.inner or not self.inner[-1].over:
            return self
        last = self.inner[-1]
        return replace(self, batches=self.batches[: last.batches], files=self.files[: last.files])

    def as_of(self, scan: int) -> Written:
        """What a scan sees that was begun before some of it was written, and comes to cold rows only now.

        Until a statement is over that runs inside another one, there are no scans but its own.
        """
        running = {one.number for one in self.inner if not one.over}
        first = next((mark for mark in self.marks if scan < mark.scan and mark.of not in running), None)
        if first is None:
            return self
        return replace(self, batches=self.batches[: first.batches], files=self.files[: first.files])


@dataclass(frozen=True)
class Batch:
    """Versions on their way to the client."""

    number: int
    rows: int
    of: Written
    versions: tuple[Mapping[str, str | None], ...] = ()  # when they are known here
    files: tuple[StagedFile, ...] = ()  # the rows are in them; the versions only mark that
    beside: tuple[object, ...] = ()  # what the delta held when they were written


@dataclass(frozen=True)
class Made:
    """What a write came to, without the bench's tables; and the statements that put it there."""

    write: Write
    versions: tuple[Mapping[str, str | None], ...]
    noted: Later


@dataclass(frozen=True)
class Taking:
    """Rows that are changed one by one: whose, and which columns."""

    write: Write
    columns: tuple[str, ...]
    number: int  # in `taken`
    copy: str  # the statement that puts them there


@dataclass
class Bench:
    """The temporary tables of one table in one backing transaction."""

    table: ColdTable
    pending: Batch | None = None
    asked_by: int | None = None  # the number of the scan that has looked at what is held, if one has
    begins: int | None = None  # an inner statement, and what is held is of the one that it is called by
    depth: int = 0  # of the statement that is storing what is held
    last_batch: int = 0
    made: bool = False
    indexed: frozenset[str] = frozenset()
    searched: bool = False  # new rows are looked for by their keys
    counts: Counter[int] = field(default_factory=Counter)  # by write: how many rows it removed or added
    quick: Made | None = None
    deferred: list[Later] = field(default_factory=list)  # what the tables lack; wanted once somebody looks at them
    row_by_row: set[int] = field(default_factory=set)  # writes that name the rows they change
    taking: Taking | None = None
    apart: bool = True  # no row is in two of the loads that a statement may name rows of
    _loaded: int = 0  # rows in `work`
    _alone: bool = False
    _loads: list[tuple[int, Range]] = field(default_factory=list)  # of statements that may not be over
    _named: dict[int, int] = field(default_factory=dict)  # rows of them that were changed: per block, a bit each

    @cached_property
    def work(self) -> Identifier:
        """Postgres names it, and `added`, in what it says about a constraint."""
        return Identifier("pg_temp", derived_name(self.table.name, f" (cold {self.table.id})"))

    @cached_property
    def added(self) -> Identifier:
        return Identifier("pg_temp", derived_name(self.table.name, f" (new {self.table.id})"))

    @cached_property
    def removed(self) -> Identifier:
        return Identifier("pg_temp", f"frostline removed {self.table.id}")

    @cached_property
    def versions(self) -> Identifier:
        return Identifier("pg_temp", f"frostline versions {self.table.id}")

    @cached_property
    def taken(self) -> Identifier:
        return Identifier("pg_temp", f"frostline taken {self.table.id}")

    @property
    def like(self) -> Identifier:
        """The table itself may be locked by whoever waits for us."""
        return Identifier(SCHEMA, shape_name(self.table.id))

    @property
    def key(self) -> tuple[ColdColumn, ...]:
        return self.table.primary_key

    @property
    def old_key(self) -> list[Identifier]:
        """The columns of `work` that keep a row's key as it was."""
        return [Identifier(f"!key {column.number}") for column in self.key]

    @property
    def settable(self) -> list[ColdColumn]:
        """All columns but those Postgres computes."""
        return self.table.settable

    def creation(self) -> list[str]:
        """What makes the tables, if they are not there."""
        if self.made:
            return []
        keys = [SQL("{} {}").format(name, SQL(c.type)) for name, c in zip(self.old_key, self.key, strict=True)]
        plain = [SQL("{} {}").format(Identifier(c.name), SQL(c.type)) for c in self.key]
        values_ = [SQL("{} {}").format(Identifier(c.name), SQL(c.type)) for c in self.settable]
        more = SQL(", ")
        return [
            statement.as_string(None)
            for statement in [
                SQL(
                    "CREATE TABLE {} (LIKE {} INCLUDING GENERATED, {}, {} bigint NOT NULL, {} int NOT NULL)"
                    " ON COMMIT DROP"
                ).format(self.work, self.like, more.join(keys), PREV, LOAD),
                SQL(
                    "CREATE TABLE {} (LIKE {} INCLUDING GENERATED INCLUDING CONSTRAINTS, {} int NOT NULL)"
                    " ON COMMIT DROP"
                ).format(self.added, self.like, WRITE),
                SQL("CREATE TABLE {} ({}, {} bigint NOT NULL, {} int NOT NULL) ON COMMIT DROP").format(
                    self.removed, more.join(plain), PREV, WRITE
                ),
                SQL("CREATE TABLE {} (LIKE {}, _batch int NOT NULL) ON COMMIT DROP").format(
                    self.versions, Identifier(*self.table.delta)
                ),
                SQL("CREATE TABLE {} ({}, {} tid NOT NULL, {} int NOT NULL) ON COMMIT DROP").format(
                    self.taken, more.join(values_), PLACE, WRITE
                ),
            ]
        ]

    def to_index(self) -> list[str]:
        """Tables to be indexed, once there are so many rows that it is worth it."""
        wanted = [self.removed, self.versions, *([self.added] if self.searched else [])]
        names_ = [table.as_string(None) for table in wanted]
        lacking = [name for name in names_ if name not in self.indexed]
        return lacking if lacking and sum(self.counts.values()) >= _MANY_ROWS else []

    def index(self, table: str) -> str:
        return f"CREATE INDEX ON {table} ({self.key_names().as_string(None)})"

    def note(self, made: Made) -> None:
        """A write that did not need the tables."""
        self.quick = made
        self.deferred.append(made.noted)

    def settled(self) -> None:
        """The tables lack nothing."""
        self.deferred.clear()
        self.taking = None

    def tidy(self) -> list[str]:
        """Where earlier statements are over: forget the rows they looked at once there are many."""
        if self._loaded <= _LEFT_OVER or not self._alone:
            return []
        self._loaded = 0
        self._named.clear()  # others will be where they were
        return [f"TRUNCATE {self.work.as_string(None)}"]

    def loaded(self, rows: int) -> None:
        self._loaded += rows

    def begin_load(self, *, alone: bool) -> None:
        """Alone: no statement goes on that rows were loaded for, and nobody reads them."""
        self._alone = alone
        if alone:
            self._loads.clear()
            self.apart = True

    def load(self, number: int, within: Range) -> None:
        """Rows will be put into `work`."""
        self.apart = self.apart and not any(within.overlaps(other) for _, other in self._loads)
        self._loads.append((number, within))

    def undisturbed(self, writes: Sequence[Write]) -> bool:
        """Whether a row that was loaded is as it was, unless it was named since."""
        if not self.apart or not self._loads:
            return False
        later = itertools.takewhile(lambda write: write.number > self._loads[0][0], reversed(writes))
        return all(write.number in self.row_by_row or write.verb == "INSERT" for write in later)

    def named(self, ctid: str) -> bool:
        """Whether a row of `work` is named for the second time."""
        block, _, offset = ctid[1:-1].partition(",")
        before, bit = self._named.get(int(block), 0), 1 << int(offset)
        self._named[int(block)] = before | bit
        return bool(before & bit)

    def same_key(self, left: str, right: str) -> Composed:
        """Two relations' rows with the same key."""
        return SQL(" AND ").join(
            SQL("{}.{c} = {}.{c}").format(Identifier(left), Identifier(right), c=Identifier(c.name)) for c in self.key
        )

    def old_key_is(self, relation: str) -> Composed:
        """A row of `work` had the key that a row of another relation has."""
        return SQL(" AND ").join(
            SQL("{} = {}").format(old, Identifier(relation, column.name))
            for column, old in zip(self.key, self.old_key, strict=True)
        )

    def key_names(self, prefix: str | None = None) -> Composed:
        return names(self.key, prefix)


def names(columns: Iterable[ColdColumn], prefix: str | None = None) -> Composed:
    """A list of columns."""
    before = () if prefix is None else (prefix,)
    return SQL(", ").join(Identifier(*before, column.name) for column in columns)


def values(rows: Iterable[Sequence[str | None]]) -> str:
    """A few rows, as VALUES lists them."""
    return ", ".join(f"({', '.join(map(quoted, row))})" for row in rows)


def numbers(writes: Sequence[Write]) -> Composed:
    """A condition's right side: any of these writes."""
    return SQL("ANY ({}::int[])").format(Literal([write.number for write in writes]))
