"""Counters, gauges and times of a long-running process, and their text for Prometheus over HTTP."""

from __future__ import annotations

import bisect
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from frostline.errors import StackError

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
Labels = tuple[tuple[str, str], ...]
Help = Mapping[str, tuple[str, str]]  # kind and meaning of each, in the order they are shown


class Metrics:
    """Counters, gauges and one histogram of seconds, safe to use from every thread."""

    def __init__(self, prefix: str, help_: Help, times: str, limits: Sequence[float]) -> None:
        self._prefix, self._help = prefix, help_
        self._name, self._limits = times, limits
        self._lock = threading.Lock()
        self._counts: dict[tuple[str, Labels], float] = {}
        self._times: dict[Labels, list[int]] = {}
        self._gauges: list[tuple[str, Callable[[], Mapping[Labels, float]]]] = []

    def gauge(self, name: str, read: Callable[[], Mapping[Labels, float]]) -> None:
        """A value that is read when somebody asks."""
        self._gauges.append((name, read))

    def add(self, name: str, amount: float = 1, **labels: str) -> None:
        key = (name, tuple(sorted(labels.items())) if labels else ())
        with self._lock:
            self._counts[key] = self._counts.get(key, 0) + amount

    def timed(self, what: str) -> Timed:
        """Measure what happens inside, whether it fails or not."""
        return Timed(self, what)

    def observe(self, what: str, seconds: float) -> None:
        labels = ((self._name.removesuffix("_seconds"), what),)
        with self._lock:
            if (buckets := self._times.get(labels)) is None:
                buckets = self._times[labels] = [0] * (len(self._limits) + 1)
            buckets[bisect.bisect_left(self._limits, seconds)] += 1
            key = (f"{self._name}_sum", labels)
            self._counts[key] = self._counts.get(key, 0) + seconds

    def text(self) -> str:
        """Everything in Prometheus's text format."""
        with self._lock:
            samples = [*self._counts.items(), *self._buckets()]
        for name, read in self._gauges:
            samples += [((name, labels), value) for labels, value in read().items()]
        lines: list[str] = []
        for name, (kind, help_) in self._help.items():
            lines += [f"# HELP {self._prefix}{name} {help_}", f"# TYPE {self._prefix}{name} {kind}"]
            found = ((n, labels, value) for (n, labels), value in samples if _of(n, name))
            lines += sorted(_line(self._prefix + n, labels, value) for n, labels, value in found)
        return "\n".join([*lines, ""])

    def _buckets(self) -> Iterator[tuple[tuple[str, Labels], float]]:
        """Prometheus's buckets are cumulative."""
        for labels, counts in self._times.items():
            total = 0
            for limit, count in zip([*map(str, self._limits), "+Inf"], counts, strict=True):
                total += count
                yield (f"{self._name}_bucket", (*labels, ("le", limit))), total
            yield (f"{self._name}_count", labels), total


class Timed:
    """One time. A class of its own, for it is entered a hundred times by some queries."""

    __slots__ = ("_metrics", "_started", "_what")

    def __init__(self, metrics: Metrics, what: str) -> None:
        self._metrics, self._what = metrics, what

    def __enter__(self) -> None:
        self._started = time.perf_counter()

    def __exit__(self, *_: object) -> None:
        self._metrics.observe(self._what, time.perf_counter() - self._started)


def _of(sample: str, name: str) -> bool:
    return sample == name or (sample.startswith(name) and sample[len(name) :] in ("_bucket", "_sum", "_count"))


def _line(name: str, labels: Labels, value: float) -> str:
    inner = ",".join(f'{key}="{_escaped(text)}"' for key, text in labels)
    number = str(int(value)) if value == int(value) else repr(value)
    return f"{name}{{{inner}}} {number}" if inner else f"{name} {number}"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


@contextmanager
def served(metrics: Metrics, address: str, port: int, whose: str) -> Iterator[int]:
    """Answer GET /metrics of the gateway or the worker while inside; yields the port."""

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
            f"the {whose}'s metrics cannot be served on {address} port {port}: {error.strerror or error}",
            hint=f"stop what uses that port, or set {whose}.metrics_port (0: no metrics)",
        ) from None
    thread = threading.Thread(target=server.serve_forever, name="metrics", daemon=True)
    thread.start()
    try:
        yield server.server_address[1]
    finally:
        server.shutdown()
        server.server_close()
        thread.join(5)
