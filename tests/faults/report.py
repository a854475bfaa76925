"""docs/faults.md, written by the run it describes."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from pathlib import Path

from faults.drama import Outcome
from frostline.faults import FOLD_POINTS, POINTS

PAGE = Path(__file__).parents[2] / "docs" / "faults.md"
_BEGIN, _END = "<!-- written by make soak: begin -->", "<!-- end -->"
_POINTS = POINTS | FOLD_POINTS
_STEPS = tuple(dict.fromkeys(point.partition(".")[0] for point in _POINTS))
_ENDS = {
    "went on": "went on from there",
    "began anew": "began anew",
    "finished it": "finished it",
    "done": "did it",
}


def renew(outcomes: Iterable[Outcome], seed: int) -> None:
    """Replace the part of the page that a run writes."""
    text = PAGE.read_text(encoding="utf-8")
    before, after = text.split(_BEGIN)[0], text.split(_END)[1]
    PAGE.write_text(before + _BEGIN + "\n" + table(list(outcomes), seed) + _END + after, "utf-8")


def table(outcomes: list[Outcome], seed: int) -> str:
    met = [fault for outcome in outcomes for fault, _ in outcome.met]
    planned = sum(len(outcome.faults) for outcome in outcomes)
    twice = sum(len(outcome.met) > 1 for outcome in outcomes)
    lines = [
        f"{len(met):,} faults that happened, of {planned:,} planned, in {len(outcomes):,} operations"
        f" ({twice:,} of them met several in a row), first seed {seed};"
        f" {sum(o.acknowledged for o in outcomes):,} transactions acknowledged,"
        f" {sum(o.looks for o in outcomes):,} looks of readers over all rows:"
        " nothing lost, nothing doubled, nothing left behind.",
        "",
        "| step | victim | faults | the run was | the last one |",
        "|---|---|---:|---|---|",
    ]
    groups: dict[tuple[int, str], list[tuple[str, str]]] = defaultdict(list)
    for outcome in outcomes:
        for fault, end in outcome.met:
            last = outcome.ends[-1] if _kind(end) != "done" else ""
            groups[_STEPS.index(fault.point.split(".")[0]), fault.victim].append((end, last))
    for (step, victim), found in sorted(groups.items()):
        first = Counter(_kind(end) for end, _ in found)
        ends = Counter(_ENDS.get(end, "?") for _, end in found if end)
        lines.append(f"| {_STEPS[step]} | {victim} | {len(found)} | {_counts(first)} | {_counts(ends)} |")
    reached = Counter(fault.point for fault in met)
    lines += ["", "| point | what is true there | faults |", "|---|---|---:|"]
    lines += [f"| `{point}` | {meaning} | {reached[point]} |" for point, meaning in _POINTS.items()]
    return "\n".join(lines) + "\n"


def _kind(end: str) -> str:
    return "failed" if end.startswith("failed") else "killed" if end == "killed" else "done"


def _counts(found: Counter[str]) -> str:
    return ", ".join(f"{name} {count}" if len(found) > 1 else name for name, count in found.most_common())
