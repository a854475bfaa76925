"""Options of tables as a TOML file: written so that reading it back gives every table what it had."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Mapping, Sequence

from frostline.catalog import registry
from frostline.catalog.database import Connection
from frostline.catalog.registry import Managed
from frostline.config import Settings
from frostline.errors import ConfigError
from frostline.tiering import options

_ROOT = "tables"


def written(connection: Connection, settings: Settings, tables: Sequence[Managed]) -> str:
    """Every option of every table; one that follows a setting says `default`, and the value it has now."""
    parts = []
    for managed in tables:
        lines = [f"[{_ROOT}.{_string(name(connection, managed))}]"]
        for one in options.shown(connection, settings, managed):
            # A number that begins with 0 is none to TOML.
            value = one.written if re.fullmatch(r"0|[1-9][0-9]*", one.written) else _string(one.written)
            note = "" if one.given else f"  # {one.text}, by {one.option.setting}"
            lines.append(f"{one.option.name} = {value}{note}")
        parts.append("\n".join(lines) + "\n")
    return "\n".join(parts)


def read(connection: Connection, text: str, origin: str) -> list[tuple[Managed, Mapping[str, str]]]:
    """The tables a file names with the options it gives them; whatever is wrong with it is told before it counts."""
    try:
        content = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{origin} cannot be read: {error}; nothing was changed") from None
    tables = content.pop(_ROOT, {})
    if content or not isinstance(tables, dict):
        found = next(iter(content), _ROOT)
        raise ConfigError(
            f"{origin} holds {found}, which is no table's options; nothing was changed",
            hint=f'options stand under [{_ROOT}."SCHEMA.TABLE"], as `frostline export` writes them',
        )
    wanted: list[tuple[Managed, Mapping[str, str]]] = [
        (registry.get(connection, table), _texts(origin, table, given)) for table, given in tables.items()
    ]
    spelled: dict[int, str] = {}
    for table, (managed, _) in zip(tables, wanted, strict=True):
        if managed.id in spelled:  # each by itself may be right, and both together wrong
            raise ConfigError(
                f"{origin} names {managed.table} twice, as {spelled[managed.id]} and as {table}; nothing was changed",
                hint="put its options together",
            )
        spelled[managed.id] = table
    return wanted


def name(connection: Connection, managed: Managed) -> str:
    """As SQL wants it, quoted where it must be."""
    row = connection.execute("SELECT %s::oid::regclass::text", (managed.table.oid,)).fetchone()
    assert row is not None
    return str(row[0])


def _texts(origin: str, table: str, given: object) -> dict[str, str]:
    if not isinstance(given, dict):
        raise ConfigError(f"{origin} has no options for {table}, but a value; nothing was changed")
    options.known(given)
    for key, value in given.items():
        if not isinstance(value, str | int) or isinstance(value, bool):
            raise ConfigError(f"{key} of {table} in {origin} is neither a text nor a whole number; nothing was changed")
    return {key: str(value) for key, value in given.items()}


def _string(text: str) -> str:
    """A basic string of TOML: JSON's, but for one letter that TOML wants escaped too."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
