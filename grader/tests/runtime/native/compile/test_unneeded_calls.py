"""What a submission uses of libc beyond what is allowed: it fails, is named with its lines, and costs no point."""

from __future__ import annotations

from functools import cache

import pytest

from grader.core.record import Record
from grader.core.verdict import Verdict
from grader.tests.support.programs import (
    POSIX,
    around,
    attempted,
    findings,
    first_case,
    graded_text,
    line_of,
    second_case,
    variants,
    varied,
)

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
    'popen("true", "r") == NULL',
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


_FILES = {
    "a log": 'FILE *f = fopen("log", "a"); fprintf(f, "%d", seq_id); fputs("x", f); fputc(7, f); fclose(f);',
    "what it returns": """
    FILE *f = fopen("log", "w"), *other = fopen("other", "r+");
    if (fprintf(f, "%d", seq_id) != 1 || fwrite("four", 1, 4, f) != 4 || fflush(f)) return -7;
    if (fputc('x', other) != 'x' || ferror(f) || fclose(f) || fclose(other)) return -8;""",
    "it stays empty": """
    FILE *f = tmpfile(); int number;
    if (fputs("7", f) < 0 || fseek(f, 0, SEEK_END) || ftell(f) != 0) return -7;
    rewind(f); if (fscanf(f, "%d", &number) != EOF || !feof(f)) return -8;
    fclose(f); f = fopen("log", "w"); if (feof(f)) return -9;
    fclose(f);""",
    "its descriptor": """
    FILE *f = fopen("log", "w");
    if (fileno(f) < 0 || isatty(fileno(f)) || write(fileno(f), "x", 1) != 1) return -7;
    fclose(f);""",
    "buffers that end with it": """
    for (int i = 0; i < 9; i++) {
        char here[64], *there = malloc(64);
        FILE *f = fopen("log", "w"); setvbuf(f, here, _IOFBF, sizeof here); fputs("x", f); fclose(f);
        f = fopen("log", "w"); setvbuf(f, there, _IOLBF, 64); fputs("x", f); fclose(f); free(there);
    }
    FILE *f = fopen("log", "w"); for (int i = 0; i < 9999; i++) fputs("long after", f);
    fclose(f);""",
    "never closed": 'for (int i = 0; i < 5000; i++) fputs("x", fopen("log", "a"));',
    "another place for stdout": """
    if (freopen("log", "w", stdout) != stdout || printf("x") != 1 || freopen(NULL, "rb", stdin) != stdin) return -7;""",
    "none to be read": """
    errno = 0; if (fopen("log", "r") != NULL || errno != ENOENT || freopen("log", "rb", stdin) != NULL) return -7;
    if (fopen("log", "w") == NULL || fopen("log", "r") != NULL) return -8;""",
}


@cache
def filing() -> Record:
    """The record of a program that does each of them in a case of its own, natively and under Valgrind."""
    return graded_text(varied(_FILES.values(), top=_TOP), *variants(len(_FILES)), second_case(), valgrind=True)


@pytest.mark.parametrize("what", _FILES)
def test_a_file_to_be_written_swallows_what_is_written(what: str) -> None:
    """No check and no fclose is needed; nothing of it is a finding, on the heap or of Valgrind."""
    outcome = filing().outcomes[list(_FILES).index(what)]

    assert (outcome.verdict, outcome.findings, filing().unchecked) == (Verdict.ACCEPTED, (), "")


def test_advice_says_what_becomes_of_files() -> None:
    """With the line, and no point is lost."""
    source = around("append_kv", f"{_FILES['a log']} /* HERE */", top=_TOP)
    record = graded_text(source, first_case(), valgrind=True)
    (advice,) = record.advice

    assert (record.verdict, record.findings, record.unchecked) == (Verdict.ACCEPTED, (), "")
    assert [line.line for line in advice.source] == [line_of(source)]
    assert advice.message == (
        "fopen is about files; a memory manager needs none of that. "
        "While you are graded no file is there to be read, and what is written to one is dropped"
    )


_NOT_CHECKED = {
    "fopen": 'char text[9]; FILE *f = fopen("config", "r"); /* HERE */\n if (fgets(text, 9, f)) puts(text);',
    "fopen64": 'FILE *f = fopen64("config", "rb"); /* HERE */\n if (f == NULL) exit(1);\n fclose(f);',
    "open": 'if (open("config", O_RDONLY) < 0) /* HERE */\n return -1;',
    "getenv": 'if (*getenv("HOME")) /* HERE */\n puts("x");',
    "popen": 'FILE *f = popen("ls", "r"); /* HERE */\n if (getc(f) != EOF) puts("x");',
    "system": 'if (system("clear") != 0) abort(); /* HERE */',
}


@pytest.mark.parametrize("call", _NOT_CHECKED)
def test_a_failure_after_a_refused_call_is_headed_by_it(call: str) -> None:
    """Whether it crashes, ends the program or gives up: with the line of the call, before all other hints."""
    source = around("append_kv", _NOT_CHECKED[call], top=_TOP)
    record = graded_text(source, first_case(), second_case())
    finding = record.findings[0]
    called = call.removesuffix("64")

    assert finding.hint.startswith(f"{called}, called at llm_memory.c:{line_of(source)}, fails while you are graded: ")
    assert record.first_cause is not None
    assert record.first_cause.hint == finding.hint
    assert ("no file is there to be read" in finding.hint) == (called == "fopen")


def test_a_refused_call_that_a_program_survives_heads_nothing() -> None:
    """It is made at the same line by calls that are right; what goes wrong has another reason."""
    helper = 'static void say(void) { const char *log = getenv("LOG"); if (log != NULL) puts(log); }\n'
    text = around("create_sequence", "    say();", top=_TOP + helper)
    source = around("append_kv", "    say(); if (seq_id == 2) *(volatile int *volatile)NULL = 1;", text=text, top="")
    (finding,) = findings(attempted(source, first_case(), second_case()))

    assert finding.verdict is Verdict.RUN_TIME_ERROR
    assert "getenv" not in finding.hint


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
