"""In proportion: what a right program is worth without one of its calls, beside what a fair teacher gives it."""

from __future__ import annotations

import pytest

from grader.assignment.case_files import select_cases
from grader.classroom.calibration import knocked_out, scores
from grader.labs import LABS, open_lab
from grader.search.mutants import knock_outs

_FURTHEST = {"scheduler": 5, "hybrid": 5, "block_pool": 9, "offload": 9, "paged_kv": 20}
"""The mean distance from the teacher. Where a call is a helper of most others, a teacher sees more than can be run; the
one of paged_kv did not know that calls are judged alone without `llm_init`."""


def test_a_body_comes_from_the_other_program() -> None:
    """Of functions and methods that both have; a constructor stays."""
    right = b"class A:\n    def __init__(self):\n        self.n = 1\n    def f(self):\n        return self.n\n"
    empty = b"class A:\n    def __init__(self): pass\n    def f(self): return 0\n    def h(self): pass\n"

    assert dict(knock_outs(right, empty, "python")) == {"A.f": right.replace(b"return self.n", b"return 0")}


def test_a_body_in_c_comes_from_the_other_program() -> None:
    """With its braces."""
    right, empty = b"int *f(int n) {\n    return g(n);\n}\n", b"int *f(int n) { (void)n; return 0; }\n"

    assert dict(knock_outs(right, empty, "c")) == {"f": b"int *f(int n) { (void)n; return 0; }\n"}


@pytest.mark.parametrize("name", LABS)
def test_a_lab_has_a_table_of_all_its_calls(name: str) -> None:
    """Of all that its starter has to be filled in; each is a program of its own."""
    lab = open_lab(name)
    programs = {program.call: program.source.content for program in knocked_out(lab)}
    starter = lab.starter[lab.source_name].read_bytes()

    assert programs.keys() == dict(knock_outs(starter, starter, lab.runtime.language)).keys()
    assert len({*programs.values()}) == len(programs)


@pytest.mark.thorough
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("name", LABS)
def test_a_missing_call_costs_what_it_is_worth(name: str) -> None:
    """All losses together are worth the homework."""
    lab = open_lab(name)
    programs = knocked_out(lab)
    points = list(scores(lab, select_cases(lab, seed=lab.rubric.seed).cases, programs, jobs=2))
    distances = [abs(program.teacher - score) for program, score in zip(programs, points, strict=True)]
    table = "\n".join(f"{each.call}: {score}, {each.teacher}" for each, score in zip(programs, points, strict=True))

    assert sum(distances) / len(distances) <= _FURTHEST[name], table
    assert sum(100 - score for score in points) >= 90, table
