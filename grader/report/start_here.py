"""*Start here*: the most likely cause with the student's lines and the states, or the compiler's messages.

`focus` decides what of a hidden case may be shown. The web page and `start_here`, for a terminal, write its result.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from grader.core.picture import ComparedChart, Picture
from grader.core.record import Record, SmallestTrace
from grader.core.verdict import NOT_IMPORTED, REFUSED, Audience, Cause, Finding, Outcome, SourceLine, StepShown, Verdict
from grader.report.document import Document, View, held_back, released
from grader.report.page import Page, bad, dim, glued, good, strong
from grader.report.phrases import NO_FILE, counted, no_points_of
from grader.report.picture import DrawnScene, drawn, narrowed
from grader.report.progress import is_next
from grader.report.trace import MOST_CALLERS, call_at, called_from, place_of

_MOST_MESSAGES = 60

_MOST_STEPS = 6
"""The maximum number of listed operations; the last one listed went wrong."""

_MOST_EXCERPTS = 3
"""The most messages that are shown with their lines of source."""

_AROUND = 2
"""The number of lines shown before and after a marked line."""
_HARD_SPACES = {ord(space): ascii(space)[1:-1] for space in "\u00a0\u2007\u202f"}
"""Characters that look like a space, but not to a compiler, such as \\xa0, which web pages and keyboards make."""
_WIDEST = 120
"""The number of characters shown of a line: the colouring is slow for long lines that are not C."""

_YOURS, _RETURNED, _ALLOCATED = "Your code", "Returned", "Allocated"
_CAPTIONS = {
    _YOURS: "Your code",
    _RETURNED: "The wrong value was returned here",
    _ALLOCATED: "The lost memory was allocated here",
}
"""The caption of a line of the submission that belongs to a cause, in text and, longer, on a web page."""

_WITH_MEANING = ("compiler", "linker")
"""Kinds of findings whose `field` says in one sentence what the message means."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Excerpt:
    """The lines around a place of a submission, by their numbers."""

    place: SourceLine
    column: int
    """The column of the place in its line as the line is drawn, from 1; 0 if the column is unknown."""
    lines: dict[int, str]
    in_comment: bool
    """Whether the lines begin within a comment."""


def excerpt(record: Record, place: SourceLine) -> Excerpt | None:
    """Return the five lines around a place; None if the place is no line of the submission's source file."""
    submission = record.submission
    if place.file != submission.source_file or not 0 < place.line <= len(submission.source):
        return None
    first, text = max(1, place.line - _AROUND), submission.source[place.line - 1]
    before = "\n".join(submission.source[: first - 1])
    return Excerpt(
        place=place,
        column=len(_drawn(text[: place.column - 1])) + 1 if 0 < place.column <= min(len(text) + 1, _WIDEST) else 0,
        lines=dict(enumerate(map(_drawn, submission.source[first - 1 : place.line + _AROUND]), first)),
        in_comment=before.rfind("/*") > before.rfind("*/"),
    )


def _drawn(text: str) -> str:
    """Return a line of source as reports draw it: tab stops are four columns apart."""
    return text.replace("\r", " ").replace("\n", " ").expandtabs(4).translate(_HARD_SPACES)[:_WIDEST]


def coloured(excerpt: Excerpt) -> list[tuple[int, list[tuple[str, str]]]]:
    """Return the number of each line and its pieces: the kind (key, com, str, num, pre, or empty) and the text."""
    return list(zip(excerpt.lines, _pieces(excerpt), strict=True))


def _pieces(excerpt: Excerpt) -> Iterator[list[tuple[str, str]]]:
    from pygments.lexers.c_cpp import CLexer  # noqa: PLC0415 - slow to import, and only web pages need it
    from pygments.token import Comment, Keyword, Number, String  # noqa: PLC0415

    kinds = ((Comment.Preproc, "pre"), (Comment, "com"), (Keyword, "key"), (String, "str"), (Number, "num"))
    lexer = CLexer(stripnl=False, ensurenl=False)  # type: ignore[no-untyped-call]
    opening = "/*" if excerpt.in_comment else ""
    left = len(opening)
    pieces: list[tuple[str, str]] = []
    for token, value in lexer.get_tokens(opening + "\n".join(excerpt.lines.values())):
        name = next((name for known, name in kinds if known in token.split()), "")
        text, left = value[left:], max(0, left - len(value))
        for place, part in enumerate(text.split("\n")):
            if place:
                yield pieces
                pieces = []
            if part:
                pieces.append((name, part))
    yield pieces


@dataclass(frozen=True, slots=True, kw_only=True)
class Focus:
    """What a reader sees first: the messages of a failing build, or the most likely cause."""

    why: str = ""
    messages: tuple[tuple[Finding, Excerpt | None], ...] = ()
    rule: str = ""
    title: str = ""
    handout: str = ""
    seen: str = ""
    hint: str = ""
    clauses: tuple[str, ...] = ()
    """The sentences of the handout that were broken."""
    source: tuple[SourceLine, ...] = ()
    excerpt: Excerpt | None = None
    caption: str = _YOURS
    """What `source` is to the cause: one of `_CAPTIONS`."""
    hidden: bool = False
    """Whether the reader may see only the title of the case."""
    case: str = ""
    """The place of the case, or the title of a hidden one."""
    steps: tuple[StepShown, ...] = ()
    """The last operations up to the one that went wrong."""
    number: int = 0
    """The number of the operation that went wrong."""
    hangs: bool = False
    """Whether that operation never ends."""
    scene: DrawnScene | None = None
    """The states around that operation, narrowed to what it changed or had to change."""
    charts: tuple[ComparedChart, ...] = ()
    smallest: SmallestTrace | None = None
    """A trace with fewer calls than the case that goes wrong in the same way."""

    @property
    def long_caption(self) -> str:
        """The caption of the code on a web page."""
        return _CAPTIONS[self.caption]

    @property
    def call(self) -> str:
        """The operation that went wrong, with its number; empty if the operation is not shown."""
        call = next((step.call for step in self.steps if step.number == self.number), "")
        return f"(operation {self.number}: {call})" if call else ""


def focus(record: Record, audience: Audience) -> Focus | None:
    """Return the focus of a record; None if there is nothing to correct, or no cause is known."""
    if record.verdict in (Verdict.ACCEPTED, Verdict.JUDGE_ERROR):
        return None
    building = record.build_findings
    if building:
        clauses = tuple(cause.clause for cause in record.causes[:1] if cause.clause)
        messages = tuple(_messages_of(record, building))
        return Focus(why=_why_not(record, building[0]), clauses=clauses, messages=messages)
    return _of_cause(record, record.first_cause, audience) if record.first_cause is not None else None


def _why_not(record: Record, first: Finding) -> str:
    """Return why nothing was run, or that the build is not as the handout demands."""
    if record.verdict is Verdict.REJECTED:
        return (
            "The file contains what could make the grader report wrong results, so nothing of it was run. Remove it "
            "and submit again. If you need it for a good reason, tell your instructor, who can allow it."
        )
    if first.kind == NO_FILE:
        return "There is no file to grade, so nothing was run."
    if first.kind == NOT_IMPORTED:
        return "It cannot be imported as the handout demands, so nothing of it could be run."
    if record.outcomes:
        return "It does not build as the handout demands."
    return "It does not compile as the handout demands, so nothing of it could be run."


def _messages_of(record: Record, findings: Sequence[Finding]) -> Iterator[tuple[Finding, Excerpt | None]]:
    """Yield the messages of the compiler, each once; the first ones with the lines of source."""
    messages: dict[object, Finding] = {}
    for finding in findings:
        messages.setdefault((finding.source[:1], finding.message, what_it_means(finding)), finding)
    for place, finding in enumerate(messages.values()):
        yield finding, excerpt(record, finding.source[0]) if finding.source and place < _MOST_EXCERPTS else None


def what_it_means(finding: Finding) -> str:
    """Return one sentence that explains a message of the compiler or the linker; empty when the grader has none."""
    return finding.field if finding.kind in _WITH_MEANING else ""


def _of_cause(record: Record, cause: Cause, audience: Audience) -> Focus:
    rule = next((score for score in record.rules if score.rule == cause.rule), None)
    outcome = record.outcome(cause.cases[0])
    first = record.first_finding(outcome)
    refused = first is not None and first.kind == REFUSED
    begin = Focus(
        rule="" if refused else cause.rule,
        title=rule.title if rule is not None else "",
        handout=rule.handout if rule is not None else "",
        clauses=(cause.clause,) if cause.clause else (),
    )
    if outcome.hidden_from(audience):
        return replace(
            begin,
            hint=_shown_hint(record, outcome, cause),
            clauses=begin.clauses or tuple(outcome.tested),
            hidden=True,
            case=f"a hidden one: {outcome.title}",
        )
    drawings = () if is_next(record) else record.pictures
    picture = next((drawing for drawing in drawings if drawing.case == outcome.case), None)
    return replace(
        begin,
        seen=cause.summary,
        hint="" if cause.is_unexplained else cause.hint,
        source=cause.lines[:MOST_CALLERS],
        excerpt=(shown := excerpt(record, cause.lines[0]) if cause.lines else None),
        caption=_caption(outcome, shown, cause.operation),
        case=place_of(record, outcome),
        steps=tuple([step for step in outcome.steps if step.number <= cause.operation][-_MOST_STEPS:]),
        number=cause.operation,
        hangs=outcome.verdict is Verdict.TIME_LIMIT_EXCEEDED,
        scene=_scene(picture, record, outcome) if picture is not None else None,
        charts=picture.charts if picture is not None else (),
        smallest=_smaller(record, cause),
    )


def _smaller(record: Record, cause: Cause) -> SmallestTrace | None:
    smallest = record.smallest
    is_smaller = smallest is not None and smallest.case == cause.cases[0] and len(smallest.calls) < cause.operation
    return smallest if is_smaller else None


def _caption(outcome: Outcome, shown: Excerpt | None, number: int) -> str:
    if outcome.verdict is Verdict.MEMORY_LEAK:
        return _ALLOCATED
    step = next((step for step in outcome.steps if step.number == number), None)
    reply = (step.actual if step is not None else None) or ""
    raised = reply.endswith(("Error", "Exception"))  # then the call itself returned no value
    is_wrong = step is not None and reply != step.expected and not raised
    text = shown.lines[shown.place.line] if shown is not None else ""
    is_return = is_wrong and re.match(r"\s*return\b", text) is not None
    return _RETURNED if is_return and outcome.verdict is Verdict.WRONG_ANSWER else _YOURS


def _scene(picture: Picture, record: Record, outcome: Outcome) -> DrawnScene | None:
    """Return the narrowed scene of the operation that went wrong; None if the picture does not show this operation."""
    first, number = record.first_finding(outcome), record.bad_operation(outcome)
    scenes = (scene for scene in drawn(picture, outcome, first) if scene.step.number == number)
    return next((narrowed(scene, first) for scene in scenes), None)


def _shown_hint(record: Record, outcome: Outcome, cause: Cause) -> str:
    """Return the part of a hidden case's hint that a student may read: the sentences that reveal nothing of the case.

    Sentences with calls, values, the field that differs or source lines are left out.
    """
    first = record.first_finding(outcome)
    seen = [first.field, first.expected, first.actual] if first is not None else []
    numbers = re.findall(r"-?\d+", " ".join([*seen, *(step.call for step in outcome.steps)]))
    call = call_at(outcome, cause.operation)
    parts = first.field.split(": ") if first is not None else ()
    secrets = {*seen, *parts, *numbers, call, *map(str, cause.lines), *re.findall(r"[\w.]+:\d+", cause.hint)} - {""}
    words = "|".join(sorted(map(re.escape, secrets), key=len, reverse=True))
    sentences = re.split(r"(?<=[.?])\s+", cause.hint)
    return " ".join(text for text in sentences if not words or not re.search(rf"(?<![\w-])(?:{words})(?!\w)", text))


def start_here(
    page: Page,
    record: Record,
    shown: Focus | None,
    audience: Audience,
    *,
    most: int = _MOST_MESSAGES,
    brief: bool = False,
) -> None:
    """Write the section that a student reads first, with at most `most` messages of the compiler.

    A `brief` section shows only one line of the source. It omits the place of a public case and the smaller trace.
    """
    if record.verdict is Verdict.JUDGE_ERROR:
        page.blank()
        page.write(f"{no_points_of(record)}. Please show it to your instructor.", indent=2)
    elif shown is not None and shown.messages:
        _building(page, record, shown, audience, most=most, brief=brief)
    elif shown is not None:
        page.heading(f"Start here: {'what comes next' if is_next(record) else 'the most likely cause'}")
        _write_cause(page, shown, brief=brief)


def _building(page: Page, record: Record, shown: Focus, audience: Audience, *, most: int, brief: bool) -> None:
    page.heading("Start here")
    page.write(shown.why, indent=2)
    _write_clauses(page, shown)
    findings = record.build_findings
    rejected = record.verdict is Verdict.REJECTED
    if len(findings) > 1 and not rejected and not findings[0].message.endswith("]"):
        page.write("Fix the first one first and try again: others are often its consequence.", indent=2)
    for finding, lines in shown.messages[:most]:
        page.blank()
        place = f"{finding.source[0]}: " if finding.source else ""
        page.write(strong(place), bad(finding.message), indent=2, hang=6)
        _excerpt(page, lines, brief=brief)
        if meaning := what_it_means(finding):
            page.write(meaning, indent=6)
    if len(shown.messages) > most:
        page.blank()
        page.write(dim(f"... and {counted(len(shown.messages) - most, 'message')} more"), indent=2)
    if audience is Audience.INSTRUCTOR and rejected:
        page.blank()
        page.write(dim("To grade it all the same, once you have looked at it: grade run PATH"), indent=2)
        symbols = dict.fromkeys(finding.field for finding in findings if finding.verdict is Verdict.REJECTED)
        for symbol in symbols:
            page.write(dim(f"--allow {shlex.quote(symbol)}"), indent=4)
    if audience is Audience.INSTRUCTOR and record.would_score is not None:
        page.blank()
        page.write(dim(f"Had it compiled, it would have scored {record.would_score}; this never counts."), indent=2)


def _excerpt(page: Page, excerpt: Excerpt | None, *, brief: bool) -> None:
    """Write the lines around a place of the student's file, with a caret below it when the column is known."""
    for number, text in excerpt.lines.items() if excerpt is not None else ():
        here = excerpt is not None and number == excerpt.place.line
        if here:
            page.crop(bad(">"), strong(f"{number:>5} | {text}"), indent=4)
        elif not brief:
            page.crop(dim(f" {number:>5} | "), text, indent=4)
        if excerpt is not None and here and excerpt.column:
            page.crop(dim(f" {' ' * 5} | "), bad(" " * (excerpt.column - 1) + "^"), indent=4)


def _write_clauses(page: Page, shown: Focus) -> None:
    for clause in shown.clauses:
        page.labelled("Handout", clause)


def _write_cause(page: Page, shown: Focus, *, brief: bool) -> None:
    title = f": {shown.title} " if shown.title else " "
    if shown.rule:
        page.labelled("Rule", strong(shown.rule), title, glued(f"(handout: {shown.handout})"))
    if shown.hidden:
        page.labelled("Case", shown.case)
    else:
        page.labelled("Seen", shown.seen)
    if not brief:
        _write_clauses(page, shown)
    if shown.hint:
        page.labelled("Hint", shown.hint if shown.hidden else strong(shown.hint))
    if shown.source:
        page.labelled(shown.caption, called_from(shown.source))
        _excerpt(page, shown.excerpt, brief=brief)
    if brief:  # the last lines are the first to be cut
        _write_clauses(page, shown)
    if shown.case and not shown.hidden and not brief:
        page.labelled("Case", shown.case, f"  {glued(shown.call)}" if shown.call else "")
        if shown.smallest is not None:
            page.labelled(
                "Smallest" if shown.smallest.is_smallest else "Smaller",
                f"{'; '.join(shown.smallest.calls)}: {shown.smallest.sentence}",
            )


def first_look(record: Record, view: View, still_running: Sequence[str]) -> Document:
    """Return the page that `grade watch` shows while most of a grading still runs: the first cause so far, no points.

    The record has public cases only (`grader.pipeline.first_look`); `still_running` names the cases that still run.
    """
    page = Page(view.width, colour=view.colour)
    shown = released(record, view.audience)
    name, rest = strong(record.submission.name), f". No score yet: {' and '.join(still_running)} still run."
    if withheld := held_back(shown):
        page.write(name, f": {withheld} It comes later: {' and '.join(still_running)} still run.", hang=2)
        return page.text()
    cases, wrong = counted(len(shown.outcomes), "public case"), sum(not outcome.clean for outcome in shown.outcomes)
    seen = bad(f"{wrong} of {cases} went wrong") if wrong else good(f"nothing went wrong in {cases}")
    page.write(name, ": ", seen, rest, hang=2)
    first = focus(shown, view.audience)
    start_here(page, shown, first, view.audience, brief=True)
    if first is not None:
        page.labelled("Case", first.case)
    return page.text()
