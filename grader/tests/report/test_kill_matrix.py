"""The page of which program fails which case: rows, columns, sums and what is listed below."""

from __future__ import annotations

import re
from functools import cache

from grader.assignment.case_files import select_cases
from grader.core.case import Case
from grader.labs import open_lab
from grader.report.document import Document
from grader.report.kill_matrix import MatrixProgram, kill_matrix


@cache
def some_cases() -> tuple[Case, ...]:
    """Two cases of each of two rules, and those of no other."""
    cases = select_cases(open_lab("paged_kv"), seed=1).cases
    return tuple(case for rule in ("cow", "list") for case in [case for case in cases if case.rule == rule][:2])


def programs() -> list[MatrixProgram]:
    """Samples of two rules and of a verdict, and mutants of a program: caught, missed and the same."""
    cow, other_cow, listing, _ = (case.name for case in some_cases())
    return [
        MatrixProgram(name="wrong_answer/lists", group="list", mutant=False, fails=frozenset({listing})),
        MatrixProgram(name="wrong_answer/copies", group="cow", mutant=False, fails=frozenset({cow, other_cow})),
        MatrixProgram(name="time_limit_exceeded/waits", group="time_limit_exceeded", mutant=False, fails=frozenset()),
        MatrixProgram(name="plain:3:4 `<` -> `>`", group="plain", mutant=True, fails=frozenset({cow, listing})),
        MatrixProgram(name="plain:5:6 `1` -> `2`", group="plain", mutant=True, fails=frozenset(), trace=("a", "b 1")),
        MatrixProgram(name="plain:7:8 `0` -> `1`", group="plain", mutant=True, fails=frozenset()),
    ]


def page() -> Document:
    """The matrix of these programs."""
    _, other_cow, listing, _ = (case.name for case in some_cases())
    return kill_matrix("paged_kv", some_cases(), programs(), sole={"list": listing}, redundant=[other_cow])


def test_a_row_has_a_cell_for_each_case_that_fails() -> None:
    """Neighbours are one line; a line begins where the pen is."""
    paths = [re.sub(r"^M\S+ \S+?m", "m", path) for path in re.findall(r'<path class="cells" d="([^"]*)"', page())]
    width, gap = 9, 22 - 18

    assert paths == [f"m0 0h{2 * width}", f"m{2 * width + gap} 0h{width}", f"m0 0h{width}m{width + gap} 0h{width}"]
