"""An UPDATE or DELETE that comes again with other constants is taken apart once, and is still the one that came."""

from __future__ import annotations

import pytest

from frostline.catalog.cold import ColdColumn, ColdTable
from frostline.gateway import lexer, pruning, writes
from frostline.model.types import storage

TARGET = '"table 7"."from 2026-01-01 to 2026-02-01"'


def _column(number: int, name: str, typname: str) -> ColdColumn:
    kept = storage(typname, -1, builtin=True)
    return ColdColumn(
        number, name, typname, typname, 0, -1, typname, False, False, kept, number, name, None, True, True
    )  # fmt: skip


ID, TS, CODE, PRICE = (
    _column(1, "id", "int8"),
    _column(2, "ts", "timestamptz"),
    _column(3, "c 1", "text"),
    _column(4, "price", "numeric"),
)
TABLE = ColdTable(
    id=7,
    schema="public",
    name="events",
    seam=None,
    snapshot_id=1,
    metadata_location="m",
    delta=("frostline_delta", "events_7"),
    key=TS,
    primary_key=(ID, TS),
    columns={column.name: column for column in (ID, TS, CODE, PRICE)},
)

AGAIN = [
    f"UPDATE {TARGET} SET value = value WHERE ((id = 12345)) AND ((ts = '2026-01-05 10:00:00.5+00'::timestamptz))",
    f"UPDATE {TARGET} SET \"c 1\" = 'it''s 5'::text, price = 1.50 WHERE ((id = (-5)))",
    f"UPDATE {TARGET} SET price = (price + 2) WHERE ((id = ANY ('{{1,2,3}}'::bigint[])))",
    f"DELETE FROM {TARGET} WHERE ((\"c 1\" = ''::text)) AND ((price > 7.25)) AND ((id < 10))",
    f"DELETE FROM {TARGET}",
    f"UPDATE {TARGET} SET a1 = '2'::varchar(3) WHERE ((id = 2147483648)) AND ((price = '-1.5'::numeric))",
    f"UPDATE {TARGET} SET value = NULL WHERE (('2026-01-05'::text = \"c 1\")) AND ((id IN (1, 2)))",
]


@pytest.mark.parametrize("text", AGAIN)
def test_with_its_constants_put_back_it_is_what_came(text: str) -> None:
    found = writes.modify_again(text)
    assert found is not None
    statement, constants = found
    assert lexer.splice(statement.text, lexer.values(statement.tokens, constants)) == text
    select, none = writes.as_written(statement, constants)
    assert (select.text, none) == (text, ())


@pytest.mark.parametrize("text", AGAIN)
def test_its_constants_tell_the_same_of_its_rows(text: str) -> None:
    found = writes.modify_again(text)
    assert found is not None
    whole = writes.modify(text, lexer.tokens(text)).clauses
    known = pruning.conditions(whole, TABLE)
    assert pruning.conditions(found[0].clauses, TABLE, found[1]) == known
    assert bool(known) == ("WHERE" in text)


def test_only_constants_differ_between_two_that_are_the_same() -> None:
    one, other = AGAIN[0], AGAIN[0].replace("12345", "7").replace("10:00", "11:30")
    pairs = [writes.modify_again(text) for text in (one, other, one.replace("SET value", 'SET "value 2"'))]
    assert pairs[0] is not None
    assert pairs[1] is not None
    assert pairs[2] is not None
    assert pairs[0][0] is pairs[1][0]
    assert pairs[1][1] == ("7", "2026-01-05 11:30:00.5+00")
    assert pairs[2][0] is not pairs[0][0]
    names = [writes.modify_again(f'UPDATE {TARGET} SET "c {number}" = 1') for number in (1, 2)]
    assert [pair and pair[0].assignments[0][0] for pair in names] == ["c 1", "c 2"]


@pytest.mark.parametrize(
    "text",
    [
        f"UPDATE {TARGET} SET a = E'it\\'s 5' WHERE ((id = 1))",  # a backslash may mean something
        f"UPDATE {TARGET} SET a = E'x 5' WHERE ((id = 1))",  # what looks like a constant is a part of one
        f"UPDATE {TARGET} SET a = $1 WHERE ((id = 1))",  # a parameter of its own
        f"UPDATE {TARGET} SET a = 5 WHERE ctid = '(0,1)'",  # names a row
        f"UPDATE {TARGET} SET a = (-0)::real",  # a sign would be lost
        f"DELETE FROM {TARGET} WHERE ((id = 1)) RETURNING id",
        f"UPDATE {TARGET} r1 SET a = 1 FROM {TARGET} r2 WHERE ((r1.id = r2.id))",
        f"UPDATE {TARGET} SET a = 1 -- 5",
        f"UPDATE {TARGET} SET a = 'open",
    ],
)
def test_what_is_not_plain_is_looked_at_by_itself(text: str) -> None:
    assert writes.modify_again(text) is None
