"""Where a plain table's rows lie in time: from what ANALYZE knows, else from a few of its pages."""

from __future__ import annotations

from itertools import pairwise

from psycopg.sql import SQL, Identifier

from frostline.catalog import queries
from frostline.catalog.database import Connection
from frostline.model.ages import Span
from frostline.model.bounds import parse_bound
from frostline.tiering.assess.sizes import Sizes, sampled_percent


def of_column(connection: Connection, oid: int, name: tuple[str, str], column: str, sizes: Sizes) -> list[Span]:
    """Spans that together hold every row whose column is not NULL."""
    found = queries.row(connection, "key_statistics", oid=oid, column=column)
    shares = _known(*found) if found is not None else []
    return [
        Span(lower, upper, sizes.rows * share, sizes.total * share)
        for lower, upper, share in shares or _sampled(connection, name, column, sizes)
    ]


def _known(
    nulls: float, common: list[str] | None, frequencies: list[float] | None, bounds: list[str] | None
) -> list[tuple[int, int, float]]:
    """Common values, and between two bounds of the histogram as many rows as between any other two."""
    shares = [(_order(value), share) for value, share in zip(common or [], frequencies or [], strict=True)]
    spans = [(order, order + 1, share) for order, share in shares]
    rest = max(1 - nulls - sum(share for _, share in shares), 0)
    pairs = list(pairwise(_order(value) for value in bounds or []))
    return spans + [(lower, max(upper, lower + 1), rest / len(pairs)) for lower, upper in pairs]


def _sampled(connection: Connection, name: tuple[str, str], column: str, sizes: Sizes) -> list[tuple[int, int, float]]:
    """Random pages: their rows stand for all others."""
    query = SQL("SELECT {}::text FROM ONLY {} TABLESAMPLE SYSTEM ({})").format(
        Identifier(column), Identifier(*name), sampled_percent(sizes)
    )
    values = [value for (value,) in connection.execute(query)]
    orders = [_order(value) for value in values if value is not None]
    return [(order, order + 1, 1 / len(values)) for order in orders]


def _order(text: str) -> int:
    found = parse_bound(text)
    assert found is not None
    return found.order
