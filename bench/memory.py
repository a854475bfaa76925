"""Claim: archiving a partition, and bringing it back, takes the same memory however large it is."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from bench.archive import command, environment, table
from bench.measure import Result, cost
from bench.world import World
from frostline import config
from frostline.local import stack as local_stack
from frostline.report import Silent

TITLE = "Memory of archiving, and of the way back"
TABLES = False  # it makes its own
_MILLION = 1_000_000
_MOST = 50 * _MILLION
_LEAVING = (_MILLION // 2, 5 * _MILLION)
_EVERY = 0.1
Peaks = dict[str, dict[int, float]]  # megabytes of a command, by the rows it was given


def run(world: World, _rounds: int) -> list[Result]:
    """Of each command, with its Spark if it has one, and of the gateway, which it reads through; each size once."""
    rows = world.shapes["events"].cold_rows
    archiving: Peaks = {"archive": {}}
    for size in sorted({_MILLION, max(rows // 2, _MILLION), min(rows * 5 // 2, _MOST)}):
        with table(world, "narrow", size) as name:
            archiving["archive"][size] = _taken(world, command(name))
    return [*_against_the_least(archiving), *_against_the_least(_leaving(world))]


def _leaving(world: World) -> Peaks:
    """A period comes back alone, then with its whole table."""
    peaks: Peaks = {"untier": {}, "unregister": {}}
    for size in _LEAVING:
        with table(world, "narrow", size) as name:
            for way, arguments in (("untier", (f"{name}_1",)), ("unregister", ())):
                subprocess.run(command(name), env=environment(world), check=True, stdout=subprocess.DEVNULL)
                peaks[way][size] = _taken(world, command(name, way, *arguments))
    return peaks


def _against_the_least(peaks: Peaks) -> list[Result]:
    found = []
    for way, sizes in peaks.items():
        (least, at_least), *more = sizes.items()
        text = f"against {least / 1e6:g}"
        found += [
            cost(f"peak memory of {way}, {size / 1e6:g} million rows {text}", [taken], [at_least], 1.25, "MB")
            for size, taken in more
        ]
    return found


def _taken(world: World, command: Sequence[str]) -> float:
    """With a gateway that has answered nobody yet: it keeps what it once took."""
    directory = world.settings.local.dir
    local_stack.GATEWAY.stop(directory, patience=15)
    plain = config.load({"local.dir": str(directory)}, directory=directory, environ={}).settings
    local_stack.up(plain, Silent())
    return peak(command, environment(world), [_gateway(world)]) / 1e6


def _gateway(world: World) -> int:
    stack = local_stack.state(world.settings)
    service = stack.service("gateway") if stack is not None else None
    assert service is not None
    return service.pid


def peak(command: Sequence[str], environment: Mapping[str, str], beside: Sequence[int] = ()) -> int:
    """Bytes at the highest, of the command's processes and of others beside it; pages shared by several count once."""
    highest = 0
    process = subprocess.Popen(command, env=dict(environment), stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    while process.poll() is None:
        highest = max(highest, sum(map(_proportional, {*_family(process.pid), *beside})))
        time.sleep(_EVERY)
    said = process.stdout.read().decode() if process.stdout else ""
    if process.returncode != 0:
        raise RuntimeError(f"{' '.join(command)} failed: {said}")
    return highest


def _family(ancestor: int) -> set[int]:
    parents = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                parents[int(entry.name)] = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            except OSError:
                continue  # it has just ended
    found = {ancestor}
    while more := {child for child, parent in parents.items() if parent in found} - found:
        found |= more
    return found


def _proportional(process: int) -> int:
    try:
        lines = Path(f"/proc/{process}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:")), 0)
