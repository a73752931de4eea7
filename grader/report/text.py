"""The report for a terminal: what to do first, then the other causes, the points, and how it was graded.

There is one page. Its sections are shortened until they fit the terminal, the least important one first; with `--all`
each section is written without a limit. The last line repeats the score and the place to look at, because after a long
page that line is what a terminal shows.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Sequence
from dataclasses import replace
from enum import Enum, auto
from functools import partial
from typing import TYPE_CHECKING

from grader.core.record import Record
from grader.core.verdict import Audience, Cause, Feedback, RuleScore, Tool, Verdict
from grader.report.document import Document
from grader.report.escape import escape_lines
from grader.report.footer import MORE, footer, graded_briefly, next_step, reproduce
from grader.report.hidden import hidden_briefly, hidden_cases
from grader.report.page import Page, Section, bad, dim, fit, glued, good, pad, strong, write_whole
from grader.report.phrases import (
    all_pass,
    cost_of,
    decisions_of,
    in_a_line,
    incomplete_of,
    points_lost,
    points_of,
    result_of,
    withheld_of,
)
from grader.report.progress import asked_now, how_far, how_far_briefly
from grader.report.released import held_back
from grader.report.trace import (
    FULL,
    MOST_CALLERS,
    UNCUT,
    Fold,
    call_at,
    called_from,
    legend,
    place_of,
    show_case,
    show_trace,
)

if TYPE_CHECKING:
    from grader.report.start_here import Focus

_SCREEN = 68
"""The lines that a report takes at most, if shorter versions of its sections can achieve that."""

_MOST = 80
"""The number of lines that a report never exceeds."""

_LEAST_ROWS = 16
"""The rows of the smallest terminal that a report is made to fit."""

_MOST_NAMES = 3
_MOST_TITLES = 12
_EVERYTHING = 10_000
"""No record has as many notes, pieces of advice, or lines of output."""

_Part = Callable[[Page, Record, Audience], None]

_OTHERS = ((8, 6), (5, 6), (3, 6), (2, 6), (1, 6), (0, 8), (0, 3))
"""For each version of the section: how many other causes get two lines, and how many get one."""


class ReportPart(Enum):
    """A part of the report that other formats show in their own way."""

    POINTS = auto()
    CASES = auto()


def render(
    record: Record,
    *,
    width: int = 100,
    height: int = 0,
    colour: bool = False,
    audience: str = "student",
    everything: bool = False,
    without: Container[ReportPart] = (),
) -> Document:
    """Return the record as a page of text; no line is wider than `width` columns (at least 40).

    The page fits a terminal of `height` rows and its prompt; it has at most 80 lines where `height` is 0, and with
    `everything` no section has a limit. `audience` is "student" or "instructor".
    Of hidden cases, students see only title and rule, and also the sentences of the handout that the cases test when
    no public case fails for the rule.
    """
    page = Page(width, colour=colour)
    sections = list(_sections(record, Audience(audience), without))
    if everything:
        write_whole(page, sections)
    else:
        rows = max(height, _LEAST_ROWS) - 1 if height else _MOST  # one is for the prompt
        fit(page, sections, screen=min(rows, _SCREEN), most=min(rows, _MOST))
    return page.text()


def _sections(record: Record, audience: Audience, without: Container[ReportPart]) -> Iterator[Section]:
    yield _limited(0, partial(_headline, record=record), 12, 4)
    if record.feedback is not Feedback.FULL:
        rules = () if ReportPart.POINTS in without else record.rules
        yield Section(rank=1, versions=(partial(_held_back, record=record, rules=rules),))
        return
    if record.verdict is Verdict.ACCEPTED and not record.overrides:
        yield Section(rank=1, versions=(partial(_all_well, record=record),))
    else:
        yield from _wrong(record, audience, without)
    yield _limited(7, partial(_advice, record=record), 8, 4, 2, optional=True)
    yield _limited(8, partial(_output, record=record), 20, 8, 3, optional=True)
    yield _closing(record, audience)


def _limited(rank: int, draw: Callable[..., None], *limits: int, optional: bool = False) -> Section:
    """Return a section with a version for each limit."""
    versions = tuple(partial(draw, most=most) for most in limits)
    return Section(rank=rank, versions=versions, whole=partial(draw, most=_EVERYTHING), optional=optional)


def _wrong(record: Record, audience: Audience, without: Container[ReportPart]) -> Iterator[Section]:
    from grader.report.start_here import focus  # noqa: PLC0415 - not where all is well
    from grader.report.text_picture import show_charts, show_states  # noqa: PLC0415 - and what both import

    shows_cases = ReportPart.CASES not in without and record.verdict is not Verdict.ACCEPTED
    causes = record.causes_for(audience) if shows_cases else []
    optional = partial(Section, optional=True)
    if record.is_unfinished:
        yield Section(rank=9, versions=(partial(how_far, record=record), partial(how_far_briefly, record=record)))
    shown = focus(record, audience)
    start = partial(_start, record=record, shown=shown, audience=audience, causes=causes)
    yield replace(_limited(2, start, 20, 8, 3), least=partial(start, most=1, brief=True))
    yield optional(rank=3, versions=(partial(show_states, shown=shown),))
    yield optional(rank=4, versions=(partial(show_charts, charts=shown.charts if shown is not None else ()),))
    if causes:
        trace = partial(_first, record=record, cause=causes[0])
        folds = tuple(partial(trace, fold=fold) for fold in (FULL, Fold(1, 3, 1, 4), Fold(1, 1, 0, 3)))
        yield optional(rank=3, versions=folds, whole=partial(trace, fold=UNCUT, alone=False))
        others = asked_now(record, causes)[1:]
        lists = tuple(partial(_others, record=record, causes=others, long=long, short=short) for long, short in _OTHERS)
        yield optional(rank=4, versions=lists, whole=partial(_in_full, record=record, causes=[causes[0], *others]))
    if ReportPart.POINTS not in without and (record.outcomes or record.overrides):
        shorter = (partial(_points, record=record), partial(_points_in_a_line, record=record))
        yield optional(rank=6, versions=shorter, whole=partial(_points_of_all, record=record))
    if shows_cases:
        hidden = partial(hidden_briefly, record=record, audience=audience)
        table = partial(hidden_cases, record=record, audience=audience, most=_MOST_TITLES)
        yield optional(rank=5, versions=tuple(partial(hidden, most=most) for most in (4, 2, 1)), whole=table)


# ---------------------------------------------------------------- the beginning


def _headline(page: Page, record: Record, most: int) -> None:
    """Write verdict and points, the notes on the submission, and the decisions of people, which all numbers include."""
    mark = good if record.verdict.passed else bad
    begin = strong(record.submission.name), ": ", mark(result_of(record))
    if record.public_only:  # a line of its own, so that its words stay together
        page.write(*begin, hang=2)
        page.write(strong(points_of(record)), indent=2)
    else:
        page.write(*begin, ", ", strong(glued(points_of(record))), hang=2)
    if incomplete := incomplete_of(record):
        page.write(incomplete, indent=2)
    notes = [*map(dim, record.submission.notes), *map(strong, decisions_of(record))]
    for note in notes[:most]:
        page.write(note, indent=2, hang=4)
    if len(notes) > most:
        page.write(dim(f"... and {len(notes) - most} more notes"), indent=2)


def _held_back(page: Page, record: Record, rules: Sequence[RuleScore]) -> None:
    """Write that not everything is shown, and the points of the rules."""
    page.write(held_back(record), indent=2)
    if not rules:
        return
    page.heading("Points")
    width = max(len(score.rule) for score in rules)
    for score in rules:
        missing = score.points - score.max_points
        figures = f"{missing or '':>4}  {f'{score.points}/{score.max_points}':>7}  {pad(score.rule, width)}  "
        page.crop(strong(figures) if missing else dim(figures), score.title, indent=2)


def _all_well(page: Page, record: Record) -> None:
    """Write that nothing is wrong."""
    page.write(all_pass(record), indent=2)
    checker = record.environment.used(Tool.MEMORY_CHECKER)
    memory = f"{checker.name} reports no bad access and 0 bytes lost." if checker is not None else ""
    page.write(" ".join(filter(None, (record.closure, record.unchecked or memory, "Well done."))), indent=2)


def _start(
    page: Page,
    record: Record,
    *,
    shown: Focus | None,
    audience: Audience,
    causes: Sequence[Cause],
    most: int,
    brief: bool = False,
) -> None:
    """Write the cause to look at first, and what it costs. Its case follows, if the reader may see it."""
    from grader.report.start_here import start_here  # noqa: PLC0415 - not where all is well

    start_here(page, record, shown, audience, most=most, brief=brief)
    if brief or not causes or not _is_first(record, causes[0]):
        return
    public = " in public cases" if audience is Audience.STUDENT and not record.public_only else ""
    page.labelled("Costs", f"{points_lost(causes[0].points)}{public}{_without(record)}")
    _also_seen(page, causes[0])


def _without(record: Record) -> str:
    """Return what the score would be without the first cause, in hidden cases too."""
    points = round(record.causes[0].points)
    return f"; without it {record.score + points} of {record.max_score}" if record.score is not None and points else ""


def _is_first(record: Record, cause: Cause) -> bool:
    """Whether this is the cause with which the report begins."""
    return record.first_cause is not None and record.first_cause.cases[:1] == cause.cases[:1]


def _also_seen(page: Page, cause: Cause) -> None:
    names = cause.cases[1:]
    if names:
        more = f" and {len(names) - _MOST_NAMES} more" if len(names) > _MOST_NAMES else ""
        page.labelled("also seen", ", ".join(names[:_MOST_NAMES]) + more)


def _first(page: Page, record: Record, cause: Cause, fold: Fold, *, alone: bool = True) -> None:
    """Write the case of the first cause that the reader may see; `alone`: no other case is written in full."""
    outcome = record.outcome(cause.cases[0])
    if _is_first(record, cause):
        hidden = "  (hidden from students)" if outcome.hidden_from(Audience.STUDENT) else ""
        page.write(strong(outcome.title), hidden, indent=2)
        show_trace(page, record, outcome, fold, already_shown=True)
    else:
        page.heading("What the cases show")
        page.write(strong(cause.rule), f": {cost_of(cause)}", indent=2)
        _case_of(page, record, cause, fold)
    if alone:
        legend(page, record, [outcome], fold)


# ---------------------------------------------------------------- the other causes


def _others(page: Page, record: Record, causes: Sequence[Cause], *, long: int, short: int) -> None:
    """Write the causes after the first: two lines each, then one line each, then how many more."""
    if not causes:
        return
    page.heading("Other failures, most costly first")
    for number, cause in enumerate(causes[:long], start=2):
        begin = f"{number}. {cause.rule}"
        page.write(strong(begin), f", {points_lost(cause.points)}: {cause.sentence}", indent=2, hang=5)
        page.crop(dim(_place(record, cause)), indent=5)
    for number, cause in enumerate(causes[long : long + short], start=long + 2):
        begin = f"{number}. {cause.rule}"
        page.crop(strong(begin), f", {points_lost(cause.points)}: {cause.sentence}", indent=2)
    rest = causes[long + short :]
    if rest:
        points = points_lost(sum(cause.points for cause in rest))
        page.write(dim(f"... and {len(rest)} more, {points}: {MORE}"), indent=2)


def _place(record: Record, cause: Cause) -> str:
    """Return the case and line, the call, and the line of the student's file."""
    outcome = record.outcome(cause.cases[0])
    places = [place_of(record, outcome).removeprefix(f"cases/{record.lab}/").replace(".toml", "", 1)]
    if call := call_at(outcome, cause.operation):
        places.append(f"operation {cause.operation}: {call}")
    if cause.lines:
        places.append(called_from(cause.lines[:MOST_CALLERS]))
    return "; ".join(places)


def _in_full(page: Page, record: Record, causes: Sequence[Cause]) -> None:
    """Write the causes after the first, each with its case, and the meanings of abbreviations in all of them."""
    if len(causes) > 1:
        page.heading("Other failures, most costly first")
    for number, cause in enumerate(causes[1:], start=2):
        page.blank()
        page.write(strong(f"{number}. {cause.rule}"), f": {cost_of(cause)}", hang=3)
        _case_of(page, record, cause, UNCUT)
    legend(page, record, [record.outcome(cause.cases[0]) for cause in causes])


def _case_of(page: Page, record: Record, cause: Cause, fold: Fold) -> None:
    """Write the case of a cause, what to look at unless the report begins with the same, and the other cases."""
    show_case(page, record, record.outcome(cause.cases[0]), fold)
    if record.first_cause is not None and cause.hint != record.first_cause.hint:
        page.blank()
        if cause.clause:
            page.labelled("Handout", cause.clause)
        if cause.hint:
            page.labelled("Hint", cause.hint)
    _also_seen(page, cause)


# ---------------------------------------------------------------- points


def _points(page: Page, record: Record) -> None:
    """Write the rules that lost points, a line each, and the other rules in one line."""
    page.heading("Points")
    if _none_yet(page, record):
        return
    losing = _losing(record)
    rule = max((len(score.rule) for score in losing), default=0)
    for score in losing:
        figures = f"{score.points - score.max_points:>4}  {f'{score.points}/{score.max_points}':>5}  "
        begin = bad(figures[:4]), strong(figures[4:]), strong(f"{score.rule:{rule}}"), "  "
        if withheld_of(score):
            page.write(*begin, withheld_of(score), hang=len(figures) + rule + 2)
        else:
            page.crop(*begin, score.title)
    _full_marks(page, record)


def _points_in_a_line(page: Page, record: Record) -> None:
    page.heading("Points")
    lost = ", ".join(f"{score.rule} {score.points - score.max_points}" for score in _losing(record))
    page.labelled("lost", lost, column=6)
    _full_marks(page, record)


def _points_of_all(page: Page, record: Record) -> None:
    """Write one line for each rule; a negative number at its start is what is missing."""
    page.heading("Points, rule by rule")
    if _none_yet(page, record):
        return
    rule = max(len("rule"), *(len(score.rule) for score in record.rules))
    page.write(dim(f"{'lost':>4}  {'points':>6}  {'rule':{rule}}"), indent=2)
    for score in record.rules:
        missing = score.max_points - score.points
        points = f"{score.points}/{score.max_points}"
        lost = f"-{missing}" if missing else ""
        figures = f"{lost:>4}  {points:>6}  {pad(score.rule, rule)}  "
        if not missing:
            page.crop(dim(figures + score.title), indent=2)
            continue
        remark = f"; {withheld_of(score)}" if withheld_of(score) else ""
        parts = bad(figures[:5]), strong(figures[5:]), score.title, " ", dim(glued(f"({score.handout})")), remark
        page.write(*parts, indent=2, hang=len(figures) + 2)


def _none_yet(page: Page, record: Record) -> bool:
    """Write that no point is earned yet, where that is so."""
    none_yet = not record.score and not record.overrides
    if none_yet:
        page.write("No rule has earned a point yet. That changes once the first cause is fixed.", indent=2)
    return none_yet


def _losing(record: Record) -> list[RuleScore]:
    return [score for score in record.rules if score.points < score.max_points]


def _full_marks(page: Page, record: Record) -> None:
    full = [glued(score.rule) for score in record.rules if score.points == score.max_points]
    if len(full) == len(record.rules):
        page.write("Every rule has all its points.", indent=2)
    elif full:
        label = "nothing lost here" if record.public_only else "full marks"  # hidden cases may still cost some
        page.write(dim(f"{label}: {', '.join(full)}"), indent=2, hang=4)


# ---------------------------------------------------------------- the end


def _advice(page: Page, record: Record, most: int) -> None:
    """Write useful information that costs no point."""
    if not record.advice:
        return
    page.heading("Advice")
    page.write(dim("Costs no point."), indent=2)
    for advice in record.advice[:most]:
        place = f"{advice.source[0]}: " if advice.source else ""
        page.write("- ", strong(place), advice.message, indent=2, hang=4)
    if len(record.advice) > most:
        page.write(dim(f"... and {len(record.advice) - most} more"), indent=4)


def _output(page: Page, record: Record, most: int) -> None:
    """Write what the program printed to stdout and stderr; it is shown, not judged."""
    lines = escape_lines(record.output)
    if not any(lines):
        return
    page.heading("What your program printed")
    page.write(dim("Shown for you; nothing is judged by it."), indent=2)
    for line in lines[:most]:
        page.crop(line, indent=4)
    if len(lines) > most:
        page.write(dim(f"... and {len(lines) - most} more lines"), indent=4)


def _closing(record: Record, audience: Audience) -> Section:
    """Return the end of the page: the first case as a program, how it was graded, and the score with its place."""
    brief, whole, least = (
        partial(_end, record=record, audience=audience, parts=parts)
        for parts in ((reproduce, graded_briefly), (footer,), (next_step,))
    )
    return Section(rank=1, versions=(brief,), whole=whole, least=least)


def _end(page: Page, record: Record, audience: Audience, parts: Sequence[_Part]) -> None:
    for part in parts:
        part(page, record, audience)
    page.write(strong(in_a_line(record, audience)), indent=2, hang=4)
