"""avg() of integers and numerics with exactly the digits Postgres prints.

Postgres divides the sum by the count with a scale that depends on both (numeric.c, select_div_scale): sixteen
significant digits at least, reckoned in groups of four decimal digits, and never fewer than the sum has.
"""

from __future__ import annotations

DIGITS = 24  # of the argument: then every product below stays within HUGEINT for ten million million rows
_GROUP = 4
_SIGNIFICANT = 16


def average(total: str, count: str, scale: int) -> str:
    """Text of total / 10^scale / count; `total` is a HUGEINT, both are aggregates; NULL for no rows."""
    absolute = f"abs({total})"
    weight, first = _leading(absolute, scale)
    count_weight, count_first = _leading(f"CAST({count} AS HUGEINT)", 0)
    quotient_weight = f"({weight} - {count_weight} - CASE WHEN {first} <= {count_first} THEN 1 ELSE 0 END)"
    digits = f"greatest({_SIGNIFICANT} - {quotient_weight} * {_GROUP}, {scale}, 0)"
    scaled = f"({absolute} * CAST('1' || repeat('0', CAST({digits} - {scale} AS INTEGER)) AS HUGEINT))"
    rounded = f"((2 * {scaled} + {count}) // (2 * {count}))"  # halves away from zero
    bare = f"CAST({rounded} AS VARCHAR)"
    text = f"lpad({bare}, CAST(greatest({digits} + 1, length({bare})) AS INTEGER), '0')"
    pointed = (
        f"CASE WHEN {digits} = 0 THEN {text} "
        f"ELSE left({text}, length({text}) - {digits}) || '.' || right({text}, {digits}) END"
    )
    sign = f"CASE WHEN {total} < 0 AND {rounded} <> 0 THEN '-' ELSE '' END"
    return f"CASE WHEN {count} > 0 THEN {sign} || {pointed} END"


def _leading(absolute: str, scale: int) -> tuple[str, str]:
    """The weight and value of the first group of four digits of absolute / 10^scale; 0 and 0 for zero."""
    digits = f"CAST({absolute} AS VARCHAR)"
    # How many decimal digits stand before the point; zero or negative for fractions.
    whole = f"(length({digits}) - {scale})"
    weight = f"CAST(floor(({whole} - 1) / {_GROUP}.0) AS BIGINT)"
    taken = f"({whole} - {weight} * {_GROUP})"  # one to four digits are in the first group
    padded = f"rpad({digits}, CAST(greatest(length({digits}), {_GROUP}) AS INTEGER), '0')"
    first = f"CAST(left({padded}, CAST({taken} AS INTEGER)) AS BIGINT)"
    return f"(CASE WHEN {absolute} = 0 THEN 0 ELSE {weight} END)", f"(CASE WHEN {absolute} = 0 THEN 0 ELSE {first} END)"
