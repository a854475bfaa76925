"""Peak memory of a command and all it starts."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

_EVERY = 0.1


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
