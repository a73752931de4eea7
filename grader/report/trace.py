"""One case in full: its operations with the expected and the actual replies, what went wrong first, and its charts."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise, zip_longest

from grader.core.picture import Chart, ChartCell, ComparedChart
from grader.core.record import Record
from grader.core.sanitize import MOST_TEXT
from grader.core.verdict import EXCEPTION, REFUSED, Finding, Outcome, SourceLine, StepShown, Verdict, Visibility
from grader.report.page import Page, Span, Style, bad, dim, pad, strong, width_of, wrapped

_MARK = ">>>"
_INDENT = 2
_MOST_CALL, _LEAST_COMMENT = 36, 18
_MOST_FINDINGS = 3
_NO_REPLY = {
    Verdict.RUN_TIME_ERROR: "crash",
    Verdict.TIME_LIMIT_EXCEEDED: "never",
}
_NO_REPLY_OF_KIND = {EXCEPTION: "exception", REFUSED: "stopped"}
"""What is shown instead of a missing reply: by the kind of the finding, else by the verdict."""


@dataclass(frozen=True, slots=True)
class Fold:
    """How many operations of a long trace are shown: at its start, before the bad one, and after it."""

    first: int = 3
    before: int = 6
    after: int = 2
    lines: int = 6
    """The most lines of a call or a reply. Longer texts are cut in their middle."""


FULL = Fold()
UNCUT = Fold(lines=MOST_TEXT)

MOST_CALLERS = 3
"""The most lines of a stack at the top of a report: the line to look at, and the lines that called it."""


def called_from(source: Sequence[SourceLine]) -> str:
    """Return lines of the student's file in words. If they name functions, they are a stack, innermost call first."""
    places = [f"{line} in {line.function}" if line.function else str(line) for line in source]
    return (", called from " if any(line.function for line in source) else " and ").join(places)


def show_case(page: Page, record: Record, outcome: Outcome, fold: Fold = FULL) -> None:
    """Write the case: title, place, trace, difference, lines of the student's file."""
    page.write(strong(outcome.title), indent=_INDENT)
    hidden = "  (hidden from students)" if outcome.visibility is Visibility.HIDDEN else ""
    page.write(f"{place_of(record, outcome)}{hidden}", indent=_INDENT)
    page.blank()
    show_trace(page, record, outcome, fold)


def show_trace(page: Page, record: Record, outcome: Outcome, fold: Fold = FULL, *, already_shown: bool = False) -> None:
    """Write the operations and what went wrong. Leave out the message and line that the page has `already_shown`."""
    leading = record.first_finding(outcome)
    number = record.bad_operation(outcome)
    kind = leading.kind if leading is not None else ""
    no_reply = _NO_REPLY_OF_KIND.get(kind, _NO_REPLY.get(outcome.verdict, ""))
    columns = _Columns(page, _folded(outcome.steps, number, fold), lines=fold.lines, no_reply=no_reply)
    columns.head()
    before = 0
    for step in columns.steps:
        _gap(page, before, step.number)
        columns.row(step, number)
        if step.number == number:
            _what_went_wrong(page, record, outcome, leading, already_shown=already_shown)
        before = step.number
    if outcome.steps:
        _gap(page, before, outcome.steps[-1].number + 1)
    if all(step.number != number for step in columns.steps):
        _what_went_wrong(page, record, outcome, leading, already_shown=already_shown)


def legend(page: Page, record: Record, outcomes: Iterable[Outcome], fold: Fold = FULL) -> None:
    """Write the meanings of the abbreviations in the shown operations, once for all outcomes."""
    meanings = notation_of(record, outcomes, fold)
    if meanings:
        page.blank()
        page.write(dim("; ".join(meanings)), indent=_INDENT)


def notation_of(record: Record, outcomes: Iterable[Outcome], fold: Fold) -> list[str]:
    """Return the abbreviations in the shown operations, each with its meaning."""
    shown = {
        word
        for outcome in outcomes
        for step in _folded(outcome.steps, record.bad_operation(outcome), fold)
        for text in (step.call, step.expected, step.actual or "")
        for word in text.split()
    }
    meanings = []
    for key, meaning in record.notation.items():
        used = sorted(word for word in shown if re.sub(r"^@\d+$", "@2", word) == key)
        if used:
            meanings.append(f"{', '.join(used)}: {meaning}")
    return meanings


def place_of(record: Record, outcome: Outcome) -> str:
    """Return the path of the case file, with the line of the operation that went wrong if the operation has a line."""
    number = record.bad_operation(outcome)
    line = next((step.line for step in outcome.steps if step.number == number), 0)
    return f"cases/{record.lab}/{outcome.case}.toml" + (f":{line}" if line else "")


def call_at(outcome: Outcome, number: int | None) -> str:
    """Return an operation of a case as it is written; "" when the report has no such operation."""
    return next((step.call for step in outcome.steps if step.number == number), "")


def _folded(steps: Sequence[StepShown], number: int, fold: Fold) -> list[StepShown]:
    """Return the steps worth reading around operation `number`; a gap of only one step is filled."""
    numbers = {
        step.number
        for step in steps
        if step.number <= fold.first or number - fold.before <= step.number <= number + fold.after or not number
    }
    return [step for step in steps if step.number in numbers or {step.number - 1, step.number + 1} <= numbers]


def _gap(page: Page, before: int, after: int) -> None:
    first, last = before + 1, after - 1
    if first <= last:
        missing = f"operation {first} is" if first == last else f"operations {first} to {last} are"
        page.write(dim(f"...  {missing} left out"), indent=_INDENT + len(_MARK))


class _Columns:
    """The table of operations: number, operation, expected and actual reply, comment of the case file.

    If the table is wider than the page, its widest columns become narrower. A text that is wider than its column takes
    several lines, at most `lines`. `no_reply` is shown for the bad operation if it has no reply.
    """

    def __init__(self, page: Page, steps: list[StepShown], *, lines: int, no_reply: str) -> None:
        self.page, self.steps, self.lines, self.no_reply = page, steps, lines, no_reply
        self.number = max((len(str(step.number)) for step in steps), default=1)
        call = min(max((width_of(step.call) for step in steps), default=0), max(_MOST_CALL, page.width // 2))
        expected = max(len("expected"), *(width_of(step.expected) for step in steps), 0)
        actual = max(len("yours"), len(no_reply), *(width_of(step.actual or "") for step in steps), 0)
        widths = [call, expected, actual]
        while sum(widths) > page.width - self._left - 4:
            widths[widths.index(max(widths))] -= 1
        self.call, self.expected, self.actual = widths
        self.last_comment: tuple[int, str] = (0, "")

    @property
    def _left(self) -> int:
        """The column in which calls start."""
        return _INDENT + len(_MARK) + 1 + self.number + 2

    @property
    def comment(self) -> int:
        """The column in which comments start."""
        return self._left + self.call + 2 + self.expected + 2 + self.actual + 2

    def head(self) -> None:
        """Write the names of the columns."""
        self.page.write(dim(f"{pad('expected', self.expected)}  yours"), indent=self._left + self.call + 2)

    def row(self, step: StepShown, bad_one: int) -> None:
        """Write one operation. Operations after the bad one are dim, because they mostly show its consequences."""
        behind, at = 0 < bad_one < step.number, step.number == bad_one
        reply = self.no_reply if step.actual is None and at else step.actual
        style = Style.DIM if behind else Style.STRONG if at else Style.PLAIN
        plain = Style.DIM if behind else Style.PLAIN
        columns = (
            (step.call, self.call, style),
            (step.expected, self.expected, plain),
            (reply or "", self.actual, plain if behind or reply == step.expected else Style.BAD),
        )
        lines = list(zip_longest(*(self._cell(text, width) for text, width, _ in columns), fillvalue=""))
        comment = self._comment(step)
        is_beside = bool(comment) and len(lines) == 1 and self.comment + _LEAST_COMMENT <= self.page.width
        begin = [Span(_MARK if at else " " * len(_MARK), Style.BAD), Span(f" {step.number:>{self.number}}  ", style)]
        for texts in lines:
            cells = [Span(f"{pad(text, wide)}  ", of) for text, (_, wide, of) in zip(texts, columns, strict=True)]
            beside = [dim(comment)] if is_beside else []
            self.page.write(*begin, *cells, *beside, indent=_INDENT, hang=self.comment + 2)
            begin = [Span(" " * (self._left - _INDENT))]
        for text in filter(None, ("" if is_beside else comment, step.note)):
            self.page.write(dim(text), indent=self._left + 2)

    def _cell(self, text: str, width: int) -> list[str]:
        """Return the lines of a text in a column. A very long text lacks its middle."""
        lines = wrapped(text, width)
        if len(lines) > self.lines:
            lines = [*lines[: self.lines - 2], "...", lines[-1]]
        return lines

    def _comment(self, step: StepShown) -> str:
        """Return the step's comment. The comment of a line that repeats an operation is shown once."""
        if not step.line:
            return "# the grader adds this call"
        if not step.comment or (step.line, step.comment) == self.last_comment:
            return ""
        self.last_comment = step.line, step.comment
        return f"# {step.comment}"


def _what_went_wrong(
    page: Page, record: Record, outcome: Outcome, leading: Finding | None, *, already_shown: bool
) -> None:
    """Write the first difference, or the finding that ended the case, directly below its operation."""
    indent = _INDENT + len(_MARK) + 1
    replies = {(step.number, step.actual == step.expected) for step in outcome.steps}
    if leading is not None and leading.message and not already_shown:
        page.write(bad("wrong"), f"     {leading.message}", indent=indent, hang=indent + 10)
    elif leading is not None and leading.field and (leading.operation, True) in replies:
        page.write(bad("wrong"), "     not what the call returned, but what it left behind", indent=indent)
    if leading is not None and leading.source and (not already_shown or len(leading.source) > 1):
        page.write(strong("your code"), f" {called_from(leading.source)}", indent=indent, hang=indent + 10)
    for text in besides(record.findings_of(outcome)):
        page.write(dim("besides"), f"   {text}", indent=indent, hang=indent + 10)


def besides(findings: Sequence[Finding]) -> Iterator[str]:
    """Yield the further findings of a case, each only once, and one sentence for all lost memory."""
    if not findings:
        return
    leading, *others = findings
    leaks = [finding for finding in others if finding.verdict is Verdict.MEMORY_LEAK]
    fresh: dict[object, Finding] = {}
    for finding in others:
        if finding not in leaks and finding.message not in ("", leading.message):
            fresh.setdefault(finding.source or finding.message, finding)
    for finding in list(fresh.values())[:_MOST_FINDINGS]:
        details = [] if finding.operation in (None, leading.operation) else [f"operation {finding.operation}"]
        if finding.source and str(finding.source[0]) not in finding.message:
            details.append(called_from(finding.source))
        yield f"{finding.message} ({'; '.join(details)})" if details else finding.message
    if len(fresh) > _MOST_FINDINGS:
        yield f"and {len(fresh) - _MOST_FINDINGS} more"
    elsewhere = (finding for finding in leaks if finding.source and finding.source[:1] != leading.source[:1])
    lines = dict.fromkeys(str(finding.source[0]) for finding in elsewhere)
    if lines:
        yield f"the memory allocated at {', '.join(lines)} is never freed"


_CHART_INDENT = 4
_BAR = 40
"""The columns of the terminal that a whole bar takes."""

_Line = list[Span]


def show_charts(page: Page, charts: Sequence[ComparedChart]) -> None:
    """Write the charts in which something is wrong, as far as they fit in the width."""
    for chart in charts:
        if not chart.is_wrong:
            continue
        both = (chart.actual, chart.expected)
        label = max(map(_bar_label, both))
        room = page.width - _CHART_INDENT
        page.blank()
        page.write(dim(chart.expected.title), indent=2)
        for name, side, wrong in (("yours", chart.actual, chart.wrong), ("expected", chart.expected, None)):
            for line in chart_lines(side, name, wrong, room, bar_label=label) if side.has_content else ():
                page.crop(*line, indent=_CHART_INDENT)
        if legend := legend_of(*both):
            page.write(dim(legend), indent=_CHART_INDENT)


def chart_lines(
    chart: Chart, name: str = "", wrong: ChartCell | None = None, room: int = 96, *, bar_label: int = 0
) -> Iterator[_Line]:
    """Yield the lines of a chart. If it is wider than `room`, only its last columns fit. `wrong` is the cell to mark.

    `bar_label` is the least width of the labels of bars, so that bars of two charts begin in the same column.
    """
    labels = [*(track.label for track in chart.tracks), *(level.label for level in chart.levels)]
    label = max(map(width_of, [name and "expected", *labels]))
    levels = [["" if value is None else f"{value}/{level.most}" for value in level.values] for level in chart.levels]
    columns = [chart.columns, *(track.cells for track in chart.tracks), *levels]
    wide = max((width_of(text) for column in columns for text in column), default=0) + 2
    wrong_cells = {wrong, *chart.marks}
    first = max(0, len(chart.columns) - max(1, (room - label) // wide))
    if chart.columns:
        yield [strong(pad(name, label)), *(dim(f"{name:^{wide}}") for name in chart.columns[first:])]
    for place, track in enumerate(chart.tracks):
        cells = [Span(f"{text:^{wide}}") for text in track.cells]
        for wrong_cell in wrong_cells:
            if wrong_cell is not None and wrong_cell.track == place and wrong_cell.column < len(cells):
                marked = f">{track.cells[wrong_cell.column] or ' '}<"
                cells[wrong_cell.column] = bad(f"{marked:^{wide}}")
        yield [Span(pad(track.label, label)), *cells[first:]]
    for level, texts in zip(chart.levels, levels, strict=True):
        yield [dim(pad(level.label, label)), *(dim(f"{text:^{wide}}") for text in texts[first:])]
    if chart.arrows:
        words = [f"{_name_of(chart, arrow.start)} → {_name_of(chart, arrow.end)}" for arrow in chart.arrows]
        yield [dim("events: " + ", ".join(words))]
    yield from _bars(chart, name, max(bar_label, _bar_label(chart)))


def _name_of(chart: Chart, place: ChartCell) -> str:
    """Return the names of a cell's track and column, without a track or column that the chart lacks."""
    tracks = [track.label for track in chart.tracks[place.track : place.track + 1]]
    return " ".join([*tracks, *chart.columns[place.column : place.column + 1]])


def legend_of(*charts: Chart) -> str:
    """Return the meanings of the signs that the charts use."""
    used = {text[:1] for chart in charts for track in chart.tracks for text in track.cells}
    legend = {sign: meaning for chart in charts for sign, meaning in chart.legend.items()}
    has_bars = any(chart.bars for chart in charts)
    return "; ".join(f"{sign} {meaning}" for sign, meaning in legend.items() if has_bars or sign in used)


def _bar_label(chart: Chart) -> int:
    return max((width_of(bar.label) for bar in (*chart.bars, *chart.known)), default=0)


def _bars(chart: Chart, name: str, label: int) -> Iterator[_Line]:
    """Yield a chart's bars with their shares in percent, then the bars of published figures to compare with."""
    bars = (*chart.bars, *chart.known)
    if bars and name:
        yield [strong(name)]
    for bar in bars:
        shares = [100 * part / (sum(bar.parts) or 1) for part in bar.parts]
        ends = [round(end * _BAR / 100) for end in accumulate(shares, initial=0.0)]
        drawn = "".join(sign * (end - start) for sign, (start, end) in zip(chart.legend, pairwise(ends), strict=False))
        percent = dim(" ".join(f"{share:5.1f}" for share in shares))
        yield [Span(pad(bar.label, label)), Span(f" ▏{drawn}▕ "), percent]
