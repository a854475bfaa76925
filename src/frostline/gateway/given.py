"""A cold row changed without a question: it is named by its primary key, and what it is set to stands in the statement.

Such a row's new values are texts that we have: constants as postgres_fdw writes them, which are of the column's type by
then, and the values that the row had. Only the number of the new version is Postgres's to give, and it gives that while
the row is looked up. Whatever might mean more than its text (a domain, a length, a value that the lake may not hold, a
CHECK constraint, an expression) is Postgres's to say: `quick` asks.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from frostline.catalog.cold import ColdColumn, ColdTable
from frostline.gateway import pruning
from frostline.gateway.expressions.tree import Unknown
from frostline.gateway.lexer import Literals
from frostline.gateway.translate import Parameters
from frostline.gateway.writes import Modify
from frostline.lake.pruning import Condition

Row = list[str | None]
# An assignment to one of these means the same as a cast, whatever its precision; a string too long would be cut.
_ROUNDED = frozenset({"numeric", "timestamp", "timestamptz", "time", "timetz", "interval"})
# The delta has them as doubles, and without blanks: there the same text may be another value.
_CONVERTED = frozenset({"float4", "bpchar"})
# What can be set without a cast by Postgres.
_SET = frozenset({"bool", "int2", "int4", "int8", "float8", "numeric", "text", "varchar", "uuid"})
_PARAMETER = re.compile(r"(?:\$(\d+)|\(\$(\d+)\))(?:::(.+))?")
_INTEGER, _NUMBER = re.compile(r"-?\d+"), re.compile(r"-?\d+\.\d+")
_INTEGERS, _TEXTS = frozenset({"int2", "int4", "int8"}), frozenset({"text", "varchar", "uuid"})
_TRUTHS = {"true": "t", "false": "f"}
_COLUMN = re.compile(r"[a-z_][a-z0-9_]*")
# Words that are values by themselves; a column that is called so is quoted.
_VALUES = frozenset(
    (
        *("current_catalog", "current_date", "current_role", "current_schema", "current_time", "current_timestamp"),
        *("current_user", "default", "false", "localtime", "localtimestamp", "null", "session_user", "system_user"),
        *("true", "user"),
    )
)


@dataclass(frozen=True)
class _Value:
    """Where a new value is found: among the row's own, among the parameters, or here."""

    of: ColdColumn
    column: str | None = None
    parameter: int | None = None
    bare: bool = False  # without a type
    text: str | None = None

    def fits(self, parameters: Parameters) -> bool:
        """Whether a parameter's text is of the column's type without a cast that might change it."""
        if self.parameter is None:
            return True
        text, name = parameters[self.parameter], self.of.typname
        if not isinstance(parameters, Literals):
            return not self.bare  # it was written by the type's own output function
        string = parameters.written[self.parameter][0] == "'"
        if self.bare:  # a number says by its form of which type it is
            form = {"int4": _INTEGER, "numeric": _NUMBER}.get(name)
            return not string and form is not None and form.fullmatch(text or "") is not None
        if name in _INTEGERS:
            return _INTEGER.fullmatch(text or "") is not None
        return string or name not in _TEXTS

    def take(self, own: Mapping[str, str | None], parameters: Parameters) -> str | None:
        if self.column is not None:
            return own[self.column]
        return self.text if self.parameter is None else parameters[self.parameter]


@dataclass(frozen=True, eq=False)
class Plan:
    """All that is known of such a statement but its parameters."""

    table: ColdTable
    _key: tuple[pruning.Equality, ...]  # a whole primary key, and nothing else
    _set: Mapping[str, _Value] | None  # None: Postgres has to say what

    def conditions(self, parameters: Parameters) -> tuple[Condition, ...] | None:
        """Of the key's columns."""
        found: list[Condition] = []
        for part in self._key:
            value = part.value(parameters)
            if not isinstance(value, int):
                return None
            found.append(part.condition(value))
        return tuple(found)

    def known(self, parameters: Parameters) -> bool:
        """Whether nothing has to be asked."""
        return self._set is not None and all(value.fits(parameters) for value in self._set.values())

    def row(self, columns: Sequence[ColdColumn], before: Sequence[str | None], parameters: Parameters) -> Row | None:
        """The values of a row when it is changed; None: they must not be, and Postgres says why."""
        own = {column.name: value for column, value in zip(columns, before, strict=True)}
        new = own | {name: value.take(own, parameters) for name, value in (self._set or {}).items()}
        if self._set and any(column.not_null and new[column.name] is None for column in columns):
            return None
        return list(new.values())


def plan(statement: Modify, table: ColdTable) -> Plan | None:
    """What is known of a statement that names a row; None: it is not as plain as that."""
    found = statement.plans.get(table.id)
    if not isinstance(found, tuple) or found[0] is not table:
        found = statement.plans[table.id] = table, _plan(statement, table)
    made: Plan | None = found[1]
    return made


def plain(statement: Modify, table: ColdTable) -> bool:
    """Whether what it changes can be told row by row."""
    if statement.others or statement.alias is not None or statement.returning is not None or statement.where is None:
        return False
    if any(column.generated for column in table.columns.values()):
        return False
    set_ = [table.columns.get(name) for name, _, _ in statement.assignments]
    return all(column is not None and _castable(column) and column not in table.primary_key for column in set_)


def _castable(column: ColdColumn) -> bool:
    return not column.domain and (column.typmod == -1 or column.typname in _ROUNDED)


def _plan(statement: Modify, table: ColdTable) -> Plan | None:
    if not plain(statement, table):
        return None
    try:
        key = [pruning.equality(conjunct, table) for conjunct in statement.clauses.where()]
    except Unknown:
        return None
    compared = tuple(part for part in key if part is not None)
    if {part.column for part in compared} != set(table.primary_key) or len(key) != len(table.primary_key):
        return None
    return Plan(table, compared, _set(statement, table))


def _set(statement: Modify, table: ColdTable) -> Mapping[str, _Value] | None:
    if statement.verb == "DELETE":
        return {}
    if table.checked or any(column.typname in _CONVERTED for column in table.columns.values()):
        return None
    found = {name: _value(statement.text[start:end].strip(), name, table) for name, start, end in statement.assignments}
    values = {name: value for name, value in found.items() if value is not None}
    return values if len(values) == len(found) else None


def _value(expression: str, name: str, table: ColdTable) -> _Value | None:
    """What a column is set to; None: Postgres has to say."""
    column = table.columns[name]
    if column.typname not in _SET or column.typmod != -1 or column.storage.cannot_hold is not None:
        return None
    if expression in _TRUTHS and column.typname == "bool":
        return _Value(column, text=_TRUTHS[expression])
    if expression == f"NULL::{column.type}":
        return _Value(column)
    match = _PARAMETER.fullmatch(expression)
    if match is not None and match[3] in (None, column.type):
        return _Value(column, parameter=int(match[1] or match[2]) - 1, bare=match[3] is None)
    other = table.columns.get(expression)
    if other is None or other.type != column.type or not _COLUMN.fullmatch(expression) or expression in _VALUES:
        return None
    return _Value(column, column=expression)
