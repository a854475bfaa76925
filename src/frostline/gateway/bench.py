"""Where the cold writes of one table are worked out: temporary tables in the backing transaction.

A statement that changes cold rows runs, word for word, on a temporary table that holds the rows it may concern, so that
Postgres itself evaluates it: expressions, casts, defaults, constraints. What it did is noted in two more tables:
`removed`, the versions that are no longer, and `added`, the rows that are new. Out of these come the versions that the
client's transaction stores (`versions`, in the form of the delta).

Numbers tell what belongs together. Loads, writes and batches are counted together, so that of any two it is known which
was first. Nothing is ever taken back here: after a rollback to a savepoint some numbers no longer count.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from psycopg.sql import SQL, Composed, Identifier, Literal

from frostline.catalog.cold import ColdColumn, ColdTable
from frostline.delta.tables import SCHEMA, shape_name
from frostline.gateway.lexer import quoted
from frostline.gateway.names import Source
from frostline.lake.staged import StagedFile
from frostline.model.tables import derived_name

Later = Callable[[], list[str]]  # statements that mostly nobody needs
LOAD, PREV, WRITE = Identifier("!load"), Identifier("!prev"), Identifier("!write")
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


@dataclass(frozen=True)
class Written:
    """What a transaction has written of one table; a savepoint keeps the one it found."""

    writes: tuple[Write, ...] = ()  # all of them
    held: tuple[Write, ...] = ()  # those that the client has not stored yet
    batches: tuple[int, ...] = ()  # of versions that it has
    files: tuple[StagedFile, ...] = ()  # and of rows
    stagings: int = 0  # how often it has staged some
    marks: tuple[Mark, ...] = ()

    def as_of(self, scan: int) -> Written:
        """What a scan sees that was begun before some of it was written, and comes to cold rows only now."""
        first = next((mark for mark in self.marks if scan < mark.scan), None)
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


@dataclass
class Bench:
    """The temporary tables of one table in one backing transaction."""

    table: ColdTable
    pending: Batch | None = None
    asked_by: int | None = None  # the number of the scan that has looked at what is held, if one has
    last_batch: int = 0
    made: bool = False
    indexed: bool = False
    counts: Counter[int] = field(default_factory=Counter)  # by write: how many rows it removed or added
    quick: Made | None = None
    deferred: list[Later] = field(default_factory=list)  # what the tables lack; wanted once somebody looks at them
    _loaded: int = 0  # rows in `work`

    def __post_init__(self) -> None:
        # Postgres names them in what it says about a constraint.
        name, number = self.table.name, self.table.id
        self.work = Identifier("pg_temp", derived_name(name, f" (cold {number})"))
        self.like = Identifier(SCHEMA, shape_name(number))  # the table itself may be locked by whoever waits for us
        self.added = Identifier("pg_temp", derived_name(name, f" (new {number})"))
        self.removed = Identifier("pg_temp", f"frostline removed {number}")
        self.versions = Identifier("pg_temp", f"frostline versions {number}")

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
        return [column for column in self.table.columns.values() if not column.generated]

    def creation(self) -> list[str]:
        """What makes the tables, if they are not there."""
        if self.made:
            return []
        keys = [SQL("{} {}").format(name, SQL(c.type)) for name, c in zip(self.old_key, self.key, strict=True)]
        plain = [SQL("{} {}").format(Identifier(c.name), SQL(c.type)) for c in self.key]
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
            ]
        ]

    def indexing(self) -> list[str]:
        """Indexes, once there are so many rows that they are worth making."""
        if self.indexed or sum(self.counts.values()) < _MANY_ROWS:
            return []
        return [
            SQL("CREATE INDEX ON {} ({})").format(table, self.key_names()).as_string(None)
            for table in (self.removed, self.versions)
        ]

    def note(self, made: Made) -> None:
        """A write that did not need the tables."""
        self.quick = made
        self.deferred.append(made.noted)

    def tidy(self) -> list[str]:
        """Earlier statements are over: forget the rows they looked at once there are many."""
        if self._loaded <= _LEFT_OVER:
            return []
        self._loaded = 0
        return [f"TRUNCATE {self.work.as_string(None)}"]

    def loaded(self, rows: int) -> None:
        self._loaded += rows

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
