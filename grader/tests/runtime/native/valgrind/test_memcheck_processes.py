"""Valgrind's processes: how many there are, and what a program's or their own bad end costs."""

from __future__ import annotations

import platform
from dataclasses import replace
from typing import Any

import pytest

from grader.core.errors import GraderError
from grader.core.verdict import Verdict, Visibility
from grader.runtime.native.symptoms import STOPS_WHEN_CHECKED
from grader.runtime.native.valgrind import memcheck as module
from grader.runtime.native.valgrind.memcheck import ValgrindRun
from grader.runtime.protocol import Program
from grader.system import sandbox
from grader.system.sandbox import Workspace
from grader.tests.support.programs import (
    POSIX,
    around,
    attempted,
    findings,
    first_case,
    graded_text,
    line_of,
    memcheck_of,
    native,
    right,
    second_case,
)
from grader.tests.support.raising import Raising

pytestmark = pytest.mark.usefixtures("whole_libc")

_TOP = POSIX + "#include <stdlib.h>\n"
_UNDER_VALGRIND = 'getenv("LD_PRELOAD") != NULL'
"""Valgrind sets it in the environment of what it runs; the grader's own environment has none."""


def test_what_valgrind_does_not_need_is_refused_under_it() -> None:
    """Descriptors without a file, timers, and notes to whoever has the same pipe."""
    calls = (
        *('memfd_create("a", 0)', "timerfd_create(0, 0)", "eventfd(0, 0)", "epoll_create(1)", "tee(1, 1, 1, 0)"),
        *("fcntl(1, F_SETPIPE_SZ, 65536)", "setitimer(ITIMER_REAL, &soon, NULL)", "ioctl(1, FIONREAD, &soon)"),
    )
    headers = ("errno.h", "stdlib.h", "sys/epoll.h", "sys/eventfd.h", "sys/ioctl.h", "sys/mman.h", "sys/timerfd.h")
    top = POSIX + "".join(f"#include <{header}>\n" for header in headers) + "static struct itimerval soon;\n"
    tried = "".join(f"if ({call} != -1 || errno != EPERM) abort();\n" for call in calls)
    source = around("append_kv", f"    if ({_UNDER_VALGRIND}) {{ {tried} }}", top=top)

    assert findings(attempted(source, first_case(), valgrind=True)) == []


def test_valgrind_has_the_room_that_there_is_natively() -> None:
    """Whoever takes much memory and gives it back is seen to the end; here something unset is used behind that."""
    top = _TOP + "void *same(void *p);\n__attribute__((noipa)) void *same(void *p) { return p; }\n"
    much = "for (int i = 0; i < 8; i++) { char *p = malloc(5 << 20); if (p == NULL) abort(); free(same(p)); }"
    unset = "int *p = same(malloc(64)); if (p[3] == 7) abort(); free(p); /* HERE */"
    source = around("append_kv", f"    {much}\n    {unset}", top=top)
    attempt = attempted(source, first_case(), second_case(), valgrind=True)

    assert memcheck_of(attempt).unchecked == ()
    assert {(one.verdict, one.source[0].line) for one in findings(attempt)} == {(Verdict.MEMORY_ERROR, line_of(source))}


@pytest.mark.parametrize(
    "command",
    [
        ("/nonexistent/valgrind",),
        ("/bin/false",),
        ("/bin/sh", "-c", "echo no debug symbols >&2; exit 1"),
        ("/bin/sh", "-c", "kill -9 $$"),
    ],
    ids=["missing", "false", "explains itself", "killed"],
)
def test_a_valgrind_that_does_not_start_costs_nobody_a_point(
    monkeypatch: pytest.MonkeyPatch, command: tuple[str, ...]
) -> None:
    """It is our fault, said as an exception; there is no record with fewer points."""
    monkeypatch.setattr(module, "_COMMAND", command)

    with pytest.raises(GraderError):
        graded_text(right(), first_case(), valgrind=True)


def test_public_cases_are_not_told_how_long_hidden_ones_took(monkeypatch: pytest.MonkeyPatch) -> None:
    """By the patience with which Valgrind was waited for, a program could tell one bit of a hidden case."""
    waited: dict[tuple[int, ...], float] = {}

    def listening(work: Workspace, program: Program, feed: object, patience: float, **options: Any) -> ValgrindRun:
        waited[tuple(options["planned"])] = patience
        return run_once(work, program, feed, patience, **options)  # type: ignore[arg-type]

    run_once = module.run_once
    monkeypatch.setattr(module, "run_once", listening)
    with sandbox.workspace() as work:
        module.memcheck(
            work,
            native().known_good(work),
            (first_case(), replace(second_case(), visibility=Visibility.HIDDEN)),
            (0, 1),
            natively={0: 0.0001, 1: 3.0},
            driver=native().driver,
            optional=Raising(),
        )

    assert waited.keys() == {(0,), (1,)}
    assert waited[0,] < 1 < waited[1,]


@pytest.mark.skipif(platform.machine() != "x86_64", reason="the instruction is one of x86-64")
def test_an_instruction_that_valgrind_does_not_know_costs_nothing() -> None:
    """Its own limits are not the student's. Every processor runs this one natively; AVX-512 would need another one."""
    source = around("fork_sequence", '    __asm__ volatile("prefetchwt1 (%rsp)");')
    attempt = attempted(source, first_case(), second_case(), valgrind=True)
    checked = memcheck_of(attempt)
    if not (checked.unchecked or checked.stopped):
        pytest.skip("this Valgrind knows the instruction")

    assert findings(attempt) == []
    assert (checked.unchecked, checked.processes) == ((0,), 2)  # the other case is checked
    assert attempt.observed.unseen == frozenset()
    assert "it does not know an instruction that the program runs" in (attempt.observed.coverage or "")


@pytest.mark.parametrize("trap", ["__builtin_trap();", "raise(SIGILL);", '__asm__ volatile(".byte 0x62, 1, 2, 3");'])
def test_whoever_ends_itself_under_valgrind_only_pays_for_it(trap: str) -> None:
    """SIGILL alone does not tell an instruction that Valgrind does not know from one that is made to trap."""
    source = around("fork_sequence", f"    if ({_UNDER_VALGRIND}) {{ {trap} }}", top=_TOP)
    attempt = attempted(source, first_case(), second_case(), valgrind=True)

    assert [finding.kind for finding in findings(attempt)] == [STOPS_WHEN_CHECKED]
    assert not memcheck_of(attempt).unknown_instruction
