"""What the gateway counts."""

from __future__ import annotations

from frostline import metrics

PREFIX = "frostline_gateway_"
# From a point look-up out of a cache to a scan of a whole period.
SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0, 60.0)
HELP = {
    "sessions": ("gauge", "sessions connected now"),
    "pins": ("gauge", "Iceberg snapshots kept from being removed"),
    "sessions_total": ("counter", "sessions accepted"),
    "queries_total": (
        "counter",
        "queries by who answers: duckdb, file or delta (look-ups of a row), postgres, or known without reading",
    ),
    "statement_seconds": ("histogram", "time from a statement to the last byte of its answer"),
    "rows_total": ("counter", "rows sent"),
    "rows_written_total": ("counter", "cold rows inserted, updated or deleted, committed or not"),
    "rows_staged_total": ("counter", "of these, new ones written to data files at once, committed or not"),
    "writes_total": ("counter", "statements that change cold rows, by the way they are worked out: see writes.md"),
    "bytes_sent_total": ("counter", "bytes of rows sent"),
    "files_total": ("counter", "data files chosen for reading, after pruning"),
    "file_bytes_total": ("counter", "size of the data files chosen; what is read of them is less"),
    "errors_total": ("counter", "statements and sessions that failed, by SQLSTATE"),
    "cache": ("gauge", "caches of immutable things: hits, misses, entries, bytes"),
}


class Metrics(metrics.Metrics):
    """Its counters, and the times of its statements."""

    def __init__(self) -> None:
        super().__init__(PREFIX, HELP, "statement_seconds", SECONDS)
