"""A lake elsewhere, as the command line meets it: checked before anything is installed, its keys never shown."""

from __future__ import annotations

import psycopg

from fix_commands import Run, failed_clearly

NOWHERE = {
    "FROSTLINE_LAKE_WAREHOUSE": "s3://some-bucket/lake",
    "FROSTLINE_S3_ENDPOINT": "http://127.0.0.1:1",
    "AWS_ACCESS_KEY_ID": "an-id",
    "AWS_SECRET_ACCESS_KEY": "very-s3cret",
}


def test_init_installs_nothing_while_the_store_cannot_be_written(frostline: Run, database: str) -> None:
    done = frostline("--dsn", database, "init", env=NOWHERE)
    failed_clearly(done, "the lake in s3://some-bucket/lake cannot be used", "nothing was changed")
    assert "the store cannot be reached" in done.stderr
    assert "very-s3cret" not in done.stdout + done.stderr
    with psycopg.connect(database) as connection:
        assert connection.execute("SELECT to_regnamespace('frostline')").fetchone() == (None,)


def test_config_shows_where_keys_come_from_and_not_what_they_are(frostline: Run) -> None:
    done = frostline("config", env=NOWHERE)
    assert done.returncode == 0, done.stderr
    line = next(line for line in done.stdout.splitlines() if line.startswith("s3.secret_key"))
    assert "********" in line
    assert "AWS_SECRET_ACCESS_KEY" in line
    assert "very-s3cret" not in done.stdout + done.stderr
