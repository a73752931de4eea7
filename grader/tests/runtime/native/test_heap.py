"""The student's memory without Valgrind: every allocation is counted, fenced, and never handed out twice."""

from __future__ import annotations

from functools import cache

import pytest

from grader.attempt import Attempt
from grader.core.verdict import Finding, Verdict
from grader.tests.support.programs import (
    POSIX,
    around,
    attempted,
    expected_records,
    findings,
    first_case,
    line_of,
    made,
    memcheck_of,
    played,
    right,
    second_case,
    variants,
    varied,
)

_CALL = 5
"""The operation of `first_case` that goes wrong: the append to sequence 2."""

_TOP = POSIX + (
    "#include <stdlib.h>\n"
    "void *same(void *address);\n"
    "__attribute__((noipa)) void *same(void *address) { return address; }\n"
    "int mine;\n_Thread_local int my_own;\n"
)


def trouble(*lines: str) -> str:
    """A right program whose `append_kv` does this when it comes to sequence 2, one statement on each line."""
    return around("append_kv", "\n".join(["    if (seq_id == 2) {", *lines, "    }"]), top=_TOP)


def memory_finding(source: str) -> Finding:
    """The one finding of the first case; all records are right, and the other case too."""
    attempt = attempted(source, first_case(), second_case())
    assert_records_right(attempt)
    (finding,) = findings(attempt)
    assert finding.case == first_case().name
    return finding


def assert_records_right(attempt: Attempt) -> None:
    """Whatever the program does to its memory, it computes the right states."""
    for run in attempt.replayed.played:
        assert [step.record for step in run.steps] == expected_records(run.case), run.case.name


_BAD_FREES = {
    "double-free": ["int *p = malloc(16);", "free(same(p));", "free(same(p)); {}"],
    "free-pool": ["free(same(engine->pool_base_ptr)); {}"],
    "free-inside": ["char *p = malloc(16);", "free(same(p + 8)); {}", "free(p);"],
}
_NEVER_RETURNED = {
    "((char *)engine->pool_base_ptr + 64)": "free-pool",
    "&kv_data": "free-stack",
    "&engine->active_seqs": "free-inside",
    "&mine": "free-static",
    "&my_own": "free-static",
    '"text"': "free-foreign",
    "(void *)8": "free-foreign",
    "(void *)-8": "free-foreign",
    "(size_t)&append_kv": "free-foreign",
    "stdout": "free-foreign",
}
_WRITES = {
    "overrun": "p[16] = 1;",
    "overrun by far": "p[40] = 1;",
    "overrun by a byte": "((char *)p)[64] = 1;",
    "underrun": "p[-1] = 1;",
    "write-after-free": "p[3] = 1;",
}


def _writing(kind: str) -> list[str]:
    free = "free(same((void *)p));"
    first, last = (free, "") if kind == "write-after-free" else ("", free)
    return ["volatile int *p = same(malloc(64)); {}", first, _WRITES[kind], last]


_TROUBLES = {
    **_BAD_FREES,
    **{address: [f"free(same((void *)(size_t){address})); {{}}"] for address in _NEVER_RETURNED},
    **{kind: _writing(kind) for kind in _WRITES},
}
"""Statements, and for {} a comment that marks the line."""
_FALLING = "pool_blocks = 4; heap_falls = 1"
_HEAPS = pytest.mark.parametrize("header", ["pool_blocks = 4", _FALLING], ids=["rising", "falling"])


@cache
def troubled(header: str) -> tuple[str, Attempt]:
    """The program that does each of them in a case of its own, and its attempt."""
    statements = ["\n".join(lines).replace("{}", f"/* {name} */") for name, lines in _TROUBLES.items()]
    source = varied(statements, top=_TOP)
    return source, attempted(source, *variants(len(statements), header=header), second_case())


def finding_of(trouble: str, header: str) -> Finding:
    """The one finding of its case, with the operation and the line."""
    source, attempt = troubled(header)
    assert_records_right(attempt)
    case = attempt.cases[list(_TROUBLES).index(trouble)]
    (finding,) = (finding for finding in findings(attempt) if finding.case == case.name)
    assert finding.operation == _CALL + 1
    assert finding.source[0].line == line_of(source, f"/* {trouble} */")
    return finding


@_HEAPS
@pytest.mark.parametrize("kind", _BAD_FREES)
def test_a_bad_free_is_reported_at_its_call(kind: str, header: str) -> None:
    """Operation and line are those of the call of free; the program goes on."""
    finding = finding_of(kind, header)

    assert (finding.kind, finding.verdict) == (kind, Verdict.MEMORY_ERROR)


@_HEAPS
@pytest.mark.parametrize("kind", _WRITES)
def test_a_write_outside_an_allocation_is_reported_at_its_operation(kind: str, header: str) -> None:
    """The line is that of the allocation; size and place are in the message."""
    finding = finding_of(kind, header)

    assert kind.startswith(finding.kind)
    assert "64" in finding.message


def test_a_double_free_tells_all_three_lines() -> None:
    """Freed here; made and freed before in those operations, at those lines."""
    lines = [
        "    if (kv_data == 11) kept = malloc(24); /* MADE */",
        "    if (kv_data == 12) { free(same(kept)); /* FIRST */ mine++; }",
        "    if (kv_data == 13) { free(same(kept)); /* HERE */ my_own++; }",
    ]
    source = around("append_kv", "\n".join(lines), top=_TOP + "void *kept;\n")
    finding = memory_finding(source)
    made_at, freed_at = (line_of(source, f"/* {marker} */") for marker in ("MADE", "FIRST"))

    assert finding.source[0].line == line_of(source)
    assert finding.message == (
        f"frees 24 bytes made by append_kv (operation 3) at llm_memory.c:{made_at} "
        f"that were already freed by append_kv (operation 4) at llm_memory.c:{freed_at}"
    )


def test_every_allocation_of_every_call_is_counted() -> None:
    """Create: sequence, L1 and L2 table; a refused call: nothing; destroy gives all back."""
    case = made(
        "counted",
        "create_sequence 1 300 -> seq; create_sequence 1 5 -> NULL; append_kv 9 1 -> -1;"
        "fork_sequence 1 2 -> seq; free_sequence 1 -> 0",
        header="pool_blocks = 20",
    )
    (one,) = played(right(), case)

    assert [(step.allocations, step.frees, step.live) for step in one.steps] == [
        (2, 0, 2), (4, 0, 6), (0, 0, 6), (0, 0, 6), (4, 0, 10), (0, 4, 6), (0, 6, 0),
    ]  # fmt: skip


def test_fresh_memory_is_not_zero_and_freed_memory_is_not_reused() -> None:
    """So that a forgotten initialisation and a use after free show, and show every time."""
    lines = [
        "unsigned char *p = malloc(64), *q;",
        "if (p[0] != 0xA5 || p[63] != 0xA5) return 100;",
        "memset(p, 1, 64); free(same(p));",
        "if (((volatile unsigned char *)p)[5] != 0xDD) return 101;",
        "for (int i = 0; i < 1000; i++) { q = malloc(64); if (q == p) return 102; free(q); }",
    ]
    warnings = ("use-after-free", "maybe-uninitialized", "uninitialized")
    allowed = "".join(f'#pragma GCC diagnostic ignored "-W{name}"\n' for name in warnings)
    source = around("append_kv", "\n".join(lines), top=allowed + _TOP + "#include <string.h>\n")
    attempt = attempted(source, first_case())

    assert attempt.comparisons[0].actual[2].text == "0"


@_HEAPS
def test_memory_without_end_is_refused_not_given(header: str) -> None:
    """An allocation loop gets NULL at last; the case goes on, and its neighbours have their own memory."""
    lines = ["for (;;) { void *p = malloc(1 << 20); if (p == NULL) break; *(volatile char *)p = 1; }"]
    attempt = attempted(trouble(*lines), *variants(1, header=header), second_case())

    for one in attempt.replayed.played:
        assert [step.record for step in one.steps] == expected_records(one.case)
    assert {finding.verdict for finding in findings(attempt)} == {Verdict.MEMORY_LEAK}


def test_addresses_under_valgrind_are_those_of_the_native_run() -> None:
    """Falling cases between rising ones, in one process: errors and what is lost belong to the right case."""
    lines = [
        "    if (seq_id == 2) {",
        "        volatile int *p = same(malloc(64)), *q = same(malloc(64));",
        "        if (((uintptr_t)q < (uintptr_t)p) == kv_data % 2) mine = p[16]; /* HERE */",
        "        free(same((void *)(kv_data % 2 ? p : q)));",
        "    }",
    ]
    source = around("append_kv", "\n".join(lines), top=_TOP + "#include <stdint.h>\n")
    cases = [case for pair in zip(variants(2), variants(2, header=_FALLING), strict=True) for case in pair]
    attempt = attempted(source, *cases, valgrind=True)
    verdicts = [{finding.verdict for finding in case.findings} for case in attempt.case_findings]
    leak, both = {Verdict.MEMORY_LEAK}, {Verdict.MEMORY_LEAK, Verdict.MEMORY_ERROR}

    assert verdicts == [both, leak, leak, both]
    errors = [finding for finding in findings(attempt) if finding.verdict is Verdict.MEMORY_ERROR]
    assert {finding.source[0].line for finding in errors} == {line_of(source)}
    assert memcheck_of(attempt).processes == 1


_PLACES = (
    "static int {};",
    "int {};",
    "static int {} = 5;",
    "static _Thread_local int {};",
    "_Thread_local int {} = 5;",
    '__attribute__((section(".data.elsewhere"))) int {} = 5;',
    '__attribute__((section(".bss.elsewhere"))) int {};',
    'static const char *text = "x"; int {};',
)


def test_static_data_is_fresh_in_every_case() -> None:
    """Natively and under Valgrind: what a call leaves in a static does not reach the next case."""
    lines = ["    int *volatile nowhere = NULL; (void)text;"]
    for number, place in enumerate(_PLACES):
        start = 5 if "= 5" in place else 0
        lines += [
            f"    if (engine == NULL) calls{number} = 0;",
            f"    if (kv_data == 11 && calls{number} != {start}) kv_data = *nowhere;",
            f"    calls{number}++;",
        ]
    lines.append('    text = "y";')
    places = "\n".join(place.format(f"calls{number}") for number, place in enumerate(_PLACES))
    source = around("append_kv", "\n".join(lines), top=f"{_TOP}{places}\n")
    cases = [
        made(f"static{number}", "create_sequence 1 5 -> seq; append_kv 1 11 -> 0; append_kv 1 12 -> 0")
        for number in range(4)
    ]
    attempt = attempted(source, *cases, valgrind=True)

    assert findings(attempt) == []
    assert memcheck_of(attempt).processes == 1
