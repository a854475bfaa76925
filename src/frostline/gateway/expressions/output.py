"""Values as text that Postgres's input functions take, and what a client is told about them."""

from __future__ import annotations

from frostline.gateway.expressions.tree import Call, Cast, Column, Node
from frostline.gateway.expressions.types import OIDS
from frostline.gateway.expressions.values import Value
from frostline.gateway.wire.messages import Field
from frostline.model.types import NATIVE

_ALREADY_TEXT = ("text", "bpchar", "enum", "average")
_OIDS = {**OIDS, "average": OIDS["numeric"]}


def text(value: Value) -> str:
    """A value's text form."""
    name = value.type.name
    if name in _ALREADY_TEXT:
        # A text that is always NULL has another type to DuckDB.
        return f"CAST({value.sql} AS VARCHAR)"
    if name == "bool":
        return f"CASE WHEN {value.sql} THEN 't' WHEN {value.sql} IS NOT NULL THEN 'f' END"
    if name == "numeric" and value.type.precision == value.type.scale:
        # DuckDB prints .5 where all digits are fractions, Postgres 0.5.
        return f"regexp_replace(CAST({value.sql} AS VARCHAR), '^(-?)\\.', '\\10.')"
    form = NATIVE[name].text if name in NATIVE else "CAST({c} AS VARCHAR)"
    return form.replace("{c}", value.sql)


def field(node: Node, value: Value) -> Field:
    """Named as Postgres would name it."""
    inner = node
    while isinstance(inner, Cast):
        inner = inner.operand
    name = inner.name if isinstance(inner, Column | Call) else "?column?"
    return Field(name, value.type.oid or _OIDS.get(value.type.name, OIDS["text"]))
