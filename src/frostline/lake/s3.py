"""S3 as every engine wants to be told about it, and what its errors mean."""

from __future__ import annotations

import re
from urllib.parse import urlsplit

import duckdb
from pyarrow.fs import AwsStandardS3RetryStrategy

from frostline.config import S3Settings
from frostline.errors import LakeError
from frostline.lake.duck import quote

ATTEMPTS = 2
_RETRY_MS = 500
_HELP = "docs/storage.md lists what the keys must be allowed to do"
# What the engines say, each in its own words, and what it means.
_MEANINGS = (
    (r"no_?such_?bucket", "there is no such bucket", "create it, or correct lake.warehouse"),
    (
        r"(?i:signature_?does_?not_?match|invalid_?access_?key_?id|access_?denied|forbidden|\b403\b|"
        r"expired_?token|invalid_?token)",
        "the store refuses these keys",
        f"check s3.access_key, s3.secret_key and s3.session_token; {_HELP}",
    ),
    (
        r"timeout was reached|timed out|curlcode: 28",
        "the store does not answer in time",
        "try again when it does; s3.timeout says how long it may stay silent",
    ),
    (
        r"could not connect|connection refused|curlcode: 7\b|could not resolve|unable to connect|curlcode: 6\b",
        "the store cannot be reached",
        "is it running, is s3.endpoint right? try again when it answers",
    ),
    (
        r"\b404\b|not found|does not exist|no such file",
        "a file, or the whole bucket, is not there",
        "look whether somebody removed files from the bucket: Frostline itself never removes what is in use",
    ),
)


class Retries(AwsStandardS3RetryStrategy):  # type: ignore[misc]  # pyarrow has no types
    """PyIceberg makes one by its name, without arguments."""

    def __init__(self) -> None:
        super().__init__(max_attempts=ATTEMPTS)


def python(s3: S3Settings) -> dict[str, str]:
    """For PyIceberg on PyArrow."""
    return _common(s3) | {
        "s3.region": _region(s3),
        "s3.force-virtual-addressing": str(not _path_style(s3)),
        "s3.connect-timeout": str(s3.timeout),
        "s3.request-timeout": str(s3.timeout),
        "s3.retry-strategy-impl": f"{__name__}.{Retries.__name__}",
    }


def spark(s3: S3Settings) -> dict[str, str]:
    """For Iceberg's Java library on the AWS SDK."""
    milliseconds = str(int(s3.timeout * 1000))
    return _common(s3) | {
        "io-impl": "org.apache.iceberg.aws.s3.S3FileIO",
        "client.region": _region(s3),
        "s3.path-style-access": str(_path_style(s3)).lower(),
        "http-client.type": "apache",
        "http-client.apache.connection-timeout-ms": milliseconds,
        "http-client.apache.socket-timeout-ms": milliseconds,
        "s3.retry.num-retries": str(ATTEMPTS - 1),
        "s3.retry.min-wait-ms": str(_RETRY_MS),
        "s3.retry.max-wait-ms": str(_RETRY_MS * 4),
    }


def configure(engine: duckdb.DuckDBPyConnection, s3: S3Settings, root: str) -> None:
    """Keys for this lake alone, in memory; what was read once is not asked for again, for files never change."""
    for name, value in {
        "enable_global_s3_configuration": "false",  # keys come from our settings or not at all
        "s3_url_compatibility_mode": "true",  # names are names, not patterns
        "http_timeout": str(max(1, round(s3.timeout))),
        "http_retries": str(ATTEMPTS - 1),
        "http_retry_wait_ms": str(_RETRY_MS),
        "enable_http_metadata_cache": "true",
    }.items():
        engine.execute(f"SET GLOBAL {name} = {value}")  # for every cursor
    address = urlsplit(s3.endpoint)
    options = {
        "KEY_ID": quote(s3.access_key.get_secret_value()),
        "SECRET": quote(s3.secret_key.get_secret_value()),
        "REGION": quote(_region(s3)),
        "URL_STYLE": "'path'" if _path_style(s3) else "'vhost'",
        "SCOPE": quote(f"{root}/"),
    }
    if s3.session_token.get_secret_value():
        options["SESSION_TOKEN"] = quote(s3.session_token.get_secret_value())
    if s3.endpoint:
        options |= {"ENDPOINT": quote(address.netloc), "USE_SSL": str(address.scheme == "https").lower()}
    given = ", ".join(f"{name} {value}" for name, value in options.items())
    try:
        engine.execute(f"CREATE SECRET frostline IN memory (TYPE s3, {given})")
    except duckdb.Error:
        # DuckDB's own words may repeat the statement.
        raise LakeError("DuckDB does not take the keys of the lake", hint="look at the settings s3.*") from None


def said(line: str, s3: S3Settings) -> tuple[str, str]:
    """An engine's error as what it means, with the engine's own words and without any key, and what to do."""
    for secret in (s3.access_key, s3.secret_key, s3.session_token):
        if secret.get_secret_value():
            line = line.replace(secret.get_secret_value(), "********")
    for pattern, meaning, hint in _MEANINGS:
        if re.search(pattern, line, re.IGNORECASE):
            return f"{meaning} ({line})", hint
    return line, _HELP


def _common(s3: S3Settings) -> dict[str, str]:
    given = {
        "s3.access-key-id": s3.access_key.get_secret_value(),
        "s3.secret-access-key": s3.secret_key.get_secret_value(),
        "s3.session-token": s3.session_token.get_secret_value(),
        "s3.endpoint": s3.endpoint,
    }
    return {name: value for name, value in given.items() if value}


def _region(s3: S3Settings) -> str:
    return s3.region or "us-east-1"


def _path_style(s3: S3Settings) -> bool:
    return bool(s3.endpoint) if s3.path_style is None else s3.path_style
