"""What is known of a submission on its way through the pipeline."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from grader.assignment.lab import Lab
from grader.assignment.source import Source
from grader.core.case import Case
from grader.core.optional_stages import OptionalStages
from grader.core.record import SmallestTrace
from grader.core.verdict import Advice, RuleScore
from grader.judge.case_findings import CaseFindings
from grader.judge.causes import Diagnosed
from grader.runtime.comparison import Comparison
from grader.runtime.observation import Replayed
from grader.runtime.protocol import DEFAULTS, Built, GradingOptions, Observations, Program
from grader.system.sandbox import Workspace


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """What is known of a submission so far; each step fills in its part."""

    lab: Lab
    path: Path
    cases: tuple[Case, ...]
    work: Workspace
    options: GradingOptions = DEFAULTS
    hidden: Mapping[str, int] | None = None
    """What cases weigh that are not run here, for the public part."""
    hand_in: int | None = None
    """The number of this hand-in, as far as it is known."""
    relaxed: bool = False
    """Whether warnings and missing functions are forgiven, to see what the file would have scored."""
    source: Source | None = None
    built: Built | None = None
    replayed: Replayed | None = None
    observed: Observations | None = None
    """From the comparison on; what instruments observed is added to it."""
    resumed: frozenset[int] = frozenset()
    """The cases that pass when what follows the call that stopped them is judged alone."""
    case_findings: tuple[CaseFindings, ...] = ()
    diagnosed: Diagnosed | None = None
    advice: tuple[Advice, ...] = ()
    """Of the steps after the build."""
    searches: bool = False
    """Whether a search goes beyond the cases."""
    closure: str = ""
    smallest: SmallestTrace | None = None
    scores: tuple[RuleScore, ...] = ()
    optional: OptionalStages = field(default_factory=OptionalStages)
    """Runs the parts that cannot change points, and collects their failures."""
    spent: dict[str, float] = field(default_factory=dict)

    @property
    def seed(self) -> int:
        """The seed of random values."""
        return self.lab.rubric.seed if self.options.seed is None else self.options.seed

    @property
    def program(self) -> Program | None:
        """What the build made."""
        return self.built.program if self.built is not None else None

    @property
    def comparisons(self) -> tuple[Comparison, ...]:
        """What differed, by case; nothing before the comparison."""
        return self.observed.comparisons if self.observed is not None else ()

    @property
    def can_run(self) -> bool:
        """Is there a program?"""
        return self.program is not None

    def with_observed(self, observed: Observations) -> Attempt:
        """Return the attempt with these observations; where they are new, a diagnosis of earlier ones is dropped."""
        if observed is self.observed:
            return self
        return replace(self, observed=observed, diagnosed=None, spent=self.spent | dict(observed.spent))


def stage_name(step: Callable[[Attempt], Attempt]) -> str:
    """The name of a stage, as progress and costs have it."""
    return step.__name__.removeprefix("_")


def timed(step: Callable[[Attempt], Attempt], attempt: Attempt) -> Attempt:
    """Take a step, and note the CPU seconds: ours, and those of programs of which the step itself says nothing.

    All are seconds of a usual machine, as programs report theirs (`Budget.pace`).
    """
    own, all_programs, reported = time.process_time(), _programs(), _reported_seconds(attempt)
    attempt = step(attempt)
    pace = attempt.work.budget.pace
    others = (_programs() - all_programs) / pace - (_reported_seconds(attempt) - reported)
    name = f"grader {stage_name(step)}"
    seconds = attempt.spent.get(name, 0.0) + (time.process_time() - own) / pace
    more = {name: seconds, "tools": attempt.spent.get("tools", 0.0) + max(0.0, others)}
    return replace(attempt, spent=attempt.spent | more)


def _programs() -> float:
    """CPU seconds of all programs that have ended."""
    times = os.times()
    return times.children_user + times.children_system


def _reported_seconds(attempt: Attempt) -> float:
    return sum(seconds for name, seconds in attempt.spent.items() if name != "tools" and not name.startswith("grader "))
