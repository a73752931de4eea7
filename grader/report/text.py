"""The report for a terminal: what to do first, then the points, then the causes, then how it was graded."""

from __future__ import annotations

from collections.abc import Container

from grader.core.causes import Audience, Group, broken_by, grouped, hint_of, is_hidden, leading_finding
from grader.core.record import Record
from grader.core.verdict import RuleScore, Verdict
from grader.report.brief import Part, brief
from grader.report.charts import show_charts
from grader.report.closing import advised, footer, printed
from grader.report.document import Document
from grader.report.focus import focus
from grader.report.head import all_well, headline
from grader.report.hidden import hidden_cases
from grader.report.page import Page, bad, dim, glued, pad, strong
from grader.report.progress import how_far
from grader.report.start import start_here
from grader.report.states import show_states
from grader.report.trace import legend, show_case
from grader.report.words import cost_of, counted, withheld_of

_MOST_NAMES = 3
_MOST_TITLES = 12


def render(
    record: Record,
    *,
    width: int = 100,
    colour: bool = False,
    audience: str = "student",
    everything: bool = False,
    without: Container[Part] = (),
) -> Document:
    """Return the record as a page of text; no line is wider than `width` columns (at least 40).

    The page has at most 80 lines and shows one cause in full; with `everything` it shows all in full. `audience` is
    "student" or "instructor". Of hidden cases, students see only title and rule, and also the sentences of the handout
    that the cases test when no public case fails for the rule.
    """
    reader = Audience(audience)
    page = Page(width, colour=colour)
    if everything:
        _everything(page, record, reader, without)
    else:
        brief(page, record, reader, without)
    return page.text()


def _everything(page: Page, record: Record, reader: Audience, without: Container[Part]) -> None:
    headline(page, record)
    if record.verdict is Verdict.ACCEPTED and not record.overrides:
        page.blank()
        all_well(page, record)
    else:
        how_far(page, record)
        shown = focus(record, reader)
        start_here(page, record, shown, reader)
        if shown is not None and shown.also:
            page.labelled("also seen", f"{shown.also}; some of it may go away with this one")
        page.blank()
        show_states(page, shown)
        show_charts(page, shown.charts if shown is not None else ())
        if Part.POINTS not in without:
            _points(page, record)
        if Part.CASES not in without and record.verdict is not Verdict.ACCEPTED:
            _causes(page, record, reader)
            hidden_cases(page, record, reader, _MOST_TITLES)
    advised(page, record)
    printed(page, record)
    footer(page, record, reader)


def _points(page: Page, record: Record) -> None:
    """Write one line for each rule; a negative number at its start is what is missing."""
    if not record.outcomes and not record.overrides:
        return
    page.heading("Points, rule by rule")
    if not record.score:
        page.write("No rule has earned a point yet. That changes once the first cause below is mended.", indent=2)
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
        remark = f"; {withheld}" if withheld else ""
        page.write(bad(figures[:5]), strong(figures[5:]), score.title, " ", place, remark, indent=2, hang=hang)


class _Widths:
    """The widths of the columns in the table of points."""

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
    """Write the failing cases by cause, one of each cause in full."""
    groups = grouped(record, (outcome for outcome in record.outcomes if not is_hidden(outcome, audience)))
    if not groups:
        return
    cases = counted(sum(len(group.outcomes) for group in groups), "case")
    page.heading("What goes wrong" if len(groups) == 1 else f"What goes wrong: {len(groups)} causes, {cases}")
    for number, group in enumerate(groups, start=1):
        page.blank()
        _group(page, record, group, number)
    legend(page, record, [group.shown for group in groups])


def _group(page: Page, record: Record, group: Group, number: int) -> None:
    leading = leading_finding(record, group.shown)
    rule = leading.rule if leading is not None else group.shown.rule
    page.write(strong(f"{number}. {rule}"), f": {cost_of(group)}", hang=3)
    show_case(page, record, group.shown)
    hint = hint_of(record, group)
    page.blank()
    if broken_by(record, group):
        page.labelled("Handout", broken_by(record, group))
    if hint:
        page.labelled("Hint", hint)
    if group.others:
        names = [outcome.case for outcome in group.others]
        more = f" and {len(names) - _MOST_NAMES} more" if len(names) > _MOST_NAMES else ""
        page.labelled("also seen", ", ".join(names[:_MOST_NAMES]) + more)
