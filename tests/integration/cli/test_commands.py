"""The commands as a person meets them: output, exit codes, and errors without stack traces."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import threading
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

import frostline as package
from fix_commands import Run, command, environment, failed_clearly
from frostline.cli import stack as stack_commands
from frostline.local.stack import Stack


@pytest.fixture
def here(stack: Stack) -> tuple[str, str]:
    return ("--dir", str(stack.directory))


def test_version(frostline: Run) -> None:
    done = frostline("--version")
    assert (done.returncode, done.stdout) == (0, f"frostline {package.__version__}\n")


def test_help_names_every_command(frostline: Run) -> None:
    done = frostline("--help")
    assert done.returncode == 0
    for name in ("up", "down", "status", "dsn", "psql", "config", "demo", "init", "register", "archive", "gateway"):
        assert f" {name} " in done.stdout


def test_an_unknown_command_is_a_usage_error(frostline: Run) -> None:
    done = frostline("freeze")
    assert done.returncode == 2
    assert "No such command 'freeze'" in done.stderr
    assert "Traceback" not in done.stderr


def test_dsn_prints_just_the_dsn(frostline: Run, stack: Stack, here: tuple[str, str]) -> None:
    done = frostline(*here, "dsn")
    assert (done.returncode, done.stdout) == (0, f"{stack.dsn}\n")


def test_dsn_without_a_stack_says_how_to_get_one(frostline: Run) -> None:
    done = frostline("dsn")
    failed_clearly(done, "no Postgres is known", ".frostline")
    assert "frostline up" in done.stderr


def test_status_shows_what_runs_where(frostline: Run, stack: Stack, here: tuple[str, str]) -> None:
    done = frostline(*here, "status")
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    for service in stack.services:
        line = next(line for line in lines if line.startswith(service.name))
        assert line.split()[1:3] == [str(service.pid), service.address]
        assert str(service.log) in line
    assert next(line for line in lines if line.startswith("lake")).split()[1] == str(stack.warehouse)


def test_status_is_shown_again_until_it_is_interrupted(stack: Stack, here: tuple[str, str]) -> None:
    with subprocess.Popen(
        command(*here, "status", "--watch"),
        env=environment({}),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as run:
        assert run.stdout is not None
        too_late = threading.Timer(180, run.kill)
        too_late.start()
        pictures = [[line.split()[0] for line in picture] for picture in (_picture(run.stdout), _picture(run.stdout))]
        run.send_signal(signal.SIGINT)
        _, errors = run.communicate()
        too_late.cancel()
    services = [service.name for service in stack.services]
    assert [[name for name in names if name in services] for names in pictures] == [services, services]
    assert (run.returncode, errors) == (130, "error: interrupted; what was finished before is kept\n")


def _picture(lines: Iterable[str]) -> Iterator[str]:
    """To the lake, which comes after what runs."""
    for line in lines:
        if line.strip():
            yield line
        if line.startswith("lake"):
            return
    raise AssertionError("it ended by itself")


def test_files_of_the_lake_may_come_and_go_while_they_are_counted(tmp_path: Path) -> None:
    (tmp_path / "stays").write_bytes(b"x" * 1_000_000)

    def come_and_go() -> None:
        for _ in range(40):
            (tmp_path / "new" / "data").mkdir(parents=True)
            for number in range(20):
                (tmp_path / "new" / "data" / str(number)).touch()
            shutil.rmtree(tmp_path / "new")

    thread, told = threading.Thread(target=come_and_go), []
    thread.start()
    while thread.is_alive():
        told.append(stack_commands.lake_size(str(tmp_path)))
    thread.join()
    assert all(one.startswith("1.0 MB in ") for one in told)


def test_status_without_a_stack_is_no_error(frostline: Run) -> None:
    done = frostline("status")
    assert (done.returncode, done.stdout) == (0, "")
    assert "Nothing is running in .frostline" in done.stderr


def test_down_without_a_stack_is_no_error_and_makes_no_directory(frostline: Run, tmp_path: Path) -> None:
    done = frostline("down")
    assert done.returncode == 0
    assert "Nothing is running" in done.stderr
    assert not (tmp_path / ".frostline").exists()


def test_psql_passes_its_arguments_on(frostline: Run, here: tuple[str, str]) -> None:
    done = frostline(*here, "psql", "-c", "SELECT 6 * 7 AS answer")
    assert done.returncode == 0, done.stderr
    assert "answer" in done.stdout
    assert "42" in done.stdout


def test_without_psql_pgcli_takes_its_place(frostline: Run, tmp_path: Path, here: tuple[str, str]) -> None:
    (tmp_path / "bin").mkdir()
    # pgcli writes its configuration on its first run.
    env = {"PATH": str(tmp_path / "bin"), "HOME": str(tmp_path), "XDG_CONFIG_HOME": str(tmp_path / "config")}
    done = frostline(*here, "psql", "-c", "SELECT 6 * 7 AS answer", env=env)
    assert done.returncode == 0, done.stderr
    assert "42" in done.stdout


def test_psql_keeps_the_password_off_the_command_line(
    frostline: Run, tmp_path: Path, stack: Stack, here: tuple[str, str]
) -> None:
    fake = tmp_path / "bin" / "psql"
    fake.parent.mkdir()
    fake.write_text('#!/bin/sh\necho "arguments: $*"; echo "$PGHOST $PGDATABASE $PGUSER $PGPASSWORD"\n')
    fake.chmod(0o755)
    done = frostline(*here, "psql", "--csv", "-x", env={"PATH": f"{fake.parent}:{os.environ['PATH']}"})
    arguments, connection = done.stdout.splitlines()
    assert arguments == "arguments: --csv -x"
    assert connection.startswith("127.0.0.1 app postgres ")
    assert connection.split()[3] in stack.dsn


def test_config_shows_origins_and_masks_secrets(frostline: Run, tmp_path: Path) -> None:
    (tmp_path / "frostline.toml").write_text("[gateway]\nport = 6543\n")
    done = frostline("--dsn", "postgresql://ann:s3cret@db/app", "config", env={"FROSTLINE_SPARK_MASTER": "local[1]"})
    assert done.returncode == 0
    rows = {line.split()[0]: line for line in done.stdout.splitlines()}
    assert "postgresql://ann:********@db/app" in rows["dsn"]
    assert "command line" in rows["dsn"]
    assert "6543" in rows["gateway.port"]
    assert "frostline.toml" in rows["gateway.port"]
    assert "local[1]" in rows["spark.master"]
    assert "FROSTLINE_SPARK_MASTER" in rows["spark.master"]
    assert "default" in rows["gateway.threads"]
    assert "s3cret" not in done.stdout + done.stderr


def test_a_wrong_setting_is_one_sentence(frostline: Run) -> None:
    done = frostline("status", env={"FROSTLINE_GATEWAY_PROT": "1"})
    failed_clearly(done, "FROSTLINE_GATEWAY_PROT")
    assert "did you mean FROSTLINE_GATEWAY_PORT?" in done.stderr


def test_a_postgres_out_of_reach_is_one_sentence(frostline: Run) -> None:
    failed_clearly(frostline("--dsn", "postgresql://127.0.0.1:1/x", "status"), "127.0.0.1")


def test_a_dsn_that_is_none_is_one_sentence(frostline: Run) -> None:
    failed_clearly(frostline("--dsn", "not a dsn", "psql"))


def test_output_that_nobody_reads_is_no_fault(here: tuple[str, str], stack: Stack) -> None:
    with subprocess.Popen(
        command(*here, "config"), env=environment({}), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as run:
        assert run.stdout is not None
        assert run.stderr is not None
        run.stdout.close()
        assert "Traceback" not in run.stderr.read()
    assert stack.complete()
