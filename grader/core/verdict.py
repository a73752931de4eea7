"""The closed set of verdicts, and the types that store a submission's faults."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Verdict(StrEnum):
    """The verdicts; also the folder names below `submissions/`, except `judge_error`, which no submission can earn."""

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
        """Whether nothing is wrong."""
        return self is Verdict.ACCEPTED

    @property
    def is_ours(self) -> bool:
        """Whether the grader failed, not the submission."""
        return self is Verdict.JUDGE_ERROR


class Judged(StrEnum):
    """What a rule is judged by."""

    CASES = "cases"  # the cases that name it, on its facets
    BUILD = "build"  # compiling and linking
    LEAK = "leak"  # every case: lost memory
    MEMORY_ERROR = "memory-error"  # every case: bad accesses, bad frees, crashes


class Visibility(StrEnum):
    """The readers who see what a case does. Of a hidden case, students see only title and rule."""

    PUBLIC = "public"
    HIDDEN = "hidden"


class Stage(StrEnum):
    """How far a demanded call is, by the public cases."""

    WORKS = "works"
    IN_WORK = "in work"
    NOT_YET = "not yet"
    """It refuses in every case to do its work, like a function that is not written yet."""


NOT_IMPORTED = "import"
"""The kind of a finding of a build: the submission is a module, and cannot be imported as demanded."""
EXCEPTION = "exception"
"""The kind of a finding: a call raised an error by which the handout refuses nothing."""


class Tool(StrEnum):
    """What made a finding. A record's environment says by which names and versions."""

    BUILD = "build"
    REPLAY = "replay"
    MEMORY_CHECKER = "memory-checker"
    SCAN = "scan"


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceLine:
    """A line of the student's file. In a sequence of several, the innermost call comes first."""

    file: str
    line: int
    function: str = ""
    column: int = 0

    def __str__(self) -> str:
        return f"{self.file}:{self.line}" + (f":{self.column}" if self.column else "")


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """A fault of the submission. `operation` counts from 1 as in the report; None: it belongs to no operation."""

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
    """Useful information about the submission that costs no point. `operation` counts from 1."""

    kind: str
    """The kind of advice: a report groups advice of the same kind."""
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
    """The same in one sentence, where "field is actual, expected ..." does not describe it."""

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
    """For a poke: one sentence that says what the grader did."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The result of one case. `findings` are positions in the record's list."""

    case: str
    title: str
    rule: str
    handout: tuple[str, ...]
    """The names of the handout's sentences that it tests."""
    weight: int
    visibility: Visibility
    verdict: Verdict
    passed: bool
    clean: bool
    """Whether the program did everything as the handout requires, without a leak or a memory error."""
    findings: tuple[int, ...] = ()
    difference: OutcomeDifference | None = None
    cause: str = ""
    """Failing cases with the same cause are one group in a report."""
    hint: str = ""
    """What the student should look at to correct it."""
    broken: str = ""
    """The sentence of the handout that was broken, with its place."""
    plain: bool = True
    """Whether it has only calls of the demanded functions, and no odd setting. Such a case is shown before others."""
    steps: tuple[StepShown, ...] = ()
    clauses: tuple[str, ...] = ()
    """For a failing case: the text of the sentences in `handout`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleScore:
    """The points that one rule earned."""

    rule: str
    title: str
    handout: str
    points: int
    max_points: int
    cases: int
    passed: int
    judged: Judged = Judged.CASES
    withheld: int = 0
    """Points that are missing without a finding: they are held back because the other rules earned too few points."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CallStage:
    """A demanded call, the handout's name for the task of writing it, and its stage."""

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
