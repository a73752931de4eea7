"""Mutants differ from their program in one place, and the cases of a lab are measured by them."""

from __future__ import annotations

import csv
from dataclasses import replace
from pathlib import Path

import pytest

from grader import pipeline
from grader.assignment.case_files import select_cases
from grader.classroom.calibration import Survivor, TriedProgram, calibration, mutants_of, samples_of
from grader.core.errors import ExitCode
from grader.labs import open_lab
from grader.search.mutants import mutants, unwritten
from grader.tests.support.command import ROOT, grade

_PYTHON = b'''def f(a, b):
    """a < b."""
    if a < b and b is not None:
        g(a, b)
    print("a")
    return 1
'''


def changes(content: bytes, language: str) -> list[tuple[int, str]]:
    """Line and change of each mutant."""
    return [(mutant.line, mutant.change) for mutant in mutants(content, language)]


def test_each_kind_of_change_in_python() -> None:
    """Nothing in a docstring."""
    assert changes(_PYTHON, "python") == [
        (3, "`a < b and b is not None` -> `not (a < b and b is not None)`"),
        (3, "`and` -> `or`"),
        (3, "`<` -> `<=`"),
        (3, "`<` -> `>`"),
        (3, "`is not` -> `is`"),
        (4, "`g(a, b)` -> `pass`"),
        (4, "`a, b` -> `b, a`"),
        (5, '`print("a")` -> `pass`'),
        (6, "`1` -> `2`"),
        (6, "`1` -> `0`"),
    ]


_STARTER = b"""class Pool:
    def __init__(self): pass
    def take(self, block): ...
    def give(self, block): ...
    def size(self): ...
    def none(self): ...
    def fits(self, wanted, free): ...
def empty(): ...
"""
_BEGUN = b"""class Pool:
    def __init__(self): pass
    def take(self, block):
        "Take a block: self.free[block]."
        raise ValueError(f"no block {block}")
    def give(self, block): return self.blocks[block]
    def size(self): return self.free
    def none(self): return None
    def fits(self, wanted, free): return wanted <= free
    def helper(self): return None
class Other:
    def give(self, block): pass
def empty(): return 2 * 3
"""
_BEGUN_C = b"""int f(int *a) { (void)a; return a ? 0 : -1; }
int g(int *a) { return *a + 1; }
int h(void) { return f(0); }
int k(int *a) { return *a; }
"""


def test_functions_that_only_return_are_not_written_yet() -> None:
    """Those of the starter only, and no constructor."""
    assert [*unwritten(_BEGUN, _STARTER, "python")] == ["Pool.take", "Pool.none"]
    assert [*unwritten(_BEGUN_C, _BEGUN_C, "c")] == ["f"]


def test_mutants_are_drawn_evenly_and_repeatably() -> None:
    """The same seed draws the same ones."""
    lab = open_lab("paged_kv")
    rights = [sample for sample in samples_of(lab) if sample.right][:3]
    drawn, again, other = (mutants_of(lab, rights, 10, seed) for seed in (1, 1, 2))

    assert drawn == again
    assert drawn != other
    assert [sum(mutant.name.startswith(f"{Path(right.name).name}:") for mutant in drawn) for right in rights] == [
        4,
        3,
        3,
    ]


@pytest.mark.parametrize(
    ("lab_name", "pattern", "right", "wrong"),
    [
        ("scheduler", "memory/*", "peak_activation, other=0", "peak_activation, other=1"),
        ("scheduler", "memory/*", "override=None", "override"),
        ("hybrid", "waste/*", "num_encoder_tokens=0", "num_encoder_tokens=1"),
    ],
)
def test_a_wrong_default_is_caught(lab_name: str, pattern: str, right: str, wrong: str) -> None:
    """An argument that has the handout's default is left out."""
    lab = open_lab(lab_name)
    cases = select_cases(lab, seed=1, pattern=pattern).cases
    source = next(each.source for each in samples_of(lab) if each.right and right.encode() in each.source.content)
    changed = replace(source, content=source.content.replace(right.encode(), wrong.encode()))

    assert pipeline.failed_cases(source, lab, cases) == frozenset()
    assert pipeline.failed_cases(changed, lab, cases)


def test_what_cases_are_worth() -> None:
    """Rules with one guard, cases that are not needed, and the part that is killed."""
    lab = open_lab("paged_kv")
    cases = select_cases(lab, seed=1, pattern="fork/*").cases
    listing = [case for case in cases if case.rule == "list"][:2]
    first, second = (case.name for case in listing)
    source = samples_of(lab)[0].source
    programs = [TriedProgram(name=name, source=source, mutant_of="right") for name in "abcde"]
    failed = [frozenset({first}), frozenset({first, second}), None, frozenset[str](), frozenset[str]()]
    survivors = [Survivor(program=programs[3], trace=("llm_init 64",)), Survivor(program=programs[4])]
    labelled = Survivor(program=TriedProgram(name="f", source=source))
    result = calibration(programs, failed, survivors)
    with_sample = calibration(programs, failed, [*survivors, labelled])

    assert (result.unbuilt, len(result.killed), len(result.missed)) == (1, 2, 1)
    assert (result.share, with_sample.share) == (2 / 3, 2 / 4)
    assert labelled in with_sample.missed
    assert result.kills() == {first: 2, second: 1}
    assert result.redundant(listing) == [second]
    assert result.sole_guards(listing[:1]) == {"list": first}
    assert result.sole_guards(listing) == {}


@pytest.mark.thorough
def test_the_command(tmp_path: Path) -> None:
    """It says what is missing, and writes the matrix as a table."""
    matrix = tmp_path / "kills.csv"
    words = ("calibrate", "--lab", "hybrid", "--case", "waste/*", "--mutants", "2", "--seconds", "1", "--jobs", "2")
    shown = grade(*words, "--matrix", str(matrix))
    rows = list(csv.reader(matrix.read_text(encoding="utf-8").splitlines()))

    assert shown.code == ExitCode.NOT_ACCEPTED, shown.err  # the samples of other rules pass these cases
    assert "wrong programs fail a case" in shown.out
    assert "a labelled sample" in shown.out
    assert rows[0][0] == "program"
    assert all(name.startswith("waste/") for name in rows[0][1:])
    assert {value for row in rows[2:] for value in row[1:]} <= {"0", "1"}
    assert len(rows) > len(list((ROOT / "submissions" / "hybrid" / "wrong_answer").iterdir())) // 2
