"""The terminal report: read by a student at night, safe to show, equal for equal records."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from itertools import pairwise

import pytest

from grader import pipeline
from grader.assignment import case_files
from grader.core.picture import Drawing
from grader.core.record import Environment, Protection, Record
from grader.core.verdict import SourceLine, StepShown, Visibility
from grader.labs.paged_kv.lab import lab
from grader.report import text
from grader.report.escape import cells as cells_of
from grader.report.phrases import all_pass
from grader.report.start_here import excerpt
from grader.runtime.protocol import GradingOptions
from grader.tests.support.command import SAMPLES
from grader.tests.support.handmade import outcome, record_of, steps

CASES = (
    "init/pool_is_not_cleared",
    "init/pool_of_63_bytes",
    "create/one_record",
    "create/length_257",
    "create/first_hole_not_best_hole",
    "create/one_block_too_few",
    "append/first_append_after_fork_copies",
    "append/copy_takes_all_64_bytes",
    "append/new_page_takes_next_block",
    "append/worked_example_of_the_handout",
    "append/generations",
    "append/here_and_there",
    "fork/counts_two",
    "fork/child_at_the_tail",
    "fork/refused_for_its_id",
    "fork/gap_between_two_tables",
    "fork/mixed_holes",
    "fork/more_than_256_children",
    "free/gap_between_two_tables",
    "free/returns_0",
    "free/whole_pool_comes_back",
    "free/every_place",
    "destroy/one_live_sequence",
    "destroy/gaps_in_a_family",
    "engines/null_engine_free",
    "engines/different_pool_sizes",
)
"""A few cases of every rule, hidden ones too: a golden report need not change with each new case."""

GRADED = (
    "accepted/printf_debugging_many_headers",
    "compile_error/sign_compare",
    "memory_error/l2_tables_freed_twice",
    "memory_leak/free_keeps_l2_tables",
    "run_time_error/free_walk_follows_cleared_link",
    "wrong_answer/all_null",
    "wrong_answer/four_common_mistakes",
    "wrong_answer/fork_stops_at_empty_l1_slot",
    "wrong_answer/no_copy_on_write",
)


@cache
def graded(sample: str) -> Record:
    """A sample, graded on `CASES`; what differs from machine to machine is set to words."""
    homework = lab()
    cases = [
        case_files.load(homework.cases / f"{name}.toml", homework.grammar, seed=homework.rubric.seed) for name in CASES
    ]
    valgrind = sample.startswith(("memory", "accepted"))
    record = pipeline.grade(
        SAMPLES / sample,
        homework,
        cases,
        GradingOptions(memory_checker=valgrind),
        draw=Drawing.FIRST,
    )
    return replace(
        record,
        submission=replace(record.submission, name=f"submissions/paged_kv/{sample}"),
        environment=Environment(
            tools=tuple(replace(tool, version=f"{tool.name.lower()} (version)") for tool in record.environment.tools),
            command=record.environment.command,
            reproduce=record.environment.reproduce,
            grader="(version)",
        ),
        protection=Protection(level="(level)", active=("what was active",)),
    )


@pytest.mark.parametrize("sample", GRADED)
def test_golden_report(sample: str, golden: Callable[[str, str], None]) -> None:
    """Each kind of submission reads as its golden file."""
    golden(f"{sample.replace('/', '__')}.txt", text.render(graded(sample)))


def test_golden_report_of_everything(golden: Callable[[str, str], None]) -> None:
    """Every cause in full, all rules, and all about how it was graded."""
    name = "wrong_answer/four_common_mistakes"
    golden(f"{name.replace('/', '__')}__all.txt", text.render(graded(name), everything=True))


def test_golden_report_for_instructors(golden: Callable[[str, str], None]) -> None:
    """An instructor sees what hidden cases do."""
    name = "wrong_answer/four_common_mistakes"
    golden(f"{name.replace('/', '__')}__instructor.txt", text.render(graded(name), audience="instructor"))


@pytest.mark.parametrize("height", [24, 30, 50])
@pytest.mark.parametrize("sample", GRADED)
def test_the_page_fits_the_terminal(sample: str, height: int) -> None:
    """With its prompt. Score, place, hint and next step of the first cause are on it, whatever its height."""
    record = graded(sample)
    rows = text.render(record, width=80, height=height).splitlines()
    page = " ".join(" ".join(rows).split())
    cause = record.first_cause

    assert len(rows) < height
    assert f"{record.score} of 100 points" in rows[-1]
    if cause is not None and cause.lines:
        assert str(cause.lines[0]) in rows[-1]
    assert cause is None or cause.hint in page
    assert cause is None or not cause.cases or f"{cause.cases[0]} > repro.c" in page


@pytest.mark.parametrize("sample", GRADED)
def test_a_students_report_does_not_depend_on_what_hidden_cases_do(sample: str) -> None:
    """Other calls, values, names and lines in the hidden cases leave every letter of the report as it is.

    What they test, by the handout's sentences, is told where no public case leads to it.
    """
    record = graded(sample)
    hidden = {one.case for one in record.outcomes if one.visibility is Visibility.HIDDEN}
    findings = tuple(
        replace(one, message="x", field="y", expected="z", actual="x", operation=1, source=(), case="x/x")
        if one.case in hidden
        else one
        for one in record.findings
    )
    outcomes = tuple(
        replace(one, case=f"x/{place}", steps=()) if one.case in hidden else one
        for place, one in enumerate(record.outcomes)
    )
    names = {one.case: other.case for one, other in zip(record.outcomes, outcomes, strict=True)}
    causes = [replace(one, cases=tuple(names[case] for case in one.cases)) for one in record.causes]
    other = replace(record, findings=findings, outcomes=outcomes, causes=tuple(causes))

    assert text.render(record) == text.render(other)
    assert text.render(record, everything=True) == text.render(other, everything=True)


def test_a_slow_machine_is_named() -> None:
    """Below the report, by how much limits were longer; not of a machine that is as fast as usual."""
    record = graded("wrong_answer/four_common_mistakes")
    slow = replace(record, environment=replace(record.environment, pace=21.4))
    for everything in (False, True):
        said = " ".join(text.render(slow, everything=everything).split())

        assert "this machine is 21 times slower than usual, so time limits are longer" in said
        assert "slower than usual" not in text.render(record, everything=everything)


def test_a_rule_that_no_chosen_case_looks_at_has_no_full_marks() -> None:
    """With `--case`."""
    record = graded("accepted/few_large_functions")
    first, *others = record.rules
    chosen = replace(record, rules=(replace(first, points=0, max_points=0, cases=0, passed=0), *others))

    count = len(record.rules)
    assert all_pass(record).endswith(f", and all {count} rules have full marks.")
    assert all_pass(chosen).endswith(f"; they look at {count - 1} of {count} rules, and those have full marks.")


@pytest.mark.parametrize("width", [40, 80, 100])
def test_calls_and_replies_stay_in_their_columns(width: int) -> None:
    """However long they are, and however wide their characters; a middle is left out, but not with --all."""
    values = {
        "call": f"admit r1 [{','.join(map(str, range(300, 330)))}] 2",
        "expected": str([[number, "ab"] for number in range(40)]).replace(" ", ""),
        "actual": str(["块" * 9] * 12).replace(" ", "") + "x" * 70,
    }
    case = outcome("a/b", steps=(*steps(2), StepShown(number=3, line=9, **values, comment="beside")))
    for everything in (False, True):
        page = text.render(record_of(case), width=width, everything=everything).splitlines()
        head = next(line for line in page if line.split() == ["expected", "yours"])
        start = next(place for place, line in enumerate(page) if line.startswith("  >>> 3  "))
        end = next(place for place, line in enumerate(page) if line.endswith("# beside"))
        columns = [len("  >>> 3  "), head.index("expected"), head.index("yours"), width]
        rows = [[_columns(line, *ends) for ends in pairwise(columns)] for line in page[start:end]]
        cells = ["".join(column) for column in zip(*rows, strict=True)]

        assert max(map(cells_of, page)) <= width
        assert all(
            cell.replace(" ", "")[:12] == value.replace(" ", "")[:12]
            for cell, value in zip(cells, values.values(), strict=True)
        )
        if everything:
            assert [cell.replace(" ", "") for cell in cells] == [value.replace(" ", "") for value in values.values()]
        else:
            assert len(rows) <= 6
            assert [cell.replace(" ", "")[-1] for cell in cells] == ["2", "]", "x"]


def _columns(line: str, start: int, end: int) -> str:
    """Return what a line of a terminal shows from one column to another."""
    wide = "".join(character + "\0" * (cells_of(character) - 1) for character in line)
    return wide[start:end].replace("\0", "")


def test_a_space_that_is_none_is_shown() -> None:
    """gcc calls it a stray character, and an editor shows a space; the column is that of the shown line."""
    record = graded("accepted/few_large_functions")
    source = ("int x;", "return\u00a0x;")
    shown = excerpt(
        replace(record, submission=replace(record.submission, source=source)),
        SourceLine(file=record.submission.source_file, line=2, column=8),
    )

    assert shown is not None
    assert (shown.lines[2], shown.column) == (r"return\xa0x;", 11)
