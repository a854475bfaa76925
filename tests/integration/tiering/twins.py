"""A tiered table and a plain one that are given the same statements."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import psycopg
import pytest

from fix_tiering import World
from frostline.gateway import follower
from frostline.report import Silent
from frostline.tiering.archive import run
from frostline.tiering.archive.run import Warm
from frostline.tiering.fold.run import Folded, fold

AT_ONCE = 30.0  # whatever else this machine does, and less than anybody waits for a lock


@contextmanager
def patience() -> Iterator[None]:
    """Who waits for a lock in order to follow an altered table waits so long that it is noticed."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(follower, "_WRITER_SECONDS", 2 * AT_ONCE)
        yield


@dataclass
class Twins:
    """`{t}` in a statement stands for the tiered table, then for its plain twin."""

    world: World
    tiered: str
    plain: str
    client: psycopg.Connection[Any]

    @property
    def full_name(self) -> str:
        return self.tiered if "." in self.tiered else f"public.{self.tiered}"

    def both(self, statement: str) -> None:
        """Run on each; tags and what is returned must be equal."""
        ours, theirs = (self.outcome(statement.replace("{t}", name)) for name in (self.tiered, self.plain))
        assert ours == theirs, statement

    def outcome(self, statement: str) -> object:
        try:
            cursor = self.client.execute(statement)
        except psycopg.Error as error:
            return error.sqlstate, str(error).replace(self.tiered, "T").replace(self.plain, "T")
        rows = sorted(cursor.fetchall(), key=repr) if cursor.description is not None else []
        return cursor.statusmessage, rows

    def same(self) -> list[tuple[Any, ...]]:
        """All rows, and what is asked of every column."""
        ours, theirs = (
            self.client.execute(f"SELECT r.id, r::text FROM {name} r ORDER BY 1, 2").fetchall()
            for name in (self.tiered, self.plain)
        )
        assert ours == theirs
        columns = self.client.execute(
            "SELECT quote_ident(attname), format_type(atttypid, -1) FROM pg_attribute"
            " WHERE attrelid = %s::regclass AND attnum > 0 AND NOT attisdropped",
            [self.plain],
        ).fetchall()
        for name, type_ in columns:
            least = "" if type_ in ("boolean", "uuid", "jsonb", "mood", "bytea") else f", min({name}), max({name})"
            self.both(f"SELECT count({name}), count(DISTINCT {name}){least} FROM {{t}}")
            self.both(f"SELECT count(*) FROM {{t}} WHERE {name} IS NULL AND ts < '2026-03-01Z'")
            self.both(
                f"SELECT id FROM {{t}} WHERE {name} = (SELECT {name} FROM {{t}} WHERE id = 5) AND ts < '2026-04-01Z'"
            )
        return ours

    def archive(self, before: str) -> int:
        """Make partitions cold; how many."""
        with Warm(self.world.spark_here) as warm:
            return len(list(run.periods(self.world.settings, self.full_name, Silent(), warm, before, named=True)))

    def fold(self) -> list[Folded]:
        with Warm(self.world.spark_here) as warm:
            return fold(self.world.settings, self.full_name, Silent(), warm)

    def refused(self, statement: str, state: str, said: str) -> None:
        """The tiered table does not do it, and says why at once."""
        started = time.monotonic()
        with patience(), pytest.raises(psycopg.Error, match=said) as error:
            self.client.execute(statement.replace("{t}", self.tiered))
        assert error.value.sqlstate == state
        assert time.monotonic() - started < AT_ONCE
