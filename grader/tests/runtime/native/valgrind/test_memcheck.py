"""Valgrind: one process for all cases, and every error with its case, its operation and the student's line."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

import pytest

from grader.attempt import Attempt
from grader.runtime.native.valgrind.reports import ReadReport, RunProgress, read
from grader.tests.support.programs import (
    POSIX,
    attempted,
    line_of,
    memcheck_of,
    second_case,
    variants,
    varied,
)
from grader.tests.support.raising import Raising

_TOP = POSIX + (
    "#include <stdlib.h>\n"
    "void *same(void *address);\n"
    "__attribute__((noipa)) void *same(void *address) { return address; }\n"
    "int use(int value);\n"
    "__attribute__((noipa)) int use(int value) { return value; }\n"
)


_ERRORS = {
    "InvalidRead": [
        "volatile int *p = same(malloc(64));",
        "int x = use(p[16]); /* HERE */",
        "free((void *)p);",
        "(void)x;",
    ],
    "InvalidRead of freed": [
        "volatile int *p = same(malloc(64));",
        "free(same((void *)p));",
        "int x = p[2]; /* HERE */",
        "(void)x;",
    ],
    "InvalidWrite": ["volatile int *p = same(malloc(64));", "p[17] = 1; /* HERE */", "free((void *)p);"],
    "UninitCondition": ["int *p = same(malloc(64));", "if (use(p[3]) == 7) return -1; /* HERE */", "free(p);"],
    "UninitValue": [
        "int *p = same(calloc(4, 4)), *q = same(malloc(16));",
        "use(p[use(q[1]) & 3]); /* HERE */",
        "free(p);",
        "free(q);",
    ],
}


@cache
def mistaken() -> tuple[str, Attempt]:
    """A program that makes each of these errors in a case of its own, between right cases, and its attempt."""
    statements = ["\n".join(lines).replace("HERE", kind) for kind, lines in _ERRORS.items()]
    source = varied(statements, top=_TOP)
    return source, attempted(source, second_case(), *variants(len(_ERRORS)), second_case(), valgrind=True)


@pytest.mark.parametrize("kind", _ERRORS)
def test_an_error_belongs_to_a_case_an_operation_and_a_line(kind: str) -> None:
    """Read, write, freed memory, values that were never set."""
    source, attempt = mistaken()
    own = [error for error in memcheck_of(attempt).errors if error.case == list(_ERRORS).index(kind) + 1]
    errors = [error for error in own if error.kind == kind.split(maxsplit=1)[0]]

    assert errors
    assert {error.operation for error in own} == {5}
    assert {error.lines[0].line for error in errors} == {line_of(source, f"/* {kind} */")}
    assert {error.lines[0].file for error in errors} == {"llm_memory.c"}


def test_right_cases_beside_errors_have_none() -> None:
    """Before and behind them, in the same process."""
    attempt = mistaken()[1]

    assert {error.case for error in memcheck_of(attempt).errors} == set(range(1, len(_ERRORS) + 1))


@pytest.mark.parametrize("source_name", ["llm_memory.c", "driver.c"])
def test_a_document_may_end_anywhere(source_name: str) -> None:
    """Cut at every byte: pieces that came whole are read, the rest is passed over."""
    stack = f"<stack><frame><fn>f</fn><file>{source_name}</file><line>7</line></frame></stack>"
    document = (
        "<valgrindoutput><preamble>x</preamble>"
        f"<error><kind>InvalidRead</kind><what>Invalid read</what>{stack}</error>"
        "<clientmsg><tid>1</tid><text>pkv errors abc 0 3\n</text></clientmsg>"
        f"<error><kind>Leak_DefinitelyLost</kind><xwhat><text>lost</text></xwhat>{stack}</error>"
        "<clientmsg><tid>1</tid><text>pkv leaks abc 0 5\n</text></clientmsg></valgrindoutput>"
    ).encode()
    whole = said(document, {0: 5}).errors
    for end in range(len(document)):
        cut = said(document[:end], {0: 5}).errors

        assert len(cut) <= len(whole)
        assert {error.kind for error in cut} <= {error.kind for error in whole}

    if source_name == "llm_memory.c":
        assert [(error.case, error.operation, error.kind) for error in whole] == [
            (0, 3, "InvalidRead"),
            (0, 5, "leak"),
        ]
        assert [error.leak for error in whole] == [False, True]
    else:
        assert [(error.operation, error.lines) for error in whole] == [(3, ())]  # it was counted in a call of theirs


def said(document: bytes, planned: Mapping[int, int]) -> ReadReport:
    """What is read of it, where there are no lines of the student's, and where every operation had one error."""
    course = RunProgress(planned=planned, token=0xABC)
    for case, operations in planned.items():
        course.begun.append(case)
        course.did[case] = [(0, 0, 0)] * operations
        course.counted |= {(case, operation): 1 for operation in range(operations)}
    return read(document, course, "llm_memory.c", lambda _: {}, optional=Raising())
