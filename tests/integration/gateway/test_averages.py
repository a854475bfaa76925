"""Sums divided by counts as Postgres divides them."""

from __future__ import annotations

import random
from typing import Any

import psycopg

from frostline.gateway.expressions.average import quotient


def test_quotients_have_postgres_s_digits(connection: psycopg.Connection[Any]) -> None:
    chance = random.Random(11)
    cases = []
    for _ in range(4000):
        scale = chance.choice((0, 0, 1, 2, 3, 4, 5, 8, 11))
        total = chance.randint(-(10 ** chance.randint(0, 37)), 10 ** chance.randint(0, 37))
        count = chance.choice((1, 2, 3, 7, 9999, 10_000, 10_001, chance.randint(1, 10 ** chance.randint(1, 12))))
        cases.append((total, count, scale))
    cases += [
        (total, count, scale) for total in (0, 1, -1, 9999, 10_000) for count in (1, 3, 10_000) for scale in (0, 4)
    ]
    texts = [f"{total}e-{scale}" for total, _, scale in cases]
    asked = "SELECT (round(t::numeric, s) / c)::text FROM unnest(%s::text[], %s::int[], %s::bigint[]) AS v (t, s, c)"
    rows = connection.execute(asked, [texts, [case[2] for case in cases], [case[1] for case in cases]]).fetchall()
    assert [quotient(f"{total}/{count}", scale) for total, count, scale in cases] == [text for (text,) in rows]
