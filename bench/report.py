"""Results as text on the terminal, and as the generated part of docs/benchmarks.md with its plots."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import duckdb

from bench.measure import Result
from bench.plot import bars

DOCS = Path(__file__).parent.parent / "docs"
RESULTS = DOCS / "bench" / "results.json"
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


def write(sections: Mapping[int, Sections]) -> None:
    """Remember these results next to those of other runs, and renew the page from all of them."""
    known = json.loads(RESULTS.read_text(encoding="utf-8")) if RESULTS.exists() else {}
    for count, found in sections.items():
        for name, (title, results) in found.items():
            section = {"title": title, "machine": _machine(), "results": [asdict(result) for result in results]}
            known.setdefault(str(count), {})[name] = section
    RESULTS.write_text(json.dumps(known, indent=1) + "\n", encoding="utf-8")
    page = DOCS / "benchmarks.md"
    before, _, rest = page.read_text(encoding="utf-8").partition(_BEGIN)
    _, _, after = rest.partition(_END)
    page.write_text(f"{before}{_BEGIN}\n\n{_rendered(known)}{_END}{after}", encoding="utf-8")


def _rendered(known: Mapping[str, Mapping[str, Any]]) -> str:
    parts = []
    for count in sorted(map(int, known)):
        parts += [f"## {count / 1e6:g} million cold rows", ""]
        for name, section in known[str(count)].items():
            title, results = section["title"], [Result(**result) for result in section["results"]]
            plot = DOCS / "bench" / f"{name}-{count // 1_000_000}.svg"
            plot.write_text(bars(title, results), encoding="utf-8")
            parts += [f"### {title}", "", section["machine"], "", _table(results), ""]
            parts += [f"![{title}](bench/{plot.name})", ""]
    return "\n".join(parts)


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
