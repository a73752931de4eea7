"""The first lines of a report: verdict, points, decisions of people, and the message that nothing is wrong."""

from __future__ import annotations

from grader.core.record import Record
from grader.core.verdict import Tool
from grader.report.decided import decisions_of
from grader.report.page import Page, bad, dim, glued, good, strong
from grader.report.words import all_pass, incomplete_of, points_of, result_of

_MOST_NOTES = 40


def headline(page: Page, record: Record, most_notes: int = _MOST_NOTES) -> None:
    """Write verdict and points, the notes on the submission, and the decisions of people, which all numbers include."""
    mark = good if record.verdict.passed else bad
    begin = strong(record.submission.name), ": ", mark(result_of(record))
    if record.public_only:  # a line of its own, so that its words stay together
        page.write(*begin, hang=2)
        page.write(strong(points_of(record)), indent=2)
    else:
        page.write(*begin, ", ", strong(glued(points_of(record))), hang=2)
    if incomplete := incomplete_of(record):
        page.write(incomplete, indent=2)
    notes = [*map(dim, record.submission.notes), *map(strong, decisions_of(record))]
    for note in notes[:most_notes]:
        page.write(note, indent=2, hang=4)
    if len(notes) > most_notes:
        page.write(dim(f"... and {len(notes) - most_notes} notes more"), indent=2)


def all_well(page: Page, record: Record) -> None:
    """Write that nothing is wrong."""
    page.write(all_pass(record), indent=2)
    checker = record.environment.used(Tool.MEMORY_CHECKER)
    memory = f"{checker.name} reports no bad access and 0 bytes lost." if checker is not None else ""
    page.write(" ".join(filter(None, (record.unchecked or memory, "Well done."))), indent=2)
