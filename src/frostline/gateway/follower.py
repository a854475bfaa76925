"""Tables that were altered: what belongs to them follows when their cold rows are first asked for."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from psycopg.sql import Composed

from frostline.catalog import queries
from frostline.catalog.database import Connection
from frostline.delta.follow import follow
from frostline.errors import OperationError
from frostline.gateway.link import Link, Result

log = logging.getLogger(__name__)

_READER_SECONDS = 0.5  # reading goes on without
_WRITER_SECONDS = 5.0
_AGAIN_SECONDS = 5.0


class Follower:
    """Shared by all sessions."""

    def __init__(self, dsn: str) -> None:
        self._following = Link(dsn, "frostline gateway columns")
        self._asking = Link(dsn, "frostline gateway shapes")
        self._lock = threading.Lock()
        self._failed: dict[tuple[int, str], float] = {}  # by table and shape: when

    def attempt(self, table_id: int, shape: str) -> bool:
        """For a reader, who can do without: whether it was done. What failed is not tried again at once."""
        with self._lock:
            if time.monotonic() - self._failed.get((table_id, shape), -_AGAIN_SECONDS) < _AGAIN_SECONDS:
                return False
        try:
            self._following.run(lambda connection: follow(connection, table_id, _READER_SECONDS))
        except Exception as error:  # whatever it is, what is read does not depend on it
            log.warning("table %d was altered, and what belongs to it has not followed: %s", table_id, error)
            with self._lock:
                self._failed = {key: at for key, at in self._failed.items() if key[0] != table_id}
                self._failed[table_id, shape] = time.monotonic()
            return False
        return True

    def follow(self, table_id: int) -> None:
        """For a writer, who cannot."""
        self._following.run(lambda connection: follow(connection, table_id, _WRITER_SECONDS))

    def check(self, table_id: int) -> None:
        """For a writer who has to try again: an error where no try would ever do."""
        with suppress(OperationError):  # most likely it is himself who is in the way
            self._following.run(lambda connection: follow(connection, table_id, 0))

    def shape(self, table_id: int) -> str | None:
        """What a table is like now, whatever snapshot a session reads."""
        row = self._asking.run(lambda connection: queries.row(connection, "shape", table=table_id))
        return None if row is None else row[0]

    def now(self, query: Composed) -> tuple[Any, ...] | None:
        """What a query finds now, whatever snapshot a session reads."""
        return self._asking.run(lambda connection: connection.execute(query).fetchone())

    def run(self, work: Callable[[Connection], Result]) -> Result:
        """Something that is committed at once, whatever becomes of a session's transaction."""
        return self._asking.run(work)

    def close(self) -> None:
        self._following.close()
        self._asking.close()
