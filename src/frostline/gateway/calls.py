"""What SQL functions of ours ask of the gateway: a foreign table stands for a call, its condition for the argument.

`SELECT answer FROM "frostline call".pin WHERE ((argument = '00000003-0000001B-1'::text))`
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from frostline.errors import QueryError
from frostline.gateway import lexer, versions
from frostline.gateway.explain import explain
from frostline.gateway.lexer import Token
from frostline.gateway.rows import FixedRows
from frostline.gateway.view import View
from frostline.gateway.wire.messages import Field

SCHEMA = "frostline call"
_VISIBLE = (
    "SELECT pg_catalog.pg_visible_in_snapshot(%s::pg_catalog.text::pg_catalog.xid8, pg_catalog.pg_current_snapshot())"
)
_ESCAPED = re.compile(r"\\(.)|''", re.S)


@dataclass(frozen=True)
class Call:
    """One call with its argument; `outputs` are the columns asked for."""

    name: str
    argument: str
    outputs: tuple[str, ...]


def asked(tokens: Sequence[Token], parameters: Sequence[str | None]) -> Call | None:
    """The call a SELECT stands for, None when it is no call."""
    for at, token in enumerate(tokens[:-2]):
        if token.kind == "quoted" and token.text == SCHEMA and tokens[at + 1].text == ".":
            end = lexer.clause(tokens, "returning")
            # SELECT outputs FROM the call, or DELETE FROM the call RETURNING outputs, which is one round trip.
            listed = tokens[1:at] if end is None else tokens[end + 1 :]
            outputs = tuple(t.text for t in listed if t.text != "," and not t.word("from"))
            return Call(tokens[at + 2].text, _argument(tokens[at + 3 : end], parameters), outputs)
    return None


def answer(view: View, call: Call) -> FixedRows:
    """Do what was asked; one row comes back."""
    known = _CALLS.get(call.name)
    if known is None:
        raise QueryError(
            f"this gateway knows no call {call.name}",
            hint="the database's registry is newer than the gateway; upgrade Frostline there",
            sqlstate="0A000",
        )
    values = {"argument": call.argument, "answer": known(view, call.argument)}
    fields = [Field(name if name in values else "?column?") for name in call.outputs]
    return FixedRows(fields, [[values.get(name) for name in call.outputs]])


def _argument(tokens: Sequence[Token], parameters: Sequence[str | None]) -> str:
    """The one constant of the condition, written out or as a parameter."""
    found = [_text(token.text) for token in tokens if token.kind == "string"]
    found += [value for value in parameters if value is not None]
    if len(found) != 1:
        raise QueryError("a call of the gateway has one argument", sqlstate="42601")
    return found[0]


def _text(literal: str) -> str:
    """What a literal of postgres_fdw's stands for: only E'...' has backslashes, and only doubled ones."""
    if literal[0] in "eE":
        return _ESCAPED.sub(lambda match: match[1] or "'", literal[2:-1])
    return literal[1:-1].replace("''", "'")


def _pin(view: View, snapshot: str) -> str:
    view.fix(snapshot)
    return snapshot


def _touched(view: View, table_id: str) -> str:
    """Whether anything was to be changed in a table since this was asked last.

    An UPDATE or DELETE row by row still has its cursor open; a user's own FOR UPDATE, which looks the same, has not.
    """
    id_ = int(table_id)
    found = id_ in view.touched or any(id_ in rows.to_change for rows in view.opened.values())
    view.touched.discard(id_)
    return "yes" if found else "no"


def _seen(view: View, transaction: str) -> str:
    """Whether what a transaction has committed is in what we read. What we shall read from now on has it."""
    if not view.backing.open:
        return "yes"
    with view.backing.running():
        row = view.backing.connection.execute(_VISIBLE, (transaction,)).fetchone()
    return "yes" if row == (True,) else "no"


_CALLS: dict[str, Callable[[View, str], str]] = {
    "pin": _pin,
    "explain": explain,
    "begins": versions.begins,
    "collected": versions.stored,
    "staged": versions.files,
    "touched": _touched,
    "seen": _seen,
}
