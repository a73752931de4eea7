"""What a reader sees first: the most likely cause with the student's lines and the states, or the compiler's messages.

This decides what of a hidden case may be shown; the text report and the web page write what stands here.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from grader.core.causes import Audience, bad_operation, clauses_of, is_hidden, of_the_build
from grader.core.chart import ComparedChart
from grader.core.picture import Picture
from grader.core.record import Record
from grader.core.verdict import NOT_IMPORTED, Diagnosis, Finding, Outcome, SourceLine, StepShown, Verdict
from grader.report.compared import Compared, compared
from grader.report.drawn import drawn
from grader.report.excerpt import Excerpt, excerpt
from grader.report.progress import is_next
from grader.report.trace import case_file
from grader.report.words import NO_FILE

_MOST_STEPS = 6
"""The maximum number of listed operations; the last one listed went wrong."""

_MOST_EXCERPTS = 3
"""The most messages that are shown with their lines of source."""

_WITH_MEANING = ("compiler", "linker")
"""Kinds of findings whose `field` says in one sentence what the message means."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """A message of the compiler: its place, its text, and what it means."""

    source: tuple[SourceLine, ...]
    text: str
    meaning: str
    excerpt: Excerpt | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Focus:
    """What a reader sees first: the messages of a failing build, or the most likely cause."""

    why: str = ""
    messages: tuple[Message, ...] = ()
    rule: str = ""
    title: str = ""
    handout: str = ""
    seen: str = ""
    hint: str = ""
    clauses: tuple[str, ...] = ()
    """The sentences of the handout that were broken."""
    source: tuple[SourceLine, ...] = ()
    excerpt: Excerpt | None = None
    lost: bool = False
    """Whether `source` is where memory was allocated that is lost elsewhere."""
    hidden: bool = False
    """Whether the reader may see no more of the case than its title."""
    case: str = ""
    """The place of the case, or the title of a hidden one."""
    steps: tuple[StepShown, ...] = ()
    """The last operations up to the one that went wrong."""
    number: int = 0
    """The number of the operation that went wrong."""
    reached: bool = True
    """Whether the program returned from that operation."""
    states: Compared | None = None
    charts: tuple[ComparedChart, ...] = ()
    also: str = ""
    """The other rules that were seen."""

    @property
    def call(self) -> str:
        """The operation that went wrong, with its number; empty when it is not shown."""
        call = next((step.call for step in self.steps if step.number == self.number), "")
        return f"(operation {self.number}: {call})" if call else ""


def focus(record: Record, audience: Audience) -> Focus | None:
    """Return the focus of a record; None when there is nothing to correct, or nothing is known."""
    if record.verdict in (Verdict.ACCEPTED, Verdict.JUDGE_ERROR):
        return None
    building = of_the_build(record)
    if building:
        return Focus(why=_why_not(record, building[0]), messages=tuple(_messages_of(record, building)))
    return _cause(record, record.diagnosis, audience) if record.diagnosis is not None else None


def _why_not(record: Record, first: Finding) -> str:
    """Return why nothing was run, or that the build is not as the handout demands."""
    if record.verdict is Verdict.REJECTED:
        return (
            "The file holds what could make the grader report wrong results, so nothing of it was run. Take it away "
            "and hand in again. If it has an honest reason, tell your instructor, who can allow it."
        )
    if first.kind == NO_FILE:
        return "There is no file to grade, so nothing was run."
    if first.kind == NOT_IMPORTED:
        return "It cannot be imported as the handout demands, so nothing of it could be run."
    if record.outcomes:
        return "It does not build as the handout demands."
    return "It does not compile as the handout demands, so nothing of it could be run."


def _messages_of(record: Record, findings: Sequence[Finding]) -> Iterator[Message]:
    """Yield the messages of the compiler, each once."""
    messages = dict.fromkeys((finding.source[:1], finding.message, what_it_means(finding)) for finding in findings)
    for place, (source, text, meaning) in enumerate(messages):
        shown = excerpt(record, source[0]) if source and place < _MOST_EXCERPTS else None
        yield Message(source=source, text=text, meaning=meaning, excerpt=shown)


def what_it_means(finding: Finding) -> str:
    """Return one sentence that explains a message of the compiler or the linker; empty when the grader has none."""
    return finding.field if finding.kind in _WITH_MEANING else ""


def _cause(record: Record, diagnosis: Diagnosis, audience: Audience) -> Focus:
    outcome = next((outcome for outcome in record.outcomes if outcome.case == diagnosis.case), None)
    begin = Focus(
        rule=diagnosis.rule,
        title=next((score.title for score in record.rules if score.rule == diagnosis.rule), ""),
        handout=diagnosis.handout,
        clauses=(diagnosis.broken,) if diagnosis.broken else (),
        also=", ".join(diagnosis.also),
    )
    if outcome is not None and is_hidden(outcome, audience):
        return replace(
            begin,
            hint=_shown_hint(outcome, diagnosis),
            clauses=begin.clauses or tuple(clauses_of(outcome)),
            hidden=True,
            case=f"a hidden one: {outcome.title}",
        )
    number = bad_operation(record, outcome) if outcome is not None else 0
    shown = () if is_next(record) else record.pictures
    picture = next((drawing for drawing in shown if drawing.case == diagnosis.case), None)
    reached, states = _states_of(picture, outcome, number)
    place = f":{diagnosis.line}" if diagnosis.line else ""
    steps = [step for step in outcome.steps if step.number <= number] if outcome is not None else []
    return replace(
        begin,
        seen=diagnosis.summary,
        hint=diagnosis.hint,
        source=() if diagnosis.source_line is None else (diagnosis.source_line,),
        excerpt=excerpt(record, diagnosis.source_line),
        lost=outcome is not None and outcome.verdict is Verdict.MEMORY_LEAK,
        case=case_file(record, diagnosis.case) + place if diagnosis.case is not None else "",
        steps=tuple(steps[-_MOST_STEPS:]),
        number=number,
        reached=reached,
        states=states,
        charts=picture.charts if picture is not None else (),
    )


def _states_of(picture: Picture | None, outcome: Outcome | None, number: int) -> tuple[bool, Compared | None]:
    """Return whether the program returned from this operation, which went wrong, and its three states.

    Where no picture shows the operation, the result is True and None.
    """
    if picture is None or outcome is None:
        return True, None
    scenes = drawn(picture, outcome)
    at = next((place for place, scene in enumerate(scenes) if scene.step.number == number), None)
    if at is None:
        return True, None
    return scenes[at].reached, compared(scenes, at, outcome)


def _shown_hint(outcome: Outcome, diagnosis: Diagnosis) -> str:
    """Return the part of a hidden case's hint that a student may read."""
    return " ".join(_without(diagnosis.hint, _secrets(outcome, diagnosis)))


def _secrets(outcome: Outcome, diagnosis: Diagnosis) -> set[str]:
    """Return what a hint could reveal about a hidden case: its calls, values, the field that differs, source lines."""
    secrets = {str(diagnosis.source_line)} if diagnosis.source_line is not None else set()
    secrets |= set(re.findall(r"[\w.]+:\d+", diagnosis.hint))
    values = [step.call for step in outcome.steps]
    if outcome.difference is not None:
        secrets |= {outcome.difference.field, outcome.difference.call}
        values += [outcome.difference.field, outcome.difference.expected, outcome.difference.actual]
        secrets |= {outcome.difference.expected, outcome.difference.actual}
    numbers = {number for value in values for number in re.findall(r"-?\d+", value)}
    return {secret for secret in secrets | numbers if secret}


def _without(hint: str, secrets: set[str]) -> Iterator[str]:
    """Yield the sentences of a hint that contain none of the secrets."""
    words = "|".join(sorted(map(re.escape, secrets), key=len, reverse=True))
    for sentence in re.split(r"(?<=[.?])\s+", hint):
        if not words or not re.search(rf"(?<![\w-])(?:{words})(?!\w)", sentence):
            yield sentence
