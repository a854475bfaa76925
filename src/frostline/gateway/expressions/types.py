"""Postgres types as far as expressions go, and what DuckDB holds their values in."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace

from frostline.catalog.cold import ColdColumn
from frostline.gateway.expressions.tree import Unknown

DECIMAL_DIGITS = 38  # DuckDB's widest DECIMAL
INTEGERS = ("int2", "int4", "int8")  # from narrow to wide
FLOATS = ("float4", "float8")
COLLATED = ("text", "bpchar")
BYTE_ORDERED_TEXT = "text in byte order"
BYTE_ORDERED_CHAR = "char(n) in byte order"

LIMITS = {name: (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) for name, bits in (("int2", 16), ("int4", 32), ("int8", 64))}
DUCKDB = {
    **{"int2": "SMALLINT", "int4": "INTEGER", "int8": "BIGINT", "float4": "FLOAT", "float8": "DOUBLE"},
    **{"bool": "BOOLEAN", "bytea": "BLOB", "text": "VARCHAR", "bpchar": "VARCHAR", "enum": "VARCHAR", "uuid": "UUID"},
    **{"date": "DATE", "timestamp": "TIMESTAMP", "timestamptz": "TIMESTAMPTZ"},
    "interval": "BIGINT",  # microseconds
}
OIDS = {
    **{"bool": 16, "bytea": 17, "int8": 20, "int2": 21, "int4": 23, "text": 25, "float4": 700, "float8": 701},
    **{"bpchar": 1042, "date": 1082, "timestamp": 1114, "timestamptz": 1184, "numeric": 1700, "uuid": 2950},
}
_DIGITS = {"int2": 5, "int4": 10, "int8": 19}


@dataclass(frozen=True)
class Collation:
    """A column's: two different ones never meet in one expression."""

    name: tuple[str, str]
    byte_ordered: bool


@dataclass(frozen=True)
class Type:
    """`name` is pg_type's; numerics carry DuckDB's precision and scale, text its collation, enums their OID."""

    name: str
    precision: int = 0
    scale: int = 0
    collation: Collation | None = None
    oid: int = 0
    # Text that is, or may be, a varchar: next to char(n) Postgres compares it without its trailing blanks, too.
    varchar: bool = field(default=False, compare=False)

    @property
    def key(self) -> str:
        """The name the allow-list has for it: byte order is a property the list asks for."""
        if self.collation is not None and self.collation.byte_ordered:
            return {"text": BYTE_ORDERED_TEXT, "bpchar": BYTE_ORDERED_CHAR}.get(self.name, self.name)
        return self.name

    @property
    def duckdb(self) -> str:
        if self.name == "numeric":
            return f"DECIMAL({self.precision}, {self.scale})"
        if self.name not in DUCKDB:
            raise Unknown(f"type {self.name}")
        return DUCKDB[self.name]


UNTYPED = Type("unknown")
BOOLEAN = Type("bool")
INT8 = Type("int8")
FLOAT8 = Type("float8")
TEXT = Type("text")


def numeric(precision: int, scale: int) -> Type:
    """A numeric that DuckDB holds exactly, or Unknown."""
    if precision > DECIMAL_DIGITS:
        raise Unknown(f"a numeric of {precision} digits")
    return Type("numeric", precision, scale)


def of_column(column: ColdColumn) -> Type:
    """A column's type, or Unknown where nothing about it is known to be exact."""
    if column.enum and not column.domain:  # for a domain of labels Postgres has no = at all
        return Type("enum", oid=column.oid)
    name = "text" if column.typname == "varchar" else column.typname
    if not column.storage.native or not column.deterministic or name not in OIDS:
        raise Unknown(f"a column of type {column.type}")
    if name == "numeric":
        precision, scale = (int(part) for part in re.findall(r"\d+", column.storage.iceberg))
        return numeric(precision, scale)
    if column.collation is not None:
        collation = Collation(column.collation, column.byte_ordered)
        return Type(name, collation=collation, varchar=column.typname == "varchar")
    return Type(name)


def as_numeric(found: Type) -> Type:
    """The numeric an integer becomes next to one."""
    if found.name == "numeric":
        return found
    if found.name not in INTEGERS:
        raise Unknown(f"{found.name} as numeric")
    return numeric(_DIGITS[found.name], 0)


def common_numeric(left: Type, right: Type) -> Type:
    """A numeric that holds every value of both."""
    left, right = as_numeric(left), as_numeric(right)
    scale = max(left.scale, right.scale)
    return numeric(max(left.precision - left.scale, right.precision - right.scale) + scale, scale)


def wider(left: str, right: str) -> str:
    """The integer type that two meet in."""
    return max(left, right, key=INTEGERS.index)


def same_collation(left: Type, right: Type) -> tuple[Type, Type]:
    """Both with the collation that decides; constants have none of their own."""
    if left.name not in COLLATED or right.name not in COLLATED:
        return left, right
    found = {part.collation for part in (left, right) if part.collation is not None}
    if len(found) > 1:
        raise Unknown("two collations")
    collation = next(iter(found), None)
    return replace(left, collation=collation), replace(right, collation=collation)
