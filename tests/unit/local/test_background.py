"""What a background process is told: every setting, with the secrets it needs."""

from __future__ import annotations

from pathlib import Path

from frostline import config
from frostline.local.background import environment


def test_a_gateway_started_by_us_has_the_very_same_lake(tmp_path: Path) -> None:
    given = {
        "lake.catalog": "rest",
        "lake.warehouse": "s3://bucket/prefix",
        "rest.uri": "http://catalog",
        "rest.token": "t0ken",
        "s3.endpoint": "http://store:9000",
        "s3.access_key": "id",
        "s3.secret_key": "s3cret",
        "s3.path_style": "false",
        "s3.timeout": "7",
    }
    ours = config.load(given, directory=tmp_path, environ={}).settings
    told = environment(ours, tmp_path, {"dsn": "postgresql://x", "gateway.port": "1"})
    environ = {k: v for k, v in told.items() if k.startswith("FROSTLINE_")}
    theirs = config.load(directory=tmp_path, environ=environ).settings
    assert (theirs.lake, theirs.rest, theirs.s3) == (ours.lake, ours.rest, ours.s3)
    assert (theirs.dsn.get_secret_value(), theirs.gateway.port) == ("postgresql://x", 1)
    assert theirs.s3.secret_key.get_secret_value() == "s3cret"
