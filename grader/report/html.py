"""The report as a web page in one file: what to do first, every cause with a picture of its states, the source."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from grader.core.record import Record, hidden_losses
from grader.core.verdict import Advice, Audience, Cause, Finding, SourceLine, Tool, Verdict
from grader.report import phrases
from grader.report.document import Document, View, held_back, web_page
from grader.report.picture import drawn
from grader.report.problems import hidden_head, sentences, titles, what_to_do
from grader.report.progress import STAGE_WORDS, asked_now, by_task, how_to_begin, is_next
from grader.report.start_here import coloured, focus, what_it_means
from grader.report.trace import FULL, besides, call_at, notation_of, place_of

_MOST_CAUSES = 6
_MOST_TITLES = 12
_MOST_SAID = 6
"""The most messages that are shown at one line of the source."""

_OURS = {Tool.REPLAY: "the cases", Tool.SCAN: "the grader"}


def render(record: Record, view: View) -> Document:
    """Return the whole page. Of hidden cases, students see title and rule."""
    audience = view.audience
    causes = [] if record.verdict in (Verdict.ACCEPTED, Verdict.JUDGE_ERROR) else record.causes_for(audience)
    causes = asked_now(record, causes)
    shown = [record.outcome(cause.cases[0]) for cause in causes[:_MOST_CAUSES]]
    tasks, hidden_points = by_task(record)
    return web_page(
        "submission",
        title=f"{record.submission.name}: {phrases.result_of(record)}",
        record=record,
        points=phrases.points_of(record),
        verdict=phrases.result_of(record),
        notes=list(_notes(record, audience)),
        stages=[(call_stage, STAGE_WORDS[call_stage.stage]) for call_stage in record.stages]
        if record.is_unfinished
        else [],
        begin=how_to_begin(record),
        is_next=is_next(record),
        focus=focus(record, audience),
        coloured=coloured,
        what_it_means=what_it_means,
        hidden_points=hidden_points,
        tasks=tasks,
        causes=[_card(record, cause) for cause in causes[:_MOST_CAUSES]],
        brief=[(record.outcome(cause.cases[0]).title, phrases.cost_of(cause)) for cause in causes[_MOST_CAUSES:]],
        hidden=_hidden(record, audience),
        withheld={score.rule: phrases.withheld_of(score) for score in record.rules},
        notation="; ".join(notation_of(record, shown, FULL)),
        lines=record.submission.source,
        marks=_marks(record, audience),
        graded=list(phrases.graded_how(record)),
    )


def _notes(record: Record, audience: Audience) -> Iterator[str]:
    if incomplete := phrases.incomplete_of(record):
        yield incomplete
    if record.verdict is Verdict.JUDGE_ERROR:
        yield f"{phrases.no_points_of(record)}. Please show it to your instructor."
    if sentence := held_back(record):
        yield sentence
    yield from phrases.decisions_of(record)
    yield from phrases.failures_of(record, audience)
    if record.verdict is Verdict.ACCEPTED and record.outcomes and not record.overrides:
        yield " ".join(filter(None, (phrases.all_pass(record), record.closure, "Well done.")))
    if audience is Audience.INSTRUCTOR and record.would_score is not None:
        yield f"Had it compiled, it would have scored {record.would_score}; this never counts."
    yield from record.submission.notes


def _card(record: Record, cause: Cause) -> dict[str, object]:
    """Return the values for one cause on the page: the case that shows the cause, and the pictures of this case."""
    outcome, *others = map(record.outcome, cause.cases)
    first, number = record.first_finding(outcome), cause.operation
    picture = next((drawing for drawing in record.pictures if drawing.case == outcome.case), None)
    scenes = drawn(picture, outcome, first) if picture is not None else ()
    first_drawn = scenes[0].step.number if scenes else number + 1 if number else len(outcome.steps) + 1
    at = [place for place, scene in enumerate(scenes) if scene.step.number <= number]
    values = f" is {first.actual}, expected {first.expected}" if first is not None and first.field else ""
    return {
        "cause": cause,
        "cost": phrases.cost_of(cause),
        "outcome": outcome,
        "hidden": outcome.hidden_from(Audience.STUDENT),
        "file": place_of(record, outcome),
        "call": call_at(outcome, number),
        "first": first,
        "field": cause.sentence.removesuffix(values) if values else "",  # the page shows the values separately
        "before": [step for step in outcome.steps if step.number < first_drawn],  # listed, not drawn
        "scenes": scenes,
        "at": at[-1] if at else 0,  # the operation that went wrong, or the last scene before it
        "bad": at[-1] if at and scenes[at[-1]].step.number == number else -1,
        "charts": picture.charts if picture is not None else (),
        "undrawn": picture is not None and number > 0 and all(scene.step.number < number for scene in scenes),
        "besides": list(besides(record.findings_of(outcome))),
        "program": "\n".join(picture.program) if picture is not None else "",
        "program_name": phrases.repro_name(record),
        "program_command": record.environment.reproduce,
        "others": others,
    }


def _hidden(record: Record, audience: Audience) -> dict[str, object]:
    """Return what hidden cases cost, and for each rule the titles and what to read; {} if they cost no points."""
    losses = hidden_losses(record, audience)
    rules = [(loss.rule, titles(loss.outcomes, _MOST_TITLES), sentences(loss, _MOST_TITLES)) for loss in losses]
    return {"head": hidden_head(record, audience), "what": what_to_do(losses), "rules": rules} if losses else {}


def _marks(record: Record, audience: Audience) -> dict[int, list[dict[str, Any]]]:
    """Return the messages by line of the source, in line order: findings and advice that this reader may see."""
    secret = {outcome.case for outcome in record.outcomes if outcome.hidden_from(audience)}
    messages: list[tuple[Finding | Advice, dict[str, Any]]] = [
        (finding, {"by": _name(record, finding.tool), "message": _message(finding), "meaning": what_it_means(finding)})
        for finding in record.findings
    ]
    messages += [(advice, {"by": "advice", "message": advice.message, "advice": True}) for advice in record.advice]
    marks: dict[int, dict[str, dict[str, Any]]] = {}
    for about, mark in messages:
        if (line := _line(record, about.source)) and about.case not in secret:
            first = marks.setdefault(line, {}).setdefault(mark["message"], {"meaning": "", "advice": False, **mark})
            first["cases"] = first.get("cases", 0) + 1
    return {line: list(marks[line].values())[:_MOST_SAID] for line in sorted(marks)}


def _name(record: Record, tool: Tool) -> str:
    used = record.environment.used(tool)
    return _OURS.get(tool) or (used.name if used is not None else tool.value)


def _message(finding: Finding) -> str:
    """Return in words what a finding says is wrong, and what the student should look at."""
    return f"{finding.message.removesuffix('.')}. {finding.hint}" if finding.hint else finding.message


def _line(record: Record, source: tuple[SourceLine, ...]) -> int:
    """Return the line number of a place in the shown source; 0 if the place is not in this source."""
    submission = record.submission
    if not source or source[0].file != submission.source_file or not submission.source:
        return 0
    return source[0].line if 0 < source[0].line <= len(submission.source) else 0
