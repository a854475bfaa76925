"""Measuring side by side: every round runs each contender once, so that whatever else the machine does hits all."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

Contender = Callable[[], object]
Times = dict[str, list[float]]
_PAUSE = 0.01  # the threads of the one before go to sleep


@dataclass(frozen=True)
class Result:
    """One claim, measured: a ratio per round, and what it should be."""

    claim: str
    ours: float  # median
    baseline: float
    ratios: Sequence[float]
    target: float | None  # None: for information
    at_least: bool  # else: at most
    unit: str = "s"

    @property
    def ratio(self) -> float:
        return statistics.median(self.ratios)

    @property
    def spread(self) -> tuple[float, float]:
        """The middle half of all rounds."""
        low, _, high = statistics.quantiles(self.ratios, n=4) if len(self.ratios) > 1 else [self.ratio] * 3
        return low, high

    @property
    def met(self) -> bool:
        if self.target is None:
            return True
        return self.ratio >= self.target if self.at_least else self.ratio <= self.target

    @property
    def wanted(self) -> str:
        if self.target is None:
            return "-"
        return f"{'at least' if self.at_least else 'at most'} {self.target:g}"


def interleaved(contenders: Mapping[str, Contender], rounds: int, warm: int = 1, runs: int = 1) -> Times:
    """Seconds of each contender in each round; the order turns, so that nobody always follows the same other.

    Of several runs in a row the median counts: how long it takes whoever is at work, not whoever is woken for it.
    """
    for _ in range(warm):
        for contender in contenders.values():
            contender()
    times: Times = {name: [] for name in contenders}
    names = list(contenders)
    for number in range(rounds):
        turn = number % len(names)
        for name in names[turn:] + names[:turn]:
            time.sleep(_PAUSE)
            times[name].append(statistics.median(_seconds(contenders[name]) for _ in range(runs)))
    return times


def _seconds(contender: Contender) -> float:
    started = time.perf_counter()
    contender()
    return time.perf_counter() - started


def speed(claim: str, times: Times, ours: str, baseline: str, target: float) -> Result:
    """How many times as fast as the baseline, to be at least the target."""
    ratios = [b / a for a, b in zip(times[ours], times[baseline], strict=True)]
    return Result(claim, statistics.median(times[ours]), statistics.median(times[baseline]), ratios, target, True)


def cost(claim: str, ours: Sequence[float], allowed: Sequence[float], target: float | None, unit: str = "s") -> Result:
    """How much of what is allowed it takes, to be at most the target."""
    ratios = [a / b for a, b in zip(ours, allowed, strict=True)]
    return Result(claim, statistics.median(ours), statistics.median(allowed), ratios, target, False, unit)
