"""What a gateway that was killed has left on the disk goes with the next one."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

from frostline.gateway import spill

_KILLED = """
import os, signal, sys
from pathlib import Path
from frostline.gateway import spill
with spill.directory(Path(sys.argv[1])) as made:
    (made / "spilled").write_text("much")
    os.kill(os.getpid(), signal.SIGKILL)
"""


def left(place: Path) -> set[str]:
    return {path.name for path in place.iterdir()}


def test_of_a_killed_one_nothing_stays_and_of_one_that_lives_everything(tmp_path: Path) -> None:
    killed = subprocess.run([sys.executable, "-c", _KILLED, str(tmp_path)], check=False)
    assert killed.returncode == -signal.SIGKILL
    [dead] = left(tmp_path)
    assert (tmp_path / dead / "spilled").exists()
    with spill.directory(tmp_path) as ours:
        assert left(tmp_path) == {ours.name}
        (ours / "spilled").write_text("much")
        with spill.directory(tmp_path) as another:
            assert left(tmp_path) == {ours.name, another.name}
            assert (ours / "spilled").exists()
        assert left(tmp_path) == {ours.name}
    assert left(tmp_path) == set()


def test_what_somebody_else_has_put_there_stays(tmp_path: Path) -> None:
    """Nobody's lock says that its owner is dead."""
    (tmp_path / "frostline-gateway-mine").mkdir()
    (tmp_path / "frostline-gateway-mine" / "file").touch()
    (tmp_path / "frostline-gateway-file").touch()
    with spill.directory(tmp_path):
        pass
    assert left(tmp_path) == {"frostline-gateway-mine", "frostline-gateway-file"}
    assert (tmp_path / "frostline-gateway-mine" / "file").exists()
