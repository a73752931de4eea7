"""The harness: a call that crashes, hangs or leaves ends its case, and nothing else."""

from __future__ import annotations

from functools import cache

import pytest

from grader.attempt import Attempt
from grader.core.verdict import Finding, Verdict
from grader.runtime.protocol import End
from grader.tests.support.programs import (
    POSIX,
    TENTH,
    around,
    attempted,
    expected_records,
    findings,
    first_case,
    line_of,
    second_case,
    seconds_here,
    variants,
    varied,
)

pytestmark = pytest.mark.usefixtures("whole_libc")

_CALL = 5
"""The operation of `first_case` that goes wrong: the append to sequence 2."""

_DEEP = (
    "int deep(int n);\n"
    "int deep(int n)\n{\n"
    "    volatile char room[4096];\n"
    "    room[n % 4096] = (char)n; /* HERE */\n"
    "    return n < -1 ? 0 : deep(n + 1) + room[0];\n"
    "}\n"
)


def trouble(statements: str, *, top: str = POSIX) -> str:
    """A right program whose `append_kv` does this when it comes to sequence 2."""
    return around("append_kv", f"    if (seq_id == 2) {{ {statements} }}", top=top)


def assert_only_that_call_failed(attempt: Attempt, end: str, number: int = 0) -> Finding:
    """The operations before it and the last case are whole; the one finding about the end is returned."""
    broken, other = (attempt.replayed.played[place] for place in (number, -1))
    assert [step.record for step in broken.steps] == expected_records(broken.case)[:_CALL]
    assert [step.record for step in other.steps] == expected_records(other.case)
    assert [attempt.comparisons[place].ending_kind for place in (number, -1)] == [end, "reached"]
    assert attempt.comparisons[number].ended_at == _CALL
    assert other.case.name not in {finding.case for finding in findings(attempt)}
    (finding,) = (finding for finding in findings(attempt) if finding.case == broken.case.name)
    assert finding.operation == _CALL + 1
    return finding


_CRASHES = {
    "null": ("*(volatile int *)0 = 1;", "NULL"),
    "wild": ("*(volatile int *)0x123456789000 = 1;", "Segmentation fault"),
    "division": ("volatile int zero = 0; kv_data = 7 / zero;", "Floating point"),
    "trap": ("__builtin_trap();", "Illegal instruction"),
    "bus": ("raise(SIGBUS);", "Bus error"),
    "breakpoint": ("raise(SIGTRAP);", "trap"),
    "assert": ("assert(engine == NULL);", "Aborted"),
    "raised": ("raise(SIGSEGV);", "Segmentation fault"),
}


@cache
def crashed() -> tuple[str, Attempt]:
    """A program that crashes in each of these ways, in a case of its own, and its attempt."""
    source = varied([f"{statement} /* {name} */" for name, (statement, _) in _CRASHES.items()])
    return source, attempted(source, *variants(len(_CRASHES)), second_case())


@pytest.mark.parametrize("name", _CRASHES)
def test_a_crash_keeps_what_came_before_and_names_the_line(name: str) -> None:
    """Earlier operations count, the other case too; the message has signal and line of the student's file."""
    source, attempt = crashed()
    finding = assert_only_that_call_failed(attempt, "crash", list(_CRASHES).index(name))

    assert finding.verdict is Verdict.RUN_TIME_ERROR
    assert _CRASHES[name][1] in finding.message
    assert finding.source[0].line == line_of(source, f"/* {name} */")
    assert finding.source[0].file == "llm_memory.c"


def test_the_line_of_a_crash_is_that_of_the_statement_itself() -> None:
    """Not of the instruction before it: a program counter is no return address."""
    lines = [
        "    volatile int *volatile nowhere = NULL;",
        "    kv_data +=",
        "        1;",
        "    *nowhere = kv_data; /* HERE */",
        "    kv_data -= 1;",
    ]
    source = around("append_kv", "\n".join(lines))
    attempt = attempted(source, first_case())
    (finding,) = findings(attempt)

    assert finding.source[0].line == line_of(source)


def test_a_line_in_a_helper_comes_with_its_callers() -> None:
    """The stack has the student's frames, innermost first, and no other."""
    top = (
        POSIX + "static __attribute__((noinline)) void helper(volatile int *volatile p)\n{\n    *p = 1; /* HERE */\n}\n"
    )
    source = trouble("helper(NULL); /* CALLER */", top=top)
    (finding,) = findings(attempted(source, first_case()))

    assert [line.line for line in finding.source[:2]] == [line_of(source), line_of(source, "/* CALLER */")]
    assert finding.source[0].function.startswith("helper")
    assert {line.file for line in finding.source} == {"llm_memory.c"}


def test_a_stack_overflow_is_caught_on_another_stack() -> None:
    """Recursion without end: a crash like any other, with the line of the recursion."""
    source = trouble("return deep(0);", top=POSIX + _DEEP)
    finding = assert_only_that_call_failed(attempted(source, first_case(), second_case()), "crash")

    assert abs(finding.source[0].line - line_of(source)) <= 1


_LARGE = "volatile char big[32 << 20]; big[n] = 1; return big[n + 1];"
_CIRCLE = "volatile int own = n; return call{}(n + 1) + own;"
_CALLS = 7


@pytest.mark.parametrize(("body", "size"), [(_LARGE, "32 MB"), (_CIRCLE, " MB")], ids=["array", "circle of calls"])
def test_a_full_stack_is_called_that(body: str, size: str) -> None:
    """No pointer is wrong there. In a long circle of calls no function is seen to call itself."""
    declared = "".join(f"__attribute__((noipa)) int call{i}(int n);\n" for i in range(_CALLS))
    defined = "".join(f"int call{i}(int n) {{ {body.format((i + 1) % _CALLS)} }}\n" for i in range(_CALLS))
    source = trouble("return call0(0);", top=POSIX + declared + defined)
    attempt = attempted(source, first_case(), second_case())
    finding = assert_only_that_call_failed(attempt, "crash")

    assert "the stack is full" in finding.message
    assert size in finding.message
    assert "pointer" not in finding.message + finding.hint
    assert finding.source[0].function.startswith("call")


def test_a_way_out_past_the_harness_is_noticed() -> None:
    """A raw system call ends the process without a word; the missing reports tell."""
    source = trouble("syscall(231, 0);", top=POSIX + "#include <sys/syscall.h>\n")

    assert_only_that_call_failed(attempted(source, first_case(), second_case()), "stopped")


def test_an_endless_loop_ends_after_a_second_try() -> None:
    """With the real limits: a few seconds for the whole submission, the loop's line, and the next case unharmed."""
    source = trouble("for (volatile int on = 1; on;) { } /* HERE */")
    attempt = attempted(source, first_case(), second_case())
    finding = assert_only_that_call_failed(attempt, "hang")

    assert finding.verdict is Verdict.TIME_LIMIT_EXCEEDED
    assert finding.source[0].line == line_of(source)
    assert attempt.spent["play"] < seconds_here(3)


@pytest.mark.parametrize(
    "statements",
    ["for (;;) pause();", "for (;;) pthread_mutex_lock(&held);", "raise(SIGSTOP);"],
    ids=["pause", "lock", "stop"],
)
def test_a_program_that_waits_for_ever_is_ended(statements: str) -> None:
    """The wall clock ends what uses no processor."""
    top = POSIX + "#include <pthread.h>\nstatic pthread_mutex_t held = PTHREAD_MUTEX_INITIALIZER;\n"
    top += "pthread_mutex_t *used = &held;\n"
    source = trouble(statements, top=top)
    finding = assert_only_that_call_failed(attempted(source, first_case(), second_case(), limits=TENTH), "hang")

    assert finding.verdict is Verdict.TIME_LIMIT_EXCEEDED


_NO_TIMER = {
    "ignored": "signal(SIGPROF, SIG_IGN);",
    "handled": "signal(SIGPROF, quiet);",
    "blocked": "sigset_t all; sigfillset(&all); sigprocmask(SIG_BLOCK, &all, NULL);",
    "disarmed": "setitimer(ITIMER_PROF, &(struct itimerval){{0, 0}, {0, 0}}, NULL);",
}


@pytest.mark.timeout(40)
@pytest.mark.parametrize("statements", _NO_TIMER.values(), ids=_NO_TIMER)
def test_a_loop_that_switches_the_timer_off_is_ended_too(statements: str) -> None:
    """No call to signal, sigprocmask or setitimer buys more time."""
    top = POSIX + "static void quiet(int number) { (void)number; }\nvoid (*used)(int) = quiet;\n"
    source = trouble(f"{statements} for (volatile int on = 1; on;) {{ }}", top=top)
    finding = assert_only_that_call_failed(attempted(source, first_case(), second_case(), limits=TENTH), "hang")

    assert finding.verdict is Verdict.TIME_LIMIT_EXCEEDED


def test_a_slow_first_try_is_no_hang() -> None:
    """One call beyond the limit, but within twice the limit: it gets its second try, and passes."""
    top = POSIX + "#include <time.h>\n"
    work = "clock_t end = clock() + CLOCKS_PER_SEC * 8 / 1000; while (clock() < end) { }"
    attempt = attempted(trouble(work, top=top), first_case(), limits=TENTH)

    assert attempt.comparisons[0].end is End.REACHED
    assert findings(attempt) == []


def test_many_hanging_cases_cost_little_more_than_one() -> None:
    """After the first proven hang later limits are short."""
    attempt = attempted(trouble("for (volatile int on = 1; on;) { }"), *[first_case()] * 30, limits=TENTH)

    assert {comparison.ending_kind for comparison in attempt.comparisons} == {"hang"}
    assert attempt.spent["play"] < seconds_here(1.5)


_SWITCHES = (
    "alarm(1000);",
    "signal(SIGSEGV, SIG_IGN); signal(SIGPROF, SIG_IGN);",
    "setitimer(ITIMER_REAL, &(struct itimerval){{0, 0}, {1000, 0}}, NULL);",
    "sigset_t all; sigfillset(&all); sigprocmask(SIG_BLOCK, &all, NULL);",
    "alternate.ss_flags = SS_DISABLE; sigaltstack(&alternate, NULL);",
    'if (chdir("/") == 0) { return -1; } setpgid(0, 0); umask(0); sleep(1000);',
)


def test_switches_of_the_process_do_no_harm() -> None:
    """A program that turns them, each in a case of its own, and does its work right is right."""
    top = POSIX + "#include <sys/stat.h>\nstatic stack_t alternate;\nstack_t *used = &alternate;\n"
    attempt = attempted(varied(_SWITCHES, top=top), *variants(len(_SWITCHES)), second_case())

    assert findings(attempt) == []
    assert {comparison.ending_kind for comparison in attempt.comparisons} == {End.REACHED}


def test_a_crash_in_the_last_clean_up_has_its_line() -> None:
    """The implicit llm_destroy is an operation too."""
    source = around("llm_destroy", "    volatile int *volatile nowhere = NULL; *nowhere = 1; /* HERE */")
    attempt = attempted(source, first_case())
    (finding,) = findings(attempt)

    assert finding.operation == len(first_case().trace.operations)
    assert finding.source[0].line == line_of(source)
