"""Ways out of a call that are no return: exit and its relatives, and longjmp to where nobody is any more."""

from __future__ import annotations

from functools import cache

import pytest

from grader.attempt import Attempt
from grader.core.verdict import Verdict
from grader.runtime.protocol import End
from grader.tests.support.programs import (
    POSIX,
    around,
    attempted,
    expected_records,
    findings,
    first_case,
    graded_text,
    line_of,
    made,
    memcheck_of,
    second_case,
    variants,
    varied,
)

_TOP = POSIX + "#include <setjmp.h>\n#include <stdlib.h>\n#include <string.h>\n"

_CALL = 5
"""The operation of `first_case` that goes wrong: the append to sequence 2."""

_EXITS = ("exit(0)", "exit(3)", "_exit(0)", "_Exit(97)", "quick_exit(99)", "abort()")


@cache
def left() -> tuple[str, Attempt]:
    """A program that leaves by each of them, in a case of its own, and its attempt."""
    source = varied([f"{call}; /* {call} */" for call in _EXITS], top=_TOP)
    return source, attempted(source, *variants(len(_EXITS)), second_case())


@pytest.mark.parametrize("call", _EXITS)
def test_a_call_that_ends_the_program_is_a_finding(call: str) -> None:
    """By its own name, with its status, which is no success whatever it is; the line is that of the call."""
    source, attempt = left()
    number = _EXITS.index(call)
    (finding,) = (finding for finding in findings(attempt) if finding.case == attempt.cases[number].name)

    assert [attempt.comparisons[place].end for place in (number, -1)] == [End.ENDED, End.REACHED]
    assert attempt.comparisons[number].ended_at == _CALL
    assert (finding.verdict, finding.operation) == (Verdict.RUN_TIME_ERROR, _CALL + 1)
    assert finding.message == f"append_kv ends the whole program: it calls {call}"
    assert finding.source[0].line == line_of(source, f"/* {call} */")


_LEGAL = {
    "out of a helper": "reached = 0; if (setjmp(place) == 0) deep(5); else reached++; if (reached != 1) return 100;",
    "a value": "reached = 0; int v = setjmp(place); if (++reached < 4) longjmp(place, v + 1); if (v != 3) return 9;",
    "zero is one": "int v = setjmp(place); if (v == 0) longjmp(place, 0); if (v != 1) return 100;",
    "_longjmp": "if (_setjmp(place) == 0) _longjmp(place, 1);",
    "with signals": "sigjmp_buf own; if (sigsetjmp(own, 1) == 0) siglongjmp(own, 1);",
    "without signals": "sigjmp_buf own; if (sigsetjmp(own, 0) == 0) siglongjmp(own, 1);",
    "two places": "jmp_buf more; if (setjmp(place) == 0) { if (!setjmp(more)) longjmp(more, 1); longjmp(place, 1); }",
    "many places": "jmp_buf many[99]; for (volatile int i = 0; i < 99; i++) if (!setjmp(many[i])) longjmp(many[i], 1);",
    "a copied place": "jmp_buf copy; if (setjmp(place) == 0) { memcpy(copy, place, sizeof copy); longjmp(copy, 1); }",
}

_JUMPS = r"""
static sigjmp_buf place;
int reached;
__attribute__((noinline)) static int deep(int n)
{
    volatile char room[100];
    room[n + 9] = 1;
    if (n == 0)
        longjmp(place, 1);
    return n < -5 ? 0 : deep(n - 1) + room[n];
}
int (*used)(int) = deep;
#pragma GCC diagnostic ignored "-Wclobbered"
"""


@cache
def jumped() -> Attempt:
    """The attempt of a program that does each of them in a case of its own, natively and under Valgrind."""
    source = varied(_LEGAL.values(), top=f"{_TOP}{_JUMPS}")
    return attempted(source, *variants(len(_LEGAL)), second_case(), valgrind=True)


@pytest.mark.parametrize("way", _LEGAL)
def test_a_jump_within_a_call_is_nobodys_business(way: str) -> None:
    """Every legal use works as in any program, natively and under Valgrind, and is no finding."""
    number = list(_LEGAL).index(way)
    attempt = jumped()

    assert memcheck_of(attempt).unchecked == ()
    assert [finding for finding in findings(attempt) if finding.case == attempt.cases[number].name] == []
    for run in (attempt.replayed.played[number], attempt.replayed.played[-1]):
        assert [step.record for step in run.steps] == expected_records(run.case)


_BACK = ("longjmp", "_longjmp", "siglongjmp")


def test_a_jump_back_into_an_earlier_call_is_a_finding() -> None:
    """Said as what it is, at the line of the jump; what came before is kept, and the other case."""
    jumps = "\n".join(
        f"    if (kv_data == {number}) {jump}(place, 1); /* {jump} */" for number, jump in enumerate(_BACK)
    )
    text = around("create_sequence", "    if (seq_id == 1 && sigsetjmp(place, 0) != 0) return NULL;", top="")
    source = around("append_kv", jumps, text=text, top=f"{_TOP}static sigjmp_buf place;\n")
    cases = [made(jump, f"create_sequence 1 5 -> seq; append_kv 1 {number} -> 0") for number, jump in enumerate(_BACK)]
    attempt = attempted(source, *cases, second_case())
    assert [finding.case for finding in findings(attempt)] == [case.name for case in cases]

    for jump, finding, comparison in zip(_BACK, findings(attempt), attempt.comparisons, strict=False):
        assert comparison.ended_at == 2, jump
        assert finding.verdict is Verdict.RUN_TIME_ERROR, jump
        assert finding.message == "append_kv jumps with longjmp to a call that has already returned"
        assert finding.source[0].line == line_of(source, f"/* {jump} */")
    assert attempt.comparisons[-1].end is End.REACHED


def test_a_jump_into_a_helper_that_has_returned_is_a_finding() -> None:
    """Also within one call, as long as the helper's frame is below the one that jumps."""
    top = (
        f"{_TOP}static sigjmp_buf place;\n__attribute__((noinline)) static int mark(int n)\n"
        "{ volatile char room[4000]; room[n] = 0; return setjmp(place) + room[n]; }\n"
    )
    source = around("append_kv", "    if (seq_id == 2 && mark(5) == 0) longjmp(place, 1); /* HERE */", top=top)
    (finding,) = findings(attempted(source, first_case()))

    assert "longjmp" in finding.message
    assert finding.source[0].line == line_of(source)


def test_the_diagnosis_says_how_far_a_jump_may_go() -> None:
    """Also where an earlier call of the same function set the place, whose frame lay where this one lies."""
    text = "    if (kv_data == 11) (void)setjmp(place);\n    if (kv_data == 12) longjmp(place, 1); /* HERE */"
    source = around("append_kv", text, top=f"{_TOP}static sigjmp_buf place;\n")
    record = graded_text(source, first_case(), second_case())

    assert record.verdict is Verdict.RUN_TIME_ERROR
    assert record.first_cause is not None
    assert (record.first_cause.rule, record.first_cause.operation) == ("memory-error", 4)
    assert "setjmp first" in record.first_cause.hint
    assert record.first_cause.lines
    assert record.first_cause.lines[0].line == line_of(source)
