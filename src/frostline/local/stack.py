"""The embedded stack: Postgres, the gateway and the worker as background processes of one directory.

.frostline/
  stack.json        what was started where, with the password (only its owner can read it)
  postgres/data     the database (elsewhere when root's directory is closed to the server's user)
  lake/             the Iceberg tables
  run/              gateway.json: pid and start time of the gateway; gateway.ready: where it listens; so of the worker
  logs/             postgres.log, gateway.log, worker.log
"""

from __future__ import annotations

import fcntl
import hashlib
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path

import psycopg
from psycopg import sql

from frostline.catalog.database import connect
from frostline.catalog.install import install
from frostline.config import Settings
from frostline.errors import StackError
from frostline.local import processes, user
from frostline.local.artifacts import fetch
from frostline.local.background import Background
from frostline.local.ports import choose_port, free_port, port_is_free
from frostline.local.postgres import SUPERUSER, Running, Server
from frostline.report import Report
from frostline.tiering import writing

DATABASE = "app"
GATEWAY = Background("gateway", "gateway")
WORKER = Background("worker", "run")
_STOP_SECONDS = 15  # the gateway may have open sessions to close


@dataclass(frozen=True)
class Service:
    """One server of the stack, as it runs now."""

    name: str
    pid: int
    address: str
    since: datetime
    log: Path


@dataclass(frozen=True)
class Stack:
    """What runs where. `services` holds only what is alive."""

    directory: Path
    dsn: str
    external: bool  # the Postgres is the user's own
    warehouse: str
    services: tuple[Service, ...]

    def service(self, name: str) -> Service | None:
        return next((service for service in self.services if service.name == name), None)

    def complete(self, *, worker: bool = False) -> bool:
        """Whether all runs that is to."""
        wanted = ["gateway", *([] if self.external else ["Postgres"]), *(["worker"] if worker else [])]
        return all(self.service(name) is not None for name in wanted)


@dataclass(frozen=True)
class Record:
    """stack.json: what has to survive a restart."""

    home: str = ""
    base: str = ""  # where Postgres keeps data and log: the directory itself, unless its user cannot enter that
    password: str = ""
    port: int = 0
    gateway_port: int = 0
    external: str = ""  # DSN of the user's own Postgres, when the gateway serves that
    warehouse: str = ""
    lake: dict[str, str] = field(default_factory=dict)  # how later commands find the same lake; no secrets

    @staticmethod
    def read(directory: Path) -> Record:
        content = processes.read_json(directory / "stack.json")
        known = {name: value for name, value in content.items() if name in Record.__dataclass_fields__}
        return Record(**known)  # type: ignore[arg-type]

    def write(self, directory: Path) -> None:
        processes.write_json(directory / "stack.json", self.__dict__)

    @property
    def dsn(self) -> str:
        return self.external or self.embedded_dsn

    @property
    def embedded_dsn(self) -> str:
        return f"postgresql://{SUPERUSER}:{self.password}@127.0.0.1:{self.port}/{DATABASE}"

    @property
    def server(self) -> Server:
        return Server(Path(self.home), Path(self.base))


def up(settings: Settings, report: Report, *, worker: bool = False) -> Stack:
    """Start what does not run yet. `settings` are the user's own, without what a running stack adds to them."""
    directory = settings.local.dir.expanduser().absolute()
    with _locked(directory, report):
        before = _state(directory)
        record = replace(Record.read(directory), warehouse=settings.warehouse, lake=_lake(settings))
        record = replace(record, external=_external(settings, record, before))
        if before is not None and before.complete(worker=worker):
            report.line(f"The stack in {directory} is already running")
            return before
        try:
            if not record.external:
                record = _start_postgres(settings, directory, record, report)
            record.write(directory)
            install(record.dsn)
            with connect(record.dsn) as connection:
                writing.equip(connection)
            _start_gateway(settings, directory, record, report)
            if worker:
                _start_worker(settings, directory, record, report)
        except BaseException:
            # Failed or interrupted half-way: what was started just now does not stay behind. The data does.
            if before is None:
                _stop(directory, report, 0)
            raise
        found = _state(directory)
    if found is None or not found.complete(worker=worker):
        raise StackError(
            "the stack started and ended again at once",
            hint=f"the logs are in {directory / 'logs'}; `frostline up` starts it again",
        )
    return found


def down(settings: Settings, report: Report) -> bool:
    """Stop the worker, the gateway, then Postgres; False when none was running."""
    directory = settings.local.dir.expanduser().absolute()
    if not directory.exists():
        return False
    with _locked(directory, report):
        return _stop(directory, report, settings.worker.grace)


def state(settings: Settings) -> Stack | None:
    """What runs now; None when nothing does."""
    return _state(settings.local.dir.expanduser().absolute())


def stack_settings(directory: Path) -> dict[str, str]:
    """What a running stack contributes to the settings of later commands."""
    stack = _state(directory.expanduser().absolute())
    if stack is None:
        return {}
    record = Record.read(stack.directory)
    found = {"lake.warehouse": record.warehouse, **record.lake}
    if stack.external or stack.service("Postgres"):
        found["dsn"] = stack.dsn
    if (listening := stack.service("gateway")) is not None:
        found["gateway.port"] = listening.address.rpartition(":")[2]
    return found


def _lake(settings: Settings) -> dict[str, str]:
    """What is to be the same for every command on this lake and is no secret."""
    default, found = Settings.model_validate({}), {}
    for key in ("lake.catalog", "rest.uri", "rest.warehouse", "s3.endpoint", "s3.region", "s3.path_style"):
        section, _, name = key.partition(".")
        value = getattr(getattr(settings, section), name)
        if value != getattr(getattr(default, section), name):
            found[key] = str(value)
    return found


def _state(directory: Path) -> Stack | None:
    record = Record.read(directory)
    services = []
    if record.base and (postgres := record.server.running()) is not None:
        record = replace(record, port=postgres.port)
        address = f"127.0.0.1:{postgres.port}"
        services.append(Service("Postgres", postgres.process.pid, address, postgres.since, record.server.log))
    for kind in (GATEWAY, WORKER):
        if (listening := kind.running(directory)) is not None:
            address = f"{listening.host}:{listening.port}" if listening.port else ""
            services.append(
                Service(kind.name, listening.process.pid, address, listening.since, kind.log_file(directory))
            )
    if not services:
        return None
    return Stack(directory, record.dsn, bool(record.external), record.warehouse, tuple(services))


def _external(settings: Settings, record: Record, before: Stack | None) -> str:
    """DSN of the user's own Postgres that the gateway is to serve; empty for the embedded one."""
    wanted = settings.dsn.get_secret_value()
    if before is None:
        return "" if wanted == record.embedded_dsn else wanted
    if wanted and wanted not in (record.dsn, before.dsn):
        raise StackError(
            f"the stack in {before.directory} is running for another Postgres; nothing was changed",
            hint="stop it first with `frostline down`, or choose another directory with --dir",
        )
    return record.external


def _start_postgres(settings: Settings, directory: Path, record: Record, report: Report) -> Record:
    artifacts = fetch(settings, report=report)
    record = replace(record, home=str(artifacts.postgres), base=record.base or str(_base(directory, report)))
    server = record.server
    if not record.password:
        _refuse_unknown_data(server, directory, report)
        record = replace(record, password=secrets.token_urlsafe(24))
    # Before anything is created: without the password the data would be out of reach.
    record.write(directory)
    if not server.initialised():
        with report.step("Creating the Postgres data directory"):
            server.initialise(record.password)
    running = server.running()
    if running is None:
        with report.step("Starting Postgres") as task:
            running = _start_on_some_port(settings, record, report)
            task.note = f"127.0.0.1:{running.port}"
    record = replace(record, port=running.port)
    _create_database(record)
    return record


def _base(directory: Path, report: Report) -> Path:
    """Where Postgres keeps data and log: here, or in a shared place when its user cannot come here."""
    account = user.server_account()
    if account is None or user.can_enter(directory, account):
        return directory
    base = user.SHARED_DATA / hashlib.sha256(str(directory).encode()).hexdigest()[:16]
    report.line(f"{directory} is closed to the user {account.pw_name}, who runs Postgres: its data is kept in {base}")
    user.make_public(base)
    return base


def _refuse_unknown_data(server: Server, directory: Path, report: Report) -> None:
    """Data without its stack.json: the password is lost."""
    if not server.initialised():
        return
    if server.base == directory:
        raise StackError(
            f"{directory} holds a database but its stack.json, with the password, is gone; nothing was changed",
            hint="put stack.json back, or remove the directory to start anew",
        )
    # The directory this belonged to was removed, and whoever did that meant the data too.
    report.line(f"{server.base} holds the data of a removed {directory}; it is removed too")
    server.stop()
    shutil.rmtree(server.base)
    user.make_public(server.base)


def _start_on_some_port(settings: Settings, record: Record, report: Report) -> Running:
    port = choose_port("Postgres", "local.port", settings.local.port, record.port, report)
    try:
        return record.server.start(port)
    except StackError:
        # Somebody may have taken the port between the look and the start; once more, unless it is to be this one.
        if settings.local.port or port_is_free(port):
            raise
        return record.server.start(free_port())


def _create_database(record: Record) -> None:
    maintenance = record.embedded_dsn.removesuffix(DATABASE) + "postgres"
    with psycopg.connect(maintenance, autocommit=True, connect_timeout=10) as connection:
        if connection.execute("SELECT 1 FROM pg_database WHERE datname = %s", (DATABASE,)).fetchone() is None:
            connection.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(DATABASE)))


def _start_gateway(settings: Settings, directory: Path, record: Record, report: Report) -> None:
    if GATEWAY.running(directory) is not None:
        return
    listen = settings.gateway.listen
    port = choose_port("the gateway", "gateway.port", settings.gateway.port, record.gateway_port, report, listen)
    with report.step("Starting the gateway") as task:
        started = GATEWAY.start(settings, directory, {"dsn": record.dsn, "gateway.port": str(port)})
        task.note = f"{started.host}:{started.port}"
    replace(record, gateway_port=started.port).write(directory)


def _start_worker(settings: Settings, directory: Path, record: Record, report: Report) -> None:
    if WORKER.running(directory) is None:
        with report.step("Starting the worker"):
            WORKER.start(settings, directory, {"dsn": record.dsn})


def _stop(directory: Path, report: Report, grace: float) -> bool:
    """The worker first, for it works with both; then the gateway: Postgres would wait for its connections."""
    stopped = False
    for kind, patience in ((WORKER, grace + _STOP_SECONDS), (GATEWAY, _STOP_SECONDS)):
        if kind.stop(directory, patience=patience):
            report.line(f"Stopped the {kind.name}")
            stopped = True
    record = Record.read(directory)
    if record.base and record.server.stop():
        report.line("Stopped Postgres")
        stopped = True
    return stopped


@contextmanager
def _locked(directory: Path, report: Report) -> Iterator[None]:
    """One `up` or `down` at a time per directory; another one waits."""
    try:
        directory.mkdir(parents=True, exist_ok=True)
        lock = (directory / ".lock").open("w")
    except OSError as error:
        raise StackError(
            f"{directory} cannot be used for the stack: {error.strerror or error}",
            hint="choose another directory with --dir, FROSTLINE_LOCAL_DIR or local.dir",
        ) from None
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            report.line(f"Waiting for another `frostline` that is starting or stopping the stack in {directory}")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield
