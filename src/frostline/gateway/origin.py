"""The Postgres backend on whose behalf a session reads, known by the application name our foreign server sends."""

from __future__ import annotations

import re
from dataclasses import dataclass

from frostline.catalog.database import Connection
from frostline.gateway.link import Link

_SESSION = re.compile(r"frostline [0-9a-f]+\.([0-9a-f]+)")  # 'frostline %c': start time and pid, in hex
_XMIN = "SELECT backend_xmin::text::bigint FROM pg_stat_get_activity(%s)"


@dataclass(frozen=True)
class Origin:
    """Asked only when a transaction meets a moved period."""

    link: Link
    pid: int | None

    @classmethod
    def of(cls, link: Link, application_name: str) -> Origin:
        match = _SESSION.fullmatch(application_name)
        return cls(link, int(match[1], 16) if match else None)

    def reads_later_than(self, xmin: int) -> bool:
        """Whether it has surely taken a snapshot after one of ours with this xmin.

        `postgres_fdw` does not tell READ COMMITTED from REPEATABLE READ. But a transaction with one snapshot took it
        before it first came to us, so its xmin is not above ours, ever; a transaction with a snapshot per statement
        gets above it unless an old writer holds xmin back. True therefore means: its view of the table moves anyway.
        """
        if self.pid is None:
            return False
        current = self.link.run(self._xmin)
        # xids are compared in a circle; ours has an epoch, the other has none.
        return current is not None and 0 < (current - xmin) % 2**32 < 2**31

    def _xmin(self, connection: Connection) -> int | None:
        row = connection.execute(_XMIN, (self.pid,)).fetchone()
        return row[0] if row else None
