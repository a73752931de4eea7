"""Report formats: pure functions of the record. A new format needs one module and one line in `FORMATS`.

A format returns a `Document`. Only the functions of `grader.report.document` and `Page` create one; they escape its
values. A format that makes one file of many records has its line in `GRADEBOOKS`.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

from grader.core.picture import Drawing
from grader.core.record import Record
from grader.report.document import Document, Format, Gradebook, View, as_json, as_log, released

__all__ = ["DRAWN", "FORMATS", "GRADEBOOKS", "LINE_BY_LINE", "Format", "Gradebook", "View"]


def _in(module: str, function: str = "render") -> Any:
    """Return a function of a report module. Import the module at the first call: a process needs few report modules."""

    def call(*arguments: Any, **options: Any) -> Document:
        page: Document = getattr(import_module(f"{__name__}.{module}"), function)(*arguments, **options)
        return page

    return call


def _text(record: Record, view: View) -> Document:
    page: Document = _in("text")(
        record,
        width=view.width,
        height=view.height,
        colour=view.colour,
        audience=view.audience,
        everything=view.everything,
    )
    return as_log(page) if view.workflow else page


def _released(render: Format) -> Format:
    """Return the format that renders only the part of a record that its reader may see (`released`)."""

    def format_released(record: Record, view: View) -> Document:
        return render(released(record, view.audience), view)

    return format_released


def _json(record: Record, view: View) -> Document:  # noqa: ARG001 - every reader gets the whole record
    return as_json(record)


FORMATS: dict[str, Format] = {
    "text": _released(_text),
    "json": _json,
    "html": _released(_in("html")),
    "gradescope": _released(_in("by_rule", "gradescope")),
    "classroom50": _released(_in("by_rule", "classroom50")),
    "junit": _released(_in("junit")),
    "sarif": _released(_in("sarif")),
    "annotations": _released(_in("problems", "annotated")),
    "gnu": _released(_in("problems", "gnu")),
    "summary": _released(_in("by_rule", "summary")),
}
"""The formats that make a report of one record."""

GRADEBOOKS: dict[str, Gradebook] = {
    "csv": _in("gradebook", "own"),
    "gradescope-csv": _in("gradebook", "gradescope_export"),
    "canvas-csv": _in("gradebook", "canvas"),
    "jsonl": _in("gradebook", "json_lines"),
}
"""The formats that make one file of many records."""

LINE_BY_LINE = frozenset({"jsonl"})
"""Gradebooks that contain whole records, one per line, so that such files can be concatenated. The other gradebooks
need only the points of a record (see `Result.brief`)."""

DRAWN = {"text": Drawing.FIRST, "html": Drawing.ALL, "json": Drawing.ALL}
"""Formats that show pictures of failing cases: their records must be made with pictures."""
