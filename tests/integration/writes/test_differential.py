"""A plain table given the same statements ends with the same rows and has returned the same results."""

from __future__ import annotations

import pytest

from integration.writes.pair import Pair
from integration.writes.scripts import OLD_AND_NEW, SCRIPTS, SINGLE


def test_one_statement(pair: Pair) -> None:
    for statement in SINGLE:
        pair.same([statement], fresh=False)


def test_statements_that_are_sent_whole(direct: Pair) -> None:
    """A table with a generated column has none of them."""
    plan = direct.world.run("EXPLAIN UPDATE direct SET i = 0 WHERE id = 5")
    assert any("Foreign Update on direct_2026_01" in line for (line,) in plan)
    for statement in SINGLE:
        if statement.startswith(("UPDATE", "DELETE", "WITH")):
            direct.same([statement], fresh=False)


def test_rows_as_they_were_and_as_they_are(pair: Pair, direct: Pair) -> None:
    if pair.world.run("SELECT current_setting('server_version_num')::int >= 180000") == [(False,)]:
        pytest.skip("since Postgres 18")
    for statement in OLD_AND_NEW:
        for one in (pair, direct):
            (tag, _), _ = one.same([statement], fresh=False)
            assert tag.startswith(("UPDATE", "DELETE", "INSERT", "SELECT")), statement


def test_transactions_of_statements_that_are_sent_whole(direct: Pair) -> None:
    for script in SCRIPTS:
        direct.same(script)


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script[0][:40])
def test_a_transaction(pair: Pair, script: list[str]) -> None:
    pair.same(script)


_INSIDE = (
    "INSERT INTO public.{t} (id, ts, i) VALUES (9100, ''2026-01-05Z'', 1)",
    "UPDATE public.{t} SET i = 77 WHERE id IN (5, 206)",
    "UPDATE public.{t} SET i = 77 WHERE id = 450 AND ts >= ''2026-11-01Z''",
)
_OUTSIDE = (
    "UPDATE public.{t} SET i = 500 WHERE id >= 9000 + (SELECT public.runs('{}')) AND ts < '2026-03-01Z'",
    "DELETE FROM public.{t} WHERE i = 77 + (SELECT public.runs('{}')) AND ts < '2026-03-01Z'",
    "UPDATE public.{t} SET i = i + CASE id WHEN 12 THEN public.runs('UPDATE public.{t} SET i = i + 99 WHERE id = 11')"
    " ELSE 0 END WHERE id IN (11, 12) AND i >= (SELECT public.runs('{}'))",
)


def test_the_first_that_comes_to_old_rows_is_called_by_another_that_will(pair: Pair, direct: Pair) -> None:
    """That one does not see what has been changed since it began, though the gateway had heard of neither by then."""
    runs = "CREATE FUNCTION public.runs(text) RETURNS int LANGUAGE plpgsql AS 'BEGIN EXECUTE $1; RETURN 0; END'"
    for one in (pair, direct):
        for outside in _OUTSIDE:
            for inside in _INSIDE:
                statement = outside.replace("{}", inside)
                for script in ([statement], [f"SELECT public.runs($_${statement}$_$)"]):
                    one.same([runs, *script])
