"""Where a gateway's DuckDB puts what does not fit into memory.

A gateway that was killed cannot remove its own, which may be gigabytes. The next one on the machine does: who is alive
holds a lock in its directory.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

_PREFIX = "frostline-gateway-"
_LOCK = "alive"


@contextmanager
def directory(place: Path | None = None) -> Iterator[Path]:
    """One of our own, in the system's directory for temporary files unless told otherwise."""
    place = place or Path(tempfile.gettempdir())
    for other in place.glob(f"{_PREFIX}*"):
        _remove_if_dead(other)
    with tempfile.TemporaryDirectory(prefix=_PREFIX, dir=place) as name:
        made = Path(name)
        # Locked before it has its name: nobody sees one that is not.
        descriptor = os.open(made / f"{_LOCK}.new", os.O_CREAT | os.O_RDWR, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            (made / f"{_LOCK}.new").rename(made / _LOCK)
            yield made
        finally:
            os.close(descriptor)


def _remove_if_dead(other: Path) -> None:
    """Somebody else's, or one that is just being made or removed, is not ours to judge."""
    with suppress(OSError):
        descriptor = os.open(other / _LOCK, os.O_RDWR | os.O_NOFOLLOW)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(other)
        finally:
            os.close(descriptor)
