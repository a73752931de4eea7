"""Report formats: pure functions of the record. A new format needs one module and one line in `FORMATS`.

A format returns a `Document`. Only the functions of `grader.report.document` and `Page` create one; they escape its
values. A format that makes one file of many records has its line in `GRADEBOOKS`.
"""

from __future__ import annotations

from grader.core.picture import Drawing
from grader.core.record import Record
from grader.report import annotate, classroom50, gnu, gradebook, gradescope, html, junit, sarif, summary, text
from grader.report.document import Document, Format, Gradebook, View, as_json, as_log
from grader.report.released import released

__all__ = ["DRAWN", "FORMATS", "GRADEBOOKS", "LINE_BY_LINE", "Format", "Gradebook", "View"]


def _text(record: Record, view: View) -> Document:
    page = text.render(
        record,
        width=view.width,
        height=view.height,
        colour=view.colour,
        audience=view.audience,
        everything=view.everything,
    )
    return as_log(page) if view.workflow else page


def _released(render: Format) -> Format:
    """Return the format for records as their readers may see them."""

    def format_released(record: Record, view: View) -> Document:
        return render(released(record, view.audience), view)

    return format_released


def _json(record: Record, view: View) -> Document:  # noqa: ARG001 - the record shows everything
    return as_json(record)


FORMATS: dict[str, Format] = {
    "text": _released(_text),
    "json": _json,
    "html": _released(html.render),
    "gradescope": _released(gradescope.render),
    "classroom50": _released(classroom50.render),
    "junit": _released(junit.render),
    "sarif": _released(sarif.render),
    "annotations": _released(annotate.render),
    "gnu": _released(gnu.render),
    "summary": _released(summary.render),
}
"""The formats that make a report of one record."""

GRADEBOOKS: dict[str, Gradebook] = {
    "csv": gradebook.own,
    "gradescope-csv": gradebook.gradescope_export,
    "canvas-csv": gradebook.canvas,
    "jsonl": gradebook.json_lines,
}
"""The formats that make one file of many records."""

LINE_BY_LINE = frozenset({"jsonl"})
"""Gradebooks that contain whole records: the file of many records is the files of each, concatenated. The other
gradebooks need only the points of a record (see `Result.brief`)."""

DRAWN = {"text": Drawing.FIRST, "html": Drawing.ALL, "json": Drawing.ALL}
"""Formats that show pictures of failing cases: their records must be made with pictures."""
