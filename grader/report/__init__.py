"""Reports: pure functions of the record. One more format is one more module and one more line in `FORMATS`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from grader.record import Record, to_json
from grader.report import text

__all__ = ["FORMATS", "Format", "View"]


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """For whom and where a report is shown. Students do not see what hidden cases do."""

    instructor: bool = False
    width: int = 100
    colour: bool = False


class Format(Protocol):
    """Makes a report of a record."""

    def __call__(self, record: Record, view: View) -> str:
        """The whole report."""


def _text(record: Record, view: View) -> str:
    audience = text.Audience.INSTRUCTOR if view.instructor else text.Audience.STUDENT
    return text.render(record, width=view.width, colour=view.colour, audience=audience)


def _json(record: Record, view: View) -> str:  # noqa: ARG001 - the record shows everything
    return to_json(record)


FORMATS: dict[str, Format] = {
    "text": _text,
    "json": _json,
}
