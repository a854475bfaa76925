"""Downloads: what goes wrong is said in one sentence, and the cache holds whole files or none.

No test here needs the network: where a download has to succeed, the `java` on the PATH is a script that plays Ivy and
takes the files from the cache that set-up has filled.
"""

from __future__ import annotations

import os
import shutil
import signal
import stat
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from fix_commands import Run, command, environment, failed_clearly
from frostline import config
from frostline.errors import SetupError
from frostline.local import artifacts
from frostline.local.artifacts import Artifacts
from frostline.report import Report

DEAD_PROXY = "-Dhttp.proxyHost=127.0.0.1 -Dhttp.proxyPort=1 -Dhttps.proxyHost=127.0.0.1 -Dhttps.proxyPort=1"
root_only = pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount")


def mount(*arguments: str | Path) -> None:
    """Mount for one test; a container may forbid it even to root."""
    done = subprocess.run(["mount", *arguments], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        pytest.skip(f"cannot mount here: {done.stderr.strip()}")


@pytest.fixture(scope="module")
def filled(report: Report) -> Artifacts:
    """The cache of this machine, filled by set-up."""
    return artifacts.fetch(config.load().settings, report=report)


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    return tmp_path / "cache"


def a_java(directory: Path, instead_of_ivy: str) -> dict[str, str | None]:
    """A `java` on the PATH that knows its version and does this shell code when asked for Ivy."""
    directory.mkdir(exist_ok=True)
    script = directory / "java"
    wanted = r's/.*<dependency org="[^"]*" name="\([^"]*\)" rev="\([^"]*\)".*/\1-\2.jar/p'
    script.write_text(f"""#!/bin/sh
if [ "$1" = -version ]; then echo 'openjdk version "17.0.9"' >&2; exit 0; fi
while [ $# -gt 0 ]; do
    case $1 in
        -ivy) name=$(sed -n '{wanted}' "$2"); shift ;;
        -retrieve) out=${{2%/*}}; shift ;;
    esac
    shift
done
echo "$name" >>'{directory}/asked'
{instead_of_ivy}
""")
    script.chmod(0o755)
    return {"PATH": f"{directory}:{os.environ['PATH']}", "JAVA_HOME": None}


def mirror(filled: Artifacts) -> str:
    return f'cp "{filled.jars[0].parent}/$name" "$out/"'


def contents(cache: Path) -> set[str]:
    """Everything in the cache that a later run could take for complete."""
    return {str(path.relative_to(cache)) for path in cache.rglob("*") if path.is_file() and path.name != ".lock"}


def test_without_java_it_says_so(frostline: Run, tmp_path: Path, cache: Path) -> None:
    (tmp_path / "bin").mkdir()
    done = frostline("fetch", env={"PATH": f"{tmp_path}/bin", "JAVA_HOME": None, "FROSTLINE_LOCAL_CACHE": str(cache)})
    failed_clearly(done, "Java 17", "no java on the PATH")
    assert not cache.exists()


def test_java_home_without_java_is_named(frostline: Run, tmp_path: Path) -> None:
    failed_clearly(frostline("fetch", env={"JAVA_HOME": str(tmp_path)}), "JAVA_HOME", str(tmp_path))


@pytest.mark.parametrize(("version", "number"), [("11.0.20", "11"), ("1.8.0_392", "8")])
def test_an_old_java_is_named_with_its_version(frostline: Run, tmp_path: Path, version: str, number: str) -> None:
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\"' >&2\n")
    java.chmod(0o755)
    done = frostline("fetch", env={"PATH": f"{java.parent}:{os.environ['PATH']}", "JAVA_HOME": None})
    failed_clearly(done, "Java 17", str(java), f"is Java {number}")


def test_without_a_network_nothing_is_kept_and_it_says_so(frostline: Run, cache: Path) -> None:
    done = frostline("fetch", env={"JAVA_TOOL_OPTIONS": DEAD_PROXY, "FROSTLINE_LOCAL_CACHE": str(cache)})
    failed_clearly(done, "iceberg-spark-runtime", "the Maven repository is out of reach")
    assert contents(cache) == set()


@pytest.mark.usefixtures("filled")
def test_with_a_filled_cache_no_network_is_needed(frostline: Run, report: Report) -> None:
    artifacts.fetch_jar(artifacts.S3_JAR, config.load().settings, report=report)
    done = frostline("fetch", "--s3", env={"JAVA_TOOL_OPTIONS": DEAD_PROXY})
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_an_empty_cache_is_filled_and_every_file_is_the_pinned_one(
    frostline: Run, tmp_path: Path, cache: Path, filled: Artifacts
) -> None:
    env = a_java(tmp_path / "bin", mirror(filled)) | {"FROSTLINE_LOCAL_CACHE": str(cache)}
    assert frostline("fetch", env=env).returncode == 0
    for jar in filled.jars:
        assert (cache / "jars" / jar.name).read_bytes() == jar.read_bytes()
    postgres = cache / filled.postgres.name / "bin" / "postgres"
    # As root the server runs as another user, to whom pytest's directories are closed: unpacked elsewhere.
    assert postgres.exists() or os.geteuid() == 0
    assert not list(cache.glob(".staging-*"))


def test_a_damaged_download_is_thrown_away(frostline: Run, tmp_path: Path, cache: Path) -> None:
    env = a_java(tmp_path / "bin", 'echo "<html>please log in</html>" >"$out/$name"')
    done = frostline("fetch", env=env | {"FROSTLINE_LOCAL_CACHE": str(cache)})
    failed_clearly(done, "iceberg-spark-runtime", "damaged", "thrown away")
    assert contents(cache) == set()


def test_a_cache_entry_that_went_bad_is_fetched_again(
    frostline: Run, tmp_path: Path, cache: Path, filled: Artifacts
) -> None:
    (cache / "jars").mkdir(parents=True)
    for jar in filled.jars:
        shutil.copy(jar, cache / "jars")
    bad = cache / "jars" / filled.jars[1].name
    with bad.open("r+b") as file:
        file.seek(1000)
        file.write(b"\0\0\0\0\0\0\0\0")
    env = a_java(tmp_path / "bin", mirror(filled)) | {"FROSTLINE_LOCAL_CACHE": str(cache)}
    done = frostline("fetch", env=env)
    assert done.returncode == 0, done.stderr
    assert f"{bad} is damaged" in done.stderr
    assert bad.read_bytes() == filled.jars[1].read_bytes()
    assert filled.jars[0].name not in (tmp_path / "bin" / "asked").read_text()


def test_two_runs_at_once_fetch_everything_once(tmp_path: Path, cache: Path, filled: Artifacts) -> None:
    env = environment(a_java(tmp_path / "bin", mirror(filled)) | {"FROSTLINE_LOCAL_CACHE": str(cache)})
    runs = [subprocess.Popen(command("fetch"), env=env, stderr=subprocess.DEVNULL) for _ in range(2)]
    assert [run.wait(300) for run in runs] == [0, 0]
    asked = (tmp_path / "bin" / "asked").read_text().split()
    assert sorted(asked) == sorted(set(asked))
    assert len(asked) == 3


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT, signal.SIGTERM])
def test_a_run_that_was_killed_leaves_nothing_that_looks_complete(
    frostline: Run, tmp_path: Path, cache: Path, filled: Artifacts, number: signal.Signals
) -> None:
    slow = a_java(tmp_path / "slow", 'head -c 1000 /dev/zero >"$out/$name"; exec sleep 60')
    env = environment(slow | {"FROSTLINE_LOCAL_CACHE": str(cache)})
    with subprocess.Popen(command("fetch"), env=env, stderr=subprocess.PIPE, text=True, start_new_session=True) as run:
        deadline = time.monotonic() + 120
        while not list(cache.glob(".staging-*/*.jar")):
            assert time.monotonic() < deadline, "nothing is fetched"
            time.sleep(0.02)
        os.killpg(run.pid, number)
        said = run.communicate(timeout=120)[1]
    assert run.returncode == {signal.SIGKILL: -9, signal.SIGINT: 130, signal.SIGTERM: 143}[number]
    assert "Traceback" not in said
    assert list((cache / "jars").iterdir()) == []
    assert bool(list(cache.glob(".staging-*"))) == (number == signal.SIGKILL)
    again = a_java(tmp_path / "bin", mirror(filled)) | {"FROSTLINE_LOCAL_CACHE": str(cache)}
    assert frostline("fetch", env=again).returncode == 0
    assert not list(cache.glob(".staging-*"))


@pytest.fixture
def small_disk(open_directory: Path, request: pytest.FixtureRequest) -> Iterator[Path]:
    """A file system of its own for the cache, of the size the test asks for."""
    disk = open_directory / "disk"
    disk.mkdir(exist_ok=True)
    mount("-t", "tmpfs", "-o", f"size={request.param},mode=755", "tmpfs", disk)
    yield disk
    subprocess.run(["umount", disk], check=True)


@root_only
@pytest.mark.parametrize("small_disk", ["20m", "70m"], indirect=True, ids=["while downloading", "while unpacking"])
def test_a_full_disk_is_named_and_nothing_half_written_stays(
    frostline: Run, tmp_path: Path, small_disk: Path, filled: Artifacts
) -> None:
    env = a_java(tmp_path / "bin", mirror(filled)) | {"FROSTLINE_LOCAL_CACHE": str(small_disk)}
    failed_clearly(frostline("fetch", env=env), str(small_disk), "is full")
    jars = {artifact.file: artifact.size for artifact in (*artifacts.JARS, *artifacts.POSTGRES.values())}
    for left in contents(small_disk):
        assert (small_disk / left).stat().st_size == jars[Path(left).name]
    assert not list(small_disk.glob(".staging-*"))


@pytest.fixture
def read_only(tmp_path: Path) -> Iterator[Path]:
    """An empty directory that even root cannot write to."""
    disk = tmp_path / "read-only"
    disk.mkdir()
    if os.geteuid() != 0:
        disk.chmod(stat.S_IRUSR | stat.S_IXUSR)
        yield disk
        disk.chmod(stat.S_IRWXU)
        return
    mount("-t", "tmpfs", "-o", "ro", "tmpfs", disk)
    yield disk
    subprocess.run(["umount", disk], check=True)


@pytest.mark.parametrize("inside", ["", "deeper"])
def test_a_read_only_cache_is_named(frostline: Run, read_only: Path, inside: str) -> None:
    done = frostline("fetch", env={"FROSTLINE_LOCAL_CACHE": str(read_only / inside)})
    failed_clearly(done, str(read_only), "cannot be written to")


@root_only
def test_a_filled_read_only_cache_is_enough(frostline: Run, open_directory: Path, filled: Artifacts) -> None:
    bound = open_directory / "bound"
    bound.mkdir()
    mount("--bind", filled.postgres.parent, bound)
    try:
        mount("-o", "remount,ro,bind", bound)
        done = frostline("fetch", env={"FROSTLINE_LOCAL_CACHE": str(bound), "JAVA_TOOL_OPTIONS": DEAD_PROXY})
        assert (done.returncode, done.stderr) == (0, "")
    finally:
        subprocess.run(["umount", bound], check=True)


@pytest.mark.parametrize(("system", "machine"), [("Linux", "riscv64"), ("Windows", "AMD64"), ("Darwin", "ppc")])
def test_an_unsupported_platform_is_named(
    monkeypatch: pytest.MonkeyPatch, cache: Path, report: Report, system: str, machine: str
) -> None:
    monkeypatch.setattr("platform.system", lambda: system)
    monkeypatch.setattr("platform.machine", lambda: machine)
    with pytest.raises(
        SetupError, match=f"no embedded Postgres for this platform .{system.lower()} on {machine.lower()}"
    ):
        artifacts.fetch(config.load({"local.cache": str(cache)}).settings, report=report)
    assert not cache.exists()
