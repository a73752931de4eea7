"""Formats with one entry for each rule: Gradescope, Classroom 50, a GitHub job's summary; and functions for JUnit."""

from __future__ import annotations

from typing import Any

from grader.core.record import Record, cases_that_cost
from grader.core.verdict import Audience, Feedback, Outcome, RuleScore
from grader.report import text
from grader.report.document import Document, View, as_json, as_markdown, held_back
from grader.report.page import Page
from grader.report.phrases import decision_of, part_of, points_of, result_of, withheld_of
from grader.report.text import ReportPart
from grader.report.trace import legend, show_case

_WIDTH = 100
_MOST_SHOWN = 2
_MOST_TITLES = 12

_VARIABLES = {
    "classroom": ("CLASSROOM",),
    "assignment": ("ASSIGNMENT",),
    "submission": ("SUBMISSION_TAG",),
    "commit": ("COMMIT_URL",),
    "release": ("RELEASE_URL",),
    "review": ("REVIEW_URL", "COMMIT_URL"),
}

_MOST_DETAILS = 20_000
"""The most characters. Escaped, one takes up to 12 bytes; GitHub accepts 1 MiB per step, and drops a longer summary."""

_TEMPLATE = """\
## {{ name }}: {{ result }}, {{ points }}

{% if rules %}
| | Rule | Points | |
|---|---|--:|---|
{% for rule in rules %}
| {% if rule.points == rule.max_points %}✓{% else %}**✗**{% endif %} | <code>{{ rule.rule }}</code> \
| {{ rule.points }} / {{ rule.max_points }} | {{ rule.title }} |
{% endfor %}

{% endif %}
<pre>
{{ details }}
</pre>
"""


def gradescope(record: Record, view: View) -> Document:
    """Return Gradescope's `results.json`: one visible test for each rule, whole points.

    A hidden test would hide the total from students, so hidden cases are text within a test, with their titles only.
    No time is reported, because the time of a hidden case would reveal information about it. When the grader failed
    there is no score, which Gradescope shows as a failed autograder.
    """
    results: dict[str, Any] = {
        "output": text.render(
            record, audience=view.audience, without=(ReportPart.POINTS, ReportPart.CASES), everything=True
        ),
        "output_format": "text",
        "test_output_format": "text",
        "test_name_format": "text",
        "visibility": "visible",
        "extra_data": {
            "lab": record.lab,
            "verdict": record.verdict,
            "sha256": record.submission.sha256,
            "seed": record.seed,
            "grader": record.environment.grader,
            "complete": record.complete,
        },
    }
    if record.score is not None:
        rules = enumerate(judged(record), start=1)
        results["score"] = record.score
        results["tests"] = [_gradescope_test(record, number, rule, view.audience) for number, rule in rules]
    return as_json(results)


def _gradescope_test(record: Record, number: int, rule: RuleScore, audience: Audience) -> dict[str, Any]:
    return {
        "number": str(number),
        "name": f"{rule.rule}: {rule.title}",
        "score": rule.points,
        "max_score": rule.max_points,
        "status": "passed" if rule.points == rule.max_points else "failed",
        "output": rule_summary(record, rule, audience),
        "tags": [rule.rule],
        "visibility": "visible",
    }


def classroom50(record: Record, view: View) -> Document:
    """Return Classroom 50's `result.json`: whole points, one test for each rule.

    Environment variables of the runner name classroom, assignment and submission. Without them these fields are left
    out, and Classroom 50's validator reports them. When the grader failed there is no score, and the runner says so.
    """
    result: dict[str, Any] = {"schema": "classroom50/result/v1"}
    for field, names in _VARIABLES.items():
        result[field] = next(filter(None, map(view.variables.get, names)), "")
    result |= {"datetime": view.time, "part": part_of(record)}
    if record.score is not None:
        result |= {"score": record.score, "max-score": record.max_score}
    result["tests"] = [_classroom50_test(record, rule) for rule in judged(record)]
    return as_json({field: value for field, value in result.items() if value != ""})


def _classroom50_test(record: Record, rule: RuleScore) -> dict[str, Any]:
    """Return the test of a rule. A decision by people is in an additional field, which Classroom 50 preserves."""
    decision = decision_of(record, rule.rule)
    return {
        "test-name": f"{rule.rule}: {rule.title}",
        "passed": rule.points == rule.max_points,
        "score": rule.points,
        "max-score": rule.max_points,
    } | ({"message": decision} if decision else {})


def summary(record: Record, view: View) -> Document:
    """Return the summary of a GitHub job: a table of points, and below it what goes wrong, as Markdown."""
    details: str = text.render(record, audience=view.audience, without=(ReportPart.POINTS,), everything=True)
    if len(details) > _MOST_DETAILS:
        details = f"{details[:_MOST_DETAILS]}\n... (cut here)"
    return as_markdown(
        _TEMPLATE,
        name=record.submission.name,
        result=result_of(record),
        points=points_of(record),
        rules=judged(record) if record.score is not None else [],
        details=details,
    )


def judged(record: Record) -> list[RuleScore]:
    """Return the rules that can earn points; with `--case` some may have no points to earn."""
    return [score for score in record.rules if score.max_points]


def not_run(record: Record, score: RuleScore) -> bool:
    """Whether this rule was not checked, because the submission does not build."""
    build = {finding.rule for finding in record.build_findings}
    return bool(build) and not record.outcomes and score.rule not in build


def rule_summary(record: Record, score: RuleScore, audience: Audience) -> Document:
    """Return what cost a rule its points: the first causes in full, and the titles of hidden cases."""
    page = Page(_WIDTH, colour=False)
    decision = decision_of(record, score.rule)
    if decision:
        page.write(decision, hang=4)
    if record.feedback is not Feedback.FULL:
        page.write(f"{held_back(record)} Handout: {score.handout}.")
        return page.text()
    if not_run(record, score):
        page.write("Not looked at: nothing could be run.")
        return page.text()
    page.write(f"Handout: {score.handout}.")
    if score.points == score.max_points:
        return page.text()
    withheld = withheld_of(score)
    if withheld:
        page.write(f"{withheld[0].upper()}{withheld[1:]}.")
    building = [finding for finding in record.build_findings if finding.rule == score.rule]
    guilty = cases_that_cost(record, score.rule)
    hidden = [outcome.title for outcome in guilty if outcome.hidden_from(audience)]
    for finding in building:
        page.blank()
        page.write(f"{finding.source[0]}: " if finding.source else "", finding.message, hang=4)
    _cases(page, record, [outcome for outcome in guilty if not outcome.hidden_from(audience)])
    if hidden:
        page.blank()
        page.write("Hidden cases failed; what they do is not shown:")
        _titles(page, hidden)
    if not building and not guilty and not decision and not withheld:
        page.blank()
        page.write(_without_guilty(record, score))
    return page.text()


def _without_guilty(record: Record, score: RuleScore) -> str:
    """Return why points are missing although no case can be named that cost them."""
    if not record.score:
        return "It counts together with other rules only, and none has earned a point yet."
    if score.passed < score.cases:
        return "The other cases were not seen to their end, so they show nothing for this rule."
    return "A mistake was seen that no case of this rule catches; the report begins with it."


def case_in_full(record: Record, outcome: Outcome) -> Document:
    """Return one failing case as text: its operations, the first difference, the line."""
    page = Page(_WIDTH, colour=False)
    show_case(page, record, outcome)
    legend(page, record, [outcome])
    return page.text()


def _cases(page: Page, record: Record, guilty: list[Outcome]) -> None:
    """Write the first causes of these cases in full, and the titles of the others."""
    by_case = {outcome.case: outcome for outcome in guilty}
    grouped = ([by_case[case] for case in cause.cases if case in by_case] for cause in record.causes)
    by_cause = list(filter(None, grouped))
    for shown, *others in by_cause[:_MOST_SHOWN]:
        page.blank()
        show_case(page, record, shown)
        if others:
            page.write("Also seen:")
        _titles(page, [outcome.title for outcome in others])
    rest = [outcome.title for outcomes in by_cause[_MOST_SHOWN:] for outcome in outcomes]
    if rest:
        page.blank()
        page.write("And, when these are fixed:")
        _titles(page, rest)
    legend(page, record, [outcomes[0] for outcomes in by_cause[:_MOST_SHOWN]])


def _titles(page: Page, titles: list[str]) -> None:
    for title in titles[:_MOST_TITLES]:
        page.write(f"- {title}", indent=2, hang=4)
    if len(titles) > _MOST_TITLES:
        page.write(f"- and {len(titles) - _MOST_TITLES} more", indent=2)
