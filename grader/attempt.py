"""What is known of a submission on its way through the pipeline, and how its steps are taken."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from grader.assignment.lab import Lab
from grader.assignment.source import Source
from grader.core.case import Case
from grader.core.optional_stages import OptionalStages
from grader.core.record import SmallestTrace
from grader.core.verdict import Advice, RuleScore, Verdict
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
    source: Source
    cases: tuple[Case, ...]
    work: Workspace
    options: GradingOptions = DEFAULTS
    hidden: Mapping[str, int] | None = None
    """What cases weigh that are not run here, for the public part."""
    hand_in: int | None = None
    """The number of this hand-in, as far as it is known."""
    relaxed: bool = False
    """Whether warnings and missing functions are forgiven, to see what the file would have scored."""
    built: Built = field(default=Built(program=None))
    replayed: Replayed = field(default=Replayed(played=(), output=b"", cpu_seconds=0.0))
    observed: Observations = field(default=Observations(comparisons=()))
    """From the comparison on; instruments add what they see."""
    resumed: frozenset[int] = frozenset()
    """The cases that pass when what follows the call that stopped them is judged alone."""
    case_findings: tuple[CaseFindings, ...] = ()
    diagnosed: Diagnosed = field(default=Diagnosed(causes=(), verdict=Verdict.ACCEPTED))
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
    def can_run(self) -> bool:
        """Whether there is a program."""
        return self.built.program is not None

    @property
    def program(self) -> Program:
        """What the build made, where it made something (`can_run`)."""
        assert self.built.program is not None
        return self.built.program

    @property
    def comparisons(self) -> tuple[Comparison, ...]:
        """What differed, by case; nothing before the comparison."""
        return self.observed.comparisons

    def play(self, cases: Sequence[Case]) -> Replayed:
        """Play cases with the program."""
        return self.lab.runtime.play(self.work, self.program, cases, optional=self.optional)


@dataclass(frozen=True, slots=True)
class GradingStep:
    """One step of a grading. It takes an attempt and returns the next one."""

    says: str
    """What progress shows meanwhile."""
    take: Callable[[Attempt], Attempt]
    needs_program: bool = True
    """Whether the step is left out where nothing could be built."""

    @property
    def name(self) -> str:
        """The name of the step in the record's costs."""
        return self.take.__name__.removeprefix("_")


def run(attempt: Attempt, steps: Sequence[GradingStep], progress: Callable[[str], None] = lambda _: None) -> Attempt:
    """Take the steps, one after the other, and tell `progress` what each does."""
    for step in steps:
        if attempt.can_run or not step.needs_program:
            progress(step.says)
            attempt = timed(step, attempt)
    return attempt


def timed(step: GradingStep, attempt: Attempt) -> Attempt:
    """Take a step, and note the CPU seconds: ours, and those of programs of which the step itself says nothing.

    All are seconds of a usual machine, as programs report theirs (`Budget.pace`).
    """
    own, all_programs, reported = time.process_time(), _programs(), _reported_seconds(attempt)
    attempt = step.take(attempt)
    pace = attempt.work.budget.pace
    others = (_programs() - all_programs) / pace - (_reported_seconds(attempt) - reported)
    name = f"grader {step.name}"
    seconds = attempt.spent.get(name, 0.0) + (time.process_time() - own) / pace
    more = {name: seconds, "tools": attempt.spent.get("tools", 0.0) + max(0.0, others)}
    return replace(attempt, spent=attempt.spent | more)


def _programs() -> float:
    """CPU seconds of all programs that have ended."""
    times = os.times()
    return times.children_user + times.children_system


def _reported_seconds(attempt: Attempt) -> float:
    return sum(seconds for name, seconds in attempt.spent.items() if name != "tools" and not name.startswith("grader "))
