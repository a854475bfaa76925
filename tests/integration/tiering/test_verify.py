"""`frostline verify`: what the lake holds is what was archived, and whatever is not is named."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from fix_tiering import World
from frostline.cli.main import app
from frostline.errors import RefusedError
from frostline.gateway.view import View
from frostline.lake import catalog as lake
from frostline.lake import lineage
from frostline.report import Silent
from frostline.tiering.archive import swap
from frostline.tiering.verify import Finding, verify
from integration.tiering.test_fold import managed

TABLE = """
CREATE TABLE public.events (id bigint, ts timestamptz NOT NULL, v int, t text, PRIMARY KEY (id, ts))
    PARTITION BY RANGE (ts);
CREATE TABLE public.events_01 PARTITION OF public.events FOR VALUES FROM ('2020-01-01') TO ('2020-02-01');
CREATE TABLE public.events_02 PARTITION OF public.events FOR VALUES FROM ('2020-02-01') TO ('2020-03-01');
CREATE TABLE public.events_now PARTITION OF public.events FOR VALUES FROM ('2020-03-01') TO (MAXVALUE);
INSERT INTO public.events
SELECT i, timestamptz '2020-01-01' + i * interval '1 h', i, 'text ' || i FROM generate_series(0, 1999) i;
"""


def found(world: World, period: str | None = None) -> dict[str, Finding]:
    return {one.period: one for one in verify(world.settings, "public.events", period, Silent())}


def files(world: World, period: str) -> list[Path]:
    return sorted((world.directory("events") / "data" / f"period={period}").glob("*.parquet"))


def before(monkeypatch: pytest.MonkeyPatch, module: Any, name: str, act: Callable[[], object]) -> None:
    real, left = getattr(module, name), [act]

    def wrapped(*arguments: Any, **options: Any) -> Any:
        if left:
            left.pop()()
        return real(*arguments, **options)

    monkeypatch.setattr(module, name, wrapped)


def renewed(world: World) -> None:
    """A gateway that has read none of the files: data files never change, so one that has remembers their footers."""
    world.gateway.stop(grace=0)
    world.restart_gateway()


def rewritten(path: Path, change: Callable[[pa.Table], pa.Table]) -> None:
    """Another content in a file of the same length: padded in front of the footer, where no reader looks."""
    size = path.stat().st_size
    table = change(pq.read_table(path))
    small = {name: "DELTA_BYTE_ARRAY" if name == "t" else "DELTA_BINARY_PACKED" for name in table.column_names}
    pq.write_table(
        table,
        path,
        compression="zstd",
        compression_level=22,
        write_statistics=False,
        use_dictionary=False,
        column_encoding=small,
        store_schema=False,
    )
    content = path.read_bytes()
    footer = int.from_bytes(content[-8:-4], "little") + 8
    assert len(content) <= size
    path.write_bytes(content[:-footer] + b"\0" * (size - len(content)) + content[-footer:])


def test_everything_that_can_be_wrong_is_found_and_named(any_world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world = any_world
    world.run(TABLE)
    world.register("public.events")
    # January is changed while it is on its way: part of it is in the delta.
    before(
        monkeypatch,
        swap,
        "swap",
        lambda: world.run(
            "UPDATE public.events SET v = -1 WHERE id = 5; DELETE FROM public.events WHERE id = 6;"
            "INSERT INTO public.events VALUES (9000, '2020-01-03', 9, 'new')"
        ),
    )
    assert len(world.archive("public.events")) == 2
    good = found(world)
    assert {name: (one.state, one.rows, one.changed) for name, one in good.items()} == {
        "public.events_before": ("good", 0, 0),
        "public.events_01": ("good", 744, 3),
        "public.events_02": ("good", 696, 0),
    }
    assert [one.files for one in good.values()] == [0, 1, 1]
    assert world.run("SELECT count(*) FROM frostline.periods WHERE verified_at IS NOT NULL AND alarm IS NULL") == [(3,)]
    _what_is_not_cold(world)
    _one_value(world, {1000: -7})
    _one_value(world, {1000: 1001, 1001: 1000})  # both are there, each in the other's row
    _files(world)
    _twice(world)
    _readers(world)
    _the_registry(world)


def _what_is_not_cold(world: World) -> None:
    assert found(world, "2020-02-15").keys() == {"public.events_02"}
    assert found(world, "events_now")["public.events_now"].state == "hot"
    world.run(
        "INSERT INTO frostline.operations (table_id, kind, leaf, upper)"
        " VALUES (1, 'archive', 'public.events_now', 'x');"
        "INSERT INTO frostline.steps (operation_id, number, name) SELECT max(id), 2, 'export' FROM frostline.operations"
    )
    moving = found(world, "2021-01-01")["public.events_now"]
    assert moving.state == "on its way"
    assert "is at export" in moving.problems[0]
    with pytest.raises(RefusedError, match="has no partition sometime"):
        found(world, "sometime")


def _one_value(world: World, of: dict[int, int]) -> None:
    """Some rows have another value, and the file looks as healthy as before."""
    path = files(world, "2020-02")[0]
    kept = path.read_bytes()

    def change(table: pa.Table) -> pa.Table:
        values = table["v"]
        for id_, value in of.items():
            values = pc.if_else(pc.equal(table["id"], id_), pa.scalar(value, pa.int32()), values)
        return table.set_column(table.schema.get_field_index("v"), table.schema.field("v"), values)

    rewritten(path, change)
    renewed(world)
    done = CliRunner().invoke(
        app, ["--dsn", world.dsn, "--dir", str(world.settings.local.dir), "verify", "events"], catch_exceptions=False
    )
    assert done.exit_code == 1
    assert "public.events_02: contents differ from what was archived in v\n" in done.stdout
    assert (
        "events_02: contents differ from what was archived in v"
        in world.run("SELECT alarm FROM frostline.status")[0][0]
    )
    path.write_bytes(kept)
    renewed(world)
    assert found(world)["public.events_02"].state == "good"
    assert world.run("SELECT alarm FROM frostline.status") == [(None,)]


def _files(world: World) -> None:
    path = files(world, "2020-02")[0]
    kept = path.read_bytes()
    for content, words in (
        (None, "is missing"),
        (kept[:-1], f"is {len(kept) - 1:,} bytes long instead of {len(kept):,}"),
        (kept[:-4] + b"1RAP", "has no readable footer"),
        (kept[:4] + b"\xff" * 64 + kept[68:], "cannot be read in row group 0"),  # the first page's header
    ):
        path.unlink() if content is None else path.write_bytes(content)
        one = found(world, "events_02")["public.events_02"]
        assert one.state == "damaged"
        assert len(one.problems) == 1
        assert one.problems[0].startswith("file ")
        assert f"{path} " in one.problems[0]
        assert words in one.problems[0]
    path.write_bytes(kept)
    assert found(world, "events_02")["public.events_02"].state == "good"


def _twice(world: World) -> None:
    """A snapshot that has a file twice, under two names."""
    [kept] = world.run("SELECT snapshot_id, metadata_location FROM frostline.tables")
    change = "UPDATE frostline.tables SET snapshot_id = %s, metadata_location = %s"
    path = files(world, "2020-02")[0]
    copy = path.with_name(f"copy-{path.name}")
    copy.write_bytes(path.read_bytes())
    with lake.opened(world.settings) as catalog:
        table = lake.table_of(catalog, managed(world))
        [file] = [one.data_file for one in lineage.entries(table) if one.data_file.file_path.endswith(path.name)]
        file[1] = file.file_path.replace(path.name, copy.name)
        with table.transaction() as transaction, transaction.update_snapshot().fast_append() as added:
            added.append_data_file(file)
        twice = table.current_snapshot()
    assert twice is not None
    world.run(change, twice.snapshot_id, table.metadata_location)
    one = found(world, "events_02")["public.events_02"]
    assert one.state == "damaged"
    first = (f'({744 + hour},"2020-02-01 0{hour}:00:00+00")' for hour in range(5))
    assert one.problems == (
        "1,392 rows in the lake instead of 696",
        "contents differ from what was archived in id, ts, v, t",
        f"keys that stand there twice: {', '.join(first)}",
    )
    world.run(change, *kept)
    assert found(world, "events_02")["public.events_02"].state == "good"


def _readers(world: World) -> None:
    """A gateway that forgets what the delta has."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(View, "delta", lambda *_: None)
        one = found(world, "events_01")["public.events_01"]
    assert one.state == "damaged"
    [said] = one.problems
    assert said.startswith(
        "readers see 744 rows where lake and delta together have 744; columns that differ: id, ts, v,"
    )
    assert [key in said for key in ("(5,", "(6,", "(9000,", "(7,")] == [True, True, True, False]
    assert found(world, "events_01")["public.events_01"].state == "good"


def _the_registry(world: World) -> None:
    world.run("UPDATE frostline.periods SET rows = rows + 1 WHERE lower LIKE '2020-02%'")
    assert found(world, "events_02")["public.events_02"].problems[0] == "696 rows in the lake instead of 697"
    world.run("UPDATE frostline.periods SET rows = rows - 1, digest = NULL WHERE lower LIKE '2020-02%'")
    assert found(world, "events_02")["public.events_02"].state == "good"  # from before hashes were recorded
    world.gateway.stop(grace=0)
    one = found(world, "events_01")["public.events_01"]
    assert one.state == "unknown"
    assert "could not connect" in one.problems[0]
    assert world.run("SELECT count(*) FROM frostline.periods WHERE alarm IS NOT NULL") == [(0,)]
    world.restart_gateway()
    [metadata] = world.run("SELECT metadata_location FROM frostline.tables")[0]
    location = Path(metadata.removeprefix("file://"))
    location.rename(location.with_suffix(".gone"))
    one = found(world, "events_02")["public.events_02"]
    assert one.state == "damaged"
    assert metadata in one.problems[0]
