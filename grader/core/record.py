"""The result record. Every report is a pure function of it, so that the numbers of reports cannot disagree.

The last functions compute which cases cost points: the cost of each case and cause, and the hidden cases by rule.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from grader.core.errors import StageFailure, unwritable
from grader.core.picture import Picture
from grader.core.sanitize import plain_parts
from grader.core.verdict import (
    Advice,
    Audience,
    CallStage,
    Cause,
    Feedback,
    Finding,
    Judged,
    Outcome,
    RuleScore,
    Stage,
    Tool,
    Verdict,
)

if TYPE_CHECKING:
    from pydantic import TypeAdapter

SCHEMA = "paged-kv-grader/record/2"


@dataclass(frozen=True, slots=True, kw_only=True)
class Student:
    """The author of a submission, as far as a roster or an export says."""

    name: str
    sid: str = ""
    email: str = ""
    section: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Submission:
    """What was graded: a name to show, and the SHA-256 of the source file ("" when there was none).

    A report shows findings next to the source, and may be made after the file was deleted. So the lines of the file are
    stored here, up to a bound.
    """

    name: str
    sha256: str = ""
    file: str = ""
    """The path of the source file in the folder `name`; empty when `name` is the file itself, or there is no file."""
    notes: tuple[str, ...] = ()
    source_file: str = ""
    """The name of the source file in findings."""
    source: tuple[str, ...] = ()
    """The lines of the source file, bounded."""
    students: tuple[Student, ...] = ()
    """The authors: several if a group handed in the submission, empty if they are unknown."""
    kept_from: int | None = None
    """In a class: the earlier run to which the submission was handed in, if nothing newer was handed in."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SmallestTrace:
    """The smallest trace on which a submission goes wrong in the same way as in a case."""

    case: str
    calls: tuple[str, ...]
    """The calls up to the one that goes wrong."""
    sentence: str
    """What is wrong in the last call."""
    is_smallest: bool = True
    """Whether there was time to make the trace as small as possible."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Override:
    """What a person decided about one rule of one submission, after it was graded."""

    submission: str
    rule: str
    points: int
    reason: str
    by: str
    was: int = 0
    """The points that the rule had earned."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Protection:
    """The protection from the student's code that was active."""

    level: str = "none"
    active: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class UsedTool:
    """A tool that was used to find faults: its name in reports, and the version that it prints."""

    tool: Tool
    name: str
    version: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Environment:
    """What a result depends on in addition to submission and cases."""

    tools: tuple[UsedTool, ...] = ()
    command: str = ""
    """The command that builds the submission."""
    reproduce: str = ""
    """The command that builds the program of a failing case (from `grade repro`) together with the submission."""
    kernel: str = ""
    grader: str = ""
    lane: str = ""
    """"stock" if the user asked to link programs with the handout's own commands; otherwise empty."""
    pace: float = 1.0
    """How many times slower this machine was than a usual one; all time limits were multiplied by this number."""

    def used(self, tool: Tool) -> UsedTool | None:
        """Return the tool of this kind; None if no such tool was used."""
        return next((used for used in self.tools if used.tool is tool), None)

    def version(self, tool: Tool) -> str:
        """Return the version of the tool of this kind; "" if no such tool was used."""
        used = self.used(tool)
        return used.version if used is not None else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """The result of grading one submission. Points are whole numbers.

    Every text is plain: it controls no terminal, has no invisible characters, and is valid in XML; see
    `grader.core.sanitize`.
    """

    schema: str = SCHEMA
    complete: bool = True
    """Whether the grading was completed. Otherwise there is no score."""
    lab: str
    submission: Submission
    verdict: Verdict
    score: int | None
    max_score: int
    public_only: bool = False
    """Whether hidden cases were not run. Their weight still counts, so `max_score` is less than all points, and running
    them cannot lower the score."""
    would_score: int | None = None
    """For a `compile_error`: the score if warnings were ignored and missing functions were stubs. It never counts."""
    would_rules: tuple[RuleScore, ...] = ()
    """The points of `would_score` by rule."""
    causes: tuple[Cause, ...] = ()
    """Why the submission fails: the most likely cause first, then the other causes, the most costly first."""
    stages: tuple[CallStage, ...] = ()
    """How far each call of the handout is written; empty if nothing goes wrong."""
    rules: tuple[RuleScore, ...] = ()
    outcomes: tuple[Outcome, ...] = ()
    findings: tuple[Finding, ...] = ()
    advice: tuple[Advice, ...] = ()
    """Useful information that never costs a point."""
    allowed: tuple[str, ...] = ()
    """Symbols that a person checked and allowed (`--allow`); otherwise the submission would be rejected."""
    closure: str = ""
    """If every case passes: a sentence that says what was checked beyond the cases."""
    smallest: SmallestTrace | None = None
    """The smallest trace for the first cause, if it was searched for."""
    pictures: tuple[Picture, ...] = ()
    """Pictures of the failing cases that a report shows, if they were requested."""
    overrides: tuple[Override, ...] = ()
    """Points that a person changed; rules, score and verdict are those after the change."""
    notation: dict[str, str] = field(default_factory=dict)
    """The meaning of the abbreviations in the shown operations."""
    output: str = ""
    """What the program printed, bounded. It is shown, never parsed."""
    unchecked: str = ""
    """Sentences that say what the runtime was told not to check; empty if it checked everything."""
    failed_stages: tuple[StageFailure, ...] = ()
    """The stages that failed although the grading went on, because they cannot change points. Reports lack what these
    stages would have found."""
    feedback: Feedback = Feedback.FULL
    """What students see of the record, by the rubric at the time of grading. Instructors see everything."""
    hand_in: int | None = None
    """The number of this hand-in of its student; None if the platform does not give the number."""
    seed: int = 0
    protection: Protection = Protection()
    environment: Environment = Environment()
    cpu_seconds: dict[str, float] = field(default_factory=dict)
    """CPU seconds of this machine, by their purpose.

    A purpose is the programs that a step started (`build`, `play`, `memcheck`, `find lines`, ...), the grader's own
    work in a step (`grader STEP`), or other programs (`tools`).
    """

    def __post_init__(self) -> None:
        """Make every text of the record plain and bounded, because any field may hold text from the student."""
        for name, value in plain_parts(self).items():
            object.__setattr__(self, name, value)

    @property
    def is_unfinished(self) -> bool:
        """Whether there is a call that is not written yet."""
        return any(call_stage.stage is Stage.NOT_YET for call_stage in self.stages)

    @property
    def first_cause(self) -> Cause | None:
        """The cause with which every report begins."""
        return self.causes[0] if self.causes else None

    @property
    def first_failing_cause(self) -> Cause | None:
        """The first cause that has failing cases: `first_cause`, or the next cause if the build fails too."""
        return next((cause for cause in self.causes if cause.cases), None)

    @property
    def build_findings(self) -> list[Finding]:
        """What is wrong with the build."""
        return [finding for finding in self.findings if finding.case is None]

    def outcome(self, case: str) -> Outcome:
        """Return the outcome of a case. Raises `KeyError` when the case was not played."""
        for outcome in self.outcomes:
            if outcome.case == case:
                return outcome
        raise KeyError(case)

    def findings_of(self, outcome: Outcome) -> list[Finding]:
        """Return the findings of a case; the first one is why it fails."""
        return [self.findings[place] for place in outcome.findings]

    def first_finding(self, outcome: Outcome) -> Finding | None:
        """Return the finding that says why a case fails; None when there is none."""
        return self.findings[outcome.findings[0]] if outcome.findings else None

    def bad_operation(self, outcome: Outcome) -> int:
        """Return the operation, counted from 1, at which a case first went wrong; 0 when it is unknown."""
        first = self.first_finding(outcome)
        return (first.operation if first is not None else None) or 0

    def causes_for(self, audience: Audience) -> list[Cause]:
        """Return the causes with the cases that this reader may see, and what these cases cost, `in_order`.

        A cause describes its first case, which is public if a public case failed (grader.judge.causes). If the reader
        may not see that case, the whole cause is omitted. The costs are whole points; together with `hidden_points`
        they are all points that cases cost.
        """
        causes = self._seen_causes(audience)
        *costs, _ = whole_points([*(cause.points for cause in causes), self._unseen_points(causes)])
        return [replace(cause, points=points) for cause, points in zip(causes, costs, strict=True)]

    def hidden_points(self, audience: Audience) -> int:
        """Return the cost, in points, of the cases that this reader may not see."""
        causes = self._seen_causes(audience)
        return whole_points([*(cause.points for cause in causes), self._unseen_points(causes)])[-1]

    def _seen_causes(self, audience: Audience) -> list[Cause]:
        outcomes = {outcome.case: outcome for outcome in self.outcomes if not outcome.hidden_from(audience)}
        causes = []
        for cause in self.causes:
            cases = tuple(case for case in cause.cases if case in outcomes)
            if cases and cases[0] == cause.cases[0]:
                causes.append(replace(cause, cases=cases, points=sum(outcomes[case].points for case in cases)))
        return in_order(causes, first=[cause for cause in causes[:1] if cause.cases[:1] == self.causes[0].cases[:1]])

    def _unseen_points(self, causes: Sequence[Cause]) -> float:
        return max(0.0, sum(outcome.points for outcome in self.outcomes) - sum(cause.points for cause in causes))

    def all_causes_for(self, audience: Audience) -> list[Cause]:
        """Return the causes as `causes_for` does; if the build has findings, only their cause, with all lost points."""
        if not self.build_findings:
            return self.causes_for(audience)
        return [replace(cause, points=float(self.max_score - (self.score or 0))) for cause in self.causes[:1]]


def whole_points(shares: Sequence[float]) -> list[int]:
    """Return the shares as whole points with the same sum, rounded: the largest fractions are rounded up."""
    floors = [int(share) for share in shares]
    missing = round(sum(shares)) - sum(floors)
    by_fraction = sorted(range(len(shares)), key=lambda place: floors[place] - shares[place])
    return [floor + (place in by_fraction[:missing]) for place, floor in enumerate(floors)]


def in_order(causes: Sequence[Cause], *, first: Sequence[Cause]) -> list[Cause]:
    """Return the causes as reports show them: those in `first`, with which `causes` begin, then the most costly ones.

    Equally costly causes are ordered by their number of cases, then by case name. Their present order is ignored: it
    may follow the points of an earlier rubric.
    """

    def key(cause: Cause) -> tuple[float, int, str]:
        return -cause.points, -len(cause.cases), min(cause.cases, default="")

    return [*first, *sorted(causes[len(first) :], key=key)]


NEEDS_PERSON = "needs-person"
"""The kind of a finding that says why a person has to look at a submission that has no score."""


def ungraded(lab: str, submission: Submission, max_score: int, why: str, *, needs_person: bool = False) -> Record:
    """Return the record of a submission without a score; it costs no student a point. `why` is the reason.

    `needs_person` says that a person has to look at the submission, because grading it again seldom helps.
    """
    kind = NEEDS_PERSON if needs_person else "not-graded"
    finding = Finding(rule="", verdict=Verdict.JUDGE_ERROR, kind=kind, message=why)
    return Record(
        complete=False,
        lab=lab,
        submission=submission,
        verdict=Verdict.JUDGE_ERROR,
        score=None,
        max_score=max_score,
        findings=(finding,),
    )


@cache
def _adapter() -> TypeAdapter[Record]:
    from pydantic import TypeAdapter  # noqa: PLC0415 - slow to import, and only files need it

    return TypeAdapter(Record)


def to_json(record: Record, *, one_line: bool = False) -> str:
    """Return the record as a JSON object, with a line end."""
    return _adapter().dump_json(record, indent=None if one_line else 1).decode() + "\n"


def from_json(text: str | bytes) -> Record:
    """Read a record from JSON. Raises `ValueError` when the text is not a record."""
    return _adapter().validate_json(text)


def schema() -> dict[str, Any]:
    """Return the JSON schema of a record."""
    published = _adapter().json_schema(mode="serialization")
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": SCHEMA, **published}


def write(path: Path, text: str | Iterable[str]) -> None:
    """Write a text, or its parts, to `path` atomically: a reader sees the old file or the new one, never a part.

    Raises `UsageError`, and `OSError` with the path when the disk is full or fails.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}")  # named before it exists: any interrupt can remove it
    try:
        temporary.unlink(missing_ok=True)
        with temporary.open("x", encoding="utf-8") as file:
            file.writelines([text] if isinstance(text, str) else text)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError as error:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise unwritable(path, error) from error
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


_VERDICTS_THAT_COST = {
    Judged.LEAK: (Verdict.MEMORY_LEAK,),
    Judged.MEMORY_ERROR: (Verdict.MEMORY_ERROR, Verdict.RUN_TIME_ERROR, Verdict.TIME_LIMIT_EXCEEDED),
}
"""The verdicts of findings that cost points of a rule that is judged in every case."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HiddenLoss:
    """Hidden cases that cost points of one rule."""

    rule: str
    outcomes: tuple[Outcome, ...]
    handout: str
    """The place of the rule in the handout, if the cases belong to another rule; otherwise empty."""
    alone: bool
    """Whether no public case cost points of the rule."""


def with_costs(record: Record) -> Record:
    """Return the record with the cost of each case and cause, by the points that its rules have now.

    The causes are in the order of `in_order`.
    """
    costs: dict[str, float] = {}
    for score in record.rules:
        missing = score.max_points - score.points
        guilty = cases_that_cost(record, score.rule) if missing else []
        weight = sum(outcome.weight for outcome in guilty)
        for outcome in guilty:
            costs[outcome.case] = costs.get(outcome.case, 0.0) + missing * outcome.weight / weight
    costs = {case: round(points, 4) for case, points in costs.items()}
    causes = [
        replace(cause, points=round(sum(costs.get(case, 0.0) for case in cause.cases), 4)) for cause in record.causes
    ]
    return replace(
        record,
        outcomes=tuple(replace(outcome, points=costs.get(outcome.case, 0.0)) for outcome in record.outcomes),
        causes=tuple(in_order(causes, first=causes[:1])),
    )


def cases_that_cost(record: Record, rule: str) -> list[Outcome]:
    """Return the cases that lost points of a rule.

    A rule that no case names is judged in all cases; those with a finding of this rule lost its points.
    """
    own = [outcome for outcome in record.outcomes if outcome.rule == rule]
    if own:
        return [outcome for outcome in own if not outcome.passed]
    judged = next((score.judged for score in record.rules if score.rule == rule), Judged.CASES)
    return [
        outcome
        for outcome in record.outcomes
        if any(_costs(finding, rule, judged) for finding in record.findings_of(outcome))
    ]


def hidden_losses(record: Record, audience: Audience) -> list[HiddenLoss]:
    """Return the hidden cases that cost points, one entry for each rule that lost points through them."""
    losses = []
    for score in record.rules:
        guilty = cases_that_cost(record, score.rule) if score.points < score.max_points else []
        hidden = tuple(outcome for outcome in guilty if outcome.hidden_from(audience))
        if hidden:
            handout = "" if hidden[0].rule == score.rule else score.handout
            alone = len(hidden) == len(guilty)
            losses.append(HiddenLoss(rule=score.rule, outcomes=hidden, handout=handout, alone=alone))
    return losses


def _costs(finding: Finding, rule: str, judged: Judged) -> bool:
    """Whether this finding cost points of a rule that no case names."""
    return finding.verdict in _VERDICTS_THAT_COST[judged] if judged in _VERDICTS_THAT_COST else finding.rule == rule
