"""What the worker counts, and how far behind every table is."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping

import psycopg
from psycopg.sql import SQL, Literal

from frostline import metrics
from frostline.catalog import queries, registry
from frostline.catalog.database import Connection, connect
from frostline.catalog.registry import Managed
from frostline.config import Settings
from frostline.delta import fold as delta
from frostline.errors import FrostlineError
from frostline.metrics import Labels
from frostline.tiering import ddl, staged
from frostline.tiering.archive import plan

PREFIX = "frostline_worker_"
# From a look that finds nothing to do to the export of a large partition.
SECONDS = (0.05, 0.25, 1.0, 5.0, 15.0, 60.0, 300.0, 1800.0, 7200.0)
_TABLES = {
    "lag_seconds": "for how long the oldest partition in Postgres could have been archived; not of integer keys",
    "backlog_periods": "partitions older than the hot period that are still in Postgres",
    "unfolded_rows": "changes of cold rows that are not in the lake yet",
    "unfolded_bytes": "their size in Postgres",
    "unfolded_seconds": "since the last fold, while there is any such change",
    "staged_rows": "rows in files that are not in the Iceberg table yet",
    "staged_bytes": "their size",
    "lake_bytes": "size of the data files in the lake",
    "lake_rows": "rows in the lake",
    "damaged_periods": "periods with an alarm: damaged in the lake, or not archived because the copy differs",
}
HELP = {
    "leader": ("gauge", "1: this worker leads; 0: it stands by"),
    **{name: ("gauge", help_) for name, help_ in _TABLES.items()},
    "failing_steps": ("gauge", "steps of a table whose last try failed"),
    "rounds_total": ("counter", "rounds over all tables"),
    "last_round_seconds": ("gauge", "when the last round ended, as Unix time"),
    "steps_total": ("counter", "steps that did something, by table and step"),
    "failures_total": ("counter", "steps that failed, by table and step"),
    "step_seconds": ("histogram", "time a step took, whether there was anything to do or not"),
}
_KEPT_SECONDS = 2.0  # all gauges of one scrape are of one look


class Metrics(metrics.Metrics):
    """Its counters, the times of its steps, and gauges that are asked of Postgres when somebody looks."""

    def __init__(self, settings: Settings, leads: Callable[[], bool]) -> None:
        super().__init__(PREFIX, HELP, "step_seconds", SECONDS)
        self._settings, self._leads = settings, leads
        self._looked, self._values = 0.0, dict[str, dict[Labels, float]]()
        self._ended: float | None = None
        self._look = threading.Lock()
        self.gauge("leader", lambda: {(): float(leads())})
        self.gauge("last_round_seconds", lambda: {} if self._ended is None else {(): self._ended})
        for name in (*_TABLES, "failing_steps"):
            self.gauge(name, lambda name=name: self._asked().get(name, {}))  # type: ignore[misc]

    def round(self) -> None:
        self.add("rounds_total")
        self._ended = time.time()

    def _asked(self) -> Mapping[str, Mapping[Labels, float]]:
        """Of whoever leads only: with several workers every table is told once."""
        with self._look:
            if time.monotonic() - self._looked > _KEPT_SECONDS:
                self._values = self._ask() if self._leads() else {}
                self._looked = time.monotonic()
            return self._values

    def _ask(self) -> dict[str, dict[Labels, float]]:
        found: dict[str, dict[Labels, float]] = {name: {} for name in (*_TABLES, "failing_steps")}
        try:
            with connect(self._settings.dsn.get_secret_value(), application="frostline metrics") as connection:
                for managed in registry.every(connection):
                    labels = (("table", str(managed.table)),)
                    for name, value in measured(connection, managed).items():
                        found[name][labels] = value
                for table, count in connection.execute('SELECT "table", count(*) FROM frostline.failing GROUP BY 1'):
                    found["failing_steps"][("table", table),] = count
        except (psycopg.Error, FrostlineError):
            return {}  # what is not known is not told; that the metrics are missing is an alarm of its own
        return found


def measured(connection: Connection, managed: Managed) -> dict[str, float]:
    """How far behind one table is, and what of it is in the lake."""
    leaves, waiting = plan.expired(connection, managed), delta.waiting(connection, managed)
    files = staged.waiting(connection, managed)
    ((age,),) = queries.rows(connection, "last_fold", table=managed.id)
    lake = connection.execute(
        "SELECT coalesce(sum(bytes), 0)::bigint, coalesce(sum(rows), 0)::bigint FROM frostline.periods"
        " WHERE table_id = %s",
        (managed.id,),
    ).fetchone()
    assert lake is not None
    found = {
        "backlog_periods": len(leaves),
        "unfolded_rows": waiting.versions,
        "unfolded_bytes": waiting.bytes,
        "unfolded_seconds": age if waiting.versions else 0,
        "staged_rows": files.rows,
        "staged_bytes": files.bytes,
        "lake_bytes": lake[0],
        "lake_rows": lake[1],
        "damaged_periods": len(queries.rows(connection, "alarms", table=managed.id)),
    }
    if not managed.table.key_type.startswith("int"):
        end = leaves[0].range.upper if leaves and leaves[0].range is not None else None
        found["lag_seconds"] = 0 if end is None else _since(connection, managed, end.text)
    return {name: float(value) for name, value in found.items()}


def _since(connection: Connection, managed: Managed, end: str) -> float:
    key_type = managed.table.key_type
    query = SQL("SELECT greatest(extract(epoch FROM {} - {}::interval - {}::{}::timestamptz), 0)::float8").format(
        ddl.clock(key_type), Literal(managed.hot_for), Literal(end), SQL(key_type)
    )
    row = connection.execute(query).fetchone()
    assert row is not None
    return float(row[0])
