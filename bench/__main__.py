"""`python -m bench`: build the tables, run every claim, print the ratios, renew docs/benchmarks.md."""

from __future__ import annotations

import argparse
import shutil
import tempfile
import time
from pathlib import Path

from bench import aggregate, archive, fold, hot, lookup, memory, report, stream, write
from bench.measure import Result
from bench.world import opened

CLAIMS = {
    "hot": hot,
    "stream": stream,
    "lookup": lookup,
    "aggregate": aggregate,
    "archive": archive,
    "memory": memory,
    "write": write,
    "fold": fold,
}


def main() -> None:
    arguments = _arguments()
    sections = {}
    for rows in arguments.rows:
        directory = arguments.directory / str(rows)
        directory.mkdir(parents=True, exist_ok=True)
        try:
            sections[rows] = _run(directory, rows, arguments.rounds, arguments.claims or list(CLAIMS))
        finally:
            if not arguments.keep:
                shutil.rmtree(directory, ignore_errors=True)
    report.write(sections)


def _run(directory: Path, rows: int, rounds: int, names: list[str]) -> dict[str, tuple[str, list[Result]]]:
    print(f"{rows:,} cold rows")
    found = {}
    with opened(directory, rows, filled=any(CLAIMS[name].TABLES for name in names)) as world:
        for name in names:
            started = time.monotonic()
            found[name] = (CLAIMS[name].TITLE, CLAIMS[name].run(world, rounds))
            print(f"{CLAIMS[name].TITLE}; {time.monotonic() - started:.0f} s")
            print("\n".join(map(report.line, found[name][1])), flush=True)
    return found


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="bench", description=__doc__)
    parser.add_argument("claims", nargs="*", help=f"{', '.join(CLAIMS)} (all); the page is renewed for these")
    parser.add_argument("--rows", type=int, action="append", help="cold rows; may be given several times")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--directory", type=Path, default=Path(tempfile.gettempdir()) / "frostline-bench")
    parser.add_argument("--keep", action="store_true", help="leave the tables for the next run")
    found = parser.parse_args()
    found.rows = found.rows or [20_000_000]
    return found


if __name__ == "__main__":
    main()
