"""The page about types is the map of types."""

from __future__ import annotations

from pathlib import Path

from frostline.model import types
from frostline.model.listing import page

PAGE = Path(__file__).parents[3] / "docs" / "types.md"


def test_the_page_is_current() -> None:
    assert PAGE.read_text() == page(), "run make docs"


def test_every_type_that_can_stop_a_partition_is_on_it() -> None:
    written = page()
    names = {name: name for name in types.NATIVE} | {"char": '"char"'}
    for name, shown in names.items():
        if types.storage(name).cannot_hold:
            assert f"- `{shown}`: " in written
    assert types.storage("numeric", ((10 << 16) | 2) + 4).cannot_hold
    assert "- `numeric(p, s)`: NaN" in written
    for name in (*types.NATIVE, *types.REFUSED):
        assert f"`{name}`" in written
