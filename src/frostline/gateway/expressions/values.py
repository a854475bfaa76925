"""An expression as DuckDB is given it, with the type Postgres gives it."""

from __future__ import annotations

from dataclasses import dataclass, replace

from frostline.gateway.expressions.tree import Unknown
from frostline.gateway.expressions.types import DUCKDB, FLOATS, INTEGERS, Type


@dataclass(frozen=True)
class Value:
    """`sql` never makes DuckDB fail, whatever the row; a constant also keeps its text."""

    sql: str
    type: Type
    constant: bool = False
    text: str | None = None  # of a constant; None: NULL

    @property
    def null(self) -> bool:
        return self.constant and self.text is None


def decimal(value: Value, to: Type) -> str:
    """As a DECIMAL wide enough for it."""
    if value.text is not None:
        return f"CAST('{value.text}' AS {to.duckdb})"
    if value.type == to:
        return value.sql
    return f"CAST({value.sql} AS {to.duckdb})"


def double(value: Value) -> str:
    """As a DOUBLE. A numeric's constant goes there from its text: through DECIMAL it could be rounded twice.

    A real's is rounded twice: '0.1'::real is 0.10000000149011612 next to a double precision.
    """
    if value.type.name == "float4":
        return f"CAST({value.sql} AS DOUBLE)"
    if value.constant:
        return f"CAST('{value.text}' AS DOUBLE)" if value.text is not None else "CAST(NULL AS DOUBLE)"
    if value.type.name not in (*INTEGERS, *FLOATS):
        raise Unknown(f"{value.type.name} as double precision")
    return value.sql if value.type.name == "float8" else f"CAST({value.sql} AS DOUBLE)"


def micros(value: Value) -> str:
    """A day or a moment as microseconds since 1970, in an integer that holds every day's."""
    if value.type.name == "date":
        return f"(CAST({value.sql} - DATE '1970-01-01' AS HUGEINT) * 86400000000)"
    return f"epoch_us({value.sql})"


def widened(value: Value, to: str) -> str:
    """As a wider integer."""
    return f"CAST({value.sql} AS {DUCKDB.get(to, to)})"


def retyped(value: Value, found: Type) -> Value:
    return replace(value, type=found)
