"""The count of instructions: all of the student's work, nothing of ours, the same in every run."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest

from grader import pipeline
from grader.core.case import Case
from grader.core.record import from_json
from grader.labs.paged_kv.lab import lab
from grader.runtime.native.valgrind.callgrind import _content, _doors, count_instructions
from grader.runtime.options import GradingOptions
from grader.system import sandbox
from grader.system.budget import Budget
from grader.tests.support.command import FEW, SAMPLES, grade
from grader.tests.support.programs import POSIX, around, attempted, first_case, native, right, second_case

_TOP = POSIX + '#include <stdlib.h>\n#include "llm_memory.h"\n'
_UNDER_VALGRIND = "int *volatile fresh = malloc(4); if (*fresh == 0)"
"""New memory is filled natively only."""
_APPENDS = 3
"""In the first case; it has one destroy."""


def count(source: str, *cases: Case) -> int | None:
    """What the record says."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / lab().source_name
        path.write_text(source, encoding="utf-8")
        record = pipeline.grade(path, lab(), cases, GradingOptions(memory_checker=False, instructions=True))
    return record.instructions


def counted(source: str, *cases: Case) -> int:
    """A count, where there must be one."""
    number = count(source, *cases)

    assert number is not None
    return number


def nops(number: int) -> str:
    """So many instructions that do nothing."""
    return f'__asm__ volatile(".rept {number}\\n nop\\n .endr");'


@pytest.mark.parametrize("sample", ["visitor_camel_case_allman", "printf_debugging_many_headers"])
def test_five_runs_count_the_same(sample: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Linked statically or with libc beside it, in folders with names of different length."""
    source = (SAMPLES / "accepted" / sample / "llm_memory.c").read_text(encoding="utf-8")
    numbers = set()
    for run in range(5):
        with tempfile.TemporaryDirectory(suffix="x" * 7 * run) as folder, monkeypatch.context() as patched:
            Path(folder).chmod(0o755)
            patched.setattr(tempfile, "tempdir", folder)
            numbers.add(counted(source, first_case(), second_case()))

    assert len(numbers) == 1


def test_every_instruction_of_a_call_is_counted() -> None:
    """A hundred more in each append are three hundred more in a case with three."""
    few, many = (counted(around("append_kv", nops(number)), first_case()) for number in (1, 101))

    assert many - few == 100 * _APPENDS


def test_a_demanded_function_may_call_another() -> None:
    """What that does counts, and so does what comes after it."""

    def source(inside: int, after: int) -> str:
        top = f"{_TOP}__attribute__((noinline)) int free_sequence(LLMEngine *engine, int seq_id);\n"
        return around(
            "llm_destroy",
            f"(void)free_sequence(engine, 77); {nops(after)}",
            top=top,
            text=around("free_sequence", nops(inside), top=top),
        )

    least = counted(source(1, 1), first_case())

    assert counted(source(101, 1), first_case()) - least == 100
    assert counted(source(1, 101), first_case()) - least == 100


def test_our_allocator_is_not_counted() -> None:
    """It fills and fences memory: a large allocation costs the student no more than a small one."""
    small, large = (
        counted(around("append_kv", f"void *volatile p = malloc({size}); free(p);", top=_TOP), first_case())
        for size in (16, 60_000)
    )

    assert small == large


def test_a_case_that_crashes_is_left_out() -> None:
    """The others are counted as if it were not there."""
    crashes = around("append_kv", "if (seq_id == 2) abort();", top=_TOP)

    assert count(crashes, first_case(), second_case()) == count(crashes, second_case())
    assert count(crashes, first_case()) is None


def test_a_program_that_does_not_come_to_its_end_has_no_count() -> None:
    """Half a number would win every leaderboard."""
    ends = around("append_kv", f"{_UNDER_VALGRIND} abort();", top=_TOP)

    assert count(ends, first_case()) is None


def test_a_program_that_hangs_under_callgrind_has_no_count() -> None:
    """It is ended after a second of silence, and nobody breaks over it."""
    hangs = around("append_kv", f"{_UNDER_VALGRIND} for (volatile int on = 1; on;) {{ }}", top=_TOP)

    assert count(hangs, first_case()) is None


def test_a_purse_that_is_empty_pays_for_no_count() -> None:
    """The submission has used up its time before; that is none of Callgrind's faults."""
    attempt = attempted(right(), first_case())
    assert attempt.built is not None
    assert attempt.built.program is not None
    program = attempt.built.program
    with sandbox.workspace(Budget(own=0.0)) as work:
        number = count_instructions(work, program, [first_case()], [0], driver=native().driver)

    assert number is None


def test_a_name_like_a_door_is_none() -> None:
    """What the student defines is no global name any more when doors are looked for."""

    def source(number: int) -> str:
        declared = "__attribute__((noinline)) void h0123456789abcdef_free(void)"
        called = around("append_kv", "h0123456789abcdef_free();")
        return f"{declared};\n{called}\n{declared} {{ {nops(number)} }}\n"

    built = attempted(source(1), first_case()).built
    assert built is not None
    assert built.program is not None
    doors = _doors(built.program.checked)

    assert len({door.split("_", 1)[0] for door in doors}) == 1
    assert "h0123456789abcdef_free" not in doors
    assert sum("_call_" in door for door in doors) == 6
    assert counted(source(101), first_case()) - counted(source(1), first_case()) == 100 * _APPENDS


def test_a_program_that_is_no_object_of_c_has_no_doors() -> None:
    """Another lab's program may be a script."""
    assert _doors(b"#!/usr/bin/env python3\n") == []


def test_only_a_plain_file_is_read(tmp_path: Path) -> None:
    """The program may have put a pipe there, on which we would wait for ever, or a link to somewhere else."""
    (tmp_path / "plain").write_bytes(b"summary: 7\n")
    (tmp_path / "link").symlink_to(tmp_path / "plain")
    os.mkfifo(tmp_path / "pipe")

    assert [_content(tmp_path / name) for name in ("plain", "link", "pipe", "nothing")] == [
        b"summary: 7\n", b"", b"", b"",
    ]  # fmt: skip


def test_it_is_off_by_default() -> None:
    """Neither record nor report mention a number that nobody asked for."""
    asked = grade("run", SAMPLES / "accepted" / "yoda_crlf", *FEW, "--instructions")
    plain = grade("run", SAMPLES / "accepted" / "yoda_crlf", *FEW)
    record = grade("run", SAMPLES / "accepted" / "yoda_crlf", *FEW, "--instructions", "--format", "json")
    number = from_json(record.out).instructions

    assert number is not None
    assert f"{number:,} instructions in the demanded functions" in " ".join(asked.out.split())
    assert "instructions" not in plain.out
    assert (
        from_json(grade("run", SAMPLES / "accepted" / "yoda_crlf", *FEW, "--format", "json").out).instructions is None
    )


def test_the_right_program_is_still_accepted() -> None:
    """Counting changes nothing about the result."""
    assert attempted(right(), first_case()).instructions is None
    assert grade("run", SAMPLES / "accepted" / "yoda_crlf", *FEW, "--instructions").code == 0
