"""Messages of gcc about a macro: which macro it is, and where it was defined."""

from __future__ import annotations

import pytest

from grader.assignment.samples import program_of
from grader.runtime.native.compile.macros import Macro, Macros
from grader.tests.support.command import SAMPLES
from grader.tests.support.graded import graded

_SOURCE = """\
#include "llm_memory.h"
/* #define AT(b) hidden
#define AT(b) too */
#define AT(b) ((int *)(pool + (b)))
  #  define SIZE 64 // #define SIZE 1
char *text = "#define AT twice /*";
#ifdef DEBUG
#define TRACE(x) x
#else
#define TRACE(x)
#endif
#define ONCE 1
#undef ONCE
#define ONCE 2
int é = AT(SIZE) + ONCE; TRACE(AT)
\tAT(1); later(1);
#define later(x) x
"""


@pytest.mark.parametrize(
    ("line", "column", "macro"),
    [
        (15, 9, Macro("AT", 4)),
        (15, 10, Macro("AT", 4)),  # gcc counts bytes
        (15, 12, Macro("SIZE", 5)),
        (15, 20, Macro("ONCE", 14)),
        (15, 26, None),  # TRACE has two definitions
        (15, 5, None),  # no macro
        (15, 18, None),  # no name
        (16, 2, Macro("AT", 4)),
        (16, 9, Macro("AT", 4)),  # gcc counts a tab as eight
        (16, 9 + 7, None),  # defined only later
        (99, 1, None),
        (0, 0, None),
    ],
)
def test_the_macro_at_a_place(line: int, column: int, macro: Macro | None) -> None:
    """By bytes, characters or columns of a terminal; comments and strings define nothing."""
    assert Macros.of(_SOURCE).at(line, column) == macro


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
