"""A failing case as a C program: silent beside every accepted sample, and it fails where the sample fails.

Each program is compiled once. A sample is a shared library here, built with the handout's flags, so that one program
runs beside all of them; that the handout's own link command works is tested beside those that fail.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from itertools import islice
from pathlib import Path

import pytest

from grader.labs import open_lab
from grader.labs.c_program import c_comment, c_string
from grader.tests.support.chosen import few
from grader.tests.support.command import SAMPLES
from grader.tests.support.graded import graded
from grader.tests.support.reproduced import (
    ACCEPTED,
    SHARERS,
    WRONG,
    Bench,
    cases,
    content_under_valgrind,
    fails_by_itself,
    one_for_each_mistake,
    program_text,
    said,
    shown_programs,
    silent,
)

_TASKS = sorted(folder.name for folder in open_lab("paged_kv").cases.iterdir() if folder.is_dir())
_PARTS = 8


@pytest.fixture(scope="session")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Bench:
    """One folder for all tests of this process: samples are compiled once."""
    return Bench(tmp_path_factory.mktemp("repro"))


@pytest.mark.parametrize("task", _TASKS)
def test_programs_are_silent_beside_accepted_samples(bench: Bench, task: str) -> None:
    """The first case of each rule, up to its end."""
    firsts = {case.rule: case for name, case in reversed(cases().items()) if name.startswith(f"{task}/")}

    assert firsts
    for number, case in enumerate(firsts.values()):
        silent(bench, case, ACCEPTED[number % SHARERS :: SHARERS])


@pytest.mark.parametrize("source", ACCEPTED[::4], ids=lambda source: source.parent.name)
def test_the_handouts_command_and_valgrind_are_content(bench: Bench, source: Path) -> None:
    """With a case that is cut short."""
    content_under_valgrind(bench, source)


@pytest.mark.parametrize("name", ["free/whole_pool_comes_back", "fork/table_in_slot_9", "append/records_15_16_17"])
def test_breakpoints_lead_into_the_last_call(name: str) -> None:
    """Those before it of the same function are passed over."""
    case = cases()[name]
    number = max(place for place, one in enumerate(case.trace.operations) if not one.implicit)
    operation = case.trace.operations[number]
    text = program_text(case, number)
    before = sum(one.name == operation.name for one in case.trace.operations[:number])

    assert f'"break {operation.name}",' in text
    assert (f'"ignore 1 {before}"' in text) == (before > 0)


@pytest.mark.parametrize("operation", open_lab("paged_kv").grammar.operations)
def test_every_cut_compiles(bench: Bench, operation: str) -> None:
    """A program may end with any operation, a poke among them: tried with the first three cases that have it."""
    cuts = (
        (case, next(place for place, one in enumerate(case.trace.operations) if one.name == operation))
        for case in cases().values()
        if any(step.name == operation for step in case.trace.operations)
    )
    for case, place in islice(cuts, 3):
        assert bench.beside(program_text(case, place), ACCEPTED[0]).exit_code == 0, (case.name, place)


@pytest.mark.timeout(1800)  # the first of these tests grades whatever nobody has graded yet
@pytest.mark.parametrize("part", few(range(_PARTS)))
def test_a_program_for_each_mistake_fails_by_itself_where_its_sample_fails(
    bench: Bench, part: int, samples_of: Callable[[str], list[Path]]
) -> None:
    """With exit code 1 and a sentence that names the operation; and accepted samples do not fail it."""
    programs = one_for_each_mistake(samples_of("paged_kv"))

    assert programs
    for sample, program in programs[part::_PARTS]:
        fails_by_itself(bench, sample, [program])


@pytest.mark.thorough
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("part", range(_PARTS))
def test_each_case_is_silent_and_each_cause_fails(bench: Bench, part: int) -> None:
    """All cases beside all accepted samples; all wrong samples with the program of each of their causes."""
    for case in list(cases().values())[part::_PARTS]:
        silent(bench, case, ACCEPTED)
    for sample in WRONG[part::_PARTS]:
        programs = shown_programs(graded("paged_kv", sample))

        assert programs
        fails_by_itself(bench, sample, programs)


def test_a_failing_program_says_what_the_handout_wants(bench: Bench) -> None:
    """The operation as in the case file, the handout's sentence, and what came instead."""
    text = program_text(cases()["append/first_append_after_fork_copies"], 3)
    source = SAMPLES / "wrong_answer" / "no_copy_on_write" / "llm_memory.c"
    done = bench.run(str(bench.linked(text, source)))

    assert done.exit_code == 1
    assert done.stdout == b""
    assert done.stderr.decode().splitlines()[:4] == [
        "repro.c: append_kv 2 77 -> 0 (line 10 of the case)",
        "  the handout: Task 4: kv_count goes up by one and append_kv returns 0",
        "  1.engine.free_local_blocks is 4, expected 3",
        "  1.engine.ref_count[0] is 2, expected 1",
    ]
    assert "  1.engine.sequences.2.block_table[0][0] is 0, expected 1" in done.stderr.decode().splitlines()


def test_an_endless_loop_ends(bench: Bench) -> None:
    """By an alarm, and the program says in which operation."""
    source = SAMPLES / "time_limit_exceeded" / "append_waits_for_free_block" / "llm_memory.c"
    case = cases()["append/no_free_block_for_a_new_page"]
    refused = next(n for n, one in enumerate(case.trace.operations) if one.claim == "-1")
    done = bench.run(str(bench.linked(program_text(case, refused), source)))

    assert done.exit_code == 1
    assert f"{case.trace.operations[refused]} -> -1" in said(done)
    assert "does not come back" in said(done)


def test_programs_need_only_the_handouts_header() -> None:
    """At every cut of every case; a report shows them, so they are no longer than its page takes."""
    for case in cases().values():
        for operation in range(len(case.trace.operations))[-12:]:
            text = program_text(case, operation)

            assert re.findall(r'#include "(.*)"', text) == ["llm_memory.h"]
            assert text.count("\n") < 2000, case.name


def test_text_stays_inside_its_comment_or_string() -> None:
    """Case files are written by people; nothing in them may end a comment or make gcc warn."""
    assert c_comment("a */ b /* c ??/\n d \\") == "a * / b / * c ? ? / d /"
    assert c_string('say "\\" what??/') == r'"say \"\\\" what?\?/"'
    assert c_string("a " * 60, column=5).count('"\n     "') == 1
    assert c_string("") == '""'
