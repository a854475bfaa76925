"""Claim: archiving a partition takes the same memory however large it is."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from bench.archive import command, environment, table
from bench.measure import Result, cost
from bench.world import World
from frostline.local import stack as local_stack

TITLE = "Memory of an archive run"
TABLES = False  # it makes its own
_MILLION = 1_000_000
_MOST = 50 * _MILLION
_EVERY = 0.1


def run(world: World, _rounds: int) -> list[Result]:
    """Of `frostline archive` with its Spark, and of the gateway, which answers the comparison; each size once."""
    rows = world.shapes["events"].cold_rows
    peaks = {}
    for size in sorted({_MILLION, max(rows // 2, _MILLION), min(rows * 5 // 2, _MOST)}):
        with table(world, "narrow", size) as name:
            peaks[size] = peak(command(name), environment(world), [_gateway(world)]) / 1e6
    (least, at_least), *more = peaks.items()
    return [
        cost(f"peak memory, {size / 1e6:g} million rows against {least / 1e6:g}", [peaks[size]], [at_least], 1.25, "MB")
        for size, _ in more
    ]


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
