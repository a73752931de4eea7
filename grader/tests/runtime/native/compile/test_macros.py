"""Messages of gcc about a macro: which macro it is, and where it was defined."""

from __future__ import annotations

import pytest

from grader.assignment.samples import program_of
from grader.runtime.native.compile.macros import Macro, Macros
from grader.tests.support.command import SAMPLES
from grader.tests.support.graded import graded


@pytest.mark.parametrize("directive", ["#line 100", '# 7 "other.c"'])
def test_lines_with_other_numbers_have_no_macros(directive: str) -> None:
    """What gcc calls line 2 is another line of the file then."""
    assert Macros.of(f"#define A 1\nA\n{directive}\n").at(2, 1) is None
    assert Macros.of("#define A 1\nA\n").at(2, 1) == Macro("A", 1)


def test_a_message_names_the_line_of_the_macro() -> None:
    """Where the mistake is, beside the place of each use, and the sentence of the handout."""
    record = graded("paged_kv", SAMPLES / "compile_error" / "macro_over_void_pointer")
    cause = record.first_cause
    assert cause is not None
    source = program_of(SAMPLES / "compile_error" / "macro_over_void_pointer", "llm_memory.c").decode()

    assert cause.hint.endswith("What is meant is written in the macro BLOCK_ADDR, at llm_memory.c:58.")
    assert source.splitlines()[57].startswith("#define BLOCK_ADDR")
    assert cause.clause == "Compilation Standard: compiles without a warning under the strict flags"
    assert {finding.source[0].line for finding in record.findings} == {225, 235}
