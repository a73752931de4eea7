"""The data that each step of a grading hands to the next one, and the function that runs the steps."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from grader.assignment.lab import Lab
from grader.assignment.source import Source
from grader.core.case import Case
from grader.core.errors import OptionalStages
from grader.core.record import SmallestTrace
from grader.core.verdict import Advice, CallStage, Cause, RuleScore
from grader.judge.case_findings import CaseFindings
from grader.runtime.protocol import DEFAULTS, Built, Comparison, GradingOptions, Observations, Program, Replayed
from grader.system.sandbox import Workspace


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """Everything known about a submission so far. Each step adds what it finds out."""

    lab: Lab
    source: Source
    cases: tuple[Case, ...]
    work: Workspace
    options: GradingOptions = DEFAULTS
    hidden: Mapping[str, int] | None = None
    """If only the public cases run: the weight of the hidden cases, by rule."""
    hand_in: int | None = None
    """The number of this hand-in; None if it is unknown."""
    relaxed: bool = False
    """Whether the build ignores warnings and missing functions, to compute what the file would have scored."""
    built: Built = field(default=Built(program=None))
    replayed: Replayed = field(default=Replayed(played=(), output=b"", cpu_seconds=0.0))
    observed: Observations = field(default=Observations(comparisons=()))
    """The comparisons, set by `compare`, and what instruments saw, set by later steps."""
    resumed: frozenset[int] = frozenset()
    """The numbers of the cases that a call stopped and that pass if the calls after it are judged separately."""
    case_findings: tuple[CaseFindings, ...] = ()
    causes: tuple[Cause, ...] = ()
    """The causes of failing cases, the most likely one first."""
    stages: tuple[CallStage, ...] = ()
    """The stage of each call, if something went wrong."""
    advice: tuple[Advice, ...] = ()
    """The advice from the steps after the build."""
    searches: bool = False
    """Whether to search for failures beyond the cases."""
    closure: str = ""
    smallest: SmallestTrace | None = None
    scores: tuple[RuleScore, ...] = ()
    optional: OptionalStages = field(default_factory=OptionalStages)
    """Runs the stages of the grading that cannot change points, and collects their failures."""
    spent: dict[str, float] = field(default_factory=dict)

    @property
    def seed(self) -> int:
        """The seed of random values."""
        return self.lab.rubric.seed if self.options.seed is None else self.options.seed

    @property
    def can_run(self) -> bool:
        """Whether the build made a program."""
        return self.built.program is not None

    @property
    def program(self) -> Program:
        """The program that the build made. Only available if `can_run`."""
        assert self.built.program is not None
        return self.built.program

    @property
    def comparisons(self) -> tuple[Comparison, ...]:
        """The comparison of each case; empty before the step `compare`."""
        return self.observed.comparisons

    @property
    def first_cause(self) -> Cause | None:
        """The most likely cause; None if nothing fails."""
        return self.causes[0] if self.causes else None

    def play(self, cases: Sequence[Case]) -> Replayed:
        """Play cases with the program."""
        return self.lab.runtime.play(self.work, self.program, cases, optional=self.optional)


@dataclass(frozen=True, slots=True)
class GradingStep:
    """One step of a grading: a function that takes an attempt and returns the next one."""

    says: str
    """What the progress display shows while the step runs."""
    take: Callable[[Attempt], Attempt]
    needs_program: bool = True
    """Whether the step is skipped if the build made no program."""

    @property
    def name(self) -> str:
        """The name of the step. The record's `cpu_seconds` list the time of the step as "grader NAME"."""
        return self.take.__name__.removeprefix("_")


def run(attempt: Attempt, steps: Sequence[GradingStep], progress: Callable[[str], None] = lambda _: None) -> Attempt:
    """Run the steps in order. `progress` is called with what each step `says`, before the step runs."""
    for step in steps:
        if attempt.can_run or not step.needs_program:
            progress(step.says)
            attempt = timed(step, attempt)
    return attempt


def timed(step: GradingStep, attempt: Attempt) -> Attempt:
    """Run a step, and add its CPU seconds to `spent`, converted to seconds of a usual machine (grader.system.budget).

    CPU seconds of this process count as "grader STEP". Those of the programs that it started count as "tools", unless
    the step has added them to `spent` itself.
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
    """Return the CPU seconds of all child processes that have ended."""
    times = os.times()
    return times.children_user + times.children_system


def _reported_seconds(attempt: Attempt) -> float:
    return sum(seconds for name, seconds in attempt.spent.items() if name != "tools" and not name.startswith("grader "))
