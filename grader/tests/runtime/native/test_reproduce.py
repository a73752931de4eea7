"""A failing case as a C program: silent beside every accepted sample, and it fails where the sample fails.

Each program is compiled once. A sample is a shared library here, built with the handout's flags, so that one program
runs beside all of them; that the handout's own link command works is tested beside those that fail.
"""

from __future__ import annotations

import re
from pathlib import Path
from zlib import crc32

import pytest

from grader.core.causes import Audience, bad_operation, grouped, is_hidden
from grader.core.record import Record
from grader.core.verdict import Verdict
from grader.labs import LABS
from grader.runtime.native.c_program import c_call, c_comment, c_string, fold
from grader.tests.support.graded import graded
from grader.tests.support.reproduced import ACCEPTED, PEACEFUL, SAMPLES, Bench, cases, program_text, said

_WRONG = sorted(
    path for path in PEACEFUL if path.parts[-3] not in (Verdict.ACCEPTED, Verdict.COMPILE_ERROR, Verdict.REJECTED)
)
_TASKS = sorted(folder.name for folder in LABS["paged_kv"]().cases.iterdir() if folder.is_dir())
_VALGRIND = (
    *("valgrind", "-q", "--error-exitcode=9", "--leak-check=full"),
    *("--show-leak-kinds=all", "--errors-for-leak-kinds=all"),
)
_FOR_VALGRIND = ("create_compares_unset_entry",)
"""Samples that use a value that was never set: in one of the cases shown nothing comes of it, whatever the value."""

_SHARERS = 5
"""So many programs share the accepted samples between them."""


@pytest.fixture(scope="session")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Bench:
    """One folder for all tests of this process: samples are compiled once."""
    return Bench(tmp_path_factory.mktemp("repro"))


@pytest.mark.parametrize("task", _TASKS)
def test_programs_are_silent_beside_accepted_samples(bench: Bench, task: str) -> None:
    """Every case up to its end compiles without a warning; the samples' own words on stdout and stderr are theirs."""
    for number, case in enumerate(case for case in cases().values() if case.name.startswith(f"{task}/")):
        program = bench.program(program_text(case))
        for source in ACCEPTED[number % _SHARERS :: _SHARERS]:
            done = bench.run(str(program), library=bench.library(source))

            assert (case.name, source.parent.name, done.exit_code) == (case.name, source.parent.name, 0), done
            assert b"the handout" not in done.stderr


@pytest.mark.parametrize("source", ACCEPTED, ids=lambda source: source.parent.name)
def test_the_handouts_command_and_valgrind_are_content(bench: Bench, source: Path) -> None:
    """A case that is cut short leaves nothing behind, by the handout's own command line, under Valgrind."""
    case = list(cases().values())[ACCEPTED.index(source) :: len(ACCEPTED)][0]
    program = bench.linked(program_text(case, len(case.trace.operations) // 2), source)

    assert bench.run(*_VALGRIND, str(program)).exit_code == 0


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


@pytest.mark.parametrize("start", range(4))
def test_every_cut_compiles(bench: Bench, start: int) -> None:
    """A program may end with any operation, a poke among them."""
    for case in list(cases().values())[start::60]:
        for operation in range(min(len(case.trace.operations) - 1, 7)):
            program = bench.program(program_text(case, operation))

            assert bench.run(str(program), library=bench.first).exit_code == 0


@pytest.mark.parametrize("source", _WRONG, ids=lambda source: "/".join(source.parts[-3:-1]))
def test_every_program_fails_by_itself_where_the_sample_fails(bench: Bench, source: Path) -> None:
    """With exit code 1 and a sentence that names the operation; and accepted samples do not fail it.

    Of every eighth sample the first program is made by the handout's own command, which optimises and so takes three
    times as long; all others run beside the sample as a library.
    """
    lab = LABS["paged_kv"]()
    record = graded(lab.name, source.parent)
    shown = _shown(record)
    assert shown
    eighth = crc32(source.parent.name.encode()) % 8 == 0
    for number, (name, operation) in enumerate(shown):
        case = cases()[name]
        text = program_text(case, operation)
        by_handout = (eighth and number == 0) or source.parent.name in _FOR_VALGRIND
        program = bench.linked(text, source) if by_handout else bench.program(text)
        failed = bench.run(str(program), library=None if by_handout else bench.library(source))
        if failed.succeeded and source.parent.name in _FOR_VALGRIND:
            assert bench.run(*_VALGRIND, "./repro").exit_code == 9
            continue

        assert (name, operation, failed.exit_code) == (name, operation, 1), failed
        assert any(str(one) in said(failed) for one in case.trace.operations), failed
        _assert_peaceful(bench, text)


def _shown(record: Record) -> list[tuple[str, int]]:
    """The case of each cause, for instructors and for students, with its first bad operation counted from 0."""
    public = [one for one in record.outcomes if not is_hidden(one, Audience.STUDENT)]
    groups = [*grouped(record, record.outcomes), *grouped(record, public)]
    return list({group.shown.case: max(bad_operation(record, group.shown), 1) - 1 for group in groups}.items())


def _assert_peaceful(bench: Bench, text: str) -> None:
    """No accepted sample fails the program, which many wrong ones may share; each program tries a part of them."""
    if text in bench.peaceful:
        return
    program = bench.program(text)
    for accepted in ACCEPTED[crc32(text.encode()) % _SHARERS :: _SHARERS]:
        done = bench.run(str(program), library=bench.library(accepted))

        assert (accepted.parent.name, done.exit_code) == (accepted.parent.name, 0), done.stderr.decode()
    bench.peaceful.add(text)


def test_a_failing_program_says_what_the_handout_wants(bench: Bench) -> None:
    """The operation as in the case file, the handout's sentence, and what came instead."""
    text = program_text(cases()["append/first_append_after_fork_copies"], 3)
    source = SAMPLES / "wrong_answer" / "no_copy_on_write" / "llm_memory.c"
    done = bench.run(str(bench.linked(text, source)))

    assert done.exit_code == 1
    assert done.stdout == b""
    assert re.sub(r"^repro.c:\d+", "repro.c", done.stderr.decode()).splitlines() == [
        "repro.c: append_kv 2 77 -> 0 (line 10 of the case)",
        "  the handout: Task 4: copy-on-write maps the new block in the appending sequence only",
        "  sequence(engine, 2)->block_table[0][0] is 0, want 1",
    ]


def test_an_endless_loop_ends(bench: Bench) -> None:
    """By an alarm, and the program says in which operation."""
    source = SAMPLES / "time_limit_exceeded" / "append_waits_for_free_block" / "llm_memory.c"
    case = cases()["append/no_free_block_for_a_new_page"]
    refused = next(n for n, one in enumerate(case.trace.operations) if one.claim == "-1")
    done = bench.run(str(bench.linked(program_text(case, refused), source)))

    assert done.exit_code == 1
    assert f"{case.trace.operations[refused]} -> -1" in said(done)
    assert "does not come back" in said(done)


def test_programs_are_short_and_need_only_the_handouts_header() -> None:
    """At every cut of every case; repeated operations and states are loops."""
    for case in cases().values():
        for operation in range(len(case.trace.operations))[-12:]:
            text = program_text(case, operation)

            assert re.findall(r'#include "(.*)"', text) == ["llm_memory.h"]
            assert text.partition("static void the_case(void)")[2].partition("\n}\n")[0].count("\n") < 200, case.name


def test_what_steps_evenly_is_one_loop() -> None:
    """The loop's variable is a number that goes up by one; the others are written with it."""
    (run,) = fold([(2, 10, 7), (3, 20, 7), (4, 30, 7)], lambda _: "", lambda item: item)

    assert run.folded
    assert run.texts() == ["i", "10 * i - 10", "7"]
    assert list(run.looped(["a(i);"])) == ["for (i = 2; i <= 4; i++)", "    a(i);"]
    assert list(run.looped(["a(i);", "b(i);"]))[-1] == "}"


def test_what_steps_unevenly_is_no_loop() -> None:
    """Nor are two items, items of two shapes, and numbers near the ends of an int."""
    for numbers in ([1, 2, 4], [5, 6], [2**31 - 3, 2**31 - 2, 2**31 - 1]):
        runs = list(fold(numbers, lambda _: "", lambda number: (number,)))

        assert [run.texts() for run in runs] == [[str(number)] for number in numbers]
    assert len(list(fold([1, 2, 3], lambda number: number == 2, lambda number: (number,)))) == 3


def test_text_stays_inside_its_comment_or_string() -> None:
    """Case files are written by people; nothing in them may end a comment or make gcc warn."""
    assert c_comment("a */ b /* c ??/\n d \\") == "a * / b / * c ? ? / d /"
    assert c_string('say "\\" what??/') == r'"say \"\\\" what?\?/"'
    assert c_string("a " * 60, column=5).count('"\n     "') == 1
    assert c_string("") == '""'
    assert "\n     " in c_call("LIST", *map(str, range(60)))
