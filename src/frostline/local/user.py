"""Postgres never runs as root: who runs it instead, and what that user can reach."""

from __future__ import annotations

import os
import pwd
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from frostline.errors import SetupError

# Places every user can reach, for what root's own directories would hide from the server.
SHARED_CACHE = Path("/var/cache/frostline")
SHARED_DATA = Path("/var/lib/frostline")


def server_account() -> pwd.struct_passwd | None:
    """The unprivileged user the server runs as when we are root; None when we are not."""
    if os.geteuid() != 0:
        return None
    for name in ("postgres", "nobody"):
        try:
            return pwd.getpwnam(name)
        except KeyError:
            continue
    raise SetupError(
        "Postgres must not run as root, and there is neither a user postgres nor nobody here",
        hint="create one, or run Frostline as an ordinary user",
    )


def run_as(account: pwd.struct_passwd | None) -> dict[str, Any]:
    """Arguments for `subprocess` that drop root; none for an ordinary user."""
    if account is None:
        return {}
    return {"user": account.pw_uid, "group": account.pw_gid, "extra_groups": []}


def can_enter(directory: Path, account: pwd.struct_passwd) -> bool:
    """Whether that user can reach and read the nearest part of the path that exists: tried, not computed."""
    while not directory.exists():
        directory = directory.parent
    return _try(["/bin/sh", "-c", 'cd -- "$1" && test -r .', "sh", str(directory)], account)


def _try(command: Sequence[str], account: pwd.struct_passwd) -> bool:
    done = subprocess.run(
        command,
        cwd="/",
        check=False,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        **run_as(account),
    )
    return done.returncode == 0


def make_public(directory: Path) -> None:
    """Create a directory whose new parts everyone can read, whatever the umask."""
    missing = [part for part in (directory, *directory.parents) if not part.exists()]
    for part in reversed(missing):
        part.mkdir(exist_ok=True)
        part.chmod(0o755)
