"""*Start here* of the text report: the most likely cause, or what the compiler says."""

from __future__ import annotations

import shlex

from grader.core.causes import Audience, of_the_build
from grader.core.record import Record
from grader.core.verdict import Verdict
from grader.report.excerpt import Excerpt
from grader.report.focus import Focus
from grader.report.page import Page, bad, dim, glued, strong
from grader.report.progress import is_next
from grader.report.words import counted, no_points_of

_MOST_MESSAGES = 60


def start_here(
    page: Page, record: Record, shown: Focus | None, audience: Audience, *, most: int = _MOST_MESSAGES
) -> None:
    """Write the section that a student reads first, with at most `most` messages of the compiler."""
    if record.verdict is Verdict.JUDGE_ERROR:
        page.blank()
        page.write(f"{no_points_of(record)}. Please show it to your instructor.", indent=2)
    elif shown is not None and shown.messages:
        _building(page, record, shown, audience, most=most)
    elif shown is not None:
        page.heading(f"Start here: {'what comes next' if is_next(record) else 'the most likely cause'}")
        _cause(page, shown)


def _building(page: Page, record: Record, shown: Focus, audience: Audience, *, most: int) -> None:
    page.heading("Start here")
    page.write(shown.why, indent=2)
    findings = of_the_build(record)
    rejected = record.verdict is Verdict.REJECTED
    if len(findings) > 1 and not rejected and not findings[0].message.endswith("]"):
        page.write("Fix the first one first and try again: others are often its consequence.", indent=2)
    for message in shown.messages[:most]:
        page.blank()
        page.write(strong(f"{message.source[0]}: " if message.source else ""), bad(message.text), indent=2, hang=6)
        _excerpt(page, message.excerpt)
        if message.meaning:
            page.write(message.meaning, indent=6)
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


def _excerpt(page: Page, excerpt: Excerpt | None) -> None:
    """Write the lines around a place of the student's file, with a caret below it when the column is known."""
    for line in excerpt.lines if excerpt is not None else ():
        number = f"{line.number:>5} | "
        if line.here:
            page.crop(bad(">"), strong(f"{number}{line.text}"), indent=4)
        else:
            page.crop(dim(f" {number}"), line.text, indent=4)
        if line.column:
            page.crop(dim(f" {' ' * 5} | "), bad(" " * (line.column - 1) + "^"), indent=4)


def _cause(page: Page, shown: Focus) -> None:
    title = f": {shown.title} " if shown.title else " "
    page.labelled("Rule", strong(shown.rule), title, glued(f"(handout: {shown.handout})"))
    if shown.hidden:
        page.labelled("Case", shown.case)
    else:
        page.labelled("Seen", shown.seen)
    for clause in shown.clauses:
        page.labelled("Handout", clause)
    if shown.hint:
        page.labelled("Hint", shown.hint if shown.hidden else strong(shown.hint))
    for line in shown.source:
        where = f" in {line.function}" if line.function else ""
        page.labelled("Allocated" if shown.lost else "Your code", f"{line}{where}")
        _excerpt(page, shown.excerpt)
    if shown.case and not shown.hidden:
        page.labelled("Case", shown.case, f"  {glued(shown.call)}" if shown.call else "")
