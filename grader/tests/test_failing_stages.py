"""A stage that cannot change points may fail: the grading goes on, with the same result, and the record says so."""

from __future__ import annotations

import random
import struct
from pathlib import Path

import pytest

from grader import pipeline
from grader.cli.app import app
from grader.core.errors import ExitCode, OptionalStage, OptionalStages
from grader.core.picture import Drawing
from grader.core.record import Record, from_json, to_json
from grader.core.verdict import Verdict
from grader.labs.paged_kv.lab import lab
from grader.runtime.native import lines
from grader.runtime.protocol import GradingOptions
from grader.tests.support.command import FEW, SAMPLES
from grader.tests.support.failing_stages import Failing
from grader.tests.support.programs import changed, first_case, made, right, second_case

_PRINTS = ("#include <string.h>\n", "#include <string.h>\n#include <stdio.h>\n")
_COUNT = ("        engine->free_local_blocks--;", '        puts("taken"), (void)engine;')
_SOURCES = {
    Verdict.ACCEPTED: right(),
    Verdict.WRONG_ANSWER: changed(_COUNT, _PRINTS),
    Verdict.MEMORY_LEAK: (SAMPLES / "memory_leak" / "free_keeps_l2_tables" / "llm_memory.c").read_text("utf-8"),
    Verdict.COMPILE_ERROR: f"{right()}static int unused;\n",
}
"""Among them a wrong value and prints, lost memory, and a warning."""


def graded(folder: Path, source: str, *, valgrind: bool = False) -> Record:
    """The record, with advice and pictures."""
    path = folder / lab().source_name
    path.write_text(source, encoding="utf-8")
    cases = (first_case(), second_case(), made("freed", "create_sequence 1 5 -> seq; free_sequence 1 -> 0"))
    options = GradingOptions(memory_checker=valgrind, advise=True)
    return pipeline.grade(path, lab(), cases, options, draw=Drawing.ALL)


def same(record: Record, undisturbed: Record) -> bool:
    """Whether both have the same points, by rule and in all, and the same verdict."""
    results = [(one.verdict, one.score, one.rules, len(one.outcomes)) for one in (record, undisturbed)]
    return results[0] == results[1]


@pytest.mark.parametrize("verdict", _SOURCES)
def test_points_do_not_depend_on_stages_that_may_fail(tmp_path: Path, verdict: Verdict) -> None:
    """They fail at random, or all of them; trials/failing_stages.py does so with 300 gradings of labelled samples."""
    undisturbed = graded(tmp_path, _SOURCES[verdict])
    failing = [Failing(random.Random(seed), share) for seed, share in enumerate((0.02, 0.2, 0.2, 1.0))]
    for one in failing:
        with one.active():
            record = graded(tmp_path, _SOURCES[verdict])

        assert same(record, undisturbed)
        assert bool(record.failed_stages) is bool(one.raised)
        assert from_json(to_json(record)) == record

    assert undisturbed.verdict is verdict
    assert undisturbed.failed_stages == ()
    assert sum(one.raised for one in failing) > len(failing)


@pytest.mark.parametrize("share", [0.2, 1.0])
def test_points_do_not_depend_on_lines_that_valgrind_is_asked_for(tmp_path: Path, share: float) -> None:
    """The names of functions in its report, and its second process."""
    source = (SAMPLES / "wrong_answer" / "no_copy_on_write" / "llm_memory.c").read_text("utf-8")
    undisturbed = graded(tmp_path, source, valgrind=True)
    with Failing(random.Random(1), share).active():
        record = graded(tmp_path, source, valgrind=True)

    assert same(record, undisturbed)
    assert undisturbed.findings
    assert OptionalStage.LINES in {failure.stage for failure in record.failed_stages}


def test_a_failure_is_noted_with_the_line_that_raised_it() -> None:
    """Class and message, and no folder of this machine."""
    optional = OptionalStages()

    def broken() -> int:
        return int(struct.unpack("<i", b"")[0])

    assert optional.run(OptionalStage.LINES, lambda: 7, otherwise=None) == 7
    assert optional.run(OptionalStage.LINES, broken, otherwise=None) is None
    (failure,) = optional.failures
    assert failure.stage is OptionalStage.LINES
    assert failure.error.startswith("struct.error: unpack requires a buffer of 4 bytes (test_failing_stages.py:")


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit])
def test_an_interrupt_is_no_failure_of_a_stage(error: type[BaseException]) -> None:
    """Ctrl-C ends the grading wherever it is."""
    optional = OptionalStages()

    def interrupted() -> None:
        raise error

    with pytest.raises(error):
        optional.run(OptionalStage.PICTURES, interrupted, otherwise=None)
    assert optional.failures == []


def test_the_exit_code_and_the_points_are_those_of_the_submission(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """An exception among the lines ended `grade run` with exit code 3 and no report."""

    def broken(*_: object, **__: object) -> None:
        raise IndexError("no such line")

    monkeypatch.setattr(lines, "_origin", broken)
    monkeypatch.setenv("COLUMNS", "200")
    words = ["run", str(SAMPLES / "wrong_answer" / "no_copy_on_write"), *FEW, "--without-memory-checker"]
    codes = app(words), app([*words, "--instructor"])
    said = capsys.readouterr()
    student, instructor = said.out.split("no_copy_on_write: wrong answer, ")[1:]

    assert codes == (ExitCode.NOT_ACCEPTED, ExitCode.NOT_ACCEPTED)
    assert "a part of the grader failed" in student
    assert "IndexError" not in said.err + student
    assert "Lines could not be found: IndexError: no such line" in instructor
