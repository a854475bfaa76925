"""The one map of types: how each Postgres type is kept in Iceberg, exported, read back and written as wire text.

Postgres re-parses the text the gateway sends, so any type round-trips exactly as text. A type is kept natively
only where Iceberg, Spark and DuckDB all hold every finite value of it exactly.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

MAX_DECIMAL_PRECISION = 38  # Iceberg's limit
_FIRST_DAY = -719_162  # 0001-01-01, counted from 1970-01-01 as Iceberg does
YEAR_ONE = {"date": _FIRST_DAY, **dict.fromkeys(("timestamp", "timestamptz"), _FIRST_DAY * 86_400_000_000)}


@dataclass(frozen=True)
class Storage:
    """How values of one Postgres type travel. `{c}` stands for the quoted column in each expression."""

    family: str
    iceberg: str
    wire: str = "text"  # how a binary COPY of `copied` writes a value; lake/decode.py reads it
    copied: str = "{c}"  # Postgres SQL of what an export copies
    export: str = "{c}"  # Postgres SQL of what the gateway reads from the delta, as text
    text: str = "CAST({c} AS VARCHAR)"  # DuckDB SQL giving text that Postgres's input function takes
    recent: str | None = None  # the same, simpler, where no value is before the year 1
    load: str = "{c}"  # DuckDB SQL that turns the exported value, written as text, into the lake's type
    cannot_hold: str | None = None  # Postgres SQL, true for values Iceberg has no form for

    @property
    def copied_anywhere(self) -> str:
        """What an export copies, for a database without a registry."""
        return _OUTPUT_INLINE if self.copied == _OUTPUT else self.copied

    @property
    def native(self) -> bool:
        return self.family != "text form"


# BC years: DuckDB writes "0044-03-15 (BC) 12:00:00", Postgres wants the era last.
_DAY_TEXT = "CASE WHEN {c} >= DATE '0001-01-01' THEN {v} ELSE replace({v}, ' (BC)', '') || ' BC' END"
_MICROS = "(extract(epoch FROM {c}) * 1000000)::bigint"
_INFINITE = "NOT isfinite({c})"
# Microseconds since 1970 end here in 64 bits; Postgres counts from 2000 and goes on until 294276.
_TOO_LATE = f"({_INFINITE} OR {{c}} >= '294247-01-01')"

_OUTPUT = "frostline.output({c})"
# The same where there is no registry, and so no function of ours.
_OUTPUT_INLINE = "CASE WHEN {c} IS DISTINCT FROM NULL THEN pg_catalog.format('%s', {c}) END"
TEXT_FORM = Storage("text form", "string", copied=_OUTPUT, export=_OUTPUT, text="{c}")
_DECIMAL = Storage("numeric", "decimal", copied="{c}::text", cannot_hold="{c} = 'NaN'")

# Names of things may change their meaning: what is kept is which thing it is, and input takes its number as well.
_REFERENCE = Storage("reference", "long", wire="oid", export="{c}::oid::bigint", load="CAST({c} AS BIGINT)")
REFERENCES = (
    *("regclass", "regcollation", "regconfig", "regdictionary", "regnamespace", "regoper", "regoperator", "regproc"),
    *("regprocedure", "regrole", "regtype"),
)

# Keyed by pg_type.typname in pg_catalog.
NATIVE: dict[str, Storage] = {
    "bool": Storage("boolean", "boolean", wire="bool", load="CAST({c} AS BOOLEAN)"),
    "int2": Storage("integer", "int", wire="int2", export="{c}::int", load="CAST({c} AS INTEGER)"),
    "int4": Storage("integer", "int", wire="int4", load="CAST({c} AS INTEGER)"),
    "int8": Storage("integer", "long", wire="int8", load="CAST({c} AS BIGINT)"),
    "oid": Storage("integer", "long", wire="oid", export="{c}::bigint", load="CAST({c} AS BIGINT)"),
    "float4": Storage("float", "float", wire="float4", load="CAST({c} AS FLOAT)"),
    "float8": Storage("float", "double", wire="float8", load="CAST({c} AS DOUBLE)"),
    "date": Storage(
        "date",
        "date",
        wire="date",
        export="({c} - date '1970-01-01')",
        load="DATE '1970-01-01' + CAST({c} AS INTEGER)",
        text=_DAY_TEXT.replace("{v}", "CAST({c} AS VARCHAR)"),
        recent="CAST({c} AS VARCHAR)",
        cannot_hold=_INFINITE,
    ),
    "timestamp": Storage(
        "timestamp",
        "timestamp",
        wire="timestamp",
        export=_MICROS,
        load="make_timestamp(CAST({c} AS BIGINT))",
        text=_DAY_TEXT.replace("{v}", "CAST({c} AS VARCHAR)"),
        recent="CAST({c} AS VARCHAR)",
        cannot_hold=_TOO_LATE,
    ),
    "timestamptz": Storage(
        "timestamp",
        "timestamptz",
        wire="timestamp",
        export=_MICROS,
        load="make_timestamptz(CAST({c} AS BIGINT))",
        # By way of the microseconds: a cast to TIMESTAMP goes through a double and is wrong after the year 287396.
        text="CASE WHEN {c} >= TIMESTAMPTZ '0001-01-01 00:00:00+00' "
        "THEN CAST(make_timestamp(epoch_us({c})) AS VARCHAR) || '+00' "
        "ELSE replace(CAST(make_timestamp(epoch_us({c})) AS VARCHAR), ' (BC)', '') || '+00 BC' END",
        recent="CAST(make_timestamp(epoch_us({c})) AS VARCHAR) || '+00'",
        cannot_hold=_TOO_LATE,
    ),
    "uuid": Storage("uuid", "uuid", wire="uuid", export="{c}::text", load="CAST({c} AS UUID)"),
    "bytea": Storage("bytea", "binary", wire="bytes", text="'\\x' || lower(hex({c}))", load="unhex(substr({c}, 3))"),
    "text": Storage("text", "string", text="{c}"),
    "varchar": Storage("text", "string", text="{c}"),
    "name": Storage("text", "string", export="{c}::text", text="{c}"),
    # Blanks are dropped; bpcharin pads again.
    "bpchar": Storage("char(n)", "string", copied="{c}::text", export="{c}::text", text="{c}"),
    **dict.fromkeys(REFERENCES, _REFERENCE),
}

# The other built-in types a column can have, each kept as text.
AS_TEXT = (
    *("bit", "box", "char", "cid", "cidr", "circle", "datemultirange", "daterange", "inet", "int2vector"),
    *("int4multirange", "int4range", "int8multirange", "int8range", "interval", "json", "jsonb", "jsonpath", "line"),
    *("lseg", "macaddr", "macaddr8", "nummultirange", "numrange", "oidvector", "path", "pg_lsn", "pg_snapshot"),
    *("point", "polygon", "refcursor", "tid", "time", "timetz", "tsmultirange", "tsquery", "tsrange"),
    *("tstzmultirange", "tstzrange", "tsvector", "txid_snapshot", "varbit", "xid", "xid8", "xml"),
)

# Of a type's values in text form, those that are not to be kept.
_HIGH_BYTE = replace(TEXT_FORM, cannot_hold="{c}::int < 0")  # before 16 it prints half a character

_NO_INPUT = "Postgres itself cannot read it back from its text"
# Built-in types a column can have and we do not keep, and why; a table that has one is refused.
REFUSED: dict[str, str] = {
    "money": "its text means another amount to a session with another lc_monetary; numeric does not",
    "aclitem": "it is kept by the names of roles, which may come to mean others",
    **dict.fromkeys(
        (
            *("gtsvector", "pg_brin_bloom_summary", "pg_brin_minmax_multi_summary", "pg_dependencies", "pg_mcv_list"),
            *("pg_ndistinct", "pg_node_tree"),
        ),
        _NO_INPUT,
    ),
}


def refused(typname: str, *, inside: bool) -> str | None:
    """Why a built-in type cannot be kept, in a column of its own or inside an array, composite or range."""
    if inside and typname in REFERENCES:
        return "inside another type it is kept by name, which may come to mean another thing"
    return REFUSED.get(typname)


def storage(typname: str, typmod: int = -1, *, builtin: bool = True) -> Storage:
    """How a column of this type (a domain: of its base type) is kept."""
    # bpchar without a length keeps its blanks; a cast to text would drop them.
    if not builtin or (typname == "bpchar" and typmod < 0):
        return TEXT_FORM
    if typname == "numeric":
        decimal = numeric_modifiers(typmod)
        if decimal is None:
            return TEXT_FORM
        kept = f"decimal({decimal[0]}, {decimal[1]})"
        return replace(_DECIMAL, iceberg=kept, load=f"CAST({{c}} AS {kept})")
    if typname == "char":
        return _HIGH_BYTE
    return NATIVE.get(typname, TEXT_FORM)


_TEXTS = ("text", "varchar")
_WIDER = {("int2", "int4"), ("int2", "int8"), ("int4", "int8"), ("float4", "float8")}


def promotes(old: tuple[str, int], new: tuple[str, int]) -> bool:
    """Whether every value of a built-in type, (typname, typmod), is the same value of another, in the lake too.

    What Iceberg can promote, and what changes nothing there.
    """
    (before, size), (after, limit) = old, new
    if (before, after) in _WIDER:
        return True
    if before == after == "numeric":
        return _numeric_promotes(size, limit)
    if before in _TEXTS and after in _TEXTS:
        return limit < 0 or (before == "varchar" and 0 <= size <= limit)
    if before == "bpchar" and size >= 0:  # blanks at its end mean nothing to it, and are not kept
        return (after in _TEXTS and limit < 0) or (after in ("varchar", "bpchar") and size <= limit)
    return before == after and before in ("timestamp", "timestamptz") and (limit < 0 or 0 <= size <= limit)


def _numeric_promotes(size: int, limit: int) -> bool:
    kept, wanted = numeric_modifiers(size), numeric_modifiers(limit)
    return kept is not None and wanted is not None and kept[1] == wanted[1] and kept[0] <= wanted[0]


# Of each family the widest: a column of the delta holds the values of all that a column can be promoted to.
_WIDEST = {
    **dict.fromkeys(("smallint", "integer"), "bigint"),
    "real": "double precision",
    "numeric": "numeric",
    "character varying": "text",
    "character": "text",  # without the blanks at its end
}
_WITH_LENGTH = re.compile(r"(numeric|character varying|character|timestamp)\([\d,-]+\)( with(?:out)? time zone)?")


def delta_type(base_type: str) -> str:
    """The type a column has in the delta: changing it would rewrite the delta under its readers."""
    length = _WITH_LENGTH.fullmatch(base_type)
    plain = f"{length[1]}{length[2] or ''}" if length else base_type
    return _WIDEST.get(plain, plain)


def numeric_modifiers(typmod: int) -> tuple[int, int] | None:
    """Precision and scale of numeric(p, s), or None where Iceberg has no equal decimal."""
    if typmod < 0:
        return None
    precision = ((typmod - 4) >> 16) & 0xFFFF
    scale = (((typmod - 4) & 0x7FF) ^ 1024) - 1024  # eleven bits, signed since Postgres 15
    if precision > MAX_DECIMAL_PRECISION or not 0 <= scale <= precision:
        return None
    return precision, scale
