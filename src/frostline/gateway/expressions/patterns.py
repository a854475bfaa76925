"""LIKE patterns: Postgres's escapes resolved, so that DuckDB sees only wildcards and letters."""

from __future__ import annotations

from frostline.gateway.expressions.tree import Unknown
from frostline.lake.duck import quote

ANY, ONE = "%", "_"


def like(operand: str, pattern: str) -> str:
    """`operand LIKE pattern` as Postgres means it, where backslash is the escape."""
    pieces = _pieces(pattern)
    if all(literal for _, literal in pieces):
        return f"({operand} = {quote(''.join(text for text, _ in pieces))})"
    if not any(literal and text in (ANY, ONE) for text, literal in pieces):
        return f"({operand} LIKE {quote(''.join(text for text, _ in pieces))})"
    escaped = "".join("\\" + text if literal and text in (ANY, ONE, "\\") else text for text, literal in pieces)
    return f"({operand} LIKE {quote(escaped)} ESCAPE '\\')"


def _pieces(pattern: str) -> list[tuple[str, bool]]:
    """Each character and whether it stands for itself."""
    found, letters = [], iter(pattern)
    for letter in letters:
        if letter != "\\":
            found.append((letter, letter not in (ANY, ONE)))
            continue
        escaped = next(letters, None)
        if escaped is None:
            # An error in Postgres, but only for texts that get that far.
            raise Unknown("a pattern that ends with its escape")
        found.append((escaped, True))
    return found
