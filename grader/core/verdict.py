"""The closed set of verdicts, and the values in which a submission's faults are kept."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

__all__ = [
    "Advice",
    "CallStage",
    "Diagnosis",
    "Finding",
    "Judged",
    "Outcome",
    "OutcomeDifference",
    "RuleScore",
    "SourceLine",
    "Stage",
    "StepShown",
    "Tool",
    "Verdict",
    "Visibility",
]


class Verdict(StrEnum):
    """Also the folder names under `submissions/`, but for `judge_error`, which no submission can earn."""

    ACCEPTED = "accepted"
    COMPILE_ERROR = "compile_error"
    WRONG_ANSWER = "wrong_answer"
    RUN_TIME_ERROR = "run_time_error"
    TIME_LIMIT_EXCEEDED = "time_limit_exceeded"
    MEMORY_ERROR = "memory_error"
    MEMORY_LEAK = "memory_leak"
    REJECTED = "rejected"
    JUDGE_ERROR = "judge_error"

    @property
    def passed(self) -> bool:
        """Is nothing wrong?"""
        return self is Verdict.ACCEPTED

    @property
    def is_ours(self) -> bool:
        """Is it the grader that failed?"""
        return self is Verdict.JUDGE_ERROR


class Judged(StrEnum):
    """What a rule is judged by."""

    CASES = "cases"  # the cases that name it, on its facets
    BUILD = "build"  # compiling and linking
    LEAK = "leak"  # every case: is anything lost?
    MEMORY_ERROR = "memory-error"  # every case: a bad access, a bad free, a crash?


class Visibility(StrEnum):
    """Who sees what a case does. Of a hidden case students see title and rule."""

    PUBLIC = "public"
    HIDDEN = "hidden"


class Stage(StrEnum):
    """How far a demanded call is, by the public cases."""

    WORKS = "works"
    IN_WORK = "in work"
    NOT_YET = "not yet"
    """It always refuses what it is asked to do, as one that is not written does."""


class Tool(StrEnum):
    """Who found it."""

    GCC = "gcc"
    REPLAY = "replay"
    VALGRIND = "valgrind"
    SCAN = "scan"


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceLine:
    """A line of the student's file, innermost call first where there are several."""

    file: str
    line: int
    function: str = ""
    column: int = 0

    def __str__(self) -> str:
        return f"{self.file}:{self.line}" + (f":{self.column}" if self.column else "")


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """Something wrong with the submission. `operation` counts from 1 as in the report; None: not tied to one."""

    rule: str
    verdict: Verdict
    message: str
    tool: Tool = Tool.REPLAY
    kind: str = ""
    case: str | None = None
    operation: int | None = None
    field: str = ""
    expected: str = ""
    actual: str = ""
    source: tuple[SourceLine, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Advice:
    """Something worth knowing about the submission that costs no point. `operation` counts from 1."""

    kind: str
    """What sort of advice: equal kinds stand together in a report."""
    message: str
    case: str | None = None
    operation: int | None = None
    source: tuple[SourceLine, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class OutcomeDifference:
    """The first place where a case went wrong, whichever rule it belongs to."""

    operation: int
    line: int
    call: str
    facet: str
    field: str
    expected: str
    actual: str
    said: str = ""
    """The same in one sentence, where "field is actual, expected" is not the way to say it."""

    @property
    def seen(self) -> str:
        """What is wrong, in one sentence."""
        return self.said or f"{self.field} is {self.actual}, expected {self.expected}"


@dataclass(frozen=True, slots=True, kw_only=True)
class StepShown:
    """One operation of a case as a report shows it; `actual` is None when it was not reached."""

    number: int
    line: int
    call: str
    expected: str
    actual: str | None
    comment: str = ""
    note: str = ""
    """For a poke: one sentence on what the grader did."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """One case, graded. `findings` are positions in the record's list."""

    case: str
    title: str
    rule: str
    handout: tuple[str, ...]
    """The sentences of the handout that it tests, by their names."""
    weight: int
    visibility: Visibility
    verdict: Verdict
    passed: bool
    clean: bool
    """Did everything as the handout wants, without a leak or a memory error."""
    findings: tuple[int, ...] = ()
    difference: OutcomeDifference | None = None
    cause: str = ""
    """Failing cases with the same cause are one group in a report."""
    hint: str = ""
    """What to look at, for whoever has to mend it."""
    broken: str = ""
    """The sentence of the handout that was broken, with its place."""
    plain: bool = True
    """Are there only calls of what is to be written, and no odd setting? Such a case is shown before others."""
    steps: tuple[StepShown, ...] = ()
    clauses: tuple[str, ...] = ()
    """Of a case that fails: what the sentences of `handout` say."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleScore:
    """What one rule earned."""

    rule: str
    title: str
    handout: str
    points: int
    max_points: int
    cases: int
    passed: int
    judged: Judged = Judged.CASES
    withheld: int = 0
    """Points that are missing without a finding: not earned because too little of the other rules was."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CallStage:
    """A demanded call, the handout's name for the task of writing it, and how far it is."""

    call: str
    task: str
    stage: Stage


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnosis:
    """The most likely broken rule, and what to look at."""

    rule: str
    handout: str
    case: str | None
    operation: int | None
    line: int | None
    source_line: SourceLine | None
    summary: str
    hint: str
    broken: str = ""
    """The sentence of the handout that was broken, with its place."""
    also: tuple[str, ...] = ()
