"""The embedded stack in a directory of its own: started, killed, crowded out, interrupted."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import urlsplit

import psycopg
import pytest

from fix_commands import Lines, Run, command, failed_clearly
from frostline import config
from frostline.catalog.database import connect
from frostline.config import Settings
from frostline.delta import collect
from frostline.errors import StackError
from frostline.local import processes, stack, user
from frostline.local.artifacts import cache_directory
from frostline.local.ports import free_port
from frostline.local.processes import Process
from frostline.local.stack import Stack
from frostline.report import Report
from frostline.tiering import register


@pytest.fixture
def own(open_directory: Path, request: pytest.FixtureRequest, report: Report) -> Iterator[Settings]:
    """Settings for a stack of this test's own, stopped and removed afterwards."""
    directory = open_directory / f"own-{abs(hash(request.node.name))}"
    settings = config.load({"local.dir": str(directory)}).settings
    yield settings
    if directory.exists():
        stack.down(settings, report)
        shutil.rmtree(directory)


def pid(found: Stack, name: str) -> int:
    service = found.service(name)
    assert service is not None
    return service.pid


def port(found: Stack, name: str) -> int:
    service = found.service(name)
    assert service is not None
    return int(service.address.rpartition(":")[2])


def wait_until(condition: Callable[[], object], seconds: float = 120) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.01)


def kill(number: int) -> None:
    process = Process.of(number)
    assert process is not None
    process.signal(signal.SIGKILL)
    assert process.wait_gone(60)


def answer(dsn: str) -> int:
    with psycopg.connect(dsn) as connection:
        row = connection.execute("SELECT n FROM kept").fetchone()
    assert row is not None
    return int(row[0])


def remember(dsn: str) -> None:
    with psycopg.connect(dsn) as connection:
        connection.execute("CREATE TABLE kept AS SELECT 42 AS n")


@pytest.fixture
def bystander() -> Iterator[Process]:
    """A process that is none of ours."""
    with subprocess.Popen(["sleep", "600"]) as sleeper:
        process = Process.of(sleeper.pid)
        assert process is not None
        yield process
        assert sleeper.poll() is None, "somebody killed the bystander"
        sleeper.kill()


def test_it_is_a_postgres_18_with_our_settings(stack: Stack) -> None:
    with psycopg.connect(stack.dsn) as connection:
        row = connection.execute(
            "SELECT current_setting('server_version_num')::int / 10000, current_setting('wal_level'),"
            " current_setting('TimeZone'), current_setting('listen_addresses'),"
            " current_setting('unix_socket_directories'), datlocprovider, datlocale, pg_encoding_to_char(encoding)"
            " FROM pg_database WHERE datname = 'app'"
        ).fetchone()
    assert row == (18, "logical", "UTC", "127.0.0.1", "", "b", "C.UTF-8", "UTF8")
    assert urlsplit(stack.dsn).path == "/app"


def test_no_server_of_ours_runs_postgres_as_root(stack: Stack) -> None:
    owner = Path(f"/proc/{pid(stack, 'Postgres')}")
    if not owner.exists():
        pytest.skip("no /proc here")
    account = user.server_account()
    assert owner.stat().st_uid == (account.pw_uid if account else os.geteuid())
    assert owner.stat().st_uid != 0


def test_a_wrong_password_does_not_get_in(stack: Stack) -> None:
    secret = urlsplit(stack.dsn).password
    assert secret
    with pytest.raises(psycopg.OperationalError, match="password authentication failed"):
        psycopg.connect(stack.dsn.replace(secret, "guess"))


def test_only_its_owner_can_read_the_password(stack: Stack) -> None:
    assert (stack.directory / "stack.json").stat().st_mode & 0o777 == 0o600


def test_up_twice_is_one_stack_and_down_twice_is_none(own: Settings, report: Report) -> None:
    first = stack.up(own, report)
    lines = Lines()
    assert stack.up(own, lines) == first
    assert lines.said == [f"The stack in {own.local.dir} is already running"]
    assert stack.down(own, report) is True
    assert stack.state(own) is None
    assert stack.down(own, report) is False
    assert stack.stack_settings(own.local.dir) == {}


def test_the_running_stack_tells_later_commands_where_it_is(own: Settings, report: Report) -> None:
    found = stack.up(own, report)
    told = stack.stack_settings(own.local.dir)
    assert told == {
        "dsn": found.dsn,
        "gateway.port": str(port(found, "gateway")),
        "lake.warehouse": str(own.local.dir / "lake"),
    }


def test_a_restart_keeps_data_password_and_ports(own: Settings, report: Report) -> None:
    first = stack.up(own, report)
    remember(first.dsn)
    stack.down(own, report)
    second = stack.up(own, report)
    assert second.dsn == first.dsn
    assert port(second, "gateway") == port(first, "gateway")
    assert answer(second.dsn) == 42


def test_up_after_an_upgrade_brings_registered_tables_along(own: Settings, report: Report) -> None:
    """The gateway and the functions that store what it holds have to be of one version."""
    first = stack.up(own, report)
    with connect(first.dsn) as connection:
        connection.execute("CREATE TABLE public.e (id int, d date, PRIMARY KEY (id, d)) PARTITION BY RANGE (d)")
        connection.execute(
            "CREATE TABLE public.e_now PARTITION OF public.e FOR VALUES FROM ('2026-01-01') TO (maxvalue)"
        )
        register.register(connection, "public.e", "1 month")
        connection.execute("COMMENT ON FUNCTION frostline.store_1(oid, bool) IS 'stores cold rows, version 1'")
    stack.down(own, report)
    second = stack.up(own, report)
    with connect(second.dsn) as connection:
        said = connection.execute("SELECT obj_description('frostline.store_1(oid, bool)'::regprocedure, 'pg_proc')")
        assert said.fetchone() == (collect.VERSION,)


def test_up_after_postgres_was_killed_starts_it_again(own: Settings, report: Report) -> None:
    first = stack.up(own, report)
    remember(first.dsn)
    kill(pid(first, "Postgres"))
    left = stack.state(own)
    assert left is not None
    assert left.service("Postgres") is None
    second = stack.up(own, report)
    assert answer(second.dsn) == 42
    assert pid(second, "gateway") == pid(first, "gateway")
    assert pid(second, "Postgres") != pid(first, "Postgres")


def test_up_after_the_gateway_was_killed_starts_only_that_and_the_worker_when_asked(
    own: Settings, report: Report
) -> None:
    first = stack.up(own, report)
    assert first.service("worker") is None
    kill(pid(first, "gateway"))
    second = stack.up(own, report, worker=True)
    assert pid(second, "Postgres") == pid(first, "Postgres")
    assert pid(second, "gateway") != pid(first, "gateway")
    assert port(second, "gateway") == port(first, "gateway")
    assert stack.up(own, report, worker=True) == stack.up(own, report) == second
    worker = Process.of(pid(second, "worker"))
    assert worker is not None
    lines = Lines()
    assert stack.down(own, lines) is True
    assert lines.said == ["Stopped the worker", "Stopped the gateway", "Stopped Postgres"]
    assert not worker.alive
    assert "the worker ends" in (own.local.dir / "logs" / "worker.log").read_text()


def test_down_after_both_were_killed_has_nothing_to_do(own: Settings, report: Report) -> None:
    found = stack.up(own, report)
    kill(pid(found, "gateway"))
    kill(pid(found, "Postgres"))
    assert stack.down(own, report) is False


def test_a_recycled_pid_in_the_pid_files_is_never_signalled(own: Settings, report: Report, bystander: Process) -> None:
    stack.up(own, report)
    remember(stack.up(own, report).dsn)
    stack.down(own, report)
    # What a crash leaves behind when the machine later gives the same pids to others.
    processes.write_json(own.local.dir / "run" / "gateway.json", {"pid": bystander.pid, "identity": "an earlier boot"})
    stale = own.local.dir / "postgres" / "data" / "postmaster.pid"
    stale.write_text(f"{bystander.pid}\n{stale.parent}\n1700000000\n5432\n\n127.0.0.1\n  0 0\nready\n")
    assert stack.state(own) is None
    assert stack.down(own, report) is False
    assert bystander.alive
    assert answer(stack.up(own, report).dsn) == 42
    assert bystander.alive


def test_a_postmaster_that_a_lost_run_left_is_found_by_its_data_directory(own: Settings, report: Report) -> None:
    """`up` was killed after Postgres started and before it could write anything down."""
    first = stack.up(own, report)
    record = json.loads((own.local.dir / "stack.json").read_text())
    processes.write_json(own.local.dir / "stack.json", record | {"port": 0})
    assert stack.state(own) == first
    assert stack.down(own, report) is True
    assert Process.of(pid(first, "Postgres")) is None


def test_a_taken_port_of_last_time_is_left_to_its_new_owner(own: Settings, report: Report) -> None:
    first = stack.up(own, report)
    remember(first.dsn)
    stack.down(own, report)
    with socket.socket() as other:
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # connections that ended a moment ago may linger
        other.bind(("127.0.0.1", port(first, "Postgres")))
        other.listen()
        lines = Lines()
        second = stack.up(own, lines)
        assert port(second, "Postgres") != port(first, "Postgres")
        assert f"Port {port(first, 'Postgres')} of last time is taken" in "\n".join(lines.said)
        assert answer(second.dsn) == 42


@pytest.mark.parametrize("key", ["local.port", "gateway.port"])
def test_a_fixed_port_that_is_taken_is_an_error_that_names_it(own: Settings, report: Report, key: str) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        taken = other.getsockname()[1]
        fixed = config.load({"local.dir": str(own.local.dir), key: str(taken)}).settings
        with pytest.raises(StackError, match=f"port {taken} is taken") as caught:
            stack.up(fixed, report)
    assert caught.value.hint is not None
    assert key in caught.value.hint
    # Nothing that this `up` started stays behind.
    assert stack.state(fixed) is None


def test_a_fixed_port_is_used(own: Settings, report: Report) -> None:
    wanted = free_port()
    fixed = config.load({"local.dir": str(own.local.dir), "local.port": str(wanted)}).settings
    assert port(stack.up(fixed, report), "Postgres") == wanted


def test_a_half_finished_initdb_is_begun_anew(own: Settings, report: Report) -> None:
    left = own.local.dir / "postgres"
    (left / "new-123" / "data").mkdir(parents=True)
    (left / "data" / "base").mkdir(parents=True)
    found = stack.up(own, report)
    remember(found.dsn)
    assert answer(found.dsn) == 42
    assert sorted(path.name for path in left.iterdir()) == ["data"]


def test_data_whose_password_is_lost_is_refused_and_kept(own: Settings, report: Report) -> None:
    stack.up(own, report)
    stack.down(own, report)
    hidden = (own.local.dir / "stack.json").rename(own.local.dir / "elsewhere")
    with pytest.raises(StackError, match=r"stack\.json, with the password, is gone; nothing was changed"):
        stack.up(own, report)
    hidden.rename(own.local.dir / "stack.json")
    assert stack.up(own, report).complete()


def test_two_ups_at_once_make_one_stack(own: Settings) -> None:
    runs = [
        subprocess.Popen(
            command("--dir", str(own.local.dir), "up"), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        for _ in range(2)
    ]
    assert [run.wait(300) for run in runs] == [0, 0]
    found = stack.state(own)
    assert found is not None
    assert found.complete()


@pytest.mark.parametrize(
    ("moment", "number"),
    [
        ("postgres/new-*/data/base", signal.SIGINT),
        ("postgres/data/postmaster.pid", signal.SIGINT),
        ("run/gateway.json", signal.SIGINT),
        ("postgres/new-*/data/base", signal.SIGTERM),
    ],
)
def test_an_interrupted_up_leaves_nothing_running(
    own: Settings, report: Report, moment: str, number: signal.Signals
) -> None:
    with subprocess.Popen(
        command("--dir", str(own.local.dir), "up"), stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as run:
        wait_until(lambda: list(own.local.dir.glob(moment)))
        os.killpg(run.pid, number)
        said = run.communicate(timeout=180)[1]
    assert run.returncode == {signal.SIGINT: 130, signal.SIGTERM: 143}[number], said
    assert "Traceback" not in said
    assert stack.state(own) is None
    assert (
        str(own.local.dir)
        not in subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True).stdout
    )
    assert stack.up(own, report).complete()


def test_up_killed_outright_can_be_taken_down(own: Settings, report: Report) -> None:
    with subprocess.Popen(
        command("--dir", str(own.local.dir), "up"), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as run:
        wait_until(lambda: list(own.local.dir.glob("run/gateway.json")))
        run.kill()
    assert stack.down(own, report) is True
    assert (
        str(own.local.dir)
        not in subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True).stdout
    )


def test_an_own_postgres_gets_only_a_gateway(own: Settings, report: Report, database: str) -> None:
    external = config.load({"local.dir": str(own.local.dir), "dsn": database}).settings
    found = stack.up(external, report)
    assert [service.name for service in found.services] == ["gateway"]
    assert (found.external, found.dsn) == (True, database)
    assert stack.stack_settings(own.local.dir)["dsn"] == database
    assert not (own.local.dir / "postgres").exists()
    with pytest.raises(StackError, match="running for another Postgres"):
        stack.up(config.load({"local.dir": str(own.local.dir), "dsn": database + " user=x"}).settings, report)
    assert stack.up(own, report) == found
    assert stack.down(own, report) is True


@pytest.mark.skipif(os.geteuid() != 0, reason="only root has directories that the server's user cannot enter")
def test_in_a_directory_closed_to_the_servers_user_the_data_is_kept_elsewhere(tmp_path: Path, report: Report) -> None:
    tmp_path.chmod(0o700)
    closed = config.load({"local.dir": str(tmp_path / "stack")}).settings
    lines = Lines()
    found = stack.up(closed, lines)
    base = Path(json.loads((found.directory / "stack.json").read_text())["base"])
    try:
        assert base.parent == user.SHARED_DATA
        assert any(str(base) in line for line in lines.said)
        remember(found.dsn)
        stack.down(closed, report)
        assert answer(stack.up(closed, report).dsn) == 42
        # Whoever removes the directory means the data too: it does not haunt the next stack of that name.
        stack.down(closed, report)
        shutil.rmtree(found.directory)
        with pytest.raises(psycopg.errors.UndefinedTable):
            answer(stack.up(closed, report).dsn)
    finally:
        stack.down(closed, report)
        shutil.rmtree(base)


@pytest.mark.skipif(os.geteuid() != 0, reason="the other tests already run as an ordinary user")
def test_an_ordinary_user_is_just_as_happy(open_directory: Path, own: Settings) -> None:
    account = user.server_account()
    assert account is not None
    home = open_directory / "home"
    home.mkdir()
    os.chown(home, account.pw_uid, account.pw_gid)
    paths = os.pathsep.join(path for path in sys.path if path and Path(path).is_dir())
    name = f"python{sys.version_info.major}.{sys.version_info.minor}"
    env = {
        "HOME": str(home),
        "PATH": os.environ["PATH"],
        "PYTHONPATH": paths,
        "PYTHONDONTWRITEBYTECODE": "1",
        "FROSTLINE_LOCAL_CACHE": str(cache_directory(own)),
    }

    def run(*command: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            command, env=env, cwd=home, capture_output=True, text=True, check=False, **user.run_as(account)
        )

    # Ours may live in root's home; through `sh`, an interpreter that cannot be run is an exit code.
    pythons = [sys.executable, f"/usr/bin/{name}", f"/usr/local/bin/{name}"]
    can = 'exec "$0" -c "import frostline.cli.main"'
    python = next((p for p in pythons if run("/bin/sh", "-c", can, p).returncode == 0), None)
    if python is None:
        pytest.skip(f"no {name} here that an ordinary user may run")
    started = run(python, "-m", "frostline", "up")
    try:
        assert started.returncode == 0, started.stderr
        assert (home / ".frostline" / "postgres" / "data" / "PG_VERSION").exists()
        told = run(python, "-m", "frostline", "dsn").stdout.strip()
        with psycopg.connect(told) as connection:
            assert connection.execute("SELECT 1").fetchone() == (1,)
    finally:
        stopped = run(python, "-m", "frostline", "down")
    assert (stopped.returncode, "Stopped Postgres" in stopped.stderr) == (0, True)


def test_a_directory_that_cannot_be_made_is_named(frostline: Run, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    failed_clearly(frostline("--dir", str(tmp_path / "file" / "stack"), "up"), str(tmp_path / "file" / "stack"))


def test_fifteen_is_a_postgres_15(postgres15: str) -> None:
    with psycopg.connect(postgres15) as connection:
        assert connection.info.server_version // 10000 == 15
