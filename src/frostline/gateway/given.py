"""A cold row changed without a question: it is named by its primary key, and what it is set to stands in the statement.

Such a row's new values are texts that we have: constants as postgres_fdw writes them, which are of the column's type by
then, and the values that the row had. Only the number of the new version is Postgres's to give, and it gives that while
the row is looked up. Whatever might mean more than its text (a domain, a length, a value that the lake may not hold, a
constraint, an expression) is Postgres's to say: `quick` asks.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from frostline.catalog.cold import ColdColumn, ColdTable
from frostline.gateway.expressions.tree import Unknown
from frostline.gateway.lexer import Literals
from frostline.gateway.points import Sought
from frostline.gateway.translate import Parameters
from frostline.gateway.writes import Modify

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
    """Where a new value is found: among the row's own, among the constants, or here."""

    column: str | None = None
    parameter: int | None = None
    bare: bool = False  # without a type
    text: str | None = None


def assigned(statement: Modify, table: ColdTable, wanted: Sought | None, parameters: Parameters) -> bool:
    """Whether a statement is as plain as that. What else `quick` demands of it is taken for granted."""
    if wanted is None or wanted.key is None or any(column.typname in _CONVERTED for column in wanted.columns):
        return False
    try:
        alone = len(statement.clauses.where()) == len(wanted.conditions) == len(table.primary_key)
    except Unknown:
        return False
    return alone and all(
        (value := _value(statement.text[start:end].strip(), table.columns[name])) is not None
        and _fits(value, table.columns, table.columns[name], parameters)
        for name, start, end in statement.assignments
    )


def row(
    statement: Modify, columns: Sequence[ColdColumn], before: Sequence[str | None], parameters: Parameters
) -> list[str | None]:
    """The row's values when it is changed, for a statement that is as plain as that."""
    own = dict(zip((column.name for column in columns), before, strict=True))
    new = dict(own)
    for name, start, end in statement.assignments:
        column = next(column for column in columns if column.name == name)
        value = _value(statement.text[start:end].strip(), column)
        assert value is not None
        if value.column is not None:
            new[name] = own[value.column]
        else:
            new[name] = value.text if value.parameter is None else parameters[value.parameter]
    return list(new.values())


@lru_cache(maxsize=1000)
def _value(expression: str, column: ColdColumn) -> _Value | None:
    """What a column is set to; None: Postgres has to say."""
    if column.typname not in _SET or column.domain or column.typmod != -1 or column.storage.cannot_hold is not None:
        return None
    if expression in _TRUTHS and column.typname == "bool":
        return _Value(text=_TRUTHS[expression])
    if expression == f"NULL::{column.type}":
        return _Value()
    match = _PARAMETER.fullmatch(expression)
    if match is not None and match[3] in (None, column.type):
        return _Value(parameter=int(match[1] or match[2]) - 1, bare=match[3] is None)
    if _COLUMN.fullmatch(expression) and expression not in _VALUES:
        return _Value(column=expression)
    return None


def _fits(value: _Value, columns: Mapping[str, ColdColumn], column: ColdColumn, parameters: Parameters) -> bool:
    """Whether a text is of the column's type without a cast that might change it."""
    if value.column is not None:
        other = columns.get(value.column)
        return other is not None and other.type == column.type
    if value.parameter is None:
        return True
    text = parameters[value.parameter]
    written = parameters.written[value.parameter][:1] == "'" if isinstance(parameters, Literals) else None
    if value.bare:  # a number says by its form of which type it is
        form = {"int4": _INTEGER, "numeric": _NUMBER}.get(column.typname)
        return written is False and form is not None and form.fullmatch(text or "") is not None
    if text is None or written is None:
        return True
    if column.typname in _INTEGERS:
        return _INTEGER.fullmatch(text) is not None
    return written or column.typname not in _TEXTS
