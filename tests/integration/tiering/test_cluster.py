"""The export on a Spark whose executors are processes of their own, as on any cluster."""

from __future__ import annotations

import subprocess
from pathlib import Path

from fix_commands import command, environment
from fix_tiering import World

_TABLE = """
CREATE TABLE public.events (id bigint, ts timestamptz NOT NULL, v text, PRIMARY KEY (id, ts)) PARTITION BY RANGE (ts);
CREATE TABLE public.events_old PARTITION OF public.events FOR VALUES FROM ('2020-01-01') TO ('2020-02-01');
CREATE TABLE public.events_new PARTITION OF public.events FOR VALUES FROM ('2020-02-01') TO (MAXVALUE);
INSERT INTO public.events SELECT n, timestamptz '2020-01-01' + n * interval '1 min', 'row ' || n
FROM generate_series(0, 40000) n;
"""


def test_executors_get_all_they_need_from_the_driver(world: World, tmp_path: Path) -> None:
    world.run(_TABLE)
    expected = world.run("SELECT count(*), sum(id), max(ts), md5(string_agg(v, ',' ORDER BY id)) FROM public.events")
    world.register("public.events")
    given = {
        "FROSTLINE_DSN": world.dsn,
        "FROSTLINE_LOCAL_DIR": str(tmp_path / "cluster"),
        "FROSTLINE_LAKE_WAREHOUSE": world.settings.warehouse,
        "FROSTLINE_LAKE_FILE_SIZE": "500kB",
        "FROSTLINE_SPARK_MASTER": "local-cluster[2,1,1024]",
        "FROSTLINE_LOCAL_CACHE": None if world.settings.local.cache is None else str(world.settings.local.cache),
    }
    done = subprocess.run(
        command("archive", "public.events"),
        env=environment(given),
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert world.run("SELECT relkind::text FROM pg_class WHERE relname = 'events_old'") == [("f",)]
    assert (
        world.run("SELECT count(*), sum(id), max(ts), md5(string_agg(v, ',' ORDER BY id)) FROM public.events")
        == expected
    )
    assert len(list(Path(world.settings.warehouse).rglob("operation-*.parquet"))) > 2
