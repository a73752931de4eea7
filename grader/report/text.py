"""The report for a terminal: what to do first, then the points, then the causes, then how it was graded."""

from __future__ import annotations

from collections.abc import Container
from enum import Enum, auto

from grader.record import Record
from grader.report.closing import advised, footer, printed
from grader.report.decided import decisions_of
from grader.report.document import Document
from grader.report.groups import (
    Audience,
    Group,
    broken_by,
    grouped,
    hidden_failures,
    hint_of,
    is_hidden,
    lost_points,
    trouble_of,
)
from grader.report.page import Page, bad, dim, glued, good, pad, strong
from grader.report.start import start_here
from grader.report.trace import case_file, show_case
from grader.report.words import all_pass, cost_of, counted, points_of, result_of, withheld_of
from grader.verdict import RuleScore, Verdict

__all__ = ["Audience", "Part", "render"]

_MOST_GROUPS = 6
_MOST_NAMES = 3


class Part(Enum):
    """What other formats show in their own way."""

    POINTS = auto()
    CASES = auto()


def render(
    record: Record,
    *,
    width: int = 100,
    colour: bool = False,
    audience: str = "student",
    without: Container[Part] = (),
) -> Document:
    """The record as a page of text, no line of it wider than `width` columns (40 at least).

    `audience` is "student" or "instructor": of hidden cases students see title and rule only.
    """
    reader = Audience(audience)
    page = Page(width, colour=colour)
    _headline(page, record)
    _decided(page, record)
    if record.verdict is Verdict.ACCEPTED and not record.overrides:
        _all_well(page, record)
    else:
        start_here(page, record, reader)
        if Part.POINTS not in without:
            _points(page, record)
        if Part.CASES not in without and record.verdict is not Verdict.ACCEPTED:
            _causes(page, record, reader)
            _hidden(page, record, reader)
    advised(page, record)
    printed(page, record)
    footer(page, record, reader)
    return page.text()


def _headline(page: Page, record: Record) -> None:
    mark = good if record.verdict.passed else bad
    begin = strong(record.submission.name), ": ", mark(result_of(record))
    if record.public_only:  # a line of its own, so that its words stay together
        page.write(*begin, hang=2)
        page.write(strong(points_of(record)), indent=2)
    else:
        page.write(*begin, ", ", strong(glued(points_of(record))), hang=2)
    if not record.complete:
        page.write(
            "Grading was interrupted; this is what was earned until then, and something may be missing.",
            indent=2,
        )
    for note in record.submission.notes:
        page.write(dim(note), indent=2)


def _decided(page: Page, record: Record) -> None:
    """What people decided; all numbers of the report are those after it."""
    for decision in decisions_of(record):
        page.write(strong(decision), indent=2, hang=4)


def _all_well(page: Page, record: Record) -> None:
    page.blank()
    page.write(all_pass(record), indent=2)
    if record.memcheck:
        page.write("Valgrind has nothing to say: no bad access, 0 bytes lost. Well done.", indent=2)
    else:
        page.write("Well done.", indent=2)


def _points(page: Page, record: Record) -> None:
    """One line a rule; a minus before it says what is missing."""
    if not record.outcomes and not record.overrides:
        return
    page.heading("Points, rule by rule")
    if not record.score:
        page.write("No rule has earned a point yet. That changes with the first cause below.", indent=2)
        return
    widths = _Widths(record.rules)
    page.write(dim(widths.head()), indent=2)
    for score in record.rules:
        missing = score.max_points - score.points
        lost = f"-{missing}" if missing else ""
        figures = widths.row(lost, f"{score.points}/{score.max_points}", score)
        if not missing:
            page.crop(dim(figures + score.title), indent=2)
            continue
        place = dim(glued(f"({score.handout})"))
        hang = len(figures) + 2
        withheld = withheld_of(score)
        said = f"; {withheld}" if withheld else ""
        page.write(bad(figures[:5]), strong(figures[5:]), score.title, " ", place, said, indent=2, hang=hang)


class _Widths:
    """The columns of the table of points."""

    def __init__(self, rules: tuple[RuleScore, ...]) -> None:
        self.rule = max(len("rule"), *(len(score.rule) for score in rules))
        self.cases = max(len("cases"), *(len(_cases(score)) for score in rules))

    def head(self) -> str:
        return f"{'lost':>4}  {'points':>6}  {'cases':>{self.cases}}  {'rule':{self.rule}}"

    def row(self, lost: str, points: str, score: RuleScore) -> str:
        return f"{lost:>4}  {points:>6}  {_cases(score):>{self.cases}}  {pad(score.rule, self.rule)}  "


def _cases(score: RuleScore) -> str:
    return f"{score.passed}/{score.cases}"


def _causes(page: Page, record: Record, audience: Audience) -> None:
    """Failing cases by cause, one of each cause in full."""
    groups = grouped(record, (outcome for outcome in record.outcomes if not is_hidden(outcome, audience)))
    if not groups:
        return
    cases = counted(sum(len(group.outcomes) for group in groups), "case")
    page.heading("What goes wrong" if len(groups) == 1 else f"What goes wrong: {len(groups)} causes, {cases}")
    for number, group in enumerate(groups[:_MOST_GROUPS], start=1):
        page.blank()
        _group(page, record, group, number)
    rest = groups[_MOST_GROUPS:]
    if rest:
        page.blank()
        page.write(strong("And, when these are mended:"))
        for group in rest:
            _in_brief(page, record, group)


def _group(page: Page, record: Record, group: Group, number: int) -> None:
    trouble = trouble_of(record, group.shown)
    rule = trouble.rule if trouble is not None else group.shown.rule
    page.write(strong(f"{number}. {rule}"), f": {cost_of(group)}", hang=3)
    show_case(page, record, group.shown)
    hint = hint_of(record, group)
    page.blank()
    if broken_by(record, group):
        page.labelled("Handout", broken_by(record, group), column=9)
    if hint:
        page.labelled("Hint", hint, column=9)
    if group.others:
        names = [outcome.case for outcome in group.others]
        more = f" and {len(names) - _MOST_NAMES} more" if len(names) > _MOST_NAMES else ""
        page.labelled("Also", ", ".join(names[:_MOST_NAMES]) + more, column=9)


def _in_brief(page: Page, record: Record, group: Group) -> None:
    trouble = trouble_of(record, group.shown)
    rule = trouble.rule if trouble is not None else group.shown.rule
    page.write(f"- {rule}: {group.shown.title} ({case_file(record, group.shown.case)}); {cost_of(group)}", hang=2)


def _hidden(page: Page, record: Record, audience: Audience) -> None:
    """Hidden cases that fail: title and rule, no more."""
    failing = hidden_failures(record, audience)
    if not failing:
        return
    lost = lost_points(record)
    points = round(sum(lost[outcome.case] for outcome in failing))
    hidden = sum(is_hidden(outcome, audience) for outcome in record.outcomes)
    page.heading(f"Hidden cases: points lost in {len(failing)} of {hidden}, about {points} in all")
    page.write(
        "What they do is not shown. Public cases of the same rules ask for the same; mend those first.",
        indent=2,
    )
    by_rule: dict[str, list[str]] = {}
    for outcome in failing:
        by_rule.setdefault(outcome.rule, []).append(outcome.title)
    column = max(map(len, by_rule))
    for rule, titles in by_rule.items():
        page.crop(f"{len(titles):>3}  {rule:{column}}  ", dim("; ".join(titles)), indent=1)
