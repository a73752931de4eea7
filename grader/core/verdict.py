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
    """The evidence by which a rule is judged."""

    CASES = "cases"  # the cases that name it, on its facets
    BUILD = "build"  # compiling and linking
    LEAK = "leak"  # every case: lost memory
    MEMORY_ERROR = "memory-error"  # every case: bad accesses, bad frees, crashes


class Visibility(StrEnum):
    """The readers who see what a case does. Of a hidden case, students see only title and rule."""

    PUBLIC = "public"
    HIDDEN = "hidden"


class Audience(StrEnum):
    """The reader of a report. Of a hidden case, students see title and rule; instructors see everything."""

    STUDENT = "student"
    INSTRUCTOR = "instructor"


class Feedback(StrEnum):
    """How much of a report students see."""

    FULL = "full"  # everything but what hidden cases do
    RULES = "rules"  # the points of each rule
    SCORE = "score"  # score and verdict


class Stage(StrEnum):
    """How far a call that the handout asks for is written, as the public cases show."""

    WORKS = "works"
    IN_WORK = "in work"
    NOT_YET = "not yet"
    """The call is not written yet: its body is empty or only returns."""


NOT_IMPORTED = "import"
"""The kind of a build finding: the submission is a module that cannot be imported as demanded."""
EXCEPTION = "exception"
"""The kind of a finding: a call raised an error that the handout never asks for."""
REFUSED = "refused"
"""The kind of a finding: a call did what no graded program may do, such as ending the program. It breaks no sentence of
the handout about the call."""


class Tool(StrEnum):
    """The kind of tool that made a finding. A record's environment has the tool's name and version."""

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
    """A fault of the submission. `operation` counts from 1 as in the report; None if it belongs to no operation."""

    rule: str
    verdict: Verdict
    message: str
    """What is wrong, in one sentence."""
    hint: str = ""
    """What the student should look at, if this finding is why its case fails."""
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
class StepShown:
    """One operation of a case as a report shows it; `actual` is None if the operation was not reached."""

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
    """The result of one case."""

    case: str
    title: str
    rule: str
    handout: tuple[str, ...]
    """The names of the handout's sentences that the case tests."""
    weight: int
    visibility: Visibility
    verdict: Verdict
    passed: bool
    clean: bool
    """Whether the program did everything as the handout requires, without a leak or a memory error."""
    findings: tuple[int, ...] = ()
    """Positions in the record's list. The first finding is why the case fails."""
    points: float = 0.0
    """The case's approximate cost in points: a rule's lost points are divided by weight among its failing cases."""
    steps: tuple[StepShown, ...] = ()
    clauses: tuple[str, ...] = ()
    """For a failing case: the text of the sentences in `handout`."""

    def hidden_from(self, audience: Audience) -> bool:
        """Whether this reader must not see what the case does."""
        return self.visibility is Visibility.HIDDEN and audience is not Audience.INSTRUCTOR

    @property
    def tested(self) -> list[str]:
        """The sentences that the case tests, with their places in the handout: `Task 2: put returns -1 when ...`."""
        places = [name.partition("/")[0] for name in self.handout]
        clauses = [f"{place}: {clause}" for place, clause in zip(places, self.clauses, strict=False)]
        return clauses or list(self.handout)


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
    """Points withheld without a finding, because the other rules earned too few points."""
    weight: int = 0
    """The weight of the rule's cases; the number of cases if the rule is judged in every case; 1 for the build."""
    earned: int = 0
    """The part of `weight` that passed. `weight`, `earned` and `elsewhere` decide the points (grader.judge.score)."""
    elsewhere: int = 0
    """The weight of the rule's cases that were not run, because they are hidden."""
    breached: bool = False
    """Whether the first cause breaks this rule."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CallStage:
    """A call that the handout asks for, the handout's task to write it, and how far the call is written."""

    call: str
    task: str
    stage: Stage


@dataclass(frozen=True, slots=True, kw_only=True)
class Cause:
    """Why a submission fails: the broken rule, what to look at, and the cases that fail for this reason."""

    rule: str
    verdict: Verdict
    sentence: str
    """What was observed in the case to show."""
    clause: str = ""
    """The sentence of the handout that was broken, with its place."""
    hint: str = ""
    """What the student should look at to correct it."""
    lines: tuple[SourceLine, ...] = ()
    """The submission's lines in the case to show, innermost call first."""
    cases: tuple[str, ...] = ()
    """The failing cases that the cause explains, the case to show first; empty for a build that fails."""
    call: str = ""
    """The name of the call that went wrong in the case to show."""
    operation: int = 0
    """The operation that went wrong in the case to show, counted from 1; 0 if unknown."""
    points: float = 0.0
    """The points that the cause costs, approximately."""

    @property
    def identity(self) -> tuple[str, str, str]:
        """What identifies the cause in other submissions: the rule, the call and the broken sentence of the handout.

        The hint and the sentence contain values and lines of this submission, so they are not part of it. A cause
        without a call, such as a failing build, is identified by its hint.
        """
        return self.rule, self.call, self.clause or ("" if self.call else self.hint)

    @property
    def is_unexplained(self) -> bool:
        """Whether the hint explains nothing: it is empty, or repeats the end of `summary` word for word."""
        return self.summary.endswith(self.hint)

    @property
    def summary(self) -> str:
        """What was observed, and at which operation."""
        if not self.operation:
            return self.sentence
        call = "" if self.sentence.startswith(f"{self.call} ") else f"{self.call} at "
        return f"{call}operation {self.operation}: {self.sentence}"
