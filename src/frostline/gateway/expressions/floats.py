"""Comparisons of floats that file statistics can not falsify: minima and maxima in Parquet and Iceberg leave NaN out.

DuckDB itself compares NaN as Postgres does. But it drops a file whose maximum is 2 when asked for `x > 100`, NaN or
not, and turns `NOT (x <= 100)` into that; so NaN is asked for by itself in every comparison.
"""

from __future__ import annotations

_WITH_NAN = {"<": False, "<=": False, "=": False, "<>": True, ">": True, ">=": True}
_TO_NAN = {
    "=": "isnan({x})",
    ">=": "isnan({x})",
    "<>": "(NOT isnan({x}))",
    "<": "(NOT isnan({x}))",
    "<=": "(isnan({x}) OR NOT isnan({x}))",  # true, but NULL for NULL
    ">": "(isnan({x}) AND NOT isnan({x}))",
}


def to_constant(name: str, x: str, constant: str, *, nan: bool) -> str:
    """A float against a constant that is not NULL."""
    if nan:
        return _TO_NAN[name].format(x=x)
    if _WITH_NAN[name]:
        return f"(isnan({x}) OR {x} {name} {constant})"
    return f"((NOT isnan({x})) AND {x} {name} {constant})"


def to_float(name: str, x: str, y: str) -> str:
    """One float against another: with a NaN among them, NaN is to NaN as true to true."""
    return f"(CASE WHEN isnan({x}) OR isnan({y}) THEN isnan({x}) {name} isnan({y}) ELSE {x} {name} {y} END)"
