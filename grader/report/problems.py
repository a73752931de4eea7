"""The problems to fix, one by one, and formats that put a message at a line: GNU messages and GitHub annotations.

Of hidden cases that cost points, a report shows rule and title. A public case that fails for the same rule shows what
to fix. If there is none, the report adds the handout's sentences that the hidden cases test; these reveal no calls.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain

from grader.core.record import HiddenLoss, Override, Record, cases_that_cost, hidden_losses
from grader.core.verdict import Audience, Finding, Outcome, SourceLine, Tool, Verdict
from grader.report.document import Document, View, as_command, as_gnu_message, as_log, joined
from grader.report.page import Page, dim, glued, strong
from grader.report.phrases import cost_of, counted, no_points_of, points_lost, points_of, result_of, said_of
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
    """Whether the problem costs no points, or no longer costs any."""
    settled_by: tuple[Override, ...] = ()
    """The decisions of people because of which the problem no longer costs points."""


def causes(record: Record, audience: Audience) -> Iterator[Problem]:
    """Yield a problem for each cause, in the order of the record; then one for each rule that hidden cases fail."""
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
    """Yield the problems. One that costs nothing now is a note: people gave all its rules their full points."""
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
    """Yield the decisions of people. A decision that took points is no note, because it cost points like a cause."""
    for override in record.overrides:
        is_note = override.points >= override.was
        yield Problem(rule=override.rule, message=said_of(override), kind="decided", is_note=is_note)


def _problem(outcome: Outcome, finding: Finding | None) -> Problem:
    """Return the problem of a case: what went wrong, what to look at, and the case and operation."""
    number = finding.operation if finding is not None else None
    call = call_at(outcome, number)
    at = f", operation {number}" + (f" ({call})" if call else "") if number else ""
    parts = [finding.message, finding.hint] if finding is not None else []
    parts = [f"{part.removesuffix('.')}." for part in (*parts, f"{outcome.title}: case {outcome.case}{at}") if part]
    problem = Problem(rule=outcome.rule, message=" ".join(parts), cases=frozenset({outcome.case}))
    if finding is None:
        return problem
    return replace(problem, rule=finding.rule, tool=finding.tool, kind=finding.kind, source=finding.source)


def file_of(record: Record) -> str:
    """Return the path of the graded file, relative to where the grader was called; the folder if there is no file."""
    return posixpath.normpath(posixpath.join(record.submission.name, record.submission.file))


def _building(record: Record) -> Iterator[Problem]:
    for finding in () if record.verdict.is_ours else record.build_findings:
        rule, message, tool, kind = finding.rule, finding.message, finding.tool, finding.kind
        yield Problem(rule=rule, message=message, tool=tool, kind=kind, source=finding.source)


def _hidden(record: Record, audience: Audience) -> Iterator[Problem]:
    """Yield one problem for each rule: how many hidden cases cost its points, and their titles.

    If no hidden case costs points, failing hidden cases without a cost are reported. For an unfinished file nothing is
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
    other causes. If the grader itself failed, an error that says so replaces the points.
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

    A problem whose line is unknown has no line number, like a compiler's own messages that belong to no line. Editors
    skip such messages. Notes are the points, and problems that cost no point (any more).
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


def hidden_cases(page: Page, record: Record, audience: Audience, most: int) -> None:
    """Write the section about hidden cases, with at most `most` titles and sentences for each rule."""
    losses = _begun(page, record, audience)
    column = max((len(loss.rule) for loss in losses), default=0)
    for loss in losses:
        page.crop(f"{loss.rule:{column}}  ", dim("; ".join(titles(loss.outcomes, most))), indent=2)
        for sentence in sentences(loss, most):
            page.write(dim(sentence), indent=4 + column, hang=6 + column)


def hidden_briefly(page: Page, record: Record, audience: Audience, most: int) -> None:
    """Write the rules that lost points; add titles and sentences only for rules for which no public case fails."""
    losses = _begun(page, record, audience)
    others = [glued(loss.rule) for loss in losses if not loss.alone]
    if others:
        page.write(dim(f"rules: {', '.join(others)}"), indent=2, hang=4)
    for loss in (loss for loss in losses if loss.alone):
        page.write(strong(loss.rule), f": {'; '.join(titles(loss.outcomes, most))}", indent=2, hang=4)
        for sentence in sentences(loss, most):
            page.write(dim(sentence), indent=4, hang=6)


def _begun(page: Page, record: Record, audience: Audience) -> list[HiddenLoss]:
    """Write the beginning of the section, if hidden cases cost points. Return these losses by rule."""
    losses = hidden_losses(record, audience)
    if losses:
        page.heading(hidden_head(record, audience))
        page.write(what_to_do(losses), indent=2)
    return losses


def hidden_head(record: Record, audience: Audience) -> str:
    """Return the heading: how many points hidden cases cost."""
    return f"Hidden cases cost {points_lost(record.hidden_points(audience))} in all"


def what_to_do(losses: list[HiddenLoss]) -> str:
    """Return the advice to fix public cases that fail for the same rules or, if there are none, to read the handout."""
    alone = [loss.rule for loss in losses if loss.alone]
    begin = "What they do is not shown."
    if not alone:
        return f"{begin} Public cases of the same rules fail too; fix those first."
    if len(alone) < len(losses):
        return f"{begin} Fix the public cases first; points of {', '.join(alone)} are lost in hidden cases only."
    return f"{begin} Only hidden cases cost points of these rules: read what the handout says."


def titles(outcomes: Sequence[Outcome], most: int) -> Iterator[str]:
    """Yield the titles of the first `most` cases, then how many more cases there are."""
    yield from dict.fromkeys(outcome.title for outcome in outcomes[:most])
    if len(outcomes) > most:
        yield f"and {len(outcomes) - most} more"


def sentences(loss: HiddenLoss, most: int) -> list[str]:
    """Return what the handout says about the cases, each sentence once; [] if a public case fails for the rule."""
    if not loss.alone:
        return []
    if loss.handout:
        return [f"handout: {loss.handout}"]
    return list(dict.fromkeys(clause for outcome in loss.outcomes[:most] for clause in outcome.tested))[:most]
