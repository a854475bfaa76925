"""The page about the allow-list is the list."""

from __future__ import annotations

from pathlib import Path

from frostline.gateway import aggregates, operators
from frostline.gateway.listing import page

PAGE = Path(__file__).parents[3] / "docs" / "operators.md"


def test_the_page_is_current() -> None:
    assert PAGE.read_text() == page(), "run make docs"


def test_every_entry_has_its_reason_and_every_reason_an_entry() -> None:
    assert {entry.why for entry in operators.ENTRIES.values()} == set(operators.WHY)
    assert {entry.why for entry in aggregates.AGGREGATES.values()} == set(aggregates.WHY)


def test_every_name_is_on_the_page() -> None:
    written = page().replace("\\|", "|")
    for name in {entry.name for entry in operators.ENTRIES.values() if not entry.name.startswith("::")}:
        assert f"`{name}`" in written
