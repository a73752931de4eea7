"""Reports: pure functions of the record. One more format is one more module and one more line in `FORMATS`.

It returns a `Document`, which only the doors of `grader.report.document` make: there its values are escaped.
"""

from __future__ import annotations

from typing import Protocol

from grader.record import Record
from grader.report import html, text
from grader.report.document import Document, as_json, as_log
from grader.report.view import View

__all__ = ["DRAWN", "FORMATS", "Format", "View"]


class Format(Protocol):
    """Makes a report of a record."""

    def __call__(self, record: Record, view: View) -> Document:
        """The whole report."""


def _text(record: Record, view: View) -> Document:
    audience = text.Audience.INSTRUCTOR if view.instructor else text.Audience.STUDENT
    page = text.render(record, width=view.width, colour=view.colour, audience=audience)
    return as_log(page) if view.workflow else page


def _json(record: Record, view: View) -> Document:  # noqa: ARG001 - the record shows everything
    return as_json(record)


def _html(record: Record, view: View) -> Document:
    return html.render(record, text.Audience.INSTRUCTOR if view.instructor else text.Audience.STUDENT)


FORMATS: dict[str, Format] = {
    "text": _text,
    "json": _json,
    "html": _html,
}

DRAWN = frozenset({"html", "json"})
"""Formats in which pictures of failing cases stand: their records are to be made with them."""
