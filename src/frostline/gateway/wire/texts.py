"""Parameters as they came: turned into text one by one, or not at all."""

from __future__ import annotations

from collections.abc import Sequence
from typing import overload

from frostline.errors import QueryError


class Texts(Sequence[str | None]):
    """Values of a message; whoever sends them on takes `raw`."""

    def __init__(self, raw: Sequence[bytes | None]) -> None:
        self.raw = raw

    def __len__(self) -> int:
        return len(self.raw)

    @overload
    def __getitem__(self, at: int) -> str | None: ...

    @overload
    def __getitem__(self, at: slice) -> Sequence[str | None]: ...

    def __getitem__(self, at: int | slice) -> str | Sequence[str | None] | None:
        if isinstance(at, slice):
            return [_text(value) for value in self.raw[at]]
        return _text(self.raw[at])


def _text(value: bytes | None) -> str | None:
    try:
        return None if value is None else value.decode()
    except UnicodeDecodeError:
        raise QueryError("a parameter is not UTF-8", sqlstate="22021") from None
