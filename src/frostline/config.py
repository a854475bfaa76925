"""One Settings object, read once from frostline.toml and FROSTLINE_* variables, then passed down.

Later sources win: built-in default, the local stack's own state, the usual AWS_* variables (for a lake on S3),
frostline.toml, FROSTLINE_* variables, the command line. A nested key is spelled `lake.warehouse` in messages,
`[lake] warehouse` in the file and `FROSTLINE_LAKE_WAREHOUSE` in the environment.
"""

from __future__ import annotations

import difflib
import os
import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit, urlunsplit

from pydantic import BaseModel, ByteSize, ConfigDict, Field, SecretStr, ValidationError

from frostline.errors import ConfigError

CONFIG_FILE = "frostline.toml"
ENV_PREFIX = "FROSTLINE_"
# Variables of ours that are no settings: where to look for them, and a test's socket.
ENV_NOT_SETTINGS = frozenset({"FROSTLINE_CONFIG", "FROSTLINE_FAULTS"})
LEAST_FILE = 4_000  # bytes: Iceberg's compaction knows no bounds for files of a quarter of a few bytes
S3 = "s3://"
STACK = "local stack"  # an origin
# What other tools call ours. Keys and token belong together: they are taken from one place or not at all.
_AWS_KEYS: dict[str, tuple[str, ...]] = {
    "s3.access_key": ("AWS_ACCESS_KEY_ID",),
    "s3.secret_key": ("AWS_SECRET_ACCESS_KEY",),
    "s3.session_token": ("AWS_SESSION_TOKEN",),
}
_AWS_OTHERS: dict[str, tuple[str, ...]] = {
    "s3.region": ("AWS_REGION", "AWS_DEFAULT_REGION"),
    "s3.endpoint": ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"),
}


class Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class LakeSettings(Section):
    name: str = Field("frostline", description="the catalog's name, the same for every engine")
    namespace: str = Field("frostline", description="Iceberg namespace our tables live under")
    catalog: Literal["jdbc", "rest"] = Field("jdbc", description="jdbc: tables in the same Postgres; rest: rest.uri")
    warehouse: str = Field("", description="a directory or s3://bucket/prefix (empty: `lake` under local.dir)")
    file_size: ByteSize = Field(
        ByteSize(128_000_000),
        ge=LEAST_FILE,
        description="how much of a partition, as it is in Postgres, makes one data file",
    )


class RestSettings(Section):
    uri: str = Field("", description="address of the Iceberg REST catalog")
    warehouse: str = Field("", description="the warehouse's name in that catalog (empty: its default one)")
    token: SecretStr = Field(SecretStr(""), description="bearer token for the catalog")
    credential: SecretStr = Field(SecretStr(""), description="`client:secret` for OAuth2, instead of a token")
    oauth_uri: str = Field("", description="where the OAuth2 token is asked for (empty: the catalog itself)")
    scope: str = Field("", description="OAuth2 scope (empty: `catalog`)")
    timeout: float = Field(10, gt=0, description="seconds the catalog may stay silent")


class S3Settings(Section):
    endpoint: str = Field("", description="http:// or https:// address of the store (empty: AWS)")
    region: str = Field("", description="region (or AWS_REGION; with an endpoint: us-east-1)")
    access_key: SecretStr = Field(SecretStr(""), description="access key id (or AWS_ACCESS_KEY_ID)")
    secret_key: SecretStr = Field(SecretStr(""), description="secret access key (or AWS_SECRET_ACCESS_KEY)")
    session_token: SecretStr = Field(SecretStr(""), description="token of temporary keys (or AWS_SESSION_TOKEN)")
    path_style: bool | None = Field(None, description="bucket in the path (empty: yes with an endpoint, no on AWS)")
    timeout: float = Field(10, gt=0, description="seconds the store may stay silent; every request is tried twice")


class GatewaySettings(Section):
    listen: str = Field("127.0.0.1", description="address the gateway listens on")
    port: int = Field(0, ge=0, le=65535, description="port the gateway listens on (0: any free one)")
    host: str = Field("", description="how Postgres reaches the gateway (empty: the listen address)")
    standbys: str = Field("", description="gateways of standbys, as host:port,host:port: Postgres is told of them too")
    memory: str = Field("2GB", description="memory DuckDB may use before it spills to disk")
    column_memory: ByteSize = Field(
        ByteSize(256_000_000), ge=0, description="of this, for columns of old rows that are aggregated often (0: none)"
    )
    threads: int = Field(2, ge=1, description="DuckDB threads")
    max_sessions: int = Field(256, ge=1, description="sessions served at once; one more is refused with 53300")
    bulk_rows: int = Field(10_000, ge=1, description="new old rows of one statement that are written to files at once")
    send_timeout: float = Field(300, gt=0, description="seconds a client may leave data unread before it is let go")
    metrics_port: int = Field(0, ge=0, le=65535, description="port of /metrics for Prometheus (0: none)")
    tls_cert: str = Field("", description="certificate file (PEM); with tls_key: TLS is offered and published")
    tls_key: str = Field("", description="private key file (PEM) of tls_cert")


class ArchiveSettings(Section):
    lock_timeout: int = Field(100, ge=1, description="milliseconds others may have to wait behind a lock it asks for")
    lock_patience: float = Field(300, ge=0, description="seconds to go on trying for a lock that others hold")
    orphan_age: float = Field(3600, ge=0, description="seconds before a file nothing refers to may be removed")


class FoldSettings(Section):
    rows: int = Field(10_000, ge=1, description="changes of cold rows that make `frostline archive` fold a table")
    bytes: ByteSize = Field(ByteSize(64_000_000), gt=0, description="the same by their size in Postgres")
    age: float = Field(900, ge=0, description="seconds since the last fold after which any change does")


class MaintenanceSettings(Section):
    every: float = Field(86_400, gt=0, description="seconds between two looks of the worker at a table's files")
    files: int = Field(
        8, ge=2, description="files too many in a partition of the lake, or files with deletes, that get it rewritten"
    )
    deleted_rows: float = Field(
        0.05,
        gt=0,
        le=1,
        description="share of a partition's rows that files of deletes take away before it is rewritten",
    )
    manifests: int = Field(32, ge=2, description="manifests that make them be joined")
    backup_window: float = Field(
        604_800, ge=0, description="seconds back to which a Postgres may be restored: until then its snapshots stay"
    )


class WorkerSettings(Section):
    interval: float = Field(60, gt=0, description="seconds between two rounds of `frostline run`")
    grace: float = Field(30, ge=0, description="seconds its current step may go on when it is told to end")
    longest_pause: float = Field(3600, gt=0, description="seconds a step that keeps failing is left alone at most")
    metrics_port: int = Field(0, ge=0, le=65535, description="port of the worker's /metrics for Prometheus (0: none)")
    listen: str = Field("127.0.0.1", description="address /metrics of the worker listens on")


class SparkSettings(Section):
    master: str = Field("local[*]", description="Spark master")
    memory: str = Field("2g", description="driver memory (in local mode: all of Spark's)")


class LocalSettings(Section):
    dir: Path = Field(Path(".frostline"), description="the embedded stack's directory")
    port: int = Field(0, ge=0, le=65535, description="port of the embedded Postgres (0: any free one)")
    cache: Path | None = Field(None, description="where downloads are kept (empty: the user's cache directory)")


class Settings(Section):
    dsn: SecretStr = Field(SecretStr(""), description="the Postgres to work on (empty: the embedded one)")
    lake: LakeSettings = LakeSettings.model_construct()
    rest: RestSettings = RestSettings.model_construct()
    s3: S3Settings = S3Settings.model_construct()
    gateway: GatewaySettings = GatewaySettings.model_construct()
    archive: ArchiveSettings = ArchiveSettings.model_construct()
    fold: FoldSettings = FoldSettings.model_construct()
    maintenance: MaintenanceSettings = MaintenanceSettings.model_construct()
    worker: WorkerSettings = WorkerSettings.model_construct()
    spark: SparkSettings = SparkSettings.model_construct()
    local: LocalSettings = LocalSettings.model_construct()

    @property
    def warehouse(self) -> str:
        """The lake's root: an absolute path, or s3://bucket/prefix without a slash at its end."""
        if self.on_s3:
            return self.lake.warehouse.rstrip("/")
        return str(Path(self.lake.warehouse or self.local.dir / "lake").expanduser().absolute())

    @property
    def on_s3(self) -> bool:
        return self.lake.warehouse.startswith(S3)


@dataclass(frozen=True)
class Value:
    """One effective setting and where it came from."""

    key: str
    text: str
    origin: str
    description: str


@dataclass(frozen=True)
class Loaded:
    settings: Settings
    origins: Mapping[str, str]

    def values(self) -> Iterator[Value]:
        """Every setting, secrets masked, in the order they are declared."""
        for key, field in keys().items():
            value: Any = self.settings
            for part in key.split("."):
                value = getattr(value, part)
            yield Value(key, masked(value), self.origins.get(key, "default"), field)


def keys() -> dict[str, str]:
    """Every key with its description."""
    found: dict[str, str] = {}
    for name, field in Settings.model_fields.items():
        section = field.annotation
        if isinstance(section, type) and issubclass(section, Section):
            found |= {f"{name}.{inner}": f.description or "" for inner, f in section.model_fields.items()}
        else:
            found[name] = field.description or ""
    return found


def env_name(key: str) -> str:
    return ENV_PREFIX + key.replace(".", "_").upper()


def load(
    overrides: Mapping[str, str] | None = None,
    *,
    directory: Path | None = None,
    environ: Mapping[str, str] | None = None,
    stack: Mapping[str, str] | None = None,
) -> Loaded:
    """Read every source; an unknown or ill-typed key is an error that names it."""
    environ = os.environ if environ is None else environ
    flat: dict[str, Any] = {}
    origins: dict[str, str] = {}
    for origin, source in (
        (STACK, dict(stack or {})),
        *_file(directory or Path.cwd(), environ),
        *_environment(environ),
        ("command line", {k: v for k, v in (overrides or {}).items() if v}),
    ):
        for key, value in source.items():
            if key not in keys():
                raise ConfigError(f"unknown setting {_spelled(key, origin)} in {origin}", hint=_nearest(key, origin))
            flat[key], origins[key] = value, origin
    if str(flat.get("lake.warehouse", "")).startswith(S3):
        for key, origin, value in _aws(environ, flat):
            flat[key], origins[key] = value, origin
    try:
        settings = Settings.model_validate(_nested(flat))
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(str(part) for part in first["loc"])
        origin = origins.get(key, "default")
        raise ConfigError(
            f"setting {_spelled(key, origin)} in {origin} has the wrong value: {first['msg'].lower()}",
            hint=f"{key}: {keys().get(key, '')}",
        ) from None
    check(settings, origins)
    return Loaded(settings, origins)


def check(settings: Settings, origins: Mapping[str, str]) -> None:
    """Settings that are right one by one and wrong together: each with the reason and the way out."""
    _check_warehouse(settings, origins)
    addresses(settings.gateway.standbys)
    if settings.on_s3:
        # Commands that only look at a running stack need no keys; whoever opens the lake asks again.
        if origins.get("lake.warehouse") != STACK:
            check_s3(settings.s3)
    else:
        _unused(settings.s3, "s3", ("endpoint", "access_key", "secret_key"), f"the lake is in {settings.warehouse}")
    if settings.lake.catalog == "rest":
        _check_rest(settings)
    else:
        _unused(settings.rest, "rest", ("uri", "token", "credential"), "lake.catalog is jdbc")


def addresses(text: str) -> list[tuple[str, int]]:
    """host:port,host:port"""
    found = []
    for part in filter(None, (part.strip() for part in text.split(","))):
        host, _, port = part.rpartition(":")
        if not host or not port.isdecimal() or not 0 < int(port) < 65536:
            raise ConfigError(f"gateway.standbys has {part}, which is no host:port", hint="gw2.example.com:5433")
        found.append((host.strip("[]"), int(port)))
    return found


def _check_warehouse(settings: Settings, origins: Mapping[str, str]) -> None:
    found = settings.lake.warehouse
    scheme = re.match(r"([A-Za-z][A-Za-z0-9+.-]*):", found)
    if scheme is None:
        return
    key = _spelled("lake.warehouse", origins.get("lake.warehouse", "default"))
    if not settings.on_s3:
        raise ConfigError(
            f"{key} is {found}, and {scheme[1]}: is no place a lake can be",
            hint="name a directory, without file:, or s3://bucket/prefix (s3a: and s3n: are spelled s3: here)",
        )
    # Other characters are patterns, queries or escapes to one of the engines that read the lake.
    if re.fullmatch(r"s3://[a-z0-9][a-z0-9.-]{1,61}[a-z0-9](/[A-Za-z0-9!_.'()=@+-]+)*/?", found) is None:
        raise ConfigError(
            f"{key} is {found}, which is not s3://bucket/prefix",
            hint="a bucket's name has 3 to 63 of a-z, 0-9, dot and hyphen; a prefix letters, digits and !_.'()=@+-",
        )


def check_s3(s3: S3Settings) -> None:
    """Whether there is all that is needed to open a lake on S3."""
    missing = [name for name in ("access_key", "secret_key") if not getattr(s3, name).get_secret_value()]
    if missing:
        raise ConfigError(
            f"the lake is on S3, and {' and '.join(f's3.{name}' for name in missing)} "
            f"{'is' if len(missing) == 1 else 'are'} not set",
            hint="set FROSTLINE_S3_ACCESS_KEY and FROSTLINE_S3_SECRET_KEY (or AWS_ACCESS_KEY_ID and "
            "AWS_SECRET_ACCESS_KEY), both in the same place",
        )
    if not s3.endpoint and not s3.region:
        raise ConfigError("the lake is on S3 at AWS, and s3.region is not set", hint="set it, or AWS_REGION")
    if s3.endpoint:
        _check_address("s3.endpoint", s3.endpoint, path=False)


def _check_rest(settings: Settings) -> None:
    rest = settings.rest
    if not rest.uri:
        raise ConfigError(
            "lake.catalog is rest, and rest.uri is not set", hint="set it to the address of the Iceberg REST catalog"
        )
    _check_address("rest.uri", rest.uri, path=True)
    if rest.token.get_secret_value() and rest.credential.get_secret_value():
        raise ConfigError("rest.token and rest.credential are both set", hint="keep one of them")
    if not settings.lake.warehouse:
        raise ConfigError(
            "lake.catalog is rest, and lake.warehouse does not say where that catalog keeps its tables",
            hint="set it to the catalog's own place for them, for example s3://bucket/prefix",
        )


def _check_address(key: str, text: str, *, path: bool) -> None:
    parts = urlsplit(text)
    if parts.scheme not in ("http", "https") or not parts.hostname or (parts.path.strip("/") and not path):
        raise ConfigError(
            f"{key} is {_without_password(text)}, which is no address",
            hint=f"spell it http://host:port{'/path' if path else ''}, or https:// for TLS",
        )
    if parts.username or parts.query or parts.fragment:
        raise ConfigError(f"{key} holds more than an address", hint="keys and tokens have settings of their own")


def _unused(section: Section, name: str, keys_: tuple[str, ...], reason: str) -> None:
    """A setting that changes nothing was meant to change something."""
    for key in keys_:
        value = getattr(section, key)
        if value.get_secret_value() if isinstance(value, SecretStr) else value:
            raise ConfigError(
                f"{name}.{key} is set and would not be used: {reason}",
                hint=f"set {'lake.warehouse = s3://bucket/prefix' if name == 's3' else 'lake.catalog = rest'}, "
                f"or remove {name}.{key}",
            )


def masked(value: object) -> str:
    """A setting as it may be shown to anyone."""
    if not isinstance(value, SecretStr):
        return "" if value is None else str(value)
    secret = value.get_secret_value()
    if secret.startswith(("postgresql://", "postgres://")):
        return _without_password(secret)
    return "********" if secret else ""


def _without_password(url: str) -> str:
    parts = urlsplit(url)
    # libpq takes a password among the parameters too.
    parts = parts._replace(query=re.sub(r"(password=)[^&]*", r"\1********", parts.query))
    user, colon, _ = parts.netloc.rpartition("@")[0].partition(":")
    if colon:
        parts = parts._replace(netloc=f"{user}:********@{parts.netloc.rpartition('@')[2]}")
    return urlunsplit(parts)


def _file(directory: Path, environ: Mapping[str, str]) -> Iterator[tuple[str, dict[str, Any]]]:
    named = environ.get("FROSTLINE_CONFIG")
    path = Path(named) if named else directory / CONFIG_FILE
    try:
        data = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        if named:
            raise ConfigError(f"FROSTLINE_CONFIG names {path}, which does not exist") from None
        return
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ConfigError(f"{path} cannot be read: {error}") from None
    flat: dict[str, Any] = {}
    for name, value in data.items():
        if isinstance(value, dict):
            flat |= {f"{name}.{inner}": v for inner, v in value.items()}
        else:
            flat[name] = value
    yield str(path), flat


def _environment(environ: Mapping[str, str]) -> Iterator[tuple[str, dict[str, Any]]]:
    known = {env_name(key): key for key in keys()}
    for name in sorted(environ):
        if name.startswith(ENV_PREFIX) and name not in ENV_NOT_SETTINGS:
            yield f"the environment ({name})", {known.get(name, name): environ[name]}


def _aws(environ: Mapping[str, str], flat: Mapping[str, Any]) -> Iterator[tuple[str, str, str]]:
    """What the usual AWS variables say about settings that were not made otherwise."""
    wanted = {key: names for key, names in _AWS_OTHERS.items() if not flat.get(key)}
    if not any(flat.get(key) for key in _AWS_KEYS):
        wanted |= _AWS_KEYS
    for key, names in wanted.items():
        name = next((name for name in names if environ.get(name)), None)
        if name is not None:
            yield key, f"the environment ({name})", environ[name]


def _nested(flat: Mapping[str, Any]) -> dict[str, Any]:
    nested: dict[str, Any] = {}
    for key, value in flat.items():
        section, _, inner = key.rpartition(".")
        (nested.setdefault(section, {}) if section else nested)[inner] = value
    return nested


def _spelled(key: str, origin: str) -> str:
    return env_name(key) if origin.startswith("the environment") and key in keys() else key


def _nearest(key: str, origin: str) -> str:
    names = [env_name(k) for k in keys()] if origin.startswith("the environment") else list(keys())
    close = difflib.get_close_matches(key, names, n=1, cutoff=0.4)
    if close:
        return f"did you mean {close[0]}?"
    return f"the settings are: {', '.join(names)}"
