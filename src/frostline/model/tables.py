"""What a partitioned table looks like, and the names Frostline derives from it."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from frostline.model.bounds import Range
from frostline.model.types import Storage

NAME_BYTES = 63  # Postgres truncates longer identifiers silently


@dataclass(frozen=True)
class Column:
    """A live column of a user's table."""

    number: int  # pg_attribute.attnum: its identity across renames
    name: str
    type: str  # format_type(): what DDL needs
    base_type: str  # the type under any domain
    storage: Storage
    not_null: bool = False
    generated: str = ""  # '' | 's'tored | 'v'irtual
    identity: str = ""
    base: tuple[int, int] = (0, -1)  # that type's OID and modifier
    typname: str = ""  # its name, where it is one of Postgres's own
    exact_equality: bool = True  # False: two different texts can be equal (a non-deterministic collation, citext)


@dataclass(frozen=True)
class Leaf:
    """A partition that is a plain table."""

    oid: int
    schema: str
    name: str
    range: Range | None  # None: the DEFAULT partition

    def __str__(self) -> str:
        return f"{self.schema}.{self.name}"


@dataclass(frozen=True)
class Branch(Leaf):
    """A partition that is none."""

    kind: str = "partitioned again"


@dataclass(frozen=True)
class Table:
    """A RANGE-partitioned table as the catalog describes it."""

    oid: int
    schema: str
    name: str
    owner: str
    columns: tuple[Column, ...]
    key: str  # the partition key's column
    key_type: str
    primary_key: tuple[str, ...]
    leaves: tuple[Leaf, ...]

    def __str__(self) -> str:
        return f"{self.schema}.{self.name}"

    @property
    def key_column(self) -> Column:
        """The column the table is partitioned by."""
        return next(column for column in self.columns if column.name == self.key)

    @property
    def last_number(self) -> int:
        """Of the newest column: whoever adds one later gives it a larger number."""
        return max(column.number for column in self.columns)

    @property
    def stored(self) -> tuple[Column, ...]:
        """The columns whose values are kept; virtual generated ones are computed by whoever reads."""
        return tuple(column for column in self.columns if column.generated != "v")


def as_sql(*names: str) -> str:
    """A name as a person pastes it into SQL: quoted where its letters want it."""
    return ".".join(
        name if re.fullmatch(r"[a-z_][a-z0-9_]*", name) else '"' + name.replace('"', '""') + '"' for name in names
    )


def fill_call(table: tuple[str, str], column: str) -> str:
    """What says which value older cold rows have in a column."""
    return "SELECT frostline.fill('{}', '{}', NULL)".format(*_literals(table, column))


def keep_call(table: tuple[str, str], column: str) -> str:
    """What says that the values cold rows have in a column are right."""
    return "SELECT frostline.keep_computed('{}', '{}')".format(*_literals(table, column))


def _literals(table: tuple[str, str], column: str) -> tuple[str, ...]:
    return tuple(one.replace("'", "''") for one in (as_sql(*table), column))


def derived_name(base: str, suffix: str, taken: Iterable[str] = ()) -> str:
    """`base + suffix` cut to an identifier's length, numbered until it is free."""
    taken = set(taken)
    for number in range(1, 1_000_000):
        tail = suffix if number == 1 else f"{suffix}_{number}"
        name = _cut(base, NAME_BYTES - len(tail.encode())) + tail
        if name not in taken:
            return name
    raise ValueError(f"no free name for {base}{suffix}")


def lake_names(names: Mapping[int, str]) -> dict[int, str]:
    """Column names for the lake: word characters only, unique whatever the case (DuckDB and Hive fold it)."""
    used: set[str] = set()
    found: dict[int, str] = {}
    for number, name in names.items():
        plain = candidate = slug(name)
        again = 1
        while candidate.casefold() in used:
            again += 1
            candidate = f"{plain}_{again}"
        used.add(candidate.casefold())
        found[number] = candidate
    return found


def slug(name: str) -> str:
    """A name any engine takes unquoted but for its case and letters: odd characters become `_`."""
    plain = re.sub(r"\W", "_", unicodedata.normalize("NFC", name))
    return plain if not plain[0].isdigit() else f"_{plain}"


def ascii_slug(name: str) -> str:
    """A name for directories: a JVM under LANG=C cannot open a path with other letters."""
    plain = unicodedata.normalize("NFKD", name).encode("ascii", "ignore").decode()
    return slug(plain) if plain else "_"


def _cut(text: str, size: int) -> str:
    return text.encode()[:size].decode(errors="ignore")
