"""The end of a report: how the submission was graded, and how to reproduce the first case."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

from grader.core.record import Record
from grader.core.verdict import Audience, Tool
from grader.report.page import Page, dim
from grader.report.phrases import failures_of

_CLEARLY_SLOWER = 3
MORE = "--all"
"""The option that shows everything."""


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
        f"lane {environment.lane}" if environment.lane else "",
        slowness(environment.pace),
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
        ("lane", environment.lane),
        ("pace", slowness(environment.pace)),
        ("seed", str(record.seed)),
        ("grader", environment.grader),
    ):
        if text:
            yield label, text


def slowness(pace: float) -> str:
    """Return a sentence on a machine that is slower than usual; "" for any other."""
    times = f"{pace:.0f}" if pace > _CLEARLY_SLOWER else f"{pace:.1f}"
    return f"this machine is {times} times slower than usual, so time limits are longer" if pace > 1 else ""


def _memory(record: Record) -> str:
    checker = record.environment.used(Tool.MEMORY_CHECKER)
    if not record.outcomes or checker is None:
        return record.unchecked if record.outcomes else ""
    return "; ".join(filter(None, (f"checked by {checker.version or checker.name}", record.unchecked)))


def reproduce(page: Page, record: Record, audience: Audience) -> None:
    """Write the commands that make a program of the first cause's shown case, when the reader may see one."""
    causes = record.causes_for(audience)
    if not causes:
        return
    page.write("To see the first case yourself, or in a debugger, write it as a program beside your file:", indent=2)
    path, case = shlex.quote(record.submission.name), causes[0].cases[0]
    page.command("scripts/grade", "repro", path, case, f"> {repro_name(record)}", indent=4)
    if record.environment.reproduce:
        page.command(*_words(record.environment.reproduce), indent=4)


def next_step(page: Page, record: Record, audience: Audience) -> None:
    """Write in a few lines how to see the first case and everything else, and what the report lacks."""
    _incomplete(page, record, audience)
    causes = record.causes_for(audience)
    if causes:
        case = f"scripts/grade repro {shlex.quote(record.submission.name)} {causes[0].cases[0]}"
        page.labelled("Next", f"{case} > {repro_name(record)}")
    page.labelled("More", f"of everything: {MORE}")


def _words(command: str) -> list[str]:
    """The words of a command; && stays with the word behind it, because a line may be broken between words."""
    return re.findall(r"(?:&& )?\S+", command)


def repro_name(record: Record) -> str:
    """The name of the program, in the language of the submission."""
    return f"repro{Path(record.submission.source_file).suffix}"
