"""avg() of integers and numerics with exactly the digits Postgres prints.

Postgres divides the sum by the count with a scale that depends on both (numeric.c, select_div_scale): sixteen
significant digits at least, reckoned in groups of four decimal digits, and never fewer than the sum has.

DuckDB sums and counts; the division is done here, row by row. In SQL it took a page, and DuckDB forty milliseconds to
read it.
"""

from __future__ import annotations

DIGITS = 28  # of the argument: DuckDB's sum of ten thousand million such values still fits
_GROUP = 4
_SIGNIFICANT = 16


def dividend(total: str, count: str) -> str:
    """DuckDB SQL for what `quotient` takes: the sum's digits without a point, and the count; NULL for no rows."""
    return f"(replace(CAST({total} AS VARCHAR), '.', '') || '/' || CAST({count} AS VARCHAR))"


def quotient(text: str, scale: int) -> str:
    """The average, of a sum whose last `scale` digits stand behind the point."""
    total, _, counted = text.partition("/")
    absolute = total.lstrip("-0")
    weight, first = _leading(absolute, scale)
    count_weight, count_first = _leading(counted, 0)
    places = max(_SIGNIFICANT - (weight - count_weight - (first <= count_first)) * _GROUP, scale, 0)
    scaled, count = int(absolute or "0") * 10 ** (places - scale), int(counted)
    rounded = (2 * scaled + count) // (2 * count)  # halves away from zero
    digits = str(rounded).rjust(places + 1, "0")
    sign = "-" if total[0] == "-" and rounded else ""
    return f"{sign}{digits[:-places]}.{digits[-places:]}" if places else f"{sign}{digits}"


def _leading(digits: str, scale: int) -> tuple[int, int]:
    """The weight and value of the first group of four digits of a number / 10^scale; 0 and 0 for zero, without any."""
    if not digits:
        return 0, 0
    whole = len(digits) - scale  # digits before the point; zero or negative for fractions
    weight = (whole - 1) // _GROUP
    return weight, int(digits.ljust(_GROUP, "0")[: whole - weight * _GROUP])  # one to four digits
