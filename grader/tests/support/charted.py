"""Charts of a lab's written cases, and of what a program is said to have reported in them."""

from __future__ import annotations

from functools import cache

from grader.assignment import case_files
from grader.assignment.lab import Lab
from grader.core.case import Case
from grader.core.picture import ComparedChart
from grader.judge.compare import compare
from grader.labs import open_lab
from grader.report.page import Page
from grader.report.trace import show_charts
from grader.result.draw_states import charts
from grader.runtime.protocol import Played
from grader.tests.support.programs import told


@cache
def cases(name: str) -> list[Case]:
    """The written cases of a lab."""
    lab = open_lab(name)
    return [case for case in case_files.load_folder(lab.cases, lab.grammar, seed=1) if case.generated is None]


def reported(lab: Lab, case: Case, records: list[bytes]) -> list[ComparedChart]:
    """The charts of a program that reports these records."""
    comparison = compare(Played(case, steps=told(records)), lab.model)
    return list(charts(comparison, len(case.trace.operations), lab))


def text_of(shown: list[ComparedChart]) -> str:
    """What a terminal shows of charts."""
    page = Page(100, colour=False)
    show_charts(page, shown)
    return str(page.text())
