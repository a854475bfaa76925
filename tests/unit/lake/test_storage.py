"""Where a lake's files are, as each engine spells it, and what its errors mean."""

from __future__ import annotations

from pathlib import Path

import pytest

from frostline import config
from frostline.errors import ConfigError, LakeError
from frostline.lake import s3, storage
from frostline.lake.storage import Local, duckdb_name, duckdb_pattern

KEYS = {"s3.access_key": "AKIAEXAMPLE", "s3.secret_key": "very-secret"}


def settings(tmp_path: Path, **options: str) -> config.Settings:
    given = {name.replace("__", "."): value for name, value in options.items()}
    return config.load({**KEYS, **given}, directory=tmp_path, environ={}).settings


@pytest.mark.parametrize("uri", ["file:/a/b c/[x]*?", "file://a/b c/[x]*?", "file:///a/b c/[x]*?", "/a/b c/[x]*?"])
def test_a_file_has_one_path_however_its_uri_is_written(uri: str) -> None:
    assert duckdb_name(uri) == "'/a/b c/[x]*?'"
    assert duckdb_pattern(uri) == "'/a/b c/[[]x][*][?]'"


def test_a_name_on_s3_is_no_pattern() -> None:
    assert duckdb_pattern("s3://lake/p/it's [1].parquet") == "'s3://lake/p/it''s [1].parquet'"


def test_a_lake_holds_what_is_under_it_and_not_what_only_begins_alike() -> None:
    lake = Local("/data/lake")
    assert lake.holds("file:///data/lake/public/events")
    assert lake.holds("file:/data/lake")
    assert not lake.holds("file:///data/lake2/public/events")
    assert not lake.holds("s3://data/lake/public/events")


def test_s3_is_told_to_every_engine_alike(tmp_path: Path) -> None:
    found = storage.of(settings(tmp_path, lake__warehouse="s3://lake/p/", s3__endpoint="http://store:9000"))
    assert found.root == "s3://lake/p"
    for properties in (found.python(), found.spark()):
        assert properties["s3.endpoint"] == "http://store:9000"
        assert properties["s3.secret-access-key"] == "very-secret"
        assert "s3.session-token" not in properties
    assert found.python()["s3.force-virtual-addressing"] == "False"
    assert found.spark()["s3.path-style-access"] == "true"


def test_aws_itself_has_buckets_in_host_names(tmp_path: Path) -> None:
    found = storage.of(settings(tmp_path, lake__warehouse="s3://lake", s3__region="eu-central-1"))
    assert found.spark()["s3.path-style-access"] == "false"
    assert found.spark()["client.region"] == found.python()["s3.region"] == "eu-central-1"


def test_without_keys_a_lake_on_s3_is_not_opened(tmp_path: Path) -> None:
    loaded = config.load(directory=tmp_path, environ={}, stack={"lake.warehouse": "s3://lake/p"}).settings
    with pytest.raises(ConfigError, match=r"s3\.access_key and s3\.secret_key are not set"):
        storage.of(loaded)


@pytest.mark.parametrize(
    ("line", "meaning"),
    [
        ("AWS Error NO_SUCH_BUCKET during CreateMultipartUpload operation", "there is no such bucket"),
        ("AWS Error SIGNATURE_DOES_NOT_MATCH during PutObject", "the store refuses these keys"),
        ("HTTP GET error reading 's3://x' (HTTP 403 Forbidden)", "the store refuses these keys"),
        ("The provided token has expired (ExpiredToken)", "the store refuses these keys"),
        ("IO Error: Timeout was reached error for HTTP HEAD to 'http://x'", "the store does not answer in time"),
        ("SdkClientException: Unable to execute HTTP request: Read timed out", "the store does not answer in time"),
        ("IO Error: Could not connect to server error for HTTP HEAD", "the store cannot be reached"),
        ("java.net.ConnectException: Connection refused", "the store cannot be reached"),
    ],
)
def test_an_engines_words_are_given_their_meaning(tmp_path: Path, line: str, meaning: str) -> None:
    found = settings(tmp_path, lake__warehouse="s3://lake/p", s3__region="x").s3
    what, hint = s3.said(line, found)
    assert what == f"{meaning} ({line})"
    assert hint


def test_a_key_in_an_engines_words_is_masked(tmp_path: Path) -> None:
    found = settings(tmp_path, lake__warehouse="s3://lake/p", s3__region="x").s3
    what, _ = s3.said("AKIAEXAMPLE with very-secret is wrong", found)
    assert what == "******** with ******** is wrong"


def test_the_probe_leaves_nothing_behind_and_names_what_is_in_the_way(tmp_path: Path) -> None:
    Local(str(tmp_path / "new" / "lake")).probe()
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(LakeError, match="writing to it failed; nothing was changed"):
        Local(str(tmp_path / "file")).probe()
