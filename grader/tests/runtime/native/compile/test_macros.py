"""Messages of gcc about a macro: which macro it is, and where it was defined."""

from __future__ import annotations

import pytest

from grader.runtime.native.compile.diagnostics import Macro, Macros


@pytest.mark.parametrize("directive", ["#line 100", '# 7 "other.c"'])
def test_lines_with_other_numbers_have_no_macros(directive: str) -> None:
    """What gcc calls line 2 is another line of the file then."""
    assert Macros.of(f"#define A 1\nA\n{directive}\n").at(2, 1) is None
    assert Macros.of("#define A 1\nA\n").at(2, 1) == Macro("A", 1)
