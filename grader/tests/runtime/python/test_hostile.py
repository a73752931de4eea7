"""The hostile set of the Python runtime: programs that forge, read, leave, end, exhaust, and lie.

Each program of hostile/ follows a shelf that is honest and wrong in one call only. None may get
more than that shelf; support/hostile_python.py says what else must hold. Those that use up the time that they may use
are graded by `trials.hostile_python_levels` only, which also tries the other levels of protection.
"""

from __future__ import annotations

import ast
import os
import re
from pathlib import Path

import pytest

from grader.assignment.case_files import select_cases
from grader.core.errors import OptionalStages
from grader.core.verdict import Verdict
from grader.pipeline import grade
from grader.runtime.python import process
from grader.runtime.python.process import PythonProgram
from grader.system import sandbox
from grader.tests.support.chosen import few
from grader.tests.support.hostile_python import HONEST, SLOW, TEXTS, graded_on, honest_with, programs
from grader.tests.support.machines import MACHINES
from grader.tests.support.toy.lab import lab

_QUICK = [name for name in programs() if name not in SLOW]
_SHARDS = [_QUICK[place::3] for place in range(3)]
_OUTSIDE = [
    name
    for name in _QUICK
    if re.search(
        "_os_|door|execut|files|fork|freed|hook|limits|modules|oracle|parents|process|refus|socket|thread", name
    )
]
"""Those that try to reach what is around them."""
_WEAKEST = next(machine for machine in MACHINES if machine.name == "limits-as-user")


def wrong(names: list[str], graded: list[dict[str, object]]) -> list[str]:
    """What does not hold of these programs, or of the honest part behind them."""
    problems = [f"{program['name']}: {program['problems']}" for program in graded if program["problems"]]
    if [program["name"] for program in graded] != [*names, "honest"]:
        problems.append(f"graded were {[program['name'] for program in graded]}")
    if graded[-1]["score"] != HONEST:
        problems.append(f"the honest part behind them got {graded[-1]['score']} points")
    return problems


def test_there_are_many_programs_and_each_says_what_it_tries() -> None:
    """At least forty, besides whole files; slow ones exist."""
    texts = {name: make() for name, make in programs().items() if name not in TEXTS}
    attacks = {name: text.rpartition(b"return -1.0\n\n\n")[2] for name, text in texts.items()}

    assert len(texts) >= 40
    assert [name for name, text in attacks.items() if not ast.get_docstring(ast.parse(text))] == []
    assert programs().keys() >= SLOW


def test_what_programs_may_use_of_the_library(tmp_path: Path) -> None:
    """Nothing that stays inside an interpreter is refused."""
    (tmp_path / "shelf.py").write_bytes(honest_with("uses_the_library"))
    record = grade(tmp_path, lab(), select_cases(lab(), seed=1).cases)

    assert (record.verdict, [finding.message for finding in record.findings]) == (Verdict.ACCEPTED, [])


def test_messages_during_an_import_earn_no_time_for_later_imports() -> None:
    """An import may take two seconds; messages let it go on for longer."""
    source = programs()["is_slow_in_its_check_only"]()
    with sandbox.workspace(tools=(process.interpreter(),)) as work:
        program = lab().runtime.build(work, source, beside={}, optional=OptionalStages()).program

    assert isinstance(program, PythonProgram)
    assert 1.5 < program.import_seconds <= 2.0


@pytest.mark.parametrize("names", few(_SHARDS, 2), ids=range(len(_SHARDS)))
def test_no_program_gets_more_than_its_honest_part(names: list[str]) -> None:
    """With the protection of this machine."""
    assert wrong(names, graded_on(None, names)) == []


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may change its user")
def test_no_program_reaches_anything_where_least_protects() -> None:
    """As an ordinary user whose programs can be reached by the submission's, without Landlock and seccomp."""
    assert wrong(_OUTSIDE, graded_on(_WEAKEST, _OUTSIDE)) == []
