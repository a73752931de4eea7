"""The report on one screen: the first cause in full, everything else in a few lines, never more than 80 lines."""

from __future__ import annotations

from collections.abc import Container, Iterator, Sequence
from enum import Enum, auto
from functools import partial

from grader.core.causes import Audience, Group, broken_by, grouped, hint_of, is_hidden, leading_finding
from grader.core.record import Record
from grader.core.verdict import RuleScore, Verdict
from grader.report.charts import show_charts
from grader.report.closing import MORE, advised, graded_briefly, printed, reproduce
from grader.report.fit import Section, fit
from grader.report.focus import Focus, focus
from grader.report.head import all_well, headline
from grader.report.hidden import hidden_briefly
from grader.report.page import Page, bad, dim, glued, strong
from grader.report.progress import asked_now, how_far, how_far_briefly, is_unfinished
from grader.report.start import start_here
from grader.report.states import show_states
from grader.report.trace import Fold, bad_place, called_from, legend, show_case, show_trace, what_is_wrong
from grader.report.words import cost_of, counted, points_about, withheld_of

_SCREEN = 68
"""The lines that a report takes at most, if shorter versions of its sections can achieve that."""

_MOST = 80
"""The number of lines that a report never exceeds."""

_MOST_NAMES = 3

_OTHERS = ((8, 6), (5, 6), (3, 6), (2, 6), (1, 6), (0, 8), (0, 3))
"""For each version of the section: how many other causes get two lines, and how many get one."""


class Part(Enum):
    """A part of the report that other formats show in their own way."""

    POINTS = auto()
    CASES = auto()


def brief(page: Page, record: Record, audience: Audience, without: Container[Part] = ()) -> None:
    """Write the whole report. Less important sections are shortened first: prints, advice, points, other causes."""
    fit(page, list(_sections(record, audience, without)), screen=_SCREEN, most=_MOST)


def _sections(record: Record, audience: Audience, without: Container[Part]) -> Iterator[Section]:
    yield Section(rank=0, versions=tuple(partial(_head, record=record, most=most) for most in (12, 4)))
    if record.verdict is Verdict.ACCEPTED and not record.overrides:
        yield Section(rank=1, versions=(partial(all_well, record=record),))
    else:
        yield from _wrong(record, audience, without)
    yield Section(rank=7, versions=tuple(partial(advised, record=record, most=most) for most in (8, 4, 2)))
    yield Section(rank=8, versions=tuple(partial(printed, record=record, most=most) for most in (20, 8, 3)))
    yield Section(rank=1, versions=(partial(_closing, record=record, audience=audience),))


def _head(page: Page, record: Record, most: int) -> None:
    headline(page, record, most)


def _wrong(record: Record, audience: Audience, without: Container[Part]) -> Iterator[Section]:
    groups: list[Group] = []
    if Part.CASES not in without and record.verdict is not Verdict.ACCEPTED:
        groups = grouped(record, (outcome for outcome in record.outcomes if not is_hidden(outcome, audience)))
    if is_unfinished(record):
        yield Section(rank=9, versions=(partial(how_far, record=record), partial(how_far_briefly, record=record)))
    shown = focus(record, audience)
    start = partial(_start, record=record, shown=shown, audience=audience, groups=groups)
    yield Section(rank=2, versions=tuple(partial(start, most=most) for most in (20, 8, 3)))
    if groups:
        yield Section(rank=3, versions=(partial(show_states, shown=shown),))
        charts = partial(show_charts, charts=shown.charts if shown is not None else ())
        yield Section(rank=4, versions=(charts,))
        trace = partial(_first, record=record, group=groups[0])
        yield Section(
            rank=3, versions=tuple(partial(trace, fold=fold) for fold in (Fold(), Fold(1, 3, 1), Fold(1, 1, 0)))
        )
        others = partial(_others, record=record, groups=asked_now(record, groups)[1:])
        yield Section(
            rank=4,
            versions=tuple(partial(others, long=long, short=short) for long, short in _OTHERS),
        )
    if Part.POINTS not in without and (record.outcomes or record.overrides):
        yield Section(rank=6, versions=(partial(_points, record=record), partial(_points_in_a_line, record=record)))
    if Part.CASES not in without and record.verdict is not Verdict.ACCEPTED:
        hidden = partial(hidden_briefly, record=record, audience=audience)
        yield Section(rank=5, versions=tuple(partial(hidden, most=most) for most in (4, 2, 1)))


def _start(
    page: Page, record: Record, *, shown: Focus | None, audience: Audience, groups: Sequence[Group], most: int
) -> None:
    """Write the cause to look at first, and what it costs. Its case follows, if the reader may see it."""
    start_here(page, record, shown, audience, most=most)
    if not groups or not _is_first(record, groups[0]):
        return
    count = counted(len(groups[0].outcomes), "case")
    public = " in public cases" if audience is Audience.STUDENT and not record.public_only else ""
    page.labelled("Costs", f"{points_about(groups[0].lost)}{public}; {count} failed for it")
    _also_seen(page, groups[0])


def _also_seen(page: Page, group: Group) -> None:
    names = [outcome.case for outcome in group.others]
    if names:
        more = f" and {len(names) - _MOST_NAMES} more" if len(names) > _MOST_NAMES else ""
        page.labelled("also seen", ", ".join(names[:_MOST_NAMES]) + more)


def _is_first(record: Record, group: Group) -> bool:
    """Whether this is the cause with which the report begins."""
    return record.diagnosis is not None and record.diagnosis.case == group.shown.case


def _first(page: Page, record: Record, group: Group, fold: Fold) -> None:
    if _is_first(record, group):
        hidden = "  (hidden from students)" if is_hidden(group.shown, Audience.STUDENT) else ""
        page.write(strong(group.shown.title), hidden, indent=2)
        show_trace(page, record, group.shown, fold, already_shown=True)
    else:
        page.heading("What the cases show")
        page.write(strong(_rule_of(record, group)), f": {cost_of(group)}", indent=2)
        show_case(page, record, group.shown, fold)
        if broken_by(record, group):
            page.labelled("Handout", broken_by(record, group))
        if hint_of(record, group):
            page.labelled("Hint", hint_of(record, group))
        _also_seen(page, group)
    legend(page, record, [group.shown], fold)


def _others(page: Page, record: Record, groups: Sequence[Group], *, long: int, short: int) -> None:
    """Write the causes after the first: two lines each, then one line each, then how many more."""
    if not groups:
        return
    page.heading("Seen besides, perhaps for the same reason; by points")
    for number, group in enumerate(groups[:long], start=2):
        begin = f"{number}. {_rule_of(record, group)}"
        page.write(strong(begin), f", {points_about(group.lost)}: {_wrong_words(record, group)}", indent=2, hang=5)
        page.crop(dim(_place(record, group)), indent=5)
    for number, group in enumerate(groups[long : long + short], start=long + 2):
        begin = f"{number}. {_rule_of(record, group)}"
        page.crop(strong(begin), f", {points_about(group.lost)}: {_wrong_words(record, group)}", indent=2)
    rest = groups[long + short :]
    if rest:
        points = points_about(sum(group.lost for group in rest))
        page.write(dim(f"... and {len(rest)} more, {points}: {MORE}"), indent=2)


def _rule_of(record: Record, group: Group) -> str:
    leading = leading_finding(record, group.shown)
    return leading.rule if leading is not None else group.shown.rule


def _wrong_words(record: Record, group: Group) -> str:
    return what_is_wrong(record, group.shown) or group.shown.title


def _place(record: Record, group: Group) -> str:
    """Return the case and line, the call, the line of the student's file, and in how many cases it was seen."""
    outcome, leading = group.shown, leading_finding(record, group.shown)
    number, line = bad_place(record, outcome)
    call = next((step.call for step in outcome.steps if step.number == number), "")
    places = [f"{outcome.case}:{line}" if line else outcome.case]
    if call:
        places.append(f"operation {number}: {call}")
    if leading is not None and leading.source:
        places.append(called_from(leading.source[:1]))
    if group.others:
        places.append(f"seen in {counted(len(group.outcomes), 'case')}")
    return "; ".join(places)


def _points(page: Page, record: Record) -> None:
    """Write the rules that lost points, a line each, and the other rules in one line."""
    page.heading("Points")
    if not record.score and not record.overrides:
        page.write("No rule has earned a point yet. That changes once the first cause is mended.", indent=2)
        return
    losing = [score for score in record.rules if score.points < score.max_points]
    rule = max((len(score.rule) for score in losing), default=0)
    cases = max((len(_cases(score)) for score in losing), default=0)
    for score in losing:
        figures = f"{score.points - score.max_points:>4}  {f'{score.points}/{score.max_points}':>5}  "
        passed = f"{_cases(score):>{cases}} cases  "
        begin = bad(figures[:4]), strong(figures[4:]), passed, strong(f"{score.rule:{rule}}"), "  "
        if withheld_of(score):
            page.write(*begin, withheld_of(score), hang=len(figures) + len(passed) + rule + 2)
        else:
            page.crop(*begin, score.title)
    _full_marks(page, record)


def _points_in_a_line(page: Page, record: Record) -> None:
    page.heading("Points")
    losing = [score for score in record.rules if score.points < score.max_points]
    page.labelled("lost", ", ".join(f"{score.rule} {score.points - score.max_points}" for score in losing), column=6)
    _full_marks(page, record)


def _full_marks(page: Page, record: Record) -> None:
    full = [glued(score.rule) for score in record.rules if score.points == score.max_points]
    if len(full) == len(record.rules):
        page.write("Every rule has all its points.", indent=2)
    elif full:
        label = "nothing lost here" if record.public_only else "full marks"  # hidden cases may still cost some
        page.write(dim(f"{label}: {', '.join(full)}"), indent=2, hang=4)


def _cases(score: RuleScore) -> str:
    return f"{score.passed}/{score.cases}"


def _closing(page: Page, record: Record, audience: Audience) -> None:
    reproduce(page, record, audience)
    graded_briefly(page, record, audience)
