"""Savepoints, cursors and status, without a server."""

from __future__ import annotations

import pytest

from frostline.errors import QueryError
from frostline.gateway.rows import FixedRows
from frostline.gateway.transaction import ACTIVE, FAILED, IDLE, Transaction
from frostline.gateway.wire.messages import Field


def rows() -> FixedRows:
    return FixedRows([Field("a")], [["1"], ["2"], [None]])


def test_cursors_opened_since_a_savepoint_go_with_it() -> None:
    transaction = Transaction()
    transaction.begin()
    transaction.declare("outside", rows())
    transaction.savepoint("s2")
    transaction.declare("inside", rows())
    transaction.savepoint("s3")
    transaction.declare("deeper", rows())
    transaction.fail()
    assert transaction.status == FAILED
    transaction.rollback_to("s2")
    assert transaction.status == ACTIVE
    assert set(transaction.cursors) == {"outside"}
    with pytest.raises(QueryError, match="s3"):
        transaction.release("s3")
    transaction.release("s2")
    transaction.end()
    assert transaction.status == IDLE
    assert not transaction.cursors


def test_a_released_savepoint_keeps_its_cursors() -> None:
    transaction = Transaction()
    transaction.begin()
    transaction.savepoint("s2")
    transaction.declare("c1", rows())
    transaction.release("s2")
    assert set(transaction.cursors) == {"c1"}


def test_the_newest_of_two_savepoints_with_one_name_is_meant() -> None:
    transaction = Transaction()
    transaction.begin()
    transaction.savepoint("s")
    transaction.declare("c1", rows())
    transaction.savepoint("s")
    transaction.rollback_to("s")
    assert set(transaction.cursors) == {"c1"}


def test_fixed_rows_come_in_pieces_and_again() -> None:
    found = rows()
    assert sum(count for _, count in found.take(2)) == 2
    assert sum(count for _, count in found.take(None)) == 1
    assert not list(found.take(5))
    found.restart()
    assert sum(count for _, count in found.take(None)) == 3
