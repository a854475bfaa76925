"""The Postgres backend on whose behalf a session reads, known by the application name our foreign server sends."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import psycopg

_SESSION = re.compile(r"frostline ([0-9a-f]+)\.([0-9a-f]+)")  # 'frostline %c': start time and pid, in hex
# In one round trip; without the first a transaction sees the activity of its first look for ever.
_XMINS = """
SELECT pg_catalog.pg_stat_clear_snapshot();
SELECT a.backend_xmin::text::bigint, pg_catalog.pg_snapshot_xmin(pg_catalog.pg_current_snapshot())::text::bigint
FROM pg_catalog.pg_stat_get_activity({}) a
"""


@dataclass(frozen=True)
class Origin:
    """A backend, or nobody when the client is not our foreign server."""

    pid: int | None
    started: int | None = None  # Unix time

    @classmethod
    def of(cls, application_name: str) -> Origin:
        match = _SESSION.fullmatch(application_name)
        return cls(int(match[2], 16), int(match[1], 16)) if match else cls(None)

    def leader(self, backing: psycopg.Connection[Any]) -> int | None:
        """Whom it works for, when it is a parallel worker."""
        if self.pid is None:
            return None
        query = "SELECT a.leader_pid FROM pg_catalog.pg_stat_get_activity(%s) a"
        row = backing.execute(query, [self.pid]).fetchone()
        return None if row is None else row[0]

    def reads_later(self, backing: psycopg.Connection[Any]) -> bool:
        """Whether it has surely taken a snapshot after the one of our backing transaction.

        `postgres_fdw` does not tell READ COMMITTED from REPEATABLE READ. But the xmin of snapshots never goes back in
        time, and a transaction with one snapshot took it before it first came to us: its xmin is not above ours, ever.
        A transaction with a snapshot per statement gets above it with the first statement after a commit, unless an
        old writer holds xmin back or a cursor of its own is open. Within a statement the answer does not change.
        """
        if self.pid is None:
            return False
        cursor = backing.execute(_XMINS.format(int(self.pid)))
        cursor.nextset()
        row = cursor.fetchone()
        # xids are compared in a circle: the client's has no epoch.
        return row is not None and row[0] is not None and 0 < (row[0] - row[1]) % 2**32 < 2**31


NOBODY = Origin(None)
