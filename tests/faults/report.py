"""docs/faults.md, written by the run it describes."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from pathlib import Path

from faults.drama import Outcome
from frostline.faults import POINTS

PAGE = Path(__file__).parents[2] / "docs" / "faults.md"
_BEGIN, _END = "<!-- written by make soak: begin -->", "<!-- end -->"
_STEPS = ("operation", "capture", "export", "verify", "swap", "statistics", "drop", "release", "recover", "clean")
_ENDS = {
    "went on": "went on from there",
    "began anew": "began anew",
    "finished it": "finished it",
    "done": "archived it",
}


def renew(outcomes: Iterable[Outcome], seed: int) -> None:
    """Replace the part of the page that a run writes."""
    text = PAGE.read_text(encoding="utf-8")
    before, after = text.split(_BEGIN)[0], text.split(_END)[1]
    PAGE.write_text(before + _BEGIN + "\n" + table(list(outcomes), seed) + _END + after, "utf-8")


def table(outcomes: list[Outcome], seed: int) -> str:
    met = [outcome for outcome in outcomes if outcome.met]
    faults = sum(len(outcome.faults) for outcome in met)
    twice = sum(len(outcome.faults) > 1 for outcome in met)
    lines = [
        f"{faults:,} faults in {len(met):,} archived periods ({twice:,} of them met two in a row), first seed {seed};"
        f" {sum(o.acknowledged for o in outcomes):,} transactions acknowledged,"
        f" {sum(o.looks for o in outcomes):,} looks of readers over all rows:"
        " nothing lost, nothing doubled, nothing left behind.",
        "",
        "| step | victim | faults | the run was | the last one |",
        "|---|---|---:|---|---|",
    ]
    groups: dict[tuple[int, str], list[tuple[str, str]]] = defaultdict(list)
    for outcome in met:
        for number, fault in enumerate(outcome.faults):
            ends = outcome.ends[number], outcome.ends[-1] if len(outcome.ends) > number + 1 else ""
            groups[_STEPS.index(fault.point.split(".")[0]), fault.victim].append(ends)
    for (step, victim), found in sorted(groups.items()):
        first = Counter(_kind(end) for end, _ in found)
        last = Counter(_ENDS.get(end, "?") for _, end in found if end)
        lines.append(f"| {_STEPS[step]} | {victim} | {len(found)} | {_counts(first)} | {_counts(last)} |")
    reached = Counter(fault.point for outcome in met for fault in outcome.faults)
    lines += ["", "| point | what is true there | faults |", "|---|---|---:|"]
    lines += [f"| `{point}` | {meaning} | {reached[point]} |" for point, meaning in POINTS.items()]
    return "\n".join(lines) + "\n"


def _kind(end: str) -> str:
    return "failed" if end.startswith("failed") else "killed" if end == "killed" else "done"


def _counts(found: Counter[str]) -> str:
    return ", ".join(f"{name} {count}" if len(found) > 1 else name for name, count in found.most_common())
