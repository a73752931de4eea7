"""For whom and where a report is shown, and what a format is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from grader.record import Record
from grader.report.document import Document
from grader.report.groups import Audience

__all__ = ["Format", "View"]


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """For whom and where a report is shown. Students do not see what hidden cases do."""

    instructor: bool = False
    width: int = 100
    colour: bool = False
    workflow: bool = False
    """In the log of a GitHub workflow, where a line can be a command?"""

    @property
    def audience(self) -> Audience:
        """Who reads."""
        return Audience.INSTRUCTOR if self.instructor else Audience.STUDENT


class Format(Protocol):
    """Makes a report of a record."""

    def __call__(self, record: Record, view: View) -> Document:
        """The whole report."""
