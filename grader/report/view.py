"""For whom and where a report is shown, and what a format is."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from grader.core.causes import Audience
from grader.core.record import Record, Student
from grader.report.document import Document

__all__ = ["Format", "Gradebook", "View"]


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """For whom and where a report is shown. Students do not see what hidden cases do."""

    instructor: bool = False
    width: int = 100
    colour: bool = False
    everything: bool = False
    """Every cause in full, in the format that has a short version too."""
    workflow: bool = False
    """In the log of a GitHub workflow, where a line can be a command?"""
    variables: Mapping[str, str] = field(default_factory=dict)
    """What the machine says of the submission that it hands over: Classroom 50 does it by the environment."""
    time: str = ""
    """Now, as `YYYY-MM-DDTHH:MM:SSZ`."""

    @property
    def audience(self) -> Audience:
        """Who reads."""
        return Audience.INSTRUCTOR if self.instructor else Audience.STUDENT


class Format(Protocol):
    """Makes a report of a record."""

    def __call__(self, record: Record, view: View) -> Document:
        """The whole report."""


class Gradebook(Protocol):
    """Makes one table of many records: points only, nothing of what a case does."""

    def __call__(self, records: Iterable[Record], missing: Iterable[Student] = ()) -> Document:
        """A row for each student; `missing` are those who handed in nothing. Records are taken one by one."""
