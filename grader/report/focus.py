"""The start of the web page: the cause in one sentence, the student's own lines, and three states side by side."""

from __future__ import annotations

from dataclasses import dataclass

from grader.core.causes import Audience, bad_operation, clauses_of, is_hidden, of_the_build
from grader.core.record import Record
from grader.core.verdict import Diagnosis, Outcome, SourceLine, StepShown, Verdict
from grader.report.compared import Compared, compared
from grader.report.drawn import drawn
from grader.report.excerpt import Excerpt, excerpt
from grader.report.progress import is_next
from grader.report.start import MOST_EXCERPTS, messages_of, shown_hint, why_not
from grader.report.trace import case_file

__all__ = ["Focus", "Message", "focus", "states_of"]

_MOST_STEPS = 6
"""The maximum number of listed operations; the last one listed went wrong."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """A message of the compiler: its place, its text, and what it means."""

    source: tuple[SourceLine, ...]
    text: str
    meaning: str
    excerpt: Excerpt | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Focus:
    """What a student sees first: the messages of a failing build, or the most likely cause."""

    why: str = ""
    messages: tuple[Message, ...] = ()
    rule: str = ""
    title: str = ""
    handout: str = ""
    seen: str = ""
    hint: str = ""
    broken: str = ""
    source: tuple[SourceLine, ...] = ()
    excerpt: Excerpt | None = None
    lost: bool = False
    """Whether `source` is where memory was allocated that is lost elsewhere."""
    case: str = ""
    steps: tuple[StepShown, ...] = ()
    """The last operations up to the one that went wrong."""
    number: int = 0
    """The number of the operation that went wrong."""
    reached: bool = True
    """Whether the program returned from that operation."""
    states: Compared | None = None
    also: str = ""


def focus(record: Record, audience: Audience) -> Focus | None:
    """Return the focus of a record; None when there is nothing to correct, or nothing is known."""
    if record.verdict in (Verdict.ACCEPTED, Verdict.JUDGE_ERROR):
        return None
    building = of_the_build(record)
    if building:
        messages = [
            Message(
                source=source,
                text=text,
                meaning=meaning,
                excerpt=excerpt(record, source[0]) if source and place < MOST_EXCERPTS else None,
            )
            for place, (source, text, meaning) in enumerate(messages_of(building))
        ]
        return Focus(why=why_not(record, building[0]), messages=tuple(messages))
    return _cause(record, record.diagnosis, audience) if record.diagnosis is not None else None


def _cause(record: Record, diagnosis: Diagnosis, audience: Audience) -> Focus:
    outcome = next((one for one in record.outcomes if one.case == diagnosis.case), None)
    title = next((score.title for score in record.rules if score.rule == diagnosis.rule), "")
    also = ", ".join(diagnosis.also)
    if outcome is not None and is_hidden(outcome, audience):
        return Focus(
            rule=diagnosis.rule,
            title=title,
            handout=diagnosis.handout,
            hint=shown_hint(outcome, diagnosis),
            broken=diagnosis.broken,
            case=". ".join((f"a hidden one: {outcome.title}", *clauses_of(outcome))),
            also=also,
        )
    number = bad_operation(record, outcome) if outcome is not None else 0
    reached, states = states_of(record, outcome, number)
    place = f":{diagnosis.line}" if diagnosis.line else ""
    steps = [step for step in outcome.steps if step.number <= number] if outcome is not None else []
    return Focus(
        rule=diagnosis.rule,
        title=title,
        handout=diagnosis.handout,
        seen=diagnosis.summary,
        hint=diagnosis.hint,
        broken=diagnosis.broken,
        source=() if diagnosis.source_line is None else (diagnosis.source_line,),
        excerpt=excerpt(record, diagnosis.source_line),
        lost=outcome is not None and outcome.verdict is Verdict.MEMORY_LEAK,
        case=case_file(record, diagnosis.case) + place if diagnosis.case is not None else "",
        steps=tuple(steps[-_MOST_STEPS:]),
        number=number,
        reached=reached,
        states=states,
        also=also,
    )


def states_of(record: Record, outcome: Outcome | None, number: int) -> tuple[bool, Compared | None]:
    """Return whether the program returned from this operation, which went wrong, and its three states.

    For a stub, or where no picture shows the operation, the result is True and None.
    """
    if is_next(record):
        return True, None
    picture = next((one for one in record.pictures if outcome is not None and one.case == outcome.case), None)
    if picture is None or outcome is None:
        return True, None
    scenes = drawn(picture, outcome)
    at = next((place for place, scene in enumerate(scenes) if scene.step.number == number), None)
    if at is None:
        return True, None
    return scenes[at].reached, compared(scenes, at, outcome)
