"""`python -m grader.tests.trials.failing_stages [--gradings N] [--seed N]`: do points depend on stages that may fail?

Labelled samples are graded with pictures and advice, while random exceptions are raised in the middle of the search for
lines and for lost memory, pictures, advice, prints, explanations and what a file that does not compile would have
scored. What must hold: each grading comes to its end with the points of every rule and the verdict of an undisturbed
grading, and its record names the stages that failed. Prints a line for every 50 gradings and a summary; exit code 1
when something does not hold. 300 gradings take 15 minutes on two idle cores; test_failing_stages.py has a few of them.
"""

from __future__ import annotations

import argparse
import random
import sys
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from grader import pipeline
from grader.assignment.case_files import select_cases
from grader.core.picture import Drawing
from grader.core.record import Record
from grader.labs.paged_kv.lab import lab
from grader.runtime.protocol import GradingOptions
from grader.tests.support.command import SAMPLES
from grader.tests.support.failing_stages import Failing

_EACH = 5
"""Disturbed gradings of one sample."""
_SHARES = (0.002, 0.02, 0.2, 1.0)
"""Of the calls inside such a stage, those that fail: from one in a grading to all."""
_SHOWN = 50


@dataclass(slots=True)
class Trial:
    """What was seen so far."""

    chance: random.Random
    gradings: int = 0
    raised: int = 0
    noted: Counter[str] = field(default_factory=Counter)
    """By stage, the gradings in which it failed."""
    untouched: int = 0
    """Gradings in which nothing was raised."""
    problems: list[str] = field(default_factory=list)

    def sample(self, folder: Path, times: int) -> None:
        """Grade a sample once undisturbed, and then so many times disturbed."""
        right = _graded(folder)
        if right.failed_stages:
            self.problems.append(f"{folder.name}: fails undisturbed: {right.failed_stages}")
        for _ in range(times):
            self._disturbed(folder, right)
            if self.gradings % _SHOWN == 0:
                sys.stdout.write(f"{self.gradings} gradings, {self.raised} exceptions, {len(self.problems)} problems\n")
                sys.stdout.flush()

    def _disturbed(self, folder: Path, right: Record) -> None:
        failing = Failing(self.chance, self.chance.choice(_SHARES))
        self.gradings += 1
        try:
            with failing.active():
                record = _graded(folder)
        except Exception as error:  # noqa: BLE001 - whatever it is, this grading has no score
            self.problems.append(f"{folder.name}: no score: {type(error).__name__}: {error}")
            return
        self.raised += failing.raised
        self.untouched += not failing.raised
        self.noted.update({failure.stage for failure in record.failed_stages})
        if _result(record) != _result(right):
            self.problems.append(f"{folder.name}: {_result(record)}, undisturbed {_result(right)}")
        if bool(failing.raised) is not bool(record.failed_stages):
            self.problems.append(f"{folder.name}: {failing.raised} exceptions, noted: {record.failed_stages}")


def _graded(folder: Path) -> Record:
    options = GradingOptions(advise=True)
    selected = select_cases(lab(), seed=lab().rubric.seed)
    return pipeline.grade(folder, lab(), selected.cases, options, hidden=selected.hidden, draw=Drawing.ALL)


def _result(record: Record) -> tuple[object, ...]:
    # not the cases that passed: their number varies where a program reads memory that it never set
    rules = tuple((rule.rule, rule.points, rule.max_points) for rule in record.rules)
    return record.verdict, record.score, record.max_score, rules


def main() -> int:
    """Grade, and say how it went; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gradings", type=int, default=300, help="disturbed gradings (300)")
    parser.add_argument("--seed", type=int, default=1, help="which samples and which exceptions (1)")
    options = parser.parse_args()
    chance = random.Random(options.seed)
    samples = sorted(path for path in SAMPLES.glob("*/*") if path.is_dir() and not path.name.startswith("hostile_"))
    chance.shuffle(samples)
    trial = Trial(chance)
    for folder in samples * (1 + options.gradings // (_EACH * len(samples))):
        left = options.gradings - trial.gradings
        if left > 0:
            trial.sample(folder, min(_EACH, left))
    stages = ", ".join(f"{stage} {count}" for stage, count in sorted(trial.noted.items()))
    sys.stdout.writelines(f"{problem}\n" for problem in trial.problems)
    sys.stdout.write(
        f"seed {options.seed}: {trial.gradings} gradings, {trial.raised} exceptions, none in {trial.untouched}\n"
        f"stages that failed, in how many gradings: {stages}\n{len(trial.problems)} problems\n"
    )
    return 1 if trial.problems else 0


if __name__ == "__main__":
    sys.exit(main())
