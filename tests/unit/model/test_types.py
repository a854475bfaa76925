"""The type map: what is kept natively, what as text, and what Iceberg cannot hold."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from frostline.model.types import NATIVE, TEXT_FORM, numeric_modifiers, storage


def typmod(precision: int, scale: int) -> int:
    """As Postgres packs numeric(p, s)."""
    return ((precision << 16) | (scale & 0x7FF)) + 4


@given(st.integers(1, 1000), st.integers(-1000, 1000))
def test_numeric_is_native_exactly_where_iceberg_has_that_decimal(precision: int, scale: int) -> None:
    fits = precision <= 38 and 0 <= scale <= precision
    found = storage("numeric", typmod(precision, scale))
    assert found.iceberg == (f"decimal({precision}, {scale})" if fits else "string")
    assert numeric_modifiers(typmod(precision, scale)) == ((precision, scale) if fits else None)


@pytest.mark.parametrize("name", ["numeric", "jsonb", "interval", "inet", "_int4", "time", "money", "no_such_type"])
def test_other_types_are_kept_as_exact_text(name: str) -> None:
    assert storage(name) is TEXT_FORM


def test_a_user_s_type_of_a_built_in_name_is_not_the_built_in_one() -> None:
    assert storage("int4", builtin=False) is TEXT_FORM


def test_values_without_a_form_in_iceberg_are_looked_for() -> None:
    looked_for = {name for name, kept in NATIVE.items() if kept.cannot_hold}
    assert looked_for == {"date", "timestamp", "timestamptz"}
    assert storage("numeric", typmod(10, 2)).cannot_hold == "{c} = 'NaN'"


def test_expressions_take_a_column_with_braces_in_its_name() -> None:
    for kept in (*NATIVE.values(), TEXT_FORM):
        for expression in (kept.copied, kept.export, kept.text):
            assert '"a{b}"' in expression.format(c='"a{b}"')
