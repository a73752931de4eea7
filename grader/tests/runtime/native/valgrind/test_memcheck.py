"""Valgrind: one process for all cases, and every error with its case, its operation and the student's line."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

import pytest

from grader.attempt import Attempt
from grader.core.case import Case
from grader.core.verdict import Tool, Verdict
from grader.runtime.native.valgrind.memory_faults import Checked
from grader.runtime.native.valgrind.reports import ReadReport, RunProgress, read
from grader.tests.support.programs import (
    POSIX,
    around,
    attempted,
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
from grader.tests.support.raising import Raising

_TOP = POSIX + (
    "#include <stdlib.h>\n"
    "void *same(void *address);\n"
    "__attribute__((noipa)) void *same(void *address) { return address; }\n"
    "int use(int value);\n"
    "__attribute__((noipa)) int use(int value) { return value; }\n"
)


def appending(*lines: str, when: str = "seq_id == 2", top: str = _TOP) -> str:
    """A right program whose `append_kv` does this, one statement on each line."""
    return around("append_kv", "\n".join([f"    if ({when}) {{", *lines, "    }"]), top=top)


def cases(count: int) -> tuple[Case, ...]:
    """The first case several times, by different names."""
    story = "create_sequence 1 5 -> seq; fork_sequence 1 2 -> seq; append_kv 2 13 -> 0"
    return tuple(made(f"number{number}", story) for number in range(count))


def checked(source: str, *chosen: Case) -> Checked:
    """What Valgrind saw."""
    attempt = attempted(source, *chosen, valgrind=True)
    return memcheck_of(attempt)


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


def test_findings_of_valgrind_say_so() -> None:
    """Message, tool, and the operation counted from 1."""
    attempt = mistaken()[1]
    case = attempt.cases[list(_ERRORS).index("UninitCondition") + 1]
    (finding, *_) = (finding for finding in findings(attempt) if finding.case == case.name)

    assert finding.tool is Tool.MEMORY_CHECKER
    assert finding.message.startswith("Valgrind: ")
    assert finding.operation == 6


def test_freed_memory_is_named_with_the_line_that_freed_it() -> None:
    """The auxiliary stack of an error leads to the allocation or to the free."""
    source = appending(
        "int *p = same(malloc(64));",
        "free(same(p)); /* FREED */",
        "kv_data = use(((volatile int *)same(p))[2]);",
        'printf("%d", kv_data & 1 ? 1 : 1);',
    )
    (error, *_) = (error for error in checked(source, first_case()).errors if error.kind == "InvalidRead")

    assert error.auxiliary
    assert error.auxiliary[0].line == line_of(source, "/* FREED */")


def test_an_error_that_repeats_is_found_in_every_case() -> None:
    """Valgrind prints a stack once; its counts tell where else it was."""
    source = appending(
        "volatile int *p = same(malloc(64));", "int x = use(p[16]); /* HERE */", "free((void *)p);", "(void)x;"
    )
    attempt = attempted(source, *cases(5), valgrind=True)
    found = [finding for finding in findings(attempt) if finding.verdict is Verdict.MEMORY_ERROR]

    assert sorted(memcheck_of(attempt).counted) == [(number, 3) for number in range(5)]
    assert {finding.case for finding in found} == {case.name for case in cases(5)}
    assert {(finding.operation, finding.source[0].line) for finding in found} == {(4, line_of(source))}
    assert all(one.memory_errors for one in attempt.case_findings)


def test_two_errors_in_one_operation_are_both_told() -> None:
    """One behind the other, each with its line."""
    source = appending(
        "volatile int *p = same(malloc(64));", "use(p[16]); /* FIRST */", "use(p[18]); /* SECOND */", "free((void *)p);"
    )
    lines = {error.lines[0].line for error in checked(source, first_case()).errors}

    assert lines == {line_of(source, "/* FIRST */"), line_of(source, "/* SECOND */")}


@pytest.mark.parametrize(
    "place",
    [
        "parked = malloc(40);",
        "void *p = same(malloc(40)); (void)p;",
        "static void *volatile last; last = malloc(40); (void)last;",
    ],
    ids=["global", "nowhere", "static"],
)
def test_lost_memory_has_its_line_whoever_still_points_to_it(place: str) -> None:
    """Still reachable counts as lost: the handout wants 0 bytes."""
    source = appending(f"{place} /* HERE */", top=_TOP + "void *parked;\n")
    record = graded_text(source, second_case(), first_case(), valgrind=True)
    leaks = [finding for finding in record.findings if finding.verdict is Verdict.MEMORY_LEAK]

    assert record.verdict is Verdict.MEMORY_LEAK
    assert {finding.case for finding in leaks} == {first_case().name}
    assert {finding.source[0].line for finding in leaks} == {line_of(source)}


def test_a_leak_in_every_case_is_found_in_every_case() -> None:
    """Valgrind looks for lost memory in the first cases only; the table of allocations tells of the others."""
    source = appending("parked = malloc(40); /* HERE */", top=_TOP + "void *parked;\n")
    attempt = attempted(source, *cases(20), valgrind=True)

    assert memcheck_of(attempt).processes == 1
    assert all(one.leaks for one in attempt.case_findings)
    assert {finding.source[0].line for finding in findings(attempt)} == {line_of(source)}


def test_an_error_in_the_clean_up_belongs_to_the_clean_up() -> None:
    """The last operation is llm_destroy."""
    source = around(
        "llm_destroy",
        "    volatile int *p = same(malloc(4)); int x = p[1]; free((void *)p); (void)x; /* HERE */",
        top=_TOP,
    )
    (error, *_) = checked(source, first_case()).errors

    assert error.operation == len(first_case().trace.operations) - 1
    assert error.lines[0].line == line_of(source)


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


@pytest.mark.parametrize(
    "junk",
    [
        b"<error><stack><frame><ip>0xzz</ip><line>seven</line></frame></stack></error>",
        b"<error>",
        b"<error></kind></error>",
        b"<error>&lol;</error>",
        b"\xff\xfe<error>\xff</error>",
        b"<clientmsg></clientmsg>",
    ],
)
def test_junk_in_the_document_is_passed_over(junk: bytes) -> None:
    """A program may write into the channel; what is no element is nothing."""
    good = (
        b"<error><kind>InvalidRead</kind><stack><frame><file>llm_memory.c</file><line>7</line></frame></stack></error>"
    )
    marker = b"<clientmsg><text>pkv errors abc 2 1</text></clientmsg>"
    found = said(good + marker + junk + good + marker, {2: 4}).errors

    assert (found[0].case, found[0].operation) == (2, 1)
    assert len(found) == 2
