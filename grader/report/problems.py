"""The problems to fix, one by one, and formats that put a message at a line: GNU messages and GitHub annotations."""

from __future__ import annotations

import posixpath
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import chain

from grader.core.record import Override, Record, cases_that_cost, hidden_losses
from grader.core.verdict import Audience, Finding, Outcome, SourceLine, Tool, Verdict
from grader.report.document import Document, View, as_command, as_gnu_message, as_log, joined
from grader.report.hidden import titles
from grader.report.phrases import cost_of, counted, no_points_of, points_of, result_of, said_of
from grader.report.progress import asked_now, is_for_later, is_in_unwritten
from grader.report.trace import call_at

_MOST_TITLES = 12
_MOST_ANNOTATIONS = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """A problem, with the cases in which it was seen; without `source` its line is unknown."""

    rule: str
    message: str
    tool: Tool = Tool.REPLAY
    kind: str = ""
    cases: frozenset[str] = frozenset()
    source: tuple[SourceLine, ...] = ()
    is_note: bool = False
    """Whether it costs no point, or no longer costs any."""
    settled_by: tuple[Override, ...] = ()
    """The decisions because of which it no longer costs any."""


def causes(record: Record, audience: Audience) -> Iterator[Problem]:
    """Yield a problem for each cause, the diagnosed one first, then by cost; last, one per rule for hidden cases."""
    problems = []
    for cause in asked_now(record, record.causes_for(audience)):
        outcome = record.outcome(cause.cases[0])
        problem = _problem(outcome, record.first_finding(outcome))
        message = f"{problem.message} ({cost_of(cause)})"
        problems.append(replace(problem, message=message, cases=frozenset(cause.cases)))
    return _settled(record, chain(_building(record), problems, _hidden(record, audience)))


def each_found(record: Record, audience: Audience) -> Iterator[Problem]:
    """Yield a problem for each thing that a tool found at one line, described by the first case that shows it."""
    problems: dict[tuple[object, ...], Problem] = {}
    causes = record.causes_for(audience)
    cause_of = {case: place for place, cause in enumerate(causes) for case in cause.cases}
    for outcome in (outcome for outcome in record.outcomes if outcome.case in cause_of):
        is_first = outcome.case == causes[0].cases[0]
        if not is_first and is_for_later(record, outcome):
            continue
        findings: list[Finding | None] = [
            finding
            for place, finding in enumerate(record.findings_of(outcome))
            if (is_first and not place) or not is_in_unwritten(record, outcome, finding.operation)
        ]
        for finding in findings or [None]:
            problem = _problem(outcome, finding)
            key = (problem.tool, problem.rule, problem.kind, problem.source[:1] or cause_of[outcome.case])
            known = problems.setdefault(key, problem)
            problems[key] = replace(known, cases=known.cases | problem.cases)
    return _settled(record, chain(_building(record), problems.values(), _hidden(record, audience)))


def _settled(record: Record, problems: Iterable[Problem]) -> Iterator[Problem]:
    """Make a problem a note when it costs nothing any more: people gave full points to all rules that it cost some."""
    raised = [override for override in record.overrides if override.points > override.was]
    if not raised:
        yield from problems
        return
    full = {rule.rule for rule in record.rules if rule.points == rule.max_points}
    guilty = {rule.rule: {outcome.case for outcome in cases_that_cost(record, rule.rule)} for rule in record.rules}
    for problem in problems:
        costs = {problem.rule, *(rule for rule, cases in guilty.items() if cases & problem.cases)}
        if not record.outcomes:  # a failed build costs the points of every rule
            costs |= guilty.keys()
        by = tuple(override for override in raised if override.rule in costs)
        is_note = record.verdict.passed or (bool(by) and costs <= full)
        yield replace(problem, is_note=is_note, settled_by=by if is_note else ())


def advised(record: Record) -> Iterator[Problem]:
    """Yield the advice, which costs no point."""
    for advice in record.advice:
        yield Problem(rule=advice.kind, message=advice.message, source=advice.source, is_note=True)


def decided(record: Record) -> Iterator[Problem]:
    """Yield the decisions of people. One that took points is no note, because these points are missing like others."""
    for override in record.overrides:
        is_note = override.points >= override.was
        yield Problem(rule=override.rule, message=said_of(override), kind="decided", is_note=is_note)


def _problem(outcome: Outcome, finding: Finding | None) -> Problem:
    """Return the problem of a case: what went wrong, what to look at, and the case and operation."""
    number = finding.operation if finding is not None else None
    call = call_at(outcome, number) if number else ""
    at = f", operation {number}" + (f" ({call})" if call else "") if number else ""
    parts = [finding.message, finding.hint] if finding is not None else []
    parts = [f"{part.removesuffix('.')}." for part in (*parts, f"{outcome.title}: case {outcome.case}{at}") if part]
    problem = Problem(rule=outcome.rule, message=" ".join(parts), cases=frozenset({outcome.case}))
    if finding is None:
        return problem
    return replace(problem, rule=finding.rule, tool=finding.tool, kind=finding.kind, source=finding.source)


def file_of(record: Record) -> str:
    """Return the path of the graded file, seen from where the grader was called; the folder when there is no file."""
    return posixpath.normpath(posixpath.join(record.submission.name, record.submission.file))


def _building(record: Record) -> Iterator[Problem]:
    for finding in record.build_findings:
        rule, message, tool, kind = finding.rule, finding.message, finding.tool, finding.kind
        yield Problem(rule=rule, message=message, tool=tool, kind=kind, source=finding.source)


def _hidden(record: Record, audience: Audience) -> Iterator[Problem]:
    """Yield one problem for each rule: how many hidden cases cost its points, and their titles.

    When no hidden case costs points, the failing ones that cost none are reported. For an unfinished file nothing is
    reported, because its hidden cases fail for what public cases require too.
    """
    if record.is_unfinished:
        return
    by_rule = {loss.rule: list(loss.outcomes) for loss in hidden_losses(record, audience)}
    if not by_rule:
        for outcome in record.outcomes:
            if outcome.hidden_from(audience) and outcome.verdict is not Verdict.ACCEPTED:
                by_rule.setdefault(outcome.rule, []).append(outcome)
    for rule, failing in by_rule.items():
        listed = "; ".join(titles(failing, _MOST_TITLES))
        message = f"{counted(len(failing), 'hidden case')} of {rule} failed: {listed}"
        yield Problem(rule=rule, message=message, kind="hidden", cases=frozenset(case.case for case in failing))


def annotated(record: Record, view: View) -> Document:
    """Return workflow commands for GitHub: errors for causes, notices for what costs no point, and the points last.

    GitHub shows ten errors and ten notices of a step, so the most costly causes come first; the job's summary has the
    rest. When the grader itself failed, an error that says so takes the place of the points.
    """
    return joined(_commands(record, view))


def _commands(record: Record, view: View) -> Iterator[Document]:
    problems = list(causes(record, view.audience))
    decisions = list(decided(record))
    errors = [problem for problem in (*decisions, *problems) if not problem.is_note]
    notes = [("decided by people", decision) for decision in decisions if decision.is_note]
    notes += [(f"{problem.rule}, costs no point any more", problem) for problem in problems if problem.is_note]
    notes += [("advice, costs no point", advice) for advice in advised(record)]
    for problem in errors[:_MOST_ANNOTATIONS]:
        yield as_command("error", problem.message, **_place(record, problem.source), title=problem.rule)
    for title, note in notes[: _MOST_ANNOTATIONS - 1]:
        yield as_command("notice", note.message, **_place(record, note.source), title=title)
    left = len(errors) - _MOST_ANNOTATIONS
    more = f"; {left} more causes are in the summary" if left > 0 else ""
    title = f"{record.submission.name}: {result_of(record)}"
    if record.verdict.is_ours:
        yield as_command("error", f"{no_points_of(record)}.", title=title)
    else:
        yield as_command("notice", f"{points_of(record)}{more}", title=title)


def _place(record: Record, source: tuple[SourceLine, ...]) -> dict[str, str | int]:
    place: dict[str, str | int] = {"file": file_of(record), "line": 0, "col": 0}
    if source:
        place |= {"line": source[0].line, "col": source[0].column}
    return {name: value for name, value in place.items() if value} if record.submission.sha256 else {}


def gnu(record: Record, view: View) -> Document:
    """Return messages in the format of GNU compilers, for editors: `file:line:column: error: text [rule]`.

    A problem without a known line is written without one, like a compiler's own messages that belong to no line.
    Editors skip such messages. What costs no point (any more), and the points, are notes.
    """
    messages = joined(_messages(record, view))
    return as_log(messages) if view.workflow else messages


def _messages(record: Record, view: View) -> Iterator[Document]:
    file = file_of(record) if record.submission.sha256 else record.submission.name
    for problem in chain(decided(record), causes(record, view.audience), advised(record)):
        place = (problem.source[0].line, problem.source[0].column) if problem.source else ()
        kind = "note" if problem.is_note else "error"
        yield as_gnu_message(kind, f"{problem.message} [{problem.rule}]", file, *place)
    points = no_points_of(record) if record.verdict.is_ours else points_of(record)
    yield as_gnu_message("note", f"{result_of(record)}, {points[0].lower()}{points[1:]}", file)
