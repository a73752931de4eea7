"""Reports: pure functions of the record. One more format is one more module and one more line in `FORMATS`.

It returns a `Document`, which only the doors of `grader.report.document` make: there its values are escaped.
What makes one file of many records has its line in `GRADEBOOKS`.
"""

from __future__ import annotations

from grader.core.picture import Drawing
from grader.core.record import Record
from grader.report import annotate, classroom50, gcc, gradebook, gradescope, html, junit, sarif, summary, text
from grader.report.document import Document, as_json, as_log
from grader.report.view import Format, Gradebook, View

__all__ = ["DRAWN", "FORMATS", "GRADEBOOKS", "LINE_BY_LINE", "Format", "Gradebook", "View"]


def _text(record: Record, view: View) -> Document:
    page = text.render(record, width=view.width, colour=view.colour, audience=view.audience, everything=view.everything)
    return as_log(page) if view.workflow else page


def _json(record: Record, view: View) -> Document:  # noqa: ARG001 - the record shows everything
    return as_json(record)


FORMATS: dict[str, Format] = {
    "text": _text,
    "json": _json,
    "html": html.render,
    "gradescope": gradescope.render,
    "classroom50": classroom50.render,
    "junit": junit.render,
    "sarif": sarif.render,
    "annotations": annotate.render,
    "gcc": gcc.render,
    "summary": summary.render,
}
"""What makes a report of one record."""

GRADEBOOKS: dict[str, Gradebook] = {
    "csv": gradebook.own,
    "gradescope-csv": gradebook.gradescope_export,
    "canvas-csv": gradebook.canvas,
    "jsonl": gradebook.json_lines,
}
"""What makes one file of many records."""

LINE_BY_LINE = frozenset({"jsonl"})
"""Those that hold whole records: the file of many is those of each, one behind the other. The others need no more of a
record than its points (see `Result.brief`)."""

DRAWN = {"text": Drawing.FIRST, "html": Drawing.ALL, "json": Drawing.ALL}
"""Formats in which pictures of failing cases stand: their records are to be made with them."""
