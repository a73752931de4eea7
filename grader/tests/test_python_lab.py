"""A lab with Python submissions is an engine, one table and data: the shelf goes through everything that there is."""

from __future__ import annotations

import csv
import io
import json
import subprocess
import sys
from pathlib import Path

import pytest

from grader.assignment.case_files import select_cases
from grader.cli import install
from grader.core.rubric import Facet
from grader.core.verdict import NOT_IMPORTED, Verdict
from grader.labs.plain_lab import picture
from grader.report import FORMATS
from grader.report.document import View
from grader.runtime.python.process import ending
from grader.system.budget import TimeLimits
from grader.tests.support.command import grade
from grader.tests.support.toy.lab import FACETS
from grader.tests.support.toy_lab import RIGHT, WRONG, edited, graded, lab, toy_in_process


def test_a_right_shelf_has_all_points(tmp_path: Path) -> None:
    """In cases and random traces."""
    record = graded(tmp_path, RIGHT)

    assert (record.verdict, record.score, record.findings) == (Verdict.ACCEPTED, 100, ())
    assert record.failed_stages == ()


def test_a_random_trace_that_fails_is_shown_like_a_case(tmp_path: Path) -> None:
    """It is cut after the operation that goes wrong, and the seed is named."""
    forgets = edited(('raise ValueError("a box has no user")', "return"))
    record = graded(tmp_path, forgets)
    outcome = next(one for one in record.outcomes if one.case == "random/many")

    assert not outcome.passed
    assert "(seed " in outcome.title
    assert record.bad_operation(outcome) == len(outcome.steps)
    assert outcome.steps[-1].call.startswith("give ")


@pytest.mark.parametrize(
    ("looked_at", "marked"),
    [
        ("[sum(range(n)) for n in range(300)]", "while True:"),
        ("all(n == 0 for n in iter(int, 1))", "return all(n == 0 for n in iter(int, 1))"),
    ],
)
def test_a_call_that_hangs_is_marked_at_its_loop(tmp_path: Path, looked_at: str, marked: str) -> None:
    """Not in what the loop calls, where the time goes."""
    helper = f"    def look(self, word):\n        return {looked_at}\n"
    source = edited(("return self.names.get(word)", f"while True:\n            if self.look(word): pass\n\n{helper}"))
    record = graded(tmp_path, source)
    finding = next(one for one in record.findings if one.case == "share/names_a_box")

    assert finding.kind == "hang"
    assert source.splitlines()[finding.source[0].line - 1].strip() == marked


@pytest.mark.parametrize(
    ("source", "message", "line"),
    [
        ("class Shelf:\n    def __init__(self:\n", "never closed", 2),
        ("x = = 1\n", "invalid syntax for Python 3.", 1),
        ("x = 1\nimport numpy\n", "numpy is not among the modules that may be imported", 2),
        ("class Shelve:\n    pass\n", "shelf.py defines no Shelf", 0),
        ("class Shelf:\n    pass\n\nprint(unknown)\n", "shelf.py cannot be imported: NameError", 4),
        ("class Shelf:\n    pass\n\nwhile True:\n    pass\n", "importing shelf.py takes more than two seconds", 4),
        ("(" * 500_000, "too many nested parentheses", 1),
        ("x = 1\ny = '\0'\n", "there is a null byte", 2),
        ("from shelf import Shelf\n", "cannot import name 'Shelf'", 1),
    ],
)
def test_what_is_wrong_with_the_file_is_one_finding(tmp_path: Path, source: str, message: str, line: int) -> None:
    """With its line, as a compiler tells it; no case is played."""
    record = graded(tmp_path, source)

    assert (record.verdict, record.score, record.outcomes) == (Verdict.COMPILE_ERROR, 0, ())
    (finding,) = record.findings
    assert message in finding.message
    assert [place.line for place in finding.source] == ([line] if line else [])
    assert (finding.rule, finding.kind) == ("interface", NOT_IMPORTED)
    text = " ".join(str(FORMATS["text"](record, View())).split())
    assert "cannot be imported, 0 of 100 points" in text
    assert "compile" not in text.replace("cannot be compiled", "")


def test_a_column_that_nobody_knows_is_not_told(tmp_path: Path) -> None:
    """Python's own is -1."""
    (finding,) = graded(tmp_path, "# coding: utf8mb4\n" + RIGHT).findings

    assert finding.message == "unknown encoding: utf8mb4"
    assert [(place.line, place.column) for place in finding.source] == [(1, 0)]


def test_a_module_may_import_itself(tmp_path: Path) -> None:
    """As Python allows it: under the name by which it is imported."""
    record = graded(tmp_path, f"import shelf\n{RIGHT}\nfrom shelf import *\nassert shelf.Shelf is Shelf\n")

    assert (record.verdict, record.findings) == (Verdict.ACCEPTED, ())


def test_the_standard_library_may_be_imported(tmp_path: Path) -> None:
    """Also what is refused when it is used."""
    imports = "import os, sys, subprocess, socket, threading, random, json, logging, typing, collections.abc\n"
    record = graded(tmp_path, imports + RIGHT.replace('"""A right shelf."""', ""))

    assert (record.verdict, record.findings) == (Verdict.ACCEPTED, ())


def test_a_class_is_graded_stored_shown_and_graded_again(tmp_path: Path) -> None:
    """The lab follows from the file's name."""
    for name, source in {"ada": RIGHT, "bob": WRONG}.items():
        (tmp_path / "in" / name).mkdir(parents=True)
        (tmp_path / "in" / name / "shelf.py").write_text(source, encoding="utf-8")
    with toy_in_process():
        first = grade("batch", "in", "--jobs", "1", cwd=tmp_path)
        again = grade("batch", "in", "--jobs", "1", cwd=tmp_path)
        points_of = {
            row["submission"]: row["score"] for row in csv.DictReader(io.StringIO(grade("export", cwd=tmp_path).out))
        }
        shown = grade("show", "bob", cwd=tmp_path)
        regraded = grade("regrade", "--jobs", "1", cwd=tmp_path)

    assert (first.code, again.code) == (1, 1), first.err
    assert "2 of them graded already" in again.err
    assert points_of["ada"] == "100"
    assert int(points_of["bob"]) < 100
    assert "boxes go to the end" in " ".join(shown.out.split())
    assert regraded.code == 1


def test_a_program_that_does_nothing_earns_nothing(tmp_path: Path) -> None:
    """Not by random traces either, which go wrong elsewhere before they come to their rule."""
    nothing = "\n".join(f"    def {name}(self, *_): pass" for name in ("take", "give", "label", "find", "usage"))
    begin = RIGHT[: RIGHT.index("    def take(")]

    assert graded(tmp_path, begin + nothing + "\n").score == 0


def test_a_module_that_is_slow_to_import_loses_nothing(tmp_path: Path) -> None:
    """As of a student who left his own tests in it; the random traces share its execution then."""
    record = graded(tmp_path, RIGHT + "\n\nfor number in range(300_000):\n    pass\n")

    assert (record.verdict, record.score, record.findings) == (Verdict.ACCEPTED, 100, ())


_SLOW = edited(("taken = [", "sum(range(100_000))\n        taken = ["))
"""A right shelf whose traces take seconds."""


def test_playing_has_time_of_its_own(tmp_path: Path) -> None:
    """The budget of everything else does not pay for thousands of traces; on a busy machine it was used up."""
    record = graded(tmp_path, _SLOW, TimeLimits(submission=1.0))

    assert record.cpu_seconds["play"] > 1.0
    assert (record.verdict, record.score, record.findings) == (Verdict.ACCEPTED, 100, ())


def test_imports_that_use_up_all_time_are_told_so() -> None:
    """A case for which no time is left says what to do about it."""
    end = ending("take", "shelf.py", {"E": {"no_time": True}}, slow_import=True)

    assert "importing shelf.py takes too long" in end.sentence
    assert 'if __name__ == "__main__"' in end.sentence


@pytest.mark.parametrize("command", ["run", "repro", "batch"])
def test_options_of_another_language_are_refused_by_name(tmp_path: Path, command: str) -> None:
    """A lab in Python has no checker of memory."""
    (tmp_path / "in" / "ada").mkdir(parents=True)
    (tmp_path / "in" / "ada" / "shelf.py").write_text(RIGHT, encoding="utf-8")
    path = "in" if command == "batch" else "in/ada"
    with toy_in_process():
        done = grade(command, path, "--without-memory-checker", cwd=tmp_path)

    assert done.code == 2
    assert "omit --without-memory-checker" in done.err


def test_the_lab_follows_from_the_file(tmp_path: Path) -> None:
    """Files of two labs, or of none, are a usage error that names what was looked for."""
    (tmp_path / "shelf.py").write_text(RIGHT, encoding="utf-8")
    with toy_in_process():
        alone = grade("run", ".", "--format", "json", cwd=tmp_path)
        (tmp_path / "llm_memory.c").touch()
        two = grade("run", ".", cwd=tmp_path)
        (tmp_path / "empty").mkdir()
        none = grade("run", "empty", cwd=tmp_path)
        asked = grade("run", "empty", "--lab", "toy", "--format", "json", cwd=tmp_path)

    assert (alone.code, json.loads(alone.out)["lab"]) == (0, "toy")
    assert (two.code, two.out) == (2, "")
    assert "paged_kv or of toy; write --lab" in two.err
    assert (none.code, none.out) == (2, "")
    assert "looked for llm_memory.c (paged_kv), " in none.err
    assert ", shelf.py (toy)" in none.err
    assert (asked.code, json.loads(asked.out)["score"]) == (1, 0)


def test_a_failing_case_is_a_test_file(tmp_path: Path) -> None:
    """It fails by itself on the submission, and passes on a right one."""
    (tmp_path / "shelf.py").write_text(WRONG, encoding="utf-8")
    with toy_in_process():
        done = grade("repro", "shelf.py", "--output", "repro.py", cwd=tmp_path)
    wrong = run_pytest(tmp_path)
    (tmp_path / "shelf.py").write_text(RIGHT, encoding="utf-8")
    right = run_pytest(tmp_path)

    assert done.code == 0, done.err
    assert "python3 -m pytest repro.py" in done.err
    assert (wrong, right) == (1, 0)


def run_pytest(folder: Path) -> int:
    """The exit code of the reproduction in a folder."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "repro.py"]
    return subprocess.run(command, cwd=folder, capture_output=True, check=False, timeout=60).returncode


def test_states_are_explained_and_the_machine_is_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    """`explain` draws what the table reads, `doctor` tries a grading of each lab."""
    monkeypatch.setattr(install, "present", lambda: ["toy"])
    with toy_in_process():
        explained = grade("explain", "--lab", "toy", "share/names_a_box")
        traces = grade("explain", "--lab", "toy", "random/many")
        looked = grade("doctor")

    assert "free boxes, first to last   0 1 2" in explained.out
    assert "changed: word red" in explained.out
    assert "200 random traces of 40 operations" in traces.out
    assert "a whole grading of toy: works" in looked.out


def test_what_only_random_traces_show_is_shown() -> None:
    """No facet of the table leads nowhere then; without any case all of them do."""
    cases = [case for case in select_cases(lab(), seed=1).cases if case.generated is not None]

    assert list(lab().grammar.check(cases)) == []
    assert len(list(lab().grammar.check([]))) == len(FACETS)


def test_a_value_that_is_not_where_it_belongs_is_drawn() -> None:
    """A program may leave a number where a list belongs."""
    facets = (Facet("status", per="request", path="state.req.*.0"), Facet("size", path="state.sizes.1"))
    parts = list(picture(facets, {"state": {"req": {"a": 5}, "sizes": 7}}))

    assert [cell for part in parts for line in part.lines.values() for cell in line] == ["null", "null"]
