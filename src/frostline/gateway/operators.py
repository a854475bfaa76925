"""The allow-list, as data: which comparisons DuckDB answers exactly as Postgres, for which kinds of column.

postgres_fdw does not check again what it has shipped, so whatever is not listed here is evaluated by Postgres.
"""

from __future__ import annotations

from sqlglot import exp

from frostline.catalog.cold import ColdColumn

# Kinds of column, by the Postgres type they come from.
KINDS = {
    "int2": "integer",
    "int4": "integer",
    "int8": "integer",
    "date": "date",
    "timestamp": "timestamp",
    "timestamptz": "timestamptz",
    "bool": "boolean",
    "uuid": "uuid",
    "numeric": "numeric",
    "text": "text",
    "varchar": "text",
}
BYTE_ORDERED_TEXT = "text in byte order"

_EQUAL = frozenset({*KINDS.values(), BYTE_ORDERED_TEXT})
_ORDERED = _EQUAL - {"text", "uuid"}

# Operator of the parsed tree: how it is emitted, and the kinds of column it is exact for.
COMPARISONS: dict[type[exp.Expression], tuple[str, frozenset[str]]] = {
    exp.EQ: ("=", _EQUAL),
    exp.NEQ: ("<>", _EQUAL),
    exp.LT: ("<", _ORDERED),
    exp.LTE: ("<=", _ORDERED),
    exp.GT: (">", _ORDERED),
    exp.GTE: (">=", _ORDERED),
}
MIRRORED = {"=": "=", "<>": "<>", "<": ">", "<=": ">=", ">": "<", ">=": "<="}

# Kinds whose order is the same in both engines, NULLs placed explicitly.
SORTABLE = frozenset({"integer", "date", "timestamp", "timestamptz"})

# The types a constant may be labelled with, next to a column of the kind; None: no label.
LABELS: dict[str, frozenset[exp.DType | None]] = {
    "integer": frozenset({None, exp.DType.SMALLINT, exp.DType.INT, exp.DType.BIGINT}),
    "date": frozenset({None, exp.DType.DATE}),
    "timestamp": frozenset({None, exp.DType.TIMESTAMP}),
    "timestamptz": frozenset({None, exp.DType.TIMESTAMPTZ}),
    "boolean": frozenset({None, exp.DType.BOOLEAN}),
    "uuid": frozenset({None, exp.DType.UUID}),
    "numeric": frozenset({None, exp.DType.DECIMAL}),
    "text": frozenset({None, exp.DType.TEXT, exp.DType.VARCHAR}),
    BYTE_ORDERED_TEXT: frozenset({None, exp.DType.TEXT, exp.DType.VARCHAR}),
}


def kind_of(column: ColdColumn) -> str | None:
    """A column's kind, or None where nothing about it is known to be exact."""
    kind = KINDS.get(column.typname)
    if kind is None or not column.storage.native or not column.deterministic:
        return None
    return BYTE_ORDERED_TEXT if kind == "text" and column.byte_ordered else kind
