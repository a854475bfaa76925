"""Whether somebody else has changed the lake under our name.

A snapshot of a disk, and a base backup that is started as it is, have cluster, database and timeline of the original,
and so have two standbys that were both promoted: no look at Postgres tells them apart. So every operation leaves a word
of its own beside the table's files, which is committed here first. Who finds one there that he does not know is not the
one that changed the lake last.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

from frostline.catalog import turns
from frostline.catalog.database import Connection
from frostline.catalog.registry import Managed
from frostline.config import Settings
from frostline.errors import RefusedError
from frostline.lake import catalog as lake


def is_ours(connection: Connection, settings: Settings, managed: Managed) -> bool:
    """Whether nobody else has changed the lake since this database did."""
    word = lake.word(settings, managed)
    # None: nothing was archived yet, or by a version that left no words.
    return word is None or turns.known(connection, word)


def check(connection: Connection, settings: Settings, managed: Managed) -> None:
    """Before files are removed; the caller holds the table's lock."""
    if not is_ours(connection, settings, managed):
        raise RefusedError(
            f"another database has changed the lake of {managed.table} under the name of this one; nothing was changed",
            detail="one is a copy of the other's disk, or a base backup that was started as it is",
            hint="this one is the copy, and the other one lives on: frostline adopt --copy\n"
            "this one goes on, and the other one is gone or stopped: frostline adopt --successor",
        )


def take(connection: Connection, settings: Settings, managed: Managed) -> None:
    """At an operation's beginning: whoever was copied from us, or we from him, will know."""
    check(connection, settings, managed)
    leave_word(connection, settings, managed)


@contextmanager
def shown(connection: Connection, settings: Settings, managed: Managed) -> Iterator[None]:
    """Around the moment from which readers get what an operation has made.

    It was long at work: a copy may have taken its turn meanwhile. And one that was made meanwhile knows the word of the
    beginning, and would take the files for leftovers.
    """
    check(connection, settings, managed)
    yield
    leave_word(connection, settings, managed)


def make_up(connection: Connection, settings: Settings, managed: Managed) -> None:
    """An operation had come to its end, and did not live to leave its last word."""
    if lake.owned(settings, managed):
        leave_word(connection, settings, managed)


def leave_word(connection: Connection, settings: Settings, managed: Managed) -> None:
    turns.leave(connection, managed.id, partial(lake.leave_word, settings, managed))
