"""Calls that no memory manager needs: they fail, are named with their lines, and cost no point."""

from __future__ import annotations

import io
import os
import platform
from pathlib import Path

import pytest
from elftools.elf.elffile import ELFFile

from grader.core.record import Record
from grader.core.verdict import Verdict
from grader.labs.paged_kv.lab import lab
from grader.report.text import render
from grader.runtime.native.compile import harness_objects, unneeded_calls
from grader.runtime.program import Built, Program
from grader.system import process
from grader.system.process import Patience
from grader.system.sandbox import workspace
from grader.tests.support.conforming import VARIANTS
from grader.tests.support.programs import POSIX, around, first_case, graded_text, second_case
from grader.tests.support.raising import Raising

_TOP = (
    POSIX
    + """#include <errno.h>
#include <dlfcn.h>
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>
void *run(void *);
void *run(void *nothing) { return nothing; }
"""
)


def graded(statements: str, *, valgrind: bool = False) -> Record:
    """The record of a right program that does this in each append."""
    return graded_text(around("append_kv", statements, top=_TOP), first_case(), second_case(), valgrind=valgrind)


def built(statements: str) -> Built:
    """The end of a build of such a program."""
    with workspace() as work:
        source = around("append_kv", statements, top=_TOP).encode()
        return lab().runtime.build(work, source, beside={}, optional=Raising())


def loaded(program: Program) -> bool:
    """Does the loader start what Valgrind runs, and put libc beside it?"""
    elf = ELFFile(io.BytesIO(program.checked))
    return any(segment["p_type"] == "PT_INTERP" for segment in elf.iter_segments())


@pytest.mark.parametrize(
    "fails",
    [
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
        "poll(NULL, 0, 1000) == -1",
        'getenv("PATH") == NULL',
        "syscall(39) == -1",
    ],
)  # fmt: skip
def test_the_call_fails_as_its_manual_says(fails: str) -> None:
    """So that a program that looks at the result goes on."""
    name = fails.partition("(")[0]
    top = "    volatile char here[9]; pthread_t thread = 0; (void)here; (void)thread; errno = 0;\n"
    record = graded(top.replace("volatile ", "") + f"    if (!({fails}) || errno != ENOSYS) return -7;")

    assert (record.verdict, record.findings) == (Verdict.ACCEPTED, ())
    assert {(one.kind, one.message.partition(" ")[0]) for one in record.advice} == {("needless-call", name)}


def test_the_advice_names_every_line_of_the_call() -> None:
    """One piece of advice for a function; the report shows it and says that it is free."""
    record = graded("    if (getpid() < 0)\n        (void)fork();\n    if (getppid() < 0)\n        (void)fork();\n")
    (advice,) = record.advice
    (first, second) = (place.line for place in advice.source)
    page = " ".join(render(record).split())

    assert second == first + 2
    assert f"also in line {second}" in advice.message
    assert f"llm_memory.c:{first}: fork" in page
    assert "Costs no point." in page


def test_a_call_by_pointer_is_named_without_a_line_at_least() -> None:
    """Its address is taken somewhere."""
    top = _TOP + "pid_t (*volatile starts)(void) = fork;\n"
    record = graded_text(around("append_kv", "    if (starts() != -1) return -1;", top=top), first_case())

    assert record.verdict is Verdict.ACCEPTED
    assert [one.message.partition(" ")[0] for one in record.advice] == ["fork"]


def test_every_function_of_the_table_has_its_stub(tmp_path: Path) -> None:
    """They compile, under the strict flags too but for their missing declarations."""
    names = [name for calls in unneeded_calls._TABLE for name in calls.names.split()]
    stubs = [unneeded_calls.stub(name, f"x_{name}") for name in [*names, "__read_chk", "__open_2", "fopen64"]]
    (tmp_path / "stubs.c").write_text("#include <errno.h>\n" + "\n".join(stubs) + "\n", encoding="utf-8")
    done = process.run(
        ["gcc", "-std=c11", "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-c", "stubs.c"],
        cwd=tmp_path,
        limits=Patience(wall_seconds=60),
        environment={"PATH": os.environ["PATH"], "LC_ALL": "C"},
    )

    assert (done.exit_code, done.stderr) == (0, b"")
    assert len(names) == len(set(names))
    assert not set(names) & set(harness_objects.RENAMED)


def test_other_names_of_a_function_are_known() -> None:
    """What the headers of glibc make of it with checks or large files; nothing that only looks like it."""
    wanted = {"__read_chk", "__open64_2", "open64", "fopen64", "__open_2", "__sysv_signal", "fork"}
    real = {"write", "printf", "__printf_chk", "__memcpy_chk", "puts", "time", "qsort", "my_fork", "forked", "raise"}

    assert set(unneeded_calls.called(wanted | real)) == wanted


@pytest.mark.skipif(platform.machine() != "x86_64", reason="elsewhere all is linked with libc")
def test_with_nothing_but_such_calls_valgrind_needs_no_libc() -> None:
    """Valgrind starts as fast as without them; with a function that is really libc's it is dynamic."""
    alone, with_others = built('    if (getenv("X")) return -1;'), built('    if (getenv("X")) return rand();')
    assert alone.program is not None
    assert with_others.program is not None

    assert not loaded(alone.program)
    assert loaded(with_others.program)


def test_under_valgrind_they_fail_too() -> None:
    """And nothing of it looks like a memory error."""
    record = graded('    if (fork() == 0 || fopen("x", "r") != NULL) return -1;', valgrind=True)

    assert (record.verdict, record.findings) == (Verdict.ACCEPTED, ())


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


def test_a_log_file_costs_nothing_and_is_named() -> None:
    """As long as the program looks whether it could be opened."""
    record = graded_text(VARIANTS["a log file"](), first_case(), second_case())

    assert record.verdict is Verdict.ACCEPTED
    assert [one.message.partition(" ")[0] for one in record.advice] == ["fopen"]


def test_a_function_that_nobody_has_stays_a_link_error() -> None:
    """Only what libc has is stubbed."""
    record = graded("    extern int forkk(void); if (forkk()) return -1;")

    assert record.verdict is Verdict.COMPILE_ERROR
    assert [finding.kind for finding in record.findings] == ["linker"]
