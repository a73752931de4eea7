"""Reports: pure functions of the record. One more format is one more module and one more line in `FORMATS`.

It returns a `Document`, which only the doors of `grader.report.document` make: there its values are escaped.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from grader.record import Record
from grader.report import html, text
from grader.report.document import Document, as_json, as_log

__all__ = ["DRAWN", "FORMATS", "Format", "View"]


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """For whom and where a report is shown. Students do not see what hidden cases do."""

    instructor: bool = False
    width: int = 100
    colour: bool = False
    workflow: bool = False
    """In the log of a GitHub workflow, where a line can be a command?"""


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
