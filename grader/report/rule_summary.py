"""Why a rule did not earn all its points: the text for formats that have one entry for each rule."""

from __future__ import annotations

from grader.core.record import Record, cases_that_cost
from grader.core.verdict import Audience, Feedback, Outcome, RuleScore
from grader.report.document import Document
from grader.report.page import Page
from grader.report.phrases import decision_of, withheld_of
from grader.report.released import held_back
from grader.report.trace import legend, show_case

_WIDTH = 100
_MOST_SHOWN = 2
_MOST_TITLES = 12


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
    for finding in building:
        page.blank()
        page.write(f"{finding.source[0]}: " if finding.source else "", finding.message, hang=4)
    _cases(page, record, [outcome for outcome in guilty if not outcome.hidden_from(audience)])
    hidden = [outcome.title for outcome in guilty if outcome.hidden_from(audience)]
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
    by_cause = [outcomes for outcomes in grouped if outcomes]
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
