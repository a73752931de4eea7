"""One submission, from path to record, as a tuple of steps. Read `STEPS`: it is the table of contents of the grader.

Each step takes an `Attempt` and returns the next one. A wrong submission travels on as a value; only a broken grader
raises.
"""

from __future__ import annotations

import platform
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import grader
from grader import sandbox
from grader.build import toolchain
from grader.casefile import Case
from grader.collect import Source, collect
from grader.compare import Comparison, compare
from grader.diagnose import CaseFindings, Diagnosed, case_findings, diagnose, stacks_of
from grader.errors import DriverError
from grader.lab import Built, Lab
from grader.memcheck import Checked, memcheck
from grader.record import Environment, Record, Submission
from grader.replay import Replayed, replay
from grader.rubric import Judged
from grader.sandbox import Workspace
from grader.score import passes, rule_scores, total
from grader.symbols import source_lines
from grader.verdict import (
    Diagnosis,
    Finding,
    Outcome,
    OutcomeDifference,
    RuleScore,
    StepShown,
    Verdict,
)

__all__ = ["STEPS", "Attempt", "Progress", "grade"]

Progress = Callable[[str], None]
"""Told the name of each step as it begins."""

Early = Callable[[Record], None]
"""Given what is earned so far, so that a kill leaves something."""

_MOST_OUTPUT = 4000
_MOST_STEPS = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """What is known of a submission so far; each step fills in its part."""

    lab: Lab
    path: Path
    cases: tuple[Case, ...]
    work: Workspace
    seed: int
    valgrind: bool = True
    relaxed: bool = False
    source: Source | None = None
    built: Built | None = None
    replayed: Replayed | None = None
    comparisons: tuple[Comparison, ...] = ()
    checked: Checked | None = None
    found: tuple[CaseFindings, ...] = ()
    diagnosed: Diagnosed | None = None
    scores: tuple[RuleScore, ...] = ()
    spent: dict[str, float] = field(default_factory=dict)

    @property
    def can_run(self) -> bool:
        return self.built is not None and self.built.program is not None


def grade(
    path: Path,
    lab: Lab,
    cases: Sequence[Case],
    *,
    seed: int,
    valgrind: bool = True,
    progress: Progress = lambda _: None,
    early: Early = lambda _: None,
) -> Record:
    """Grade the submission at `path`. Raises `GraderError` when we, not the student, are at fault."""
    toolchain.require(*lab.tools, *(["valgrind"] if valgrind else []))
    with sandbox.workspace() as work:
        attempt = Attempt(lab=lab, path=path, cases=tuple(cases), work=work, seed=seed, valgrind=valgrind)
        for step in STEPS:
            progress(step.__name__)
            attempt = _timed(step, attempt)
            if step in (_compare, _memcheck):
                early(_record(_score(_diagnose(attempt)), complete=False))
    return _record(attempt, would_score=_would_score(attempt))


def _collect(attempt: Attempt) -> Attempt:
    rule = attempt.lab.rubric.judged(Judged.BUILD)
    return replace(attempt, source=collect(attempt.path, attempt.lab.source_name, rule))


def _build(attempt: Attempt) -> Attempt:
    source = attempt.source
    assert source is not None
    if source.finding is not None:
        return replace(attempt, built=Built(program=None, findings=(source.finding,)))
    built = attempt.lab.build(attempt.work, source.content, source.own_headers, attempt.relaxed)
    return replace(attempt, built=built, spent=attempt.spent | {"build": built.cpu_seconds})


def _replay(attempt: Attempt) -> Attempt:
    if attempt.built is None or attempt.built.program is None:
        return attempt
    replayed = replay(
        attempt.work,
        attempt.built.program,
        attempt.cases,
        codes=_codes(attempt.lab),
        settings=attempt.lab.driver_settings,
    )
    return replace(attempt, replayed=replayed, spent=attempt.spent | {"replay": replayed.cpu_seconds})


def _compare(attempt: Attempt) -> Attempt:
    if attempt.replayed is None:
        return attempt
    comparisons = tuple(compare(played, attempt.lab.model) for played in attempt.replayed.played)
    return replace(attempt, comparisons=comparisons)


def _memcheck(attempt: Attempt) -> Attempt:
    """Valgrind sees the cases that neither crashed nor hung natively."""
    if attempt.built is None or attempt.built.program is None or not attempt.valgrind or attempt.relaxed:
        return attempt
    sound = [i for i, one in enumerate(attempt.comparisons) if one.played.complete or one.played.misfit]
    if not sound:
        return attempt
    checked = memcheck(
        attempt.work,
        attempt.built.program,
        attempt.cases,
        sound,
        codes=_codes(attempt.lab),
        settings=attempt.lab.driver_settings,
    )
    return replace(attempt, checked=checked, spent=attempt.spent | {"memcheck": checked.cpu_seconds})


def _diagnose(attempt: Attempt) -> Attempt:
    if attempt.built is None or attempt.built.program is None or not attempt.comparisons:
        return attempt
    lines = source_lines(attempt.work, attempt.built.program, stacks_of(attempt.comparisons))
    found = case_findings(attempt.comparisons, lines, attempt.checked, attempt.lab)
    return replace(attempt, found=tuple(found), diagnosed=diagnose(found, attempt.lab))


def _score(attempt: Attempt) -> Attempt:
    builds = attempt.built is not None and attempt.can_run and not attempt.built.findings
    diagnosis = attempt.diagnosed.diagnosis if attempt.diagnosed is not None else None
    scores = rule_scores(
        attempt.found, attempt.lab.rubric, builds=builds, diagnosed=diagnosis.rule if diagnosis is not None else None
    )
    return replace(attempt, scores=scores)


STEPS: tuple[Callable[[Attempt], Attempt], ...] = (
    _collect,
    _build,
    _replay,
    _compare,
    _memcheck,
    _diagnose,
    _score,
)
"""The way of a submission."""


def _timed(step: Callable[[Attempt], Attempt], attempt: Attempt) -> Attempt:
    started = time.process_time()
    attempt = step(attempt)
    own = time.process_time() - started
    name = f"grader {step.__name__.removeprefix('_')}"
    return replace(attempt, spent=attempt.spent | {name: own})


def _codes(lab: Lab) -> dict[str, int]:
    """The driver numbers operations in the order of the lab's grammar."""
    return {name: number for number, name in enumerate(lab.grammar.operations)}


def _would_score(attempt: Attempt) -> int | None:
    """What a submission that does not compile would have scored, warnings forgiven and holes stubbed."""
    source = attempt.source
    if attempt.can_run or source is None or source.finding is not None:
        return None
    with sandbox.workspace() as work:
        again = replace(attempt, work=work, relaxed=True, valgrind=False)
        for step in STEPS[1:]:
            again = step(again)
    return total(again.scores) if again.can_run else None


def _record(attempt: Attempt, *, complete: bool = True, would_score: int | None = None) -> Record:
    lab, built, source = attempt.lab, attempt.built, attempt.source
    assert built is not None
    assert source is not None
    findings = list(built.findings)
    outcomes = []
    for one in attempt.found:
        places = tuple(range(len(findings), len(findings) + len(one.findings)))
        findings += one.findings
        outcomes.append(_outcome(one, lab, places))
    score = total(attempt.scores)
    max_score = sum(rule.max_points for rule in attempt.scores)
    return Record(
        complete=complete,
        lab=lab.name,
        submission=Submission(name=source.name, sha256=source.sha256, notes=source.notes),
        verdict=_verdict(attempt, score, max_score),
        score=score,
        max_score=max_score,
        would_score=would_score,
        diagnosis=_diagnosis(attempt),
        rules=attempt.scores,
        outcomes=tuple(outcomes),
        findings=tuple(findings),
        output=_output(attempt),
        memcheck=attempt.valgrind,
        seed=attempt.seed,
        protection=sandbox.protection(),
        environment=Environment(
            compiler=built.compiler,
            command=built.command,
            valgrind=toolchain.version("valgrind") if attempt.valgrind else "",
            kernel=f"{platform.system()} {platform.release()}",
            grader=grader.__version__,
        ),
        cpu_seconds={name: round(seconds, 4) for name, seconds in attempt.spent.items()},
    )


def _verdict(attempt: Attempt, score: int, max_score: int) -> Verdict:
    if attempt.built is not None and attempt.built.findings:
        return Verdict.COMPILE_ERROR
    if score == max_score:
        return Verdict.ACCEPTED
    if attempt.diagnosed is None or attempt.diagnosed.verdict is Verdict.ACCEPTED:
        raise DriverError("points were lost, but no finding says why")
    return attempt.diagnosed.verdict


def _diagnosis(attempt: Attempt) -> Diagnosis | None:
    """A failing build explains itself; else what the cases say."""
    if attempt.built is not None and attempt.built.findings:
        first: Finding = attempt.built.findings[0]
        rule = attempt.lab.rubric.rule(first.rule)
        return Diagnosis(
            rule=rule.id,
            handout=rule.handout,
            case=None,
            operation=None,
            line=None,
            source_line=first.source[0] if first.source else None,
            summary=first.message,
            hint=first.field if first.kind in ("compiler", "linker") else "",
            also=tuple(score.rule for score in attempt.scores if attempt.can_run and score.points < score.max_points),
        )
    return attempt.diagnosed.diagnosis if attempt.diagnosed is not None else None


def _outcome(one: CaseFindings, lab: Lab, places: tuple[int, ...]) -> Outcome:
    comparison = one.comparison
    case = comparison.case
    passed = passes(comparison, lab.rubric.rule(case.rule))
    clean = not one.symptoms
    cause = one.cause
    return Outcome(
        case=case.name,
        title=case.title,
        rule=case.rule,
        handout=case.handout,
        weight=case.weight,
        visibility=case.visibility,
        verdict=Verdict.ACCEPTED if passed and clean else cause.verdict if cause else Verdict.WRONG_ANSWER,
        passed=passed,
        clean=clean,
        findings=places,
        difference=_difference(one),
        cause=_cause(one),
        hint=one.hint,
        steps=() if clean else _steps(comparison, lab),
    )


def _difference(one: CaseFindings) -> OutcomeDifference | None:
    """The first difference, physical ids and all."""
    if one.cause is None or one.cause.difference is None:
        return None
    difference = one.cause.difference
    operation = one.comparison.case.trace.operations[one.cause.operation]
    return OutcomeDifference(
        operation=one.cause.operation + 1,
        line=operation.line,
        call=str(operation),
        facet=difference.facet,
        field=difference.field,
        expected=difference.expected,
        actual=difference.actual,
    )


def _cause(one: CaseFindings) -> str:
    """Cases with the same first difference or the same line of a crash have one cause."""
    if one.cause is None:
        return ""
    comparison, cause = one.comparison, one.cause
    operation = comparison.case.trace.operations[min(cause.operation, len(comparison.case.trace.operations) - 1)]
    rule = one.clue.rule if one.clue is not None else comparison.case.rule
    if cause.difference is None:
        place = str(cause.source[0]) if cause.source else operation.name
        return f"{cause.kind} {place}"
    hint = one.clue.hint if one.clue is not None else ""
    return f"{rule} {operation.name} {cause.difference.facet} {hint}"


def _steps(comparison: Comparison, lab: Lab) -> tuple[StepShown, ...]:
    """The operations as a report shows them; of a long trace those before the trouble."""
    operations = comparison.case.trace.operations
    last = max((deviation.operation for deviation in comparison.deviations[:1]), default=comparison.ended_at)
    start = max(0, min(last + 3, len(operations)) - _MOST_STEPS)
    shown = []
    for number, operation in list(enumerate(operations))[start : start + _MOST_STEPS]:
        poke = lab.grammar.operations[operation.name].is_poke
        shown.append(
            StepShown(
                number=number + 1,
                line=operation.line,
                call=str(operation),
                expected=comparison.expected[number].text,
                actual=comparison.actual[number] if number < len(comparison.actual) else None,
                comment=operation.comment,
                note=lab.describe_poke(operation) if poke else "",
            )
        )
    return tuple(shown)


def _output(attempt: Attempt) -> str:
    if attempt.replayed is None:
        return ""
    return attempt.replayed.output[:_MOST_OUTPUT].decode("utf-8", "replace")
