"""A command for every table goes on with the others when one of them cannot be worked on."""

from __future__ import annotations

from pathlib import Path

import pytest

from fix_commands import Run
from frostline.catalog import registry
from frostline.catalog.database import connect
from frostline.catalog.install import install
from frostline.tiering import register
from frostline.tiering.locks import only_writer


@pytest.mark.parametrize("command", ["sync", "clean"])
def test_a_table_somebody_works_on_keeps_nobody_from_the_next(
    frostline: Run, database: str, tmp_path: Path, command: str
) -> None:
    install(database)
    with connect(database) as connection:
        for name in ("busy", "free"):
            connection.execute(
                f"CREATE TABLE public.{name} (id int, ts date, PRIMARY KEY (id, ts)) PARTITION BY RANGE (ts);"
                f"CREATE TABLE public.{name}_now PARTITION OF public.{name}"
                " FOR VALUES FROM ('2020-02-01') TO (MAXVALUE)"
            )
            register.register(connection, f"public.{name}", "3 months")
        delta = ".".join(registry.get(connection, "public.free").delta)
        connection.execute(f"INSERT INTO {delta} (id, ts, _op, _seq, _prev) VALUES (1, '2020-03-01', 'T', 1, 0)")
        connection.execute("ALTER TABLE public.free ADD COLUMN added int")
        with only_writer(connection, registry.get(connection, "public.busy")):
            done = frostline("--dsn", database, command, env={"FROSTLINE_LAKE_WAREHOUSE": str(tmp_path)})
        assert done.returncode == 1
        assert "another run is archiving or folding public.busy" in done.stderr
        assert "public.free" in done.stdout + done.stderr.partition("public.busy")[2]
