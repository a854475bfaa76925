"""Words beside a table's files: whole, or those of before."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from pyiceberg.io.pyarrow import PyArrowFileIO

from frostline.lake import owner


@pytest.fixture
def place(tmp_path: Path) -> Path:
    (tmp_path / "metadata").mkdir()
    return tmp_path


def found(place: Path) -> str | None:
    return owner.word(PyArrowFileIO({}), place.as_uri())


def leave(place: Path, word: str) -> None:
    owner.leave_word(PyArrowFileIO({}), place.as_uri(), word)


def test_the_last_word_is_found(place: Path) -> None:
    assert found(place) is None
    for word in ("one", "two"):
        leave(place, word)
        assert found(place) == word
    assert [path.name for path in (place / "metadata").iterdir()] == ["frostline-turn"]


def test_who_cannot_write_a_word_leaves_the_one_of_before(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An empty one would be nobody's: the only database there is would be taken for a copy."""

    def full(_descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    leave(place, "one")
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(OSError, match="No space left"):
            leave(place, "two")
    assert found(place) == "one"
    assert [path.name for path in (place / "metadata").iterdir()] == ["frostline-turn"]


def test_nothing_is_no_word(place: Path) -> None:
    (place / "metadata" / "frostline-turn").touch()
    assert found(place) is None
