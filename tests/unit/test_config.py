"""Settings: where they come from, which source wins, and what is said about a wrong one."""

from __future__ import annotations

from pathlib import Path

import pytest

from frostline import config
from frostline.errors import ConfigError


def write(directory: Path, text: str) -> Path:
    file = directory / config.CONFIG_FILE
    file.write_text(text, encoding="utf-8")
    return file


def test_without_any_source_everything_is_default(tmp_path: Path) -> None:
    loaded = config.load(directory=tmp_path, environ={})
    assert loaded.settings == config.Settings.model_validate({})
    assert {value.origin for value in loaded.values()} == {"default"}


def test_later_sources_win_and_are_named_as_the_origin(tmp_path: Path) -> None:
    file = write(tmp_path, "[gateway]\nport = 2\nthreads = 20\nmemory = '2GB'\n[spark]\nmaster = 'file'\n")
    loaded = config.load(
        {"gateway.memory": "4GB"},
        directory=tmp_path,
        environ={"FROSTLINE_GATEWAY_THREADS": "30", "FROSTLINE_GATEWAY_MEMORY": "3GB", "HOME": "/"},
        stack={"gateway.port": "1", "dsn": "postgresql://stack/app"},
    )
    assert loaded.settings.dsn.get_secret_value() == "postgresql://stack/app"
    gateway = loaded.settings.gateway
    assert (gateway.port, gateway.threads, gateway.memory) == (2, 30, "4GB")
    origins = {value.key: value.origin for value in loaded.values()}
    assert origins["dsn"] == "local stack"
    assert origins["gateway.port"] == str(file)
    assert origins["gateway.threads"] == "the environment (FROSTLINE_GATEWAY_THREADS)"
    assert origins["gateway.memory"] == "command line"
    assert origins["spark.memory"] == "default"


def test_an_option_that_was_not_given_does_not_hide_the_other_sources(tmp_path: Path) -> None:
    loaded = config.load({"dsn": ""}, directory=tmp_path, environ={"FROSTLINE_DSN": "postgresql://here/x"})
    assert loaded.settings.dsn.get_secret_value() == "postgresql://here/x"


@pytest.mark.parametrize(
    ("text", "key", "nearest"),
    [
        ("[gateway]\nprot = 1\n", "gateway.prot", "gateway.port"),
        ("dns = 'x'\n", "dns", "dsn"),
        ("[lake]\nwarehous = 'x'\n", "lake.warehous", "lake.warehouse"),
        ("[gatway]\nport = 1\n", "gatway.port", "gateway.port"),
    ],
)
def test_an_unknown_key_in_the_file_is_named_with_the_nearest(
    tmp_path: Path, text: str, key: str, nearest: str
) -> None:
    file = write(tmp_path, text)
    with pytest.raises(ConfigError) as caught:
        config.load(directory=tmp_path, environ={})
    assert caught.value.message == f"unknown setting {key} in {file}"
    assert caught.value.hint == f"did you mean {nearest}?"


def test_an_unknown_variable_is_named_with_the_nearest(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        config.load(directory=tmp_path, environ={"FROSTLINE_GATEWAY_PROT": "1"})
    assert "FROSTLINE_GATEWAY_PROT" in caught.value.message
    assert caught.value.hint == "did you mean FROSTLINE_GATEWAY_PORT?"


def test_a_key_like_no_other_lists_what_there_is(tmp_path: Path) -> None:
    write(tmp_path, "zzzzzzzzzzzzzzzz = 1\n")
    with pytest.raises(ConfigError) as caught:
        config.load(directory=tmp_path, environ={})
    assert caught.value.hint is not None
    for key in config.keys():  # noqa: SIM118 (a module, not a mapping)
        assert key in caught.value.hint


@pytest.mark.parametrize(
    ("environ", "name"),
    [
        ({"FROSTLINE_GATEWAY_PORT": "many"}, "FROSTLINE_GATEWAY_PORT"),
        ({"FROSTLINE_GATEWAY_PORT": "65536"}, "FROSTLINE_GATEWAY_PORT"),
        ({"FROSTLINE_GATEWAY_THREADS": "0"}, "FROSTLINE_GATEWAY_THREADS"),
    ],
)
def test_an_ill_typed_variable_is_named(tmp_path: Path, environ: dict[str, str], name: str) -> None:
    with pytest.raises(ConfigError, match=f"setting {name} in the environment .* has the wrong value"):
        config.load(directory=tmp_path, environ=environ)


def test_an_ill_typed_key_in_the_file_is_named(tmp_path: Path) -> None:
    file = write(tmp_path, "[local]\nport = 'abc'\n")
    with pytest.raises(ConfigError) as caught:
        config.load(directory=tmp_path, environ={})
    assert caught.value.message.startswith(f"setting local.port in {file} has the wrong value: ")


@pytest.mark.parametrize("text", ["gateway = 5\n", "[gateway.port]\nx = 1\n", "[dsn]\nx = 1\n"])
def test_a_section_in_the_place_of_a_value_and_the_reverse_are_errors(tmp_path: Path, text: str) -> None:
    write(tmp_path, text)
    with pytest.raises(ConfigError):
        config.load(directory=tmp_path, environ={})


def test_a_file_that_is_no_toml_is_named(tmp_path: Path) -> None:
    file = write(tmp_path, "[gateway\n")
    with pytest.raises(ConfigError, match="cannot be read") as caught:
        config.load(directory=tmp_path, environ={})
    assert str(file) in caught.value.message


def test_a_file_of_another_name_is_read_when_it_is_named(tmp_path: Path) -> None:
    file = tmp_path / "other.toml"
    file.write_text("[gateway]\nport = 7\n")
    environ = {"FROSTLINE_CONFIG": str(file)}
    assert config.load(directory=tmp_path, environ=environ).settings.gateway.port == 7
    with pytest.raises(ConfigError, match="does not exist"):
        config.load(directory=tmp_path, environ={"FROSTLINE_CONFIG": str(tmp_path / "none.toml")})


@pytest.mark.parametrize(
    ("dsn", "shown"),
    [
        ("postgresql://ann:s3cret@db:5432/app", "postgresql://ann:********@db:5432/app"),
        ("postgresql://ann:s3c:r@t@db/app", "postgresql://ann:********@db/app"),
        ("postgresql://db/app", "postgresql://db/app"),
        ("postgresql://db/app?user=ann&password=s3cret", "postgresql://db/app?user=ann&password=********"),
        ("host=db password=s3cret", "********"),
    ],
)
def test_a_password_is_never_shown(tmp_path: Path, dsn: str, shown: str) -> None:
    loaded = config.load({"dsn": dsn}, directory=tmp_path, environ={})
    assert next(value.text for value in loaded.values() if value.key == "dsn") == shown
    assert "s3c" not in repr(loaded)


def test_the_warehouse_is_an_absolute_path_under_the_stacks_directory(tmp_path: Path) -> None:
    loaded = config.load({"local.dir": str(tmp_path / "x")}, directory=tmp_path, environ={})
    assert loaded.settings.warehouse == str(tmp_path / "x" / "lake")
    named = config.load({"lake.warehouse": "somewhere"}, directory=tmp_path, environ={})
    assert named.settings.warehouse == str(Path.cwd() / "somewhere")


S3_KEYS = {"s3.access_key": "id", "s3.secret_key": "s3cret"}


@pytest.mark.parametrize(
    ("given", "problem", "way_out"),
    [
        ({"lake.warehouse": "gs://bucket/x"}, "gs: is no place a lake can be", "s3://bucket/prefix"),
        ({"lake.warehouse": "s3a://bucket/x"}, "s3a: is no place", "spelled s3:"),
        ({"lake.warehouse": "file:///x"}, "file: is no place", "without file:"),
        ({"lake.warehouse": "s3://b", **S3_KEYS}, "not s3://bucket/prefix", "3 to 63"),
        ({"lake.warehouse": "s3://bucket/a b", **S3_KEYS}, "not s3://bucket/prefix", "letters, digits"),
        ({"lake.warehouse": "s3://bucket/x"}, "s3.access_key and s3.secret_key are not set", "AWS_ACCESS_KEY_ID"),
        ({"lake.warehouse": "s3://bucket/x", "s3.access_key": "id"}, "s3.secret_key is not set", "same place"),
        ({"lake.warehouse": "s3://bucket/x", **S3_KEYS}, "s3.region is not set", "AWS_REGION"),
        ({"lake.warehouse": "s3://bucket/x", "s3.endpoint": "store:9000", **S3_KEYS}, "no address", "http://host:port"),
        ({"lake.warehouse": "s3://bucket/x", "s3.endpoint": "http://me:pw@h", **S3_KEYS}, "more than", "their own"),
        ({"s3.endpoint": "http://h"}, "s3.endpoint is set and would not be used", "lake.warehouse"),
        ({"rest.uri": "http://h"}, "rest.uri is set and would not be used", "lake.catalog = rest"),
        ({"lake.catalog": "rest"}, "rest.uri is not set", "address"),
        ({"lake.catalog": "rest", "rest.uri": "nowhere"}, "no address", "/path"),
        ({"lake.catalog": "rest", "rest.uri": "http://h/x"}, "does not say where", "s3://bucket/prefix"),
        (
            {"lake.catalog": "rest", "rest.uri": "http://h", "rest.token": "t", "rest.credential": "c:s"},
            "both set",
            "keep one",
        ),
        ({"lake.catalog": "glue"}, "lake.catalog", "jdbc"),
    ],
)
def test_settings_that_do_not_fit_together_are_named_with_a_way_out(
    tmp_path: Path, given: dict[str, str], problem: str, way_out: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        config.load(given, directory=tmp_path, environ={})
    assert problem in caught.value.message
    assert way_out in str(caught.value.hint)
    assert "s3cret" not in str(caught.value)
    assert ":pw@" not in str(caught.value)


def test_the_usual_aws_variables_are_used_for_a_lake_on_s3_alone(tmp_path: Path) -> None:
    environ = {
        "AWS_ACCESS_KEY_ID": "id",
        "AWS_SECRET_ACCESS_KEY": "s3cret",
        "AWS_SESSION_TOKEN": "t0ken",
        "AWS_DEFAULT_REGION": "eu-west-1",
        "AWS_ENDPOINT_URL": "https://store",
    }
    without = config.load(directory=tmp_path, environ={}).settings
    assert config.load(directory=tmp_path, environ=environ).settings == without
    loaded = config.load({"lake.warehouse": "s3://bucket"}, directory=tmp_path, environ=environ)
    found = loaded.settings.s3
    assert (found.access_key.get_secret_value(), found.secret_key.get_secret_value()) == ("id", "s3cret")
    assert (found.session_token.get_secret_value(), found.region, found.endpoint) == (
        "t0ken",
        "eu-west-1",
        "https://store",
    )
    shown = {value.key: (value.text, value.origin) for value in loaded.values()}
    assert shown["s3.secret_key"] == ("********", "the environment (AWS_SECRET_ACCESS_KEY)")
    assert "s3cret" not in repr(loaded)
    assert "t0ken" not in repr(loaded)


def test_keys_of_ours_are_never_mixed_with_those_of_aws_variables(tmp_path: Path) -> None:
    environ = {"AWS_SESSION_TOKEN": "of other keys", "AWS_REGION": "eu-west-1"}
    found = config.load({"lake.warehouse": "s3://bucket", **S3_KEYS}, directory=tmp_path, environ=environ).settings.s3
    assert found.session_token.get_secret_value() == ""
    assert found.region == "eu-west-1"


@pytest.mark.parametrize("token", ["plain", "https://looks-like-an-address", "a://b"])
def test_no_secret_is_shown_whatever_it_looks_like(tmp_path: Path, token: str) -> None:
    given = {"lake.catalog": "rest", "rest.uri": "http://h", "lake.warehouse": "/x", "rest.token": token}
    loaded = config.load(given, directory=tmp_path, environ={})
    assert next(value.text for value in loaded.values() if value.key == "rest.token") == "********"


def test_gateways_of_standbys_are_addresses(tmp_path: Path) -> None:
    assert config.addresses("gw2.example.com:5433, [fd00::2]:5434,") == [("gw2.example.com", 5433), ("fd00::2", 5434)]
    for wrong in ("gw2.example.com", "gw2:0", ":5433", "gw2:port"):
        with pytest.raises(ConfigError, match="no host:port"):
            config.load(directory=tmp_path, environ={"FROSTLINE_GATEWAY_STANDBYS": wrong})
