"""Whatever is killed or fails, at whatever point: nothing is lost, nothing is doubled, nothing is left behind.

`SOAK_FAULTS=1000` (make soak) plays as many, from seeds that are printed, and writes docs/faults.md.
"""

from __future__ import annotations

import itertools
import os
import random
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from faults import report
from faults.drama import (
    ARCHIVING,
    CLEANING,
    COALESCING,
    FOLDING,
    PERIODS,
    Drama,
    Fault,
    Outcome,
    at_random,
    every_point,
    in_turn,
    of_others,
)
from faults.stage import Stage
from frostline.faults import POINTS

SOAK = int(os.environ.get("SOAK_FAULTS", "0"))
SEED = int(os.environ.get("SOAK_SEED", "1"))
WHOLE = 1000  # so many, and none of the planned ones is left out
FOLDS = 4  # per table, with one fault each

Faults = tuple[Fault, ...]


@pytest.fixture(scope="module")
def stage() -> Iterator[Stage]:
    with tempfile.TemporaryDirectory(prefix="frostline-faults-") as name:
        Path(name).chmod(0o755)  # the server's user comes here too
        made = Stage(Path(name))
        yield made
        made.close()


def play(
    stage: Stage,
    name: str,
    scenes: Sequence[Faults],
    seed: int = 1,
    *,
    command: bool = False,
    after: Sequence[Callable[[Drama], Outcome]] = (),
) -> list[Outcome]:
    """Every scene takes one period, then comes what is done afterwards; what went wrong is the test's failure."""
    drama = Drama(stage, name, seed)
    outcomes = []
    try:
        for scene in scenes:
            outcomes.append(drama.play(scene, command=command))
            assert not drama.world.wrong, f"seed {seed}, {scene}: {drama.world.wrong}"
            if not SOAK:  # there chance decides, and what did not happen is not counted
                assert [fault for fault, _ in outcomes[-1].met] == list(scene), outcomes[-1]
        for afterwards in after:
            outcomes.append(afterwards(drama))
            assert not drama.world.wrong, f"seed {seed}, {outcomes[-1]}: {drama.world.wrong}"
        drama.clean()
    finally:
        drama.close()
    assert not drama.world.wrong, f"seed {seed}: {drama.world.wrong}"
    assert all(reader.looks > 0 for reader in drama.readers), drama.world.errors
    return outcomes


def killed(*points: str) -> list[Faults]:
    return [(Fault("archiver", point),) for point in points]


@pytest.mark.skipif(SOAK > 0, reason="the soak does more")
class TestShort:
    """A few dozen."""

    def test_the_archiver_is_killed_before_the_swap(self, stage: Stage) -> None:
        points = ("operation.begun", "capture.commit", "capture.end", "export.written", "export.commit")
        outcomes = play(stage, "before", killed(*points, "verify.compared"))
        assert [outcome.ends[-1] for outcome in outcomes] == ["began anew"] * 2 + ["went on"] * 4

    def test_the_archiver_is_killed_in_the_swap_and_after(self, stage: Stage) -> None:
        points = ("swap.attached", "swap.commit", "swap.end", "drop.commit", "drop.ended")
        outcomes = play(stage, "swapped", killed(*points))
        assert [outcome.ends[-1] for outcome in outcomes] == ["went on"] * 2 + ["finished it"] * 2 + ["done"]

    def test_spark_goes_on_when_the_archiver_is_killed(self, stage: Stage) -> None:
        """It writes files for nobody while the next run is at work."""
        later = [(Fault("archiver", "export.snapshot", after),) for after in (0.1, 0.3)]
        play(stage, "orphans", [*later, (Fault("archiver", "export.snapshot", 0.1), Fault("archiver", "export.table"))])

    def test_postgres_is_killed(self, stage: Stage) -> None:
        points = ("capture.commit", "export.snapshot", "export.commit", "swap.commit", "swap.end")
        play(stage, "postgres", [(Fault("postgres", point),) for point in points])

    def test_the_gateway_is_killed(self, stage: Stage) -> None:
        play(stage, "gateway", [(Fault("gateway", point),) for point in ("export.commit", "verify.heap", "swap.begun")])

    def test_the_command_and_its_spark_are_killed(self, stage: Stage) -> None:
        """Spark under `frostline archive`, then the whole command; its Spark does not stay behind."""
        scene = (Fault("spark", "export.snapshot", 0.3), Fault("archiver", "swap.commit"))
        [outcome] = play(stage, "command", [scene], command=True)
        assert outcome.ends[0].startswith("failed: error: exporting public.command_00 to the lake failed")
        assert outcome.ends[1:] == ("killed", "went on")

    def test_storage_and_catalog_fail(self, stage: Stage) -> None:
        before_there_is_a_table = (Fault("disk", "export.begin"), Fault("archiver", "operation.begin"))
        scenes = [
            before_there_is_a_table,
            (Fault("disk", "export.snapshot"),),
            (Fault("storage", "export.snapshot"),),
            (Fault("storage", "verify.table"),),
            (Fault("catalog session", "export.snapshot"),),
            (Fault("session", "export.commit"),),
            (Fault("session", "swap.attached"),),
            (Fault("lock", "export.begun"),),
        ]
        play(stage, "storage", scenes)

    def test_again_while_the_next_run_makes_it_good(self, stage: Stage) -> None:
        scenes = [
            (Fault("archiver", "swap.commit"), Fault("postgres", "swap.commit")),
            (Fault("archiver", "swap.ended"), Fault("archiver", "recover.finish")),
            (Fault("archiver", "capture.commit"), Fault("archiver", "recover.failed")),
            (Fault("archiver", "release.triggers"),),
            (Fault("raise", "swap.parked"), Fault("archiver", "recover.rows")),
        ]
        play(stage, "twice", scenes)

    def test_coalescing_and_cleaning_are_killed(self, stage: Stage) -> None:
        coalescing = tuple(Fault("archiver", point) for point in COALESCING)
        cleaning = tuple(Fault("archiver", point) for point in CLEANING)
        outcomes = play(
            stage,
            "others",
            [()] * 4,
            after=[
                lambda drama: drama.coalesce(coalescing, 2),
                lambda drama: drama.coalesce((Fault("postgres", "coalesce.commit"),), 4),
                lambda drama: drama.clean_under(cleaning),
            ],
        )
        assert [[fault for fault, _ in outcome.met] for outcome in outcomes[4:]] == [
            list(coalescing),
            [Fault("postgres", "coalesce.commit")],
            list(cleaning),
        ]

    def test_folding_is_killed(self, stage: Stage) -> None:
        """After the commit to the lake a later run finds it by the operation's id."""
        faults = (
            Fault("archiver", "merge.ready"),
            Fault("archiver", "merge.commit"),
            Fault("postgres", "record.fenced"),
            Fault("archiver", "record.commit"),
            Fault("gateway", "fold.end"),
        )
        outcomes = play(stage, "folded", [()], after=[lambda drama: drama.fold(faults)])
        assert [fault for fault, _ in outcomes[1].met] == list(faults), outcomes[1]

    def test_every_point_was_reached(self, stage: Stage) -> None:
        assert set(POINTS) <= set(stage.points.seen)


@pytest.mark.skipif(SOAK == 0, reason="make soak")
def test_soak(stage: Stage) -> None:
    """Every victim at every point by itself, shuffled, then whatever comes, until so many faults have happened."""
    dice = random.Random(SEED)
    scenes, folds = every_point(ARCHIVING), every_point(FOLDING)
    dice.shuffle(scenes)
    dice.shuffle(folds)
    outcomes: list[Outcome] = []
    for table in itertools.count():
        seed = SEED + table * PERIODS
        now, single = scenes[:PERIODS], folds[:FOLDS]
        del scenes[:PERIODS], folds[:FOLDS]
        now += [at_random(seed + scene) for scene in range(PERIODS - len(now))]
        outcomes += play(stage, f"soak_{table}", now, seed, after=[*_afterwards(table, seed), *map(_fold, single)])
        happened = sum(len(outcome.met) for outcome in outcomes)
        print(f"seed {SEED}: {happened} of {SOAK}", file=sys.stderr)  # noqa: T201
        report.renew(outcomes, SEED)
        if happened >= SOAK and (SOAK < WHOLE or not (scenes or folds)):
            return


def _afterwards(table: int, seed: int) -> list[Callable[[Drama], Outcome]]:
    """To the periods that are cold by then: by chance and in turn."""
    cleaning = in_turn(table // 2, CLEANING) if table % 2 == 0 else of_others(seed + 1, CLEANING)
    return [
        lambda drama: drama.coalesce(of_others(seed, COALESCING), 2),
        lambda drama: drama.clean_under(cleaning),
        lambda drama: drama.coalesce(in_turn(table, COALESCING), 4),
        _fold(of_others(seed + 3, random.Random(seed).sample(FOLDING, len(FOLDING)))),
    ]


def _fold(faults: Faults) -> Callable[[Drama], Outcome]:
    return lambda drama: drama.fold(faults)
