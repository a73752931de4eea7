"""The report for a terminal: what to do first, then the other causes, the points, and how it was graded.

There is one page. Its sections are shortened until they fit the terminal, the least important one first; with `--all`
each section is written without a limit. The last line repeats the score and the place to look at, because after a long
page that line is what a terminal shows.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Container, Iterator
from dataclasses import replace
from enum import Enum, auto
from typing import TypeVar

from grader.core.record import Record
from grader.core.verdict import Audience, Cause, Feedback, RuleScore, Tool, Verdict
from grader.report import phrases, trace
from grader.report.document import Document, held_back
from grader.report.escape import escape_lines
from grader.report.page import Draw, Page, Section, bad, dim, fit, glued, good, pad, strong, write_whole
from grader.report.problems import hidden_briefly, hidden_cases
from grader.report.progress import asked_now, how_far, how_far_briefly

_SCREEN = 68
"""The most lines that a report takes, if shorter versions of its sections can achieve this."""

_MOST = 80
"""The number of lines that a report never exceeds."""

_LEAST_ROWS = 16
"""The rows of the smallest terminal that a report is made to fit."""

_MOST_NAMES = 3
_MOST_TITLES = 12
_EVERYTHING = 10_000
"""A limit that no number of notes, pieces of advice or lines of output reaches."""
_MORE = "--all"
"""The option that shows everything."""

_OTHERS = ((8, 6), (5, 6), (3, 6), (2, 6), (1, 6), (0, 8), (0, 3))
"""For each version of the section: how many other causes get two lines, and how many get one."""
_OTHER_FAILURES = "Other failures, most costly first"
_FOLDS = (trace.FULL, trace.Fold(1, 3, 1, 4), trace.Fold(1, 1, 0, 3))

_Size = TypeVar("_Size")


class ReportPart(Enum):
    """A part of this report that another format leaves out, because it shows the part otherwise or must not show it."""

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

    The page fits a terminal of `height` rows and its prompt. It has at most 80 lines if `height` is 0. With
    `everything` no section has a limit. `audience` is "student" or "instructor".
    Of hidden cases, students see only title and rule, and also the sentences of the handout that the cases test if
    no public case fails for the rule.
    """
    page = Page(width, colour=colour)
    sections = list(_TextReport(record, Audience(audience), without).sections())
    if everything:
        write_whole(page, sections)
    else:
        rows = max(height, _LEAST_ROWS) - 1 if height else _MOST  # one is for the prompt
        fit(page, sections, screen=min(rows, _SCREEN), most=min(rows, _MOST))
    return page.text()


def _sized(draw: Callable[[Page, _Size], None], *sizes: _Size) -> tuple[Draw, ...]:
    """Return a version of a section for each size."""
    return tuple(lambda page, size=size: draw(page, size) for size in sizes)


def _limited(rank: int, draw: Callable[[Page, int], None], *limits: int, optional: bool = False) -> Section:
    """Return a section with a version for each limit."""
    *versions, whole = _sized(draw, *limits, _EVERYTHING)
    return Section(rank=rank, versions=tuple(versions), whole=whole, optional=optional)


class _TextReport:
    """The sections of the report of one record for one reader. A method draws a section, or a version of one."""

    def __init__(self, record: Record, audience: Audience, without: Container[ReportPart]) -> None:
        self.record, self.audience, self.without = record, audience, without
        self.shows_cases = ReportPart.CASES not in without and record.verdict is not Verdict.ACCEPTED
        self.causes = record.causes_for(audience) if self.shows_cases else []
        self.others = asked_now(record, self.causes)[1:]

    def sections(self) -> Iterator[Section]:
        """Yield the sections, in the order of the page."""
        record = self.record
        yield _limited(0, self.headline, 12, 4)
        if record.feedback is not Feedback.FULL:
            yield Section(rank=1, versions=(self.held_back,))
            return
        if record.verdict is Verdict.ACCEPTED and not record.overrides:
            yield Section(rank=1, versions=(self.all_well,))
        else:
            yield from self.what_is_wrong()
        yield _limited(7, self.advice, 8, 4, 2, optional=True)
        yield _limited(8, self.output, 20, 8, 3, optional=True)
        yield Section(rank=1, versions=(self.end_briefly,), whole=self.end, least=self.end_of_a_small_page)

    def what_is_wrong(self) -> Iterator[Section]:
        """Yield the sections of a submission that has something to correct, or whose points people decided."""
        from grader.report.picture import show_states  # noqa: PLC0415
        from grader.report.start_here import focus, start_here  # noqa: PLC0415 - not where all is well

        record, audience, shown = self.record, self.audience, focus(self.record, self.audience)

        def start(page: Page, most: int) -> None:
            start_here(page, record, shown, audience, most=most)
            self.cost(page)

        if record.is_unfinished:
            far = (lambda page: how_far(page, record), lambda page: how_far_briefly(page, record))
            yield Section(rank=9, versions=far)
        yield replace(
            _limited(2, start, 20, 8, 3),
            least=lambda page: start_here(page, record, shown, audience, most=1, brief=True),
        )
        if shown is not None:
            scene, charts = shown.scene, shown.charts
            yield Section(rank=3, versions=(lambda page: show_states(page, scene),), optional=True)
            yield Section(rank=4, versions=(lambda page: trace.show_charts(page, charts),), optional=True)
        if self.causes:
            yield Section(rank=3, versions=_sized(self.first, *_FOLDS), whole=self.first_uncut, optional=True)
            versions = _sized(self.other_causes, *_OTHERS)
            yield Section(rank=4, versions=versions, whole=self.other_causes_in_full, optional=True)
        if ReportPart.POINTS not in self.without and (record.outcomes or record.overrides):
            shorter = (self.points, self.points_in_a_line)
            yield Section(rank=6, versions=shorter, whole=self.points_of_all, optional=True)
        if self.shows_cases:
            yield Section(
                rank=5,
                versions=_sized(lambda page, most: hidden_briefly(page, record, audience, most), 4, 2, 1),
                whole=lambda page: hidden_cases(page, record, audience, _MOST_TITLES),
                optional=True,
            )

    # ---------------------------------------------------------------- the beginning

    def headline(self, page: Page, most: int) -> None:
        """Write verdict and points, notes on the submission, and the decisions of people, which all numbers include."""
        record = self.record
        mark = good if record.verdict.passed else bad
        begin = strong(record.submission.name), ": ", mark(phrases.result_of(record))
        if record.public_only:  # a line of its own, so that its words stay together
            page.write(*begin, hang=2)
            page.write(strong(phrases.points_of(record)), indent=2)
        else:
            page.write(*begin, ", ", strong(glued(phrases.points_of(record))), hang=2)
        if incomplete := phrases.incomplete_of(record):
            page.write(incomplete, indent=2)
        notes = [*map(dim, record.submission.notes), *map(strong, phrases.decisions_of(record))]
        for note in notes[:most]:
            page.write(note, indent=2, hang=4)
        if len(notes) > most:
            page.write(dim(f"... and {len(notes) - most} more notes"), indent=2)

    def held_back(self, page: Page) -> None:
        """Write that students see only a part of the report, and the points of the rules."""
        page.write(held_back(self.record), indent=2)
        rules = () if ReportPart.POINTS in self.without else self.record.rules
        if not rules:
            return
        page.heading("Points")
        width = max(len(score.rule) for score in rules)
        for score in rules:
            missing = score.points - score.max_points
            figures = f"{missing or '':>4}  {f'{score.points}/{score.max_points}':>7}  {pad(score.rule, width)}  "
            page.crop(strong(figures) if missing else dim(figures), score.title, indent=2)

    def all_well(self, page: Page) -> None:
        """Write that nothing is wrong."""
        record = self.record
        page.write(phrases.all_pass(record), indent=2)
        checker = record.environment.used(Tool.MEMORY_CHECKER)
        memory = f"{checker.name} reports no bad access and 0 bytes lost." if checker is not None else ""
        page.write(" ".join(filter(None, (record.closure, record.unchecked or memory, "Well done."))), indent=2)

    def cost(self, page: Page) -> None:
        """Write what the cause to look at first costs, if the reader may see its case."""
        record = self.record
        if not self.causes or not self._is_first(self.causes[0]):
            return
        public = " in public cases" if self.audience is Audience.STUDENT and not record.public_only else ""
        without, points = "", round(record.causes[0].points)  # in hidden cases too
        if record.score is not None and points:
            without = f"; without it {record.score + points} of {record.max_score}"
        page.labelled("Costs", f"{phrases.points_lost(self.causes[0].points)}{public}{without}")
        _also_seen(page, self.causes[0])

    def _is_first(self, cause: Cause) -> bool:
        """Whether this is the cause with which the report begins."""
        first = self.record.first_cause
        return first is not None and first.cases[:1] == cause.cases[:1]

    def first(self, page: Page, fold: trace.Fold) -> None:
        """Write the case of the first cause that the reader may see, and the meanings of its abbreviations."""
        self.first_uncut(page, fold)
        trace.legend(page, self.record, [self.record.outcome(self.causes[0].cases[0])], fold)

    def first_uncut(self, page: Page, fold: trace.Fold = trace.UNCUT) -> None:
        """Write the case of the first cause that the reader may see, without the meanings of abbreviations."""
        cause, outcome = self.causes[0], self.record.outcome(self.causes[0].cases[0])
        if self._is_first(cause):
            hidden = "  (hidden from students)" if outcome.hidden_from(Audience.STUDENT) else ""
            page.write(strong(outcome.title), hidden, indent=2)
            trace.show_trace(page, self.record, outcome, fold, already_shown=True)
        else:
            page.heading("What the cases show")
            page.write(strong(cause.rule), f": {phrases.cost_of(cause)}", indent=2)
            self._case_of(page, cause, fold)

    # ---------------------------------------------------------------- the other causes

    def other_causes(self, page: Page, most: tuple[int, int]) -> None:
        """Write the causes after the first: `most` = (how many in two lines, how many in one). Then count the rest."""
        if not self.others:
            return
        page.heading(_OTHER_FAILURES)
        long, short = most
        for number, cause in enumerate(self.others[: long + short], start=2):
            parts = strong(f"{number}. {cause.rule}"), f", {phrases.points_lost(cause.points)}: {cause.sentence}"
            if number < long + 2:
                page.write(*parts, indent=2, hang=5)
                page.crop(dim(self._place(cause)), indent=5)
            else:
                page.crop(*parts, indent=2)
        rest = self.others[long + short :]
        if rest:
            points = phrases.points_lost(sum(cause.points for cause in rest))
            page.write(dim(f"... and {len(rest)} more, {points}: {_MORE}"), indent=2)

    def _place(self, cause: Cause) -> str:
        """Return the case and line, the call, and the line of the student's file."""
        outcome = self.record.outcome(cause.cases[0])
        places = [
            trace.place_of(self.record, outcome).removeprefix(f"cases/{self.record.lab}/").replace(".toml", "", 1)
        ]
        if call := trace.call_at(outcome, cause.operation):
            places.append(f"operation {cause.operation}: {call}")
        if cause.lines:
            places.append(trace.called_from(cause.lines[: trace.MOST_CALLERS]))
        return "; ".join(places)

    def other_causes_in_full(self, page: Page) -> None:
        """Write the causes after the first, each with its case, and the meanings of abbreviations in all of them."""
        if self.others:
            page.heading(_OTHER_FAILURES)
        for number, cause in enumerate(self.others, start=2):
            page.blank()
            page.write(strong(f"{number}. {cause.rule}"), f": {phrases.cost_of(cause)}", hang=3)
            self._case_of(page, cause, trace.UNCUT)
        trace.legend(
            page, self.record, [self.record.outcome(cause.cases[0]) for cause in (self.causes[0], *self.others)]
        )

    def _case_of(self, page: Page, cause: Cause, fold: trace.Fold) -> None:
        """Write a cause's case, its clause and hint unless the report begins with that hint, and its other cases."""
        trace.show_case(page, self.record, self.record.outcome(cause.cases[0]), fold)
        if self.record.first_cause is not None and cause.hint != self.record.first_cause.hint:
            page.blank()
            for label, text in (("Handout", cause.clause), ("Hint", cause.hint)):
                if text:
                    page.labelled(label, text)
        _also_seen(page, cause)

    # ---------------------------------------------------------------- points

    def points(self, page: Page) -> None:
        """Write one line for each rule that lost points, and one line for all other rules."""
        page.heading("Points")
        if self._has_none_yet(page):
            return
        rule = max((len(score.rule) for score in self._losing), default=0)
        for score in self._losing:
            figures = f"{score.points - score.max_points:>4}  {f'{score.points}/{score.max_points}':>5}  "
            begin = bad(figures[:4]), strong(figures[4:]), strong(f"{score.rule:{rule}}"), "  "
            if phrases.withheld_of(score):
                page.write(*begin, phrases.withheld_of(score), hang=len(figures) + rule + 2)
            else:
                page.crop(*begin, score.title)
        self._full_marks(page)

    def points_in_a_line(self, page: Page) -> None:
        """Write the rules that lost points in one line."""
        page.heading("Points")
        lost = ", ".join(f"{score.rule} {score.points - score.max_points}" for score in self._losing)
        page.labelled("lost", lost, column=6)
        self._full_marks(page)

    def points_of_all(self, page: Page) -> None:
        """Write one line for each rule. A negative number at its start is the missing points."""
        page.heading("Points, rule by rule")
        if self._has_none_yet(page):
            return
        rule = max(len("rule"), *(len(score.rule) for score in self.record.rules))
        page.write(dim(f"{'lost':>4}  {'points':>6}  {'rule':{rule}}"), indent=2)
        for score in self.record.rules:
            missing = score.points - score.max_points
            figures = f"{missing or '':>4}  {f'{score.points}/{score.max_points}':>6}  {pad(score.rule, rule)}  "
            if not missing:
                page.crop(dim(figures + score.title), indent=2)
                continue
            remark = f"; {phrases.withheld_of(score)}" if phrases.withheld_of(score) else ""
            parts = bad(figures[:5]), strong(figures[5:]), score.title, " ", dim(glued(f"({score.handout})")), remark
            page.write(*parts, indent=2, hang=len(figures) + 2)

    def _has_none_yet(self, page: Page) -> bool:
        """Return whether no rule has a point and no person decided any points. If so, write a sentence about it."""
        none_yet = not self.record.score and not self.record.overrides
        if none_yet:
            page.write("No rule has earned a point yet. That changes once the first cause is fixed.", indent=2)
        return none_yet

    @property
    def _losing(self) -> list[RuleScore]:
        return [score for score in self.record.rules if score.points < score.max_points]

    def _full_marks(self, page: Page) -> None:
        full = [glued(score.rule) for score in self.record.rules if score.points == score.max_points]
        if len(full) == len(self.record.rules):
            page.write("Every rule has all its points.", indent=2)
        elif full:
            label = "nothing lost here" if self.record.public_only else "full marks"  # hidden cases may still cost some
            page.write(dim(f"{label}: {', '.join(full)}"), indent=2, hang=4)

    # ---------------------------------------------------------------- the end

    def advice(self, page: Page, most: int) -> None:
        """Write useful information that costs no point."""
        advised = self.record.advice
        if not advised:
            return
        page.heading("Advice")
        page.write(dim("Costs no point."), indent=2)
        for advice in advised[:most]:
            place = f"{advice.source[0]}: " if advice.source else ""
            page.write("- ", strong(place), advice.message, indent=2, hang=4)
        if len(advised) > most:
            page.write(dim(f"... and {len(advised) - most} more"), indent=4)

    def output(self, page: Page, most: int) -> None:
        """Write what the program printed to stdout and stderr; it is shown, not judged."""
        lines = escape_lines(self.record.output)
        if not any(lines):
            return
        page.heading("What your program printed")
        page.write(dim("Shown for you; nothing is judged by it."), indent=2)
        for line in lines[:most]:
            page.crop(line, indent=4)
        if len(lines) > most:
            page.write(dim(f"... and {len(lines) - most} more lines"), indent=4)

    def end_briefly(self, page: Page) -> None:
        """Write commands that show the first case, how the submission was graded, and the last line with the score."""
        record = self.record
        self._reproduce(page)
        if record.unchecked and record.outcomes:
            page.write(dim(record.unchecked), indent=2, hang=4)
        self._failures(page)
        environment = record.environment
        details = [
            environment.version(Tool.BUILD),
            environment.version(Tool.MEMORY_CHECKER) if record.outcomes else "",
            f"protection {record.protection.level}",
            f"seed {record.seed}",
            f"grader {environment.grader}" if environment.grader else "",
            f"{', '.join(record.allowed)} allowed" if record.allowed else "",
            f"lane {environment.lane}" if environment.lane else "",
            phrases.slowness(environment.pace),
        ]
        how = ", ".join(filter(None, details))
        page.write(dim(f"Graded with {how}. More of everything: {_MORE}"), indent=2, hang=4)
        self._last_line(page)

    def end(self, page: Page) -> None:
        """Write the end in full: command, tools, protection, seed, commands that show the first case, the last line."""
        page.heading("How it was graded")
        if command := self.record.environment.command:
            page.labelled("command", "")
            page.command(*command.split(), indent=4)
        for label, text in phrases.graded_how(self.record):
            page.labelled(label, dim(text), column=12)
        self._failures(page)
        page.blank()
        self._reproduce(page)
        self._last_line(page)

    def end_of_a_small_page(self, page: Page) -> None:
        """Write in a few lines how to see the first case and everything else, and what the report lacks."""
        self._failures(page)
        if causes := self.record.causes_for(self.audience):
            case = f"scripts/grade repro {shlex.quote(self.record.submission.name)} {causes[0].cases[0]}"
            page.labelled("Next", f"{case} > {phrases.repro_name(self.record)}")
        page.labelled("More", f"of everything: {_MORE}")
        self._last_line(page)

    def _failures(self, page: Page) -> None:
        for sentence in phrases.failures_of(self.record, self.audience):
            page.write(sentence, indent=2, hang=4)

    def _reproduce(self, page: Page) -> None:
        """Write the commands that make a program of the first case that the reader may see, if any."""
        record, causes = self.record, self.record.causes_for(self.audience)
        if not causes:
            return
        page.write(
            "To see the first case yourself, or in a debugger, write it as a program next to your file:", indent=2
        )
        path, case = shlex.quote(record.submission.name), causes[0].cases[0]
        page.command("scripts/grade", "repro", path, case, f"> {phrases.repro_name(record)}", indent=4)
        if command := record.environment.reproduce:  # && stays with the word after it: a line ends between words
            page.command(*re.findall(r"(?:&& )?\S+", command), indent=4)

    def _last_line(self, page: Page) -> None:
        page.write(strong(phrases.in_a_line(self.record, self.audience)), indent=2, hang=4)


def _also_seen(page: Page, cause: Cause) -> None:
    names = cause.cases[1:]
    if names:
        more = f" and {len(names) - _MOST_NAMES} more" if len(names) > _MOST_NAMES else ""
        page.labelled("also seen", ", ".join(names[:_MOST_NAMES]) + more)
