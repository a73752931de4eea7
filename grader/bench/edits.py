"""From an edit to the first result, as `grade watch` shows it: in a process that has graded before.

What `grade watch` waits for besides, that an editor has written its last byte, takes 20 ms or more and no CPU time.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path

from grader import pipeline
from grader.assignment.case_selection import select_cases
from grader.assignment.lab import Lab
from grader.assignment.samples import program_of, samples_in
from grader.assignment.source import collect
from grader.core.case import Case
from grader.core.verdict import Verdict
from grader.report import FORMATS
from grader.report.document import Document, View
from grader.report.first_look import first_look
from grader.runtime.protocol import GradingOptions
from grader.system.budget import Budget

_WITHOUT_TOOL = GradingOptions(memory_checker=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class EditedSample:
    """A copy of a wrong labelled submission, edited again and again; each content is a new one."""

    lab: Lab
    cases: tuple[Case, ...]
    file: Path
    content: bytes
    numbers: Iterator[int] = field(default_factory=count)
    seconds: list[float] = field(default_factory=list)
    """By the clock, of all edits so far."""

    @classmethod
    def of(cls, lab: Lab, samples: Path, folder: Path) -> EditedSample:
        """Copy the first sample with a wrong answer to a new folder in this one."""
        labelled = samples_in(samples / lab.name, lab.source_name)
        wrong = next(sample for sample in labelled if sample.parent.name == Verdict.WRONG_ANSWER)
        file = folder / lab.name / lab.source_name
        file.parent.mkdir()
        cases = select_cases(lab, seed=lab.rubric.seed).cases
        return cls(lab=lab, cases=cases, file=file, content=program_of(wrong, lab.source_name))

    def edit(self) -> None:
        """Save a new content, grade it as far as the first result needs it, and make its page."""
        comment = "\n/* {} */\n" if self.lab.runtime.language == "c" else "\n# {}\n"
        self.file.write_bytes(self.content + comment.format(next(self.numbers)).encode())
        started = time.monotonic()
        page = self._first_page()
        self.seconds.append(time.monotonic() - started)
        assert "Start here" in page, page

    def _first_page(self) -> Document:
        source = collect(self.file, self.lab.source_name, rule="")
        soon = pipeline.first_look(source, self.lab, self.cases, _WITHOUT_TOOL, budget=Budget())
        if soon is not None:
            return first_look(soon, View(), ["random traces"])
        return FORMATS["text"](pipeline.grade(self.file, self.lab, self.cases, _WITHOUT_TOOL, source=source), View())
