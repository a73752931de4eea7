"""The end of a report: advice, what the program printed, how it was graded, and how to reproduce the first case."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

from grader.core.causes import Audience, grouped, is_hidden
from grader.core.record import Record
from grader.core.verdict import Tool
from grader.report.escape import escape_lines
from grader.report.page import Page, dim, strong
from grader.report.words import failures_of

_MOST_LINES = 20
_MOST_ADVICE = 8

MORE = "--all"
"""The option that shows everything."""


def advised(page: Page, record: Record, most: int = _MOST_ADVICE) -> None:
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


def printed(page: Page, record: Record, most: int = _MOST_LINES) -> None:
    """Write what the program printed to stdout and stderr; it is shown, not judged."""
    lines = escape_lines(record.output)
    if not any(lines):
        return
    page.heading("What your program printed")
    page.write(dim("Shown for you; nothing is judged by it."), indent=2)
    for line in lines[:most]:
        page.crop(line, indent=4)
    if len(lines) > most:
        page.write(dim(f"... and {len(lines) - most} lines more"), indent=4)


def footer(page: Page, record: Record, audience: Audience) -> None:
    """Write tools, protection and seed, then the commands that show a failing case outside the grader."""
    environment = record.environment
    page.heading("How it was graded")
    if environment.command:
        page.labelled("command", "")
        page.command(*environment.command.split(), indent=4)
    for label, text in graded_how(record):
        page.labelled(label, dim(text), column=12)
    _incomplete(page, record, audience)
    page.blank()
    reproduce(page, record, audience)


def _incomplete(page: Page, record: Record, audience: Audience) -> None:
    for sentence in failures_of(record, audience):
        page.write(sentence, indent=2, hang=4)


def graded_briefly(page: Page, record: Record, audience: Audience) -> None:
    """Write the same in a line or two: what was not checked or failed, tools, protection, and how to see more."""
    environment = record.environment
    details = [
        environment.version(Tool.BUILD),
        environment.version(Tool.MEMORY_CHECKER) if record.outcomes else "",
        f"protection {record.protection.level}",
        f"seed {record.seed}",
        f"grader {environment.grader}" if environment.grader else "",
        f"{', '.join(record.allowed)} allowed" if record.allowed else "",
    ]
    if record.unchecked and record.outcomes:
        page.write(dim(record.unchecked), indent=2, hang=4)
    _incomplete(page, record, audience)
    how = ", ".join(text for text in details if text)
    page.write(dim(f"Graded with {how}. More of everything: {MORE}"), indent=2, hang=4)


def graded_how(record: Record) -> Iterator[tuple[str, str]]:
    """Return tools, protection and seed, each with its label."""
    environment, protection = record.environment, record.protection
    active = f": {', '.join(protection.active)}" if protection.active else ""
    for label, text in (
        ("built by", environment.version(Tool.BUILD)),
        ("memory", _memory(record)),
        ("protection", f"{protection.level}{active}"),
        ("allowed", ", ".join(record.allowed)),
        ("seed", str(record.seed)),
        ("grader", environment.grader),
    ):
        if text:
            yield label, text


def _memory(record: Record) -> str:
    checker = record.environment.used(Tool.MEMORY_CHECKER)
    if not record.outcomes or checker is None:
        return record.unchecked if record.outcomes else ""
    return "; ".join(filter(None, (f"checked by {checker.version or checker.name}", record.unchecked)))


def reproduce(page: Page, record: Record, audience: Audience) -> None:
    """Write the commands that make a program of the first cause's shown case, when the reader may see one."""
    groups = grouped(record, (outcome for outcome in record.outcomes if not is_hidden(outcome, audience)))
    if not groups:
        return
    page.write("To see the first case yourself, or in a debugger, write it as a program beside your file:", indent=2)
    path, case = shlex.quote(record.submission.name), groups[0].shown.case
    page.command("scripts/grade", "repro", path, case, f"> {repro_name(record)}", indent=4)
    if record.environment.reproduce:
        page.command(*_words(record.environment.reproduce), indent=4)


def _words(command: str) -> list[str]:
    """The words of a command; && stays with the word behind it, because a line may be broken between words."""
    return re.findall(r"(?:&& )?\S+", command)


def repro_name(record: Record) -> str:
    """The name of the program, in the language of the submission."""
    return f"repro{Path(record.submission.source_file).suffix}"
