"""The page that `grade watch` shows while most of a grading still runs: the first cause so far, and no points."""

from __future__ import annotations

from collections.abc import Sequence

from grader.core.record import Record
from grader.report.document import Document, View
from grader.report.page import Page, bad, good, strong
from grader.report.phrases import counted
from grader.report.released import held_back, released
from grader.report.start_here import focus, start_here


def first_look(record: Record, view: View, still_running: Sequence[str]) -> Document:
    """Return the page of a record of public cases only (`grader.pipeline.first_look`); `still_running` is the rest."""
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
