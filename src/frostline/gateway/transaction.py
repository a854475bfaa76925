"""The state of a remote transaction: its status, savepoints and cursors."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from frostline.errors import QueryError
from frostline.gateway.bench import Written
from frostline.gateway.rows import Rows

IDLE, ACTIVE, FAILED = b"I", b"T", b"E"


@dataclass
class Savepoint:
    name: str
    cursors: frozenset[str]
    written: dict[int, Written]  # by table, so far


@dataclass
class Transaction:
    """What a client's BEGIN, SAVEPOINT and DECLARE made, until COMMIT or ROLLBACK."""

    status: bytes = IDLE
    serializable: bool = False
    cursors: dict[str, Rows] = field(default_factory=dict)
    savepoints: list[Savepoint] = field(default_factory=list)
    declared: set[str] = field(default_factory=set)  # lately; postgres_fdw uses a name again only when it scans again

    def begin(self, *, serializable: bool = False) -> None:
        self.status, self.serializable = ACTIVE, serializable

    def fail(self) -> None:
        """After an error only a rollback is possible."""
        if self.status == ACTIVE:
            self.status = FAILED

    def end(self) -> None:
        self._close(set(self.cursors))
        self.savepoints.clear()
        self.declared.clear()
        self.status = IDLE

    def savepoint(self, name: str, written: Mapping[int, Written] | None = None) -> None:
        self._needed("SAVEPOINT")
        self.savepoints.append(Savepoint(name, frozenset(self.cursors), dict(written or {})))

    def rollback_to(self, name: str) -> dict[int, Written]:
        """Back to the savepoint, which stays, and to what was written then; cursors opened since are gone."""
        self._needed("ROLLBACK TO SAVEPOINT")
        at = self._find(name)
        self._close(set(self.cursors) - self.savepoints[at].cursors)
        del self.savepoints[at + 1 :]
        self.status = ACTIVE
        return dict(self.savepoints[at].written)

    def release(self, name: str) -> None:
        self._needed("RELEASE SAVEPOINT")
        del self.savepoints[self._find(name) :]

    def declare(self, name: str, rows: Rows) -> None:
        if name in self.cursors:
            rows.close()
            raise QueryError(f'cursor "{name}" already exists', sqlstate="42P03")
        if not self.cursors and name not in self.declared:
            self.declared.clear()  # most likely another statement; a long transaction has many
        self.cursors[name] = rows
        self.declared.add(name)

    def cursor(self, name: str) -> Rows:
        found = self.cursors.get(name)
        if found is None:
            raise QueryError(f'cursor "{name}" does not exist', sqlstate="34000")
        return found

    def close(self, name: str | None) -> None:
        if name is not None:
            self.cursor(name)
        self._close(set(self.cursors) if name is None else {name})

    def _close(self, names: set[str]) -> None:
        for name in names:
            self.cursors.pop(name).close()

    def _needed(self, what: str) -> None:
        if self.status == IDLE:
            raise QueryError(f"{what} can only be used in transaction blocks", sqlstate="25P01")

    def _find(self, name: str) -> int:
        for at in range(len(self.savepoints) - 1, -1, -1):
            if self.savepoints[at].name == name:
                return at
        raise QueryError(f'savepoint "{name}" does not exist', sqlstate="3B001")
