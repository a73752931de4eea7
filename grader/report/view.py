"""For whom and where a report is shown, and the interfaces of formats."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from grader.core.record import Record, Student
from grader.core.verdict import Audience
from grader.report.document import Document


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """For whom and where a report is shown. Students do not see what hidden cases do."""

    instructor: bool = False
    width: int = 100
    colour: bool = False
    everything: bool = False
    """Whether to show every cause in full, in the format that also has a short version."""
    workflow: bool = False
    """Whether the report goes to the log of a GitHub workflow, where a line can be a command."""
    variables: Mapping[str, str] = field(default_factory=dict)
    """The environment variables; Classroom 50 uses them to describe the submission that it passes on."""
    time: str = ""
    """The current time, as `YYYY-MM-DDTHH:MM:SSZ`."""

    @property
    def audience(self) -> Audience:
        """The reader of the report."""
        return Audience.INSTRUCTOR if self.instructor else Audience.STUDENT


class Format(Protocol):
    """Makes a report of a record."""

    def __call__(self, record: Record, view: View) -> Document:
        """Return the whole report."""


class Gradebook(Protocol):
    """Makes one file of many records: points by student, without what a case does, or the records themselves."""

    def __call__(self, records: Iterable[Record], missing: Iterable[Student] = ()) -> Document:
        """Return a row for each student; `missing` are those who submitted nothing. Records are read one by one."""
