"""Names derived from the user's: never too long, never twice, never a surprise for an engine."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from frostline.model.tables import ascii_slug, derived_name, lake_names, slug

names = st.text(min_size=1, max_size=70).filter(lambda text: "\0" not in text)


@given(names, st.sets(names))
def test_a_derived_name_fits_and_is_free(base: str, taken: set[str]) -> None:
    first = derived_name(base, "_hot", taken)
    second = derived_name(base, "_hot", taken | {first})
    assert first not in taken
    assert second not in taken | {first}
    for name in (first, second):
        assert len(name.encode()) <= 63
        assert "_hot" in name


@given(st.lists(names, unique=True, max_size=20))
def test_lake_columns_are_unique_whatever_the_case(columns: list[str]) -> None:
    found = lake_names(dict(enumerate(columns)))
    assert list(found) == list(range(len(columns)))
    assert len({name.casefold() for name in found.values()}) == len(columns)
    assert all(name.replace("_", "a").isalnum() for name in found.values())


def test_plain_names_stay_as_they_are() -> None:
    assert lake_names({1: "id", 2: "taken_at", 3: "Größe"}) == {1: "id", 2: "taken_at", 3: "Größe"}
    assert lake_names({1: "a b", 2: "a.b", 3: "A_B"}) == {1: "a_b", 2: "a_b_2", 3: "A_B_3"}


@given(names)
def test_a_directory_s_name_is_plain_ascii(name: str) -> None:
    found = ascii_slug(name)
    assert found
    assert found.isascii()
    assert slug(found) == found
