"""Build the record of an attempt: score, verdict, costs of each case and cause; rescore it by another rubric."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial

import grader
from grader.assignment.lab import Lab
from grader.attempt import Attempt
from grader.core.errors import DriverError, OptionalStage
from grader.core.picture import Drawing, Picture
from grader.core.record import Environment, Record, Submission, UsedTool, with_costs
from grader.core.rubric import Rubric
from grader.core.sanitize import decoded, decoded_lines
from grader.core.verdict import NOT_IMPORTED, Cause, Outcome, RuleScore, StepShown, Verdict
from grader.judge import score
from grader.judge.case_findings import CaseFindings
from grader.judge.causes import charged
from grader.runtime.protocol import Built
from grader.system import resources, sandbox

_MOST_OUTPUT = 4000

_MOST_STEPS = 60

_MOST_SOURCE, _MOST_LINES, _MOST_COLUMNS = 100_000, 3000, 400
"""The most bytes, lines and characters per line of the source in a record."""


def record(attempt: Attempt, *, would: Sequence[RuleScore] = (), draw: Drawing) -> Record:
    """Return the record of an attempt. `draw` says how many failing cases get pictures.

    If the submission does not compile, `would` has the points of each rule for a relaxed build (`Runtime.build`).

    Raises `DriverError` if points were lost and no finding says why.
    """
    lab, built, source, optional = attempt.lab, attempt.built, attempt.source, attempt.optional
    coverage, printed = attempt.observed.coverage, attempt.replayed.output[:_MOST_OUTPUT]
    findings = list(built.findings)
    outcomes = []
    for case_findings in attempt.case_findings:
        places = tuple(range(len(findings), len(findings) + len(case_findings.findings)))
        findings += case_findings.findings
        outcomes.append(_outcome(case_findings, lab, places))
    result = Record(
        lab=lab.name,
        submission=Submission(
            name=source.name,
            sha256=source.sha256,
            file=source.file,
            notes=source.notes,
            source_file=lab.source_name,
            source=optional.run(OptionalStage.SOURCE, partial(_lines, source.content), otherwise=()),
        ),
        verdict=_verdict(attempt),
        score=0,
        max_score=0,
        public_only=attempt.hidden is not None,
        causes=tuple(_causes(attempt)),
        stages=attempt.stages,
        outcomes=tuple(outcomes),
        findings=tuple(findings),
        advice=(*built.advice, *attempt.advice),
        allowed=built.allowed,
        closure=attempt.closure,
        smallest=attempt.smallest,
        notation=dict(lab.notation),
        output=optional.run(OptionalStage.PRINTS, partial(decoded, printed), otherwise=""),
        unchecked=lab.runtime.unchecked(attempt.options) if coverage is None else coverage,
        feedback=lab.rubric.feedback_at(datetime.now(UTC), attempt.hand_in),
        hand_in=attempt.hand_in,
        seed=attempt.seed,
        protection=sandbox.protection(),
        environment=_environment(attempt),
        cpu_seconds={name: round(seconds * attempt.work.budget.pace, 4) for name, seconds in attempt.spent.items()},
    )
    result = with_rules(result, attempt.scores, would)
    drawn = optional.run(OptionalStage.PICTURES, partial(_pictures, result, attempt, draw), otherwise=())
    return replace(result, pictures=drawn, failed_stages=tuple(dict.fromkeys(optional.failures)))


def _pictures(record: Record, attempt: Attempt, draw: Drawing) -> tuple[Picture, ...]:
    if draw is Drawing.NOTHING or record.first_cause is None:
        return ()
    from grader.result.draw_states import pictures  # noqa: PLC0415 - a right program needs none

    return pictures(record, attempt.comparisons, attempt.lab, draw)


def _environment(attempt: Attempt) -> Environment:
    command = attempt.built.command
    return Environment(
        tools=tuple(_used(attempt)),
        command=command,
        reproduce=attempt.lab.reproduce_command if command or attempt.can_run else "",
        kernel=f"{os.uname().sysname} {os.uname().release}",
        grader=grader.__version__,
        lane="stock" if attempt.options.stock else "",
        pace=attempt.work.budget.pace,
    )


def _used(attempt: Attempt) -> Iterator[UsedTool]:
    """Yield the tools that ran and that can make findings."""
    for tool in attempt.lab.runtime.tools(attempt.options):
        if tool.makes is not None:
            yield UsedTool(tool=tool.makes, name=tool.title or tool.name, version=resources.version(tool.name))


def _verdict(attempt: Attempt) -> Verdict:
    if attempt.built.findings:
        return _of_build(attempt.built)
    most = sum(rule.max_points for rule in attempt.scores)
    explained = attempt.causes[:1] if any(case.cause is not None for case in attempt.case_findings) else ()
    diagnosed = explained[0].verdict if explained else Verdict.ACCEPTED
    return by_points(score.total(attempt.scores), most, diagnosed)


def _of_build(built: Built) -> Verdict:
    return Verdict.REJECTED if built.rejected else Verdict.COMPILE_ERROR


def _causes(attempt: Attempt) -> Iterator[Cause]:
    """Yield the first finding of a failing build, then the causes of failing cases."""
    if attempt.built.findings:
        first = attempt.built.findings[0]
        yield Cause(
            rule=first.rule,
            verdict=_of_build(attempt.built),
            sentence=first.message,
            hint=first.field if first.kind in ("compiler", "linker") else "",
            lines=first.source[:1],
        )
    yield from charged(attempt.causes, attempt.case_findings, attempt.scores)


def _outcome(case_findings: CaseFindings, lab: Lab, places: tuple[int, ...]) -> Outcome:
    comparison = case_findings.comparison
    case = comparison.case
    passed = score.passes(case_findings, lab.rubric.rule(case.rule))
    clean = not case_findings.evidence
    cause = case_findings.cause
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
        steps=() if clean else _steps(case_findings, lab),
        clauses=() if passed and clean else tuple(lab.grammar.clauses[name] for name in case.handout),
    )


def _steps(case_findings: CaseFindings, lab: Lab) -> tuple[StepShown, ...]:
    """Return the operations for a report. Of a long trace, return those up to shortly after the first failure."""
    comparison = case_findings.comparison
    operations = comparison.case.trace.operations
    last = case_findings.first_wrong if case_findings.first_wrong >= 0 else comparison.ended_at
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
                actual=comparison.actual[number].text if number < len(comparison.actual) else None,
                comment=operation.comment,
                note=lab.describe_poke(operation) if poke else "",
            )
        )
    return tuple(shown)


def _lines(content: bytes) -> tuple[str, ...]:
    """Return the lines of the source for a report, cut at `_MOST_SOURCE`, `_MOST_LINES` and `_MOST_COLUMNS`."""
    lines = content[:_MOST_SOURCE].replace(b"\r\n", b"\n").split(b"\n")
    if lines[-1] == b"":
        lines.pop()
    return tuple(line.expandtabs(8)[:_MOST_COLUMNS] for line in decoded_lines(lines[:_MOST_LINES]))


def rescored(record: Record, rubric: Rubric) -> Record | None:
    """Return the record that a grading by this rubric would make now.

    The rubric must have the same rules, judged in the same way. Points, titles and places of rules, and what students
    see, are those of this rubric. The pictures stay. A record without a score stays unchanged.

    Returns None if other rules lose points than before, because then only a grading finds the rules of the causes.
    """
    if record.score is None:
        return record
    rules = score.rescored(record.rules, rubric)
    if not score.lose_alike(record.rules, rules):
        return None
    record = replace(record, feedback=rubric.feedback_at(datetime.now(UTC), record.hand_in))
    return with_rules(record, rules, score.rescored(record.would_rules, rubric))


def with_rules(record: Record, rules: Sequence[RuleScore], would: Sequence[RuleScore]) -> Record:
    """Return the record with these scores, and with the score, verdict and costs that follow from them.

    `would` has the scores for `would_score`.
    """
    points, most = score.total(rules), sum(rule.max_points for rule in rules)
    verdict = record.verdict
    if not record.build_findings:
        first = record.first_cause
        verdict = by_points(points, most, first.verdict if first is not None else Verdict.ACCEPTED)
    scored = replace(
        record,
        causes=tuple(_with_build_clause(record, rules)),
        rules=tuple(rules),
        score=points,
        max_score=most,
        verdict=verdict,
        would_score=score.total(would) if would else None,
        would_rules=tuple(would),
    )
    return with_costs(scored)


def _with_build_clause(record: Record, rules: Sequence[RuleScore]) -> list[Cause]:
    """Return the causes. If a compiler or an import failed, the first cause's clause is its rule's place and title."""
    if not record.build_findings or record.build_findings[0].kind not in ("compiler", NOT_IMPORTED):
        return list(record.causes)
    first, *others = record.causes
    rule = next(rule for rule in rules if rule.rule == first.rule)
    return [replace(first, clause=": ".join(filter(None, (rule.handout, rule.title)))), *others]


def by_points(points: int, most: int, diagnosed: Verdict) -> Verdict:
    """Return the verdict of a submission that builds. Raises `DriverError` if no diagnosis explains a loss."""
    if points == most and (most or diagnosed is Verdict.ACCEPTED):  # a rule may be worth nothing
        return Verdict.ACCEPTED
    if diagnosed is Verdict.ACCEPTED:
        raise DriverError("points were lost, but no finding says why")
    return diagnosed
