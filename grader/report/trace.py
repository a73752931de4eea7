"""One case in full: its operations, the expected and the actual reply of each, and what went wrong first."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import zip_longest

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
"""What stands in the place of a reply that did not come: by the kind of the finding, else by the verdict."""


@dataclass(frozen=True, slots=True)
class Fold:
    """How many operations of a long trace are shown: at its start, before the bad one, and after it."""

    first: int = 3
    before: int = 6
    after: int = 2
    lines: int = 6
    """The most lines of a call or a reply; a longer one is cut in its middle."""


FULL = Fold()
UNCUT = Fold(lines=MOST_TEXT)

MOST_CALLERS = 3
"""The most lines of a stack that lead a report: the one to look at, and those that called it."""


def called_from(source: Sequence[SourceLine]) -> str:
    """Return lines of the student's file in words: a stack, innermost call first; without functions they are none."""
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
    """Write the operations and what went wrong; what the page has `already_shown` is left out."""
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
    """Return the path of the case file, with the line of the operation that went wrong where it has one."""
    number = record.bad_operation(outcome)
    line = next((step.line for step in outcome.steps if step.number == number), 0)
    return f"cases/{record.lab}/{outcome.case}.toml" + (f":{line}" if line else "")


def call_at(outcome: Outcome, number: int) -> str:
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

    Where it is wider than the page, its widest columns become narrower. What is wider than its column takes several
    lines in it, at most `lines`. `no_reply` stands in the place of the bad one's reply where there is none.
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
        """Write one operation. Those after the bad one are mostly its consequences, so they are dim."""
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
        """Return the lines of a text in a column, without the middle of a very long one."""
        lines = wrapped(text, width)
        if len(lines) > self.lines:
            lines = [*lines[: self.lines - 2], "...", lines[-1]]
        return lines

    def _comment(self, step: StepShown) -> str:
        """Return the step's comment; a line of the case file that stands for many operations shows its comment once."""
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
    """Yield what was found in a case besides its first finding, each thing once; all lost memory in one sentence."""
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
