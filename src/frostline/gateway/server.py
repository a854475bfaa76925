"""The gateway as a process: listen, publish the address, serve sessions in threads, drain on a signal."""

from __future__ import annotations

import contextlib
import gc
import logging
import secrets
import signal
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from frostline.catalog import install
from frostline.config import Settings, addresses
from frostline.errors import ConfigError, FrostlineError, QueryError, StackError
from frostline.gateway import sockets, spill, startup, tls
from frostline.gateway.backing import Backing
from frostline.gateway.cancel import Canceller
from frostline.gateway.columns import Columns
from frostline.gateway.control import Control
from frostline.gateway.deltas import Deltas
from frostline.gateway.execute import Executor
from frostline.gateway.follower import Follower
from frostline.gateway.link import Link
from frostline.gateway.metrics import Metrics
from frostline.gateway.origin import Origin
from frostline.gateway.presence import Presence
from frostline.gateway.rows import Cursors
from frostline.gateway.session import Session, error_response, sqlstate
from frostline.gateway.view import Bulk, View
from frostline.gateway.wire.stream import Disconnected, Stream
from frostline.lake import files, point, storage
from frostline.lake.engine import open_engine
from frostline.metrics import served

log = logging.getLogger(__name__)

STARTUP_SECONDS = 30  # a client that says nothing is let go
DRAIN_SECONDS = 5.0
_TERMINATED = QueryError("terminating connection: the gateway is shutting down", sqlstate="57P01")


def serve(settings: Settings, *, ready: Callable[[str, int], None]) -> None:
    """Run until SIGTERM or SIGINT, then drain."""
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    gateway = Gateway(settings)
    gateway.start()
    # Statements leave hardly any cycles behind, and looking for them among all we have loaded takes its time.
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)
    try:
        ready(gateway.host, gateway.port)
        stop.wait()
    finally:
        gateway.stop()


@dataclass
class Client:
    """A connected client and the thread that serves it."""

    pid: int
    secret: int
    stream: Stream
    canceller: Canceller = field(default_factory=Canceller)
    session: Session | None = None
    thread: threading.Thread | None = None


class Gateway:
    """One listening gateway."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self.host = settings.gateway.host or _one_address(settings.gateway.listen)
        self._dsn = settings.dsn.get_secret_value()
        self._link = Link(self._dsn, "frostline gateway control")
        self._follower = Follower(self._dsn)
        self._control = Control(self._link)
        self._pinning = Link(self._dsn, "frostline gateway pins")
        self._storage = storage.of(settings)
        self._metrics = Metrics()
        self._tls = tls.context(settings.gateway)
        others = addresses(settings.gateway.standbys)
        self._presence = Presence(
            self._dsn, self._pinning, tls=self._tls is not None, others=others, tidy=point.close_unused
        )
        self._clients: dict[int, Client] = {}
        self._strangers: dict[Stream, None] = {}  # who has not said who it is, in the order they came
        self._lock = threading.Lock()
        self._stopping = False
        self._open = contextlib.ExitStack()
        self._open.callback(self._link.close)
        self._open.callback(self._follower.close)
        self._open.callback(self._pinning.close)
        self.port = 0

    def start(self) -> None:
        """Check the database, open DuckDB, listen, publish; or say why not and leave nothing open."""
        try:
            self._control.installed()
            self._link.run(install.check_current)
            self._control.begin()
            options = self._settings.gateway
            spilled = self._open.enter_context(spill.directory())
            self._engine = open_engine(
                memory=options.memory, threads=options.threads, directory=spilled, storage=self._storage
            )
            self._open.callback(self._engine.close)
            self._deltas = Deltas(self._engine)
            self._columns = Columns(self._engine, options.column_memory)
            self._serve_metrics()
            self._listener = self._open.enter_context(_listen(options.listen, options.port))
            self.port = self._listener.getsockname()[1]
            self._presence.begin(self.host, self.port)
        except BaseException:
            self._open.close()
            raise
        threading.Thread(target=self._accept, name="gateway accept", daemon=True).start()
        log.info("gateway listens on %s port %s", options.listen, self.port)

    def publish(self) -> None:
        """Point postgres_fdw here and at every other gateway of this database."""
        self._presence.publish()

    def renew(self) -> None:
        """A heartbeat now, not when it is due."""
        self._presence.renew()

    def stop(self, grace: float = DRAIN_SECONDS) -> None:
        """No new sessions; open transactions get `grace` seconds, then they are ended."""
        if self._stopping:
            return
        self._stopping = True
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._drain(grace)
        for client in self._current():
            client.canceller.cancel_once()
            client.stream.hang_up()
        self._join(2.0)
        for client in self._current():
            client.stream.close()
        self._presence.end()
        self._open.close()
        log.info("gateway stopped")

    def _drain(self, grace: float) -> None:
        end = time.monotonic() + grace
        while (clients := self._current()) and time.monotonic() < end:
            for client in clients:
                if client.session is None or client.session.idle:
                    client.stream.hang_up()
            self._join(0.05)

    def _join(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        for client in self._current():
            if client.thread is not None:
                client.thread.join(max(0.0, end - time.monotonic()))

    def _current(self) -> list[Client]:
        with self._lock:
            return list(self._clients.values())

    def _accept(self) -> None:
        while not self._stopping:
            try:
                sock, _ = self._listener.accept()
            except OSError:
                if self._stopping:
                    return
                time.sleep(0.05)  # out of file descriptors, say: others go on
                continue
            threading.Thread(target=self._connected, args=(sock,), name="gateway session", daemon=True).start()

    def _connected(self, sock: socket.socket) -> None:
        stream = Stream(sock)
        try:
            with contextlib.suppress(OSError):  # gone already: the first read will tell
                sockets.guard(sock, self._settings.gateway.send_timeout)
            sock.settimeout(STARTUP_SECONDS)
            self._meet(stream)
            request = startup.read_request(stream, self._tls)
            self._strangers.pop(stream, None)
            if isinstance(request, startup.CancelRequest):
                self._cancel(request)
            else:
                self._welcome(stream, request)
        except Disconnected:
            self._farewell(stream)
        except FrostlineError as error:
            self._failed(stream, error)
        except Exception as error:
            log.exception("a session failed")
            self._failed(stream, error)
        finally:
            self._strangers.pop(stream, None)
            stream.close()

    def _meet(self, stream: Stream) -> None:
        """However many connect and say nothing there is room for one more: who has been silent longest goes."""
        with self._lock:
            if len(self._strangers) >= self._settings.gateway.max_sessions:
                silent = next(iter(self._strangers))
                self._strangers.pop(silent)
                silent.hang_up()
            self._strangers[stream] = None

    def _welcome(self, stream: Stream, parameters: dict[str, str]) -> None:
        client = self._enter(stream)
        try:
            version = startup.admit(stream, parameters, self._control)
            stream.write(startup.greeting(version, parameters, client.pid, client.secret))
            stream.sock.settimeout(None)
            origin = Origin.of(parameters.get("application_name", ""))
            backing = Backing(self._dsn, client.canceller, origin.pid)
            view = View(
                self._engine,
                self._storage,
                Cursors(self._engine, self._storage),
                backing,
                client.canceller,
                self._presence.pins,
                origin,
                self._metrics,
                self._deltas,
                self._columns,
                self._follower,
                Bulk(self._settings.gateway.bulk_rows, self._settings.lake.file_size),
            )
            executor = Executor(view)
            client.session = Session(stream, executor, client.canceller, self._metrics)
            self._metrics.add("sessions_total")
            try:
                client.session.serve()
            finally:
                executor.end()
        finally:
            with self._lock:
                del self._clients[client.pid]

    def _enter(self, stream: Stream) -> Client:
        """A place among the sessions, with a number and a secret for cancel requests."""
        with self._lock:
            if self._stopping:
                raise _TERMINATED
            if len(self._clients) >= self._settings.gateway.max_sessions:
                raise QueryError(
                    "sorry, too many clients already",
                    hint="raise gateway.max_sessions",
                    sqlstate="53300",
                )
            pid = next(n for n in iter(lambda: secrets.randbelow(2**31 - 1) + 1, 0) if n not in self._clients)
            client = Client(pid, secrets.randbits(32), stream, thread=threading.current_thread())
            self._clients[pid] = client
            return client

    def _cancel(self, request: startup.CancelRequest) -> None:
        with self._lock:
            client = self._clients.get(request.pid)
        if client is not None and secrets.compare_digest(str(client.secret), str(request.secret)):
            client.canceller.cancel()

    def _serve_metrics(self) -> None:
        self._metrics.gauge("sessions", lambda: {(): len(self._current())})
        self._metrics.gauge("pins", lambda: {(): self._presence.pins.count})
        self._metrics.gauge("cache", self._caches)
        options = self._settings.gateway
        if options.metrics_port:
            self._open.enter_context(served(self._metrics, options.listen, options.metrics_port, "gateway"))

    def _failed(self, stream: Stream, error: Exception) -> None:
        self._metrics.add("errors_total", sqlstate=sqlstate(error))
        _send_fatal(stream, error)

    def _caches(self) -> dict[tuple[tuple[str, str], ...], float]:
        """`snapshots_hits` and the like, taken apart."""
        found: dict[tuple[tuple[str, str], ...], float] = {}
        for name, value in {**files.cache_counts(), **point.cache_counts(), **self._columns.counts()}.items():
            cache, _, what = name.rpartition("_")
            found[("cache", cache), ("what", what)] = value
        return found

    def _farewell(self, stream: Stream) -> None:
        if self._stopping:
            _send_fatal(stream, _TERMINATED)


def _send_fatal(stream: Stream, error: Exception) -> None:
    with contextlib.suppress(Disconnected, OSError):
        stream.write(error_response(error, "FATAL"))
        stream.flush()


def _one_address(listen: str) -> str:
    """To Postgres on another machine, "every address" means its own."""
    if listen in ("0.0.0.0", "::"):  # noqa: S104
        raise ConfigError(
            f"the gateway is to listen on every address ({listen}), and Postgres is not told which of them it is at; "
            "it was not started",
            hint="set gateway.host to the name or address under which Postgres reaches this machine",
        )
    return listen


def _listen(address: str, port: int) -> socket.socket:
    try:
        family = socket.getaddrinfo(address, port, type=socket.SOCK_STREAM)[0][0]
        return socket.create_server((address, port), family=family, backlog=128)
    except OSError as error:
        raise StackError(
            f"the gateway cannot listen on {address} port {port}: {error.strerror or error}",
            hint="stop what uses that port, or set gateway.port (0: any free one)",
        ) from None
