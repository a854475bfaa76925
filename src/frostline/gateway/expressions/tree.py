"""What an expression consists of, as Postgres would parse it. Nodes are values: equal text gives equal nodes."""

from __future__ import annotations

from dataclasses import dataclass


class Unknown(Exception):
    """DuckDB is not known to answer this exactly as Postgres; Postgres evaluates it."""


@dataclass(frozen=True)
class Node:
    """Any expression."""


@dataclass(frozen=True)
class Column(Node):
    name: str
    table: str | None = None


@dataclass(frozen=True)
class String(Node):
    """A quoted constant: of no type until something next to it gives it one."""

    text: str


@dataclass(frozen=True)
class Number(Node):
    text: str


@dataclass(frozen=True)
class Boolean(Node):
    value: bool


@dataclass(frozen=True)
class Null(Node):
    pass


@dataclass(frozen=True)
class Parameter(Node):
    number: int


@dataclass(frozen=True)
class TypeName:
    """A type as it is written after `::`; `name` is pg_type's where it is one of Postgres's own."""

    name: str
    modifiers: bool = False
    array: bool = False


@dataclass(frozen=True)
class Cast(Node):
    operand: Node
    to: TypeName


@dataclass(frozen=True)
class Operation(Node):
    """An operator with one or two operands, `and`, `or` and `not` among them."""

    name: str
    operands: tuple[Node, ...]


@dataclass(frozen=True)
class Quantified(Node):
    """`left operator ANY (right)` or ALL; IN is ANY of its items."""

    name: str
    left: Node
    right: Node
    every: bool = False


@dataclass(frozen=True)
class Items(Node):
    """ARRAY[...], or the list of an IN."""

    items: tuple[Node, ...]


@dataclass(frozen=True)
class Test(Node):
    """IS NULL, IS TRUE, IS FALSE: `value` is what is tested for."""

    operand: Node
    value: bool | None
    negated: bool = False


@dataclass(frozen=True)
class Case(Node):
    subject: Node | None
    branches: tuple[tuple[Node, Node], ...]
    default: Node | None


@dataclass(frozen=True)
class Call(Node):
    name: str
    arguments: tuple[Node, ...]
    star: bool = False
    distinct: bool = False
    where: Node | None = None
