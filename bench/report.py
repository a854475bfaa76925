"""Results as text on the terminal, and as the generated part of docs/benchmarks.md with its plots."""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

import duckdb

from bench.measure import Result
from bench.plot import bars

DOCS = Path(__file__).parent.parent / "docs"
_BEGIN, _END = "<!-- generated: begin -->", "<!-- generated: end -->"
Sections = Mapping[str, tuple[str, Sequence[Result]]]  # by name: title and results


def line(result: Result) -> str:
    low, high = result.spread
    verdict = "met" if result.met else "MISSED"
    wanted = "" if result.target is None else f", {result.wanted}: {verdict}"
    return (
        f"  {result.claim:<60} {result.ratio:6.2f} ({low:.2f} to {high:.2f}){wanted};"
        f" {_amount(result, result.ours)} against {_amount(result, result.baseline)}"
    )


def write(rows: Sequence[int], sections: Mapping[int, Sections]) -> None:
    """Replace the generated part; what people wrote around it stays."""
    parts = [_BEGIN, "", _machine(), ""]
    for count in rows:
        parts += [f"## {count / 1e6:g} million cold rows", ""]
        for name, (title, results) in sections[count].items():
            plot = DOCS / "bench" / f"{name}-{count // 1_000_000}.svg"
            plot.parent.mkdir(exist_ok=True)
            plot.write_text(bars(title, results), encoding="utf-8")
            parts += [f"### {title}", "", _table(results), "", f"![{title}](bench/{plot.name})", ""]
    page = DOCS / "benchmarks.md"
    text = page.read_text(encoding="utf-8")
    before, _, rest = text.partition(_BEGIN)
    _, _, after = rest.partition(_END)
    page.write_text(f"{before}{chr(10).join(parts)}{_END}{after}", encoding="utf-8")


def _table(results: Sequence[Result]) -> str:
    head = "| | ratio | middle half of the rounds | wanted | | ours | the other |\n|---|---|---|---|---|---|---|"
    return "\n".join([head, *map(_row, results)])


def _row(result: Result) -> str:
    low, high = result.spread
    verdict = "" if result.target is None else "met" if result.met else "**missed**"
    return (
        f"| {result.claim} | {result.ratio:.2f} | {low:.2f} to {high:.2f} | {result.wanted} |"
        f" {verdict} | {_amount(result, result.ours)} | {_amount(result, result.baseline)} |"
    )


def _amount(result: Result, value: float) -> str:
    if result.unit != "s":
        return f"{value:,.0f} {result.unit}"
    return f"{value:.2f} s" if value >= 1 else f"{value * 1000:.2f} ms"


def _machine() -> str:
    model = platform.machine()
    if (info := Path("/proc/cpuinfo")).exists():
        model = next((x.split(":", 1)[1].strip() for x in info.read_text().splitlines() if "model name" in x), model)
    pages = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 0
    return (
        f"Measured {datetime.now(UTC):%Y-%m-%d} on {platform.system()}, {os.cpu_count()} CPUs ({model}),"
        f" {pages / 2**30:.0f} GiB, load {os.getloadavg()[0]:.1f} at the end; embedded Postgres 18 with fsync on,"
        f" DuckDB {duckdb.__version__}, Python {platform.python_version()}."
    )
