"""One Settings object, read once from frostline.toml and FROSTLINE_* variables, then passed down.

Later sources win: built-in default, the local stack's own state, frostline.toml, FROSTLINE_* variables, the
command line. A nested key is spelled `lake.warehouse` in messages, `[lake] warehouse` in the file and
`FROSTLINE_LAKE_WAREHOUSE` in the environment.
"""

from __future__ import annotations

import difflib
import os
import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit

from pydantic import BaseModel, ByteSize, ConfigDict, Field, SecretStr, ValidationError

from frostline.errors import ConfigError

CONFIG_FILE = "frostline.toml"
ENV_PREFIX = "FROSTLINE_"
# Variables of ours that are no settings: where to look for them, and a test's socket.
ENV_NOT_SETTINGS = frozenset({"FROSTLINE_CONFIG", "FROSTLINE_FAULTS"})


class Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class LakeSettings(Section):
    name: str = Field("frostline", description="the catalog's name, the same for every engine")
    namespace: str = Field("frostline", description="Iceberg namespace our tables live under")
    warehouse: str = Field("", description="directory of the lake (empty: `lake` under local.dir)")
    file_size: ByteSize = Field(
        ByteSize(128_000_000), gt=0, description="how much of a partition, as it is in Postgres, makes one data file"
    )


class GatewaySettings(Section):
    listen: str = Field("127.0.0.1", description="address the gateway listens on")
    port: int = Field(0, ge=0, le=65535, description="port the gateway listens on (0: any free one)")
    host: str = Field("", description="how Postgres reaches the gateway (empty: the listen address)")
    memory: str = Field("2GB", description="memory DuckDB may use before it spills to disk")
    threads: int = Field(2, ge=1, description="DuckDB threads")
    max_sessions: int = Field(256, ge=1, description="sessions served at once; one more is refused with 53300")
    send_timeout: float = Field(300, gt=0, description="seconds a client may leave data unread before it is let go")
    metrics_port: int = Field(0, ge=0, le=65535, description="port of /metrics for Prometheus (0: none)")
    tls_cert: str = Field("", description="certificate file (PEM); with tls_key: TLS is offered and published")
    tls_key: str = Field("", description="private key file (PEM) of tls_cert")


class ArchiveSettings(Section):
    lock_timeout: int = Field(100, ge=1, description="milliseconds others may have to wait behind a lock it asks for")
    lock_patience: float = Field(300, ge=0, description="seconds to go on trying for a lock that others hold")
    orphan_age: float = Field(3600, ge=0, description="seconds before a file nothing refers to may be removed")


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
    gateway: GatewaySettings = GatewaySettings.model_construct()
    archive: ArchiveSettings = ArchiveSettings.model_construct()
    spark: SparkSettings = SparkSettings.model_construct()
    local: LocalSettings = LocalSettings.model_construct()

    @property
    def warehouse(self) -> str:
        """The lake's root as an absolute path."""
        return str(Path(self.lake.warehouse or self.local.dir / "lake").expanduser().absolute())


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
        ("local stack", dict(stack or {})),
        *_file(directory or Path.cwd(), environ),
        *_environment(environ),
        ("command line", {k: v for k, v in (overrides or {}).items() if v}),
    ):
        for key, value in source.items():
            if key not in keys():
                raise ConfigError(f"unknown setting {_spelled(key, origin)} in {origin}", hint=_nearest(key, origin))
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
    return Loaded(settings, origins)


def masked(value: object) -> str:
    """A setting as it may be shown to anyone."""
    if not isinstance(value, SecretStr):
        return "" if value is None else str(value)
    secret = value.get_secret_value()
    return _without_password(secret) if "://" in secret else ("********" if secret else "")


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
