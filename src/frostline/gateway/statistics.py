"""The questions ANALYZE asks before it samples: how large the table is."""

from __future__ import annotations

from collections.abc import Sequence

from frostline.errors import QueryError
from frostline.gateway import lexer
from frostline.gateway.lexer import Token
from frostline.gateway.names import Source, references
from frostline.gateway.rows import FixedRows, Rows
from frostline.gateway.view import View
from frostline.gateway.wire.messages import Field

BLOCK = 8192
_PAGES = [Field("?column?", 20)]
_TUPLES = [Field("reltuples", 700), Field("relkind", 18)]
_SIZE = "SELECT rows, bytes FROM frostline.periods WHERE table_id = %s AND upper = %s"


def asked_about(tokens: Sequence[Token]) -> Source | None:
    """The source named inside the quotes of a `'...'::pg_catalog.regclass`, in a statement that names none itself."""
    strings = [token for token in tokens if token.kind == "string"]
    words = {token.text for token in tokens if token.kind == "word"}
    if len(strings) != 1 or "regclass" not in words or not words & {"pg_relation_size", "reltuples"}:
        return None
    inner = strings[0].text[1:-1].replace("''", "'")
    found = references(lexer.tokens(inner))
    return found[0].source if len(found) == 1 else None


def answer(view: View, tokens: Sequence[Token], source: Source) -> Rows:
    """From the registry: the lake is not read."""
    if source.range.upper is None:
        raise QueryError("a cold range has an upper bound", sqlstate="42P01")
    with view.backing.running():
        found = view.backing.connection.execute(_SIZE, [source.table, source.range.upper.text]).fetchone()
    rows, size = found or (0, 0)
    if any(token.word("pg_relation_size") for token in tokens):
        return FixedRows(_PAGES, [[str(-(-size // BLOCK))]])
    return FixedRows(_TUPLES, [[str(float(rows)), "r"]])
