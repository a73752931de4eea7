"""The first thing to do: the most likely cause, or what the compiler says."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Iterator

from grader.core.causes import Audience, clauses_of, is_hidden, of_the_build
from grader.core.record import Record
from grader.core.verdict import Diagnosis, Finding, Outcome, SourceLine, Verdict
from grader.report.excerpt import excerpt
from grader.report.page import Page, bad, dim, glued, strong
from grader.report.progress import is_next
from grader.report.trace import case_file
from grader.report.words import NO_FILE, counted

__all__ = ["MOST_EXCERPTS", "messages_of", "shown_hint", "start_here", "what_it_means", "why_not"]

_WITH_MEANING = ("compiler", "linker")
"""Kinds of findings whose `field` says in one sentence what the message means."""

_MOST_MESSAGES = 60
MOST_EXCERPTS = 3
"""The most messages that are shown with their lines of source."""


def start_here(
    page: Page, record: Record, audience: Audience, most: int = _MOST_MESSAGES, *, also: bool = True
) -> None:
    """Write the section that a student reads first.

    It has at most `most` messages of the compiler. With `also` it names the other rules that were seen.
    """
    building = of_the_build(record)
    if record.verdict is Verdict.JUDGE_ERROR:
        page.blank()
        page.write("This is not your fault: no point is given or taken. Please show it to your instructor.", indent=2)
    elif record.verdict is Verdict.ACCEPTED:
        return
    elif building:
        _building(page, record, building, audience, most=most)
    elif record.diagnosis is not None:
        page.heading(f"Start here: {'what comes next' if is_next(record) else 'the most likely cause'}")
        _cause(page, record, record.diagnosis, audience)
        if also and record.diagnosis.also:
            rules = ", ".join(record.diagnosis.also)
            page.labelled("also seen", f"{rules}; some of it may go away with this one")


def _building(page: Page, record: Record, findings: list[Finding], audience: Audience, *, most: int) -> None:
    page.heading("Start here")
    page.write(why_not(record, findings[0]), indent=2)
    rejected = record.verdict is Verdict.REJECTED
    if len(findings) > 1 and not rejected and not findings[0].message.endswith("]"):
        page.write("Fix the first one first and compile again: others are often its consequence.", indent=2)
    messages = messages_of(findings)
    for number, (source, message, meaning) in enumerate(messages[:most]):
        page.blank()
        page.write(strong(f"{source[0]}: " if source else ""), bad(message), indent=2, hang=6)
        if source and number < MOST_EXCERPTS:
            _excerpt(page, record, source[0])
        if meaning:
            page.write(meaning, indent=6)
    if len(messages) > most:
        page.blank()
        page.write(dim(f"... and {counted(len(messages) - most, 'message')} more"), indent=2)
    if audience is Audience.INSTRUCTOR and rejected:
        page.blank()
        page.write(dim("To grade it all the same, once you have looked at it: grade run PATH"), indent=2)
        symbols = dict.fromkeys(finding.field for finding in findings if finding.verdict is Verdict.REJECTED)
        for symbol in symbols:
            page.write(dim(f"--allow {shlex.quote(symbol)}"), indent=4)
    if audience is Audience.INSTRUCTOR and record.would_score is not None:
        page.blank()
        page.write(dim(f"Had it compiled, it would have scored {record.would_score}; this never counts."), indent=2)


def why_not(record: Record, first: Finding) -> str:
    """Return why nothing was run, or that the build is not as the handout demands."""
    if record.verdict is Verdict.REJECTED:
        return (
            "The file holds what could make the grader report wrong results, so nothing of it was run. Take it away "
            "and hand in again. If it has an honest reason, tell your instructor, who can allow it."
        )
    if first.kind == NO_FILE:
        return "There is no file to grade, so nothing was run."
    if record.outcomes:
        return "It does not build as the handout demands."
    return "It does not compile as the handout demands, so nothing of it could be run."


def messages_of(findings: Iterable[Finding]) -> list[tuple[tuple[SourceLine, ...], str, str]]:
    """Return the messages of the compiler, each once: the place, the message and what it means."""
    return list(dict.fromkeys((one.source[:1], one.message, what_it_means(one)) for one in findings))


def _excerpt(page: Page, record: Record, place: SourceLine) -> None:
    """Write the lines around a place of the student's file, with a caret below it when the column is known."""
    found = excerpt(record, place)
    for line in found.lines if found is not None else ():
        number = f"{line.number:>5} | "
        if line.here:
            page.crop(bad(">"), strong(f"{number}{line.text}"), indent=4)
        else:
            page.crop(dim(f" {number}"), line.text, indent=4)
        if line.column:
            page.crop(dim(f" {' ' * 5} | "), bad(" " * (line.column - 1) + "^"), indent=4)


def what_it_means(finding: Finding) -> str:
    """Return one sentence that explains a message of the compiler or the linker; empty when the grader has none."""
    return finding.field if finding.kind in _WITH_MEANING else ""


def _cause(page: Page, record: Record, diagnosis: Diagnosis, audience: Audience) -> None:
    title = next((score.title for score in record.rules if score.rule == diagnosis.rule), "")
    outcome = next((one for one in record.outcomes if one.case == diagnosis.case), None)
    page.labelled(
        "Rule",
        strong(diagnosis.rule),
        f": {title} " if title else " ",
        glued(f"(handout: {diagnosis.handout})"),
    )
    if outcome is not None and is_hidden(outcome, audience):
        hint = shown_hint(outcome, diagnosis)
        page.labelled("Case", f"a hidden one: {outcome.title}")
        for clause in [diagnosis.broken] if diagnosis.broken else clauses_of(outcome):
            page.labelled("Handout", clause)
        if hint:
            page.labelled("Hint", hint)
    else:
        page.labelled("Seen", diagnosis.summary)
        if diagnosis.broken:
            page.labelled("Handout", diagnosis.broken)
        if diagnosis.hint:
            page.labelled("Hint", strong(diagnosis.hint))
        if diagnosis.source_line is not None:
            where = f" in {diagnosis.source_line.function}" if diagnosis.source_line.function else ""
            leaks = record.verdict is Verdict.MEMORY_LEAK  # the line allocates the memory, which is lost elsewhere
            page.labelled("Allocated" if leaks else "Your code", f"{diagnosis.source_line}{where}")
            _excerpt(page, record, diagnosis.source_line)
        if diagnosis.case is not None:
            line = f":{diagnosis.line}" if diagnosis.line else ""
            page.labelled("Case", f"{case_file(record, diagnosis.case)}{line}", _call(outcome, diagnosis))


def _call(outcome: Outcome | None, diagnosis: Diagnosis) -> str:
    steps = outcome.steps if outcome is not None else ()
    call = next((step.call for step in steps if step.number == diagnosis.operation), "")
    return "  " + glued(f"(operation {diagnosis.operation}: {call})") if call else ""


def shown_hint(outcome: Outcome, diagnosis: Diagnosis) -> str:
    """Return the part of a hidden case's hint that a student may read."""
    return " ".join(_without(diagnosis.hint, _secrets(outcome, diagnosis)))


def _secrets(outcome: Outcome, diagnosis: Diagnosis) -> set[str]:
    """Return what a hint could reveal about a hidden case: its calls, values, the field that differs, source lines."""
    told = {str(diagnosis.source_line)} if diagnosis.source_line is not None else set()
    told |= set(re.findall(r"[\w.]+:\d+", diagnosis.hint))
    values = [step.call for step in outcome.steps]
    if outcome.difference is not None:
        told |= {outcome.difference.field, outcome.difference.call}
        values += [outcome.difference.field, outcome.difference.expected, outcome.difference.actual]
        told |= {outcome.difference.expected, outcome.difference.actual}
    numbers = {number for value in values for number in re.findall(r"-?\d+", value)}
    return {secret for secret in told | numbers if secret}


def _without(hint: str, secrets: set[str]) -> Iterator[str]:
    """Yield the sentences of a hint that contain none of the secrets."""
    words = "|".join(sorted(map(re.escape, secrets), key=len, reverse=True))
    for sentence in re.split(r"(?<=[.?])\s+", hint):
        if not words or not re.search(rf"(?<![\w-])(?:{words})(?!\w)", sentence):
            yield sentence
