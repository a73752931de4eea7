"""What a submission uses of libc beyond what is allowed: it fails, is named with its lines, and costs no point."""

from __future__ import annotations

from functools import cache

import pytest

from grader.core.record import Record
from grader.core.verdict import Verdict
from grader.tests.support.programs import POSIX, around, first_case, graded_text, second_case, variants, varied

_TOP = (
    POSIX
    + """#include <errno.h>
#include <dlfcn.h>
#include <mcheck.h>
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>
#include <ucontext.h>
sighandler_t set_handler(int, sighandler_t) __asm__("sigset"); /* the header calls it deprecated */
void *run(void *);
void *run(void *nothing) { return nothing; }
"""
)


def graded(statements: str, *, valgrind: bool = False) -> Record:
    """The record of a right program that does this in each append."""
    return graded_text(around("append_kv", statements, top=_TOP), first_case(), second_case(), valgrind=valgrind)


_FAILS = (
    'fopen("log", "w") == NULL',
    'open("log", O_RDONLY) == -1',
    "read(0, here, 1) == -1",
    "fork() == -1",
    'system("true") == -1',
    "kill(1, 0) == -1",
    "pthread_create(&thread, NULL, run, NULL) == ENOSYS",
    "signal(SIGSEGV, SIG_IGN) == SIG_ERR",
    "setitimer(ITIMER_REAL, NULL, NULL) == -1",
    "sleep(1000) == 0",
    "usleep(100) == -1",
    "mmap(NULL, 4096, PROT_READ, MAP_PRIVATE, -1, 0) == MAP_FAILED",
    'dlopen("libc.so.6", RTLD_NOW) == NULL',
    "socket(AF_INET, SOCK_STREAM, 0) == -1",
    "sigaction(SIGSEGV, NULL, NULL) == -1",
    "getcontext(&context) == -1",
    "setcontext(&context) == -1",
    "swapcontext(&context, &other) == -1",
    "mcheck(NULL) == 0",
    "poll(NULL, 0, 1000) == -1",
    'getenv("PATH") == NULL',
    "syscall(39) == -1",
)


@cache
def failing() -> Record:
    """The record of a program that makes each of these calls in a case of its own."""
    statements = [f"if (!({fails}) || errno != ENOSYS) return -7;" for fails in _FAILS]
    declared = (
        "char here[9]; pthread_t thread = 0; static ucontext_t context, other;"
        "(void)here; (void)thread; (void)context; (void)other; errno = 0;\n"
    )
    source = varied([f"{declared}{statement}" for statement in statements], top=_TOP)
    return graded_text(source, *variants(len(_FAILS)), second_case())


@pytest.mark.parametrize("fails", _FAILS)
def test_the_call_fails_as_its_manual_says(fails: str) -> None:
    """So that a program that looks at the result goes on."""
    outcome = failing().outcomes[_FAILS.index(fails)]

    assert (outcome.verdict, outcome.findings) == (Verdict.ACCEPTED, ())


def test_inner_allocators_and_variables_of_libc_are_out_of_reach() -> None:
    """An allocator gives NULL, a variable holds zeros, natively and under Valgrind; the advice says what to write."""
    top = (
        "#include <stddef.h>\nvoid *__libc_malloc(size_t), *__libc_calloc(size_t, size_t);\n"
        "extern char _IO_2_1_stdout_[200], *__curbrk;\n"
    )
    lines = "if (__libc_malloc(9) || __libc_calloc(3, 3) || __curbrk) return -7;\n"
    lines += "for (int i = 0; i < 200; i++) if (_IO_2_1_stdout_[i]) return -8;"
    record = graded_text(around("append_kv", lines, top=top), first_case(), valgrind=True)
    messages = [one.message for one in record.advice]

    assert (record.verdict, record.findings, record.unchecked) == (Verdict.ACCEPTED, (), "")
    assert [message.partition(" ")[0] for message in messages] == [
        "_IO_2_1_stdout_", "__curbrk", "__libc_calloc", "__libc_malloc",
    ]  # fmt: skip
    assert "While you are graded it holds only zeros" in messages[0]
    assert "call malloc instead. While you are graded the call always fails" in messages[3]


def test_weak_names_of_inner_parts_are_null() -> None:
    """Only a static libc has these; the handout's program has not. Natively and under Valgrind."""
    top = "#include <stddef.h>\nvoid *__malloc(size_t) __attribute__((weak)); int clone3(void) __attribute__((weak));\n"
    source = around("append_kv", "    if (__malloc || clone3) return -7;", top=top)

    record = graded_text(source, first_case(), valgrind=True)

    assert (record.verdict, record.advice, record.unchecked) == (Verdict.ACCEPTED, (), "")


def test_a_crash_cannot_be_handled() -> None:
    """No name of libc puts a handler in the place of the harness's."""
    statements = """
    signal(SIGSEGV, back); set_handler(SIGSEGV, back); sysv_signal(SIGSEGV, back); ssignal(SIGSEGV, back);
    struct sigaction action = {.sa_handler = back};
    sigaction(SIGSEGV, &action, NULL); __sigaction(SIGSEGV, &action, NULL);
    if (sigsetjmp(before, 1) == 0) *(volatile int *volatile)NULL = 1;
    """
    top = _TOP + (
        "#include <setjmp.h>\nstatic sigjmp_buf before;\nstatic void back(int n) { (void)n; siglongjmp(before, 1); }\n"
        "int __sigaction(int, const struct sigaction *, struct sigaction *);\n"
    )
    record = graded_text(around("append_kv", statements, top=top), first_case())

    assert record.verdict is Verdict.RUN_TIME_ERROR


def test_what_decent_programs_call_is_no_advice() -> None:
    """Prints of all kinds, text, numbers, clocks, sorting: libc's own, and they work."""
    statements = """
    char text[64];
    time_t now = time(NULL);
    srand((unsigned)now + (unsigned)clock());
    snprintf(text, sizeof text, "%d", rand());
    if (write(1, "by hand\\n", 8) != 8 || puts(text) < 0 || fflush(stdout) != 0 || atoi(text) < 0) return -1;
    fprintf(stderr, "%s", ctime(&now));
    """
    record = graded(statements)

    assert (record.verdict, record.advice) == (Verdict.ACCEPTED, ())
    assert "by hand" in record.output
