"""`python -m frostline` and the `frostline` script."""

from __future__ import annotations

import signal
import sys
from types import FrameType


def main() -> None:
    # Like Ctrl-C, a polite kill lets every `finally` run: nothing half-started stays behind.
    signal.signal(signal.SIGTERM, _terminated)
    try:
        from frostline.cli.main import app

        app(prog_name="frostline")
    except KeyboardInterrupt:
        sys.exit(130)


def _terminated(_number: int, _frame: FrameType | None) -> None:
    if (spark := sys.modules.get("frostline.pipeline.session")) is not None:
        spark.kill()
    sys.exit(143)


if __name__ == "__main__":
    main()
