"""What the gateway counts, and its text for Prometheus over HTTP."""

from __future__ import annotations

import bisect
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from frostline.errors import StackError

PREFIX = "frostline_gateway_"
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
# From a point look-up out of a cache to a scan of a whole period.
SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0, 60.0)
HELP = {
    "sessions": ("gauge", "sessions connected now"),
    "pins": ("gauge", "Iceberg snapshots kept from being removed"),
    "sessions_total": ("counter", "sessions accepted"),
    "queries_total": ("counter", "queries by who answers: duckdb, postgres, or known without reading"),
    "statement_seconds": ("histogram", "time from a statement to the last byte of its answer"),
    "rows_total": ("counter", "rows sent"),
    "rows_written_total": ("counter", "cold rows inserted, updated or deleted, committed or not"),
    "bytes_sent_total": ("counter", "bytes of rows sent"),
    "files_total": ("counter", "data files chosen for reading, after pruning"),
    "file_bytes_total": ("counter", "size of the data files chosen; what is read of them is less"),
    "errors_total": ("counter", "statements and sessions that failed, by SQLSTATE"),
    "cache": ("gauge", "caches of immutable things: hits, misses, entries, bytes"),
}
Labels = tuple[tuple[str, str], ...]


class Metrics:
    """Counters and one histogram, safe to use from every session."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: dict[tuple[str, Labels], float] = {}
        self._times: dict[Labels, list[int]] = {}
        self._gauges: list[tuple[str, Callable[[], Mapping[Labels, float]]]] = []

    def gauge(self, name: str, read: Callable[[], Mapping[Labels, float]]) -> None:
        """A value that is read when somebody asks."""
        self._gauges.append((name, read))

    def add(self, name: str, amount: float = 1, **labels: str) -> None:
        key = (name, tuple(sorted(labels.items())))
        with self._lock:
            self._counts[key] = self._counts.get(key, 0) + amount

    def timed(self, statement: str) -> Timed:
        """Measure what happens inside, whether it fails or not."""
        return Timed(self, statement)

    def observe(self, statement: str, seconds: float) -> None:
        labels = (("statement", statement),)
        with self._lock:
            if (buckets := self._times.get(labels)) is None:
                buckets = self._times[labels] = [0] * (len(SECONDS) + 1)
            buckets[bisect.bisect_left(SECONDS, seconds)] += 1
            key = ("statement_seconds_sum", labels)
            self._counts[key] = self._counts.get(key, 0) + seconds

    def text(self) -> str:
        """Everything in Prometheus's text format."""
        with self._lock:
            samples = [*self._counts.items(), *_buckets(self._times)]
        for name, read in self._gauges:
            samples += [((name, labels), value) for labels, value in read().items()]
        lines: list[str] = []
        for name, (kind, help_) in HELP.items():
            lines += [f"# HELP {PREFIX}{name} {help_}", f"# TYPE {PREFIX}{name} {kind}"]
            lines += sorted(_line(found, labels, value) for (found, labels), value in samples if _of(found, name))
        return "\n".join([*lines, ""])


class Timed:
    """One statement's time. A class of its own, for it is entered a hundred times by some queries."""

    __slots__ = ("_metrics", "_started", "_statement")

    def __init__(self, metrics: Metrics, statement: str) -> None:
        self._metrics, self._statement = metrics, statement

    def __enter__(self) -> None:
        self._started = time.perf_counter()

    def __exit__(self, *_: object) -> None:
        self._metrics.observe(self._statement, time.perf_counter() - self._started)


def _of(sample: str, name: str) -> bool:
    return sample == name or (sample.startswith(name) and sample[len(name) :] in ("_bucket", "_sum", "_count"))


def _buckets(times: Mapping[Labels, list[int]]) -> Iterator[tuple[tuple[str, Labels], float]]:
    """Prometheus's buckets are cumulative."""
    for labels, counts in times.items():
        total = 0
        for limit, count in zip([*map(str, SECONDS), "+Inf"], counts, strict=True):
            total += count
            yield ("statement_seconds_bucket", (*labels, ("le", limit))), total
        yield ("statement_seconds_count", labels), total


def _line(name: str, labels: Labels, value: float) -> str:
    inner = ",".join(f'{key}="{_escaped(text)}"' for key, text in labels)
    number = str(int(value)) if value == int(value) else repr(value)
    return f"{PREFIX}{name}{{{inner}}} {number}" if inner else f"{PREFIX}{name} {number}"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


@contextmanager
def served(metrics: Metrics, address: str, port: int) -> Iterator[int]:
    """Answer GET /metrics while inside; yields the port."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            found = self.path.split("?")[0] == "/metrics"
            body = metrics.text().encode() if found else b"the metrics are at /metrics\n"
            self.send_response(200 if found else 404)
            self.send_header("Content-Type", CONTENT_TYPE if found else "text/plain")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """A scrape every few seconds is no news."""

    class Server(ThreadingHTTPServer):
        daemon_threads = True
        address_family = socket.getaddrinfo(address, port, type=socket.SOCK_STREAM)[0][0]

    try:
        server = Server((address, port), Handler)
    except OSError as error:
        raise StackError(
            f"the gateway's metrics cannot be served on {address} port {port}: {error.strerror or error}",
            hint="stop what uses that port, or set gateway.metrics_port (0: no metrics)",
        ) from None
    thread = threading.Thread(target=server.serve_forever, name="gateway metrics", daemon=True)
    thread.start()
    try:
        yield server.server_address[1]
    finally:
        server.shutdown()
        server.server_close()
        thread.join(5)
