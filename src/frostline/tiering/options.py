"""Every option of a table: its name, what it may be, what it is by default, and where the registry keeps it.

A person gives options as text, on the command line or in a TOML file. All of what was given is checked before any of it
changes anything, and one transaction changes it all.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal

import psycopg
from psycopg.sql import SQL, Identifier
from pydantic import ByteSize, TypeAdapter, ValidationError

from frostline.catalog import registry
from frostline.catalog.database import Connection
from frostline.catalog.registry import Managed
from frostline.config import LEAST_FILE, Settings
from frostline.errors import ConfigError
from frostline.model import layout
from frostline.model.tables import Table
from frostline.tiering import policy, references, writing
from frostline.tiering.locks import from_settings, with_short_locks

HOT_FOR = "3 months"
_MOST_SECONDS = 1e12  # 30,000 years; written down in seconds it is to be an interval again
DEFAULT = "default"  # the word that gives an option back to its default
Values = tuple[object, ...]
ByColumn = Mapping[str, object]  # of frostline.tables


@dataclass(frozen=True)
class Option:
    """One option; `parse` returns the values of its columns, or raises ValueError."""

    name: str
    help: str
    allowed: str | Callable[[Table], str]
    parse: Callable[[Connection, Table, str], Values]
    show: Callable[[Table, Values], str]
    columns: tuple[str, ...]
    default: str = ""  # as a person would write it; empty: there is none
    setting: str = ""  # the setting that stands in where the registry has NULL

    def what(self, table: Table) -> str:
        return self.allowed if isinstance(self.allowed, str) else self.allowed(table)


@dataclass(frozen=True)
class Shown:
    """An option of a table as it is."""

    option: Option
    text: str
    given: bool  # for this table; else it follows a setting

    @property
    def written(self) -> str:
        """What gives the table this value again."""
        return self.text if self.given else DEFAULT


@dataclass(frozen=True)
class Change:
    """One option of one table, before and after."""

    managed: Managed
    option: Option
    before: str
    after: str
    values: Values


def _integer(table: Table) -> bool:
    return table.key_type.startswith("int")


def _width(table: Table) -> str:
    return "a width of the key, such as 1000000" if _integer(table) else "an interval, such as '3 months'"


def _period(connection: Connection, table: Table, text: str) -> Values:
    """Above zero: an interval, or for an integer key a width."""
    type_ = "bigint" if _integer(table) else "interval"
    try:
        row = connection.execute(f"SELECT %s::{type_} > '0'::{type_}", (text,)).fetchone()
    except psycopg.DataError:
        row = None
    if row != (True,):
        raise ValueError(text)
    if type_ == "interval":
        policy.check_reach(connection, text)
    return (text,)


def _retention(connection: Connection, table: Table, text: str) -> Values:
    return (None,) if text == "none" else _period(connection, table, text)


def _coalesce(connection: Connection, table: Table, text: str) -> Values:
    found = policy.parse(connection, table.key_type, text)
    return found if found is not None else (None, None)


def _one_of(*words: str) -> Callable[[Connection, Table, str], Values]:
    def parse(_: Connection, __: Table, text: str) -> Values:
        if text not in words:
            raise ValueError(text)
        return (text,)

    return parse


def _number(least: int, most: int) -> Callable[[Connection, Table, str], Values]:
    def parse(_: Connection, __: Table, text: str) -> Values:
        if not least <= (number := int(text)) <= most:
            raise ValueError(text)
        return (number,)

    return parse


def _size(_: Connection, __: Table, text: str) -> Values:
    try:
        size = TypeAdapter(ByteSize).validate_python(text)
    except ValidationError:
        raise ValueError(text) from None
    if not 0 < size < 2**63:
        raise ValueError(text)
    return (int(size),)


def _file_size(connection: Connection, table: Table, text: str) -> Values:
    (size,) = _size(connection, table, text)
    if int(str(size)) < LEAST_FILE:
        raise ValueError(text)
    return (size,)


def _seconds(connection: Connection, _: Table, text: str) -> Values:
    try:
        row = connection.execute("SELECT extract(epoch FROM %s::interval)::float8", (text,)).fetchone()
    except psycopg.DataError:
        row = None
    if row is None or not 0 <= row[0] <= _MOST_SECONDS:
        raise ValueError(text)
    return (row[0],)


def _lake_partition(_: Connection, table: Table, text: str) -> Values:
    layout.check_step(table, text)
    return (text,)


def _sort_order(_: Connection, table: Table, text: str) -> Values:
    return (None,) if text == PRIMARY_KEY else (layout.write_sort(layout.parse_sort(table, text)),)


def _plain(_: Table, values: Values) -> str:
    return "none" if values[0] is None else str(values[0])


def _as_policy(_: Table, values: Values) -> str:
    return "none" if values[0] is None else f"{values[0]} after {values[1]}"


def _as_size(_: Table, values: Values) -> str:
    number = int(str(values[0]))
    exact = ((f"{number // unit}{name}", number % unit) for name, unit in (("GB", 10**9), ("MB", 10**6), ("kB", 1000)))
    return next((text for text, rest in exact if rest == 0), str(number))


def _as_seconds(_: Table, values: Values) -> str:
    return f"{Decimal(str(values[0])):f} s".replace(".0 s", " s")


def _as_order(table: Table, values: Values) -> str:
    """By the names that columns have now; one that was dropped is not shown."""
    stored = layout.read_sort(str(values[0])) if values[0] is not None else ()
    return layout.show_sort(table, stored) or PRIMARY_KEY


_SIZE = "a size, such as 128MB or 1GiB"
PRIMARY_KEY = "primary key"
_DURATION = "an interval, such as '15 minutes', or seconds"
EVERY = {
    option.name: option
    for option in (
        Option("hot", "how long rows stay in Postgres", _width, _period, _plain, ("hot_for",), HOT_FOR),
        Option(
            "retention",
            "how long rows are kept at all: older periods are removed from the lake",
            lambda table: f"{_width(table)}, longer than hot, or none",
            _retention,
            _plain,
            ("retention",),
            "none",
        ),
        Option(
            "premake",
            "how many partitions are kept ready after the current one",
            "a number from 0 to 1000",
            _number(0, 1000),
            _plain,
            ("premake",),
            "2",
        ),
        Option(
            "cold_duplicates",
            "a cold INSERT of a key that is there: an error, or the new row takes the old one's place",
            "error or upsert",
            _one_of("error", "upsert"),
            _plain,
            ("cold_duplicates",),
            "error",
        ),
        Option(
            "cold_fk",
            "whether rows that cold rows refer to are kept, and new cold rows checked",
            "check or none",
            _one_of("check", "none"),
            _plain,
            ("cold_fk",),
            "check",
        ),
        Option(
            "coalesce",
            "when old periods are joined to larger ones",
            lambda table: (
                "WIDTH after WIDTH, such as '1000000 after 5000000', or none"
                if _integer(table)
                else f"UNIT after INTERVAL, such as 'year after 2 years' ({', '.join(policy.UNITS)}), or none"
            ),
            _coalesce,
            _as_policy,
            ("coalesce_to", "coalesce_after"),
            "",
        ),
        Option(
            "merge_mode",
            "how a fold changes the lake: files rewritten, or files of deletes added",
            "copy-on-write or merge-on-read",
            _one_of("copy-on-write", "merge-on-read"),
            _plain,
            ("merge_mode",),
            "copy-on-write",
        ),
        Option(
            "lake_partition",
            "steps of the partition key that files of the lake are cut by",
            lambda table: (
                "a width of the key, not above that of a partition, or auto"
                if _integer(table)
                else f"{', '.join(layout.STEPS)}, not longer than a partition, or auto"
            ),
            _lake_partition,
            _plain,
            ("lake_partition",),
            layout.AUTO,
        ),
        Option(
            "sort_order",
            "what rows are sorted by within files of the lake",
            "columns as in ORDER BY, such as 'device_id, ts desc nulls last', or primary key",
            _sort_order,
            _as_order,
            ("sort_order",),
            PRIMARY_KEY,
        ),
        Option(
            "file_size",
            "how much of a partition, as it is in Postgres, makes one data file",
            "a size from 4kB on, such as 128MB or 1GiB",
            _file_size,
            _as_size,
            ("file_size",),
            setting="lake.file_size",
        ),
        Option(
            "bulk_rows",
            "new old rows of one statement that are written to data files at once",
            "a number above 0",
            _number(1, 2**63 - 1),
            _plain,
            ("bulk_rows",),
            setting="gateway.bulk_rows",
        ),
        Option(
            "fold_rows",
            "changes of cold rows that make the table be folded",
            "a number above 0",
            _number(1, 2**63 - 1),
            _plain,
            ("fold_rows",),
            setting="fold.rows",
        ),
        Option(
            "fold_bytes",
            "the same by their size in Postgres",
            _SIZE,
            _size,
            _as_size,
            ("fold_bytes",),
            setting="fold.bytes",
        ),
        Option(
            "fold_age",
            "time since the last fold after which any change makes it be folded",
            _DURATION,
            _seconds,
            _as_seconds,
            ("fold_age",),
            setting="fold.age",
        ),
        Option(
            "maintenance",
            "whether the worker looks after the files in the lake",
            "auto or none",
            _one_of("auto", "none"),
            _plain,
            ("maintenance",),
            "auto",
        ),
        Option(
            "compact_files",
            "files too many in a partition of the lake that make it be rewritten",
            "a number above 1",
            _number(2, 2**31 - 1),
            _plain,
            ("compact_files",),
            setting="maintenance.files",
        ),
        Option(
            "compaction",
            "files that are rewritten: sorted together, or joined",
            "sort or binpack",
            _one_of("sort", "binpack"),
            _plain,
            ("compaction",),
            "sort",
        ),
        Option(
            "backup_window",
            "how far back a Postgres may be restored: until then the snapshots it wants stay in the lake",
            _DURATION,
            _seconds,
            _as_seconds,
            ("backup_window",),
            setting="maintenance.backup_window",
        ),
    )
}


def parse(connection: Connection, table: Table, name: str, text: str) -> Values:
    """The values of an option's columns; what it cannot be is told with what it can."""
    option = EVERY[name]
    try:
        return option.parse(connection, table, text)
    except ValueError as error:
        raise ConfigError(
            f"{name} = {text!r} is not allowed for {table}; nothing was changed",
            detail=str(error) if isinstance(error, layout.NotAllowed) else None,
            hint=f"{name}: {option.what(table)}",
        ) from None


def chosen(connection: Connection, table: Table, given: Mapping[str, str]) -> ByColumn:
    """What the registry holds of a new table: every option, as it was given or by default."""
    known(given)
    found: dict[str, object] = {}
    for option in EVERY.values():
        values = _values(connection, table, option, given.get(option.name, DEFAULT))
        found.update(zip(option.columns, values, strict=True))
    _together(connection, table, {"retention": found["retention"], "hot": found["hot_for"]})
    return found


def shown(connection: Connection, settings: Settings, managed: Managed) -> list[Shown]:
    """All options of a table."""
    columns = [column for option in EVERY.values() for column in option.columns]
    query = SQL("SELECT {} FROM frostline.tables WHERE id = %s").format(SQL(", ").join(map(Identifier, columns)))
    row = connection.execute(query, (managed.id,)).fetchone()
    assert row is not None
    values = dict(zip(columns, row, strict=True))
    found = []
    for option in EVERY.values():
        own = tuple(values[column] for column in option.columns)
        given = not option.setting or own != (None,)
        found.append(Shown(option, option.show(managed.table, own if given else (_setting(settings, option),)), given))
    return found


def plan(
    connection: Connection, settings: Settings, wanted: Sequence[tuple[Managed, Mapping[str, str]]]
) -> list[Change]:
    """What would change; every name and value is checked, those of a table together too."""
    found: list[Change] = []
    for managed, given in wanted:
        known(given)
        current = {one.option.name: one for one in shown(connection, settings, managed)}
        after = {name: one.written for name, one in current.items()}
        for name, text in given.items():
            option = EVERY[name]
            values = _values(connection, managed.table, option, text)
            is_given = not option.setting or values != (None,)
            after[name] = option.show(managed.table, values) if is_given else DEFAULT
            if after[name] != current[name].written:
                setting = option.show(managed.table, (_setting(settings, option),)) if option.setting else ""
                new = after[name] if is_given else f"{setting} ({option.setting})"
                found.append(Change(managed, option, current[name].text, new, values))
        _together(connection, managed.table, after)
    return found


def apply(connection: Connection, settings: Settings, changes: Sequence[Change]) -> None:
    """All of them, in one transaction."""

    def work() -> None:
        for change in changes:
            assigned = SQL(", ").join(SQL("{} = %s").format(Identifier(column)) for column in change.option.columns)
            query = SQL("UPDATE frostline.tables SET {} WHERE id = %s").format(assigned)
            connection.execute(query, (*change.values, change.managed.id))
            if change.option.name == "cold_fk":
                _check_cold_keys(connection, change.managed, checked=change.values == ("check",))

    if changes:
        with_short_locks(connection, work, "changing options", from_settings(settings))


def known(names: Mapping[str, object]) -> None:
    """Every name is an option's, or the nearest one is told."""
    for name in names:
        if name not in EVERY:
            close = difflib.get_close_matches(name, EVERY, n=1, cutoff=0.4)
            hint = f"did you mean {close[0]}?" if close else f"the options are: {', '.join(EVERY)}"
            raise ConfigError(f"there is no option {name}; nothing was changed", hint=hint)


def _values(connection: Connection, table: Table, option: Option, text: str) -> Values:
    if text != DEFAULT:
        return parse(connection, table, option.name, text)
    if option.setting:
        return (None,)
    return parse(connection, table, option.name, option.default)


def _setting(settings: Settings, option: Option) -> object:
    section, _, name = option.setting.partition(".")
    return getattr(getattr(settings, section), name)


def _together(connection: Connection, table: Table, values: Mapping[str, object]) -> None:
    """Rows are not removed before they have come to the lake."""
    hot, retention = values["hot"], values["retention"]
    if retention in (None, "none"):
        return
    type_ = "bigint" if _integer(table) else "interval"
    if connection.execute(f"SELECT %s::{type_} > %s::{type_}", (retention, hot)).fetchone() != (True,):
        raise ConfigError(
            f"retention = {retention!r} of {table} is not longer than hot = {hot!r}; nothing was changed",
            hint="rows are removed from the lake, so they have to get there first",
        )


def _check_cold_keys(connection: Connection, managed: Managed, *, checked: bool) -> None:
    """Triggers on the referenced tables, and what new cold rows are checked by, made or taken away."""
    references.check_removable(connection, managed.id)
    made = references.removal(connection, managed.id)
    made += writing.statements(
        connection, managed.table, managed.id, managed.delta, managed.hot, managed.hot_oid, checked=checked
    )
    if checked:
        made += references.guards(connection, managed.hot_oid, managed.id)
    for statement in made:
        connection.execute(statement)


def tables(connection: Connection, names: Sequence[str]) -> list[Managed]:
    """Those named, or all that are registered."""
    return [registry.get(connection, name) for name in names] if names else registry.every(connection)
